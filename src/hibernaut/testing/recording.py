"""Completions that were made once by a real model, kept in a file, and played back from then on.

    model = RecordedModel("tests/recorded/build.jsonl", model=Providers().resolve("anthropic:claude-haiku-4-5"))

What is recorded is played back; what is not is asked of `model` and recorded. Without a `model`, as in a test run, it
is an error that says what is new in the request. A file holds what was said to and by the model, and neither keys nor
headers: those never reach this place.
"""

import difflib
import re
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import Any

import msgspec

from hibernaut.codec import sha256
from hibernaut.errors import ConfigurationError
from hibernaut.messages.items import CallItem, Item, ReasoningItem, ResultItem, TextItem, UserItem
from hibernaut.messages.parts import Content, Image, Part
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
from hibernaut.models.protocol import Model, ModelInfo, ModelRequest

DIFFERENT_LINES = 12
"""Lines of a difference that an error shows."""


class NotRecorded(AssertionError):
    """A request came that was not recorded, and there is no model to ask."""


class _Record(msgspec.Struct, frozen=True, omit_defaults=True):
    """One line of a file."""

    request: str
    """SHA-256 of what was asked."""
    asked: list[str]
    """What was asked, for people, and for the difference to what is asked instead."""
    said: list[list[Any]]
    info: dict[str, Any] = {}


class RecordedModel:
    """A `Model` that plays back what another one has said.

    Requests are told apart by what a model is shown: instructions, tools and transcript. Ids that the runtime draws
    anew in every run count by their order only.

    Args:
        path: the file, JSON lines. It is made when something is first recorded.
        model: who is asked what is not in it; None: nobody.
    """

    def __init__(self, path: str | Path, model: Model | None = None) -> None:
        self._path = Path(path)
        self._model = model
        self._records: dict[str, list[_Record]] = {}
        self._played: dict[str, int] = {}
        for number, line in enumerate(self._path.read_bytes().splitlines() if self._path.exists() else (), 1):
            try:
                record = msgspec.json.decode(line, type=_Record)
            except (msgspec.DecodeError, UnicodeDecodeError) as error:
                raise ConfigurationError(f"{self._path}, line {number}, is no recorded completion: {error}") from error
            self._records.setdefault(record.request, []).append(record)
        if model is None and not self._records:
            raise ConfigurationError(f"nothing is recorded in {self._path}, and there is no model to ask")

    @property
    def info(self) -> ModelInfo:
        """What is known of the model that was recorded."""
        if self._model is not None:
            return self._model.info
        first = next(iter(self._records.values()))[0]
        return msgspec.convert(first.info, ModelInfo)

    async def stream(self, request: ModelRequest) -> AsyncGenerator[StreamPiece, None]:
        """Play back what was said to this request; the same one again gets what was said the next time, if it was."""
        asked = _shown(request)
        name = sha256("\n".join(asked).encode()).hex()
        records = self._records.get(name, [])
        turn = self._played.get(name, 0)
        if turn < len(records) or (records and self._model is None):
            self._played[name] = turn + 1
            for fields in records[min(turn, len(records) - 1)].said:
                yield _piece(fields)
            return
        if self._model is None:
            raise NotRecorded(f"this was not recorded in {self._path}; what is new:\n{self._difference(asked)}")
        pieces: list[StreamPiece] = []
        async with aclosing(self._model.stream(request)) as stream:
            async for piece in stream:
                pieces.append(piece)
                yield piece
        if pieces and isinstance(pieces[-1], Finish):
            self._keep(_Record(name, asked, [_fields(piece) for piece in pieces], msgspec.to_builtins(self.info)))
            self._played[name] = turn + 1

    def _keep(self, record: _Record) -> None:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with self._path.open("ab") as file:
            file.write(msgspec.json.encode(record) + b"\n")
        self._records.setdefault(record.request, []).append(record)

    def _difference(self, asked: Sequence[str]) -> str:
        """Return what is different from the recorded request that is most like this one."""
        recorded = [record.asked for records in self._records.values() for record in records]
        nearest = max(recorded, key=lambda one: difflib.SequenceMatcher(None, one, asked, autojunk=False).ratio())
        lines = [line for line in difflib.ndiff(nearest, asked) if line[:1] in "+-"]
        more = [f"… and {len(lines) - DIFFERENT_LINES} more lines"] if len(lines) > DIFFERENT_LINES else []
        return "\n".join([*lines[:DIFFERENT_LINES], *more])


_PIECES: dict[str, type[StreamPiece]] = {
    "text": TextDelta,
    "thinking": ThinkingDelta,
    "reasoning": ReasoningBlock,
    "call": CallStarted,
    "arguments": CallDelta,
    "called": CallEnded,
    "finish": Finish,
}
_NAMES = {kind: name for name, kind in _PIECES.items()}


def _fields(piece: StreamPiece) -> list[Any]:
    """Return a piece as it stands in a file: its name, then its fields. Bytes are base64 there."""
    return [_NAMES[type(piece)], msgspec.to_builtins(msgspec.structs.asdict(piece))]


def _piece(fields: list[Any]) -> StreamPiece:
    name, values = fields
    piece: StreamPiece = msgspec.convert(values, _PIECES[name])
    return piece


_DRAWN = re.compile(r"\b(call|event|thread|msg|q)_([0-9a-hjkmnp-tv-z]{24}|[0-9a-hjkmnp-tv-z]{16})\b")
"""Ids that the runtime draws, or derives from drawn ones (see `hibernaut.ids`)."""


def _shown(request: ModelRequest) -> list[str]:
    """Return what a model is shown, as lines. Drawn ids are numbered in the order in which they come."""
    tools = [f"tool {spec.name}: {spec.description} {spec.parameters}" for spec in request.tools]
    items = [_line(item) for item in request.transcript]
    lines = [f"purpose {request.purpose}", f"told {request.instructions}", *tools, *items]
    order: dict[str, str] = {request.thread_id: "#this"}

    def numbered(found: re.Match[str]) -> str:
        return order.setdefault(found[0], f"#{len(order)}")

    return [_DRAWN.sub(numbered, line.replace(request.thread_id, "#this")) for line in lines]


def _line(item: Item) -> str:
    if isinstance(item, UserItem):
        return f"user {_content(item.content)}"
    if isinstance(item, TextItem):
        return f"model {item.text}"
    if isinstance(item, ReasoningItem):
        return f"reasoning {sha256(item.data).hex()[:16]}"
    if isinstance(item, CallItem):
        return f"call {item.id} {item.name} {item.arguments}"
    if isinstance(item, ResultItem):
        failed = " failed" if item.is_error else ""
        return f"result {item.call_id}{failed} {_content(item.content)}"
    return f"item {type(item).__name__}"


def _content(content: Content) -> str:
    if isinstance(content, str):
        return content
    return " ".join([_part(part) for part in content])


def _part(part: Part) -> str:
    if isinstance(part, Image):
        return f"[{part.media_type} {(part.blob or sha256(part.data)).hex()[:16]}{part.url}]"
    return part.text
