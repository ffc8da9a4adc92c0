"""Tools as functions, with schemas that are taken."""

from typing import Any

import jsonschema_rs
import msgspec
import pytest

from hibernaut.codec import to_json
from hibernaut.messages.tools import ToolSpec
from hibernaut.models.errors import InvalidRequest
from hibernaut.models.openai.rules import tool_names
from hibernaut.models.openai.schemas import Functions, fitted
from hibernaut.testing.providers.openai_requests import NotTaken, check_tools

LOOK = {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]}
DRAFT_7 = {"$schema": "http://json-schema.org/draft-07/schema#"}
CLOSED = LOOK | {"additionalProperties": False}


def spec(schema: Any, name: str = "look", description: str = "Looks.") -> ToolSpec:
    return ToolSpec(name, description, to_json(schema))


def told(schema: Any, *, nested: bool = False, strict: bool = True) -> Any:
    return msgspec.json.decode(Functions(tool_names(), nested=nested, strict=strict).json((spec(schema),)))


ODD: list[tuple[Any, Any]] = [
    ({}, {}),
    (True, {"a": 1}),
    ({"type": "object"}, {"a": 1}),
    ({"properties": {"a": {"type": "array"}}}, {"a": [1]}),
    ({"type": "object", "properties": {"a": {"type": ["array", "null"]}}}, {"a": None}),
    ({"type": "object", "properties": {"a": {"anyOf": [{"type": "array"}, {"type": "string"}]}}}, {"a": "x"}),
    ({"anyOf": [LOOK, {"type": "object", "properties": {"n": {"type": "integer"}}}]}, {"n": 1}),
    ({"type": "object", "oneOf": [CLOSED], "additionalProperties": True}, {"path": "x"}),
    ({"allOf": [LOOK, {"properties": {"path": {"maxLength": 5}}}]}, {"path": "x"}),
    ({"$ref": "#/$defs/it", "$defs": {"it": LOOK}}, {"path": "x"}),
    ({"type": "object", "not": {"required": ["a"]}}, {"b": 1}),
    (DRAFT_7 | {"type": "object", "properties": {"a": {"type": "array", "items": [{"type": "string"}]}}}, {"a": ["x"]}),
    ({"type": "object", "properties": {"items": {"type": "string"}}}, {"items": "x"}),
]


@pytest.mark.parametrize("schema,value", ODD)
def test_every_schema_is_taken_and_none_is_narrowed(schema: Any, value: Any) -> None:
    check_tools(told(schema), nested=False)
    check_tools(told(schema, nested=True), nested=True)
    if schema:
        with pytest.raises(NotTaken):
            check_tools([{"type": "function", "name": "look", "parameters": schema, "strict": True}], nested=False)
    assert jsonschema_rs.is_valid(schema, value)
    assert jsonschema_rs.is_valid(fitted(schema), value)


@pytest.mark.parametrize(
    "schema,wanted",
    [
        (CLOSED, True),
        ({"type": "object", "properties": {}, "additionalProperties": False}, True),
        (CLOSED | {"properties": {"path": {"type": "array", "items": {"type": "string", "enum": ["a"]}}}}, True),
        (CLOSED | {"properties": {"path": CLOSED}}, True),
        (LOOK, False),
        (CLOSED | {"required": []}, False),
        (CLOSED | {"properties": {"path": {"type": "string", "pattern": "x"}}}, False),
        (CLOSED | {"properties": {"path": {"type": ["string", "null"]}}}, False),
        (CLOSED | {"properties": {"path": LOOK}}, False),
        (CLOSED | {"properties": {"path": {"type": "array"}}}, False),
        (CLOSED | {"properties": {"path": {}}}, False),
        (CLOSED | {"$defs": {}}, False),
        ({}, False),
    ],
)
def test_arguments_are_guaranteed_where_the_schema_allows_it(schema: Any, wanted: bool) -> None:
    (in_responses,) = told(schema)
    assert in_responses["strict"] is wanted
    (in_chat,) = told(schema, nested=True)
    assert in_chat["function"].get("strict", False) is wanted
    (elsewhere,) = told(schema, nested=True, strict=False)
    assert "strict" not in elsewhere["function"]
    check_tools([in_responses], nested=False)


def test_a_schema_that_is_deep_or_wide_is_not_guaranteed() -> None:
    deep: Any = {"type": "string"}
    for _ in range(6):
        deep = {"type": "object", "properties": {"a": deep}, "required": ["a"], "additionalProperties": False}
    names = [f"p{number}" for number in range(101)]
    wide = CLOSED | {"properties": {name: {"type": "string"} for name in names}, "required": names}
    for schema in (deep, wide):
        (made,) = told(schema)
        assert made["strict"] is False


def test_a_tool_without_a_description_has_none() -> None:
    (made,) = msgspec.json.decode(
        Functions(tool_names(), nested=False, strict=True).json((spec(LOOK, description=""),))
    )
    assert "description" not in made


def test_a_tool_with_a_name_that_is_not_taken_has_another_one_on_the_wire() -> None:
    names = tool_names()
    (made,) = msgspec.json.decode(Functions(names, nested=False, strict=True).json((spec(LOOK, "y" * 100),)))
    assert len(made["name"]) <= 64
    assert names.of(made["name"]) == "y" * 100


def test_more_tools_than_can_be_offered_are_refused_before_they_are_sent() -> None:
    with pytest.raises(InvalidRequest, match="129 tools"):
        Functions(tool_names(), nested=True, strict=False).json(
            tuple(spec(LOOK, f"t{number}") for number in range(129))
        )


def test_tools_are_written_once_for_each_set() -> None:
    functions = Functions(tool_names(), nested=True, strict=False)
    first = functions.json((spec(LOOK),))
    assert functions.json((spec(LOOK),)) is first
    for number in range(64):
        functions.json((spec(LOOK, f"t{number}"),))
    again = functions.json((spec(LOOK),))
    assert again == first
    assert again is not first
