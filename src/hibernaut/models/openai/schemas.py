"""Tools as functions, with their schemas in the dialect that OpenAI's APIs take.

A schema is only ever loosened: arguments are checked against the tool's own before anything is run.
"""

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from hibernaut.messages.tools import ToolSpec
from hibernaut.models.errors import InvalidRequest
from hibernaut.models.openai.bodies import json_of
from hibernaut.models.openai.rules import MOST_TOOLS
from hibernaut.models.tool_names import ToolNames

MOST_SETS: Final = 64
"""Sets of tools that are kept as they were written."""

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


class Functions:
    """Tools as one of the APIs takes them, written once for each set of tools.

    Args:
        names: how they are called on the wire.
        nested: whether it is the Chat API, where a function is a member of its own.
        strict: whether arguments can be guaranteed.
    """

    def __init__(self, names: ToolNames, *, nested: bool, strict: bool) -> None:
        self._names = names
        self._nested = nested
        self._strict = strict
        self._written: dict[tuple[ToolSpec, ...], bytes] = {}

    def json(self, tools: tuple[ToolSpec, ...]) -> bytes:
        """Return tools as a list of functions.

        Raises:
            InvalidRequest: there are too many.
        """
        if len(tools) > MOST_TOOLS:
            raise InvalidRequest(f"there are {len(tools)} tools, and at most {MOST_TOOLS} can be offered")
        names = tuple([self._names.on_wire(tool.name) for tool in tools])
        written = self._written.get(tools)
        if written is None:
            if len(self._written) >= MOST_SETS:
                del self._written[next(iter(self._written))]
            written = self._written[tools] = json_of([self._one(*pair) for pair in zip(names, tools, strict=True)])
        return written

    def _one(self, name: str, tool: ToolSpec) -> dict[str, Any]:
        schema = msgspec.json.decode(tool.parameters)
        function: dict[str, Any] = {"name": name, "parameters": fitted(schema)}
        if tool.description:
            function["description"] = tool.description
        guaranteed = self._strict and _qualifies(schema)
        if not self._nested:
            return {"type": "function", **function, "strict": guaranteed}  # without it all would count as strict
        if guaranteed:
            function["strict"] = True
        return {"type": "function", "function": function}


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
