"""Tools as functions, with their schemas in the dialect that OpenAI's APIs take.

A schema is only ever loosened: arguments are checked against the tool's own before anything is run.
"""

import functools
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from hibernaut.messages.tools import ToolSpec
from hibernaut.models.errors import InvalidRequest
from hibernaut.models.openai.rules import MOST_TOOLS, is_fit

_TOP: Final = frozenset({"allOf", "anyOf", "oneOf", "enum", "const", "not", "if", "then", "else", "$ref"})
"""What may not stand at the top of the schema of a function's parameters."""

_STRICT: Final = frozenset(
    {"type", "title", "description", "properties", "required", "additionalProperties", "items", "enum"}
)
"""What a schema may consist of whose arguments are to be guaranteed. The API takes more; this much it surely takes."""

_PLAIN_TYPES: Final = frozenset({"string", "number", "integer", "boolean", "null", "array", "object"})

_DEEPEST_STRICT: Final = 5
_MOST_STRICT: Final = 100
"""Properties of a schema whose arguments are to be guaranteed."""

_ONE_SCHEMA: Final = ("items", "additionalProperties", "not", "contains", "propertyNames", "if", "then", "else")
_MANY_SCHEMAS: Final = ("allOf", "anyOf", "oneOf", "prefixItems")
_NAMED_SCHEMAS: Final = ("properties", "$defs", "definitions", "patternProperties")


@functools.lru_cache(maxsize=64)
def response_tools(tools: tuple[ToolSpec, ...]) -> bytes:
    """Return tools as the Responses API takes them. There `strict` has to be said, since it is the default."""
    described = [
        {"type": "function", **_function(tool), "strict": _qualifies(_schema(tool))} for tool in _checked(tools)
    ]
    return msgspec.json.encode(described)


@functools.lru_cache(maxsize=64)
def chat_tools(tools: tuple[ToolSpec, ...], strict: bool) -> bytes:  # noqa: FBT001  # a key of the cache
    """Return tools as the Chat API takes them. `strict` is said only where it holds, and where the server has it."""
    described = []
    for tool in _checked(tools):
        function = _function(tool)
        if strict and _qualifies(_schema(tool)):
            function["strict"] = True
        described.append({"type": "function", "function": function})
    return msgspec.json.encode(described)


def _checked(tools: tuple[ToolSpec, ...]) -> tuple[ToolSpec, ...]:
    for tool in tools:
        if not is_fit(tool.name):
            raise InvalidRequest(f"the name of the tool {tool.name!r} is not 1 to 64 of the characters A-Z a-z 0-9 _ -")
    if len(tools) > MOST_TOOLS:
        raise InvalidRequest(f"there are {len(tools)} tools, and at most {MOST_TOOLS} can be offered")
    return tools


def _function(tool: ToolSpec) -> dict[str, Any]:
    described = {"name": tool.name, "description": tool.description, "parameters": fitted(_schema(tool))}
    return described if tool.description else {"name": tool.name, "parameters": described["parameters"]}


def _schema(tool: ToolSpec) -> Any:
    return msgspec.json.decode(tool.parameters)


def fitted(schema: Any) -> dict[str, Any]:
    """Return a schema for a function's parameters that is taken, and takes all that the given one takes.

    The top is an object with properties and nothing to choose from, and every array says what it holds.
    """
    result = _with_items(schema) if isinstance(schema, Mapping) else {}
    properties: dict[str, Any] = {}
    for branch in [result, *_branches(result)]:
        if isinstance(branch.get("properties"), Mapping):
            for name, value in branch["properties"].items():
                properties.setdefault(name, value)
    widened = any(name in result for name in _TOP)
    top = {name: value for name, value in result.items() if name not in _TOP}
    if widened:
        top.pop("additionalProperties", None)
    return {**top, "type": "object", "properties": properties}


def _branches(schema: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    found = [branch for name in ("allOf", "anyOf", "oneOf") for branch in schema.get(name) or ()]
    reference = schema.get("$ref")
    if isinstance(reference, str) and reference.startswith(("#/$defs/", "#/definitions/")):
        _, group, name = reference.split("/", 2)
        found.append((schema.get(group) or {}).get(name))
    return [branch for branch in found if isinstance(branch, Mapping)]


def _with_items(schema: Any) -> Any:
    if not isinstance(schema, Mapping):
        return schema
    result = dict(schema)
    for name in _ONE_SCHEMA:
        if name in result:
            result[name] = _with_items(result[name])
    for name in _MANY_SCHEMAS:
        if isinstance(result.get(name), list):
            result[name] = [_with_items(each) for each in result[name]]
    for name in _NAMED_SCHEMAS:
        if isinstance(result.get(name), Mapping):
            result[name] = {key: _with_items(each) for key, each in result[name].items()}
    kind = result.get("type")
    if (kind == "array" or (isinstance(kind, list) and "array" in kind)) and not isinstance(
        result.get("items"), Mapping
    ):
        result["items"] = {}
    return result


def _qualifies(schema: Any) -> bool:
    """Tell whether the API can guarantee arguments for a schema as it stands: all required, and nothing else taken."""
    return (
        isinstance(schema, Mapping) and schema.get("type") == "object" and 0 <= _strict_size(schema, 1) <= _MOST_STRICT
    )


def _strict_size(schema: Any, depth: int) -> int:
    """Return how many properties there are; -1 if the schema does not qualify."""
    kind = schema.get("type") if isinstance(schema, Mapping) else None
    if not isinstance(kind, str) or kind not in _PLAIN_TYPES or not schema.keys() <= _STRICT or depth > _DEEPEST_STRICT:
        return -1
    if kind == "array":
        return _strict_size(schema.get("items"), depth + 1)
    if kind != "object":
        return 0
    properties = schema.get("properties")
    if not isinstance(properties, Mapping) or schema.get("additionalProperties") is not False:
        return -1
    if set(schema.get("required") or ()) != set(properties):
        return -1
    sizes = [_strict_size(each, depth + 1) for each in properties.values()]
    return -1 if -1 in sizes else len(sizes) + sum(sizes)
