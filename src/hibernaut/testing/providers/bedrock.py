"""The Converse API of Amazon Bedrock, streamed, with its lists of models, seen from its side."""

import base64
import hashlib
import hmac
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final
from urllib.parse import quote, unquote

import msgspec

from hibernaut.errors import ModelError
from hibernaut.messages.stream import (
    CallDelta,
    CallEnded,
    CallStarted,
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
from hibernaut.models.event_stream import MEDIA_TYPE, write_message
from hibernaut.testing.providers.bedrock_checks import Wrong, check_request
from hibernaut.testing.providers.wire import Asked, Raw

TOKEN: Final = "a-key-for-bedrock"  # noqa: S105  # of the fake
ACCESS_KEY: Final = "AKIDFAKE"
SECRET_KEY: Final = "a-secret-for-bedrock"  # noqa: S105  # of the fake

_PATH: Final = re.compile(r"/model/([^/?]+)/(converse-stream|count-tokens)")
_AUTHORIZATION: Final = re.compile(
    r"AWS4-HMAC-SHA256 Credential=([^/]+)/(\d{8}/([^/]+)/bedrock/aws4_request), SignedHeaders=([^,]+), Signature=(\w+)"
)


class ConverseWire:
    """Speaks as Amazon Bedrock does; lets in whoever has the token, or signs with the keys of the fake."""

    @property
    def stream_type(self) -> str:
        """Amazon's binary event stream."""
        return MEDIA_TYPE

    def check(self, asked: Asked) -> Raw | None:
        """Answer what asks for no turn, and refuse what the API refuses."""
        denied = _denied(asked)
        if denied is not None:
            return denied
        if asked.method == "GET":
            return _listed(asked.path)
        found = _PATH.fullmatch(asked.path)
        if asked.method != "POST" or found is None:
            return _error(404, "UnknownOperationException", "")
        if not isinstance(asked.body, dict):
            return _error(400, "SerializationException", "The request could not be parsed.")
        body = asked.body
        if found[2] == "count-tokens":
            body = asked.body.get("input", {}).get("converse")
        try:
            check_request(unquote(found[1]), body)
        except Wrong as wrong:
            return _error(400, "ValidationException", str(wrong))
        return Raw(body=b'{"inputTokens":42}') if found[2] == "count-tokens" else None

    def refuse(self, error: ModelError) -> Raw:
        """Return an exception as the answer."""
        status, kind, words = _exception(error)
        wait = error.retry_after if isinstance(error, RetryableModelError) else 0
        answer = _error(status, kind, words)
        return Raw(status, {**answer.headers, **({"retry-after": str(wait // 1_000)} if wait else {})}, answer.body)

    def encoder(self, asked: Asked) -> "_Encoder":  # noqa: ARG002  # all models answer alike
        """Return what writes a turn as events."""
        return _Encoder()


def event(kind: str, payload: Mapping[str, Any]) -> bytes:
    """Return one event of a stream, padded as they are."""
    headers = [(":event-type", kind), (":content-type", "application/json"), (":message-type", "event")]
    return write_message(headers, msgspec.json.encode({**payload, "p": "abcdefghijklm"}))


def exception(kind: str, message: str) -> bytes:
    """Return the event that says that the stream has failed."""
    headers = [(":exception-type", kind), (":content-type", "application/json"), (":message-type", "exception")]
    return write_message(headers, msgspec.json.encode({"message": message}))


def signature_of(data: bytes, text: str) -> str:
    """Return the signature under a text that was thought. It is good for no other text."""
    mark = base64.b64encode(data).decode()
    return f"{mark}.{hashlib.sha256(mark.encode() + text.encode('utf-8', 'replace')).hexdigest()}"


class _Encoder:
    """Writes a turn as blocks that begin, grow and end."""

    def __init__(self) -> None:
        self._begun = False
        self._index = -1
        self._open = ""
        """What is being written: a text, thoughts, or nothing."""
        self._thought: list[str] = []
        self._calls: dict[int, int] = {}
        self._called = False

    def feed(self, piece: StreamPiece) -> Iterable[bytes]:
        """Return the events that say this."""
        if not self._begun:
            self._begun = True
            yield event("messageStart", {"role": "assistant"})
        if isinstance(piece, TextDelta):
            yield from self._more("text", {"text": piece.text})
        elif isinstance(piece, ThinkingDelta):
            yield from self._more("thoughts", {"reasoningContent": {"text": piece.text}})
            self._thought.append(piece.text)
        elif isinstance(piece, ReasoningBlock):
            yield from self._reasoning(piece)
        elif isinstance(piece, CallStarted):
            yield from self._call(piece)
        elif isinstance(piece, CallDelta):
            yield self._delta(self._calls[piece.index], {"toolUse": {"input": piece.arguments}})
        elif isinstance(piece, CallEnded):
            yield event("contentBlockStop", {"contentBlockIndex": self._calls.pop(piece.index)})
        elif isinstance(piece, Finish):
            yield from self._finish(piece)

    def failed(self, error: ModelError) -> bytes | None:
        """Return the exception that ends a stream."""
        if isinstance(error, ConnectionLost):
            return None
        _, kind, words = _exception(error)
        named = {
            "ThrottlingException": "throttlingException",
            "ServiceUnavailableException": "serviceUnavailableException",
        }
        return exception(named.get(kind, "validationException"), words)

    def _more(self, kind: str, delta: Mapping[str, Any]) -> Iterable[bytes]:
        if self._open != kind:
            yield from self._close()
            self._index += 1
            self._open = kind
        yield self._delta(self._index, delta)

    def _reasoning(self, piece: ReasoningBlock) -> Iterable[bytes]:
        if self._open == "thoughts":
            signature = signature_of(piece.data, "".join(self._thought))
            yield self._delta(self._index, {"reasoningContent": {"signature": signature}})
            yield from self._close()
        else:
            redacted = base64.b64encode(piece.data).decode()
            yield from self._more("thoughts", {"reasoningContent": {"redactedContent": redacted}})
            yield from self._close()

    def _call(self, piece: CallStarted) -> Iterable[bytes]:
        yield from self._close()
        self._index += 1
        self._calls[piece.index] = self._index
        self._called = True
        call = {"toolUseId": piece.provider_id or f"tooluse_{self._index}", "name": piece.name}
        yield event("contentBlockStart", {"contentBlockIndex": self._index, "start": {"toolUse": call}})

    def _close(self) -> Iterable[bytes]:
        if self._open:
            yield event("contentBlockStop", {"contentBlockIndex": self._index})
        self._open = ""
        self._thought.clear()

    def _delta(self, index: int, delta: Mapping[str, Any]) -> bytes:
        return event("contentBlockDelta", {"contentBlockIndex": index, "delta": delta})

    def _finish(self, piece: Finish) -> Iterable[bytes]:
        yield from self._close()
        for index in self._calls.values():  # what was cut off is said to have ended, too
            yield event("contentBlockStop", {"contentBlockIndex": index})
        ended = "tool_use" if self._called else "end_turn"
        reason = {"end": ended, "length": "max_tokens", "refused": "content_filtered"}[piece.reason]
        yield event("messageStop", {"stopReason": reason})
        usage = piece.usage
        counted = {
            "inputTokens": usage.input - usage.cached - piece.written,
            "outputTokens": usage.output,
            "totalTokens": usage.input + usage.output,
            "cacheReadInputTokens": usage.cached,
            "cacheWriteInputTokens": piece.written,
        }
        yield event("metadata", {"usage": counted, "metrics": {"latencyMs": 1}})


def _exception(error: ModelError) -> tuple[int, str, str]:
    if isinstance(error, RateLimited):
        return 429, "ThrottlingException", f"Too many requests, please wait before trying again. {error}"
    if isinstance(error, ConnectionLost):
        return 408, "ModelTimeoutException", str(error)
    if isinstance(error, Overloaded | RetryableModelError):
        return 503, "ServiceUnavailableException", str(error)
    if isinstance(error, AuthenticationFailed):
        return 403, "AccessDeniedException", str(error)
    if isinstance(error, ContextOverflow):
        return 400, "ValidationException", "Input is too long for requested model."
    return 400, "ValidationException", str(error)


def _error(status: int, kind: str, message: str) -> Raw:
    headers = {
        "content-type": "application/json",
        "x-amzn-errortype": f"{kind}:http://internal.amazon.com/coral/com.amazon.bedrock/",
    }
    return Raw(status, headers, msgspec.json.encode({"message": message}))


# Who is let in


def _denied(asked: Asked) -> Raw | None:
    given = asked.headers.get("authorization", "")
    if not given:
        return _error(403, "MissingAuthenticationTokenException", "Missing Authentication Token")
    if given.startswith("Bearer "):
        if given == f"Bearer {TOKEN}":
            return None
        return _error(403, "AccessDeniedException", "Authentication failed: please make sure your API Key is valid.")
    found = _AUTHORIZATION.fullmatch(given)
    if found is None or found[1] != ACCESS_KEY:
        return _error(403, "UnrecognizedClientException", "The security token included in the request is invalid.")
    if found[5] != _signature(asked, found[2], found[3], found[4]):
        return _error(403, "InvalidSignatureException", "The request signature we calculated does not match.")
    return None


def _signature(asked: Asked, scope: str, region: str, signed: str) -> str:
    """Compute the signature of a request, version 4. The path, which is encoded already, is encoded once more."""
    path, _, query = asked.path.partition("?")
    ordered = "&".join(sorted(query.split("&"))) if query else ""
    headers = "".join([f"{name}:{asked.headers.get(name, '').strip()}\n" for name in signed.split(";")])
    payload = hashlib.sha256(asked.raw).hexdigest()
    canonical = "\n".join([asked.method, quote(path, safe="/-_.~"), ordered, headers, signed, payload])
    date = scope.partition("/")[0]
    told = "\n".join(
        [
            "AWS4-HMAC-SHA256",
            asked.headers.get("x-amz-date", ""),
            scope,
            hashlib.sha256(canonical.encode()).hexdigest(),
        ]
    )
    key = f"AWS4{SECRET_KEY}".encode()
    for step in (date, region, "bedrock", "aws4_request"):
        key = hmac.digest(key, step.encode(), "sha256")
    return hmac.new(key, told.encode(), "sha256").hexdigest()


# What it has


def _listed(path: str) -> Raw:
    if path == "/foundation-models":
        return Raw(body=msgspec.json.encode({"modelSummaries": _MODELS}))
    if path.startswith("/inference-profiles?"):
        second = "nextToken=more%2F1" in path
        profiles = _PROFILES[1:] if second else _PROFILES[:1]
        more = {} if second else {"nextToken": "more/1"}
        return Raw(body=msgspec.json.encode({"inferenceProfileSummaries": profiles, **more}))
    return _error(404, "UnknownOperationException", "")


def _model(name: str, title: str, maker: str, *types: str, output: str = "TEXT") -> dict[str, Any]:
    return {
        "modelArn": f"arn:aws:bedrock:us-east-1::foundation-model/{name}",
        "modelId": name,
        "modelName": title,
        "providerName": maker,
        "inputModalities": ["TEXT", "IMAGE"] if "claude" in name or "nova" in name else ["TEXT"],
        "outputModalities": [output],
        "responseStreamingSupported": output == "TEXT",
        "inferenceTypesSupported": list(types),
        "modelLifecycle": {"status": "ACTIVE"},
    }


_MODELS: Final[Sequence[Mapping[str, Any]]] = (
    _model("anthropic.claude-3-haiku-20240307-v1:0", "Claude 3 Haiku", "Anthropic", "ON_DEMAND"),
    _model("anthropic.claude-sonnet-4-5-20250929-v1:0", "Claude Sonnet 4.5", "Anthropic", "INFERENCE_PROFILE"),
    _model("openai.gpt-oss-120b-1:0", "gpt-oss-120b", "OpenAI", "ON_DEMAND"),
    _model("amazon.titan-embed-text-v2:0", "Titan Text Embeddings V2", "Amazon", "ON_DEMAND", output="EMBEDDING"),
)
_PROFILES: Final = (
    {"inferenceProfileId": "us.anthropic.claude-sonnet-4-5-20250929-v1:0", "inferenceProfileName": "US Sonnet 4.5"},
    {"inferenceProfileId": "us.amazon.nova-pro-v1:0", "inferenceProfileName": "US Nova Pro"},
)
