"""Arguments for a tool that nobody has named any for: some that fit its schema, and some that do not."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

import msgspec

from hibernaut.rap.manifest import RemoteTool
from hibernaut.tools.arguments import JSON

_BY_TYPE: Final[dict[str, JSON]] = {
    "string": "x",
    "integer": 1,
    "number": 1,
    "boolean": True,
    "array": [],
    "object": {},
    "null": None,
}
_NEVER_MEANT: Final = "hibernaut_check"


def fitting(tool: RemoteTool) -> dict[str, JSON] | None:
    """Return the fewest arguments that fit, None if they cannot be guessed."""
    schema: dict[str, Any] = msgspec.json.decode(tool.parameters)
    properties = schema.get("properties")
    required = schema.get("required")
    if not isinstance(properties, dict) or not isinstance(required, list):
        guess: dict[str, JSON] = {}
    else:
        guess = {name: _value(properties.get(name)) for name in required if isinstance(name, str)}
    return None if tool.problems(guess) else guess


def unfitting(tool: RemoteTool) -> dict[str, JSON] | None:
    """Return arguments that the schema refuses, None if none were found."""
    return next((wrong for wrong in _wrong(tool) if tool.problems(wrong)), None)


def _value(schema: object) -> JSON:
    if not isinstance(schema, Mapping):
        return "x"
    for key in ("const", "default"):
        if key in schema:
            value: JSON = schema[key]
            return value
    for key in ("enum", "examples"):
        if isinstance(schema.get(key), list) and schema[key]:
            first: JSON = schema[key][0]
            return first
    if schema.get("type") in ("integer", "number") and isinstance(schema.get("minimum"), int):
        least: int = schema["minimum"]
        return least
    kind = schema.get("type")
    return _BY_TYPE.get(kind if isinstance(kind, str) else "", "x")


def _wrong(tool: RemoteTool) -> Iterator[dict[str, JSON]]:
    schema: dict[str, Any] = msgspec.json.decode(tool.parameters)
    yield {}
    for name in schema.get("properties") or {}:
        yield {name: {_NEVER_MEANT: []}}
        yield {name: None}
    yield {_NEVER_MEANT: 1}
