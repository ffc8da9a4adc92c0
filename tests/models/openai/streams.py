"""Answers of OpenAI's APIs as tests write them down, read without a connection."""

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from hibernaut.kernel.turn import Turn, TurnBuffer
from hibernaut.messages.stream import StreamPiece
from hibernaut.models.dialect import Frame, Reader


def read(reader: Reader, *events: Any) -> list[StreamPiece]:
    """Feed events to a reader: texts as they are, everything else as JSON. Then the stream ends."""
    found: list[StreamPiece] = []
    for event in events:
        found += reader.feed(frame(event))
    return [*found, *reader.end()]


def frame(event: Any) -> Frame:
    return Frame("message", event if isinstance(event, str) else msgspec.json.encode(event).decode())


def turn_of(pieces: Iterable[StreamPiece]) -> Turn:
    buffer = TurnBuffer()
    buffer.feed_all(pieces)
    return buffer.turn()


def chunk(reason: str | None = None, /, **delta: Any) -> dict[str, Any]:
    """Return a chunk of the Chat API."""
    return {"id": "c", "choices": [{"index": 0, "delta": delta, "finish_reason": reason}]}


def call_chunk(*calls: dict[str, Any]) -> dict[str, Any]:
    return chunk(tool_calls=list(calls))


def piece(name: str | None = None, arguments: Any = None, **more: Any) -> dict[str, Any]:
    """Return a piece of a call; what is None is left out."""
    function = {key: value for key, value in (("name", name), ("arguments", arguments)) if value is not None}
    return {"function": function, **more}


def sse(events: Sequence[Any]) -> bytes:
    """Return events as a stream."""
    texts = [event if isinstance(event, str) else msgspec.json.encode(event).decode() for event in events]
    return "".join([f"data: {text}\n\n" for text in texts]).encode()
