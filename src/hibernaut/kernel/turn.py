"""From the pieces of a stream to a turn. Nothing of it is history until the turn is complete."""

from collections.abc import Iterable
from typing import Literal

import msgspec

from hibernaut.messages.events import Usage
from hibernaut.messages.stream import (
    CallDelta,
    CallEnded,
    CallStarted,
    Finish,
    ReasoningBlock,
    StopReason,
    StreamPiece,
    TextDelta,
)
from hibernaut.messages.text import clean


class TurnText(msgspec.Struct, frozen=True, gc=False):
    """A run of text, cleaned."""

    text: str


class TurnCall(msgspec.Struct, gc=False):
    """A call that is being written, or is `complete`."""

    name: str
    provider_id: str = ""
    pieces: list[str] = []
    data: bytes = b""
    complete: bool = False

    @property
    def arguments(self) -> str:
        """Its arguments, as the model wrote them."""
        return "".join(self.pieces)


TurnPart = TurnText | TurnCall | ReasoningBlock


class Turn(msgspec.Struct, frozen=True, gc=False):
    """What a model said in one completion, in order."""

    parts: tuple[TurnPart, ...]
    reason: StopReason | Literal["interrupted"]
    usage: Usage = Usage()
    cost: int | None = None
    """Millionths of a US dollar; None: nobody knows."""


class TurnBuffer(msgspec.Struct, eq=False, gc=False):
    """Collects the pieces of one stream."""

    finish: Finish | None = None
    """The last piece, once it is there."""
    _parts: list[list[str] | TurnCall | ReasoningBlock] = []
    _run: list[str] | None = None
    _calls: dict[int, TurnCall] = {}

    def feed(self, piece: StreamPiece) -> None:
        """Take the next piece. Pieces after the last one are ignored, and so is what belongs to no call."""
        if self.finish is not None:
            return
        if type(piece) is Finish:
            self._run = None
            self.finish = piece
        elif type(piece) is TextDelta:
            self._say([piece.text])
        elif type(piece) is CallDelta:
            if piece.index in self._calls:
                self._calls[piece.index].pieces.append(piece.arguments)
        elif type(piece) is CallEnded:
            if piece.index in self._calls:
                call = self._calls.pop(piece.index)
                call.complete, call.data = True, piece.data
        elif type(piece) is CallStarted:
            self._begin(TurnCall(clean(piece.name), clean(piece.provider_id)), piece.index)
        elif type(piece) is ReasoningBlock:
            self._run = None
            self._parts.append(ReasoningBlock(piece.provider, piece.data, clean(piece.text)))

    def feed_all(self, pieces: Iterable[StreamPiece]) -> None:
        """Take the next pieces. Most of them are texts, which are taken together."""
        texts: list[str] = []
        for piece in pieces:
            if type(piece) is TextDelta:
                texts.append(piece.text)
                continue
            if texts:
                self._say(texts)
                texts = []
            self.feed(piece)
        if texts:
            self._say(texts)

    def _say(self, texts: list[str]) -> None:
        if self.finish is not None:
            return
        if self._run is not None:
            self._run += texts
        elif any(texts):
            self._run = texts
            self._parts.append(texts)

    def _begin(self, call: TurnCall, index: int) -> None:
        self._run = None
        self._parts.append(call)
        self._calls[index] = call

    def turn(self, cost: int | None = None) -> Turn:
        """Return the complete turn, with what it cost. Only when `finish` is there."""
        if self.finish is None:
            raise ValueError("the turn is not complete")
        parts = tuple([_whole(part) if isinstance(part, list) else part for part in self._parts])
        return Turn(parts, self.finish.reason, self.finish.usage, cost)

    def interrupted(self) -> Turn:
        """Return what may stay of a turn that was cut short: its visible text so far."""
        return Turn(tuple([_whole(part) for part in self._parts if isinstance(part, list)]), "interrupted")

    def visible(self) -> str:
        """Return all visible text so far."""
        return "".join([_whole(part).text for part in self._parts if isinstance(part, list)])


def _whole(pieces: list[str]) -> TurnText:
    # Cleaned as a whole: a character that was cut in two between pieces is one again.
    return TurnText(clean("".join(pieces)))
