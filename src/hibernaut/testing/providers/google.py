"""The Gemini API (`streamGenerateContent` and the list of models), of Google AI or of Vertex AI, seen from its side."""

import base64
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec

from hibernaut.errors import ModelError
from hibernaut.messages.events import Usage
from hibernaut.messages.stream import (
    CallDelta,
    CallEnded,
    CallStarted,
    Counted,
    Finish,
    ReasoningBlock,
    StreamPiece,
    TextDelta,
    ThinkingDelta,
)
from hibernaut.models.errors import (
    AuthenticationFailed,
    ConnectionLost,
    ContextOverflow,
    Overloaded,
    RateLimited,
    RetryableModelError,
)
from hibernaut.testing.providers.google_checks import SIGNED, Wrong, check_request
from hibernaut.testing.providers.wire import Asked, Raw

KEY: Final = "a-key-for-gemini"

MODELS: Final = (
    "gemini-3-pro-preview",
    "gemini-3.5-flash",
    "gemini-2.5-pro",
    "gemini-2.5-flash",
    "gemini-2.0-flash",
    "text-embedding-004",
)

_LARGEST: Final = 20 * 1024 * 1024
_PAGE: Final = 4

_PATH: Final = re.compile(
    r"(?:/v1beta|/v1/projects/[^/]+/locations/[^/]+/publishers/google)?/models/([^/:?]+):"
    r"(streamGenerateContent\?alt=sse|countTokens)"
)


class GeminiWire:
    """Speaks as the Gemini API does.

    Args:
        vertex: whether as Vertex AI: with a bearer token, and without ids of calls.
        key: the key or token that is taken.
    """

    def __init__(self, *, vertex: bool = False, key: str = KEY) -> None:
        self._vertex = vertex
        self._key = key

    @property
    def stream_type(self) -> str:
        """Server-sent events."""
        return "text/event-stream"

    def check(self, asked: Asked) -> Raw | None:
        """Answer what asks for no turn, and refuse what the API refuses."""
        denied = self._denied(asked)
        if denied is not None:
            return denied
        if asked.method == "GET" and re.match(r"(/v1beta)?/models(\?|$)", asked.path) and not self._vertex:
            return _listed(asked.path)
        found = _PATH.fullmatch(asked.path)
        if asked.method != "POST" or found is None:
            return Raw(404, {"content-type": "text/html"}, b"<html>404. That is all we know.</html>")
        if found[1] not in MODELS or found[1] == "text-embedding-004":
            return _error(404, "NOT_FOUND", f"models/{found[1]} is not found, or has not this method.")
        if len(asked.raw) > _LARGEST:
            return _error(400, "INVALID_ARGUMENT", "Request payload size exceeds the limit: 20971520 bytes.")
        counting, body = found[2] == "countTokens", asked.body
        if counting and not self._vertex:
            body = dict(asked.body.get("generateContentRequest", {}))
            body.pop("model", None)
        try:
            check_request(found[1], body, vertex=self._vertex)
        except Wrong as wrong:
            return _error(400, "INVALID_ARGUMENT", str(wrong))
        return Raw(body=b'{"totalTokens":42}') if counting else None

    def refuse(self, error: ModelError) -> Raw:
        """Return a `google.rpc.Status`."""
        code, status, details = _as_status(error)
        return _error(code, status, _in_words(error), details)

    def encoder(self, asked: Asked) -> "_Encoder":
        """Return what writes a turn as pieces of a candidate."""
        found = _PATH.fullmatch(asked.path)
        model = found[1] if found else MODELS[0]
        return _Encoder(model, vertex=self._vertex)

    def _denied(self, asked: Asked) -> Raw | None:
        if self._vertex:
            if asked.headers.get("authorization") == f"Bearer {self._key}":
                return None
            return _error(401, "UNAUTHENTICATED", "Request had invalid authentication credentials.")
        given = asked.headers.get("x-goog-api-key")
        if given is None:
            return _error(403, "PERMISSION_DENIED", "Callers without an identity are not allowed here.")
        if given != self._key:
            reason = {
                "@type": "type.googleapis.com/google.rpc.ErrorInfo",
                "reason": "API_KEY_INVALID",
                "domain": "googleapis.com",
            }
            return _error(400, "INVALID_ARGUMENT", "The API key is not valid.", [reason])
        return None


# What it answers


