"""Arguments that nobody named: as few as fit, or such as do not."""

from typing import Any

import msgspec
import pytest

from hibernaut.rap.check.arguments import fitting, unfitting
from hibernaut.rap.manifest import RemoteTool


def tool(schema: dict[str, Any]) -> RemoteTool:
    return RemoteTool("look", "", msgspec.json.encode({"type": "object", **schema}).decode())


@pytest.mark.parametrize(
    "schema, expected",
    [
        ({}, {}),
        ({"properties": {"a": {"type": "string"}}}, {}),
        ({"properties": {"a": {"type": "string"}}, "required": ["a"]}, {"a": "x"}),
        ({"properties": {"a": {"enum": ["north", "south"]}}, "required": ["a"]}, {"a": "north"}),
        ({"properties": {"a": {"type": "integer", "minimum": 7}}, "required": ["a"]}, {"a": 7}),
        ({"properties": {"a": {"const": 3}, "b": {"default": 4}}, "required": ["a", "b"]}, {"a": 3, "b": 4}),
        ({"properties": {"a": True}, "required": ["a"]}, {"a": "x"}),
        ({"required": ["a"]}, None),
        ({"properties": {"a": {"type": "string", "pattern": "^[0-9]{9}$"}}, "required": ["a"]}, None),
    ],
)
def test_as_few_as_fit(schema: dict[str, Any], expected: dict[str, Any] | None) -> None:
    assert fitting(tool(schema)) == expected


@pytest.mark.parametrize(
    "schema, expected",
    [
        ({"properties": {"a": {"type": "string"}}, "required": ["a"]}, {}),
        ({"properties": {"a": {"type": "string"}}}, {"a": {"hibernaut_check": []}}),
        ({"properties": {"a": {"type": "object"}}}, {"a": None}),
        ({"additionalProperties": False}, {"hibernaut_check": 1}),
        ({}, None),
    ],
)
def test_some_that_do_not(schema: dict[str, Any], expected: dict[str, Any] | None) -> None:
    assert unfitting(tool(schema)) == expected
