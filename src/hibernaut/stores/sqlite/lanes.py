"""Where threads stand: in no lane, in the queue, held back, or in the lane of the engine that has them."""

from array import array
from collections.abc import Iterable, Sequence

import apsw

from hibernaut.kernel.head import Status
from hibernaut.messages.inputs import RESULT, USER
from hibernaut.stores.protocol import AWAKE, URGENCY_PENALTY
from hibernaut.stores.sqlite.transaction import Transaction

STATUSES: tuple[Status, ...] = ("open", "stopped", "parked", "closed")
CLOSED = STATUSES.index("closed")
WAKEFUL = tuple(STATUSES.index(status) for status in AWAKE)
"""Statuses in which every message wakes a thread."""

QUEUE, HELD_BACK, FROZEN = 0, -1, -2
"""The lanes that are no engine's. Whoever knows nothing of frozen threads leaves them alone, too."""

NOBODY = 0
"""The number of no engine; what it holds is a dead one's."""

GREATEST_PENALTY = max(URGENCY_PENALTY)

FIRST_PLACES = 64
"""Places of an inbox that are read in one go; messages beyond them stand in indexes (the queries have the number)."""

Moment = tuple[int, int, int]
"""Due, rank and urgency of a message."""


def reschedule(tx: Transaction, thread: int, status: int, continues: int | None) -> int | None:
    """Put an unclaimed thread where it belongs; return how urgent it is, None if it has nothing to do."""
    rank, wake, urgency = moments_of(tx, thread, status, continues)
    tx.run("set_lane", (thread, lane_of(wake), rank, wake))
    return None if wake is None else urgency


def lane_of(wake: int | None) -> int | None:
    """Return the lane of a thread that nobody has, and that has something to do from that moment on, if ever."""
    return None if wake is None else QUEUE


def moments_of(tx: Transaction, thread: int, status: int, continues: int | None) -> tuple[int | None, int | None, int]:
    """Return rank and wake of a thread (None when it has nothing to do), and how urgent it is."""
    return soonest(first_moments(tx, (thread,)).get(thread, ()), status, continues)


def first_moments(tx: Transaction, threads: Sequence[int]) -> dict[int, list[Moment]]:
    """Return due, rank and urgency of messages of threads: none that is left out is due before all its kind."""
    moments: dict[int, list[Moment]] = {}
    numbers = apsw.carray(array("q", threads))
    for thread, *moment in tx.rows("near_moments", (numbers, FIRST_PLACES)):
        moments.setdefault(thread, []).append(tuple(moment))
    for (thread,) in tx.rows("long_inboxes", (numbers, FIRST_PLACES)):
        for level in range(len(URGENCY_PENALTY)):
            moments.setdefault(thread, []).extend(tx.rows("far_moments", (thread, level)))
    return moments


def soonest(moments: Iterable[Moment], status: int, continues: int | None) -> tuple[int | None, int | None, int]:
    """Return rank and wake of a thread of that status, from its messages, and how urgent it is."""
    found = [one for one in moments if status in WAKEFUL or one[2] == USER]
    if continues is not None:
        found.append((continues, continues + URGENCY_PENALTY[RESULT], RESULT))
    if not found:
        return None, None, RESULT
    return min(rank for _, rank, _ in found), min(found)[0], min(urgency for _, _, urgency in found)
