"""The arguments of a tool call, as a model wrote them: strict JSON, bounded, clean.

What `parse_arguments` returns can be stored, validated and sent anywhere: `canonical` of it is valid JSON, encodes to
UTF-8 and holds no NUL. What it refuses it refuses with a reason that the model can act on.
"""

import json
import math
import re
from collections.abc import Callable, Iterable
from itertools import accumulate
from typing import Final, TypeAlias

import msgspec

from hibernaut.errors import MalformedInput
from hibernaut.messages.text import ESCAPE_MARK, NUL_MARK, clean, join_surrogates, restore, shorten

JSON: TypeAlias = "dict[str, JSON] | list[JSON] | str | int | float | bool | None"
"""A value that JSON can write, as Python has it."""

SMALLEST_INTEGER: Final = -(2**63)
LARGEST_INTEGER: Final = 2**63 - 1
"""Integers are signed 64 bit: what every store, wire and language takes. A longer one belongs in a string."""


class ArgumentLimits(msgspec.Struct, frozen=True):
    """What the arguments of one call may be."""

    max_bytes: int = 1_048_576
    """Bytes of UTF-8 of the JSON text. More belongs in a file or a blob."""
    max_depth: int = 64
    """Objects and arrays inside one another."""


class ArgumentsRefused(MalformedInput):
    """The arguments of a call cannot be used. The text is written for the model that made the call."""

    code = "arguments_refused"


_LIMITS: Final = ArgumentLimits()

# Possessive throughout, and an unclosed string matches to the end: linear on any text.
_STRING = r'"[^"\\]*+(?:\\.[^"\\]*+)*+(?:"|\\?\Z)'
_STRINGS: Final = re.compile(_STRING + r"(\s*:)?", re.DOTALL)
_TOKENS: Final = re.compile(
    _STRING + r"(?P<key>\s*:)?|(?P<number>-?[0-9][0-9.eE+-]*+)|(?P<constant>-?Infinity|NaN)|[{}]", re.DOTALL
)
_BLANK_BEFORE_COLON: Final = re.compile(r"[\t\r\n]:")
_NO_BRACKETS: Final = re.compile(r"[^\[\]{}]+")
_CONTAINERS: Final = (dict, list)
_STEPS: Final = {"{": 1, "[": 1, "}": -1, "]": -1}
_ESCAPES: Final = re.compile(
    r"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|\\u(?P<lone>[dD][89a-fA-F][0-9a-fA-F]{2})|\\.",
    re.DOTALL,
)
_CUT_ESCAPE: Final = re.compile(r"\\?(u[0-9a-fA-F]{0,4})?\Z")
_BLANK: Final = " \t\r\n"
_MOST_DIGITS: Final = 20
_SHOWN: Final = 40

_decode: Callable[[str], JSON] = msgspec.json.Decoder().decode
_encode = msgspec.json.Encoder().encode
# Lenient where the tokens are looked at afterwards, so that what it does refuse is the syntax.
_diagnose = json.JSONDecoder(parse_int=lambda _: 0, parse_float=lambda _: 0.0, parse_constant=lambda _: None).decode


def parse_arguments(raw: str | bytes, limits: ArgumentLimits = _LIMITS) -> dict[str, JSON]:
    """Read the arguments of a call.

    Keys and strings are clean (see `hibernaut.messages.text.clean`); the order of keys is the model's. An empty text
    counts as `{}`: models send it to tools without parameters.

    Raises:
        ArgumentsRefused: it is not JSON, not an object, too large or too deep, or holds a number that is not finite,
            an integer beyond 64 bits, or one key twice in an object. The message says what, and where.
    """
    text = raw if isinstance(raw, str) else _utf8(raw, limits)
    _check_size(text, limits)
    # As many opening brackets as levels are allowed cannot be too deep, wherever they stand.
    if text.count("{") + text.count("[") > limits.max_depth:
        _check_depth(text, limits)
    try:
        value = _decode(text)
    except (msgspec.DecodeError, UnicodeEncodeError):
        return _repaired(text, limits)
    if not isinstance(value, dict):
        raise ArgumentsRefused(f"The arguments must be a JSON object, such as {{}}, but they are {_kind(value)}.")
    keys = _count_keys(value)
    if keys < 0 or not _has_keys(text, keys):
        raise _bad_token(text)
    if "\\u" in text or (not text.isascii() and (NUL_MARK in text or ESCAPE_MARK in text)):
        return _rewritten(value, clean)
    return value


