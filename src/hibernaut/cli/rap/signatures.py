"""A tool's schema as one line that people read."""

from collections.abc import Mapping
from typing import Any

import msgspec

from hibernaut.messages.text import shorten
from hibernaut.rap.manifest import RemoteTool

LONGEST_TYPE = 60
"""Characters of the type of one argument."""

_DEEPEST = 4
_MOST_VALUES = 6


def signature(tool: RemoteTool) -> str:
    """Return a tool as `name(a: integer, b?: string = "x")`; what may be left out has a question mark."""
    schema: dict[str, Any] = msgspec.json.decode(tool.parameters)
    properties = schema.get("properties")
    required = schema.get("required")
    needed = required if isinstance(required, list) else []
    listed = properties if isinstance(properties, dict) else {}
    return f"{tool.name}({', '.join(_argument(name, each, name in needed) for name, each in listed.items())})"


def _argument(name: str, schema: object, needed: bool) -> str:  # noqa: FBT001  # one of two ways to write it
    written = f"{name}{'' if needed else '?'}: {shorten(_type(schema), LONGEST_TYPE)}"
    if isinstance(schema, Mapping) and schema.get("default") is not None:
        written += f" = {shorten(_value(schema['default']), LONGEST_TYPE)}"
    return written


def _type(schema: object, depth: int = 0) -> str:
    if not isinstance(schema, Mapping) or depth > _DEEPEST:
        return "any"
    if "const" in schema:
        return _value(schema["const"])
    if isinstance(values := schema.get("enum"), list):
        more = "|…" if len(values) > _MOST_VALUES else ""
        return "|".join(map(_value, values[:_MOST_VALUES])) + more
    for key in ("anyOf", "oneOf"):
        if isinstance(parts := schema.get(key), list):
            return "|".join(_type(part, depth + 1) for part in parts[:_MOST_VALUES])
    if isinstance(reference := schema.get("$ref"), str):
        return reference.rpartition("/")[2]
    kind = schema.get("type", "any")
    if kind == "array":
        inner = _type(schema.get("items"), depth + 1)
        return f"({inner})[]" if "|" in inner else f"{inner}[]"
    return "|".join(map(str, kind)) if isinstance(kind, list) else str(kind)


def _value(value: object) -> str:
    return msgspec.json.encode(value).decode()
