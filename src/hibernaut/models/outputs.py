"""The form of an answer, as providers guarantee it: a part of JSON Schema that all of them take.

What of a schema is no part of that (bounds of numbers, patterns, formats) is left out: the answer is checked against
the whole of it later. One that is open, or leads into itself, can be guaranteed by nobody.
"""

import functools
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from hibernaut.models.schemas import inlined

MOST_NODES: Final = 100
"""Schemas inside a schema that can be guaranteed: providers take more, and say differently how many."""

DEEPEST: Final = 5
"""Objects and arrays inside one another."""

_SCALARS: Final = frozenset({"string", "number", "integer", "boolean", "null"})
_TELLING: Final = ("title", "description")


class Guaranteed(msgspec.Struct, frozen=True):
    """A schema that a provider can guarantee."""

    schema: dict[str, Any]
    complete: bool
    """Whether all members of its objects are required."""


@functools.lru_cache(maxsize=64)
def guaranteed(schema: str) -> Guaranteed | None:
    """Return a schema of an object (as JSON text) as it can be guaranteed; None if it cannot be."""
    reader = _Reader()
    try:
        made = reader.read(inlined(msgspec.json.decode(schema)), 1)
    except _Open:
        return None
    return Guaranteed(made, reader.complete) if made.get("type") == "object" else None


class _Open(Exception):
    """The schema takes what cannot be foreseen."""


class _Reader:
    def __init__(self) -> None:
        self.complete = True
        self._nodes = 0

    def read(self, schema: Any, depth: int) -> dict[str, Any]:
        self._nodes += 1
        if not isinstance(schema, Mapping) or self._nodes > MOST_NODES or depth > DEEPEST:
            raise _Open
        told = {name: schema[name] for name in _TELLING if isinstance(schema.get(name), str)}
        options = schema.get("anyOf", schema.get("oneOf"))
        kind = schema.get("type")
        if isinstance(kind, list):
            options = [{**schema, "type": each} for each in kind]
        if options:
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
        self.complete = self.complete and len(required) == len(members)
        return {"type": "object", "properties": members, "required": required, "additionalProperties": False}
