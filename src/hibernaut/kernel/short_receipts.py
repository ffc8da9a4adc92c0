"""Receipts without what follows from the rows before them: how a store may keep many of one thread together.

Of the 157 bytes of an ordinary receipt 70 are its version, the digest of the receipt before it, and the digest of the
history after it. All three follow from the row before and the page beside, so of rows that are kept together only the
first needs them. What is read back is the same, byte for byte; a receipt that does not follow is kept whole.
"""

from collections.abc import Iterable, Sequence

from hibernaut.codec import pack, sha256
from hibernaut.errors import StoreCorrupt
from hibernaut.kernel.receipt import decode_receipt, next_history

_SHORT_ARRAY, _LONG_ARRAY, _MOST_SHORT = 0x90, 0xDC, 0x0F
"""How msgpack begins an array: one byte with the number of its fields, up to so many, or that of another and two."""

_WHOLE = 0xFF
"""Stands before a receipt that is kept whole; before a shortened one stands how many fields it has in all."""


def shorten(rows: Sequence[tuple[bytes, bytes]]) -> list[bytes]:
    """Shorten the receipts of (page, receipt) rows that follow each other."""
    place = _Place()
    short = []
    for page, receipt in rows:
        follows = place.after(page)
        fields, start = _header(receipt)
        if follows and fields < _WHOLE and receipt.startswith(follows, start):
            short.append(bytes((fields,)) + receipt[start + len(follows) :])
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
        elif short and follows:
            receipt = _with_header(short[0]) + follows + short[1:]
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
        return pack(self._version + 1) + pack(self._digest) + pack(self._next)

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
