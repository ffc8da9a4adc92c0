"""Every test of this folder runs on every store."""

from itertools import count
from pathlib import Path

import pytest

from hibernaut.stores.memory import MemoryStore
from hibernaut.stores.protocol import Store
from hibernaut.stores.sqlite import SqliteStore
from hibernaut.testing.faults import FaultyStore
from tests.store_conformance.scenario import StoreFactory


@pytest.fixture(params=["memory", "faulty", "sqlite"])
def open_store(request: pytest.FixtureRequest, tmp_path: Path) -> StoreFactory:
    """What makes a new, empty store."""
    if request.param == "memory":
        return _open_memory
    if request.param == "faulty":
        return _open_faulty
    numbers = count()

    async def open_sqlite() -> Store:
        store: Store = await SqliteStore.open(tmp_path / f"{next(numbers)}.db")
        return store

    return open_sqlite


async def _open_memory() -> Store:
    return MemoryStore()


async def _open_faulty() -> Store:
    """A store whose plan is to do nothing is a store like any other."""
    return FaultyStore(MemoryStore())
