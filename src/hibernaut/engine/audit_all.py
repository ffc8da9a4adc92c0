"""Checking all threads of a store, a batch at a time, so that memory does not grow with their number."""

import asyncio
from collections.abc import AsyncGenerator, Sequence

import msgspec

from hibernaut.engine.auditing import audit
from hibernaut.errors import UnknownThread, VerificationFailed
from hibernaut.stores.protocol import Store, ThreadRow

BATCH = 500
"""Threads that are checked in one go."""

AT_ONCE = 8
"""Threads of a batch that are read at the same time."""

MOST_PASSES = 10
"""Times that threads which moved up in the listing while it was read are looked for."""


class Broken(msgspec.Struct, frozen=True):
    """The first difference that was found in a thread; see `hibernaut.errors.VerificationFailed`."""

    thread_id: str
    kind: str
    version: int
    problem: str


class Tally(msgspec.Struct, frozen=True):
    """What was checked: numbers, and what did not hold."""

    threads: int = 0
    receipts: int = 0
    effects: int = 0
    broken: tuple[Broken, ...] = ()

    def __add__(self, other: "Tally") -> "Tally":
        return Tally(
            self.threads + other.threads,
            self.receipts + other.receipts,
            self.effects + other.effects,
            self.broken + other.broken,
        )


async def batches(store: Store, tenant: str | None) -> AsyncGenerator[list[ThreadRow], None]:
    """Yield all threads of a tenant (None: of all), a batch at a time.

    A thread that goes on meanwhile moves up in the listing, and so could be missed: those that have changed since the
    listing began come again.
    """
    newest = -1
    for _ in range(MOST_PASSES):
        rows = await store.list_threads(tenant, limit=BATCH)
        if not rows or rows[0].updated <= newest:
            return
        since, newest = newest, rows[0].updated
        while changed := [row for row in rows if row.updated >= since]:
            yield changed
            rows = await store.list_threads(tenant, limit=BATCH, before=(rows[-1].updated, rows[-1].thread_id))


async def audit_batch(store: Store, rows: Sequence[ThreadRow]) -> Tally:
    """Check some threads; one that was deleted meanwhile counts as none.

    Raises:
        StoreError: the store cannot be read.
    """
    parts: list[Tally] = []
    todo = iter(rows)

    async def work() -> None:
        for row in todo:
            tally = await _audit_one(store, row)
            parts.append(tally)

    async with asyncio.TaskGroup() as group:
        for _ in range(AT_ONCE):
            group.create_task(work())
    return sum(parts, Tally())


async def _audit_one(store: Store, row: ThreadRow) -> Tally:
    try:
        audited = await audit(store, row)
    except UnknownThread:
        return Tally()
    except VerificationFailed as error:
        return Tally(1, broken=(Broken(row.thread_id, error.kind, error.version, str(error)),))
    return Tally(1, audited.receipts, audited.effects)


def audit_file(path: str, rows: Sequence[ThreadRow]) -> Tally:
    """Check some threads of a file in a process of its own.

    Raises:
        StoreError: the store cannot be read.
    """

    async def check() -> Tally:
        from hibernaut.stores.sqlite import SqliteStore  # noqa: PLC0415  # loaded only where a file is used

        store = await SqliteStore.open(path)
        try:
            return await audit_batch(store, rows)
        finally:
            await store.close()

    return asyncio.run(check())
