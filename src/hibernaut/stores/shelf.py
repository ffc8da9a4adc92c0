"""Small records that come and go, kept in mappings of their own.

A thread that waits wakes, writes, and waits again, for ever: what it leaves each time must be used again by others. So
records have places of certain sizes, and a place that is free is given to the next record that fits.
"""

from typing import Final

from hibernaut.stores.arena import fresh

LARGEST: Final = 4_096
"""Bytes of the largest record."""

_STEP: Final = 64
"""Places are multiples of it."""

_SEGMENT: Final = 1024 * 1024


class Shelf:
    """A heap of small records. A record's size is to be known to whoever asks for it."""

    __slots__ = ("_end", "_free", "_segments")

    def __init__(self) -> None:
        self._segments = [fresh(_SEGMENT)]
        self._end = _STEP
        self._free: dict[int, list[int]] = {}
        """Places by their size in steps."""

    def add(self, record: bytes) -> int:
        """Keep a record; return its place, which is never 0."""
        steps = -(-len(record) // _STEP)
        free = self._free.get(steps)
        place = free.pop() if free else self._next(steps * _STEP)
        number, at = divmod(place, _SEGMENT)
        self._segments[number][at : at + len(record)] = record
        return place

    def read(self, place: int, size: int) -> bytes:
        """Return a record, or the beginning of one."""
        number, at = divmod(place, _SEGMENT)
        return self._segments[number][at : at + size]

    def drop(self, place: int, size: int) -> None:
        """Let go of a record of that size."""
        self._free.setdefault(-(-size // _STEP), []).append(place)

    def _next(self, size: int) -> int:
        if self._end + size > _SEGMENT:
            self._segments.append(fresh(_SEGMENT))
            self._end = 0
        at, self._end = self._end, self._end + size
        return (len(self._segments) - 1) * _SEGMENT + at
