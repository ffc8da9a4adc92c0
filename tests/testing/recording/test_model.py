"""`RecordedModel`: what is played back, what is asked of another model, and what is refused."""

import asyncio
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from hibernaut import AgentSystem, ScriptedModel, tool
from hibernaut.errors import ConfigurationError, HibernautError, ModelError
from hibernaut.kernel.turn import Turn, TurnBuffer, TurnText
from hibernaut.messages.events import Usage
from hibernaut.messages.items import CallItem, ResultItem, UserItem
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
from hibernaut.models.errors import ConnectionLost, RateLimited
from hibernaut.models.protocol import ModelInfo, ModelRequest
from hibernaut.models.scripted import call, call_raw, cut, fail, say, think, turn
from hibernaut.testing.recording import NotRecorded, RecordedModel, Recording


@tool
async def look(place: str) -> str:
    """Look at a place."""
    return f"nothing at {place}"


async def talk(model: ScriptedModel | RecordedModel, text: str = "Look under the bed") -> list[str]:
    """Run an agent in a system of its own, in which all ids are drawn anew."""
    async with AgentSystem(model=model, tools=[look]) as system:
        agent = await system.launch("You look.", message=text)
        await agent.wait_idle()
        said = [str(item) for item in await agent.history() if not isinstance(item, CallItem | ResultItem)]
        return [*said, (await agent.state()).reason]


def asked(text: str) -> ModelRequest:
    return ModelRequest("m", "You look.", [UserItem(text)], (), "thread_1")


def play(model: RecordedModel, request: ModelRequest) -> list[StreamPiece]:
    async def scenario() -> list[StreamPiece]:
        return [piece async for piece in model.stream(request)]

    return asyncio.run(scenario())


def turn_of(pieces: list[StreamPiece]) -> Turn:
    buffer = TurnBuffer()
    buffer.feed_all(pieces)
    return buffer.turn()


