"""The fakes refuse what the APIs refuse: a test that passes against them means something."""

from collections.abc import Callable
from copy import deepcopy
from typing import Any

import msgspec
import pytest

from hibernaut.testing.model_transcripts import GIF, png
from hibernaut.testing.providers.openai_chat import MANNERS, ChatWire
from hibernaut.testing.providers.openai_responses import ResponsesWire
from hibernaut.testing.providers.wire import Asked, FakeWire, Raw

WIRE = ResponsesWire()
URL = "data:image/png;base64," + msgspec.json.encode(png()).decode().strip('"')


def asked(wire: FakeWire, path: str, body: Any, method: str = "POST") -> Raw | None:
    return wire.check(Asked.of(method, path, {}, msgspec.json.encode(body)))


def call(call_id: str = "call_1", **more: Any) -> dict[str, Any]:
    return {"type": "function_call", "call_id": call_id, "name": "look", "arguments": "{}", **more}


def output(call_id: str = "call_1", **more: Any) -> dict[str, Any]:
    return {"type": "function_call_output", "call_id": call_id, "output": "x", **more}


USER = {"role": "user", "content": "Hello."}
SAID = {"role": "assistant", "content": "Hi."}
REASONING = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": WIRE.seal(b"x")}
TOOL = {"type": "function", "name": "look", "parameters": {"type": "object", "properties": {}}, "strict": False}
BODY: dict[str, Any] = {
    "model": "gpt-5",
    "stream": True,
    "store": False,
    "include": ["reasoning.encrypted_content"],
    "reasoning": {"effort": "low"},
    "tools": [TOOL],
    "input": [USER, REASONING, call(), output(), SAID, USER],
}


def test_the_responses_api_takes_what_is_right() -> None:
    assert asked(WIRE, "/responses", BODY) is None
    assert asked(WIRE, "/v1/responses", BODY) is None


def image(url: str) -> dict[str, Any]:
    return {"role": "user", "content": [{"type": "input_image", "image_url": url}]}


@pytest.mark.parametrize(
    "items",
    [
        [],
        ["x"],
        [{"role": "tool", "content": "x"}],
        [{"role": "user", "content": []}],
        [{"role": "user", "content": [{"type": "output_text", "text": "x"}]}],
        [{"role": "assistant", "content": [{"type": "input_text", "text": "x"}]}],
        [{"role": "user", "content": [{"type": "input_text"}]}],
        [{"role": "assistant", "id": "msg_1", "content": "x"}],
        [{"type": "item_of_tomorrow"}],
        [USER, output()],
        [USER, call()],
        [USER, call(), call(), output(), output()],
        [USER, call(), output(), output()],
        [USER, call("x" * 65), output("x" * 65)],
        [USER, call(""), output("")],
        [USER, call(name="fs.read"), output()],
        [USER, call(name="y" * 65), output()],
        [USER, call(arguments={}), output()],
        [USER, call(arguments="{"), output()],
        [USER, call(arguments="[]"), output()],
        [USER, call(), output(output=[])],
        [USER, call(), output(output=[{"type": "output_text", "text": "x"}])],
        [USER, REASONING],
        [USER, REASONING, USER],
        [USER, REASONING, call(), output(), REASONING],
        [USER, REASONING | {"encrypted_content": None}, SAID],
        [USER, REASONING | {"encrypted_content": ResponsesWire(account="other").seal(b"x")}, SAID],
        [USER, REASONING | {"encrypted_content": "gAAAnothing"}, SAID],
        [USER, {"type": "reasoning", "encrypted_content": "x"}, SAID],
        [image("data:image/png;base64,AAAA")],
        [image("data:image/png;base64,A")],
        [image("data:image/tiff;base64,AAAA")],
        [image("http://pictures.example/a.png")],
        [image(URL.replace("png", "jpeg"))],
    ],
)
def test_the_responses_api_refuses_what_is_wrong(items: list[Any]) -> None:
    refused = asked(WIRE, "/responses", BODY | {"input": items})
    assert refused is not None
    assert refused.status in (400, 404)
    assert msgspec.json.decode(refused.body)["error"]["message"]


@pytest.mark.parametrize(
    "change",
    [
        {"model": ""},
        {"stream": False},
        {"unknown": 1},
        {"prompt_cache_key": "x" * 65},
        {"max_output_tokens": 15},
        {"reasoning": {"effort": "huge"}},
        {"tools": []},
        {"tools": [TOOL] * 129},
        {"tools": [TOOL | {"name": "a.b"}]},
        {"tools": [TOOL | {"type": "x"}]},
        {"tools": [TOOL | {"parameters": {}}]},
        {"tools": [{name: value for name, value in TOOL.items() if name != "strict"}]},
        {"tools": [TOOL | {"parameters": {"type": "object", "properties": {"a": {"type": "array"}}}}]},
        {"tools": [TOOL | {"parameters": {"type": "object", "properties": {}, "anyOf": []}}]},
        {"tools": [TOOL | {"strict": True}]},
    ],
)
def test_the_responses_api_refuses_fields_that_are_wrong(change: dict[str, Any]) -> None:
    assert asked(WIRE, "/responses", BODY | change) is not None


def test_a_model_that_does_not_reason_refuses_all_about_it() -> None:
    without = {name: value for name, value in BODY.items() if name not in ("include", "reasoning")}
    plain = without | {"model": "gpt-4.1"}
    assert asked(WIRE, "/responses", plain | {"input": [USER]}) is None
    assert asked(WIRE, "/responses", plain) is not None
    assert asked(WIRE, "/responses", plain | {"input": [USER], "include": BODY["include"]}) is not None
    assert asked(WIRE, "/responses", plain | {"input": [USER], "reasoning": BODY["reasoning"]}) is not None


