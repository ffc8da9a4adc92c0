import asyncio
from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import aclosing
from typing import Any

import pytest

from hibernaut.kernel.transcript import TranscriptInvalid
from hibernaut.messages.events import Usage
from hibernaut.messages.items import CallItem, Item, ResultItem, TextItem, UserItem
from hibernaut.messages.parts import Image, Text
from hibernaut.messages.stream import (
    CallDelta,
    CallEnded,
    CallStarted,
    Finish,
    ReasoningBlock,
    StreamPiece,
    TextDelta,
    ThinkingDelta,
)
from hibernaut.models.errors import ConnectionLost, Overloaded, RateLimited
from hibernaut.models.protocol import Model, ModelInfo, ModelRequest
from hibernaut.models.scripted import (
    Part,
    ScriptedModel,
    ScriptedTurn,
    ScriptExhausted,
    Step,
    call,
    call_raw,
    cut,
    drop,
    fail,
    last_result,
    last_user_text,
    pieces,
    refuse,
    results,
    say,
    stall,
    think,
    turn,
)
from hibernaut.testing.clock import ManualClock
from hibernaut.testing.gates import Gate

HELLO = UserItem("hello")
END = Finish()
LOST = ConnectionLost("reset")


def request(*transcript: Item, thread_id: str = "t1") -> ModelRequest:
    return ModelRequest("scripted:m", "Be kind.", transcript or (HELLO,), (), thread_id)


async def taken(model: Model, asked: ModelRequest | None = None) -> list[StreamPiece]:
    return [piece async for piece in model.stream(asked or request())]


def played(model: Model, asked: ModelRequest | None = None) -> list[StreamPiece]:
    return asyncio.run(taken(model, asked))


def taken_until_error(model: Model) -> tuple[list[StreamPiece], Exception | None]:
    async def take() -> tuple[list[StreamPiece], Exception | None]:
        found: list[StreamPiece] = []
        try:
            async for piece in model.stream(request()):
                found.append(piece)  # noqa: PERF401  # what came before the error is wanted
        except ConnectionLost as error:
            return found, error
        return found, None

    return asyncio.run(take())


# Turns


@pytest.mark.parametrize(
    "made,expected",
    [
        (say("hello"), [TextDelta("hello")]),
        (say("hel", "lo"), [TextDelta("hel"), TextDelta("lo")]),
        (say("hello", chunks=2), [TextDelta("he"), TextDelta("ll"), TextDelta("o")]),
        (say("hello", chunks=[1, 3]), [TextDelta("h"), TextDelta("ell"), TextDelta("o")]),
        (think("hm", "m"), [ThinkingDelta("hm"), ThinkingDelta("m")]),
        (
            think("hm", "m", data=b"x"),
            [ThinkingDelta("hm"), ThinkingDelta("m"), ReasoningBlock("scripted", b"x", "hmm")],
        ),
        (think(data=b"redacted", provider="other"), [ReasoningBlock("other", b"redacted")]),
        (call("t", path="x"), [CallStarted(0, "t"), CallDelta(0, '{"path":"x"}'), CallEnded(0)]),
        (call("t", {"name": 1}, path=2), [CallStarted(0, "t"), CallDelta(0, '{"name":1,"path":2}'), CallEnded(0)]),
        (call("t"), [CallStarted(0, "t"), CallDelta(0, "{}"), CallEnded(0)]),
        (call_raw("t", '{"broken'), [CallStarted(0, "t"), CallDelta(0, '{"broken'), CallEnded(0)]),
        (
            call_raw("t", '{"a":1}', chunks=4, provider_id="toolu_1", data=b"signed"),
            [CallStarted(0, "t", "toolu_1"), CallDelta(0, '{"a"'), CallDelta(0, ":1}"), CallEnded(0, b"signed")],
        ),
        (call_raw("t", "{", ended=False), [CallStarted(0, "t"), CallDelta(0, "{")]),
        (turn(), []),
        (turn("plain", TextDelta("piece")), [TextDelta("plain"), TextDelta("piece")]),
    ],
)
def test_a_builder_makes_a_whole_turn_of_the_pieces_it_stands_for(made: ScriptedTurn, expected: list[Step]) -> None:
    assert list(made.pieces) == [*expected, END]


