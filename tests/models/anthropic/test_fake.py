"""The fake refuses what the API refuses. Nothing here is written by the adapter."""

from base64 import b64encode
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from hibernaut.messages.stream import Finish, ReasoningBlock, TextDelta
from hibernaut.testing.model_transcripts import GIF, png
from hibernaut.testing.providers.anthropic import LARGEST, AnthropicWire, BedrockWire, VertexWire
from hibernaut.testing.providers.wire import Asked, Raw
from tests.models.anthropic.setting import read

HEADERS = {"x-api-key": "sk-ant-fake", "anthropic-version": "2023-06-01"}
TOOL = {"name": "look", "description": "Looks.", "input_schema": {"type": "object", "properties": {"path": {}}}}
CALL = {"type": "tool_use", "id": "toolu_1", "name": "look", "input": {}}
RESULT = {"type": "tool_result", "tool_use_id": "toolu_1", "content": "hello"}
TEXT = {"type": "text", "text": "hello"}
MARK = {"cache_control": {"type": "ephemeral"}}


def image(data: bytes = b"", media_type: str = "image/png") -> dict[str, Any]:
    source = {"type": "base64", "media_type": media_type, "data": b64encode(data or png()).decode()}
    return {"type": "image", "source": source}


def body(**changes: Any) -> dict[str, Any]:
    """A request that is fine, with changes."""
    messages = [
        {"role": "user", "content": [TEXT, image()]},
        {"role": "assistant", "content": [TEXT, CALL]},
        {"role": "user", "content": [RESULT, TEXT]},
    ]
    fine = {
        "model": "claude-haiku-4-5-20251001",
        "max_tokens": 1_000,
        "stream": True,
        "system": [{**TEXT, **MARK}],
        "tools": [{**TOOL, **MARK}],
        "messages": messages,
    }
    return {name: value for name, value in {**fine, **changes}.items() if value is not None}


def answer(value: Any, path: str = "/v1/messages", **headers: str) -> Raw | None:
    raw = value if isinstance(value, bytes) else msgspec.json.encode(value)
    return AnthropicWire().check(Asked.of("POST", path, {**HEADERS, **headers}, raw))


def refusal(value: Any, **headers: str) -> str:
    found = answer(value, **headers)
    assert found is not None, "it is taken"
    assert found.status == 400, found
    error = msgspec.json.decode(found.body)["error"]
    assert error["type"] == "invalid_request_error"
    return str(error["message"])


def said(*blocks: dict[str, Any]) -> list[dict[str, Any]]:
    return [{"role": "user", "content": list(blocks)}]


def talk(*contents: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{"role": ("user", "assistant")[number % 2], "content": content} for number, content in enumerate(contents)]


def test_a_request_that_is_fine_is_taken() -> None:
    assert answer(body()) is None
    assert answer(body(messages=[{"role": "user", "content": "plain"}], system="plain")) is None


