"""Receipts: the runtime's own record of a slice round, hash-chained, made outside the model's prose.

A receipt is stored beside the page it is about. It names the SHA-256 of the receipt before it, so no receipt can be
changed or left out unseen, and the digest of the history after it, so no page can.
"""

from enum import IntEnum
from typing import Final

import msgspec

from hibernaut.codec import decoder_of, pack, sha256, unpack
from hibernaut.errors import StoreCorrupt
from hibernaut.messages.events import Usage


class TurnCommit(IntEnum):
    """What a round committed of a turn."""

    NONE = 0
    """The model was not asked."""
    COMPLETE = 1
    INTERRUPTED = 2
    """The user cut it short; its visible text was kept."""
    FAILED = 3
    """The completion came to nothing."""
    SUMMARIZED = 4
    """The model was asked for a summary of the history, and gave one."""
    NOT_SUMMARIZED = 5
    """It was asked for one, and that came to nothing."""


class Receipt(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What one round did. Fields may be added at the end, with a default."""

    version: int
    """Head version that the round made."""
    previous: bytes
    """SHA-256 of the receipt before it; empty for the first."""
    history: bytes
    """History digest after the round; the one before is in the receipt before."""
    inputs: tuple[tuple[str, int], ...]
    """Message id and `Disposition` of every input."""
    turn: TurnCommit
    calls: tuple[str, ...] = ()
    """Ids of the calls that the turn made; each is the request id of its effect."""
    owes: tuple[int | str, ...] = ()
    """The effects that this commit owes, by request id; a number stands for that one of `calls`. See `dispatched`."""
    settled: tuple[str, ...] = ()
    """Request ids of effects that are over with this commit."""
    usage: Usage | None = None
    model: str = ""
    """The model that was asked, if it is another than the launch configuration's."""
    shown: int = 0
    """Items of this round's page that the model was shown; the rest of the page is what it said. It was asked with all
    the history before, and these."""
    attempt: int = 0
    """Names the completion; unique for the thread."""
    failures: int = 0
    """Completions that had failed in a row after this round."""
    started: int = 0
    """When the slice began, milliseconds since 1970."""
    took: int = 0
    """Milliseconds until the commit."""
    tools: bytes = b""
    """Digest of the tool definitions, when they are not those of the receipt before."""
    config: bytes = b""
    """Digest of the launch configuration, in the first receipt."""
    build: str = ""
    """Version of Hibernaut, when it is not that of the receipt before."""
    authority: bytes = b""
    """Digest of the authority, when it is not that of the receipt before."""
    provenance: tuple[int | tuple[str, ...], ...] = ()
    """Who handed in each of `inputs`, and what for, where its id does not say so: see `hibernaut.kernel.provenance`."""
    edited: tuple[tuple[str, bytes, bytes], ...] = ()
    """What operators changed of messages that waited: message id, digest of what it said before, of what it says now;
    in the order of the inputs that decided so."""
    estimated: int = 0
    """How many of the tokens in `usage` are an estimate: no provider says what a completion took that was cut short."""

    @property
    def dispatched(self) -> tuple[str, ...]:
        """Request ids of the effects that this commit owes."""
        return tuple([self.calls[one] if isinstance(one, int) else one for one in self.owes])

    @property
    def origins(self) -> tuple[int | tuple[str, ...], ...]:
        """The provenance of each of the inputs, those that say nothing included."""
        return self.provenance + (0,) * (len(self.inputs) - len(self.provenance))


_decoder = decoder_of(Receipt)

_DEFAULTS: Final[tuple[object, ...]] = Receipt.__struct_defaults__
_REQUIRED: Final = len(Receipt.__struct_fields__) - len(_DEFAULTS)
_RARE: Final = Receipt.__struct_fields__.index("tools")
"""Where the fields begin of which most receipts have none."""
_NONE_RARE: Final = _DEFAULTS[_RARE - _REQUIRED :]


def encode_receipt(receipt: Receipt) -> bytes:
    """Write a receipt; the fields at its end that have their defaults are left out."""
    values = msgspec.structs.astuple(receipt)
    last = _RARE if values[_RARE:] == _NONE_RARE else len(values)
    while last > _REQUIRED and values[last - 1] == _DEFAULTS[last - 1 - _REQUIRED]:
        last -= 1
    return pack(values[:last])


def decode_receipt(data: bytes) -> Receipt:
    """Read a receipt.

    Raises:
        StoreCorrupt: it is not one.
    """
    receipt = unpack(data, _decoder, "a receipt")
    made = len(receipt.calls)
    if not all(isinstance(one, str) or 0 <= one < made for one in receipt.owes):
        raise StoreCorrupt("a receipt cannot be read: it owes a call that it does not have")
    if len(receipt.provenance) > len(receipt.inputs):
        raise StoreCorrupt("a receipt cannot be read: it says where more inputs came from than it has")
    return receipt


def next_history(before: bytes, page: bytes) -> bytes:
    """Return the history digest after a page: SHA-256 of the digest before and the page; no page changes nothing."""
    return sha256(before, page) if page else before