def test_there_is_nothing_elsewhere() -> None:
    for path in ("/", "/v2/responses", "/chat"):
        refused = asked(WIRE, path, BODY)
        assert refused is not None
        assert refused.status == 404
    assert asked(WIRE, "/responses", [1]) is not None


# The Chat API


def calling(*ids: str, **more: Any) -> dict[str, Any]:
    function = {"name": "look", "arguments": "{}"}
    calls = [{"id": each, "type": "function", "function": function} for each in ids]
    return {"role": "assistant", "content": None, "tool_calls": calls, **more}


def result(call_id: str, **more: Any) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": call_id, "content": "x", **more}


SYSTEM = {"role": "system", "content": "Be kind."}
A, B = "aaaaaaaaa", "bbbbbbbbb"
RIGHT = [SYSTEM, USER, calling(A, B), result(A), result(B), SAID, USER]


def told(server: str, messages: list[Any], **more: Any) -> Raw | None:
    return asked(ChatWire(server), "/chat/completions", {"model": "m", "stream": True, "messages": messages, **more})


@pytest.mark.parametrize("server", [name for name in MANNERS if not MANNERS[name].owed])
def test_every_server_takes_what_is_right(server: str) -> None:
    assert told(server, RIGHT) is None


def with_image(url: str) -> dict[str, Any]:
    return {"role": "user", "content": [{"type": "image_url", "image_url": {"url": url}}]}


WRONG: list[list[Any]] = [
    [],
    ["x"],
    [{"role": "robot", "content": "x"}],
    [USER, SYSTEM, USER],
    [SYSTEM],
    [USER, SAID],
    [{"role": "system", "content": ""}, USER],
    [{"role": "user", "content": ""}],
    [{"role": "user", "content": []}],
    [{"role": "user", "content": [{"type": "text", "text": ""}]}],
    [{"role": "user", "content": [{"type": "input_text", "text": "x"}]}],
    [USER, {"role": "assistant", "content": None}, USER],
    [USER, {"role": "assistant", "content": ""}, USER],
    [USER, {"role": "assistant", "content": "x", "tool_calls": []}, USER],
    [USER, SAID | {"reasoning_content": "x"}, USER],
    [USER, result(A)],
    [USER, calling(A)],
    [USER, calling(A), USER],
    [USER, calling(A), result(B)],
    [USER, calling(A), result(A), result(A)],
    [USER, calling(A, B), result(A), USER, result(B)],
    [USER, calling(A, A), result(A), result(A)],
    [USER, calling(A), result(A), calling(A), result(A)],
    [USER, calling(""), result("")],
    [USER, calling(A), result(A, content=[])],
    [USER, calling(A), result(A, content=[{"type": "image_url", "image_url": {"url": URL}}])],
    [with_image("data:image/png;base64,AAAA")],
    [with_image("file:///etc/passwd")],
]


@pytest.mark.parametrize("messages", WRONG)
def test_the_chat_api_refuses_what_is_wrong(messages: list[Any]) -> None:
    assert told("openai", messages) is not None


def broken(change: Callable[[dict[str, Any]], None]) -> list[Any]:
    messages = deepcopy([USER, calling(A), result(A)])
    change(messages[1]["tool_calls"][0])
    return messages


@pytest.mark.parametrize(
    "change",
    [
        lambda made: made.update(type="tool"),
        lambda made: made.update(id=1),
        lambda made: made.update(function=None),
        lambda made: made["function"].update(name="a.b"),
        lambda made: made["function"].update(arguments={}),
        lambda made: made["function"].update(arguments="[]"),
    ],
)
def test_the_chat_api_refuses_calls_that_are_wrong(change: Callable[[dict[str, Any]], None]) -> None:
    assert told("openai", broken(lambda _: None)) is None
    assert told("openai", broken(change)) is not None


PICTURE = "data:image/gif;base64," + msgspec.json.encode(GIF).decode().strip('"')


@pytest.mark.parametrize(
    "server,messages,more",
    [
        ("openai", [USER], {"max_tokens": 9}),
        ("openai", [USER], {"chat_template_kwargs": {}}),
        ("mistral", [USER], {"stream_options": {"include_usage": True}}),
        ("mistral", [USER, calling("call_1"), result("call_1")], {}),
        ("mistral", [USER, calling(A), result(A), USER], {}),
        ("mistral", [USER, SAID | {"reasoning": "x"}, USER], {}),
        ("vllm", [USER, USER], {}),
        ("vllm", [USER, calling(A), result(A), USER], {}),
        ("vllm", [SYSTEM, SAID, USER], {}),
        ("llamacpp", [USER, SAID, SAID, USER], {}),
        ("groq", [USER, SAID | {"reasoning": "x"}, USER], {}),
        ("groq", [with_image(PICTURE), SAID] * 5 + [with_image(PICTURE)], {}),
        ("groq", [USER], {"prompt_cache_key": "x"}),
        ("deepseek", [USER, calling(A), result(A)], {}),
        ("deepseek", [with_image(PICTURE)], {}),
        ("moonshot", [USER, calling(A), result(A)], {}),
        ("groq", [USER], {"tools": [{"type": "function", "function": TOOL}]}),
    ],
)
def test_each_server_refuses_what_it_alone_refuses(server: str, messages: list[Any], more: dict[str, Any]) -> None:
    refused = told(server, messages, **more)
    assert refused is not None
    assert refused.status in (400, 422)
