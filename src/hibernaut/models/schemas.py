"""JSON Schemas of tools, made plainer for providers that take only a part of the language."""

from collections.abc import Mapping
from typing import Any, Final

MOST_NODES: Final = 10_000
"""Schemas inside a schema once all references in it are followed; beyond, anything is allowed."""

_NAMED: Final = frozenset({"properties", "patternProperties", "dependentSchemas"})
_LISTED: Final = frozenset({"allOf", "anyOf", "oneOf", "prefixItems"})
_SINGLE: Final = frozenset(
    {"items", "additionalProperties", "contains", "not", "if", "then", "else", "propertyNames", "unevaluatedProperties"}
)
_DROPPED: Final = frozenset({"$defs", "definitions", "$schema", "$id", "$anchor", "$comment"})


def inlined(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return a schema in which every reference to a part of it is replaced by that part.

    One that leads into itself, or nowhere, becomes a schema of anything, or of an object where it was one.
    """
    plain = _Inliner(schema).walk(schema, ())
    return plain if isinstance(plain, dict) else {}


class _Inliner:
    def __init__(self, root: Mapping[str, Any]) -> None:
        self._root = root
        self._nodes = 0

    def walk(self, schema: Any, inside: tuple[str, ...]) -> Any:
        self._nodes += 1
        if not isinstance(schema, Mapping) or self._nodes > MOST_NODES:
            return schema if isinstance(schema, bool) else {}
        kept = {name: value for name, value in schema.items() if name not in _DROPPED}
        reference = kept.pop("$ref", None)
        if isinstance(reference, str):
            target = self._find(reference)
            if target is None or reference in inside:
                kept = {**({"type": "object"} if _is_object(target) else {}), **kept}
            else:
                followed = self.walk(target, (*inside, reference))
                return {**(followed if isinstance(followed, dict) else {}), **self._parts(kept, inside)}
        return self._parts(kept, inside)

    def _parts(self, schema: Mapping[str, Any], inside: tuple[str, ...]) -> dict[str, Any]:
        made: dict[str, Any] = {}
        for name, value in schema.items():
            if name in _NAMED and isinstance(value, Mapping):
                made[name] = {key: self.walk(part, inside) for key, part in value.items()}
            elif name in _LISTED and isinstance(value, list):
                made[name] = [self.walk(part, inside) for part in value]
            elif name in _SINGLE:
                made[name] = self.walk(value, inside)
            else:
                made[name] = value
        return made

    def _find(self, reference: str) -> Any:
        if not reference.startswith("#"):
            return None
        found: Any = self._root
        for step in reference[1:].split("/")[1:]:
            key = step.replace("~1", "/").replace("~0", "~")
            if isinstance(found, Mapping) and key in found:
                found = found[key]
            elif isinstance(found, list) and key.isdecimal() and int(key) < len(found):
                found = found[int(key)]
            else:
                return None
        return found


def _is_object(schema: Any) -> bool:
    return isinstance(schema, Mapping) and schema.get("type") == "object"