def test_parts_are_put_together_and_their_calls_numbered() -> None:
    both = turn(call_raw("b", ""), call("c"))
    made = turn(think("hm"), say("hi"), call("a"), both, usage=Usage(5, 2), reason="length")
    assert list(made.pieces) == [
        *(ThinkingDelta("hm"), TextDelta("hi")),
        *(CallStarted(0, "a"), CallDelta(0, "{}"), CallEnded(0)),
        *(CallStarted(1, "b"), CallDelta(1, ""), CallEnded(1)),
        *(CallStarted(2, "c"), CallDelta(2, "{}"), CallEnded(2)),
        Finish("length", Usage(5, 2)),
    ]


def test_a_turn_that_is_put_into_another_keeps_how_it_ends_unless_told_otherwise() -> None:
    inner = turn("hi", usage=Usage(5, 2), reason="length")
    assert turn(inner).pieces[-1] == Finish("length", Usage(5, 2))
    assert turn(inner, usage=Usage(1)).pieces[-1] == Finish("length", Usage(1))
    assert turn(inner, reason="end").pieces[-1] == Finish("end", Usage(5, 2))
    assert taken_until_error(ScriptedModel(turn("half", fail(LOST)))) == ([TextDelta("half")], LOST)


@pytest.mark.parametrize("ending", [fail(LOST), drop(), stall(), cut(), refuse(), pieces([])])
def test_nothing_can_follow_what_ends_a_stream(ending: ScriptedTurn) -> None:
    with pytest.raises(ValueError, match="nothing can follow"):
        turn(ending, "more")


@pytest.mark.parametrize("ending", [fail(LOST), drop(), stall()])
def test_a_turn_that_breaks_off_reports_nothing(ending: ScriptedTurn) -> None:
    with pytest.raises(ValueError, match="neither a reason nor a usage"):
        turn("hi", ending, usage=Usage(1))


def test_a_turn_can_be_cut_smaller_as_a_whole() -> None:
    made = turn(think("hmm", data=b"x"), "hello", call("t", n=1), chunks=3)
    assert list(made.pieces) == [
        *(ThinkingDelta("hmm"), ReasoningBlock("scripted", b"x", "hmm"), TextDelta("hel"), TextDelta("lo")),
        *(CallStarted(0, "t"), CallDelta(0, '{"n'), CallDelta(0, '":1'), CallDelta(0, "}"), CallEnded(0), END),
    ]


def test_what_is_neither_a_piece_nor_a_pause_is_refused_where_it_is_written() -> None:
    with pytest.raises(TypeError, match="7 is neither a piece of a stream nor a pause"):
        turn("hi", 7)  # type: ignore[arg-type]


# Failures


HALF_WAY: Sequence[Part] = (say("one ", "two "), think("hm"), call_raw("t", '{"a"', ":1}"))


@pytest.mark.parametrize("after", range(8))
def test_c51_a_stream_breaks_wherever_it_is_wanted(after: int) -> None:
    whole = list(turn(*HALF_WAY).pieces)
    assert taken_until_error(ScriptedModel(fail(LOST, *HALF_WAY, after=after))) == (whole[:after], LOST)
    assert played(ScriptedModel(drop(*HALF_WAY, after=after))) == whole[:after]
    assert played(ScriptedModel(cut(*HALF_WAY, after=after))) == [*whole[:after], Finish("length")]


def test_a_stream_that_breaks_nowhere_in_particular_breaks_at_the_end() -> None:
    whole = list(turn(*HALF_WAY).pieces)[:-1]
    assert taken_until_error(ScriptedModel(fail(LOST, *HALF_WAY))) == (whole, LOST)
    assert played(ScriptedModel(drop(*HALF_WAY))) == whole


@pytest.mark.parametrize("after", [-1, 8])
def test_a_stream_cannot_break_after_more_than_there_is(after: int) -> None:
    with pytest.raises(ValueError, match="there are 7 pieces"):
        fail(LOST, *HALF_WAY, after=after)


def test_pauses_do_not_count_as_pieces() -> None:
    made = fail(LOST, turn("one", Gate(), "two", delay=5), after=1)
    assert made.pieces == (TextDelta("one"),)


def test_an_error_alone_is_a_turn_that_fails_at_once_each_time() -> None:
    model = ScriptedModel([RateLimited("slow down", retry_after=2_000)] * 2 + ["fine"])
    depths: list[int] = []
    for _ in range(2):
        with pytest.raises(RateLimited, match="slow down") as caught:
            played(model)
        assert caught.value.retry_after == 2_000
        depths.append(len(caught.traceback))
    assert depths[0] == depths[1], "the error forgets where it was raised before"
    assert played(model) == [TextDelta("fine"), END]


