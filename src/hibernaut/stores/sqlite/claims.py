"""How engines get threads and give them back, and what is known of engines, inside a transaction."""

import logging
import os
from array import array
from collections.abc import Iterable, Sequence
from typing import Any

import apsw
import msgspec

from hibernaut.errors import StaleClaim
from hibernaut.messages.inputs import USER
from hibernaut.stores.owners import certainly_gone, process_name
from hibernaut.stores.protocol import CLAIM_MESSAGES, DEAD_AFTER, URGENCY_PENALTY, Claim, Owner
from hibernaut.stores.sqlite.lanes import (
    FIRST_PLACES,
    GREATEST_PENALTY,
    HELD_BACK,
    QUEUE,
    WAKEFUL,
    lane_of,
    moments_of,
    reschedule,
)
from hibernaut.stores.sqlite.transaction import Transaction

logger = logging.getLogger(__name__)

BEAT_STALE = 1_000
"""Milliseconds after which a claim that finds nothing is still written down as a sign of life."""

ENGINE_KEPT = 24 * 3_600_000
"""Milliseconds that an engine which holds nothing is remembered by name after its last sign of life."""

StoredMessage = tuple[str, int, bytes, int]
"""Message id, moment at which it was accepted, body, moment at which it is due."""


class Granted(msgspec.Struct, frozen=True, gc=False):
    """A claim whose messages are still to be decoded."""

    thread_id: str
    token: int
    tries: int
    version: int
    head: bytes
    messages: Sequence[StoredMessage]


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
    engine, beaten = engine_of(tx, owner, now)
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
        raise StaleClaim(is_over(claim))
    return found


def is_over(claim: Claim) -> str:
    """Return the words for whoever comes with a claim that is over."""
    return f"the claim {claim.token} on {claim.thread_id!r} is over"


def release(tx: Transaction, claim: Claim, not_before: int) -> None:
    """Give a claim back."""
    try:
        thread, _, _, status, continues, _ = _held(tx, claim)
    except StaleClaim:
        return
    rank, wake, urgency = moments_of(tx, thread, status, continues)
    if not_before:
        back = None if wake is None else max(wake, not_before)
        tx.run("set_lane", (thread, HELD_BACK, not_before, back))
    else:
        tx.run("set_lane", (thread, lane_of(wake), rank, wake))
    if wake is not None:
        tx.hints.append((claim.thread_id, urgency))


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


def engine_of(tx: Transaction, owner: Owner, now: int) -> tuple[int, int]:
    """Return an engine's number and its last sign of life; one that is new, or counted as dead, gives one now."""
    found = tx.first("find_engine", (owner.engine_id,))
    if found:
        engine, beaten, gone = found
        if not gone and now - beaten < DEAD_AFTER:
            return engine, beaten
    return tx.first("beat", (owner.engine_id, owner.process, now))[0], now
