"""What a provider's refusal means, where providers agree: by its status, its headers and what it says of itself."""

import re
from collections.abc import Mapping
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from typing import Any, Final

import msgspec

from hibernaut.errors import ModelError
from hibernaut.messages.text import shorten
from hibernaut.models.dialect import Refusal
from hibernaut.models.errors import (
    AuthenticationFailed,
    ConnectionLost,
    ContextOverflow,
    InvalidRequest,
    Overloaded,
    RateLimited,
)

LONGEST_WORDS: Final = 600
"""Characters of what a provider says that an error repeats."""

_OVERFLOW: Final = re.compile(
    r"prompt is too long|context[_ ]length|context window|maximum context|too many (input |total )?tokens"
    r"|input (is|was) too long|exceeds? the (model's )?(maximum|limit) (number of |input )?tokens"
    r"|token count.{0,80}exceeds|larger than the context|n_ctx",
    re.IGNORECASE,
)
"""How providers say that a prompt is longer than the model's window. Most have no code for it."""

_PAGE: Final = re.compile(r"\s*<(!doctype html|html|head|body)\b", re.IGNORECASE)
_TITLE: Final = re.compile(r"<title[^<>]{0,100}>([^<]{1,300})", re.IGNORECASE)
"""What a web page is about: its beginning is for browsers."""


def words_of(body: bytes) -> str:
    """Return what the body of a refusal says to people: its message, the title of its page, or its beginning."""
    try:
        value: Any = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError):
        text = body.decode(errors="replace")
        title = _TITLE.search(text) if _PAGE.match(text) else None
        return shorten(" ".join((title[1] if title else text).split()), LONGEST_WORDS)
    if isinstance(value, list) and value:
        value = value[0]
    for name in ("error", "message", "Message", "detail"):
        if isinstance(value, dict) and value.get(name):
            value = value[name]
    if isinstance(value, dict) and isinstance(value.get("message"), str):
        value = value["message"]
    text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
    return shorten(" ".join(text.split()), LONGEST_WORDS)


def is_error(body: bytes) -> bool:
    """Tell whether a body is JSON with a member `error`: some servers answer so with a status that says success."""
    try:
        value: Any = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return False
    return isinstance(value, dict) and bool(value.get("error"))


def is_overflow(words: str) -> bool:
    """Tell whether a provider says that the prompt is longer than the model's window."""
    return _OVERFLOW.search(words) is not None


def by_status(who: str, refusal: Refusal) -> ModelError:
    """Return the error that a status stands for, in the provider's own words. `who` names it."""
    status, words = refusal.status, words_of(refusal.body)
    said = f"{who} answers {status}" + (f": {words}" if words else "")
    wait = retry_after(refusal.headers, refusal.came)
    if status in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN):
        return AuthenticationFailed(said)
    if status == HTTPStatus.REQUEST_TIMEOUT:
        return ConnectionLost(said, wait)
    if status == HTTPStatus.TOO_MANY_REQUESTS:
        return RateLimited(said, wait)
    # In a conflict somebody else holds what the request needs, for a while.
    if status >= HTTPStatus.INTERNAL_SERVER_ERROR or status == HTTPStatus.CONFLICT:
        return Overloaded(said, wait)
    if status in (HTTPStatus.BAD_REQUEST, HTTPStatus.UNPROCESSABLE_ENTITY) and is_overflow(words):
        return ContextOverflow(said)
    return InvalidRequest(said)


def retry_after(headers: Mapping[str, str], now: int) -> int:
    """Return how many milliseconds a provider asks to be left alone for; 0 if it does not say.

    Read from `retry-after-ms` and `retry-after` (seconds or a date, RFC 9110, 10.2.3).
    """
    try:
        if "retry-after-ms" in headers:
            return max(0, int(float(headers["retry-after-ms"])))
        value = headers.get("retry-after", "")
        if not value:
            return 0
        if re.fullmatch(r"\s*\d+(\.\d+)?\s*", value):
            return int(float(value) * 1_000)
        return max(0, int(parsedate_to_datetime(value).timestamp() * 1_000) - now)
    except (ValueError, TypeError, OverflowError):
        return 0
