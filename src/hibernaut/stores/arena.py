"""Records that are written once and kept, packed end to end in mappings of their own.

Kept as bytes objects between all the short-lived ones, pages would leave the heap full of holes that nothing fits into,
and each would cost some 60 bytes beside its content. Here a record costs what it weighs, and 16 bytes.
"""

import mmap
import struct
from collections.abc import Iterator
from contextlib import suppress

SEGMENT = 8 * 1024 * 1024
"""Bytes of one mapping. The system gives memory for it only as it is written."""

_HEAD = struct.Struct("<QII")
"""The record before it in its chain (0: none), then the sizes of its two parts."""


class Arena:
    """An append-only heap of records of two parts, in chains: each record knows the one before it in its chain."""

    __slots__ = ("_end", "_forgotten", "_segment", "_segments")

    def __init__(self) -> None:
        self._segments: list[mmap.mmap] = []
        self._segment = mmap.mmap(-1, mmap.PAGESIZE)
        self._end = mmap.PAGESIZE
        self._forgotten = 0

    def append(self, before: int, first: bytes, second: bytes) -> int:
        """Add a record to the chain that ends with `before` (0 begins one); return the new end."""
        record = b"".join((_HEAD.pack(before, len(first), len(second)), first, second))
        if self._end + len(record) > len(self._segment):
            self._segment = _mapping(max(SEGMENT, len(record)))
            self._segments.append(self._segment)
            self._end = 0
        at = self._end
        self._end = at + len(record)
        self._segment[at : self._end] = record
        return len(self._segments) << 32 | at

    def back(self, end: int) -> Iterator[tuple[bytes, bytes]]:
        """Yield the records of a chain, the last one first."""
        while end:
            segment, at = self._segments[(end >> 32) - 1], end & 0xFFFFFFFF
            end, first, second = _HEAD.unpack_from(segment, at)
            middle = at + _HEAD.size + first
            yield segment[at + _HEAD.size : middle], segment[middle : middle + second]

    def forget(self, end: int) -> int:
        """Count the records of a chain as not needed any more; return the bytes of their parts."""
        sizes = [len(first) + len(second) for first, second in self.back(end)]
        self._forgotten += sum(sizes) + len(sizes) * _HEAD.size
        return sum(sizes)

    def is_sparse(self) -> bool:
        """Tell whether most of what is here, and more than a segment of it, is not needed any more."""
        return self._forgotten > max(SEGMENT, len(self._segments) * SEGMENT // 2)


def _mapping(size: int) -> mmap.mmap:
    """Return fresh memory, in huge pages where the system has them: to be given it in small ones costs 1 µs per KiB."""
    if not hasattr(mmap, "MADV_HUGEPAGE"):
        return mmap.mmap(-1, size)
    mapping = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    with suppress(OSError):
        mapping.madvise(mmap.MADV_HUGEPAGE)
    return mapping
