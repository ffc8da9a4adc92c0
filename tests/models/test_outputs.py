"""Answers of a form: each provider is held to it in its own way, or is offered the tool that takes them."""

import asyncio
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import msgspec
import pytest

from hibernaut import AgentSystem, tool
from hibernaut.messages.items import UserItem
from hibernaut.messages.tools import ANSWER_TOOL
from hibernaut.models.anthropic.rules import keeps_forms
from hibernaut.models.http_model import HttpModel
from hibernaut.models.openai.chat import ChatDialect
from hibernaut.models.openai.responses import ResponsesDialect
from hibernaut.models.openai.servers import server_of
from hibernaut.models.outputs import DEEPEST, guaranteed
from hibernaut.models.protocol import ModelRequest, OutputSpec
from hibernaut.models.scripted import call, say, turn
from hibernaut.testing.providers.anthropic import AnthropicWire
from hibernaut.testing.providers.bedrock import ConverseWire
from hibernaut.testing.providers.forms import form_problem
from hibernaut.testing.providers.google import GeminiWire
from hibernaut.testing.providers.openai_chat import ChatWire
from hibernaut.testing.providers.openai_responses import ResponsesWire
from hibernaut.testing.providers.server import FakeScript
from hibernaut.testing.providers.wire import FakeWire
from hibernaut.tools.outputs import OutputType, form_of
from tests.models.anthropic import setting as anthropic
from tests.models.bedrock import converse
from tests.models.google import gemini
from tests.models.histories import request, verdict
from tests.models.openai import setting as openai


@dataclass
class Build:
    commit: str
    passed: bool
    failures: list[str]


@dataclass
class Note:
    text: str
    topic: str | None = None


Many = msgspec.defstruct("Many", [(f"m{number}", int, 0) for number in range(25)])


def wanted(kind: Any) -> OutputSpec:
    form = form_of(OutputType(kind).schema)
    return OutputSpec(form.schema, form.tool)


def asked(kind: Any) -> ModelRequest:
    return request(UserItem("Build it."), output=wanted(kind))


def body(model: HttpModel, kind: Any = Build) -> Any:
    return msgspec.json.decode(model.sent(asked(kind)).body)


def offered(sent: Any) -> bool:
    """Tell whether the tool that takes the answer is among the tools of a body."""
    return f'"{ANSWER_TOOL}"'.encode() in msgspec.json.encode(sent.get("tools") or sent.get("toolConfig"))


def claude(model: str = "claude-sonnet-5", **settings: Any) -> HttpModel:
    return anthropic.model_at(of=anthropic.about(model, **settings))


def responses(model: str = "gpt-5", **settings: Any) -> HttpModel:
    return openai.model_of(ResponsesDialect(), model, **settings)


BUILD = guaranteed(OutputType(Build).schema)
assert BUILD is not None

HELD: dict[str, tuple[HttpModel, FakeWire, dict[str, str], Callable[[Any], Any], Any]] = {
    "anthropic": (
        claude(),
        AnthropicWire(anthropic.KEY),
        anthropic.HEADERS,
        lambda sent: sent["output_config"],
        {"format": {"type": "json_schema", "schema": BUILD.schema}},
    ),
    "anthropic with an effort": (
        claude("claude-opus-4-8", effort="low"),
        AnthropicWire(anthropic.KEY),
        anthropic.HEADERS,
        lambda sent: sent["output_config"],
        {"effort": "low", "format": {"type": "json_schema", "schema": BUILD.schema}},
    ),
    "responses": (
        responses(),
        ResponsesWire(),
        {},
        lambda sent: sent["text"],
        {"format": {"type": "json_schema", "name": "answer", "schema": BUILD.schema, "strict": True}},
    ),
    "chat": (
        openai.chat("openai", "gpt-5"),
        ChatWire("openai"),
        {},
        lambda sent: sent["response_format"],
        {"type": "json_schema", "json_schema": {"name": "answer", "schema": BUILD.schema, "strict": True}},
    ),
    "gemini": (
        gemini.offline(),
        GeminiWire(),
        gemini.HEADERS,
        lambda sent: {name: sent["generationConfig"][name] for name in ("responseMimeType", "responseJsonSchema")},
        {"responseMimeType": "application/json", "responseJsonSchema": BUILD.schema},
    ),
    "converse": (
        converse.offline(),
        ConverseWire(),
        converse.BEARER,
        lambda sent: msgspec.json.decode(sent["outputConfig"]["textFormat"]["structure"]["jsonSchema"]["schema"]),
        BUILD.schema,
    ),
}


