"""How messages come into inboxes, and threads into the store, inside a transaction."""

from collections.abc import Sequence
from itertools import chain, groupby, islice
from operator import attrgetter

import apsw
import msgspec

from hibernaut.kernel.commit import Blob, NewThread
from hibernaut.messages.inputs import EVENT
from hibernaut.stores.protocol import MOST_WAITING, URGENCY_PENALTY, Outcome
from hibernaut.stores.sqlite.lanes import CLOSED, FROZEN, HELD_BACK, QUEUE, WAKEFUL
from hibernaut.stores.sqlite.transaction import Transaction

DUPLICATES = "duplicates"
"""What messages are counted under that were there before."""


class Letter(msgspec.Struct, frozen=True, gc=False):
    """A message made ready for an inbox."""

    thread_id: str
    message_id: str
    digest: bytes
    urgency: int
    due: int
    accepted: int
    body: bytes


class Put(msgspec.Struct, frozen=True, gc=False):
    """Messages that one sender has put, and what is to be stored beside them."""

    letters: Sequence[Letter]
    blobs: Sequence[Blob]
    tenant: str | None


class _Receiver(msgspec.Struct, gc=False, eq=False):
    """A thread to which messages are delivered, as it is after those that were delivered before."""

    number: int
    thread_id: str
    status: int
    lane: int | None
    rank: int | None
    wake: int | None
    last: int | None
    """The last place of its inbox; None if that is empty."""

    @property
    def next_place(self) -> int:
        """The place of one more message."""
        return 1 + (self.last or self.number << 32)

    def is_near_the_bound(self) -> bool:
        """Tell whether so many may wait already that no event is to be added."""
        return self.next_place > (self.number << 32) + MOST_WAITING

    def heed(self, due: int, its_rank: int) -> bool:
        """Find its place in the queue anew, with one more message; tell whether that is another one."""
        before = self.lane, self.rank, self.wake
        if self.lane == HELD_BACK:  # its rank is the moment at which it comes back
            self.wake = max(self.rank or 0, due if self.wake is None else min(due, self.wake))
        elif self.wake is None or self.rank is None:
            self.lane, self.rank, self.wake = self.lane or QUEUE, its_rank, due
        else:
            self.rank, self.wake = min(its_rank, self.rank), min(due, self.wake)
        return (self.lane, self.rank, self.wake) != before


_Placed = tuple[Letter, _Receiver, int]
"""A message, whom it is for, and its place, should it be new."""


def create(
    tx: Transaction,
    threads: Sequence[NewThread],
    letters: Sequence[Letter],
    blobs: Sequence[Blob],
    tenant: str | None,
) -> list[Outcome]:
    """Make threads, then put."""
    for thread in threads:
        add_thread(tx, thread)
    return put_all(tx, (Put(letters, blobs, tenant),))[0]


def put_all(tx: Transaction, puts: Sequence[Put]) -> list[list[Outcome]]:
    """Keep blobs, then deliver."""
    tx.many("add_blob", [(blob.digest, blob.data) for put in puts for blob in put.blobs])
    outcomes: list[list[Outcome]] = []
    for tenant, same in groupby(puts, attrgetter("tenant")):
        letters = [put.letters for put in same]
        delivered = iter(deliver_all(tx, list(chain.from_iterable(letters)), tenant))
        outcomes += [list(islice(delivered, len(some))) for some in letters]
    return outcomes


def add_thread(tx: Transaction, new: NewThread, tenant: str | None = None) -> None:
    """Make a thread, a child in its parent's tenant, unless there is one or what it is a fork of is not there."""
    above = tx.first("find_parent", (new.parent,)) if new.parent and new.parent != new.thread_id else None
    parent, root, tenant = above or (None, None, new.tenant if tenant is None else tenant)
    origin = find_origin(tx, new.fork_of, tenant) if new.fork_of else None
    if new.fork_of and origin is None:
        return
    made = tx.first("add_thread", (new.thread_id, tenant, new.created, parent, root, origin))
    if made:
        tx.run("add_head", (made[0], new.head))
        if new.config_body:
            tx.run("add_config", (new.config, new.config_body))


