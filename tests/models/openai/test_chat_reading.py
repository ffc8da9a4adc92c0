"""The Chat API is read from whichever server it comes."""

from typing import Any

import pytest

from hibernaut.errors import ModelError
from hibernaut.kernel.turn import TurnCall, TurnText
from hibernaut.messages.events import Usage
from hibernaut.messages.stream import Counted, Finish, ReasoningBlock, StreamPiece, TextDelta, ThinkingDelta
from hibernaut.models.errors import ConnectionLost, ContextOverflow, InvalidRequest, Overloaded, RateLimited
from hibernaut.models.openai.chat_reading import ChatReader
from hibernaut.models.openai.rules import tool_names
from tests.models.openai.streams import call_chunk, chunk, frame, piece, read, turn_of

DONE = "[DONE]"
END = (chunk("stop"), DONE)


def reading(*events: Any, thinking: str = "") -> list[StreamPiece]:
    return read(ChatReader("chat", thinking, tool_names()), *events)


def calls(*events: Any) -> list[tuple[str, str, str, bool]]:
    """Return name, id, arguments of each call, and whether it is complete."""
    parts = turn_of(reading(*events)).parts
    return [
        (part.name, part.provider_id, part.arguments, part.complete) for part in parts if isinstance(part, TurnCall)
    ]


def test_text_arrives_as_it_comes() -> None:
    found = reading(chunk(role="assistant", content=""), chunk(content="Hel"), chunk(content="lo"), *END)
    assert found == [TextDelta("Hel"), TextDelta("lo"), Finish()]


def test_content_may_be_null_or_parts() -> None:
    parts = [{"type": "text", "text": "a"}, {"type": "reference", "reference_ids": [1]}, "b"]
    thinking = [{"type": "thinking", "thinking": [{"type": "text", "text": "hm"}, {"type": "other"}]}]
    found = reading(chunk(content=None), chunk(content=thinking), chunk(content=parts), *END)
    assert found == [ThinkingDelta("hm"), TextDelta("a"), TextDelta("b"), Finish()]


def test_a_character_in_two_halves_is_whole_in_the_end() -> None:
    halves = ['{"choices":[{"delta":{"content":"\\ud83d"}}]}', '{"choices":[{"delta":{"content":"\\ude00"}}]}']
    assert turn_of(reading(*halves, *END)).parts == (TurnText("😀"),)
    call = '{"choices":[{"delta":{"tool_calls":[{"index":0,"function":%s}]}}]}'
    first, second = call % '{"name":"f","arguments":"{\\"x\\":\\"\\ud83d"}', call % '{"arguments":"\\ude00\\"}"}'
    ((_, _, arguments, complete),) = calls(first, second, *END)
    assert complete
    assert arguments.encode("utf-16", "surrogatepass").decode("utf-16") == '{"x":"😀"}'


@pytest.mark.parametrize(
    "reason,wanted",
    [
        ("stop", "end"),
        ("tool_calls", "end"),
        ("function_call", "end"),
        ("eos", "end"),
        ("length", "length"),
        ("model_length", "length"),
        ("content_filter", "refused"),
    ],
)
def test_each_reason_means_an_end(reason: str, wanted: str) -> None:
    assert turn_of(reading(chunk(content="x"), chunk(reason), DONE)).reason == wanted


def test_a_refusal_is_said_and_refused() -> None:
    turn = turn_of(reading(chunk(refusal="I can"), chunk(refusal="not."), *END))
    assert (turn.parts, turn.reason) == ((TurnText("I cannot."),), "refused")


def test_a_stream_without_done_is_whole_once_it_has_a_reason() -> None:
    assert reading(chunk(content="x"), chunk("stop"))[-1] == Finish()


def test_a_stream_without_a_reason_is_whole_once_it_is_done() -> None:
    assert reading(chunk(content="x"), DONE)[-1] == Finish()


def test_a_stream_without_either_is_not_whole() -> None:
    assert reading(chunk(content="x")) == [TextDelta("x")]


COUNTED = {"prompt_tokens": 12, "completion_tokens": 3, "prompt_tokens_details": {"cached_tokens": 4}}


