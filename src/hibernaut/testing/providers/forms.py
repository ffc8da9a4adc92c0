"""What providers refuse of the form of an answer."""

from collections.abc import Mapping
from typing import Any, Final

_TAKEN: Final = frozenset(
    {"$defs", "$ref", "additionalProperties", "anyOf", "const", "description", "enum", "items", "properties"}
    | {"required", "title", "type"}
)


def form_problem(schema: Any, *, complete: bool = False, where: str = "schema") -> str:
    """Say why answers cannot be held to a schema, "" if they can. `complete`: all members have to be required."""
    if not isinstance(schema, Mapping):
        return f"{where}: a schema has to say what it takes"
    if unknown := schema.keys() - _TAKEN:
        return f"{where}: {sorted(unknown)} are not supported"
    if schema.get("type") == "object":
        members = schema.get("properties")
        if schema.get("additionalProperties") is not False or not isinstance(members, Mapping):
            return f"{where}: of an object `additionalProperties` has to be false"
        if complete and set(schema.get("required", ())) != set(members):
            return f"{where}: `required` has to name every property"
        parts = dict(members)
    elif schema.get("type") == "array":
        parts = {"items": schema.get("items")}
    elif "anyOf" in schema:
        parts = {f"anyOf/{number}": part for number, part in enumerate(schema["anyOf"])}
    elif not schema.keys() & {"type", "enum", "const", "$ref"}:
        return f"{where}: a schema has to say what it takes"
    else:
        parts = {}
    problems = (form_problem(part, complete=complete, where=f"{where}/{name}") for name, part in parts.items())
    return next(filter(None, problems), "")


def optional_members(schema: Any) -> int:
    """Count the members of a schema's objects that may be missing."""
    if isinstance(schema, list):
        return sum(map(optional_members, schema))
    if not isinstance(schema, Mapping):
        return 0
    members = schema.get("properties")
    own = len(set(members) - set(schema.get("required", ()))) if isinstance(members, Mapping) else 0
    return (
        own
        + sum(map(optional_members, (members or {}).values()))
        + sum(optional_members(value) for name, value in schema.items() if name != "properties")
    )