@pytest.mark.parametrize(
    "changes,words",
    [
        ({"max_tokens": None}, "max_tokens: Field required"),
        ({"max_tokens": 0}, "at least 1"),
        ({"max_tokens": 64_001}, "maximum of this model"),
        ({"effort": "low"}, "effort: Extra inputs"),
        ({"system": [{"type": "text", "text": ""}]}, "non-empty"),
        ({"tools": [{**TOOL, "name": "a.b"}]}, "should match pattern"),
        ({"tools": [{**TOOL, "name": "x" * 65}]}, "should match pattern"),
        ({"tools": [TOOL, TOOL]}, "unique"),
        ({"tools": [{**TOOL, "input_schema": {"properties": {}}}]}, "should be 'object'"),
        ({"tools": [{**TOOL, "input_schema": {"type": "object", "anyOf": []}}]}, "at the top level"),
        ({"tools": [{**TOOL, "input_schema": {"type": "object", "properties": {"größe": {}}}}]}, "Property keys"),
        ({"tools": None}, "must define tools"),
        ({"thinking": {"type": "adaptive"}}, "not supported for this model"),
        ({"thinking": {"type": "enabled", "budget_tokens": 1_000}}, "greater than or equal to 1024"),
        ({"thinking": {"type": "enabled", "budget_tokens": 2_000}}, "must be greater than"),
        ({"output_config": {"effort": "low"}}, "does not support this effort"),
        ({"messages": []}, "at least one message"),
        ({"messages": [{"role": "system", "content": "x"}]}, "'user' or 'assistant'"),
        ({"messages": [{"role": "assistant", "content": [TEXT]}]}, "first message"),
        ({"messages": talk([TEXT], [TEXT])}, "prefill"),
        ({"messages": said()}, "non-empty content"),
        ({"messages": said({"type": "text", "text": ""})}, "non-empty"),
        ({"messages": said({"type": "text", "text": " \n"})}, "non-whitespace"),
        ({"messages": said({**TEXT, "more": 1})}, "Extra inputs"),
        ({"messages": said({"type": "text"})}, "Field required"),
        ({"messages": said({"type": "audio"})}, "does not match any"),
        ({"messages": said(CALL)}, "can only be in `assistant`"),
        ({"messages": talk([TEXT], [image()], [TEXT])}, "can only be in `user`"),
        ({"messages": said(RESULT)}, "unexpected `tool_use_id`"),
        ({"messages": talk([TEXT], [CALL], [TEXT])}, "were found without `tool_result`"),
        ({"messages": talk([TEXT], [CALL], [TEXT, RESULT])}, "were found without `tool_result`"),
        ({"messages": talk([TEXT], [CALL], [RESULT, RESULT])}, "single result"),
        ({"messages": talk([TEXT], [CALL], [RESULT], [CALL], [RESULT])}, "ids must be unique"),
        ({"messages": talk([TEXT], [{**CALL, "id": "a b"}], [RESULT])}, "should match pattern"),
        ({"messages": talk([TEXT], [{**CALL, "input": []}], [RESULT])}, "valid dictionary"),
        ({"messages": talk([TEXT], [CALL], [{**RESULT, "is_error": True, "content": [image()]}])}, "is_error"),
        ({"messages": said({**TEXT, "cache_control": {"type": "for ever"}})}, "not a cache control"),
        ({"messages": said(*[{**TEXT, **MARK}] * 3)}, "A maximum of 4 blocks"),
        ({"messages": said(image(b"nothing"))}, "Could not process"),
        ({"messages": said(image(GIF))}, "appears to be a image/gif"),
        ({"messages": said(image(png(8_001)))}, "dimensions"),
        ({"messages": said(*[image()] * 20, image(png(2_001)))}, "dimensions"),
        ({"messages": said(*[image()] * 101)}, "Too many images"),
        ({"messages": said(image(png() + b"\0" * 7_500_000))}, "exceeds the maximum"),
        ({"messages": said({"type": "image", "source": {"type": "url", "url": "http://x"}})}, "HTTPS"),
        (
            {"messages": talk([TEXT], [{"type": "thinking", "thinking": "x", "signature": "YWJj"}, TEXT], [TEXT])},
            "Invalid `signature`",
        ),
        (
            {"thinking": {"type": "enabled", "budget_tokens": 1_024}, "max_tokens": 2_000},
            "Expected `thinking` or `redacted_thinking`",
        ),
        ({"model": "claude-opus-5-5", "thinking": {"type": "disabled"}}, "not supported for this model"),
        (
            {"model": "claude-opus-5-5", "thinking": {"type": "adaptive", "block_binding": {}}},
            "needs the beta",
        ),
    ],
)
def test_what_breaks_a_rule_is_refused_in_the_words_of_the_api(changes: dict[str, Any], words: str) -> None:
    assert words in refusal(body(**changes))


