"""What is kept of threads in memory: as it came while a thread is at work, put away together once it is cold.

New commits are records of their own. Whoever has not been put away for the longest time is, once more than `MOST_HOT`
bytes came since, and so is everybody while nothing goes on (`put_away_some`). All commits since the last time become
one frame: receipts without what follows from the commits before them, and packed if the store compresses. So what is
written often is not packed again and again, and what waits costs little, however many wait.

The head and what the thread knows go with them. Left on the heap, each would keep a page of memory from being given
back, of which the rest is what was there while many were at work.
"""

import struct
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING

import msgspec

from hibernaut.codec import decoder_of, pack, unpack
from hibernaut.kernel.short_receipts import in_full, shorten
from hibernaut.stores.arena import Arena
from hibernaut.stores.memory_threads import Thread
from hibernaut.stores.shelf import LARGEST, Shelf

if TYPE_CHECKING:
    from hibernaut.stores.packing import Packer

MOST_HOT = 32 * 1024 * 1024
"""Bytes of commits that come, over all threads, until a thread's are put away. As many as transcripts that are hot."""

LARGEST_FRAME = 64 * 1024
"""Bytes of commits of one thread from which on they are put away at once: to read any of them, all are unpacked."""

AT_ONCE = 256 * 1024
"""Bytes that `put_away_some` works on: some milliseconds."""

LEVEL = 6
"""Of zstd. Level 3 takes 0.4 of the time and 7 % more bytes, level 9 1.7 times as long for 1 to 2 % less."""

HOT_SEGMENT = 1024 * 1024
COLD_SEGMENT = 8 * 1024 * 1024
"""Bytes of the mappings of either."""

_COMMIT = struct.Struct("<QII")
"""The record before it in its chain (0: none), then the sizes of page and receipt."""

_FRAME = struct.Struct("<QIIHB")
"""The frame before it (0: none), its size, the bytes and the number of its commits, and whether it is packed."""

_SLEEP = struct.Struct("<II")
"""The sizes of the head and of what the thread knows."""

_COLD, _HOT, _SHELF = 0, 1, 2

_BESIDE = 1_024
"""Bytes that a thread on the heap counts for, without its commits."""

_MOST_IN_FRAME = 512
"""Commits in one frame, however small they are."""

_decoder = decoder_of(list[bytes])


class _Tail(msgspec.Struct, gc=False, eq=False):
    """The commits of a thread that were not put away yet."""

    thread: Thread
    since: int
    """Bytes that had come before the first of them."""
    size: int = 0
    count: int = 0


