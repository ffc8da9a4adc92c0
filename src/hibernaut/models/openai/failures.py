"""What OpenAI's APIs, and servers that speak them, say when a completion fails."""

import re
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any, Final

import msgspec

from hibernaut.errors import ModelError
from hibernaut.models.dialect import Refusal
from hibernaut.models.errors import (
    AuthenticationFailed,
    ContextOverflow,
    InvalidRequest,
    Overloaded,
    RateLimited,
    Refused,
)
from hibernaut.models.failures import by_status, is_overflow, retry_after, words_of

_CODES: Final[Mapping[str, type[ModelError]]] = {
    "bio_policy": Refused,
    "content_filter": Refused,
    "context_length_exceeded": ContextOverflow,
    "engine_overloaded": Overloaded,
    "exceed_context_size_error": ContextOverflow,
    "image_content_policy_violation": Refused,
    "insufficient_quota": InvalidRequest,
    "insufficient_system_resource": Overloaded,
    "invalid_api_key": AuthenticationFailed,
    "invalid_prompt": Refused,
    "misalignment_policy_violation": Refused,
    "model_not_found": InvalidRequest,
    "overloaded_error": Overloaded,
    "rate_limit_error": RateLimited,
    "rate_limit_exceeded": RateLimited,
    "server_error": Overloaded,
    "server_is_overloaded": Overloaded,
    "slow_down": RateLimited,
    "upstream_error": Overloaded,
}
"""What a code, or else a type, of an error means whatever its status."""

_OVERFLOW: Final = re.compile(
    r"maximum model length|available context size|request too large for (model|gpt|o\d)|reduce the length of the "
    r"(messages|input|prompt)",
    re.IGNORECASE,
)
"""How servers say that a prompt is too long, beyond what all providers say."""

_AGAIN_IN: Final = re.compile(r"try again in ((?:\d+(?:\.\d+)?(?:ms|h|m|s))+)", re.IGNORECASE)
_DURATION: Final = re.compile(r"(\d+(?:\.\d+)?)(ms|h|m|s)", re.IGNORECASE)
_UNITS: Final = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000}

_FIRST_STATUS: Final = 400
_LAST_STATUS: Final = 599


def failure_of(who: str, refusal: Refusal) -> ModelError:
    """Return what an answer means that is no stream. `who` names the provider."""
    return _meant(who, _error_in(refusal.body), refusal)


def failure_in_stream(who: str, error: Any) -> ModelError:
    """Return what an error means that stands in a stream: an object with a code, a type and a message, or a text."""
    body = msgspec.json.encode({"error": error})
    return _meant(who, error, Refusal(0, {}, body))


def _meant(who: str, error: Any, refusal: Refusal) -> ModelError:
    codes = [str(error[name]) for name in ("code", "type") if error.get(name)] if isinstance(error, Mapping) else []
    words = words_of(refusal.body)
    wait = retry_after(refusal.headers, refusal.came) or _reset(refusal.headers) or _told(words)
    said = f"{who} says: {words}" if not refusal.status else f"{who} answers {refusal.status}: {words}"
    if is_overflow(words) or _OVERFLOW.search(words):
        status = _status_of(codes, refusal)
        if status not in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN):
            return ContextOverflow(said)
    for code in codes:
        kind = _CODES.get(code)
        if kind is not None:
            return kind(said, wait) if issubclass(kind, RateLimited | Overloaded) else kind(said)
    if isinstance(error, Mapping) and _was_moderated(error):
        return Refused(said)
    status = _status_of(codes, refusal)
    if not status:
        return Overloaded(said, wait)  # a completion that began was no invalid request
    meant = by_status(who, Refusal(status, refusal.headers, refusal.body, refusal.came))
    if isinstance(meant, RateLimited | Overloaded):
        return type(meant)(str(meant), wait)
    return meant


def _error_in(body: bytes) -> Any:
    try:
        value = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
    if isinstance(value, list) and value:
        value = value[0]
    return value.get("error") or value if isinstance(value, dict) else value


def _status_of(codes: list[str], refusal: Refusal) -> int:
    """Return the status that counts: gateways answer 200, or begin a stream, and put the real one into the error."""
    for code in codes:
        if code.isdecimal() and _FIRST_STATUS <= int(code) <= _LAST_STATUS:
            return int(code)
    return refusal.status


def _was_moderated(error: Mapping[str, Any]) -> bool:
    inner, metadata = error.get("innererror"), error.get("metadata")
    if isinstance(inner, Mapping) and inner.get("code") == "ResponsibleAIPolicyViolation":
        return True
    return isinstance(metadata, Mapping) and bool(metadata.get("reasons"))


def _reset(headers: Mapping[str, str]) -> int:
    """Return how long it takes until what is used up comes back, from the headers of rate limits, in milliseconds."""
    waits = [
        _milliseconds(headers.get(f"x-ratelimit-reset-{what}", ""))
        for what in ("requests", "tokens")
        if headers.get(f"x-ratelimit-remaining-{what}", "").strip() == "0"
    ]
    return max(waits, default=0)


def _told(words: str) -> int:
    found = _AGAIN_IN.search(words)
    return _milliseconds(found[1]) if found else 0


def _milliseconds(duration: str) -> int:
    """Read a duration such as `1m30s`, `6.5s` or `120ms`; 0 if it is none."""
    return int(sum(float(number) * _UNITS[unit.lower()] for number, unit in _DURATION.findall(duration)))
