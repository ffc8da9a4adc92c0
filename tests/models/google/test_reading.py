"""Answers of the Gemini API, as it sends them and as it should not."""

import asyncio
from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from hibernaut.errors import ModelError
from hibernaut.kernel.turn import Turn, TurnBuffer, TurnCall, TurnText
from hibernaut.messages.events import Usage
from hibernaut.messages.items import UserItem
from hibernaut.messages.stream import Counted, Finish, ReasoningBlock, StreamPiece, TextDelta, ThinkingDelta
from hibernaut.models.dialect import Frame
from hibernaut.models.errors import ConnectionLost, InvalidRequest, Overloaded, RateLimited, Refused
from hibernaut.models.google.dialect import GeminiDialect
from hibernaut.models.google.rules import VERTEX
from hibernaut.models.google.writing import call_data
from hibernaut.models.protocol import Model
from hibernaut.models.scripted import call, think, turn
from hibernaut.testing.providers.google import signed
from hibernaut.testing.providers.wire import Raw
from tests.models.google.gemini import gemini, parts, read
from tests.models.histories import request

SIGNATURE = signed(b"1")


def whole(pieces: Sequence[StreamPiece]) -> Turn:
    buffer = TurnBuffer()
    buffer.feed_all(pieces)
    return buffer.turn()


async def asked(model: Model) -> list[StreamPiece]:
    return [piece async for piece in model.stream(request(UserItem("Hello.")))]


def test_a_turn_is_read_with_its_thoughts_signatures_and_counts() -> None:
    counts = {
        "promptTokenCount": 100,
        "toolUsePromptTokenCount": 10,
        "cachedContentTokenCount": 80,
        "candidatesTokenCount": 7,
        "thoughtsTokenCount": 20,
        "totalTokenCount": 137,
    }
    calls = [
        {"functionCall": {"name": "look", "args": {"path": "ä"}, "id": "f1"}, "thoughtSignature": SIGNATURE},
        {"functionCall": {"name": "wait"}},
    ]
    pieces = read(
        parts({"text": "Let me ", "thought": True}),
        parts({"text": "see.", "thought": True}),
        parts({"text": "I "}),
        parts({"text": "look."}),
        parts(*calls),
        {**parts({"text": ""}, reason="STOP"), "usageMetadata": counts},
    )
    assert pieces[:3] == [ThinkingDelta("Let me "), ThinkingDelta("see."), ReasoningBlock("google", b"", "Let me see.")]
    read_turn = whole(pieces)
    assert read_turn.usage == Usage(110, 27, 80)
    assert read_turn.reason == "end"
    text, first, second = read_turn.parts[1:]
    assert text == TurnText("I look.")
    assert first == TurnCall("look", "f1", ['{"path":"\\u00e4"}'], call_data("google", SIGNATURE), complete=True)
    assert second == TurnCall("wait", "", ["{}"], call_data("google", ""), complete=True)


def test_the_signature_of_a_text_is_a_block_of_reasoning() -> None:
    pieces = read(parts({"text": "Hi."}), parts({"text": "", "thoughtSignature": SIGNATURE}, reason="STOP"))
    assert pieces == [TextDelta("Hi."), ReasoningBlock("google", SIGNATURE.encode()), Finish()]
    (_, block, _) = read(parts({"text": "Hi.", "thoughtSignature": SIGNATURE}, reason="STOP"), platform=VERTEX)
    assert block == ReasoningBlock("vertex", SIGNATURE.encode())


def test_a_signature_in_the_middle_of_a_text_does_not_make_two_of_it() -> None:
    pieces = read(
        parts({"text": "I ", "thoughtSignature": SIGNATURE}),
        parts({"text": "look."}),
        parts({"functionCall": {"name": "look"}}, reason="STOP"),
    )
    text, block, made = whole(pieces).parts
    assert (text, block) == (TurnText("I look."), ReasoningBlock("google", SIGNATURE.encode()))
    assert isinstance(made, TurnCall)


def test_a_character_that_was_escaped_in_two_halves_is_one_again() -> None:
    halves = ['{"candidates":[{"content":{"parts":[{"text":"\\ud83d"}]}}]}', parts({"text": "x"}, reason="STOP")]
    halves.insert(1, '{"candidates":[{"content":{"parts":[{"text":"\\ude00"}]}}]}')
    assert whole(read(*halves)).parts == (TurnText("😀x"),)


def test_half_a_character_in_arguments_does_no_harm() -> None:
    event = '{"candidates":[{"content":{"parts":[{"functionCall":{"name":"a","args":{"b":"\\ud83d"}}}]}}]}'
    (made,) = whole(read(event, parts(reason="STOP"))).parts
    assert isinstance(made, TurnCall)
    assert made.arguments == '{"b":"\\ud83d"}'


def test_what_is_not_known_is_not_looked_at() -> None:
    event = parts({"executableCode": {"code": "1"}}, {"text": "Hi.", "new": [1]}, reason="STOP")
    event["candidates"].append({"index": 1, "content": {"parts": [{"text": "another"}]}, "finishReason": "OTHER"})
    event["candidates"][0].update(safetyRatings=[{}], groundingMetadata={}, avgLogprobs=-0.1)
    assert read({**event, "modelVersion": "gemini", "responseId": "x"}) == [TextDelta("Hi."), Finish()]


