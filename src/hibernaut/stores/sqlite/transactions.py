"""What the writing methods of the store do inside a transaction.

Every function gets the transaction and values that were made ready outside of it, and checks before it writes. Nothing
here waits, reads a clock, or knows of threads and tasks. What each does is said where `Store` has a method of its name.
"""

import logging
import os
from array import array
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import apsw

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


class Letter(NamedTuple):
    """A message made ready for an inbox."""

    thread_id: str
    message_id: str
    digest: bytes
    urgency: int
    due: int
    accepted: int
    body: bytes


StoredMessage = tuple[str, int, bytes, int]
"""Message id, moment at which it was accepted, body."""


class Granted(NamedTuple):
    """A claim whose messages are still to be decoded."""

    thread_id: str
    token: int
    tries: int
    version: int
    head: bytes
    messages: Sequence[StoredMessage]


class Digested(NamedTuple):
    """A commit, with what can be worked out before its transaction."""

    commit: SliceCommit
    consumed: Sequence[tuple[str, bytes]]
    dropped: Sequence[tuple[str, bytes]]
    deferred: Sequence[tuple[str, bytes, int]]
    rewritten: Sequence[tuple[str, bytes, bytes]]
    letters: Sequence[Letter]
    effects: Sequence[tuple[str, bytes, str | None]]
    """Request id, the effect, and the call that it cancels."""


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
    return put(tx, letters, blobs, tenant)


def put(tx: Transaction, letters: Sequence[Letter], blobs: Sequence[Blob], tenant: str | None) -> list[Outcome]:
    """Keep blobs, then deliver."""
    for blob in blobs:
        tx.run("add_blob", (blob.digest, blob.data))
    return _deliver_all(tx, letters, tenant)


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
    outcomes = [_deliver(tx, letter, tenant, sent=sent) for letter in letters]
    if duplicates := outcomes.count(Outcome.DUPLICATE):
        tx.run("add_count", (DUPLICATES, duplicates))
    return outcomes


def _deliver(tx: Transaction, letter: Letter, tenant: str | None, *, sent: bool = False) -> Outcome:
    thread_id, message_id, digest, urgency, due, accepted, body = letter
    found = tx.first("find_thread", (thread_id, tenant))
    if found is None:
        return Outcome.UNKNOWN
    thread, status, lane, rank, wake, last = found
    if status == CLOSED:
        return Outcome.DUPLICATE if tx.first("is_known", (thread, digest)) else Outcome.CLOSED
    place = 1 + (last or thread << 32)
    if urgency == EVENT and not sent and place > (thread << 32) + MOST_WAITING and _is_full(tx, thread, place):
        return Outcome.DUPLICATE if tx.first("is_known", (thread, digest)) else Outcome.FULL
    tx.run("learn_message", (thread, digest, place))
    if not tx.changes():
        return Outcome.DUPLICATE
    its_rank = due + URGENCY_PENALTY[urgency]
    tx.run("add_message", (place, due, its_rank, urgency, accepted, message_id, body))
    if lane == FROZEN or (status not in WAKEFUL and urgency):
        return Outcome.HELD
    tx.hints.append((thread_id, urgency))
    if lane == HELD_BACK:  # its rank is the moment at which it comes back
        tx.run("set_lane", (thread, lane, rank, max(rank, due if wake is None else min(due, wake))))
    elif wake is None:
        tx.run("set_lane", (thread, lane or QUEUE, its_rank, due))
    elif due < wake or its_rank < rank:
        tx.run("set_lane", (thread, lane, min(its_rank, rank), min(due, wake)))
    return Outcome.ACCEPTED


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
        raise StaleClaim(f"the claim {claim.token} on {claim.thread_id!r} is over")
    return found


# What ends a claim


def commit(tx: Transaction, claim: Claim, digested: Digested, *, keep: bool) -> None:
    """Apply a round."""
    change = digested.commit
    at, status = change.at, STATUSES.index(change.status)
    thread, engine, version, _, _, tenant = _held(tx, claim)
    if change.version != version + 1 or change.thread_id != claim.thread_id:
        raise StaleClaim(f"{claim.thread_id!r} has version {version}; {change.version} does not follow it")
    page, packed = tx.pages.written(change.page)
    tx.run("add_commit", (thread, change.version, page, change.receipt, packed))
    tx.run("set_head", (thread, change.head))
    for blob in change.blobs:
        tx.run("add_blob", (blob.digest, blob.data))
    _change_inbox(tx, thread, digested)
    for request_id in change.settled:
        tx.run("settle_effect_of", (request_id, thread))
    for request_id, effect, cancels in digested.effects:
        tx.run("add_effect", (engine, thread, at, request_id, effect, cancels))
    for new in change.spawned:
        _add(tx, new, tenant)
    continues = at if change.continues else None
    rank, wake, urgency = _moments(tx, thread, status, continues)
    lane = engine if keep else _lane(wake)
    state = (change.version, status, int(keep), at, continues, change.asking)
    tx.run("finish_commit", (thread, lane, rank, wake, *state))
    if lane == QUEUE:
        tx.hints.append((claim.thread_id, urgency))
    if digested.letters:
        _deliver_all(tx, digested.letters, tenant, sent=True)


def commit_all(tx: Transaction, rounds: Sequence[tuple[Claim, Digested, bool]]) -> list[Exception | None]:
    """Apply rounds, but for those whose claims are over."""
    refused: list[Exception | None] = []
    for claim, digested, keep in rounds:
        try:
            commit(tx, claim, digested, keep=keep)
        except StaleClaim as error:  # it comes before anything is written
            refused.append(error)
        else:
            refused.append(None)
    return refused


def _change_inbox(tx: Transaction, thread: int, digested: Digested) -> None:
    for message_id, digest in digested.consumed:
        tx.run("remove_message", (thread, digest, message_id))
        if not tx.changes():
            tx.run("learn_message", (thread, digest, NOWHERE))
    for message_id, digest in digested.dropped:
        tx.run("remove_message", (thread, digest, message_id))
        if tx.changes():
            tx.run("forget_message", (thread, digest))
    for message_id, digest, body in digested.rewritten:
        tx.run("rewrite_message", (thread, digest, message_id, body))
    for message_id, digest, moment in digested.deferred:
        tx.run("defer_message", (thread, digest, message_id, moment))


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
    found = tx.rows("moments", (thread, FIRST_PLACES + 1))
    if len(found) > FIRST_PLACES:  # then all that follow stand beyond the first places
        for level in range(len(URGENCY_PENALTY)):
            found += tx.rows("far_moments", (thread, level))
    if status not in WAKEFUL:
        found = [row for row in found if row[2] == USER]
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


def start_effects(tx: Transaction, owner: Owner, request_ids: Iterable[str]) -> list[str]:
    """Mark effects as begun."""
    started = []
    for request_id in request_ids:
        tx.run("start_effect", (request_id, owner.engine_id))
        if tx.changes():
            started.append(request_id)
    return started


def accept_effects(tx: Transaction, request_ids: Iterable[str]) -> None:
    """Mark effects as accepted."""
    for request_id in request_ids:
        tx.run("accept_effect", (request_id,))


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