def test_what_was_recorded_once_is_played_back_though_all_ids_are_other_ones(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "talk.json"
    first = asyncio.run(talk(RecordedModel(path, ScriptedModel([call("look", place="bed"), "Nothing there."]))))
    again = RecordedModel(path)
    assert asyncio.run(talk(again)) == first
    again.check()


def test_a_turn_comes_back_as_it_was_with_its_pieces_put_together(tmp_path: Path) -> None:
    said = turn(
        think("Hm\n", "ja", data=b"\x00\xff signed", provider="anthropic"),
        think(data=b"redacted", provider="anthropic"),
        say("a\n", "b"),
        call_raw("look", '{"pla', 'ce":"x"}', provider_id="toolu_1", data=b"\x80"),
        call_raw("look", '{"place": "\\u0062"}', data=b"signed"),
        usage=Usage(10, 5, 2),
    )
    model = RecordedModel(tmp_path / "a.json", ScriptedModel([said]))
    assert play(model, asked("hi")) == list(said.pieces)
    assert play(RecordedModel(tmp_path / "a.json"), asked("hi")) == [
        ThinkingDelta("Hm\nja"),
        ReasoningBlock("recorded", b"", "Hm\nja"),
        ReasoningBlock("recorded", b"", ""),
        TextDelta("a\nb"),
        CallStarted(4, "look", "call_1"),
        CallDelta(4, '{"place":"x"}'),
        CallEnded(4),
        CallStarted(5, "look"),
        CallDelta(5, '{"place": "\\u0062"}'),
        CallEnded(5),
        Finish("end", Usage(10, 5, 2)),
    ]


def test_half_a_call_comes_back_as_half_a_call(tmp_path: Path) -> None:
    said = cut("I look. ", call_raw("look", '{"pa'))
    play(RecordedModel(tmp_path / "a.json", ScriptedModel([said])), asked("hi"))
    again = turn_of(play(RecordedModel(tmp_path / "a.json"), asked("hi")))
    assert again == turn_of(list(said.pieces))
    assert again.reason == "length"


class Interleaved:
    """Writes two calls at the same time, and half a character at a time."""

    info = ModelInfo()

    async def stream(self, request: ModelRequest) -> AsyncGenerator[StreamPiece, None]:
        yield TextDelta("\ud83d")
        yield TextDelta("\ude00")
        yield CallStarted(0, "look")
        yield CallStarted(1, "wait")
        for index, text in ((1, '{"n"'), (0, '{"place":'), (1, ":1}"), (0, '"x"}')):
            yield CallDelta(index, text)
        yield Finish()


def test_calls_that_are_written_at_the_same_time_are_told_apart(tmp_path: Path) -> None:
    play(RecordedModel(tmp_path / "a.json", Interleaved()), asked("hi"))
    text, one, two = turn_of(play(RecordedModel(tmp_path / "a.json"), asked("hi"))).parts
    assert str(text) == "TurnText(text='😀')"
    assert [(part.name, part.arguments) for part in (one, two)] == [("look", '{"place":"x"}'), ("wait", '{"n":1}')]  # type: ignore[union-attr]


def test_the_same_request_twice_gets_both_answers_and_then_the_last_one(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    model = RecordedModel(path, ScriptedModel(["one", "two"]))
    made = [play(model, asked("hi")), play(model, asked("hi"))]
    again = RecordedModel(path)
    assert [play(again, asked("hi")) for _ in range(3)] == [*made, made[1]]


def test_the_same_request_from_two_threads_at_once_gets_an_answer_of_its_own(tmp_path: Path) -> None:
    async def scenario() -> list[list[StreamPiece]]:
        model = RecordedModel(tmp_path / "a.json", ScriptedModel(["one", "two", "three"]))

        async def one() -> list[StreamPiece]:
            return [piece async for piece in model.stream(asked("hi"))]

        return [*await asyncio.gather(one(), one()), await one()]

    said = [turn_of(pieces).parts for pieces in asyncio.run(scenario())]
    again = RecordedModel(tmp_path / "a.json")
    assert [turn_of(play(again, asked("hi"))).parts for _ in range(3)] == said
    assert len(set(map(str, said))) == 3


def test_an_answer_of_a_form_is_played_back_as_one(tmp_path: Path) -> None:
    async def ask(model: ScriptedModel | RecordedModel, kind: type) -> object:
        async with AgentSystem(model=model) as system:
            return await (await system.launch("You count.")).ask("How many?", output=kind)

    path = tmp_path / "a.json"
    script = ScriptedModel([call("give_answer", value="three"), call("give_answer", value=3)])
    assert asyncio.run(ask(RecordedModel(path, script), int)) == 3
    assert asyncio.run(ask(RecordedModel(path), int)) == 3
    with pytest.raises(HibernautError, match=r"\n- answers as .*integer.*\n\+ answers as .*string"):
        asyncio.run(ask(RecordedModel(path), list[str]))


# What was not recorded


def test_what_was_not_recorded_is_an_error_that_says_what_differs_first(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    play(RecordedModel(path, ScriptedModel(["one"])), asked("Look\nunder the bed"))
    with pytest.raises(NotRecorded) as caught:
        play(RecordedModel(path), asked("Look\nbehind the bed"))
    assert str(caught.value) == (
        f"this was not recorded in {path}: it begins like completion 1 there, and differs first in line 3 of "
        "what was asked:\n"
        "-   under the bed\n+   behind the bed"
    )
    assert isinstance(caught.value, ModelError)
    assert not caught.value.retryable


def test_an_agent_that_asks_what_was_not_recorded_is_parked_and_the_test_can_tell_why(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    asyncio.run(talk(RecordedModel(path, ScriptedModel([call("look", place="bed"), "Nothing there."]))))
    model = RecordedModel(path)
    *_, reason = asyncio.run(talk(model, "Look behind the bed"))
    assert reason.startswith("not_recorded: ")
    assert "- user Look under the bed\n+ user Look behind the bed" in reason
    with pytest.raises(NotRecorded, match="behind the bed"):
        model.check()


def test_what_was_recorded_and_not_asked_for_is_told(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    recorded = RecordedModel(path, ScriptedModel(["one", "two"]))
    for text in ("a", "b"):
        play(recorded, asked(text))
    model = RecordedModel(path)
    play(model, asked("a"))
    with pytest.raises(AssertionError, match=r"1 of the completions in .* not asked for; the first .* 'user b'"):
        model.check()


def test_with_a_model_only_what_is_new_is_asked_of_it(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    play(RecordedModel(path, ScriptedModel(["one"])), asked("a"))
    script = ScriptedModel(["two"])
    model = RecordedModel(path, script)
    play(model, asked("a"))
    assert len(script.requests) == 0
    play(model, asked("b"))
    assert len(script.requests) == 1
    assert [turn_of(play(RecordedModel(path), asked(text))).parts for text in ("a", "b")] == [
        (TurnText(text),) for text in ("one", "two")
    ]


@pytest.mark.parametrize(
    "failure", [RateLimited("slow down"), fail(ConnectionLost("reset"), say("Let", "me"), after=1)]
)
def test_a_completion_that_failed_is_not_recorded(failure: object, tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    recording = Recording(path)
    model = RecordedModel(recording, ScriptedModel([failure, "one"]))  # type: ignore[list-item]
    with pytest.raises(ModelError):
        play(model, asked("a"))
    assert (recording.is_whole, recording.added) == (False, 0)
    play(model, asked("a"))
    assert (recording.is_whole, recording.added) == (True, 1)
    assert not path.exists()
    recording.write()
    assert len(Recording(path).completions) == 1


def test_a_stream_that_is_given_up_is_not_recorded(tmp_path: Path) -> None:
    async def scenario() -> None:
        recording = Recording(tmp_path / "a.json")
        stream = RecordedModel(recording, ScriptedModel([say("one", "two"), "three"])).stream(asked("a"))
        await anext(stream)
        await stream.aclose()
        assert (recording.is_whole, recording.added) == (False, 0)

    asyncio.run(scenario())


def test_what_is_known_of_the_model_is_recorded_too(tmp_path: Path) -> None:
    path, info = tmp_path / "a.json", ModelInfo(context_window=1_000, images=False)
    play(RecordedModel(path, ScriptedModel(["one"], info=info)), asked("a"))
    assert RecordedModel(path).info == info


def test_without_a_file_and_without_a_model_it_cannot_be_made(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"there is no recording .*none\.json; `hibernaut record` makes one"):
        RecordedModel(tmp_path / "none.json")
