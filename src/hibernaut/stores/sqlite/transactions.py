"""What the writing methods of the store do inside a transaction.

Every function gets the transaction and values that were made ready outside of it, and checks before it writes. Nothing
here waits, reads a clock, or knows of threads and tasks. What each does is said where `Store` has a method of its name.
"""

import logging
import os
from array import array
from collections.abc import Collection, Iterable, Sequence
from itertools import chain, groupby, islice
from operator import attrgetter
from typing import Any

import apsw
import msgspec

from hibernaut.errors import StaleClaim
from hibernaut.kernel.commit import Blob, NewThread, SliceCommit
from hibernaut.kernel.head import Status
from hibernaut.messages.inputs import EVENT, RESULT, USER
from hibernaut.stores.owners import certainly_gone, process_name
from hibernaut.stores.protocol import (
    AWAKE,
    CLAIM_MESSAGES,
    DEAD_AFTER,
    MOST_WAITING,
    URGENCY_PENALTY,
    Claim,
    Outcome,
    Owner,
)
from hibernaut.stores.sqlite.transaction import Transaction

logger = logging.getLogger(__name__)

STATUSES: tuple[Status, ...] = ("open", "stopped", "parked", "closed")
CLOSED = STATUSES.index("closed")
WAKEFUL = tuple(STATUSES.index(status) for status in AWAKE)
"""Statuses in which every message wakes a thread."""

QUEUE, HELD_BACK, FROZEN = 0, -1, -2
"""The lanes that are no engine's. Whoever knows nothing of frozen threads leaves them alone, too."""

NOBODY = 0
"""The number of no engine; what it holds is a dead one's."""

GREATEST_PENALTY = max(URGENCY_PENALTY)

NOWHERE = 0
"""The place of a message that was consumed without ever having been in the inbox."""

DUPLICATES = "duplicates"
"""What messages are counted under that were there before."""

FIRST_PLACES = 64
"""Places of an inbox that are read in one go; messages beyond them stand in indexes (the queries have the number)."""

BEAT_STALE = 1_000
"""Milliseconds after which a claim that finds nothing is still written down as a sign of life."""

ENGINE_KEPT = 24 * 3_600_000
"""Milliseconds that an engine which holds nothing is remembered by name after its last sign of life."""


class Letter(msgspec.Struct, frozen=True, gc=False):
    """A message made ready for an inbox."""

    thread_id: str
    message_id: str
    digest: bytes
    urgency: int
    due: int
    accepted: int
    body: bytes


StoredMessage = tuple[str, int, bytes, int]
"""Message id, moment at which it was accepted, body, moment at which it is due."""

_Moment = tuple[int, int, int]
"""Due, rank and urgency of a message."""


class Put(msgspec.Struct, frozen=True, gc=False):
    """Messages that one sender has put, and what is to be stored beside them."""

    letters: Sequence[Letter]
    blobs: Sequence[Blob]
    tenant: str | None


class Granted(msgspec.Struct, frozen=True, gc=False):
    """A claim whose messages are still to be decoded."""

    thread_id: str
    token: int
    tries: int
    version: int
    head: bytes
    messages: Sequence[StoredMessage]


class Digested(msgspec.Struct, frozen=True, gc=False):
    """A commit, with what can be worked out before its transaction."""

    commit: SliceCommit
    consumed: Sequence[tuple[str, bytes]]
    dropped: Sequence[tuple[str, bytes]]
    deferred: Sequence[tuple[str, bytes, int]]
    rewritten: Sequence[tuple[str, bytes, bytes]]
    letters: Sequence[Letter]
    effects: Sequence[tuple[str, bytes, str | None]]
    """Request id, the effect, and the call that it cancels."""


class _Held(msgspec.Struct, frozen=True, gc=False):
    """A thread that is claimed."""

    number: int
    thread_id: str
    token: int
    engine: int
    version: int
    tenant: str


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

_Going = tuple[_Held, Digested, bool]
"""A round that is applied: its thread, what it is, and whether its claim goes on."""


# The door


def create(
    tx: Transaction,
    threads: Sequence[NewThread],
    letters: Sequence[Letter],
    blobs: Sequence[Blob],
    tenant: str | None,
) -> list[Outcome]:
    """Make threads, then put."""
    for thread in threads:
        _add(tx, thread)
    return put_all(tx, (Put(letters, blobs, tenant),))[0]