class _Encoder:
    """Writes a turn as pieces of a candidate. A signature comes with the call or the text that it leads to."""

    def __init__(self, model: str, *, vertex: bool) -> None:
        self._model = model
        self._vertex = vertex
        self._signs = model.startswith("gemini-3")
        self._calls: dict[int, tuple[CallStarted, list[str]]] = {}
        self._made = 0
        self._signature = ""
        self._thought = False

    def feed(self, piece: StreamPiece) -> Iterable[bytes]:
        """Return the events that say this."""
        if isinstance(piece, TextDelta):
            yield self._event({"text": piece.text})
        elif isinstance(piece, ThinkingDelta):
            self._thought = True
            yield self._event({"text": piece.text, "thought": True})
        elif isinstance(piece, ReasoningBlock):
            self._signature = signed(piece.data, vertex=self._vertex)
        elif isinstance(piece, CallStarted):
            self._calls[piece.index] = (piece, [])
        elif isinstance(piece, CallDelta):
            self._calls[piece.index][1].append(piece.arguments)
        elif isinstance(piece, CallEnded):
            yield self._call(*self._calls.pop(piece.index), piece.data)
        elif isinstance(piece, Counted):
            yield self._event({"text": ""}, usage=piece.usage)
        elif isinstance(piece, Finish):
            yield self._finished(piece)

    def failed(self, error: ModelError) -> bytes | None:
        """Return an event with an error in it."""
        if isinstance(error, ConnectionLost):
            return None
        code, status, details = _as_status(error)
        return _sse({"error": {"code": code, "message": str(error), "status": status, "details": details}})

    def _call(self, started: CallStarted, pieces: Sequence[str], data: bytes) -> bytes:
        call: dict[str, Any] = {"name": started.name}
        if not self._vertex:
            call["id"] = started.provider_id or f"call{self._made}"
        if "".join(pieces).strip():
            call["args"] = json.loads("".join(pieces))
        signature = signed(data, vertex=self._vertex) if data else self._signature
        if not signature and self._signs and not self._made:
            signature = signed(b"step", vertex=self._vertex)
        self._signature = ""
        self._made += 1
        return self._event({"functionCall": call, **({"thoughtSignature": signature} if signature else {})})

    def _finished(self, piece: Finish) -> bytes:
        reason = {"end": "STOP", "length": "MAX_TOKENS", "refused": "SAFETY"}[piece.reason]
        last = {"text": "", "thoughtSignature": self._signature} if self._signature else {"text": ""}
        return self._event(last, reason, piece.usage)

    def _event(self, part: Mapping[str, Any], reason: str = "", usage: Usage | None = None) -> bytes:
        candidate: dict[str, Any] = {"content": {"parts": [part], "role": "model"}, "index": 0}
        event: dict[str, Any] = {"candidates": [candidate], "modelVersion": self._model, "responseId": "r1"}
        if reason:
            candidate["finishReason"] = reason
        if reason or usage is not None:
            event["usageMetadata"] = self._counted(usage or Usage())
        return _sse(event)

    def _counted(self, usage: Usage) -> dict[str, int]:
        thoughts = usage.output // 3 if self._thought else 0
        counted = {
            "promptTokenCount": usage.input,
            "candidatesTokenCount": usage.output - thoughts,
            "totalTokenCount": usage.input + usage.output,
        }
        if thoughts:
            counted["thoughtsTokenCount"] = thoughts
        if usage.cached:
            counted["cachedContentTokenCount"] = usage.cached
        return counted


def signed(data: bytes, *, vertex: bool = False) -> str:
    """Return a signature as the fake gives them. One is good on its own platform only."""
    return base64.b64encode(SIGNED[vertex] + data).decode()


def _sse(value: Any) -> bytes:
    # Escaped as ASCII: half a surrogate pair can be said so.
    return b"data: " + json.dumps(value).encode() + b"\r\n\r\n"


def _as_status(error: ModelError) -> tuple[int, str, list[Any]]:
    wait = error.retry_after if isinstance(error, RetryableModelError) else 0
    details = (
        [{"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": f"{wait / 1_000:g}s"}] if wait else []
    )
    if isinstance(error, RateLimited):
        return 429, "RESOURCE_EXHAUSTED", details
    if isinstance(error, ConnectionLost):
        return 499, "CANCELLED", details
    if isinstance(error, Overloaded | RetryableModelError):
        return 503, "UNAVAILABLE", details
    if isinstance(error, AuthenticationFailed):
        return 403, "PERMISSION_DENIED", details
    return 400, "INVALID_ARGUMENT", details


def _in_words(error: ModelError) -> str:
    if isinstance(error, ContextOverflow):
        return "The input token count (1200000) exceeds the maximum number of tokens allowed (1048576)."
    return str(error)


def _error(code: int, status: str, message: str, details: Sequence[Any] = ()) -> Raw:
    error: dict[str, Any] = {"code": code, "message": message, "status": status}
    if details:
        error["details"] = list(details)
    return Raw(code, body=msgspec.json.encode({"error": error}))


def _listed(path: str) -> Raw:
    token = re.search(r"pageToken=(\d+)", path)
    begin = int(token[1]) if token else 0
    models = [
        {
            "name": f"models/{model}",
            "displayName": model.replace("-", " ").title(),
            "inputTokenLimit": 1_048_576,
            "outputTokenLimit": 65_536,
            "supportedGenerationMethods": ["embedContent"]
            if "embedding" in model
            else ["generateContent", "countTokens"],
            **({"thinking": True} if "2.0" not in model else {}),
        }
        for model in MODELS[begin : begin + _PAGE]
    ]
    more = {"nextPageToken": str(begin + _PAGE)} if begin + _PAGE < len(MODELS) else {}
    return Raw(body=msgspec.json.encode({"models": models, **more}))