def canonical(arguments: dict[str, JSON]) -> str:
    """Write arguments as compact JSON text, keys in their order: what to store and to compute digests of.

    Only for what `parse_arguments` returned: it does not look for surrogates, NaN or depth again. Read it back with any
    JSON decoder and not with `parse_arguments`, which would clean it a second time.
    """
    return _encode(arguments).decode()


def restore_arguments(arguments: dict[str, JSON], written: str = "") -> dict[str, JSON]:
    """Give keys and strings the NULs back that cleaning took: for handing arguments to the tool itself.

    Returns the same object when there are none. `written` is what `canonical` makes of the arguments, where that is at
    hand.
    """
    return _rewritten(arguments, restore) if is_marked(written or canonical(arguments)) else arguments


def is_marked(written: str) -> bool:
    """Tell whether cleaning may have left marks in arguments, by what `canonical` makes of them."""
    return not written.isascii() and (NUL_MARK in written or ESCAPE_MARK in written)


def _utf8(raw: bytes, limits: ArgumentLimits) -> str:
    if len(raw) > limits.max_bytes:
        raise _oversize(len(raw), limits)
    try:
        return raw.decode()
    except UnicodeDecodeError as error:
        raise ArgumentsRefused(
            f"The arguments are not UTF-8: byte 0x{raw[error.start]:02x} at offset {error.start} ({error.reason})."
        ) from None


def _check_size(text: str, limits: ArgumentLimits) -> None:
    size = len(text)
    if size * 4 > limits.max_bytes and not text.isascii():
        size = len(text.encode("utf-8", "surrogatepass"))
    if size > limits.max_bytes:
        raise _oversize(size, limits)


def _oversize(size: int, limits: ArgumentLimits) -> ArgumentsRefused:
    return ArgumentsRefused(
        f"The arguments have {size:,} bytes; at most {limits.max_bytes:,} are taken. "
        "Send less at once, or put it into a file and pass its path."
    )


def _check_depth(text: str, limits: ArgumentLimits) -> None:
    brackets = _NO_BRACKETS.sub("", _STRINGS.sub("", text))
    if max(accumulate(map(_STEPS.__getitem__, brackets)), default=0) > limits.max_depth:
        raise ArgumentsRefused(f"The arguments are nested deeper than {limits.max_depth} levels. Make them flatter.")


def _count_keys(value: dict[str, JSON] | list[JSON]) -> int:
    """Count the keys of all objects in `value`; below 0 when an integer is out of bounds."""
    count = 0
    children: Iterable[JSON] = value
    if isinstance(value, dict):
        count = len(value)
        children = value.values()
    for child in children:
        if isinstance(child, str):
            continue
        if isinstance(child, int):
            if not SMALLEST_INTEGER <= child <= LARGEST_INTEGER:
                return -1
        elif isinstance(child, _CONTAINERS):
            inner = _count_keys(child)
            if inner < 0:
                return -1
            count += inner
    return count


def _has_keys(text: str, count: int) -> bool:
    """Tell whether valid JSON has `count` keys written in it; more mean that an object has one of them twice."""
    # Each of the first two counts at least the colons after keys, so it may be too high but never too low.
    if text.count(":") == count:
        return True
    if text.count('":') == count and " :" not in text and not _BLANK_BEFORE_COLON.search(text):
        return True
    return sum(map(bool, _STRINGS.findall(text))) == count


