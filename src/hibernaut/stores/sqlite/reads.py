"""What the reading methods of the store do, each in a transaction of its own, which sees the store at one moment."""

import sys
from array import array
from collections.abc import Iterator
from heapq import nlargest
from pathlib import Path
from typing import Any

import apsw

from hibernaut.codec import sha256
from hibernaut.errors import StoreCorrupt
from hibernaut.stores.protocol import StoreCounts
from hibernaut.stores.sqlite import pages
from hibernaut.stores.sqlite.claims import DeadFinder, StoredMessage
from hibernaut.stores.sqlite.deliveries import DUPLICATES
from hibernaut.stores.sqlite.lanes import FROZEN, GREATEST_PENALTY, HELD_BACK, NOBODY, QUEUE, STATUSES
from hibernaut.stores.sqlite.moves import STATES
from hibernaut.stores.sqlite.transaction import Transaction

ENDLESS = -1
"""A limit that is none."""


def next_due(tx: Transaction, now: int, find_dead: DeadFinder) -> int | None:
    """Return when the next thread becomes ready by time alone."""
    moments = tx.rows("first_return", (HELD_BACK, now))
    for lane in (QUEUE, *find_dead(tx, "claimants", NOBODY, now)):
        moments += tx.rows("first_wake", (lane, now, GREATEST_PENALTY))
    return min((moment for (moment,) in moments if moment is not None), default=None)


def read_log(tx: Transaction, thread_id: str, after: int, limit: int) -> list[tuple[int, bytes, bytes]]:
    """Return version, page and receipt of a thread's commits."""
    return pages.read(tx.rows("read_log", (thread_id, after, limit or ENDLESS)))


def read_inbox(tx: Transaction, thread_id: str) -> list[StoredMessage]:
    """Return a whole inbox."""
    return tx.rows("read_inbox", (thread_id,))


def read_effects(tx: Transaction, thread_id: str | None) -> list[Any]:
    """Return the rows of the outbox, of one thread or all."""
    return tx.rows("read_effects") if thread_id is None else tx.rows("read_effects_of_thread", (thread_id,))


def accepted_effects(tx: Transaction, before: int, after: str, limit: int, tenant: str | None) -> list[Any]:
    """Return the rows of accepted effects that were made before that moment, those after a request id."""
    return tx.rows("accepted_effects", (before, after, limit, tenant))


def living_engines(tx: Transaction, now: int, find_dead: DeadFinder) -> list[str]:
    """Return the ids of the engines that live."""
    rows = tx.rows("engines")
    return [name for name, process, beat, gone in rows if not find_dead.is_dead(process, beat, gone, now)]


def read_value(tx: Transaction, query: str, key: bytes | str) -> bytes | None:
    """Return the one value that a query has for a key."""
    row = tx.first(query, (key,))
    return None if row is None else row[0]


def read_content(tx: Transaction, query: str, digest: bytes) -> bytes | None:
    """Return what is kept under its digest.

    Raises:
        StoreCorrupt: something else is.
    """
    content = read_value(tx, query, digest)
    if content is not None and sha256(content) != digest:
        raise StoreCorrupt(f"what is stored as {digest.hex()[:12]} was altered: it has another digest")
    return content


def list_threads(
    tx: Transaction, tenant: str | None, limit: int, before: tuple[int, str] | None, *, roots: bool
) -> list[Any]:
    """Return the rows of the threads that were updated last, of one tenant or of all.

    There is no index over all tenants: the best of each are merged, and those of a further one are read only as far as
    they can be among them.
    """
    updated, thread_id = before or (sys.maxsize, "")
    best: list[Any] = []
    for name in _tenants(tx) if tenant is None else (tenant,):
        floor = best[-1][0] if len(best) >= limit > 0 else -sys.maxsize
        best += tx.rows("list_roots", (name, updated, thread_id, floor, limit))
        if not roots:
            best += tx.rows("list_descendants", (name, updated, thread_id, floor, limit))
        best = nlargest(limit, best)
    return tx.rows("read_threads", (apsw.carray(array("q", [row[2] for row in best])),)) if best else []


def _tenants(tx: Transaction) -> Iterator[str]:
    (name,) = tx.first("first_tenant")
    while name is not None:
        yield name
        (name,) = tx.first("next_tenant", (name,))


def stored_bytes(path: str) -> int:
    """Return the size of a store's files."""
    return sum(file.stat().st_size for file in (Path(path), Path(f"{path}-wal"), Path(f"{path}-shm")) if file.exists())


def read_counts(tx: Transaction, now: int, find_dead: DeadFinder) -> StoreCounts:
    """Return what there is, and what was counted."""
    dead = find_dead(tx, "claimants", NOBODY, now)
    held = dict(tx.rows("count_lanes"))
    ready = [row for lane in (QUEUE, *dead) for row in tx.rows("count_ready", (lane, now, GREATEST_PENALTY))]
    return StoreCounts(
        threads={STATUSES[status]: number for status, number in tx.rows("count_statuses")},
        frozen=held.get(FROZEN, 0),
        ready=sum(number for number, _ in ready),
        ready_since=min((since for _, since in ready if since is not None), default=0),
        claimed=sum(number for lane, number in held.items() if lane > QUEUE and lane not in dead),
        waiting=tx.first("count_inbox")[0],
        effects={STATES[state]: number for state, number in tx.rows("count_effects")},
        counted={DUPLICATES: 0} | dict(tx.rows("read_counted")),
    )


def data_version(tx: Transaction) -> int:
    """Return a number that changes when somebody else has written."""
    version: int = tx.first("data_version")[0]
    return version