def test_a_turn_that_is_cut_ends_in_half_a_call() -> None:
    made = cut("Let me ", call_raw("t", '{"pa'), usage=Usage(9, 9))
    assert list(made.pieces) == [
        TextDelta("Let me "),
        CallStarted(0, "t"),
        CallDelta(0, '{"pa'),
        Finish("length", Usage(9, 9)),
    ]
    assert list(cut("half a sen").pieces) == [TextDelta("half a sen"), Finish("length")]


def test_a_refusal_is_a_turn_that_says_so() -> None:
    assert list(refuse("I would rather not.").pieces) == [TextDelta("I would rather not."), Finish("refused")]


def test_pieces_are_played_as_they_are() -> None:
    exact: list[StreamPiece] = [CallDelta(4, "x"), TextDelta(""), Finish("end", Usage(1)), TextDelta("late")]
    assert played(ScriptedModel(pieces(exact))) == exact
    assert played(ScriptedModel(pieces([END, END]))) == [END, END]


def test_a_stall_lasts_until_it_is_given_up() -> None:
    async def scenario() -> None:
        model = ScriptedModel(stall("one"))
        stream = model.stream(request())
        assert await anext(stream) == TextDelta("one")
        waiting = asyncio.ensure_future(anext(stream))
        for _ in range(10):
            await asyncio.sleep(0)
        assert not waiting.done()
        assert model.streaming == 1
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert model.streaming == 0

    asyncio.run(scenario())


# Delivery


def test_a_gate_holds_the_stream_at_its_place_until_it_is_opened() -> None:
    async def scenario() -> None:
        gate = Gate()
        model = ScriptedModel([turn("one ", gate, "two")] * 2)
        found: list[StreamPiece] = []

        async def take() -> None:
            async for piece in model.stream(request()):
                found.append(piece)  # noqa: PERF401  # looked at while it is being filled

        taking = asyncio.create_task(take())
        await gate.reached()
        assert (found, taking.done()) == ([TextDelta("one ")], False)
        gate.open()
        await taking
        assert found == [TextDelta("one "), TextDelta("two"), END]
        assert await taken(model) == found, "it stays open"

    asyncio.run(scenario())


def test_delays_are_taken_on_the_models_clock() -> None:
    async def scenario() -> None:
        clock = ManualClock()
        made = turn(think("hm"), "hello", call("t"), chunks=3, delay=10, first_delay=500)
        start = clock.now()
        times: list[tuple[int, StreamPiece]] = []

        async def take() -> None:
            async for piece in ScriptedModel(made, clock=clock).stream(request()):
                times.append((clock.now() - start, piece))  # noqa: PERF401

        taking = asyncio.create_task(take())
        while not taking.done():
            await asyncio.sleep(0)
            clock.advance(10)
        assert times == [
            *((510, ThinkingDelta("hm")), (520, TextDelta("hel")), (530, TextDelta("lo"))),
            *((530, CallStarted(0, "t")), (540, CallDelta(0, "{}")), (540, CallEnded(0)), (540, END)),
        ]

    asyncio.run(scenario())


def test_closing_a_stream_ends_it() -> None:
    async def scenario() -> None:
        model = ScriptedModel([say("a", "b"), turn("a", Gate(), "b")])
        for _ in range(2):
            async with aclosing(model.stream(request())) as stream:
                assert await anext(stream) == TextDelta("a")
                assert model.streaming == 1
            assert model.streaming == 0

    asyncio.run(scenario())


# Scripts


def test_turns_in_a_row_serve_whoever_asks_next() -> None:
    model = ScriptedModel(["one", say("two"), turn("three")])
    assert model.left == 3
    assert [played(model, request(thread_id=name))[0] for name in ("a", "b", "a")] == [
        TextDelta("one"),
        TextDelta("two"),
        TextDelta("three"),
    ]
    assert model.left == 0


def test_a_script_that_has_run_out_says_who_asked_for_what() -> None:
    model = ScriptedModel("only one")
    played(model)
    with pytest.raises(ScriptExhausted, match=r"after 1 turns; now thread 't7' asks UserItem\(content='and then\?'"):
        played(model, request(UserItem("and then?"), thread_id="t7"))


def test_turns_of_each_thread_are_played_apart() -> None:
    model = ScriptedModel({"a": ["one", "two"], "b": ["three"]})
    assert [played(model, request(thread_id=name))[0] for name in ("a", "b", "a")] == [
        TextDelta("one"),
        TextDelta("three"),
        TextDelta("two"),
    ]
    assert model.left == 0
    with pytest.raises(ScriptExhausted, match=r"no script for thread 'c', only for \['a', 'b'\]"):
        played(model, request(thread_id="c"))
    with pytest.raises(ScriptExhausted, match="thread 'b'"):
        played(model, request(thread_id="b"))