@pytest.mark.parametrize(
    "value,headers,status,kind",
    [
        (body(), {"x-api-key": "wrong"}, 401, "authentication_error"),
        (body(), {"anthropic-version": ""}, 400, "invalid_request_error"),
        (b"{no json", {}, 400, "invalid_request_error"),
        (body(model="claude-9"), {}, 404, "not_found_error"),
        (body(system="x" * LARGEST), {}, 413, "request_too_large"),
    ],
)
def test_what_is_wrong_beside_the_body_has_its_own_status(
    value: Any, headers: dict[str, str], status: int, kind: str
) -> None:
    found = answer(value, **headers)
    assert found is not None
    assert (found.status, msgspec.json.decode(found.body)["error"]["type"]) == (status, kind)


def test_the_newer_version_lets_nobody_choose_how_words_are_drawn() -> None:
    assert answer(body(temperature=0.5)) is None
    assert "temperature" in refusal(body(temperature=0.5), **{"anthropic-version": "2026-10-21"})


def test_another_path_is_not_found() -> None:
    found = answer(body(), path="/v1/complete")
    assert found is not None
    assert found.status == 404


@pytest.mark.parametrize(
    "wire,path,changes",
    [
        (VertexWire("t"), "/claude-haiku-4-5-20251001:streamRawPredict", {"model": None, "anthropic_version": "x"}),
        (VertexWire("t"), "/claude-haiku-4-5-20251001:streamRawPredict", {"anthropic_version": "vertex-2023-10-16"}),
        (VertexWire("wrong"), "/claude-haiku-4-5-20251001:streamRawPredict", {}),
        (BedrockWire("t"), "/v1/messages", {}),
        (BedrockWire("wrong"), "/v1/messages", {"model": "anthropic.claude-haiku-4-5-20251001"}),
    ],
)
def test_other_doors_want_the_model_and_the_version_elsewhere(
    wire: AnthropicWire, path: str, changes: dict[str, Any]
) -> None:
    headers = {"authorization": "Bearer t", "anthropic-version": "2023-06-01"}
    found = wire.check(Asked.of("POST", path, headers, msgspec.json.encode(body(**changes))))
    assert found is not None
    assert found.status >= 400


@pytest.mark.parametrize(
    "change",
    [
        lambda asked: asked | {"system": "Be unkind."},
        lambda asked: asked | {"tools": [TOOL, {**TOOL, "name": "other"}]},
        lambda asked: asked | {"messages": [said({"type": "text", "text": "other"})[0], *asked["messages"][1:]]},
    ],
)
def test_thinking_that_stands_where_it_was_not_thought_is_refused_unless_it_may_be_dropped(
    change: Callable[[dict[str, Any]], dict[str, Any]],
) -> None:

    wire = AnthropicWire()
    asked = body(model="claude-opus-5-5", messages=said(TEXT))
    encoder = wire.encoder(Asked("POST", "/v1/messages", {}, asked))
    events = [
        event for piece in (ReasoningBlock("x", b"", "hm"), TextDelta("hi"), Finish()) for event in encoder.feed(piece)
    ]
    (block,) = [msgspec.json.decode(piece.data) for piece in read(events) if isinstance(piece, ReasoningBlock)]
    again = asked | {"messages": [*asked["messages"], *talk([], [block, {"type": "text", "text": "hi"}], [TEXT])[1:]]}

    def check(value: dict[str, Any], **headers: str) -> Raw | None:
        return wire.check(Asked.of("POST", "/v1/messages", {**HEADERS, **headers}, msgspec.json.encode(value)))

    assert check(again) is None
    found = check(change(again))
    assert found is not None
    assert b"bound to a different conversation" in found.body
    binding = {"type": "adaptive", "block_binding": {"prefix_mismatch_behavior": "drop_block"}}
    beta = {"anthropic-beta": "a,thinking-binding-controls-2026-08-01"}
    assert check(change(again) | {"thinking": binding}, **beta) is None
    assert wire.displaced == [0, 1]