@pytest.mark.parametrize(
    "events,usage",
    [
        ([chunk("stop"), {"choices": [], "usage": COUNTED}, DONE], Usage(12, 3, 4)),
        ([chunk("stop"), {"choices": [], "usage": COUNTED}], Usage(12, 3, 4)),
        ([chunk("stop") | {"usage": COUNTED}, DONE], Usage(12, 3, 4)),
        ([chunk(content="x") | {"usage": {"prompt_tokens": 12}}, chunk("stop") | {"usage": COUNTED}], Usage(12, 3, 4)),
        ([chunk("stop") | {"x_groq": {"id": "r", "usage": COUNTED}}, DONE], Usage(12, 3, 4)),
        ([{"choices": None, "usage": COUNTED}, chunk("stop") | {"usage": None}, DONE], Usage(12, 3, 4)),
        (
            [chunk("stop") | {"usage": {"prompt_tokens": 9, "completion_tokens": 1, "prompt_cache_hit_tokens": 8}}],
            Usage(9, 1, 8),
        ),
        (
            [chunk("stop") | {"usage": {"prompt_tokens": 9.0, "completion_tokens": None, "cached_tokens": 2}}],
            Usage(9, 0, 2),
        ),
        ([chunk("stop") | {"usage": {"prompt_tokens_details": None}}], Usage()),
        ([chunk("stop"), DONE], Usage()),
    ],
)
def test_usage_is_found_wherever_it_is(events: list[Any], usage: Usage) -> None:
    assert reading(*events)[-1] == Finish("end", usage)


def test_what_a_server_counts_as_it_goes_is_told_until_the_end_is_known() -> None:
    first = chunk(content="a") | {"usage": {"prompt_tokens": 12, "completion_tokens": 1}}
    second = chunk(content="b") | {"usage": {"prompt_tokens": 12, "completion_tokens": 2}}
    assert reading(first, second, chunk("stop") | {"usage": COUNTED}, DONE) == [
        TextDelta("a"),
        Counted(Usage(12, 1)),
        TextDelta("b"),
        Counted(Usage(12, 2)),
        Finish("end", Usage(12, 3, 4)),
    ]


def test_a_turn_ends_with_its_usage_even_if_the_server_holds_the_connection() -> None:
    reader = ChatReader("chat", "", tool_names())
    for event in (chunk(content="x"), chunk("stop")):
        assert Finish() not in list(reader.feed(frame(event)))
    assert list(reader.feed(frame({"choices": [], "usage": COUNTED}))) == [Finish("end", Usage(12, 3, 4))]
    assert list(reader.end()) == [], "it ends once"


# Calls


def test_a_call_comes_in_pieces() -> None:
    events = [
        call_chunk(piece("look", "", index=0, id="call_a", type="function")),
        call_chunk(piece(arguments='{"p', index=0)),
        call_chunk(piece(arguments='":1}', index=0)),
        chunk("tool_calls"),
        DONE,
    ]
    assert calls(*events) == [("look", "call_a", '{"p":1}', True)]


INTERLEAVED = [
    call_chunk(piece("look", "{", index=0, id="a"), piece("wait", "{", index=1, id="b")),
    call_chunk(piece(arguments='"x":1', index=1)),
    call_chunk(piece(arguments='"y":2', index=0), piece(arguments="}", index=1)),
    call_chunk(piece(arguments="}", index=0)),
]

TWO = [("look", "a", '{"y":2}', True), ("wait", "b", '{"x":1}', True)]


def test_calls_may_be_interleaved() -> None:
    assert calls(*INTERLEAVED, chunk("tool_calls"), DONE) == TWO


def whole(*pieces: dict[str, Any], together: bool) -> list[Any]:
    return [call_chunk(*pieces)] if together else [call_chunk(each) for each in pieces]


@pytest.mark.parametrize("together", [True, False])
@pytest.mark.parametrize(
    "first,second",
    [
        ({"id": "a"}, {"id": "b"}),
        ({"index": 0, "id": "a"}, {"index": 1, "id": "b"}),
        ({"index": 0, "id": "a"}, {"index": 0, "id": "b"}),
        ({"index": None, "id": "a"}, {"index": None, "id": "b"}),
        ({"index": 0}, {"index": 1}),
        ({"index": 0}, {"index": 0}),
        ({"index": 0, "id": "call_0"}, {"index": 1, "id": "call_0"}),
        ({"index": 0, "id": "call_0"}, {"index": 0, "id": "call_0"}),
        ({"id": "call_0"}, {"id": "call_0"}),
        ({"id": ""}, {"id": ""}),
        ({"id": None}, {"id": None}),
        ({}, {}),
        ({"id": 1}, {"id": 2}),
    ],
)
def test_whole_calls_are_told_apart_whatever_names_them(
    first: dict[str, Any], second: dict[str, Any], together: bool
) -> None:
    events = whole(piece("look", '{"a":1}', **first), piece("look", '{"b":2}', **second), together=together)
    found = [(name, arguments, complete) for name, _, arguments, complete in calls(*events, chunk("tool_calls"), DONE)]
    assert found == [("look", '{"a":1}', True), ("look", '{"b":2}', True)]


