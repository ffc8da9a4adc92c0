"""The Messages API of Anthropic, seen from its own side: what it refuses, and how it streams."""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from http import HTTPStatus
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
from hibernaut.messages.text import join_surrogates
from hibernaut.models.errors import (
    AuthenticationFailed,
    ConnectionLost,
    ContextOverflow,
    InvalidRequest,
    Overloaded,
    RateLimited,
)
from hibernaut.testing.providers.anthropic_checks import KNOWN, BodyCheck, Door, Known, Refused, Seal, place_of
from hibernaut.testing.providers.wire import Asked, Raw

LARGEST: Final = 32 * 1024 * 1024
"""Bytes of a request."""

ERRORS: Final[tuple[tuple[type[ModelError], int, str], ...]] = (
    (RateLimited, HTTPStatus.TOO_MANY_REQUESTS, "rate_limit_error"),
    (Overloaded, 529, "overloaded_error"),
    (ConnectionLost, HTTPStatus.GATEWAY_TIMEOUT, "timeout_error"),
    (AuthenticationFailed, HTTPStatus.UNAUTHORIZED, "authentication_error"),
    (ContextOverflow, HTTPStatus.BAD_REQUEST, "invalid_request_error"),
    (InvalidRequest, HTTPStatus.BAD_REQUEST, "invalid_request_error"),
)
"""Statuses and types of errors, by what the runtime calls them."""

VERSIONS: Final = ("2023-06-01", "2026-10-21")
"""Of the API. The newer one does not let anybody choose how words are drawn."""

STOPS: Final = {"length": "max_tokens", "refused": "refusal"}


