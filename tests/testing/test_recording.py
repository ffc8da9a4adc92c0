import asyncio
from pathlib import Path

import pytest

from hibernaut import AgentSystem, ScriptedModel, tool
from hibernaut.errors import ConfigurationError
from hibernaut.messages.events import Usage
from hibernaut.messages.items import CallItem, ResultItem, UserItem
from hibernaut.messages.stream import StreamPiece
from hibernaut.models.errors import RateLimited
from hibernaut.models.protocol import ModelInfo, ModelRequest
from hibernaut.models.scripted import call, call_raw, say, think, turn
from hibernaut.testing.recording import NotRecorded, RecordedModel


@tool
async def look(place: str) -> str:
    """Look at a place."""
    return f"nothing at {place}"


async def talk(model: ScriptedModel | RecordedModel) -> list[str]:
    """Run an agent in a system of its own, in which all ids are drawn anew."""
    async with AgentSystem(model=model, tools=[look]) as system:
        agent = await system.launch("You look.", message="Look under the bed")
        await agent.wait_idle()
        return [str(item) for item in await agent.history() if not isinstance(item, CallItem | ResultItem)]


def asked(text: str) -> ModelRequest:
    return ModelRequest("m", "You look.", [UserItem(text)], (), "thread_1")


def play(model: RecordedModel, request: ModelRequest) -> list[StreamPiece]:
    async def scenario() -> list[StreamPiece]:
        return [piece async for piece in model.stream(request)]

    return asyncio.run(scenario())


def test_what_was_recorded_once_is_played_back_though_all_ids_are_other_ones(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "talk.jsonl"
    first = asyncio.run(talk(RecordedModel(path, ScriptedModel([call("look", place="bed"), "Nothing there."]))))
    assert asyncio.run(talk(RecordedModel(path))) == first


def test_every_kind_of_piece_comes_back_as_it_was(tmp_path: Path) -> None:
    said = turn(
        think("Hm", data=b"\x00\xff signed", provider="anthropic"),
        say("a", "b"),
        call_raw("look", '{"pla', 'ce":"x"}', provider_id="toolu_1", data=b"\x80"),
        usage=Usage(10, 5, 2),
    )
    model = RecordedModel(tmp_path / "a.jsonl", ScriptedModel([said]))
    made = play(model, asked("hi"))
    assert made == list(said.pieces)
    assert play(RecordedModel(tmp_path / "a.jsonl"), asked("hi")) == made


def test_the_same_request_twice_gets_both_answers_and_then_the_last_one(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    model = RecordedModel(path, ScriptedModel(["one", "two"]))
    made = [play(model, asked("hi")), play(model, asked("hi"))]
    again = RecordedModel(path)
    assert [play(again, asked("hi")) for _ in range(3)] == [*made, made[1]]


def test_what_was_not_recorded_is_an_error_that_says_what_is_new(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    play(RecordedModel(path, ScriptedModel(["one"])), asked("Look under the bed"))
    with pytest.raises(NotRecorded) as caught:
        play(RecordedModel(path), asked("Look behind the bed"))
    assert "- user Look under the bed\n+ user Look behind the bed" in str(caught.value)


def test_with_a_model_only_what_is_new_is_asked_of_it(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    play(RecordedModel(path, ScriptedModel(["one"])), asked("a"))
    script = ScriptedModel(["two"])
    model = RecordedModel(path, script)
    play(model, asked("a"))
    assert len(script.requests) == 0
    play(model, asked("b"))
    assert len(script.requests) == 1


def test_a_completion_that_failed_is_not_recorded(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    model = RecordedModel(path, ScriptedModel([RateLimited("slow down"), "one"]))
    with pytest.raises(RateLimited):
        play(model, asked("a"))
    assert not path.exists()
    play(model, asked("a"))
    assert len(path.read_bytes().splitlines()) == 1


def test_what_is_known_of_the_model_is_recorded_too(tmp_path: Path) -> None:
    path, info = tmp_path / "a.jsonl", ModelInfo(context_window=1_000, images=False)
    play(RecordedModel(path, ScriptedModel(["one"], info=info)), asked("a"))
    assert RecordedModel(path).info == info


def test_without_a_file_and_without_a_model_it_cannot_be_made(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="nothing is recorded"):
        RecordedModel(tmp_path / "none.jsonl")


def test_a_line_that_is_no_record_is_named(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    play(RecordedModel(path, ScriptedModel(["one"])), asked("a"))
    path.write_bytes(path.read_bytes() + b'{"request": 1}\n')
    with pytest.raises(ConfigurationError, match="line 2"):
        RecordedModel(path)
