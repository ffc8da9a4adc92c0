"""What people see of a call while it runs: what its tool's display script yields, or the call itself."""

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from hibernaut.messages.text import clean, shorten
from hibernaut.rap.rhai import evaluate
from hibernaut.rap.rhai_values import NotUnderstood

LONGEST_DISPLAY: Final = 500
"""Characters of what is shown."""


def display_of(script: str, name: str, arguments: Mapping[str, Any]) -> str:
    """Return one line of clean text for a call. Never fails, and never takes long.

    Args:
        script: an expression over `args` in the part of Rhai that `hibernaut.rap.rhai` knows; "" for none. Where it is
            anything else, or yields no text, the call is shown as `name(args)`.
        name: the tool.
        arguments: what it is called with.
    """
    if script.strip():
        try:
            shown = evaluate(script, arguments)
        except (NotUnderstood, ArithmeticError, RecursionError, ValueError):
            shown = None
        if isinstance(shown, str) and (line := _line(shown)):
            return line
    return _line(f"{name[:LONGEST_DISPLAY]}({_arguments(arguments)})")


def _arguments(arguments: Mapping[str, Any]) -> str:
    if not arguments:
        return ""
    try:
        return msgspec.json.encode(arguments).decode()[: 2 * LONGEST_DISPLAY]
    except (TypeError, ValueError, RecursionError):
        return "…"


def _line(text: str) -> str:
    return shorten(clean(text), LONGEST_DISPLAY)