def put_all(tx: Transaction, puts: Sequence[Put]) -> list[list[Outcome]]:
    """Keep blobs, then deliver."""
    tx.many("add_blob", [(blob.digest, blob.data) for put in puts for blob in put.blobs])
    outcomes: list[list[Outcome]] = []
    for tenant, same in groupby(puts, attrgetter("tenant")):
        letters = [put.letters for put in same]
        delivered = iter(_deliver_all(tx, list(chain.from_iterable(letters)), tenant))
        outcomes += [list(islice(delivered, len(some))) for some in letters]
    return outcomes


def _add(tx: Transaction, new: NewThread, tenant: str | None = None) -> None:
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


def _deliver_all(
    tx: Transaction, letters: Sequence[Letter], tenant: str | None, *, sent: bool = False
) -> list[Outcome]:
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
    learned = {place for (place,) in tx.many("learn_message", learning)}
    outcomes: list[Outcome] = []
    messages = []
    moved: dict[int, _Receiver] = {}
    for one in waiting:
        if isinstance(one, Outcome):
            outcomes.append(one)
            continue
        letter, thread, place = one
        if place not in learned:
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


# Claims


class DeadFinder:
    """Finds engines that died holding something."""

    def __init__(self) -> None:
        self._process = process_name(os.getpid())

    def __call__(self, tx: Transaction, held: str, caller: int, now: int) -> list[int]:
        """Return the dead ones among the engines that hold something (query `held`); the caller lives."""
        return [
            engine
            for engine, process, beat, gone in tx.rows(held)
            if engine != caller and self.is_dead(process, beat, gone, now)
        ]

    def is_dead(self, process: str, beat: int, gone: int, now: int) -> bool:
        """Tell whether an engine is dead, from what the store knows of it."""
        return bool(gone) or now - beat >= DEAD_AFTER or self._has_ended(process)

    def _has_ended(self, process: str) -> bool:
        return process != self._process and certainly_gone(process)


def claim(
    tx: Transaction,
    owner: Owner,
    now: int,
    limit: int,
    among: Sequence[str] | None,
    tenant: str | None,
    find_dead: DeadFinder,
) -> list[Granted]:
    """Claim ready threads."""
    engine, beaten = _engine(tx, owner, now)
    for thread, status, continues in tx.rows("overdue", (now,)):
        reschedule(tx, thread, status, continues)
    lanes = (QUEUE, *find_dead(tx, "claimants", engine, now))
    limit = max(limit, 0)
    ready = _most_urgent(tx, lanes, now, limit, tenant) if among is None else _among(tx, lanes, now, among, tenant)
    chosen = sorted(ready)[:limit]
    if beaten < now and (chosen or now - beaten >= BEAT_STALE):
        tx.rows("beat", (owner.engine_id, owner.process, now))
    return _grant(tx, engine, chosen, now) if chosen else []


def _most_urgent(tx: Transaction, lanes: Iterable[int], now: int, limit: int, tenant: str | None) -> list[Any]:
    return [row for lane in lanes for row in tx.rows("ready", (lane, now, GREATEST_PENALTY, limit, tenant))]


def _among(tx: Transaction, lanes: Iterable[int], now: int, names: Iterable[str], tenant: str | None) -> list[Any]:
    wanted = tuple({name.encode() for name in names})
    if not wanted:
        return []
    return [row for *row, lane in tx.rows("ready_among", (apsw.carray(wanted), now, tenant)) if lane in lanes]


def _grant(tx: Transaction, engine: int, chosen: Sequence[Any], now: int) -> list[Granted]:
    threads = apsw.carray(array("q", [row[1] for row in chosen]))
    tx.run("grant", (engine, threads))
    heads = dict(tx.rows("heads", (threads,)))
    for _, thread, thread_id, *_ in chosen if len(heads) < len(chosen) else ():
        if thread not in heads:
            logger.error("thread %s has lost its head in the store and cannot run; restore it from a backup", thread_id)
    messages: dict[int, list[StoredMessage]] = {row[1]: [] for row in chosen}
    for thread, *message in tx.rows("first_messages", (threads, now, FIRST_PLACES)):
        messages[thread].append(message)
    long = {thread for (thread,) in tx.rows("long_inboxes", (threads, FIRST_PLACES))}
    for _, thread, *_, status in chosen if long else ():
        if thread in long:
            messages[thread] = _due_messages(tx, thread, status, now)
    return [
        Granted(thread_id, token + 1, tries + 1, version, heads[thread], messages[thread])
        for _, thread, thread_id, token, tries, version, _ in chosen
        if thread in heads
    ]


