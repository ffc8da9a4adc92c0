"""Every test of this folder runs on every store."""

from itertools import count
from pathlib import Path

import pytest

from hibernaut.stores.memory import MemoryStore
from hibernaut.stores.protocol import Store
from hibernaut.stores.sqlite import SqliteStore
from hibernaut.testing.faults import FaultyStore
from tests.store_conformance.scenario import StoreFactory


@pytest.fixture(params=["memory", "faulty", "sqlite", "memory, compressed", "sqlite, compressed"])
def open_store(request: pytest.FixtureRequest, tmp_path: Path) -> StoreFactory:
    """What makes a new, empty store."""
    compress = request.param.endswith("compressed")
    if request.param.startswith("memory"):
        return _open_compressed if compress else _open_memory
    if request.param == "faulty":
        return _open_faulty
    numbers = count()

    async def open_sqlite() -> Store:
        store: Store = await SqliteStore.open(tmp_path / f"{next(numbers)}.db", compress=compress)
        return store

    return open_sqlite


async def _open_memory() -> Store:
    return MemoryStore()


async def _open_compressed() -> Store:
    """A store that puts away at once what it gets, so that everything is read from what is packed."""
    return MemoryStore(compress=True, hot=0)


async def _open_faulty() -> Store:
    """A store whose plan is to do nothing is a store like any other."""
    return FaultyStore(MemoryStore())