@pytest.mark.parametrize(
    "more",
    [
        {"index": 0, "id": "a"},
        {"id": "a"},
        {"index": 0},
        {"index": 0, "id": ""},
        {"index": 5, "id": "a"},
        {},
    ],
)
@pytest.mark.parametrize("again", [None, "look", ""])
def test_a_piece_finds_its_call_by_what_it_has(more: dict[str, Any], again: str | None) -> None:
    if again == "look" and more.get("index") == 5:
        return  # a name at another place is another call
    events = [
        call_chunk(piece("look", '{"a', index=0, id="a")),
        call_chunk(piece(again, '":', **more)),
        call_chunk(piece(again, "1}", **more)),
    ]
    assert calls(*events, chunk("tool_calls"), DONE) == [("look", "a", '{"a":1}', True)]


def test_a_second_call_at_the_place_of_the_first_keeps_its_tail() -> None:
    events = [
        call_chunk(piece("look", '{"a":1}', index=0, id="a")),
        call_chunk(piece("wait", "", index=0, id="b")),
        call_chunk(piece(arguments='{"b":2}', index=1, id="b")),
    ]
    assert calls(*events, chunk("tool_calls"), DONE) == [("look", "a", '{"a":1}', True), ("wait", "b", '{"b":2}', True)]


def test_a_name_may_come_after_the_arguments() -> None:
    events = [call_chunk(piece(None, '{"a', index=0, id="a")), call_chunk(piece("look", '":1}', index=0))]
    assert calls(*events, chunk("tool_calls"), DONE) == [("look", "a", '{"a":1}', True)]


def test_a_call_without_a_name_is_a_call_of_nothing() -> None:
    assert calls(call_chunk(piece(None, "{}", index=0)), chunk("tool_calls"), DONE) == [("", "", "{}", True)]


@pytest.mark.parametrize(
    "arguments,wanted",
    [({"a": {"b": 1}}, '{"a":{"b":1}}'), (None, ""), ("", ""), ({}, "{}"), ("{}", "{}")],
)
def test_arguments_may_be_an_object_or_nothing(arguments: Any, wanted: str) -> None:
    event = call_chunk({"index": 0, "id": "a", "function": {"name": "look", "arguments": arguments}})
    assert calls(event, chunk("stop"), DONE) == [("look", "a", wanted, True)]


def test_a_call_may_lack_the_member_function() -> None:
    event = call_chunk({"index": 0, "id": "a", "name": "look", "arguments": "{}"})
    assert calls(event, *END) == [("look", "a", "{}", True)]


def test_what_is_no_call_is_left_out() -> None:
    assert calls(chunk(tool_calls=[None, "x", 1]), chunk(tool_calls={}), chunk(function_call="x"), *END) == []


def test_a_function_call_of_old_is_a_call() -> None:
    events = [
        chunk(function_call={"name": "look", "arguments": ""}),
        chunk(function_call={"arguments": '{"a":'}),
        chunk(function_call={"arguments": "1}"}),
    ]
    assert calls(*events, chunk("function_call"), DONE) == [("look", "", '{"a":1}', True)]


def test_of_an_answer_that_is_cut_off_only_whole_calls_are_complete() -> None:
    events = [call_chunk(piece("look", "{}", index=0, id="a")), call_chunk(piece("wait", '{"a', index=1, id="b"))]
    assert calls(*events, chunk("length"), DONE) == [("look", "a", "{}", True), ("wait", "b", '{"a', False)]


# Reasoning


@pytest.mark.parametrize("field", ["reasoning_content", "reasoning"])
def test_reasoning_is_shown_and_kept_only_for_servers_that_want_it_back(field: str) -> None:
    events = [chunk(**{field: "Let me "}), chunk(**{field: "see."}), chunk(content="Yes."), *END]
    shown = [ThinkingDelta("Let me "), ThinkingDelta("see.")]
    assert reading(*events) == [*shown, TextDelta("Yes."), Finish()]
    block = ReasoningBlock("chat", b'{"reasoning_content":"Let me see."}', "Let me see.")
    assert reading(*events, thinking="reasoning_content") == [*shown, block, TextDelta("Yes."), Finish()]


