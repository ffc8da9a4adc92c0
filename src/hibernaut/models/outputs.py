"""The form of an answer, as providers guarantee it: a part of JSON Schema that all of them take.

What of a schema is no part of that (bounds of numbers, patterns, formats) is told in its descriptions instead: the
answer is checked against the whole of it later. One that is open, or leads into itself, can be guaranteed by nobody.
"""

import functools
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from hibernaut.codec import to_json
from hibernaut.models.schemas import inlined

MOST_NODES: Final = 100
"""Schemas inside a schema that can be guaranteed: providers take more, and say differently how many."""

DEEPEST: Final = 5
"""Objects and arrays inside one another."""

TOLD: Final = (
    *("format", "contentEncoding", "pattern", "minLength", "maxLength"),
    *("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"),
    *("minItems", "maxItems", "uniqueItems", "default"),
)
"""Keywords that are told in words."""

_SCALARS: Final = frozenset({"string", "number", "integer", "boolean", "null"})


class Guaranteed(msgspec.Struct, frozen=True):
    """A schema that a provider can guarantee."""

    schema: dict[str, Any]
    optional: int
    """How many members of its objects may be missing."""
    choices: int
    """How many of its schemas are one of several."""

    @property
    def complete(self) -> bool:
        """Whether all members of its objects are required."""
        return not self.optional


@functools.lru_cache(maxsize=64)
def guaranteed(schema: str) -> Guaranteed | None:
    """Return a schema of an object (as JSON text) as it can be guaranteed; None if it cannot be."""
    reader = _Reader()
    try:
        made = reader.read(inlined(msgspec.json.decode(schema)), 1)
    except _Open:
        return None
    return Guaranteed(made, reader.optional, reader.choices) if made.get("type") == "object" else None


class _Open(Exception):
    """The schema takes what cannot be foreseen."""


class _Reader:
    def __init__(self) -> None:
        self.optional = 0
        self.choices = 0
        self._nodes = 0

    def read(self, schema: Any, depth: int) -> dict[str, Any]:
        self._nodes += 1
        if not isinstance(schema, Mapping) or self._nodes > MOST_NODES or depth > DEEPEST:
            raise _Open
        told = _told(schema)
        options = schema.get("anyOf", schema.get("oneOf"))
        kind = schema.get("type")
        if isinstance(kind, list):
            options = [{**schema, "type": each} for each in kind]
        if options:
            self.choices += 1
            return {**told, "anyOf": [self.read(option, depth) for option in options]}
        values = [schema["const"]] if "const" in schema else schema.get("enum")
        if values:
            return {**told, **({"type": kind} if kind in _SCALARS else {}), "enum": list(values)}
        if kind in _SCALARS:
            return {**told, "type": kind}
        if kind == "array" and "prefixItems" not in schema:
            return {**told, "type": "array", "items": self.read(schema.get("items"), depth + 1)}
        if kind == "object" and isinstance(schema.get("properties"), Mapping) and not schema.get("patternProperties"):
            return {**told, **self._object(schema, depth)}
        raise _Open

    def _object(self, schema: Mapping[str, Any], depth: int) -> dict[str, Any]:
        if schema.get("additionalProperties") is not False:
            raise _Open
        members = {name: self.read(part, depth + 1) for name, part in schema["properties"].items()}
        required = [name for name in members if name in schema.get("required", ())]
        self.optional += len(members) - len(required)
        return {"type": "object", "properties": members, "required": required, "additionalProperties": False}


def _told(schema: Mapping[str, Any]) -> dict[str, str]:
    """Return how a schema is described, with what is not guaranteed of it."""
    rules = ", ".join([f"{name}: {to_json(schema[name])}" for name in TOLD if name in schema])
    described = schema.get("description")
    words = [described if isinstance(described, str) else "", f"({rules})" if rules else ""]
    title = schema.get("title")
    told = {"title": title} if isinstance(title, str) else {}
    text = " ".join(filter(None, words))
    return {**told, "description": text} if text else told
