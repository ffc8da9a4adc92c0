"""What the tests of the embedded store are written with."""

import asyncio
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import apsw

from hibernaut.stores.sqlite import SqliteStore
from hibernaut.stores.sqlite.transaction import Transaction

BIG = "x" * 3_000_000


def play(path: Path, scenario: Callable[[SqliteStore], Awaitable[None]], *, busy_timeout: int = 10_000) -> None:
    """Play a scenario on the store of a file, whose rows are as large as what is written."""

    async def main() -> None:
        store = await SqliteStore.open(path / "agents.db", busy_timeout=busy_timeout, compress=False)
        try:
            await scenario(store)
        finally:
            await store.close()

    asyncio.run(main())


def raw(store: SqliteStore) -> apsw.Connection:
    """Return another connection to the store's file."""
    connection = apsw.Connection(store.path)
    connection.set_busy_timeout(10_000)
    return connection


@contextmanager
def held_lock(store: SqliteStore) -> Iterator[apsw.Connection]:
    """Hold the lock that writers need, as another process would."""
    connection = raw(store)
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield connection
    finally:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        connection.close()


@contextmanager
def standing_still(store: SqliteStore) -> Iterator[None]:
    """Keep the writer busy, so that all that is asked meanwhile is waiting when it is free."""
    started, go_on = threading.Event(), threading.Event()

    def stand_still(_: Transaction) -> None:
        started.set()
        go_on.wait(30)

    future = store._writer.submit(stand_still, writes=False)
    started.wait(30)
    try:
        yield
    finally:
        go_on.set()
        future.add_done_callback(lambda done: done.result())


async def let_all_ask() -> None:
    for _ in range(3):
        await asyncio.sleep(0)


def log_size(store: SqliteStore) -> int:
    return Path(f"{store.path}-wal").stat().st_size