class Logs:
    """Keeps the commits of threads in chains; a thread's `log` is the end of its own (0: it has none).

    A place is four times that where it stands, and what says where: `_COLD`, `_HOT` or `_SHELF`.
    """

    def __init__(self, *, compress: bool = False, most_hot: int = MOST_HOT) -> None:
        self.size = 0
        """Bytes of all commits, as they are kept."""
        self._hot = Arena(HOT_SEGMENT)
        self._cold = Arena(COLD_SEGMENT)
        self._shelf = Shelf()
        self._tails: dict[str, _Tail] = {}
        """In the order of their first commits."""
        self._came = 0
        self._compress = compress
        self._most_hot = most_hot
        self._packer: Packer | None = None

    def append(self, thread: Thread, page: bytes, receipt: bytes) -> None:
        """Add a commit to a thread."""
        record = b"".join((_COMMIT.pack(thread.log, len(page), len(receipt)), page, receipt))
        tail = self._tails.get(thread.thread_id) or self.begin(thread)
        thread.log = self._hot.add(record) << 2 | _HOT
        size = len(page) + len(receipt)
        tail.size += size
        tail.count += 1
        self.size += size
        self._came += len(record)

    def make_room(self, thread: Thread) -> None:
        """Put away what has to be: of a thread that was appended to, once there is much, and of those who came first.

        Nothing of them may be held meanwhile.
        """
        tail = self._tails.get(thread.thread_id)
        if tail is not None and (tail.size >= LARGEST_FRAME or tail.count >= _MOST_IN_FRAME):
            self._put_away(tail)
        while self._tails and self._came - (oldest := next(iter(self._tails.values()))).since > self._most_hot:
            self._put_away(oldest)

    def begin(self, thread: Thread) -> _Tail:
        """Count a thread that is on the heap among those to be put away."""
        tail = self._tails[thread.thread_id] = _Tail(thread, self._came)
        self._came += _BESIDE
        return tail

    def wake(self, thread: Thread) -> None:
        """Bring back the head of a thread, and what it knows: for one whose `asleep` is not 0."""
        thread.head, thread.known = self.asleep(thread)
        self._shelf.drop(thread.asleep, _SLEEP.size + len(thread.head) + len(thread.known))
        thread.asleep = 0
        self.begin(thread)

    def head(self, thread: Thread) -> bytes:
        """Return the head of a thread, and leave it where it is."""
        return self.asleep(thread)[0] if thread.asleep else thread.head

    def known(self, thread: Thread) -> bytes | bytearray:
        """Return what a thread knows, and leave it where it is."""
        return self.asleep(thread)[1] if thread.asleep else thread.known

    def asleep(self, thread: Thread) -> tuple[bytes, bytes]:
        """Return what of a thread is put away."""
        head, known = _SLEEP.unpack(self._shelf.read(thread.asleep, _SLEEP.size))
        record = self._shelf.read(thread.asleep, _SLEEP.size + head + known)
        return record[_SLEEP.size : _SLEEP.size + head], record[_SLEEP.size + head :]

    def back(self, thread: Thread, skip: int = 0) -> Iterator[tuple[bytes, bytes]]:
        """Yield page and receipt of a thread's commits, the last one first, without the last `skip`."""
        place = thread.log
        while place:
            if place & 3 == _HOT:
                place, page, receipt = self._read(place)
                if skip:
                    skip -= 1
                else:
                    yield page, receipt
            else:
                before, _, _, count, _ = self._frame(place)
                if skip < count:
                    yield from islice(reversed(self._rows(place)), skip, None)
                place, skip = before, max(skip - count, 0)

    def forget(self, thread: Thread) -> None:
        """Let go of all that is kept of a thread."""
        if thread.asleep:
            head, known = self.asleep(thread)
            self._shelf.drop(thread.asleep, _SLEEP.size + len(head) + len(known))
        self._tails.pop(thread.thread_id, None)
        place = thread.log
        while place:
            place = self._drop(place)
        thread.log = 0

    def put_away_some(self) -> bool:
        """Put away what is hot, as much as takes some milliseconds; tell whether anything is left."""
        done = 0
        while self._tails and done < AT_ONCE:
            oldest = next(iter(self._tails.values()))
            done += oldest.size + _BESIDE
            self._put_away(oldest)
        return bool(self._tails)

    def gather(self, threads: Sequence[Thread]) -> None:
        """Move what is cold together, if most of what is there is that of threads that are gone. `threads`: all."""
        if not self._cold.is_sparse():
            return
        while self.put_away_some():
            pass
        fresh = Arena(COLD_SEGMENT)
        for thread in threads:
            frames: list[tuple[tuple[int, int, int, int, int], bytes]] = []
            place = thread.log
            while place:
                header = self._frame(place)
                frames.append((header, self._body(place, header[1])))
                if place & 3 == _SHELF:
                    self._shelf.drop(place >> 2, _FRAME.size + header[1])
                place = header[0]
            for header, body in reversed(frames):
                record = _FRAME.pack(place, *header[1:]) + body
                place = self._shelf.add(record) << 2 | _SHELF if len(record) <= LARGEST else fresh.add(record) << 2
            thread.log = place
        self._cold = fresh

    def _put_away(self, tail: _Tail) -> None:
        thread = tail.thread
        if tail.count:
            self._put_commits_away(tail)
        size = _SLEEP.size + len(thread.head) + len(thread.known)
        if not thread.asleep and isinstance(thread.known, bytes) and size <= LARGEST:
            header = _SLEEP.pack(len(thread.head), len(thread.known))
            thread.asleep = self._shelf.add(b"".join((header, thread.head, thread.known)))
            thread.head = thread.known = b""
        del self._tails[thread.thread_id]

    def _put_commits_away(self, tail: _Tail) -> None:
        """Make a frame of a tail, and of the small ones before it that are no larger than what is after them."""
        rows, gone = [], []
        place, raw = tail.thread.log, tail.size
        while place & 3 == _HOT:
            gone.append(place)
            place, page, receipt = self._read(place)
            rows.append((page, receipt))
        rows.reverse()
        while place & 3 == _SHELF:
            before, _, size, count, _ = self._frame(place)
            if size > raw or count + len(rows) > _MOST_IN_FRAME:
                break
            gone.append(place)
            rows, raw, place = self._rows(place) + rows, raw + size, before
        tail.thread.log = self._add_frame(place, rows, raw)
        for place in gone:
            self._drop(place)

    def _add_frame(self, before: int, rows: Sequence[tuple[bytes, bytes]], raw: int) -> int:
        pieces = [piece for (page, _), short in zip(rows, shorten(rows), strict=True) for piece in (page, short)]
        data = pack(pieces)
        packed = self._pack(data) if self._compress else None
        body = data if packed is None else packed
        self.size += len(body)
        record = _FRAME.pack(before, len(body), raw, len(rows), packed is not None) + body
        return self._shelf.add(record) << 2 | _SHELF if len(record) <= LARGEST else self._cold.add(record) << 2

    def _pack(self, data: bytes) -> bytes | None:
        if self._packer is None:
            from hibernaut.stores.packing import Packer  # noqa: PLC0415  # loaded only where a store compresses

            self._packer = Packer(LEVEL)
        return self._packer.pack(data)

    def _read(self, place: int) -> tuple[int, bytes, bytes]:
        mapping, at = self._hot.view(place >> 2)
        before, first, second = _COMMIT.unpack_from(mapping, at)
        start = at + _COMMIT.size
        middle = start + first
        return before, mapping[start:middle], mapping[middle : middle + second]

    def _frame(self, place: int) -> tuple[int, int, int, int, int]:
        if place & 3 == _SHELF:
            return _FRAME.unpack(self._shelf.read(place >> 2, _FRAME.size))
        return _FRAME.unpack_from(*self._cold.view(place >> 2))

    def _body(self, place: int, size: int) -> bytes:
        if place & 3 == _SHELF:
            return self._shelf.read(place >> 2, _FRAME.size + size)[_FRAME.size :]
        mapping, at = self._cold.view(place >> 2)
        return mapping[at + _FRAME.size : at + _FRAME.size + size]

    def _rows(self, place: int) -> list[tuple[bytes, bytes]]:
        """Return the commits of a frame, in order."""
        _, size, _, _, packed = self._frame(place)
        data = self._body(place, size)
        if packed:
            from hibernaut.stores.packing import unpack as unpacked  # noqa: PLC0415  # as above

            data = unpacked(data)
        pieces = unpack(data, _decoder, "a frame of commits")
        return in_full(zip(pieces[::2], pieces[1::2], strict=True))

    def _drop(self, place: int) -> int:
        """Let go of a commit or a frame; return the place before it."""
        if place & 3 == _HOT:
            before, page, receipt = _COMMIT.unpack_from(*self._hot.view(place >> 2))
            size = page + receipt
            self._hot.drop(place >> 2, _COMMIT.size + size)
        else:
            before, size, _, _, _ = self._frame(place)
            (self._shelf if place & 3 == _SHELF else self._cold).drop(place >> 2, _FRAME.size + size)
        self.size -= size
        return int(before)