@pytest.mark.parametrize("name", HELD)
def test_a_provider_that_can_is_held_to_the_form_and_its_tools_stay_as_they_are(name: str) -> None:
    model, wire, headers, form, expected = HELD[name]
    assert model.info.structured
    assert form(body(model)) == expected
    assert not offered(body(model))
    assert verdict(wire, model, asked(Build), headers) is None


TOOLS: dict[str, tuple[HttpModel, Any, FakeWire, dict[str, str]]] = {
    "an older claude": (
        claude("claude-3-7-sonnet-20250219"),
        Build,
        AnthropicWire(anthropic.KEY),
        anthropic.HEADERS,
    ),
    "a form that is open": (claude(), dict[str, int], AnthropicWire(anthropic.KEY), anthropic.HEADERS),
    "a form with many members that may be missing": (claude(), Many, AnthropicWire(anthropic.KEY), anthropic.HEADERS),
    "the same on bedrock": (converse.offline(), Many, ConverseWire(), converse.BEARER),
    "claude, told not to": (claude(forms=False), Build, AnthropicWire(anthropic.KEY), anthropic.HEADERS),
    "an older gpt": (responses("gpt-4-turbo"), Build, ResponsesWire(), {}),
    "a member that may be missing": (responses(), Note, ResponsesWire(), {}),
    "a local server": (openai.chat("ollama", "qwen3"), Build, ChatWire("ollama"), {}),
    "an older gemini": (gemini.offline(model_id=gemini.OLDER), Build, GeminiWire(), gemini.HEADERS),
    "llama": (converse.offline(converse.LLAMA), Build, ConverseWire(), converse.BEARER),
    "an older claude on bedrock": (converse.offline(converse.OLD_CLAUDE), Build, ConverseWire(), converse.BEARER),
}


@pytest.mark.parametrize("name", TOOLS)
def test_any_other_is_offered_the_tool_that_takes_the_answer(name: str) -> None:
    model, kind, wire, headers = TOOLS[name]
    sent = body(model, kind)
    assert offered(sent)
    assert not sent.keys() & {"text", "response_format", "outputConfig"}
    assert "format" not in sent.get("output_config", {})
    assert "responseMimeType" not in sent.get("generationConfig", {})
    assert verdict(wire, model, asked(kind), headers) is None


def test_members_that_may_be_missing_can_be_guaranteed_where_the_api_takes_them() -> None:
    assert not offered(body(claude(), Note))
    assert not offered(body(gemini.offline(), Note))


@pytest.mark.parametrize(
    "model, held",
    [
        ("claude-3-5-haiku-20241022", False),
        ("claude-opus-4-20250514", False),
        ("claude-opus-4-1-20250805", True),
        ("claude-sonnet-4-20250514", False),
        ("us.anthropic.claude-sonnet-4-5-20250929-v1:0", True),
        ("claude-haiku-4-5", True),
        ("claude-mythos-preview", True),
        ("some-other-model", False),
    ],
)
def test_which_models_of_anthropic_can_be_held_to_a_form(model: str, held: bool) -> None:
    assert keeps_forms(model) is held


# What can be guaranteed


class Nested(msgspec.Struct):
    kind: Literal["a", "b"]
    build: Build
    more: list[Build | None]


