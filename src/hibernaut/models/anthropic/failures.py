"""What Anthropic's errors mean: by the type that they name, and where they name none by the status."""

import re
from collections.abc import Callable, Mapping
from typing import Final

import msgspec

from hibernaut.errors import ModelError
from hibernaut.messages.text import shorten
from hibernaut.models.dialect import Refusal
from hibernaut.models.errors import (
    AuthenticationFailed,
    ContextOverflow,
    InvalidRequest,
    Overloaded,
    RateLimited,
)
from hibernaut.models.failures import LONGEST_WORDS, by_status, is_overflow, retry_after


class Said(msgspec.Struct):
    """What an error says of itself."""

    type: str | None = None
    message: str | None = None


class _Body(msgspec.Struct):
    error: Said | None = None


_bodies = msgspec.json.Decoder(_Body)

PASSING: Final[Mapping[str, Callable[[str, int], ModelError]]] = {
    "rate_limit_error": RateLimited,
    "overloaded_error": Overloaded,
    "api_error": Overloaded,
    "timeout_error": Overloaded,
}
"""Types of errors that may pass."""

LASTING: Final[Mapping[str, Callable[[str], ModelError]]] = {
    "authentication_error": AuthenticationFailed,
    "permission_error": AuthenticationFailed,
    "billing_error": InvalidRequest,
    "not_found_error": InvalidRequest,
    "request_too_large": InvalidRequest,
    "invalid_request_error": InvalidRequest,
}
"""Types of errors that do not."""

_NO_ROOM: Final = re.compile(r"exceeds? (the )?context limit", re.IGNORECASE)
"""How it is said that prompt and output together do not fit into the window."""


def failure_of(who: str, refusal: Refusal) -> ModelError:
    """Return what an answer means that is no stream. `who` gave it."""
    try:
        said = _bodies.decode(refusal.body).error or Said()
    except (msgspec.DecodeError, UnicodeDecodeError):
        said = Said()
    words = f"{who} answers {refusal.status}: {_words(said)}"
    return _named(said, words, retry_after(refusal.headers, refusal.came)) or by_status(who, refusal)


def failure_in_stream(said: Said) -> ModelError:
    """Return what an error means that comes in the middle of an answer."""
    words = f"the answer broke off: {_words(said)}"
    return _named(said, words, 0) or Overloaded(words)


def _words(said: Said) -> str:
    return shorten(f"{said.message or 'nothing more is said'} ({said.type})", LONGEST_WORDS)


def _named(said: Said, words: str, wait: int) -> ModelError | None:
    kind = said.type or ""
    if kind in PASSING:
        return PASSING[kind](words, wait)
    if kind == "invalid_request_error" and (is_overflow(words) or _NO_ROOM.search(words)):
        return ContextOverflow(words)
    return LASTING[kind](words) if kind in LASTING else None