@pytest.mark.parametrize(
    "event", ["", "[DONE]", "{}", {"candidates": []}, {"candidates": [{}]}, parts(), {"error": None}]
)
def test_an_event_of_nothing_says_nothing(event: Any) -> None:
    assert read(event) == []


def test_counts_that_come_after_the_end_count() -> None:
    late = {"usageMetadata": {"promptTokenCount": 5, "candidatesTokenCount": 2}}
    assert read(parts({"text": "Hi."}, reason="STOP"), late)[-1] == Finish("end", Usage(5, 2))
    assert read(parts({"text": "Hi."}, reason="STOP"))[-1] == Finish("end", Usage())


def test_what_is_counted_on_the_way_is_told_also_of_what_is_refused() -> None:
    running = {**parts({"text": "Hi."}), "usageMetadata": {"promptTokenCount": 5, "thoughtsTokenCount": 2}}
    assert read(running) == [Counted(Usage(5, 2)), TextDelta("Hi.")]
    reader = GeminiDialect().reader()
    refused = {**parts(reason="SAFETY"), "usageMetadata": {"promptTokenCount": 5}}
    found = iter(reader.feed(Frame("message", msgspec.json.encode(refused).decode())))
    assert next(found) == Counted(Usage(5))
    with pytest.raises(Refused):
        next(found)


def test_a_stream_without_a_reason_has_no_end() -> None:
    assert read(parts({"text": "Hi."})) == [TextDelta("Hi.")]


@pytest.mark.parametrize("reason", ["SAFETY", "RECITATION", "BLOCKLIST", "PROHIBITED_CONTENT", "SPII", "LANGUAGE"])
def test_a_model_that_may_not_say_more_has_refused(reason: str) -> None:
    said = read(parts({"text": "How to"}, reason=reason))
    assert whole(said).reason == "refused"
    assert reason in str(whole(said).parts[-1])
    with pytest.raises(Refused, match=reason):
        read(parts(reason=reason))


@pytest.mark.parametrize("reason", ["MALFORMED_FUNCTION_CALL", "UNEXPECTED_TOOL_CALL", "OTHER", "SOMETHING_NEW"])
def test_a_turn_that_went_wrong_is_tried_again(reason: str) -> None:
    event = parts(reason=reason)
    event["candidates"][0]["finishMessage"] = "print(default_api.look())"
    with pytest.raises(Overloaded, match=f"{reason}: print"):
        read(event)


def test_a_prompt_that_is_blocked_is_refused_with_the_reason() -> None:
    with pytest.raises(Refused, match="the prompt: PROHIBITED_CONTENT"):
        read({"promptFeedback": {"blockReason": "PROHIBITED_CONTENT"}, "usageMetadata": {"promptTokenCount": 3}})


@pytest.mark.parametrize(
    "error,kind,wait",
    [
        ({"code": 503, "status": "UNAVAILABLE", "message": "busy"}, Overloaded, 0),
        ({"code": 429, "status": "RESOURCE_EXHAUSTED", "message": "slow"}, RateLimited, 0),
        ({"code": 400, "status": "INVALID_ARGUMENT", "message": "no"}, InvalidRequest, 0),
        ("words", Overloaded, 0),
        ({"code": 1}, Overloaded, 0),
    ],
)
def test_an_error_in_the_stream_has_its_kind(error: Any, kind: type[ModelError], wait: int) -> None:
    with pytest.raises(kind):
        read(parts({"text": "Hi"}), {"error": error})


SHORT = turn(think("Hm 😀", data=b"1"), "Göod. ", call("look", path="ä"), call("wait"), usage=Usage(5, 4, 3), chunks=3)


def test_a_stream_is_read_the_same_wherever_it_is_cut() -> None:
    async def scenario() -> None:
        async with gemini([SHORT]) as model:
            wanted = whole(await asked(model))
        for chunks in (*range(1, 40), 64, 100, 1_000):
            async with gemini([SHORT], chunks=chunks) as model:
                assert whole(await asked(model)) == wanted

    asyncio.run(scenario())


@pytest.mark.parametrize(
    "answer,kind,words",
    [
        (Raw(200, {"content-type": "text/html"}, b"<h1>It works!</h1>"), InvalidRequest, "It works"),
        (Raw(200, {"content-type": "text/event-stream"}, b"data: {oops\r\n\r\n"), ConnectionLost, "cannot be read"),
        (Raw(200, {"content-type": "text/event-stream"}, b'data: {"candidates":7}\r\n\r\n'), ConnectionLost, "read"),
        (Raw(500, {"content-type": "text/html"}, b"<h1>500</h1>"), Overloaded, "500"),
        (Raw(413, {"content-type": "text/html"}, b"too large"), InvalidRequest, "too large"),
    ],
)
def test_a_server_that_is_no_gemini_is_told_from_one(answer: Raw, kind: type[ModelError], words: str) -> None:
    async def scenario() -> None:
        async with gemini([answer]) as model:
            with pytest.raises(kind, match=words):
                await asked(model)

    asyncio.run(scenario())


def test_bytes_that_are_no_text_become_a_sign() -> None:
    event = b'data: {"candidates":[{"content":{"parts":[{"text":"a\xff"}]},"finishReason":"STOP"}]}\r\n\r\n'

    async def scenario() -> None:
        async with gemini([Raw(200, {"content-type": "text/event-stream"}, event)]) as model:
            assert whole(await asked(model)).parts == (TurnText("a\ufffd"),)

    asyncio.run(scenario())
