"""A long inbox in memory: what a claim or a commit does to it costs by the messages it touches, not by all there are.

Short inboxes are lists, which are smaller and, while they are short, as quick.
"""

import heapq
from collections.abc import Collection, Iterable, Iterator
from itertools import count
from typing import Generic, Protocol, TypeVar

from hibernaut.kernel.commit import SliceCommit
from hibernaut.messages.inputs import UPKEEP, USER, InputMessage
from hibernaut.stores.protocol import CLAIM_MESSAGES

SHORT = 64
"""Messages up to which an inbox is a list. One that was longer is a list again at half of them."""


class Waits(Protocol):
    """A message in an inbox."""

    due: int
    deferred: bool

    @property
    def message(self) -> InputMessage: ...

    @property
    def urgency(self) -> int: ...


L = TypeVar("L", bound=Waits)


class LongInbox(Generic[L]):
    """Messages by their ids, in the order they were stored, and heaps that find the few that are asked for.

    An entry of a heap stays when its message goes, or gets another moment, until it is met.
    """

    __slots__ = ("_deferred", "_due", "_letters", "_places", "_ticket")

    def __init__(self, letters: Iterable[L]) -> None:
        self._letters: dict[str, L] = {}
        self._places: dict[str, int] = {}
        self._ticket = count()
        self._due: tuple[list[tuple[int, int, L]], ...] = tuple([] for _ in range(UPKEEP + 1))
        self._deferred: list[tuple[int, int, L]] = []
        for letter in letters:
            self.append(letter)

    def __len__(self) -> int:
        return len(self._letters)

    def __iter__(self) -> Iterator[L]:
        return iter(self._letters.values())

    def append(self, letter: L) -> None:
        """Add a message at the end."""
        name, place = letter.message.message_id, next(self._ticket)
        self._letters[name] = letter
        self._places[name] = place
        heapq.heappush(self._due[letter.urgency], (letter.due, place, letter))
        if letter.deferred:
            heapq.heappush(self._deferred, (0, place, letter))

    def find(self, *names: Iterable[str]) -> dict[str, L]:
        """Return the messages of these ids that are here."""
        return {name: self._letters[name] for some in names for name in some if name in self._letters}

    def remove(self, names: Collection[str]) -> "LongInbox[L] | list[L] | None":
        """Remove messages; return the inbox as it is to be kept from now on."""
        for name in names:
            del self._letters[name], self._places[name]
        if len(self) <= SHORT // 2:
            return list(self) or None
        return self

    def defer(self, letter: L, moment: int) -> None:
        """Let a message wait until a moment."""
        place = self._places[letter.message.message_id]
        if not letter.deferred:
            heapq.heappush(self._deferred, (0, place, letter))
            letter.deferred = True
        if letter.due != moment:
            letter.due = moment
            heap = self._due[letter.urgency]
            heapq.heappush(heap, (moment, place, letter))
            if len(heap) > 2 * len(self) + SHORT:
                heap[:] = {entry[1]: entry for entry in heap if self._is_current(entry)}.values()
                heapq.heapify(heap)

    def first_of_each(self, *, is_open: bool) -> list[tuple[int, int]]:
        """Return when the first message of each urgency that wakes the thread is due, and that urgency."""
        found = []
        for level in range((UPKEEP if is_open else USER) + 1):
            heap = self._due[level]
            while heap and not self._is_current(heap[0]):
                heapq.heappop(heap)
            if heap:
                found.append((heap[0][0], level))
        return found

    def hand_over(self, now: int, *, is_open: bool) -> list[L]:
        """Return what a claim gives, in the order it was stored."""
        waking: dict[int, L] = {}
        others: dict[int, L] = {}
        for level, heap in enumerate(self._due):
            (waking if is_open or level == USER else others).update(self._first(heap, now))
        for place, letter in self._first(self._deferred, None):
            wakes = letter.due <= now and (is_open or letter.urgency == USER)
            (waking if wakes else others)[place] = letter
        chosen = sorted(waking)[:CLAIM_MESSAGES]
        chosen += sorted(others)[: CLAIM_MESSAGES - len(chosen)]
        both = waking | others
        return [both[place] for place in sorted(chosen)]

    def _first(self, heap: list[tuple[int, int, L]], now: int | None) -> list[tuple[int, L]]:
        """Return the first of a heap (up to a moment), as many as a claim may give, with their places."""
        taken: list[tuple[int, int, L]] = []
        while heap and len(taken) < CLAIM_MESSAGES and (now is None or heap[0][0] <= now):
            entry = heapq.heappop(heap)
            repeated = bool(taken) and entry[:2] == taken[-1][:2]
            if not repeated and (self._is_here(entry) if now is None else self._is_current(entry)):
                taken.append(entry)
        for entry in taken:
            heapq.heappush(heap, entry)
        return [(place, letter) for _, place, letter in taken]

    def _is_here(self, entry: tuple[int, int, L]) -> bool:
        _, place, letter = entry
        return self._places.get(letter.message.message_id) == place

    def _is_current(self, entry: tuple[int, int, L]) -> bool:
        return entry[0] == entry[2].due and self._is_here(entry)


def named(inbox: "LongInbox[L] | list[L] | None", commit: SliceCommit) -> dict[str, L]:
    """Return the messages that a commit names; of a short inbox, all."""
    if isinstance(inbox, LongInbox):
        rewritten = [message.message_id for message in commit.rewritten]
        return inbox.find(commit.consumed, commit.dropped, [name for name, _ in commit.deferred], rewritten)
    return {letter.message.message_id: letter for letter in inbox or ()}


def changed(
    inbox: "LongInbox[L] | list[L] | None", found: Iterable[str], left: dict[str, L], deferred: Iterable[tuple[L, int]]
) -> "LongInbox[L] | list[L] | None":
    """Return an inbox as a commit leaves it: of those that it names, some are left, and some of these deferred."""
    if isinstance(inbox, LongInbox):
        for letter, moment in deferred:
            inbox.defer(letter, moment)
        return inbox.remove([name for name in found if name not in left])
    for letter, moment in deferred:
        letter.due, letter.deferred = moment, True
    return list(left.values()) or None
