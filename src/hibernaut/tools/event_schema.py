"""The schema of a subscription's events, held against what one says.

With a schema an event is JSON: what it says is read strictly and then held against the schema. A schema of texts (its
type is "string", or it lists texts) is about what it says itself.
"""

import json
import math
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final

import msgspec

from hibernaut.errors import ToolDefinitionError
from hibernaut.messages.text import shorten
from hibernaut.tools.schema import schema_of
from hibernaut.tools.validate import Validator, compile_schema

LONGEST_PROBLEMS: Final = 1_000
"""Characters of what is told about one event."""

_CACHED: Final = 256
_DEFINITION: Final = "#/$defs/"
_INTEGERS: Final = range(-(2**63), 2**63)
_MOST_DIGITS: Final = 20


def write_schema(given: object, where: str) -> str:
    """Return the schema of events as JSON text: of a JSON Schema as Python has it, or of a type.

    Raises:
        ToolDefinitionError: it is neither.
    """
    schema = dict(given) if isinstance(given, Mapping) else schema_of(given, f"event_schema of {where}")
    try:
        compile_schema(schema)
    except ToolDefinitionError as error:
        raise ToolDefinitionError(f"event_schema of {where}: {error}") from None
    return msgspec.json.encode(schema).decode()


def misfit(schema: bytes | str, text: str) -> str:
    """Say why what an event says does not fit a schema, in one line; "" if it does."""
    try:
        validator, is_text = _compiled(schema)
    except ToolDefinitionError as error:  # an older version took it
        return f"its schema cannot be used: {error}"
    try:
        value = text if is_text else _decode(text)
    except (ValueError, RecursionError) as error:
        return f"it is not JSON: {shorten(str(error), LONGEST_PROBLEMS)}"
    try:
        problems = validator.problems(value)
    except (ValueError, RecursionError) as error:  # deeper than the library goes
        problems = [f"it cannot be checked: {error}"]
    return shorten("; ".join(problems), LONGEST_PROBLEMS)


@lru_cache(maxsize=_CACHED)
def _compiled(schema: bytes | str) -> tuple[Validator, bool]:
    decoded = msgspec.json.decode(schema, type=dict[str, Any])
    return compile_schema(decoded), _is_of_texts(decoded)


def _is_of_texts(schema: dict[str, Any]) -> bool:
    reference = schema.get("$ref")
    if isinstance(reference, str) and reference.startswith(_DEFINITION):
        schema = schema.get("$defs", {}).get(reference.removeprefix(_DEFINITION), {})
    listed: list[object] = [schema["const"]] if "const" in schema else schema.get("enum") or []
    return schema.get("type") == "string" or (bool(listed) and all(isinstance(one, str) for one in listed))


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) < len(pairs):
        raise ValueError("a key is there twice in one object")
    return value


def _integer(written: str) -> int:
    if len(written) <= _MOST_DIGITS and (value := int(written)) in _INTEGERS:
        return value
    raise ValueError("an integer is beyond 64 bits")


def _float(written: str) -> float:
    if math.isfinite(value := float(written)):
        return value
    raise ValueError("a number is too large")


def _constant(written: str) -> float:
    raise ValueError(f"{written} is none")


_decode = json.JSONDecoder(
    object_pairs_hook=_object, parse_int=_integer, parse_float=_float, parse_constant=_constant
).decode