def find_origin(tx: Transaction, fork_of: str, tenant: str) -> int | None:
    """Return the number of the thread that one of this tenant's is a fork of; None if it has no such thread."""
    found = tx.first("find_parent", (fork_of,))
    return found[0] if found is not None and found[2] == tenant else None


def deliver_all(tx: Transaction, letters: Sequence[Letter], tenant: str | None, *, sent: bool = False) -> list[Outcome]:
    """Deliver messages in their order. What threads have `sent` each other is taken by an inbox that is full, too."""
    names = tuple({letter.thread_id.encode() for letter in letters})
    rows = tx.rows("find_threads", (apsw.carray(names), tenant)) if names else []
    threads = {row[1]: _Receiver(*row) for row in rows}
    outcomes: list[Outcome] = []
    waiting: list[_Placed | Outcome] = []
    for letter in letters:
        thread = threads.get(letter.thread_id)
        if thread is None:
            waiting.append(Outcome.UNKNOWN)
            continue
        if thread.status == CLOSED:
            waiting.append(_refused(tx, letter, thread, Outcome.CLOSED))
            continue
        if letter.urgency == EVENT and not sent and thread.is_near_the_bound():
            outcomes += _deliver(tx, waiting)  # how many wait is counted in the store
            waiting = []
            if _is_full(tx, thread.number, thread.next_place):
                waiting.append(_refused(tx, letter, thread, Outcome.FULL))
                continue
        thread.last = thread.next_place
        waiting.append((letter, thread, thread.last))
    outcomes += _deliver(tx, waiting)
    if duplicates := outcomes.count(Outcome.DUPLICATE):
        tx.run("add_count", (DUPLICATES, duplicates))
    return outcomes


def _refused(tx: Transaction, letter: Letter, thread: _Receiver, why: Outcome) -> Outcome:
    return Outcome.DUPLICATE if tx.first("is_known", (thread.number, letter.digest)) else why


def _deliver(tx: Transaction, waiting: Sequence[_Placed | Outcome]) -> list[Outcome]:
    """Deliver messages, but for those that have an outcome already."""
    learning = [(one[1].number, one[0].digest, one[2]) for one in waiting if not isinstance(one, Outcome)]
    learned = iter(tx.each("learn_message", learning))
    outcomes: list[Outcome] = []
    messages = []
    moved: dict[int, _Receiver] = {}
    for one in waiting:
        if isinstance(one, Outcome):
            outcomes.append(one)
            continue
        letter, thread, place = one
        if not next(learned):
            outcomes.append(Outcome.DUPLICATE)
            continue
        rank = letter.due + URGENCY_PENALTY[letter.urgency]
        messages.append((place, letter.due, rank, letter.urgency, letter.accepted, letter.message_id, letter.body))
        if thread.lane == FROZEN or (thread.status not in WAKEFUL and letter.urgency):
            outcomes.append(Outcome.HELD)
            continue
        outcomes.append(Outcome.ACCEPTED)
        tx.hints.append((thread.thread_id, letter.urgency))
        if thread.heed(letter.due, rank):
            moved[thread.number] = thread
    tx.many("add_message", messages)
    tx.many("set_lane", [(thread.number, thread.lane, thread.rank, thread.wake) for thread in moved.values()])
    return outcomes


def _is_full(tx: Transaction, thread: int, place: int) -> bool:
    """Tell whether an inbox whose next place is beyond the bound is full; they are counted if they might be."""
    (first,) = tx.first("first_place", (thread,))
    if first is None or place - first < MOST_WAITING:
        return False
    (count,) = tx.first("count_waiting", (thread, MOST_WAITING))
    return bool(count >= MOST_WAITING)
