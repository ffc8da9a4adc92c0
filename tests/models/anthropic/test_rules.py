"""The table of rules: each of them is one that the API has, and the fake refuses what breaks it."""

from typing import Any

import msgspec
import pytest

from hibernaut.messages.items import CallItem, ReasoningItem, ResultItem, TextItem, UserItem
from hibernaut.messages.stream import CallStarted
from hibernaut.messages.tools import ToolSpec
from hibernaut.models.anthropic.rules import UNKNOWN, Traits, output_of, schema_of, thinking_of, traits_of
from hibernaut.models.dialect import Frame
from hibernaut.models.errors import InvalidRequest
from hibernaut.models.protocol import ModelInfo
from hibernaut.testing.providers.anthropic import AnthropicWire
from tests.models.anthropic.setting import BOUND, BUDGET, HEADERS, KEY, MODELS, about, model_at, own_reasoning
from tests.models.histories import posted, request, verdict

HELLO = UserItem("hello")


def sent(model: str = BUDGET, *transcript: Any, tools: Any = (), **settings: Any) -> Any:
    asked = request(*(transcript or (HELLO,)), tools=tools)
    return posted(model_at(of=about(model, **settings)), asked, HEADERS).body


# Models and thinking


@pytest.mark.parametrize(
    "names,like",
    [
        (["claude-3-haiku-20240307", "claude-3-opus-20240229", "anthropic.claude-3-haiku-20240307-v1:0"], "none"),
        (["claude-3-5-haiku-20241022", "claude-3-5-sonnet@20241022"], "none"),
        (
            ["claude-3-7-sonnet-20250219", "claude-sonnet-4-20250514", "claude-opus-4-1", "claude-opus-4-5@20251101"],
            "budget",
        ),
        (["claude-haiku-4-5-20251001", "us.anthropic.claude-sonnet-4-5-20250929-v1:0"], "budget"),
        (["claude-sonnet-4-6", "anthropic.claude-opus-4-6-v1", "anthropic/claude-opus-4.6"], "adaptive"),
        (["claude-opus-4-8", "claude-sonnet-5", "claude-opus-5", "claude-mythos-preview"], "adaptive"),
        (
            ["claude-opus-5-5", "claude-haiku-5-5", "claude-fable-5-2", "claude-opus-7", "claude-sonnet-6-1-20280101"],
            "adaptive",
        ),
    ],
)
def test_what_a_model_does_about_thinking_is_read_off_its_id(names: list[str], like: str) -> None:
    assert {traits_of(name).thinking for name in names} == {like}


def test_newer_models_are_like_the_newest_that_is_known() -> None:
    assert traits_of("claude-opus-6") is traits_of("claude-opus-5-5")
    assert traits_of("claude-opus-5-5").bound
    assert not traits_of("claude-opus-5-20260701").bound
    assert traits_of("claude-opus-20300101") is UNKNOWN
    assert traits_of("kimi-k3") is UNKNOWN


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("effort", ["", "none", "low", "medium", "high"])
@pytest.mark.parametrize("output", [0, 1, 1_024, 2_047, 2_048, 3_000])
def test_every_effort_is_taken_by_every_model_whatever_it_may_say(model: str, effort: str, output: int) -> None:
    made = model_at(of=about(model, effort=effort, max_output=output))
    assert verdict(AnthropicWire(), made, request(HELLO), HEADERS) is None


BINDING = {"block_binding": {"prefix_mismatch_behavior": "drop_block"}}
SHOWN = {"type": "adaptive", "display": "summarized"}


@pytest.mark.parametrize(
    "model,effort,thinking,config",
    [
        ("claude-3-5-haiku-20241022", "high", None, None),
        (BUDGET, "", None, None),
        (BUDGET, "none", None, None),
        (BUDGET, "low", {"type": "enabled", "budget_tokens": 2_048}, None),
        (BUDGET, "high", {"type": "enabled", "budget_tokens": 24_576}, None),
        ("claude-sonnet-4-6", "", None, None),
        ("claude-sonnet-4-6", "none", None, None),
        ("claude-sonnet-4-6", "high", {"type": "adaptive"}, {"effort": "high"}),
        ("claude-opus-4-8", "", None, None),
        ("claude-opus-4-8", "low", SHOWN, {"effort": "low"}),
        ("claude-sonnet-5", "", SHOWN, None),
        ("claude-sonnet-5", "none", {"type": "disabled"}, None),
        ("claude-fable-5", "none", SHOWN, {"effort": "low"}),
        (BOUND, "", SHOWN | BINDING, None),
        (BOUND, "none", SHOWN | BINDING, {"effort": "low"}),
        ("claude-sonnet-5-5", "none", {"type": "between_tools"}, None),
        ("claude-haiku-5-5", "none", {"type": "disabled"}, None),
        ("claude-haiku-5-5", "medium", SHOWN | BINDING, {"effort": "medium"}),
    ],
)
def test_how_much_a_model_thinks_is_said_in_the_way_of_its_generation(
    model: str, effort: str, thinking: Any, config: Any
) -> None:
    body = sent(model, effort=effort)
    assert (body.get("thinking"), body.get("output_config")) == (thinking, config)


def test_a_budget_leaves_room_for_an_answer() -> None:
    assert sent(effort="high", max_output=3_000)["thinking"]["budget_tokens"] == 3_000 - 1_024
    assert "thinking" not in sent(effort="high", max_output=2_000)


def test_the_output_is_limited_by_the_setting_else_by_what_is_known() -> None:
    assert output_of(about(max_output=7), UNKNOWN) == 7
    assert output_of(about(info=ModelInfo(max_output=100)), UNKNOWN) == 100
    assert output_of(about(info=ModelInfo(max_output=64_000)), Traits(output=32_000)) == 32_000
    assert output_of(about(), Traits(output=32_000)) == 32_000


