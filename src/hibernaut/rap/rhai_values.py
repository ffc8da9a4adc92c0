"""Values of display scripts, which are those of JSON (None being `()`), and what operators do with them."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from hibernaut.rap.reading import LARGEST_INTEGER, SMALLEST_INTEGER

LONGEST_VALUE: Final = 2_000
"""Characters that are kept of a text that a script puts together."""

LONGEST_SEARCHED: Final = 100_000
"""Characters of a text that `in` looks through."""

MOST_MEMBERS: Final = 100
"""Members of a list that `in` looks through."""


class NotUnderstood(Exception):
    """It is not a script of the kind that is evaluated here, or what it does is an error."""


def apply(operator: str, left: Any, right: Any) -> Any:
    """Return what an operator makes of two values; of `&&`, `||` and `??` where the left one does not decide."""
    match operator:
        case "&&" | "||":
            return truth(right)
        case "??":
            return right
        case "in":
            return _is_in(left, right)
        case "+" if isinstance(left, str) or isinstance(right, str):
            return joined(written(left), written(right))
        case "+":
            return number(checked(left) + checked(right))
        case "-":
            return number(checked(left) - checked(right))
        case _:
            return _compared(operator, left, right)


def _compared(operator: str, left: Any, right: Any) -> bool:
    kind = _kind(left)
    if kind != _kind(right):
        return operator == "!="
    if kind == "container" or (kind == "unit" and operator not in ("==", "!=")):
        raise NotUnderstood(f"{operator} does not compare such values")
    match operator:
        case "==":
            return bool(left == right)
        case "!=":
            return bool(left != right)
        case "<":
            return bool(left < right)
        case "<=":
            return bool(left <= right)
        case ">":
            return bool(left > right)
        case _:
            return bool(left >= right)


def _kind(value: Any) -> str:
    if value is None:
        return "unit"
    if isinstance(value, bool):
        return "truth"
    if isinstance(value, int | float):
        return "number"
    return "text" if isinstance(value, str) else "container"


def _is_in(value: Any, inside: Any) -> bool:
    if isinstance(value, str) and isinstance(inside, str) and len(inside) <= LONGEST_SEARCHED:
        return value in inside
    if isinstance(inside, Mapping):
        return isinstance(value, str) and value in inside
    if isinstance(inside, Sequence) and not isinstance(inside, str) and len(inside) <= MOST_MEMBERS:
        return any(_compared("==", value, member) for member in inside)
    raise NotUnderstood("`in` does not look through this")


def member(value: Any, key: Any, *, named: bool) -> Any:
    """Return a member of a map, () if it has none of that name, or of a list by its number."""
    if isinstance(value, Mapping) and isinstance(key, str):
        return value.get(key)
    if isinstance(value, Sequence) and not named and isinstance(key, int) and not isinstance(key, bool):
        if -len(value) <= key < len(value):
            return value[key]
        raise NotUnderstood("there is no such member")
    raise NotUnderstood(f"a {_kind(value)} has no such members")


def written(value: Any) -> str:
    """Return a value as it stands in a text."""
    if isinstance(value, str):
        return value
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(checked(value))


def joined(left: str, right: str) -> str:
    """Put two texts together, no longer than is kept."""
    return (left[:LONGEST_VALUE] + right[:LONGEST_VALUE])[:LONGEST_VALUE]


def truth(value: Any) -> bool:
    """Return what must be true or false."""
    if isinstance(value, bool):
        return value
    raise NotUnderstood(f"a {_kind(value)} is neither true nor false")


def checked(value: Any) -> int | float:
    """Return what must be a number."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return number(value)
    raise NotUnderstood(f"a {_kind(value)} is no number")


def number(value: float) -> int | float:
    """Return a number that is not beyond 64 bits."""
    if isinstance(value, int) and not SMALLEST_INTEGER <= value <= LARGEST_INTEGER:
        raise NotUnderstood("an integer is beyond 64 bits")
    return value