class AnthropicWire:
    """The API at its own address.

    Args:
        key: what `x-api-key` has to be.
        known: the models that there are, and what they take.
        stop_reason: why turns that are complete end, in place of the usual reasons.
    """

    stream_type = "text/event-stream; charset=utf-8"

    def __init__(
        self,
        key: str = "sk-ant-fake",
        known: Mapping[str, Known] = KNOWN,
        *,
        stop_reason: str = "",
        door: Door | None = None,
    ) -> None:
        self.displaced: list[int] = []
        """Of each request for a turn, how many blocks of thinking stood where they were not thought."""
        self._key = key
        self._known = known
        self._stop_reason = stop_reason
        self._door = door or Door()
        self._seal = Seal()

    # What is asked

    def check(self, asked: Asked) -> Raw | None:
        """Return the answer to a request that asks for no turn, or that is refused; None: it is fine."""
        try:
            self._authenticate(asked)
            return self._route(asked)
        except Refused as refused:
            return error_answer(refused.status, refused.kind, str(refused))

    def _authenticate(self, asked: Asked) -> None:
        bearer = asked.headers.get("authorization") == f"Bearer {self._key}"
        if asked.headers.get("x-api-key") != self._key and not bearer:
            raise Refused("invalid x-api-key", HTTPStatus.UNAUTHORIZED, "authentication_error")
        version = asked.headers.get("anthropic-version")
        if version not in VERSIONS:
            raise Refused("anthropic-version: header is required")
        if version == VERSIONS[-1] and isinstance(asked.body, dict):
            for name in asked.body.keys() & {"temperature", "top_p", "top_k"}:
                raise Refused(f"{name}: Extra inputs are not permitted")

    def _route(self, asked: Asked) -> Raw | None:
        path, _, query = asked.path.partition("?")
        if asked.method == "GET" and path == "/v1/models":
            return self._listing(query)
        if asked.method != "POST" or path not in ("/v1/messages", "/v1/messages/count_tokens"):
            raise Refused("Not found", HTTPStatus.NOT_FOUND, "not_found_error")
        counting = path.endswith("count_tokens")
        check = self._checked(asked, self._model_of(asked), counting=counting)
        if counting:
            return _json({"input_tokens": len(asked.raw) // 4})
        if asked.body.get("stream") is not True:
            raise Refused("only streams are played here")
        self.displaced.append(check.displaced())
        return None

    def _model_of(self, asked: Asked) -> str:
        if not isinstance(asked.body, dict):
            raise Refused("The request body is not valid JSON")
        model = asked.body.get("model")
        if not isinstance(model, str):
            raise Refused("model: Field required")
        return model

    def _checked(self, asked: Asked, model: str, *, counting: bool) -> BodyCheck:
        if len(asked.raw) > LARGEST:
            status = HTTPStatus.REQUEST_ENTITY_TOO_LARGE
            raise Refused("Request exceeds the maximum size", status, "request_too_large")
        known = self._known.get(model)
        if known is None:
            raise Refused(f"model: {model}", HTTPStatus.NOT_FOUND, "not_found_error")
        betas = frozenset(asked.headers.get("anthropic-beta", "").split(","))
        check = BodyCheck(asked.body, betas, known, self._seal, self._door)
        check.run(counting=counting)
        return check

    def _listing(self, query: str) -> Raw:
        """Return a page of the models: two, so that there is more than one."""
        names = sorted(self._known)
        after = next((part[9:] for part in query.split("&") if part.startswith("after_id=")), "")
        start = names.index(after) + 1 if after else 0
        page = names[start : start + 2]
        data = [
            {
                "type": "model",
                "id": name,
                "display_name": name.title(),
                "created_at": "2026-01-01T00:00:00Z",
                "max_input_tokens": self._known[name].window,
                "max_tokens": self._known[name].output,
                "capabilities": {
                    "image_input": {"supported": True},
                    "thinking": {"supported": bool(self._known[name].thinking)},
                },
            }
            for name in page
        ]
        more = start + 2 < len(names)
        return _json({"data": data, "first_id": page[0], "has_more": more, "last_id": page[-1]})

    # What is answered

    def refuse(self, error: ModelError) -> Raw:
        """Return the answer of a provider with which a completion fails like this from the start."""
        status, kind = _named(error)
        headers = {}
        if isinstance(error, RateLimited | Overloaded) and error.retry_after:
            headers["retry-after"] = str(-(-error.retry_after // 1_000))
        text = (
            "prompt is too long: 1000001 tokens > 1000000 maximum" if isinstance(error, ContextOverflow) else str(error)
        )
        return error_answer(status, kind, text, headers)

    def encoder(self, asked: Asked) -> "AnthropicEncoder":
        """Return what writes the turn that this asks for."""
        return AnthropicEncoder(asked.body, self._seal, self._stop_reason)


class VertexWire(AnthropicWire):
    """The API behind Google Cloud: the model stands in the path, the version in the body."""

    def __init__(self, key: str = "ya29.fake", known: Mapping[str, Known] = KNOWN) -> None:
        super().__init__(key, known=known, door=Door(image_size=5_000_000, addresses=False, forms=False))

    def _authenticate(self, asked: Asked) -> None:
        if asked.headers.get("authorization") != f"Bearer {self._key}":
            raise Refused("Request had invalid authentication credentials.", HTTPStatus.UNAUTHORIZED, "UNAUTHENTICATED")

    def _route(self, asked: Asked) -> Raw | None:
        model, _, verb = asked.path.removeprefix("/").partition(":")
        if asked.method != "POST" or not isinstance(asked.body, dict):
            raise Refused("Not found", HTTPStatus.NOT_FOUND, "NOT_FOUND")
        if asked.body.get("anthropic_version") != "vertex-2023-10-16":
            raise Refused("anthropic_version: Field required")
        if (model, verb) == ("count-tokens", "rawPredict"):
            self._checked(asked, self._model_of(asked), counting=True)
            return _json({"input_tokens": len(asked.raw) // 4})
        if verb != "streamRawPredict":
            raise Refused("Not found", HTTPStatus.NOT_FOUND, "NOT_FOUND")
        if "model" in asked.body:
            raise Refused("model: Extra inputs are not permitted")
        self.displaced.append(self._checked(asked, model, counting=False).displaced())
        return None


class BedrockWire(AnthropicWire):
    """The API behind Amazon Bedrock, where it is the same but for its models' names and how one is let in."""

    def __init__(self, key: str = "bedrock-fake", known: Mapping[str, Known] = KNOWN) -> None:
        named = {f"anthropic.{name}": model for name, model in known.items()}
        super().__init__(key, known=named, door=Door(image_size=5_000_000, addresses=False, forms=False))

    def _authenticate(self, asked: Asked) -> None:
        if asked.headers.get("authorization") != f"Bearer {self._key}":
            raise Refused("Invalid bearer token", HTTPStatus.FORBIDDEN, "permission_error")
        if asked.headers.get("anthropic-version") != "2023-06-01":
            raise Refused("anthropic-version: header is required")


class AnthropicEncoder:
    """Writes one turn as events."""

    def __init__(self, body: Mapping[str, Any], seal: Seal, stop_reason: str) -> None:
        self._body = body
        self._seal = seal
        self._stop_reason = stop_reason
        self._begun = False
        self._next = 0
        self._open = ""
        """The kind of the block that is being written, if it is no call."""
        self._pieces: list[str] = []
        self._calls: dict[int, tuple[int, dict[str, Any], list[str]]] = {}
        """Calls that are being written: the index of the block, the block, its arguments."""
        self._blocks: list[dict[str, Any]] = []
        """What was said, as it will come back."""
        self._called = False

    def feed(self, piece: StreamPiece) -> Iterable[bytes]:
        """Return the events that say this."""
        if not self._begun:
            self._begun = True
            yield self._start(piece.usage if isinstance(piece, Counted) else Usage(0, 1))
            yield _event("ping", {})
        match piece:
            case TextDelta(text=text):
                yield from self._more("text", text)
            case ThinkingDelta(text=text):
                yield from self._more("thinking", text)
            case ReasoningBlock(data=data, text=text):
                yield from self._reasoning(data, text)
            case CallStarted(index=index, name=name, provider_id=name_id):
                yield from self._begin_call(index, name, name_id)
            case CallDelta(index=index, arguments=arguments):
                number, _, pieces = self._calls[index]
                pieces.append(arguments)
                yield _delta(number, {"type": "input_json_delta", "partial_json": arguments})
            case CallEnded(index=index):
                yield self._end_call(index)
            case Finish(reason=reason, usage=usage):
                yield from self._finish(reason, usage)
            case Counted():
                pass  # the API counts at the beginning and at the end

    def failed(self, error: ModelError) -> bytes | None:
        """Return the event that says that the completion failed in the middle; None: the connection ends."""
        if isinstance(error, ConnectionLost):
            return None
        return _event("error", {"error": {"type": _named(error)[1], "message": str(error)}})

    def _start(self, usage: Usage) -> bytes:
        message = {
            "id": "msg_fake",
            "type": "message",
            "role": "assistant",
            "model": self._body.get("model", ""),
            "content": [],
            "stop_reason": None,
            "stop_sequence": None,
            "usage": {**_counts(usage), "service_tier": "standard"},
        }
        return _event("message_start", {"message": message})

    def _more(self, kind: str, text: str) -> Iterator[bytes]:
        if self._open != kind:
            yield from self._close()
            empty = {"type": "text", "text": ""} if kind == "text" else _thought("", "")
            yield self._begin(empty)
            self._open = kind
        self._pieces.append(text)
        yield _delta(self._next - 1, {"type": f"{kind}_delta", kind: text})

    def _reasoning(self, data: bytes, text: str) -> Iterator[bytes]:
        if self._open == "thinking":
            yield from self._close()
        elif text:
            yield from self._more("thinking", text)
            yield from self._close()
        else:
            yield from self._close()
            block = {"type": "redacted_thinking", "data": data.hex()}
            yield self._begin(block)
            self._blocks.append(block)
            yield _stop(self._next - 1)

    def _begin_call(self, index: int, name: str, name_id: str) -> Iterator[bytes]:
        yield from self._close()
        self._called = True
        block = {"type": "tool_use", "id": name_id or f"toolu_{self._next:024}", "name": name, "input": {}}
        self._calls[index] = (self._next, block, [])
        yield self._begin(block)
        yield _delta(self._next - 1, {"type": "input_json_delta", "partial_json": ""})

    def _end_call(self, index: int) -> bytes:
        number, block, pieces = self._calls.pop(index)
        with suppress(msgspec.DecodeError):  # of half a call
            block = {**block, "input": msgspec.json.decode("".join(pieces) or "{}")}
        self._blocks.append(block)
        return _stop(number)

    def _begin(self, block: Mapping[str, Any]) -> bytes:
        self._next += 1
        return _event("content_block_start", {"index": self._next - 1, "content_block": block})

    def _close(self) -> Iterator[bytes]:
        """End the block that is being written, if it is no call."""
        kind, text = self._open, join_surrogates("".join(self._pieces))
        self._open, self._pieces = "", []
        if kind == "thinking":
            signature = self._seal.sign(text, place_of(self._body, self._body["messages"], self._blocks))
            yield _delta(self._next - 1, {"type": "signature_delta", "signature": signature})
            self._blocks.append(_thought(text, signature))
        elif kind == "text":
            self._blocks.append({"type": "text", "text": text})
        if kind:
            yield _stop(self._next - 1)

    def _finish(self, reason: str, usage: Usage) -> Iterator[bytes]:
        yield from self._close()
        for index in list(self._calls):
            yield self._end_call(index)  # also of a call that the limit cuts off
        stop = STOPS.get(reason) or self._stop_reason or ("tool_use" if self._called else "end_turn")
        details = {"type": "refusal", "category": None, "explanation": None} if stop == "refusal" else None
        delta = {"stop_reason": stop, "stop_sequence": None, "stop_details": details}
        yield _event("message_delta", {"delta": delta, "usage": _counts(usage)})
        yield _event("message_stop", {})


def _counts(usage: Usage) -> dict[str, int]:
    return {
        "input_tokens": usage.input - usage.cached,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": usage.cached,
        "output_tokens": usage.output,
    }


def _thought(text: str, signature: str) -> dict[str, Any]:
    return {"type": "thinking", "thinking": text, "signature": signature}


def _event(kind: str, fields: Mapping[str, Any]) -> bytes:
    return f"event: {kind}\ndata: ".encode() + msgspec.json.encode({"type": kind, **fields}) + b"\n\n"


def _delta(index: int, delta: Mapping[str, Any]) -> bytes:
    return _event("content_block_delta", {"index": index, "delta": delta})


def _stop(index: int) -> bytes:
    return _event("content_block_stop", {"index": index})


def _json(value: Any) -> Raw:
    return Raw(body=msgspec.json.encode(value))


def error_answer(status: int, kind: str, message: str, headers: Mapping[str, str] | None = None) -> Raw:
    """Return an error as the API answers with it."""
    body = {"type": "error", "error": {"type": kind, "message": message}, "request_id": "req_fake"}
    return Raw(status, {"content-type": "application/json", **(headers or {})}, msgspec.json.encode(body))


def _named(failure: ModelError) -> tuple[int, str]:
    for kind, status, name in ERRORS:
        if isinstance(failure, kind):
            return status, name
    return HTTPStatus.INTERNAL_SERVER_ERROR, "api_error"