def _due_messages(tx: Transaction, thread: int, status: int, now: int) -> list[StoredMessage]:
    """Return what a claim hands over: of too many, above all those that wake the thread, or they might never come."""
    rows = {*tx.rows("near_places", (thread, now)), *tx.rows("far_deferred_places", (thread, CLAIM_MESSAGES))}
    for urgency in range(len(URGENCY_PENALTY)):
        rows.update(tx.rows("far_due_places", (thread, urgency, now, CLAIM_MESSAGES)))
    waking = [place for place, due, urgency in rows if due <= now and (status in WAKEFUL or urgency == USER)]
    chosen = sorted(waking)[:CLAIM_MESSAGES]
    chosen += sorted({place for place, *_ in rows}.difference(waking))[: CLAIM_MESSAGES - len(chosen)]
    return tx.rows("messages_at", (apsw.carray(array("q", chosen)),)) if chosen else []


def take(tx: Transaction, claim: Claim, now: int) -> list[StoredMessage]:
    """Return what the claim would hand over now."""
    thread, _, _, status, _, _ = _held(tx, claim)
    return _due_messages(tx, thread, status, now)


def _held(tx: Transaction, claim: Claim) -> Any:
    found = tx.first("find_claimed", (claim.thread_id, claim.token))
    if found is None:
        raise StaleClaim(_is_over(claim))
    return found


def _is_over(claim: Claim) -> str:
    return f"the claim {claim.token} on {claim.thread_id!r} is over"


# What ends a claim


def commit_several(
    tx: Transaction, several: Sequence[Sequence[tuple[Claim, Digested, bool]]]
) -> list[list[Exception | None]]:
    """Apply what several have handed in, each of them some rounds."""
    ends = iter(commit_all(tx, list(chain.from_iterable(several))))
    return [list(islice(ends, len(rounds))) for rounds in several]


def commit_all(tx: Transaction, rounds: Sequence[tuple[Claim, Digested, bool]]) -> list[Exception | None]:
    """Apply rounds in their order, but for those whose claims are over.

    It is done step by step for all of them, up to the next that touches another thread: a step takes half as long after
    the same step of another round as it does after another step.
    """
    refused: list[Exception | None] = []
    some: dict[str, tuple[Claim, Digested, bool]] = {}
    for one in rounds:
        claim, digested, _ = one
        if claim.thread_id in some:
            refused += _commit(tx, some.values())
            some = {}
        some[claim.thread_id] = one
        if digested.commit.spawned or any(letter.thread_id != claim.thread_id for letter in digested.letters):
            refused += _commit(tx, some.values())
            some = {}
    return refused + _commit(tx, some.values())


def _commit(tx: Transaction, rounds: Collection[tuple[Claim, Digested, bool]]) -> list[Exception | None]:
    """Apply rounds of different threads."""
    names = tuple([claim.thread_id.encode() for claim, _, _ in rounds])
    held = {row[1]: _Held(*row) for row in tx.rows("held", (apsw.carray(names),))} if names else {}
    refused: list[Exception | None] = []
    going: list[_Going] = []
    for claim, digested, keep in rounds:
        thread = held.get(claim.thread_id)
        if thread is None or thread.token != claim.token:
            refused.append(StaleClaim(_is_over(claim)))
        elif (change := digested.commit).version != thread.version + 1 or change.thread_id != claim.thread_id:
            given = f"{claim.thread_id!r} has version {thread.version}; {change.version} does not follow it"
            refused.append(StaleClaim(given))
        else:
            refused.append(None)
            going.append((thread, digested, keep))
    if going:
        _apply(tx, going)
    return refused