def test_an_endless_script_is_read_as_it_is_played() -> None:
    def count() -> Iterator[str]:
        number = 0
        while True:
            number += 1
            yield f"turn {number}"

    model = ScriptedModel(count())
    assert [played(model)[0] for _ in range(3)] == [TextDelta("turn 1"), TextDelta("turn 2"), TextDelta("turn 3")]


def test_a_function_answers_what_it_is_asked() -> None:
    model = ScriptedModel(lambda asked: f"you said {last_user_text(asked)}")
    assert played(model) == [TextDelta("you said hello"), END]


def test_a_function_may_be_async_and_may_fail() -> None:
    async def script(asked: ModelRequest) -> ScriptedTurn | Exception:
        await asyncio.sleep(0)
        if asked.thread_id == "t1":
            return Overloaded("busy")
        raise LOST

    model = ScriptedModel(script)
    with pytest.raises(Overloaded):
        played(model)
    with pytest.raises(ConnectionLost):
        played(model, request(thread_id="t2"))
    assert model.streaming == 0


def test_a_function_may_give_the_pieces_one_by_one() -> None:
    closed: list[str] = []

    async def slowly(_asked: ModelRequest) -> AsyncGenerator[Step, None]:
        try:
            yield TextDelta("a")
            await asyncio.sleep(0)
            yield TextDelta("b")
        finally:
            closed.append("slowly")

    def at_once(_asked: ModelRequest) -> Iterator[Step]:
        yield TextDelta("a")
        raise LOST

    async def scenario() -> None:
        model = ScriptedModel(slowly)
        assert await taken(model) == [TextDelta("a"), TextDelta("b")]
        async with aclosing(model.stream(request())) as stream:
            await anext(stream)
        assert closed == ["slowly", "slowly"]

    asyncio.run(scenario())
    assert taken_until_error(ScriptedModel(at_once)) == ([TextDelta("a")], LOST)
    assert played(ScriptedModel(lambda _: [TextDelta("c"), END])) == [TextDelta("c"), END]


def test_a_function_that_gives_something_else_is_told_so() -> None:
    async def one_by_one(_asked: ModelRequest) -> AsyncGenerator[Any, None]:
        yield "c"

    def at_once(_asked: ModelRequest) -> Any:
        return ["c"]

    for script in (one_by_one, at_once):
        with pytest.raises(TypeError, match="'c' is neither a piece"):
            played(ScriptedModel(script))


# Requests


def test_requests_are_kept_as_they_were() -> None:
    transcript: list[Item] = [HELLO]
    model = ScriptedModel(["one", "two"])
    asked = ModelRequest("scripted:m", "Be kind.", transcript, (), "t1")
    played(model, asked)
    transcript += [TextItem("one"), UserItem("again")]
    played(model, asked)
    assert [kept.transcript for kept in model.requests] == [(HELLO,), (HELLO, TextItem("one"), UserItem("again"))]
    assert model.requests[0] == request()


def test_requests_are_not_kept_where_they_are_not_wanted() -> None:
    model = ScriptedModel("one", record=False)
    played(model)
    assert model.requests == []


def test_a20_a_transcript_that_no_provider_would_take_is_refused_before_anything_comes() -> None:
    broken = request(HELLO, CallItem("c1", "t"), HELLO)
    model = ScriptedModel("one")
    with pytest.raises(TranscriptInvalid):
        played(model, broken)
    assert (model.left, len(model.requests)) == (1, 1)
    assert played(ScriptedModel("one", check=False), broken) == [TextDelta("one"), END]


def test_what_is_known_of_the_model_can_be_set() -> None:
    assert ScriptedModel("hi").info == ModelInfo()
    info = ModelInfo(context_window=1_000, images=False)
    model = ScriptedModel("hi", info=info)
    assert model.info is info
    model.info = ModelInfo(max_output=7)
    assert model.info.max_output == 7


def test_a_function_can_read_what_was_said_and_what_came_back() -> None:
    asked = request(
        *(HELLO, CallItem("c1", "t"), CallItem("c2", "t"), ResultItem("c1", "one")),
        *(ResultItem("c2", (Text("two"), Image("image/png"))), UserItem("a note", origin="runtime")),
    )
    assert last_user_text(asked) == "hello"
    assert results(asked) == ["one", "two\n[image: image/png]"]
    assert last_result(asked) == "two\n[image: image/png]"
    nothing = request(UserItem("a note", origin="runtime"))
    assert (last_user_text(nothing), last_result(nothing), results(nothing)) == ("", "", [])