def _rewritten(value: dict[str, JSON], change: Callable[[str], str]) -> dict[str, JSON]:
    return {change(key): _rewritten_value(child, change) for key, child in value.items()}


def _rewritten_value(value: JSON, change: Callable[[str], str]) -> JSON:
    if isinstance(value, str):
        return change(value)
    if isinstance(value, dict):
        return _rewritten(value, change)
    if isinstance(value, list):
        return [_rewritten_value(child, change) for child in value]
    return value


def _repaired(text: str, limits: ArgumentLimits) -> dict[str, JSON]:
    """Read what the fast decoder would not: an empty text, or one with surrogates. Refuse the rest with the reason."""
    if not text.strip(_BLANK):
        return {}
    repaired = _ESCAPES.sub(_without_lone, join_surrogates(text))
    if repaired != text:
        return parse_arguments(repaired, limits)
    try:
        _diagnose(text)
    except json.JSONDecodeError as error:
        raise ArgumentsRefused(f"The arguments are not valid JSON: {_syntax(text, error)}") from None
    raise _bad_token(text)


def _without_lone(found: re.Match[str]) -> str:
    return "\\ufffd" if found["lone"] else found[0]


def _syntax(text: str, error: json.JSONDecodeError) -> str:
    in_escape = error.msg.startswith("Invalid \\") and _CUT_ESCAPE.match(text, error.pos)
    if in_escape or error.msg.startswith("Unterminated string"):
        return f"the text ends inside a string, {_place(text, error.pos)}"
    reason = error.msg.removesuffix(" at")
    reason = reason[0].lower() + reason[1:]
    if error.pos >= len(text.rstrip(_BLANK)):
        return f"the text ends before the object is complete ({reason})"
    if reason == "invalid control character":
        reason += r" in a string (write a newline as \n, a tab as \t)"
    return f"{reason}, {_place(text, error.pos)}"


def _bad_token(text: str) -> ArgumentsRefused:
    """Say which number or key is not acceptable in a text whose syntax is right."""
    objects: list[set[str]] = []
    for token in _TOKENS.finditer(text):
        written = token[0]
        flaw = ""
        if token["number"]:
            flaw = _number_flaw(written)
        elif token["constant"]:
            flaw = f"{written} is not JSON"
        elif written == "{":
            objects.append(set())
        elif written == "}":
            objects.pop()
        elif token["key"]:
            key = clean(msgspec.json.decode(text[token.start() : token.start("key")], type=str))
            if key in objects[-1]:
                flaw = f"the key {json.dumps(shorten(key, _SHOWN), ensure_ascii=False)} is there twice in one object"
            objects[-1].add(key)
        if flaw:
            return ArgumentsRefused(f"The arguments are not acceptable JSON: {flaw}, {_place(text, token.start())}")
    return ArgumentsRefused("The arguments are not valid JSON.")


def _number_flaw(written: str) -> str:
    if not written.lstrip("-").isdigit():
        return "" if math.isfinite(float(written)) else f"the number {shorten(written, _SHOWN)} is too large"
    # Counting digits first keeps clear of the interpreter's own bound on reading long integers.
    if len(written) <= _MOST_DIGITS and SMALLEST_INTEGER <= int(written) <= LARGEST_INTEGER:
        return ""
    digits = len(written.lstrip("-"))
    return (
        f"the integer {shorten(written, _SHOWN)} ({digits:,} digits) is outside {SMALLEST_INTEGER} to "
        f"{LARGEST_INTEGER}; pass it as a string"
    )


def _place(text: str, position: int) -> str:
    line = text.count("\n", 0, position) + 1
    column = position - text.rfind("\n", 0, position)
    near = shorten(clean(text[max(0, position - _SHOWN) : position + _SHOWN]), 2 * _SHOWN)
    return f"at line {line} column {column}, near: {near}"


def _kind(value: JSON) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return "a string"
    return "an array" if isinstance(value, list) else "a number"