def _apply(tx: Transaction, rounds: Sequence[_Going]) -> None:
    pages = [(thread.number, one.commit.version, *tx.pages.written(one.commit.page)) for thread, one, _ in rounds]
    tx.many("add_commit", [(*page, one.commit.receipt) for page, (_, one, _) in zip(pages, rounds, strict=True)])
    tx.many("set_head", [(thread.number, one.commit.head) for thread, one, _ in rounds])
    tx.many("add_blob", [(blob.digest, blob.data) for _, one, _ in rounds for blob in one.commit.blobs])
    _change_inboxes(tx, rounds)
    tx.many("settle_effect_of", [(name, thread.number) for thread, one, _ in rounds for name in one.commit.settled])
    tx.many(
        "add_effect",
        [(thread.engine, thread.number, one.commit.at, *owed) for thread, one, _ in rounds for owed in one.effects],
    )
    for thread, one, _ in rounds:
        for new in one.commit.spawned:
            _add(tx, new, thread.tenant)
    _finish(tx, rounds)
    for thread, one, _ in rounds:
        if one.letters:
            _deliver_all(tx, one.letters, thread.tenant, sent=True)


def _change_inboxes(tx: Transaction, rounds: Sequence[_Going]) -> None:
    consumed = [(thread.number, digest, name) for thread, one, _ in rounds for name, digest in one.consumed]
    before = tx.total_changes()
    tx.many("remove_message", consumed)
    if tx.total_changes() - before < len(consumed):  # not all had come by the inbox; those that had are known already
        tx.many("learn_message", [(number, digest, NOWHERE) for number, digest, _ in consumed])
    for thread, one, _ in rounds:
        for message_id, digest in one.dropped:
            tx.run("remove_message", (thread.number, digest, message_id))
            if tx.changes():
                tx.run("forget_message", (thread.number, digest))
        for message_id, digest, body in one.rewritten:
            tx.run("rewrite_message", (thread.number, digest, message_id, body))
        for message_id, digest, moment in one.deferred:
            tx.run("defer_message", (thread.number, digest, message_id, moment))


def _finish(tx: Transaction, rounds: Sequence[_Going]) -> None:
    """Put the threads of rounds where they belong from now on."""
    moments = _first_moments(tx, [thread.number for thread, _, _ in rounds])
    states = []
    for thread, digested, keep in rounds:
        change = digested.commit
        status, continues = STATUSES.index(change.status), change.at if change.continues else None
        rank, wake, urgency = _soonest(moments.get(thread.number, ()), status, continues)
        lane = thread.engine if keep else _lane(wake)
        state = (change.version, status, int(keep), change.at, continues, change.asking)
        states.append((thread.number, lane, rank, wake, *state))
        if lane == QUEUE:
            tx.hints.append((thread.thread_id, urgency))
    tx.many("finish_commit", states)


def release(tx: Transaction, claim: Claim, not_before: int) -> None:
    """Give a claim back."""
    try:
        thread, _, _, status, continues, _ = _held(tx, claim)
    except StaleClaim:
        return
    rank, wake, urgency = _moments(tx, thread, status, continues)
    if not_before:
        back = None if wake is None else max(wake, not_before)
        tx.run("set_lane", (thread, HELD_BACK, not_before, back))
    else:
        tx.run("set_lane", (thread, _lane(wake), rank, wake))
    if wake is not None:
        tx.hints.append((claim.thread_id, urgency))


def reschedule(tx: Transaction, thread: int, status: int, continues: int | None) -> int | None:
    """Put an unclaimed thread where it belongs; return how urgent it is, None if it has nothing to do."""
    rank, wake, urgency = _moments(tx, thread, status, continues)
    tx.run("set_lane", (thread, _lane(wake), rank, wake))
    return None if wake is None else urgency


def _lane(wake: int | None) -> int | None:
    return None if wake is None else QUEUE


def _moments(tx: Transaction, thread: int, status: int, continues: int | None) -> tuple[int | None, int | None, int]:
    """Return rank and wake of a thread (None when it has nothing to do), and how urgent it is."""
    return _soonest(_first_moments(tx, (thread,)).get(thread, ()), status, continues)


