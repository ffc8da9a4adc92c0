"""Receipts without what follows from the rows before them: how a store may keep many of one thread together.

Of the 157 bytes of an ordinary receipt 70 are its version, the digest of the receipt before it, and the digest of the
history after it. All three follow from the row before and the page beside, so of rows that are kept together only the
first needs them. Another 30 are ids of calls, which stand in the page, too. What is read back is the same, byte for
byte; a receipt that does not follow is kept whole.
"""

import struct
from collections.abc import Iterable, Sequence

from hibernaut.codec import pack, sha256
from hibernaut.errors import StoreCorrupt
from hibernaut.kernel.receipt import decode_receipt, next_history

_SHORT_ARRAY, _LONG_ARRAY, _MOST_SHORT = 0x90, 0xDC, 0x0F
"""How msgpack begins an array: one byte with the number of its fields, up to so many, or that of another and two."""

_WHOLE = 0xFF
"""Stands before a receipt that is kept whole; before a shortened one stands how many fields it has in all, then how
many call ids are left out of it, and for each a `_REFERENCE`."""

_CALL, _REST_OF_CALL_ID = b"call_", 16
"""How an id of a call begins, and how many bytes follow."""

_CALL_ID_SIZE = len(_CALL) + _REST_OF_CALL_ID

_REFERENCE = struct.Struct("<BH")
"""A call id that was left out: how many bytes stand before it after the one left out before, and where it stands in
the page."""

_FARTHEST, _MOST = 0xFFFF, 0xFF
"""The last place, the longest distance and the largest number of references that can be written."""


def shorten(rows: Sequence[tuple[bytes, bytes]]) -> list[bytes]:
    """Shorten the receipts of (page, receipt) rows that follow each other."""
    place = _Place()
    short = []
    for page, receipt in rows:
        follows = place.after(page)
        fields, start = _header(receipt)
        if follows and fields < _WHOLE and receipt.startswith(follows, start):
            short.append(_refer(receipt[start + len(follows) :], page, fields))
            place.step(receipt)
        else:
            short.append(bytes((_WHOLE,)) + receipt)
            place.jump(receipt)
    return short


def in_full(rows: Iterable[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    """Return the rows as they were before their receipts were shortened.

    Raises:
        StoreCorrupt: they were not made by `shorten`.
    """
    place = _Place()
    full = []
    for page, short in rows:
        follows = place.after(page)
        if short[:1] == bytes((_WHOLE,)):
            receipt = short[1:]
            place.jump(receipt)
        elif len(short) > 1 and follows:
            try:
                receipt = _with_header(short[0]) + follows + _resolve(short[1:], page)
            except struct.error as error:
                raise StoreCorrupt(f"a shortened receipt cannot be read: {error}") from error
            place.step(receipt)
        else:
            raise StoreCorrupt("a shortened receipt cannot be read: nothing stands before it")
        full.append((page, receipt))
    return full


class _Place:
    """Where a chain stands after a row."""

    __slots__ = ("_digest", "_history", "_next", "_version")

    def __init__(self) -> None:
        self._version = 0
        """0: not known."""
        self._digest = b""
        self._history = self._next = b""

    def after(self, page: bytes) -> bytes:
        """Return the first three fields of the next receipt, as they are written; empty if they cannot be known."""
        if not self._version:
            return b""
        self._next = next_history(self._history, page)
        return pack((self._version + 1, self._digest, self._next))[1:]

    def step(self, receipt: bytes) -> None:
        """Go on to a receipt that follows."""
        self._version += 1
        self._digest, self._history = sha256(receipt), self._next

    def jump(self, receipt: bytes) -> None:
        """Begin anew with a receipt that says by itself where it stands."""
        try:
            read = decode_receipt(receipt)
        except StoreCorrupt:
            self._version = 0
        else:
            self._version, self._digest, self._history = read.version, sha256(receipt), read.history


def _refer(rest: bytes, page: bytes, fields: int) -> bytes:
    """Leave the call ids out of the rest of a receipt of so many fields that stand in its page."""
    before, *others = rest.split(_CALL)
    if not others:
        return bytes((fields, 0)) + rest
    references: list[bytes] = []
    pieces: list[bytes] = []
    call_id, place = b"", -1
    for piece in others:
        name = _CALL + piece[:_REST_OF_CALL_ID]
        if name != call_id:
            is_whole = len(name) == _CALL_ID_SIZE
            call_id, place = name, page.rfind(name, 0, _FARTHEST + _CALL_ID_SIZE) if is_whole else -1
        if place >= 0 and len(before) <= _MOST and len(references) < _MOST:
            references.append(_REFERENCE.pack(len(before), place))
            pieces.append(before)
            before = piece[_REST_OF_CALL_ID:]
        else:
            before += _CALL + piece
    return b"".join((bytes((fields, len(references))), *references, *pieces, before))


def _resolve(short: bytes, page: bytes) -> bytes:
    """Return the rest that `_refer` was given, by what it returned without the number of fields."""
    at = 1 + short[0] * _REFERENCE.size
    pieces: list[bytes] = []
    for before, place in _REFERENCE.iter_unpack(short[1:at]):
        pieces += short[at : at + before], page[place : place + _CALL_ID_SIZE]
        at += before
    return b"".join((*pieces, short[at:]))


def _header(receipt: bytes) -> tuple[int, int]:
    """Return how many fields a receipt has, and where they begin; `_WHOLE` fields: not to be told."""
    first = receipt[0] if receipt else 0
    if first & ~_MOST_SHORT == _SHORT_ARRAY:
        return first & _MOST_SHORT, 1
    fields = int.from_bytes(receipt[1:3], "big")
    return (fields, 3) if first == _LONG_ARRAY and _MOST_SHORT < fields < _WHOLE else (_WHOLE, 0)


def _with_header(fields: int) -> bytes:
    if fields <= _MOST_SHORT:
        return bytes((_SHORT_ARRAY | fields,))
    return bytes((_LONG_ARRAY,)) + fields.to_bytes(2, "big")
