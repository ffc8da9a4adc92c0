"""What the tests of the embedded store are written with."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import apsw

from hibernaut.stores.sqlite import SqliteStore


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