def _first_moments(tx: Transaction, threads: Sequence[int]) -> dict[int, list[_Moment]]:
    """Return due, rank and urgency of messages of threads: none that is left out is due before all its kind."""
    moments: dict[int, list[_Moment]] = {}
    numbers = apsw.carray(array("q", threads))
    for thread, *moment in tx.rows("near_moments", (numbers, FIRST_PLACES)):
        moments.setdefault(thread, []).append(tuple(moment))
    for (thread,) in tx.rows("long_inboxes", (numbers, FIRST_PLACES)):
        for level in range(len(URGENCY_PENALTY)):
            moments.setdefault(thread, []).extend(tx.rows("far_moments", (thread, level)))
    return moments


def _soonest(moments: Iterable[_Moment], status: int, continues: int | None) -> tuple[int | None, int | None, int]:
    """Return rank and wake of a thread of that status, from its messages, and how urgent it is."""
    found = [one for one in moments if status in WAKEFUL or one[2] == USER]
    if continues is not None:
        found.append((continues, continues + URGENCY_PENALTY[RESULT], RESULT))
    if not found:
        return None, None, RESULT
    return min(rank for _, rank, _ in found), min(found)[0], min(urgency for _, _, urgency in found)


# Engines


def beat(tx: Transaction, owner: Owner, now: int) -> None:
    """Write down a sign of life, and forget engines that are long gone."""
    tx.rows("beat", (owner.engine_id, owner.process, now))
    tx.run("forget_engines", (now - ENGINE_KEPT,))


def leave(tx: Transaction, owner: Owner) -> None:
    """Free an engine's claims."""
    found = tx.first("find_engine", (owner.engine_id,))
    if found is None:
        return
    tx.run("leave", (found[0],))
    for thread, status, continues, thread_id in tx.rows("claimed_by", (found[0],)):
        urgency = reschedule(tx, thread, status, continues)
        if urgency is not None:
            tx.hints.append((thread_id, urgency))


def _engine(tx: Transaction, owner: Owner, now: int) -> tuple[int, int]:
    """Return an engine's number and its last sign of life; one that is new, or counted as dead, gives one now."""
    found = tx.first("find_engine", (owner.engine_id,))
    if found:
        engine, beaten, gone = found
        if not gone and now - beaten < DEAD_AFTER:
            return engine, beaten
    return tx.first("beat", (owner.engine_id, owner.process, now))[0], now


# Effects


def start_effects(tx: Transaction, several: Sequence[tuple[Owner, Sequence[str]]]) -> list[list[str]]:
    """Mark effects as begun."""
    wanted = [(name, owner.engine_id) for owner, names in several for name in names]
    started = set(tx.many("start_effect", wanted))
    begun: list[list[str]] = []
    for owner, names in several:
        mine = [name for name in dict.fromkeys(names) if (name, owner.engine_id) in started]
        started.difference_update([(name, owner.engine_id) for name in mine])  # whoever comes later has not begun it
        begun.append(mine)
    return begun


def accept_effects(tx: Transaction, request_ids: Iterable[str]) -> None:
    """Mark effects as accepted."""
    tx.many("accept_effect", [(request_id,) for request_id in request_ids])


def settle_effects(tx: Transaction, request_ids: Iterable[str], thread_id: str | None) -> None:
    """Remove effects."""
    if thread_id is None:
        for request_id in request_ids:
            tx.run("settle_effect", (request_id,))
    elif (found := tx.first("find_status", (thread_id,))) is not None:
        for request_id in request_ids:
            tx.run("settle_effect_of", (request_id, found[0]))


def adopt_effects(
    tx: Transaction,
    owner: Owner,
    now: int,
    limit: int,
    threads: Sequence[str] | None,
    tenant: str | None,
    find_dead: DeadFinder,
) -> list[Any]:
    """Take over effects of dead engines; return their rows as they were."""
    engine, _ = _engine(tx, owner, now)
    adopted: list[Any] = []
    for dead in find_dead(tx, "performers", engine, now):
        left = max(limit - len(adopted), 0)
        if threads is None:
            adopted += tx.rows("unfinished_effects", (dead, left, tenant))
        else:
            names = apsw.carray(tuple({name.encode() for name in threads}))
            adopted += tx.rows("unfinished_effects_among", (dead, left, tenant, names)) if threads else []
    for row in adopted:
        tx.run("adopt_effect", (row[0], engine))
    return sorted(adopted)


# Other processes


def data_version(tx: Transaction) -> int:
    """Return a number that changes when somebody else has written."""
    version: int = tx.first("data_version")[0]
    return version
