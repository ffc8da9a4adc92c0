"""How what slices have made becomes durable, inside a transaction."""

from collections.abc import Collection, Sequence
from itertools import chain, islice

import apsw
import msgspec

from hibernaut.errors import StaleClaim
from hibernaut.kernel.commit import SliceCommit
from hibernaut.stores.protocol import Claim
from hibernaut.stores.sqlite.claims import is_over
from hibernaut.stores.sqlite.deliveries import Letter, add_thread, deliver_all
from hibernaut.stores.sqlite.lanes import QUEUE, STATUSES, first_moments, lane_of, soonest
from hibernaut.stores.sqlite.transaction import Transaction

NOWHERE = 0
"""The place of a message that was consumed without ever having been in the inbox."""


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


_Going = tuple[_Held, Digested, bool]
"""A round that is applied: its thread, what it is, and whether its claim goes on."""


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
            refused.append(StaleClaim(is_over(claim)))
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
            add_thread(tx, new, thread.tenant)
    _finish(tx, rounds)
    for thread, one, _ in rounds:
        if one.letters:
            deliver_all(tx, one.letters, thread.tenant, sent=True)


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
    moments = first_moments(tx, [thread.number for thread, _, _ in rounds])
    states = []
    for thread, digested, keep in rounds:
        change = digested.commit
        status, continues = STATUSES.index(change.status), change.at if change.continues else None
        rank, wake, urgency = soonest(moments.get(thread.number, ()), status, continues)
        lane = thread.engine if keep else lane_of(wake)
        state = (change.version, status, int(keep), change.at, continues, change.asking)
        states.append((thread.number, lane, rank, wake, *state))
        if lane == QUEUE:
            tx.hints.append((thread.thread_id, urgency))
    tx.many("finish_commit", states)
