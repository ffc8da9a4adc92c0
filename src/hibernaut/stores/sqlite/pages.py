"""Pages in the log: packed one by one where the store compresses, and read however they were written."""

from typing import Any, Final

from hibernaut.stores.packing import Packer, unpack

LEVEL: Final = 2
"""Of zstd. A page is packed while others wait for the transaction; level 3 packs 3 % better, but among slices it
takes some 4 µs longer a page: its larger tables and what slices need drive each other from the processor's caches."""

LEAST: Final = 200
"""Bytes of a page below which it stays as it is: there is next to nothing to win."""

_BYTES: Final = b"\xc4"
_DIGEST: Final = _BYTES + b"\x20"
"""Begins 32 bytes, so it is in every page that refers to a blob. Those stay as they are: they are searched for."""


class Pages:
    """Writes pages. Belongs to the thread that writes."""

    def __init__(self, *, compress: bool) -> None:
        self._packer = Packer(LEVEL) if compress else None

    def written(self, page: bytes) -> tuple[bytes, bool]:
        """Return a page as it is to be written, and whether it is packed."""
        # One byte is found at once; two of them are looked for a hundred times as long.
        if self._packer is None or len(page) < LEAST or (_BYTES in page and _DIGEST in page):
            return page, False
        packed = self._packer.pack(page)
        return (page, False) if packed is None else (packed, True)


def read(rows: list[Any]) -> list[tuple[int, bytes, bytes]]:
    """Return version, page and receipt of rows of the log.

    Raises:
        StoreCorrupt: a packed page is damaged.
        StoreFormatTooNew: it was packed by a newer version.
    """
    return [(version, unpack(page) if packed else page, receipt) for version, page, receipt, packed in rows]
