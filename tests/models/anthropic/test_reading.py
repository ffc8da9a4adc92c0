"""What is read from an answer, however it is cut, and whatever a server makes of the wire."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any

import httpx2
import msgspec
import pytest

from hibernaut.kernel.turn import Turn, TurnBuffer, TurnCall, TurnText
from hibernaut.messages.events import Usage
from hibernaut.messages.items import UserItem
from hibernaut.messages.stream import (
    CallDelta,
    CallEnded,
    CallStarted,
    Counted,
    Finish,
    ReasoningBlock,
    StreamPiece,
    TextDelta,
    ThinkingDelta,
)
from hibernaut.models.anthropic.dialect import AnthropicDialect
from hibernaut.models.endpoint import Endpoint
from hibernaut.models.errors import ConnectionLost, ContextOverflow, InvalidRequest, Overloaded, RateLimited
from hibernaut.models.http_model import HttpModel
from hibernaut.models.scripted import call, call_raw, cut, stall, think, turn
from hibernaut.testing.providers.anthropic import AnthropicWire
from hibernaut.testing.providers.wire import Asked, Raw
from tests.models.anthropic.setting import BUDGET, KEY, USAGE, about, read, talking
from tests.models.histories import request

HELLO = request(UserItem("hello"))


def event(kind: str, **fields: Any) -> bytes:
    return f"event: {kind}\ndata: ".encode() + msgspec.json.encode({"type": kind, **fields}) + b"\n\n"


def start(**usage: Any) -> bytes:
    return event("message_start", message={"id": "m", "content": [], "stop_reason": None, "usage": usage})


def begin(index: int, block: Any) -> bytes:
    return event("content_block_start", index=index, content_block=block)


def delta(index: int, **fields: Any) -> bytes:
    return event("content_block_delta", index=index, delta=fields)


def stop(index: int) -> bytes:
    return event("content_block_stop", index=index)


def end(reason: str, details: Any = None, **usage: Any) -> bytes:
    return event("message_delta", delta={"stop_reason": reason, "stop_details": details}, usage=usage)


OVER = event("message_stop")
TOOL = {"type": "tool_use", "id": "toolu_1", "name": "look", "input": {}}


def text(*deltas: str) -> list[bytes]:
    return [
        begin(0, {"type": "text", "text": ""}),
        *[delta(0, type="text_delta", text=each) for each in deltas],
        stop(0),
    ]


def turned(pieces: Sequence[StreamPiece]) -> Turn:
    buffer = TurnBuffer()
    buffer.feed_all(pieces)
    return buffer.turn()


# As it is documented


def test_thinking_text_and_calls_are_read_with_what_they_took() -> None:
    found = read(
        [
            start(input_tokens=20, cache_creation_input_tokens=80, cache_read_input_tokens=900, output_tokens=1),
            event("ping"),
            begin(0, {"type": "thinking", "thinking": "", "signature": ""}),
            delta(0, type="thinking_delta", thinking="Let me "),
            delta(0, type="thinking_delta", thinking="see."),
            delta(0, type="signature_delta", signature="EqQB"),
            delta(0, type="signature_delta", signature="CgIY"),
            stop(0),
            begin(1, {"type": "redacted_thinking", "data": "EmwK"}),
            stop(1),
            begin(2, {"type": "text", "text": ""}),
            delta(2, type="text_delta", text="I look."),
            stop(2),
            begin(3, TOOL),
            delta(3, type="input_json_delta", partial_json=""),
            delta(3, type="input_json_delta", partial_json='{"pa'),
            delta(3, type="input_json_delta", partial_json='th":"a"}'),
            stop(3),
            end("tool_use", output_tokens=89),
            OVER,
        ]
    )
    assert found == [
        Counted(Usage(1_000, 1, 900), written=80),
        ThinkingDelta("Let me "),
        ThinkingDelta("see."),
        ReasoningBlock(
            "anthropic", b'{"type":"thinking","thinking":"Let me see.","signature":"EqQBCgIY"}', "Let me see."
        ),
        ReasoningBlock("anthropic", b'{"type":"redacted_thinking","data":"EmwK"}'),
        TextDelta("I look."),
        CallStarted(3, "look", "toolu_1"),
        CallDelta(3, '{"pa'),
        CallDelta(3, 'th":"a"}'),
        CallEnded(3),
        Finish("end", Usage(1_000, 89, 900), written=80),
    ]


def test_thinking_whose_words_are_left_out_is_kept_all_the_same() -> None:
    block = {"type": "thinking", "thinking": "", "signature": ""}
    found = read(
        [
            begin(0, block),
            delta(0, type="signature_delta", signature="s"),
            stop(0),
            *text("hi")[:2],
            end("end_turn"),
            OVER,
        ]
    )
    assert found[0] == ReasoningBlock("anthropic", b'{"type":"thinking","thinking":"","signature":"s"}')


def test_thinking_without_a_signature_is_shown_and_not_kept() -> None:
    block = {"type": "thinking", "thinking": "hm"}
    assert read([begin(0, block), stop(0), end("end_turn"), OVER]) == [ThinkingDelta("hm"), Finish()]


@pytest.mark.parametrize(
    "reason,told",
    [
        ("end_turn", "end"),
        ("tool_use", "end"),
        ("stop_sequence", "end"),
        ("something new", "end"),
        ("max_tokens", "length"),
        ("model_context_window_exceeded", "length"),
        ("pause_turn", "length"),
        ("refusal", "refused"),
    ],
)
def test_why_a_turn_ended_is_told(reason: str, told: str) -> None:
    assert read([*text("hi"), end(reason), OVER])[-1] == Finish(told)  # type: ignore[arg-type]


def test_a_refusal_without_a_word_is_explained() -> None:
    details = {"type": "refusal", "category": "bio", "explanation": "This could do harm."}
    assert read([start(), end("refusal", details), OVER]) == [TextDelta("This could do harm."), Finish("refused")]
    assert read([*text("No."), end("refusal", details), OVER]) == [TextDelta("No."), Finish("refused")]


@pytest.mark.parametrize("written", ["", '{"path":"a', '{"path":"a"}'])
@pytest.mark.parametrize("reason", ["max_tokens", "model_context_window_exceeded", "refusal"])
def test_c53_a_call_that_was_being_written_when_a_turn_was_cut_off_is_not_whole(written: str, reason: str) -> None:
    whole = [begin(0, TOOL), delta(0, type="input_json_delta", partial_json="{}"), stop(0)]
    half = [begin(1, TOOL), delta(1, type="input_json_delta", partial_json=written), stop(1)]
    calls = [part for part in turned(read([*whole, *half, end(reason), OVER])).parts if isinstance(part, TurnCall)]
    assert [made.complete for made in calls] == [True, False]


def test_a_call_after_which_the_turn_goes_on_is_whole_even_if_that_is_cut_off() -> None:
    found = read([begin(0, TOOL), stop(0), begin(1, {"type": "text", "text": ""}), end("max_tokens"), OVER])
    assert CallEnded(0) in found


# As servers send it


def test_arguments_that_come_with_the_beginning_of_a_call_are_taken() -> None:
    found = read([begin(0, {**TOOL, "input": {"path": "ä"}}), stop(0), end("tool_use"), OVER])
    assert found[1:3] == [CallDelta(0, '{"path":"ä"}'), CallEnded(0)]
    assert read([begin(0, TOOL), stop(0), end("tool_use"), OVER])[1] == CallDelta(0, "{}")
    both = [begin(0, {**TOOL, "input": {"a": 1}}), delta(0, type="input_json_delta", partial_json='{"a":2}'), stop(0)]
    assert read([*both, end("tool_use")])[1:3] == [CallDelta(0, '{"a":2}'), CallEnded(0)]


def test_calls_that_are_written_at_the_same_time_are_told_apart() -> None:
    events = [
        *(begin(0, TOOL), begin(1, {**TOOL, "id": "toolu_2", "name": "wait"})),
        *(
            delta(1, type="input_json_delta", partial_json='{"b"'),
            delta(0, type="input_json_delta", partial_json='{"a":'),
        ),
        *(delta(1, type="input_json_delta", partial_json=":2}"), delta(0, type="input_json_delta", partial_json="1}")),
        *(stop(1), stop(0), end("tool_use"), OVER),
    ]
    calls = turned(read(events)).parts
    assert calls == (
        TurnCall("look", "toolu_1", ['{"a":', "1}"], complete=True),
        TurnCall("wait", "toolu_2", ['{"b"', ":2}"], complete=True),
    )


def test_what_is_new_or_not_ours_is_left_out() -> None:
    server = {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {}}
    found = read(
        [
            event("message_start", message={"usage": {"new": {"deep": 1}}, "container": None}, more=1),
            event("something_new", index=3, delta={"type": "new"}),
            begin(0, server),
            delta(0, type="input_json_delta", partial_json="{}"),
            stop(0),
            begin(1, {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": []}),
            stop(1),
            begin(2, {"type": "text", "text": "so", "citations": None}),
            delta(2, type="citations_delta", citation={"url": "x"}),
            delta(2, type="text_delta", text=" it is"),
            delta(9, type="text_delta", text="of no block"),
            stop(9),
            stop(2),
            end("end_turn", output_tokens=3),
            OVER,
        ]
    )
    assert found == [TextDelta("so"), TextDelta(" it is"), Finish("end", Usage(0, 3))]


@pytest.mark.parametrize(
    "events,usage",
    [
        ([start(), end("end_turn")], Usage()),
        ([event("message_start", message={}), event("message_delta", delta={"stop_reason": "end_turn"})], Usage()),
        ([start(input_tokens=0, output_tokens=0), end("end_turn", input_tokens=7, output_tokens=3)], Usage(7, 3)),
        ([start(input_tokens=7, output_tokens=1), end("end_turn", output_tokens=3)], Usage(7, 3)),
        ([start(input_tokens=7), end("end_turn", input_tokens=None, output_tokens=None)], Usage(7)),
        ([start(input_tokens=7, cache_read_input_tokens=5), end("end_turn", output_tokens=3)], Usage(12, 3, 5)),
    ],
)
def test_c46_counts_are_taken_wherever_they_stand_and_may_be_missing(events: list[bytes], usage: Usage) -> None:
    *before, last = read([*events, OVER])
    assert last == Finish("end", usage)
    assert [type(piece) for piece in before] in ([], [Counted])


def test_the_last_event_may_be_missing_and_another_may_stand_in_its_place() -> None:
    assert read([*text("hi"), end("end_turn")])[-1] == Finish()
    assert read([*text("hi"), end("end_turn"), b"data: [DONE]\n\n"])[-1] == Finish()
    assert read([*text("hi"), end("end_turn"), OVER, OVER]).count(Finish()) == 1
    assert read(text("hi")) == [TextDelta("hi")], "without a reason it has not ended"
    assert read([*text("hi"), b"data: [DONE]\n\n"]) == [TextDelta("hi")]


def test_half_a_character_at_the_end_of_an_event_is_one_with_the_other_half() -> None:
    halves = [b'"\\ud83e"', b'"\\udd89"']
    events = [
        event("content_block_delta", index=0, delta={"type": "text_delta", "text": msgspec.Raw(half)})
        for half in halves
    ]
    (part,) = turned(read([begin(0, {"type": "text", "text": ""}), *events, stop(0), end("end_turn")])).parts
    assert part == TurnText("🦉")
    thoughts = [
        event("content_block_delta", index=0, delta={"type": "thinking_delta", "thinking": msgspec.Raw(half)})
        for half in halves
    ]
    found = read(
        [begin(0, {"type": "thinking", "thinking": "", "signature": "s"}), *thoughts, stop(0), end("end_turn")]
    )
    assert found[2] == ReasoningBlock("anthropic", '{"type":"thinking","thinking":"🦉","signature":"s"}'.encode(), "🦉")


@pytest.mark.parametrize(
    "kind,error",
    [
        ("overloaded_error", Overloaded),
        ("api_error", Overloaded),
        ("timeout_error", Overloaded),
        ("rate_limit_error", RateLimited),
        ("invalid_request_error", InvalidRequest),
        ("something new", Overloaded),
    ],
)
def test_an_error_in_the_middle_has_its_kind(kind: str, error: type[Exception]) -> None:
    with pytest.raises(error, match=rf"the answer broke off: no more \({kind}\)"):
        read([start(), *text("hi"), event("error", error={"type": kind, "message": "no more"})])


def test_errors_that_say_little_are_errors() -> None:
    with pytest.raises(Overloaded):
        read([event("error")])
    with pytest.raises(ContextOverflow):
        read([event("error", error={"type": "invalid_request_error", "message": "prompt is too long: 9 > 8"})])


# Over HTTP


LONG = turn(
    think("Let me see, 🦉.", data=b"x"),
    think(data=b"hidden"),
    "I löok. ",
    call("look", path="日本"),
    call_raw("wait"),
    usage=USAGE,
    chunks=3,
)


def heard(script: Any, chunks: Any = None) -> list[StreamPiece]:
    async def scenario() -> list[StreamPiece]:
        async with talking([script], about(BUDGET), wire=AnthropicWire(KEY), chunks=chunks) as (model, _):
            return [piece async for piece in model.stream(HELLO)]

    return asyncio.run(scenario())


def test_a_turn_is_the_same_however_it_is_cut_on_the_wire() -> None:
    whole = heard(LONG)
    assert turned(whole).usage == USAGE
    for size in (*range(1, 40), 64, 100, 1_000):
        assert heard(LONG, size) == whole


class Cut(httpx2.AsyncBaseTransport):
    """An answer in pieces of a size, without a connection."""

    def __init__(self, data: bytes, size: int) -> None:
        self._pieces = [data[place : place + size] for place in range(0, len(data), size)]

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        async def pieces() -> AsyncIterator[bytes]:
            for piece in self._pieces:
                yield piece

        return httpx2.Response(200, headers={"content-type": "text/event-stream"}, content=pieces())


def test_a_short_turn_is_the_same_in_pieces_of_every_size() -> None:
    encoder = AnthropicWire().encoder(Asked("POST", "/v1/messages", {}, {"messages": []}))
    short = turn(think("é🦉", data=b"x"), "ü", call("look", path="ß"))
    data = b"".join([event for piece in short.pieces for event in encoder.feed(piece)])

    async def heard(size: int) -> list[StreamPiece]:
        endpoint = Endpoint("anthropic", "http://anthropic.example", transport=Cut(data, size))
        model = HttpModel(endpoint, AnthropicDialect(), about())
        pieces = [piece async for piece in model.stream(HELLO)]
        await endpoint.close()
        return pieces

    async def scenario() -> None:
        whole = await heard(len(data))
        assert [type(part).__name__ for part in turned(whole).parts] == ["ReasoningBlock", "TurnText", "TurnCall"]
        for size in range(1, 300):
            assert await heard(size) == whole

    asyncio.run(scenario())


@pytest.mark.parametrize(
    "answer,error,words",
    [
        (Raw(200, {"content-type": "text/html"}, b"<h1>Welcome</h1>"), InvalidRequest, "is this the base URL"),
        (Raw(200, {"content-type": "text/event-stream"}, b"data: {nonsense\n\n"), ConnectionLost, "cannot be read"),
        (Raw(200, {"content-type": "text/event-stream"}, b'data: {"type":7}\n\n'), ConnectionLost, "cannot be read"),
        (Raw(500, {}, b"oops"), Overloaded, "oops"),
        (Raw(302, {"location": "https://elsewhere.example"}), InvalidRequest, "redirects are not followed"),
    ],
)
def test_a_server_that_is_no_api_is_said_to_be_none(answer: Raw, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        heard(answer)


def test_bytes_that_are_no_text_are_replaced() -> None:
    body = b"".join(
        [begin(0, {"type": "text", "text": ""}), delta(0, type="text_delta", text="a?b"), stop(0), end("end_turn")]
    )
    found = heard(Raw(200, {"content-type": "text/event-stream"}, body.replace(b"a?b", b"a\xffb")))
    assert found == [TextDelta("a\ufffdb"), Finish()]


def test_an_interruption_closes_the_connection() -> None:
    async def scenario() -> None:
        async with talking([cut("one ", "two"), "again"]) as (model, fake):
            stream = model.stream(HELLO)
            assert await anext(stream) == TextDelta("one ")
            await stream.aclose()
            assert [piece async for piece in model.stream(HELLO)] == [TextDelta("again"), Finish()]
            assert len(fake.asked) == 2

    asyncio.run(scenario())


def test_an_interruption_of_a_stream_that_stands_still_is_noticed_by_the_provider() -> None:
    async def scenario() -> None:
        async with talking([stall("one ")]) as (model, fake):
            stream = model.stream(HELLO)
            assert await anext(stream) == TextDelta("one ")
            await stream.aclose()
            await fake.left.wait()

    asyncio.run(scenario())
