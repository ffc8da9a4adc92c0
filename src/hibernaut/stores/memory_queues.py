"""The queues of a store in memory: who has something to do, most urgent first, and who will have, and when."""

import heapq

from hibernaut.messages.inputs import RESULT
from hibernaut.stores.letters import LongInbox
from hibernaut.stores.memory_threads import Letter, Thread, Wake
from hibernaut.stores.protocol import AWAKE, URGENCY_PENALTY

_SLACK = 64
"""Outdated entries that the queues may hold beside as many as there are current ones."""

_Entry = tuple[int, int, Thread]
"""Moment or rank, ticket, thread."""


class Queues:
    """Every unclaimed thread that has something to do, or will have, stands once among the ready ones or the timers."""

    __slots__ = ("_ready", "_scheduled", "_tickets", "_timers")

    def __init__(self) -> None:
        self._ready: list[_Entry] = []
        self._timers: list[_Entry] = []
        self._tickets = 0
        self._scheduled = 0

    def __len__(self) -> int:
        """Return how many entries there are, outdated ones included."""
        return len(self._ready) + len(self._timers)

    def schedule(self, thread: Thread, now: int) -> int | None:
        """Find the place of a thread anew; return how urgent it is, None if it has none."""
        if thread.wake is not None:
            self.withdraw(thread)
        if thread.inbox is None and thread.continues is None:
            return None
        if not (thread.owner is None or thread.owner.silent):
            return None
        if isinstance(thread.inbox, LongInbox):
            places = thread.inbox.first_of_each(is_open=thread.status in AWAKE)
        else:
            places = [(letter.due, letter.urgency) for letter in thread.inbox or () if thread.is_woken_by(letter)]
        if thread.continues is not None:
            places.append((thread.continues, RESULT))
        if not places:
            return None
        self._place(thread, min(places)[0], min(due + URGENCY_PENALTY[level] for due, level in places), now)
        return min(level for _, level in places)

    def bring_forward(self, thread: Thread, letter: Letter, now: int) -> None:
        """Find its place after one more message: no later than before."""
        moment, rank = letter.due, letter.due + URGENCY_PENALTY[letter.urgency]
        wake = thread.wake
        if wake is None:
            self._place(thread, moment, rank, now)
        elif moment < wake.moment or rank < wake.rank:
            self.withdraw(thread)
            self._place(thread, min(moment, wake.moment), min(rank, wake.rank), now)

    def withdraw(self, thread: Thread) -> None:
        """Take a thread out."""
        if thread.wake is not None:
            thread.wake = None
            self._scheduled -= 1

    def most_urgent(self, now: int, limit: int, tenant: str | None) -> list[Thread]:
        """Take out the most urgent threads that are ready, of a tenant if one is named."""
        self._ripen(now)
        chosen: list[Thread] = []
        others: list[_Entry] = []
        while self._ready and len(chosen) < limit:
            entry = heapq.heappop(self._ready)
            _, ticket, thread = entry
            wake = thread.wake
            if wake is None or wake.ticket != ticket:
                continue
            if wake.moment > now:  # the caller's clock is behind the one by which the thread was ready
                heapq.heappush(self._timers, (wake.moment, ticket, thread))
            elif tenant is not None and thread.tenant != tenant:
                others.append(entry)
            else:
                chosen.append(thread)
        for entry in others:
            heapq.heappush(self._ready, entry)
        return chosen

    def next_due(self, now: int) -> int | None:
        """Return when the next thread becomes ready by time alone."""
        self._ripen(now)
        while self._timers and not _is_current(self._timers[0]):
            heapq.heappop(self._timers)
        return self._timers[0][0] if self._timers else None

    def _place(self, thread: Thread, moment: int, rank: int, now: int) -> None:
        self._tickets += 1
        self._scheduled += 1
        moment = max(moment, thread.not_before)
        thread.wake = Wake(moment, rank, self._tickets)
        if moment <= now:
            heapq.heappush(self._ready, (rank, self._tickets, thread))
        else:
            heapq.heappush(self._timers, (moment, self._tickets, thread))
        if len(self._ready) + len(self._timers) > 2 * self._scheduled + _SLACK:
            for queue in (self._ready, self._timers):
                queue[:] = [entry for entry in queue if _is_current(entry)]
                heapq.heapify(queue)

    def _ripen(self, now: int) -> None:
        """Move the threads whose moment has come among the ready ones."""
        while self._timers and self._timers[0][0] <= now:
            _, ticket, thread = heapq.heappop(self._timers)
            if thread.wake is not None and thread.wake.ticket == ticket:
                heapq.heappush(self._ready, (thread.wake.rank, ticket, thread))


def _is_current(entry: _Entry) -> bool:
    wake = entry[2].wake
    return wake is not None and wake.ticket == entry[1]
