"""What the tests of the Gemini dialect have in common."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import msgspec

from hibernaut.auth import Bearer, Headers
from hibernaut.messages.events import Usage
from hibernaut.messages.stream import StreamPiece
from hibernaut.models.dialect import Frame
from hibernaut.models.endpoint import Endpoint
from hibernaut.models.google.dialect import GeminiDialect
from hibernaut.models.google.provider import KEY_HEADER
from hibernaut.models.google.rules import GEMINI_API, VERTEX, Platform
from hibernaut.models.http_model import HttpModel
from hibernaut.models.protocol import About, ModelInfo, ModelRequest, Settings
from hibernaut.testing.providers.google import KEY, GeminiWire
from hibernaut.testing.providers.server import FakeProvider, FakeScript

NEWEST = "gemini-3.5-flash"
OLDER = "gemini-2.5-flash"
OLDEST = "gemini-2.0-flash"
HEADERS = {KEY_HEADER: KEY}
BEARER = {"authorization": f"Bearer {KEY}"}

ALL = [
    (GEMINI_API, NEWEST),
    (GEMINI_API, "gemini-3-pro-preview"),
    (GEMINI_API, OLDER),
    (GEMINI_API, OLDEST),
    (VERTEX, NEWEST),
    (VERTEX, OLDER),
]
"""Platforms and models whose rules differ."""


def about(model_id: str = NEWEST, **settings: Any) -> About:
    return About(model_id, ModelInfo(), Settings(**settings))


def offline(platform: Platform = GEMINI_API, model_id: str = NEWEST, **settings: Any) -> HttpModel:
    """Return a model that writes requests and is never asked."""
    return HttpModel(Endpoint("gemini", "http://nowhere.invalid"), GeminiDialect(platform), about(model_id, **settings))


def body_of(asked: ModelRequest, platform: Platform = GEMINI_API, model_id: str = NEWEST, **settings: Any) -> Any:
    return msgspec.json.decode(offline(platform, model_id, **settings).sent(asked).body)


@asynccontextmanager
async def gemini(
    script: FakeScript, platform: Platform = GEMINI_API, model_id: str = NEWEST, *, chunks: int | None = None
) -> AsyncIterator[HttpModel]:
    """Open a model before a strict fake."""
    wire = GeminiWire(vertex=platform is VERTEX)
    async with FakeProvider(wire, script, chunks=chunks) as fake:
        auth = Bearer(KEY) if platform is VERTEX else Headers({KEY_HEADER: KEY})
        endpoint = Endpoint("gemini", fake.url, auth=auth)
        try:
            yield HttpModel(endpoint, GeminiDialect(platform), about(model_id))
        finally:
            await endpoint.close()


def read(*events: Any, platform: Platform = GEMINI_API) -> list[StreamPiece]:
    """Return the pieces of an answer whose events are given as values, or as text."""
    reader = GeminiDialect(platform).reader()
    pieces: list[StreamPiece] = []
    for event in events:
        data = event if isinstance(event, str) else msgspec.json.encode(event).decode()
        pieces += reader.feed(Frame("message", data))
    return [*pieces, *reader.end()]


def parts(*given: Any, reason: str = "", usage: Usage | None = None) -> dict[str, Any]:
    """Return an event with these parts."""
    candidate: dict[str, Any] = {"content": {"role": "model", "parts": list(given)}, "index": 0}
    event: dict[str, Any] = {"candidates": [candidate]}
    if reason:
        candidate["finishReason"] = reason
    if usage is not None:
        event["usageMetadata"] = {"promptTokenCount": usage.input, "candidatesTokenCount": usage.output}
    return event


def kinds(contents: Sequence[Any]) -> list[list[str]]:
    """Return the kinds of the parts of contents."""
    return [[next(iter(part)) for part in content["parts"]] for content in contents]