def test_reasoning_stands_before_the_call_that_it_leads_to() -> None:
    events = [chunk(reasoning="hm"), call_chunk(piece("look", "{}", index=0, id="a")), chunk("tool_calls"), DONE]
    kinds = [type(part) for part in turn_of(reading(*events, thinking="reasoning")).parts]
    assert kinds == [ReasoningBlock, TurnCall]


def test_reasoning_in_parts_is_put_together_with_its_signature() -> None:
    parts: list[dict[str, Any]] = [
        {"type": "reasoning.text", "text": "Let ", "index": 0, "format": "f"},
        {"type": "reasoning.text", "text": "me see.", "index": 0, "format": "f"},
        {"type": "reasoning.text", "signature": "c2ln", "index": 0, "text": None},
        {"type": "reasoning.encrypted", "data": "AAAA", "index": 1},
        {"type": "reasoning.encrypted", "data": "BBBB"},
        {"type": "reasoning.encrypted", "data": "CCCC"},
    ]
    events = [chunk(reasoning_details=[part], reasoning=part.get("text")) for part in parts]
    *shown, block, text, _ = reading(*events, chunk(content="Yes."), *END, thinking="reasoning_details")
    assert shown == [ThinkingDelta("Let "), ThinkingDelta("me see.")]
    assert text == TextDelta("Yes.")
    assert isinstance(block, ReasoningBlock)
    assert block.data == (
        b'{"reasoning_details":[{"type":"reasoning.text","text":"Let me see.","index":0,"format":"f",'
        b'"signature":"c2ln"},'
        b'{"type":"reasoning.encrypted","data":"AAAA","index":1},{"type":"reasoning.encrypted","data":"BBBB"},'
        b'{"type":"reasoning.encrypted","data":"CCCC"}]}'
    )


def test_reasoning_in_parts_without_a_text_of_its_own_is_shown() -> None:
    events = [chunk(reasoning_details=[{"type": "reasoning.summary", "summary": "hm"}]), *END]
    assert reading(*events)[0] == ThinkingDelta("hm")


# Failures


@pytest.mark.parametrize(
    "event,kind",
    [
        ({"error": {"message": "slow down", "code": 429}}, RateLimited),
        ({"error": {"message": "slow down", "type": "rate_limit_error"}}, RateLimited),
        ({"error": {"message": "upstream", "code": 502}, "choices": []}, Overloaded),
        ({"error": {"message": "n_ctx is 4096", "code": 400}}, ContextOverflow),
        ({"error": {"message": "bad template", "code": 400}}, InvalidRequest),
        ({"error": "it broke"}, Overloaded),
        ({"object": "error", "message": "no such lora", "code": 404}, InvalidRequest),
        ({"choices": [{"delta": {}, "finish_reason": "error", "error": {"code": 503, "message": "x"}}]}, Overloaded),
        (chunk("error"), Overloaded),
        (chunk() | {"x_groq": {"id": "r", "error": "over capacity"}}, Overloaded),
        (chunk("insufficient_system_resource"), Overloaded),
        ({"error": {"message": "late", "code": 408}}, ConnectionLost),
    ],
)
def test_a_failure_in_the_middle_is_raised(event: Any, kind: type[ModelError]) -> None:
    with pytest.raises(ModelError) as caught:
        reading(chunk(content="x"), event, *END)
    assert type(caught.value) is kind


@pytest.mark.parametrize("event", ["{", "null", "[]", '"x"', '{"choices":[{"delta":"x"}]}', '{"choices":{}}'])
def test_what_cannot_be_read_is_an_error_of_the_decoder(event: str) -> None:
    with pytest.raises(ValueError, match=r".+"):
        reading(event)


@pytest.mark.parametrize(
    "event",
    ["", "  ", "{}", '{"choices":[]}', '{"choices":[{}]}', '{"choices":[{"delta":null}]}', '{"new":{"a":[1]}}'],
)
def test_what_says_nothing_is_left_out(event: str) -> None:
    assert reading(event, *END) == [Finish()]


def test_a_second_choice_is_left_out() -> None:
    other = {"choices": [{"index": 1, "delta": {"content": "no"}, "finish_reason": None}]}
    assert reading(chunk(content="yes"), other, *END) == [TextDelta("yes"), Finish()]