class Bounded(msgspec.Struct):
    seats: Annotated[int, msgspec.Meta(le=5)]


class Tree(msgspec.Struct):
    below: "list[Tree]"


@pytest.mark.parametrize("kind", [Build, Note, Nested, int, list[str], Literal[1, 2], str | int | None])
def test_what_can_be_guaranteed_is_said_in_words_that_all_providers_take(kind: Any) -> None:
    found = guaranteed(OutputType(kind).schema)
    assert found is not None
    assert form_problem(found.schema, complete=found.complete) == ""
    assert found.complete is (kind is not Note)


def deep(levels: int) -> Any:
    return list[deep(levels - 1)] if levels else int  # type: ignore[misc]  # a type made at run time


@pytest.mark.parametrize("kind", [dict[str, int], Tree, tuple[int, str], Any, deep(DEEPEST + 1)])
def test_what_is_open_or_leads_into_itself_can_be_guaranteed_by_nobody(kind: Any) -> None:
    assert guaranteed(OutputType(kind).schema) is None


def test_bounds_are_told_in_words_where_they_are_not_guaranteed_and_checked_all_the_same() -> None:
    schema = OutputType(Bounded).schema
    found = guaranteed(schema)
    assert found is not None
    assert found.schema["properties"]["seats"] == {"description": "(maximum: 5)", "type": "integer"}
    assert "5" in getattr(form_of(schema).judge('{"seats":9}'), "reason", "")


# Over the wire


@tool
async def look(path: str) -> str:
    """Look."""
    return f"{path} failed"


Opener = Callable[[FakeScript], AbstractAsyncContextManager[Any]]

OVER_HTTP: dict[str, tuple[Opener, bool]] = {
    "anthropic": (lambda script: anthropic.talking(script, anthropic.about("claude-sonnet-5")), True),
    "an older claude": (lambda script: anthropic.talking(script, anthropic.about("claude-3-7-sonnet-20250219")), False),
    "responses": (lambda script: openai.served(ResponsesWire(), ResponsesDialect(), script), True),
    "chat": (lambda script: openai.served(ChatWire("openai"), ChatDialect(server_of("openai")), script), True),
    "vllm": (
        lambda script: openai.served(ChatWire("vllm"), ChatDialect(server_of("vllm")), script, model_id="gemma"),
        False,
    ),
    "mistral": (lambda script: openai.served(ChatWire("mistral"), ChatDialect(server_of("mistral")), script), False),
    "gemini": (gemini.gemini, True),
    "an older gemini": (lambda script: gemini.gemini(script, model_id=gemini.OLDER), False),
    "converse": (converse.bedrock, True),
    "llama": (lambda script: converse.bedrock(script, converse.LLAMA), False),
}

GOOD = '{"commit":"a1","passed":false,"failures":["a.py"]}'


@pytest.mark.parametrize("name", OVER_HTTP)
def test_a_value_over_http_after_a_tool_and_an_answer_that_did_not_fit(name: str) -> None:
    opener, held = OVER_HTTP[name]

    def answer(text: str) -> Any:
        return say(text) if held else call(ANSWER_TOOL, msgspec.json.decode(text))

    script = [
        turn("I look.", call("look", path="a.py")),
        answer('{"commit":"a1","passed":false,"failures":"a.py"}'),
        answer(GOOD),
        say("You are welcome."),
    ]

    async def scenario() -> None:
        async with opener(script) as opened:
            model = opened[0] if isinstance(opened, tuple) else opened
            async with AgentSystem(model=model, tools=[look]) as system:
                agent = await system.launch(instructions="You build.")
                async with asyncio.timeout(30):
                    assert await agent.ask("Build a1", output=Build) == Build("a1", passed=False, failures=["a.py"])
                    assert await agent.ask("Thanks.") == "You are welcome."

    asyncio.run(scenario())
