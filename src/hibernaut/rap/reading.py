"""Strict JSON off the wire: bounded before it is parsed, and nothing in it that could be read in two ways.

Texts stay as they were sent, but for surrogates: a pair becomes the character it means, a lone one U+FFFD. Whoever
keeps a text cleans it (`hibernaut.messages.text.clean`), once; a tool server gets the NULs that a model wrote.
"""

import json
import math
import re
from itertools import accumulate
from typing import Any, Final

from hibernaut.errors import MalformedInput, TooLarge
from hibernaut.messages.text import clean, join_surrogates, shorten

SMALLEST_INTEGER: Final = -(2**63)
LARGEST_INTEGER: Final = 2**63 - 1
"""Integers are signed 64 bit, as in the arguments of a call."""

# Possessive throughout, and an unclosed string matches to the end: linear on any text.
_STRINGS: Final = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+(?:"|\\?\Z)', re.DOTALL)
_NO_BRACKETS: Final = re.compile(r"[^\[\]{}]+")
_STEPS: Final = {"{": 1, "[": 1, "}": -1, "]": -1}
_MOST_DIGITS: Final = 20
_SHOWN: Final = 40


def read_object(body: bytes, *, what: str, limit: int, setting: str, depth: int) -> dict[str, Any]:
    """Read a JSON object. `what` names it in refusals, `setting` the bound on its bytes.

    Raises:
        TooLarge: it has more bytes than `limit`.
        MalformedInput: it is not JSON in UTF-8, not an object, too deep, or holds a key twice in one object, a number
            that is not finite, or an integer beyond 64 bits.
    """
    if len(body) > limit:
        raise TooLarge(what, len(body), limit, setting)
    try:
        text = body.decode()
    except UnicodeDecodeError as error:
        raise MalformedInput(f"{what} is not UTF-8: byte 0x{body[error.start]:02x} at offset {error.start}") from None
    # As many opening brackets as levels are allowed cannot be too deep, wherever they stand.
    if text.count("{") + text.count("[") > depth and _depth(text) > depth:
        raise MalformedInput(f"{what} is nested deeper than {depth} levels")
    try:
        value = _decoder.decode(text)
    except json.JSONDecodeError as error:
        raise MalformedInput(f"{what} is not JSON: {error.msg}, at line {error.lineno} column {error.colno}") from None
    except MalformedInput as error:
        raise MalformedInput(f"{what} is not acceptable: {error}") from None
    if not isinstance(value, dict):
        raise MalformedInput(f"{what} must be a JSON object")
    # A text that was decoded from UTF-8 holds surrogates only as escapes.
    return {key: _joined(child) for key, child in value.items()} if "\\u" in text else value


def shown(value: object) -> str:
    """Write a value that somebody sent for the text of a refusal."""
    return shorten(clean(repr(value)), _SHOWN)


def _depth(text: str) -> int:
    brackets = _NO_BRACKETS.sub("", _STRINGS.sub("", text))
    return max(accumulate(map(_STEPS.__getitem__, brackets)), default=0)


def _joined(value: Any) -> Any:
    if isinstance(value, str):
        return join_surrogates(value)
    if isinstance(value, dict):
        return {key: _joined(child) for key, child in value.items()}
    return list(map(_joined, value)) if isinstance(value, list) else value


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value: dict[str, Any] = {}
    for written, child in pairs:
        key = join_surrogates(written)
        if key in value:
            raise MalformedInput(f"the key {shown(key)} is there twice in one object")
        value[key] = child
    return value


def _integer(written: str) -> int:
    # Counting digits first keeps clear of the interpreter's own bound on reading long integers.
    if len(written) <= _MOST_DIGITS and SMALLEST_INTEGER <= (value := int(written)) <= LARGEST_INTEGER:
        return value
    raise MalformedInput(f"the integer {shorten(written, _SHOWN)} is beyond 64 bits")


def _float(written: str) -> float:
    value = float(written)
    if not math.isfinite(value):
        raise MalformedInput(f"the number {shorten(written, _SHOWN)} is too large")
    return value


def _constant(written: str) -> float:
    raise MalformedInput(f"{written} is not JSON")


_decoder: Final = json.JSONDecoder(
    object_pairs_hook=_object, parse_int=_integer, parse_float=_float, parse_constant=_constant
)
