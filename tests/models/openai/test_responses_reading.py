"""The events of the Responses API become pieces of a turn."""

import json
from typing import Any

import pytest

from hibernaut.errors import ModelError
from hibernaut.kernel.turn import TurnCall, TurnText
from hibernaut.messages.events import Usage
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
from hibernaut.models.errors import ContextOverflow, InvalidRequest, Overloaded, RateLimited, Refused
from hibernaut.models.openai.responses_reading import ResponsesReader
from hibernaut.models.openai.rules import tool_names
from tests.models.openai.streams import read, turn_of


def reading(*events: Any) -> list[StreamPiece]:
    return read(ResponsesReader("openai", tool_names()), *events)


def text(delta: str, place: int = 0) -> dict[str, Any]:
    return {"type": "response.output_text.delta", "output_index": place, "content_index": 0, "delta": delta}


def item(state: str, place: int = 0, /, **members: Any) -> dict[str, Any]:
    return {"type": f"response.output_item.{state}", "output_index": place, "item": members}


def arguments(delta: str, place: int = 0) -> dict[str, Any]:
    return {"type": "response.function_call_arguments.delta", "output_index": place, "delta": delta}


def last(kind: str = "completed", **members: Any) -> dict[str, Any]:
    return {"type": f"response.{kind}", "response": {"status": kind, **members}}


CALL = {"type": "function_call", "id": "fc_1", "call_id": "call_1", "name": "look", "arguments": ""}
USAGE = {
    "input_tokens": 12,
    "input_tokens_details": {"cached_tokens": 4, "cache_write_tokens": 5},
    "output_tokens": 3,
    "total_tokens": 15,
}


def test_text_arrives_as_it_comes() -> None:
    created = {"type": "response.created", "response": {"status": "in_progress", "usage": None}}
    found = reading(created, text("Hel"), text("lo"), last(usage=USAGE))
    assert found == [TextDelta("Hel"), TextDelta("lo"), Finish("end", Usage(12, 3, 4), 5)]


def test_two_messages_are_told_apart() -> None:
    assert turn_of(reading(text("One."), text("Two.", 1), last())).parts == (TurnText("One.\n\nTwo."),)


def test_a_message_that_was_not_streamed_is_read_at_its_end() -> None:
    whole = item("done", type="message", content=[{"type": "output_text", "text": "All."}])
    assert reading(whole, last()) == [TextDelta("All."), Finish()]
    assert reading(text("All."), whole, last()) == [TextDelta("All."), Finish()]


def test_a_call_comes_in_pieces() -> None:
    done = {"type": "response.function_call_arguments.done", "output_index": 0, "arguments": '{"p":1}'}
    whole = item("done", **(CALL | {"arguments": '{"p":1}', "status": "completed"}))
    found = reading(item("added", **CALL), arguments('{"p"'), arguments(":1}"), done, whole, last())
    pieces = [CallStarted(0, "look", "call_1"), CallDelta(0, '{"p"'), CallDelta(0, ":1}"), CallEnded(0), Finish()]
    assert found == pieces


def test_calls_may_be_interleaved() -> None:
    second = CALL | {"call_id": "call_2", "name": "wait"}
    found = reading(
        item("added", **CALL),
        item("added", 1, **second),
        arguments("{", 1),
        arguments("[", 0),
        arguments("}", 1),
        item("done", 1, **second),
        item("done", **CALL),
        last(),
    )
    made = [(part.name, part.arguments) for part in turn_of(found).parts if isinstance(part, TurnCall)]
    assert made == [("look", "["), ("wait", "{}")]


@pytest.mark.parametrize("value,wanted", [('{"p":1}', '{"p":1}'), ({"p": 1}, '{"p":1}'), ("", "")])
def test_a_call_that_was_not_streamed_is_read_at_its_end(value: Any, wanted: str) -> None:
    (made,) = turn_of(reading(item("done", **(CALL | {"arguments": value})), last())).parts
    assert made == TurnCall("look", "call_1", [wanted] if wanted else [], complete=True)


def test_half_a_call_is_not_complete() -> None:
    cut = item("done", **(CALL | {"arguments": '{"p', "status": "incomplete"}))
    for ending in ([cut], []):
        events = [item("added", **CALL), arguments('{"p'), *ending]
        turn = turn_of(reading(*events, last("incomplete", incomplete_details={"reason": "max_output_tokens"})))
        assert (turn.reason, turn.parts) == ("length", (TurnCall("look", "call_1", ['{"p']),))


REASONING = (
    '{"id":"rs_1","type":"reasoning","summary":[{"type":"summary_text","text":"Hm."}],'
    '"encrypted_content":"gAAA", "n":1.0}'
)


