"""Records that are kept in mappings of their own, packed end to end.

Kept as bytes objects between all the short-lived ones, pages would leave the heap full of holes that nothing fits into,
and each would cost some 60 bytes beside its content. Here a record costs what it weighs.
"""

import mmap
from contextlib import suppress

from hibernaut.errors import StoreCorrupt


class Arena:
    """A heap of records, each written once. A mapping whose records were all dropped is given back."""

    __slots__ = ("_current", "_free", "_left", "_segment", "_segments", "_written")

    def __init__(self, segment: int) -> None:
        self._segment = segment
        """Bytes of one mapping. The system gives memory for it only as it is written."""
        self._segments: list[mmap.mmap | None] = []
        self._written: list[int] = []
        self._left: list[int] = []
        """Of the bytes written in each mapping those that were not dropped."""
        self._free: list[int] = []
        """Numbers of mappings that were given back."""
        self._current = self._begin(segment)

    def add(self, record: bytes) -> int:
        """Keep a record that is not empty; return its place, which is never 0."""
        number, written = self._current, self._written
        at = written[number]
        end = at + len(record)
        mapping = self._segments[number]
        if mapping is None or end > len(mapping):
            number, mapping = self._make_room(len(record))
            at, end = 0, len(record)
        mapping[at:end] = record
        written[number] = end
        self._left[number] += end - at
        return (number + 1) << 32 | at

    def view(self, place: int) -> tuple[mmap.mmap, int]:
        """Return the mapping in which a record stands, and where in it."""
        return self._mapping((place >> 32) - 1), place & 0xFFFFFFFF

    def drop(self, place: int, size: int) -> None:
        """Let go of a record of that size: it is not read again."""
        number = (place >> 32) - 1
        self._left[number] -= size
        if self._left[number]:
            return
        if number == self._current:
            self._written[number] = 0
        else:
            self._give_back(number)

    def is_sparse(self) -> bool:
        """Tell whether most of what was written, and more than a mapping of it, was dropped."""
        dropped = sum(self._written) - sum(self._left)
        return dropped > max(self._segment, sum(self._written) // 2)

    def _make_room(self, size: int) -> tuple[int, mmap.mmap]:
        if not self._left[self._current]:
            self._give_back(self._current)
        number = self._current = self._begin(max(self._segment, size))
        return number, self._mapping(number)

    def _mapping(self, number: int) -> mmap.mmap:
        mapping = self._segments[number]
        if mapping is None:
            raise StoreCorrupt("a record is read that was dropped from memory")
        return mapping

    def _give_back(self, number: int) -> None:
        self._mapping(number).close()
        self._segments[number], self._written[number] = None, 0
        self._free.append(number)

    def _begin(self, size: int) -> int:
        mapping = fresh(size)
        if not self._free:
            self._segments.append(mapping)
            self._written.append(0)
            self._left.append(0)
            return len(self._segments) - 1
        number = self._free.pop()
        self._segments[number] = mapping
        return number


def fresh(size: int) -> mmap.mmap:
    """Return fresh memory, in huge pages where the system has them: to be given it in small ones costs 1 µs per KiB."""
    if not hasattr(mmap, "MADV_HUGEPAGE"):
        return mmap.mmap(-1, size)
    mapping = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    with suppress(OSError):
        mapping.madvise(mmap.MADV_HUGEPAGE)
    return mapping
