"""What the tests of the Converse dialect have in common."""

import base64
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import msgspec

from hibernaut.auth import Bearer
from hibernaut.kernel.turn import Turn, TurnBuffer
from hibernaut.messages.stream import StreamPiece
from hibernaut.models.bedrock.dialect import ConverseDialect
from hibernaut.models.dialect import Frame
from hibernaut.models.endpoint import Endpoint
from hibernaut.models.http_model import HttpModel
from hibernaut.models.protocol import About, ModelInfo, ModelRequest, Settings
from hibernaut.testing.providers.bedrock import TOKEN, ConverseWire, signature_of
from hibernaut.testing.providers.bedrock_checks import MODELS
from hibernaut.testing.providers.server import FakeProvider, FakeScript

CLAUDE = "us.anthropic.claude-sonnet-4-5-20250929-v1:0"
ADAPTIVE = "global.anthropic.claude-opus-4-6-v1"
OLD_CLAUDE = "anthropic.claude-3-haiku-20240307-v1:0"
NOVA = "us.amazon.nova-pro-v1:0"
LLAMA = "us.meta.llama4-maverick-17b-instruct-v1:0"
ALL = tuple(MODELS)
BEARER = {"authorization": f"Bearer {TOKEN}"}

THOUGHT = msgspec.json.encode({"reasoningText": {"text": "hm", "signature": signature_of(b"1", "hm")}})
REDACTED = msgspec.json.encode({"redactedContent": base64.b64encode(b"secret").decode()})


def about(model_id: str = CLAUDE, **settings: Any) -> About:
    return About(model_id, ModelInfo(), Settings(**settings))


def offline(model_id: str = CLAUDE, **settings: Any) -> HttpModel:
    """Return a model that writes requests and is never asked."""
    return HttpModel(Endpoint("bedrock", "http://nowhere.invalid"), ConverseDialect(), about(model_id, **settings))


def body_of(asked: ModelRequest, model_id: str = CLAUDE, **settings: Any) -> Any:
    return msgspec.json.decode(offline(model_id, **settings).sent(asked).body)


@asynccontextmanager
async def bedrock(
    script: FakeScript, model_id: str = CLAUDE, *, chunks: int | None = None, **settings: Any
) -> AsyncIterator[HttpModel]:
    """Open a model before a strict fake."""
    async with FakeProvider(ConverseWire(), script, chunks=chunks) as fake:
        endpoint = Endpoint("bedrock", fake.url, auth=Bearer(TOKEN))
        try:
            yield HttpModel(endpoint, ConverseDialect(), about(model_id, **settings))
        finally:
            await endpoint.close()


def read(*events: tuple[str, Any]) -> list[StreamPiece]:
    """Return the pieces of an answer whose events are given by kind and value, or text."""
    reader = ConverseDialect().reader()
    pieces: list[StreamPiece] = []
    for kind, value in events:
        data = value if isinstance(value, str) else msgspec.json.encode(value).decode()
        pieces += reader.feed(Frame(kind, data))
    return [*pieces, *reader.end()]


def whole(pieces: Sequence[StreamPiece]) -> Turn:
    buffer = TurnBuffer()
    buffer.feed_all(pieces)
    return buffer.turn()


def kinds(messages: Sequence[Any]) -> list[list[str]]:
    """Return the kinds of the blocks of messages."""
    return [[next(iter(block)) for block in message["content"]] for message in messages]