def test_reasoning_is_kept_byte_for_byte() -> None:
    event = f'{{"type":"response.output_item.done","output_index":0,"item": {REASONING} ,"sequence_number":4}}'
    found = reading(item("added", type="reasoning", id="rs_1", summary=[], encrypted_content="gA"), event, last())
    assert found == [ThinkingDelta("Hm."), ReasoningBlock("openai", REASONING.encode(), "Hm."), Finish()]


def test_a_summary_that_was_streamed_is_shown_once() -> None:
    delta = {"type": "response.reasoning_summary_text.delta", "output_index": 0, "delta": "Hm."}
    part = {"type": "response.reasoning_summary_part.added", "output_index": 0}
    event = f'{{"type":"response.output_item.done","output_index":0,"item":{REASONING}}}'
    found = reading(part | {"summary_index": 0}, delta, part | {"summary_index": 1}, delta, event, last())
    assert [each.text for each in found if isinstance(each, ThinkingDelta)] == ["Hm.", "\n\n", "Hm."]


def test_reasoning_that_is_not_encrypted_cannot_be_replayed_and_is_only_shown() -> None:
    for content in (None, ""):
        block = item("done", type="reasoning", id="rs_1", summary=[], encrypted_content=content)
        assert reading(block, last()) == [Finish()]
    delta = {"type": "response.reasoning_text.delta", "output_index": 0, "delta": "open thoughts"}
    assert reading(delta, last()) == [ThinkingDelta("open thoughts"), Finish()]


def test_a_character_in_two_halves_is_whole_in_the_end() -> None:
    half = '{"type":"response.output_text.delta","output_index":0,"delta":"%s"}'
    assert turn_of(reading(half % "\\ud83d", half % "\\ude00", last())).parts == (TurnText("😀"),)
    broken = REASONING.replace("Hm.", "\\ud83d")
    event = f'{{"type":"response.output_item.done","output_index":0,"item":{broken}}}'
    (block,) = [piece for piece in reading(event, last()) if isinstance(piece, ReasoningBlock)]
    assert json.loads(block.data) == json.loads(broken.replace("\\ud83d", "?"))


def test_a_refusal_is_said_and_refused() -> None:
    delta = {"type": "response.refusal.delta", "output_index": 0, "delta": "No."}
    assert reading(delta, last()) == [TextDelta("No."), Finish("refused")]
    whole = item("done", type="message", content=[{"type": "refusal", "refusal": "No."}])
    assert reading(whole, last()) == [TextDelta("No."), Finish("refused")]


@pytest.mark.parametrize(
    "details,wanted",
    [({"reason": "max_output_tokens"}, "length"), ({"reason": "content_filter"}, "refused"), (None, "length")],
)
def test_an_incomplete_response_says_why(details: Any, wanted: str) -> None:
    assert turn_of(reading(text("x"), last("incomplete", incomplete_details=details, usage=USAGE))).reason == wanted


@pytest.mark.parametrize(
    "code,kind",
    [
        ("server_error", Overloaded),
        ("rate_limit_exceeded", RateLimited),
        ("context_length_exceeded", ContextOverflow),
        ("invalid_prompt", Refused),
        ("insufficient_quota", InvalidRequest),
        ("something_new", Overloaded),
        (None, Overloaded),
    ],
)
def test_a_failure_is_raised_whichever_event_tells_it(code: str | None, kind: type[ModelError]) -> None:
    error = {"code": code, "message": "it went wrong"}
    for event in (
        last("failed", error=error),
        {"type": "error", **error, "param": None},
        {"type": "error", "error": error},
        {"error": error},
    ):
        with pytest.raises(ModelError, match="it went wrong") as caught:
            reading(text("x"), event)
        assert type(caught.value) is kind


def test_a_failure_without_words_is_one() -> None:
    with pytest.raises(Overloaded):
        reading(last("failed", error=None))


def test_a_stream_without_its_last_event_is_not_whole() -> None:
    assert reading(text("x")) == [TextDelta("x")]
    assert reading(text("x"), "[DONE]") == [TextDelta("x")]


@pytest.mark.parametrize(
    "event",
    [
        "",
        {},
        {"type": "response.of.tomorrow", "item": {"type": "x"}, "delta": {"a": 1}},
        item("added", type="web_search_call", id="ws_1"),
        item("done", type="web_search_call", id="ws_1", action={"type": "search"}),
        {"type": "response.output_text.delta", "delta": ""},
        arguments("{}", 7),
    ],
)
def test_what_says_nothing_is_left_out(event: Any) -> None:
    assert reading(event, last()) == [Finish()]


@pytest.mark.parametrize("event", ["{", "[]", '{"type":1}', '{"item":[]}'])
def test_what_cannot_be_read_is_an_error_of_the_decoder(event: str) -> None:
    with pytest.raises(ValueError, match=r".+"):
        reading(event)
