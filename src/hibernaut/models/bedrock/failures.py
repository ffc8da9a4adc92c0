"""What Amazon Bedrock says when a completion fails: an exception by name, in a header or as an event."""

import re
from collections.abc import Mapping
from http import HTTPStatus
from typing import Final

import msgspec

from hibernaut.errors import ModelError
from hibernaut.models.dialect import Frame, Refusal
from hibernaut.models.errors import (
    AuthenticationFailed,
    ContextOverflow,
    InvalidRequest,
    Overloaded,
    RateLimited,
    RetryableModelError,
)
from hibernaut.models.event_stream import ERROR
from hibernaut.models.failures import by_status, is_overflow, retry_after, words_of

TYPE_HEADER: Final = "x-amzn-errortype"

_PASSING: Final[Mapping[str, type[RetryableModelError]]] = {
    "ThrottlingException": RateLimited,
    "TooManyRequestsException": RateLimited,
    "ServiceQuotaExceededException": RateLimited,
    "InternalServerException": Overloaded,
    "InternalFailure": Overloaded,
    "ServiceUnavailableException": Overloaded,
    "ModelErrorException": Overloaded,
    "ModelNotReadyException": Overloaded,
    "ModelStreamErrorException": Overloaded,
    "ModelTimeoutException": Overloaded,
}
_LASTING: Final[Mapping[str, type[ModelError]]] = {
    "AccessDeniedException": AuthenticationFailed,
    "ExpiredTokenException": AuthenticationFailed,
    "IncompleteSignatureException": AuthenticationFailed,
    "InvalidSignatureException": AuthenticationFailed,
    "MissingAuthenticationTokenException": AuthenticationFailed,
    "SignatureDoesNotMatch": AuthenticationFailed,
    "UnrecognizedClientException": AuthenticationFailed,
    "ConflictException": InvalidRequest,
    "ResourceNotFoundException": InvalidRequest,
    "ValidationException": InvalidRequest,
}

_OVERFLOW: Final = re.compile(r"input is too long|exceeds? (the )?context limit", re.IGNORECASE)


_SIGNATURE: Final = re.compile(r"invalid .?signature.? in .?thinking.? block", re.IGNORECASE)
"""How reasoning is refused that another key, or nobody, has signed."""


class _Body(msgspec.Struct, frozen=True, rename={"type": "__type"}):
    message: str = ""
    code: str = ""
    type: str = ""


_bodies = msgspec.json.Decoder(_Body)


def failure_of(who: str, refusal: Refusal) -> ModelError:
    """Return what a refusal means."""
    named = refusal.headers.get(TYPE_HEADER, "") or _read(refusal.body.decode("utf-8", "replace")).type
    # The header may have the address of a schema behind the name, the body the name of a package before it.
    kind = named.partition(":")[0].rpartition("#")[2]
    wait = retry_after(refusal.headers, refusal.came)
    return _meaning(who, kind, words_of(refusal.body), wait) or by_status(who, refusal)


def refuses_reasoning(refusal: Refusal) -> bool:
    """Tell whether reasoning that was sent back is why a request was refused."""
    return refusal.status == HTTPStatus.BAD_REQUEST and _SIGNATURE.search(words_of(refusal.body)) is not None


def failure_in(who: str, frame: Frame) -> ModelError | None:
    """Return what an event means that is an exception or an error; None: it is none."""
    said = frame.kind == ERROR
    if not said and not frame.kind.endswith("Exception"):
        return None
    body = _read(frame.data)
    kind = body.code if said else frame.kind[:1].upper() + frame.kind[1:]
    return _meaning(who, kind, body.message, 0) or Overloaded(f"{who} broke off with {kind}: {body.message}")


def _meaning(who: str, kind: str, words: str, wait: int) -> ModelError | None:
    said = f"{who} answers {kind}: {words}"
    if kind in _PASSING:
        return _PASSING[kind](said, wait)
    if kind == "ValidationException" and (is_overflow(words) or _OVERFLOW.search(words)):
        return ContextOverflow(said)
    return _LASTING[kind](said) if kind in _LASTING else None


def _read(text: str) -> _Body:
    try:
        return _bodies.decode(text)
    except msgspec.DecodeError:
        return _Body(text[:600])
