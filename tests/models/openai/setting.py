"""Models of OpenAI's APIs, with and without a connection."""

from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing, asynccontextmanager
from typing import Any

import msgspec

from hibernaut.messages.items import Item, UserItem
from hibernaut.messages.stream import StreamPiece
from hibernaut.messages.tools import ToolSpec
from hibernaut.models.dialect import Dialect
from hibernaut.models.endpoint import Endpoint
from hibernaut.models.http_model import HttpModel
from hibernaut.models.openai.chat import ChatDialect
from hibernaut.models.openai.servers import server_of
from hibernaut.models.protocol import About, Memo, Model, ModelInfo, ModelRequest, Settings
from hibernaut.testing.model_transcripts import png
from hibernaut.testing.providers.server import Chunks, FakeProvider, FakeScript
from hibernaut.testing.providers.wire import Asked, FakeWire, Raw

LOOK = ToolSpec("look", "Looks.", '{"type":"object","properties":{"path":{"type":"string"}},"required":["path"]}')
HELLO = UserItem("Say hello.")
PICTURE = png()


def asking(*transcript: Item, tools: Sequence[ToolSpec] = (), memo: Memo | None = None, **more: Any) -> ModelRequest:
    known = {"thread_id": "t1", "tree_id": "root", **more}
    return ModelRequest("p:m", "Be kind.", transcript or (HELLO,), tuple(tools), memo=memo, **known)


def model_of(dialect: Dialect, model_id: str = "gpt-5", info: ModelInfo | None = None, **settings: Any) -> HttpModel:
    """Return a model that can write requests; there is nobody to send them to."""
    about = About(model_id, info or ModelInfo(), Settings(**settings))
    return HttpModel(Endpoint("nobody", "http://127.0.0.1:9"), dialect, about)


def chat(server: str, model_id: str = "some-model", **settings: Any) -> HttpModel:
    return model_of(ChatDialect(server_of(server)), model_id, **settings)


def body_of(model: HttpModel, request: ModelRequest) -> Any:
    return msgspec.json.decode(model.sent(request).body)


def verdict(wire: FakeWire, model: HttpModel, request: ModelRequest) -> Raw | None:
    """Return what a strict fake says to a request; None: it takes it."""
    sent = model.sent(request)
    return wire.check(Asked.of("POST", sent.path, sent.headers, sent.body))


@asynccontextmanager
async def served(
    wire: FakeWire, dialect: Dialect, script: FakeScript, *, model_id: str = "gpt-5", chunks: Chunks | None = None
) -> AsyncIterator[tuple[HttpModel, FakeProvider]]:
    """Open a model behind which a script is played, and its provider."""
    async with FakeProvider(wire, script, chunks=chunks) as fake:
        endpoint = Endpoint("fake", fake.url)
        yield HttpModel(endpoint, dialect, About(model_id)), fake
        await endpoint.close()


async def pieces_of(model: Model, request: ModelRequest) -> list[StreamPiece]:
    async with aclosing(model.stream(request)) as stream:
        return [piece async for piece in stream]
