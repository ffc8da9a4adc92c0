"""Models behind a fake Anthropic, and requests."""

from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final

from hibernaut.auth import Bearer, Headers
from hibernaut.messages.events import Usage
from hibernaut.messages.items import ReasoningItem
from hibernaut.messages.stream import ReasoningBlock, StreamPiece
from hibernaut.models.anthropic.dialect import AnthropicDialect
from hibernaut.models.anthropic.platforms import BEDROCK, VERTEX
from hibernaut.models.dialect import Frame
from hibernaut.models.endpoint import Endpoint
from hibernaut.models.http_model import HttpModel
from hibernaut.models.http_provider import HttpProvider
from hibernaut.models.protocol import About, Model, ModelInfo, Settings
from hibernaut.testing.providers.anthropic import AnthropicWire, BedrockWire, VertexWire
from hibernaut.testing.providers.anthropic_checks import KNOWN
from hibernaut.testing.providers.server import Chunks, FakeProvider, FakeScript
from hibernaut.testing.providers.wire import Asked

KEY: Final = "sk-ant-fake"
HEADERS: Final = {"x-api-key": KEY}
MODELS: Final = sorted(KNOWN)
BUDGET: Final = "claude-haiku-4-5-20251001"
BOUND: Final = "claude-opus-5-5"


def about(model: str = BUDGET, info: ModelInfo | None = None, **settings: Any) -> About:
    return About(model, info or ModelInfo(), Settings(**settings))


def model_at(url: str = "http://127.0.0.1:9", of: About | None = None, **dialect: Any) -> HttpModel:
    return HttpModel(Endpoint("anthropic", url, auth=Headers(HEADERS)), AnthropicDialect(**dialect), of or about())


@asynccontextmanager
async def talking(
    script: FakeScript,
    of: About | None = None,
    *,
    wire: AnthropicWire | None = None,
    chunks: Chunks | None = None,
) -> AsyncIterator[tuple[HttpModel, FakeProvider]]:
    """Open a fake and a model that asks it."""
    async with FakeProvider(wire or AnthropicWire(KEY), script, chunks=chunks) as fake:
        model = model_at(fake.url, of)
        try:
            yield model, fake
        finally:
            await model._endpoint.close()


@asynccontextmanager
async def elsewhere(kind: str, script: FakeScript, model: str, **settings: Any) -> AsyncIterator[Model]:
    """Open a model behind another platform."""
    wire = VertexWire("token") if kind == "vertex" else BedrockWire("token")
    platform = VERTEX if kind == "vertex" else BEDROCK
    async with FakeProvider(wire, script) as fake:
        endpoint = Endpoint(kind, fake.url, auth=Bearer("token"))
        provider = HttpProvider(endpoint, AnthropicDialect(platform))
        try:
            yield provider.model(about(model, **settings))
        finally:
            await provider.close()


def frames(events: Sequence[bytes]) -> Iterator[Frame]:
    for event in events:
        kind, _, data = event.decode().strip().rpartition("data: ")
        yield Frame(kind.removeprefix("event: ").strip(), data)


def read(events: Sequence[bytes]) -> list[StreamPiece]:
    """Read an answer that consists of these events."""
    reader = AnthropicDialect().reader()
    pieces = [piece for frame in frames(events) for piece in reader.feed(frame)]
    return [*pieces, *reader.end()]


def own_reasoning(wire: AnthropicWire) -> list[ReasoningItem]:
    """Return blocks of thinking that a fake has signed, with and without words."""
    body = {"messages": [{"role": "user", "content": "x"}]}
    made: list[ReasoningItem] = []
    for text, data in (("Let me see. 🦉", b""), ("", b"hidden")):
        encoder = wire.encoder(Asked("POST", "/v1/messages", {}, body))
        events = [*encoder.feed(ReasoningBlock("scripted", data, text))]
        made += [
            ReasoningItem(piece.provider, piece.data, piece.text)
            for piece in read(events)
            if isinstance(piece, ReasoningBlock)
        ]
    return made


USAGE: Final = Usage(1_200, 34, 1_000)
