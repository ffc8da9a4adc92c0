"""What the Gemini API says when a completion fails: a `google.rpc.Status`, with details by type."""

import re
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any, Final

import msgspec

from hibernaut.errors import ModelError
from hibernaut.models.dialect import Refusal
from hibernaut.models.errors import (
    AuthenticationFailed,
    ConnectionLost,
    ContextOverflow,
    InvalidRequest,
    Overloaded,
    RateLimited,
    RetryableModelError,
)
from hibernaut.models.failures import by_status, is_overflow, retry_after, words_of

_RETRYABLE: Final[Mapping[str, type[RetryableModelError]]] = {
    "RESOURCE_EXHAUSTED": RateLimited,
    "UNAVAILABLE": Overloaded,
    "INTERNAL": Overloaded,
    "UNKNOWN": Overloaded,
    "ABORTED": Overloaded,
    "DEADLINE_EXCEEDED": Overloaded,
    "CANCELLED": ConnectionLost,
}
_PERMANENT: Final[Mapping[str, type[ModelError]]] = {
    "UNAUTHENTICATED": AuthenticationFailed,
    "PERMISSION_DENIED": AuthenticationFailed,
    "NOT_FOUND": InvalidRequest,
    "INVALID_ARGUMENT": InvalidRequest,
    "FAILED_PRECONDITION": InvalidRequest,
    "OUT_OF_RANGE": InvalidRequest,
    "UNIMPLEMENTED": InvalidRequest,
}

_KEY_REASONS: Final = frozenset(
    {"API_KEY_INVALID", "API_KEY_EXPIRED", "API_KEY_SERVICE_BLOCKED", "CREDENTIALS_MISSING"}
)

A_DAYS_QUOTA: Final = 3_600_000
"""Milliseconds that a thread rests when the quota of a day is used up: the API would have it ask again in seconds."""

_SECONDS: Final = re.compile(r"(\d+(?:\.\d+)?)s")


_SIGNATURE: Final = re.compile(r"(corrupted|invalid) thought.?signature", re.IGNORECASE)
"""How a signature is refused: it is of another key or project, or too old. Which one it was is not said."""


class _Status(msgspec.Struct, frozen=True):
    code: int = 0
    message: str = ""
    status: str = ""
    details: list[Any] = []


class _Body(msgspec.Struct, frozen=True):
    error: _Status


def failure_of(who: str, refusal: Refusal) -> ModelError:
    """Return what a refusal means; one of status 200 is an error in a stream."""
    try:
        found = msgspec.json.decode(refusal.body, type=_Body | list[_Body])
    except (msgspec.DecodeError, UnicodeDecodeError):
        return by_status(who, refusal)
    error = found.error if isinstance(found, _Body) else found[0].error if found else _Status()
    return meaning(who, error, retry_after(refusal.headers, refusal.came)) or by_status(who, refusal)


def refuses_signature(refusal: Refusal) -> bool:
    """Tell whether a signature that was sent back is why a request was refused."""
    return refusal.status == HTTPStatus.BAD_REQUEST and _SIGNATURE.search(words_of(refusal.body)) is not None


def failure_in(who: str, error: Any) -> ModelError:
    """Return what an error means that stands in a stream."""
    said = words_of(msgspec.json.encode({"error": error}))
    try:
        read = msgspec.convert(error, _Status)
    except msgspec.ValidationError:
        return Overloaded(f"{who} broke off: {said}")
    return meaning(who, read, 0) or Overloaded(f"{who} broke off: {said}")


def meaning(who: str, error: _Status, wait: int) -> ModelError | None:
    """Return what an error means by its own words; None where it says nothing that is known."""
    said = f"{who} answers {error.status or error.code}: {' '.join(error.message.split())[:600]}"
    details = [detail for detail in error.details if isinstance(detail, Mapping)]
    if any(detail.get("reason") in _KEY_REASONS for detail in details):
        return AuthenticationFailed(said)
    if error.status == "INVALID_ARGUMENT" and is_overflow(error.message):
        return ContextOverflow(said)
    retryable = _RETRYABLE.get(error.status)
    if retryable is not None:
        return retryable(said, max(wait, _asked_wait(details)))
    permanent = _PERMANENT.get(error.status)
    return permanent(said) if permanent is not None else None


def _asked_wait(details: list[Mapping[str, Any]]) -> int:
    wait = 0
    for detail in details:
        kind = str(detail.get("@type", "")).rpartition(".")[2]
        if kind == "RetryInfo":
            found = _SECONDS.fullmatch(str(detail.get("retryDelay", "")))
            wait = max(wait, int(float(found[1]) * 1_000) if found else 0)
        elif kind == "QuotaFailure":
            violations = detail.get("violations")
            for violation in violations if isinstance(violations, list) else ():
                if isinstance(violation, Mapping) and "PerDay" in str(violation.get("quotaId", "")):
                    wait = max(wait, A_DAYS_QUOTA)
    return wait
