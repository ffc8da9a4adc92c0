"""Random valid transcripts for property tests, and what every adapter's strict fake says of them."""

from collections.abc import Sequence
from typing import Any

from hypothesis import strategies as st

from hibernaut.messages.items import Item, ReasoningItem
from hibernaut.messages.tools import ToolSpec
from hibernaut.models.http_model import HttpModel
from hibernaut.models.protocol import Memo, ModelRequest
from hibernaut.testing.model_transcripts import random_transcript
from hibernaut.testing.providers.wire import Asked, FakeWire, Raw

LOOK = ToolSpec("look", "Looks.", '{"type":"object","properties":{"path":{"type":"string"}},"required":["path"]}')


def transcripts(
    own: Sequence[ReasoningItem] = (), call_data: Sequence[bytes] = (b"",), *, images: bool = True
) -> st.SearchStrategy[list[Item]]:
    """Return transcripts of every shape; the reasoning of the adapter's own dialect may be among them."""
    return st.randoms(use_true_random=False).map(
        lambda random: random_transcript(random, own, call_data, images=images)
    )


def request(
    *transcript: Item, tools: Sequence[ToolSpec] = (LOOK,), memo: Memo | None = None, **more: Any
) -> ModelRequest:
    return ModelRequest("p:m", "Be kind.", transcript, tuple(tools), "t1", memo=memo, **more)


def posted(model: HttpModel, asked: ModelRequest, headers: dict[str, str]) -> Asked:
    """Return the request as it arrives at the provider, without a connection in between."""
    sent = model.sent(asked)
    return Asked.of("POST", sent.path, {"content-type": "application/json", **headers, **sent.headers}, sent.body)


def verdict(wire: FakeWire, model: HttpModel, asked: ModelRequest, headers: dict[str, str]) -> Raw | None:
    """Return what a strict fake answers to a request; None: it would take it."""
    return wire.check(posted(model, asked, headers))
