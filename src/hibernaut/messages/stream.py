"""The pieces in which a model's turn arrives, whichever provider it is."""

from typing import Literal

import msgspec

from hibernaut.messages.events import Usage


class _Piece(msgspec.Struct, frozen=True, gc=False):
    pass


class TextDelta(_Piece, frozen=True):
    """More visible text."""

    text: str


class ThinkingDelta(_Piece, frozen=True):
    """More of the reasoning that people may read. Shown, never stored."""

    text: str


class ReasoningBlock(_Piece, frozen=True):
    """A complete block of reasoning in the provider's own form, to be replayed byte for byte."""

    provider: str
    data: bytes
    text: str = ""


class CallStarted(_Piece, frozen=True):
    """A tool call begins. `index` tells calls that are written at the same time apart."""

    index: int
    name: str
    provider_id: str = ""


class CallDelta(_Piece, frozen=True):
    """More of a call's arguments, as JSON text."""

    index: int
    arguments: str


class CallEnded(_Piece, frozen=True):
    """A tool call is complete. `data`: what the provider wants back with it."""

    index: int
    data: bytes = b""


class Counted(_Piece, frozen=True):
    """What the provider has counted so far. The last one counts, and only if no `Finish` follows."""

    usage: Usage
    """Without an `input` it says nothing of the prompt."""
    written: int = 0
    """As in `Finish`."""


StopReason = Literal["end", "length", "refused"]


class Finish(_Piece, frozen=True):
    """The turn is complete. Last piece; a stream that ends without it has failed."""

    reason: StopReason = "end"
    usage: Usage = Usage()
    written: int = 0
    """Tokens of the prompt that the provider has put into its cache, where that costs more."""


StreamPiece = TextDelta | ThinkingDelta | ReasoningBlock | CallStarted | CallDelta | CallEnded | Counted | Finish