def test_thinking_that_belongs_to_a_turn_of_another_provider_is_not_begun_in_its_middle() -> None:
    wire = AnthropicWire()
    (own, _) = own_reasoning(wire)
    foreign = ReasoningItem("openai", b"{}")
    call, result = CallItem("c1", "look"), ResultItem("c1", "hello")
    for thought, begins in ((own, True), (foreign, False)):
        transcript = (HELLO, thought, call, result)
        assert ("thinking" in sent(BUDGET, *transcript, effort="high")) is begins
        assert ("thinking" in sent(BUDGET, *transcript, UserItem("and?"), effort="high")) is begins
        asked = request(*transcript)
        assert verdict(wire, model_at(of=about(BUDGET, effort="high")), asked, HEADERS) is None
        assert "thinking" in sent(BUDGET, *transcript, TextItem("done"), UserItem("and?"), effort="high")
        assert "thinking" in sent("claude-sonnet-4-6", *transcript, effort="high"), "who decides for itself may begin"
    assert thinking_of(traits_of(BUDGET), "high", 32_000, midway=True) == {}


def test_thinking_is_kept_back_where_a_model_that_checks_it_does_not_think() -> None:
    own = own_reasoning(AnthropicWire())[0]
    for effort, blocks in (("low", 2), ("none", 1)):
        body = sent("claude-haiku-5-5", HELLO, own, TextItem("hi"), HELLO, effort=effort)
        assert len(body["messages"][1]["content"]) == blocks


# Tools


@pytest.mark.parametrize("name", ["fs.read/größe", "x" * 128])
def test_a_tool_whose_name_the_api_does_not_take_is_told_as_another_one_and_known_again(name: str) -> None:
    model = model_at()
    tools = [ToolSpec(name, "", "{}")]
    asked = request(HELLO, CallItem("c", name, "{}"), ResultItem("c", "x"), tools=tools)
    body = msgspec.json.decode(model.sent(asked).body)
    told = body["tools"][0]["name"]
    assert verdict(AnthropicWire(KEY), model, asked, HEADERS) is None
    assert body["messages"][1]["content"][0]["name"] == told != name
    begun = {"type": "content_block_start", "content_block": {"type": "tool_use", "id": "t", "name": told}}
    frame = Frame("", msgspec.json.encode(begun).decode())
    assert [*model._dialect.reader().feed(frame)] == [CallStarted(0, name, "t")]


@pytest.mark.parametrize(
    "parameters,schema",
    [
        ("{}", {"type": "object", "properties": {}}),
        ("true", {"type": "object", "properties": {}}),
        ('{"type":["object","null"],"properties":{"a":{}}}', {"type": "object", "properties": {"a": {}}}),
        (
            '{"type":"object","properties":{"a":{"anyOf":[{}]}},"additionalProperties":false}',
            {"type": "object", "properties": {"a": {"anyOf": [{}]}}, "additionalProperties": False},
        ),
        (
            '{"anyOf":[{"properties":{"a":{"type":"string"}}},{"required":["b"]},true],"properties":{"b":{}},"title":"T"}',
            {"type": "object", "properties": {"b": {}, "a": {"type": "string"}}, "title": "T"},
        ),
        (
            '{"$ref":"#/$defs/A","$defs":{"A":{}}}',
            {"$ref": "#/$defs/A", "$defs": {"A": {}}, "type": "object", "properties": {}},
        ),
    ],
)
def test_a_schema_is_an_object_without_alternatives_at_its_top(parameters: str, schema: Any) -> None:
    assert schema_of("look", parameters) == schema
    tools = [ToolSpec("look", "", parameters)]
    assert verdict(AnthropicWire(), model_at(), request(HELLO, tools=tools), HEADERS) is None


@pytest.mark.parametrize("name", ["größe", "a b", "x" * 65, "$filter"])
def test_a_parameter_whose_name_the_api_does_not_take_is_named(name: str) -> None:
    parameters = msgspec.json.encode({"properties": {name: {}}}).decode()
    with pytest.raises(InvalidRequest, match="the tool look has a parameter"):
        sent(tools=[ToolSpec("look", "", parameters)])


def test_a_history_with_calls_has_tools_even_where_none_may_be_called() -> None:
    assert "tools" not in sent()
    body = sent(BUDGET, HELLO, CallItem("c1", "look"), ResultItem("c1", "hi"))
    assert [tool["name"] for tool in body["tools"]] == ["none"]
    assert body["tool_choice"] == {"type": "none"}


def test_a_request_that_is_too_large_is_not_sent() -> None:
    with pytest.raises(InvalidRequest, match="takes at most 32,000,000"):
        sent(BUDGET, UserItem("x" * 32_000_000))


# What users add


def test_parameters_of_the_user_win_and_betas_go_into_the_header() -> None:
    parameters = {"temperature": 0.5, "max_tokens": 5, "betas": ["a-2026"], "system": "mine"}
    asked = posted(model_at(of=about(BOUND, parameters=parameters)), request(HELLO), HEADERS)
    assert (asked.body["temperature"], asked.body["max_tokens"], asked.body["system"]) == (0.5, 5, "mine")
    assert asked.headers["anthropic-beta"] == "thinking-binding-controls-2026-08-01,a-2026"
    off = posted(model_at(of=about(BOUND, parameters={"thinking": {"type": "adaptive"}})), request(HELLO), HEADERS)
    assert "anthropic-beta" not in off.headers


def test_instructions_that_are_blank_are_left_out() -> None:
    asked = msgspec.structs.replace(request(HELLO), instructions=" \n")
    assert "system" not in posted(model_at(), asked, HEADERS).body
