"""The store that fails where a test wants it to."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress

import pytest

from hibernaut.errors import StoreBusy, StoreFull
from hibernaut.stores.memory import MemoryStore
from hibernaut.stores.protocol import Outcome, Store
from hibernaut.testing.faults import FaultPlan, FaultyStore, SimulatedCrash
from tests.store_conformance.scenario import (
    ANNA,
    START,
    after,
    claim_one,
    everything,
    names,
    new_thread,
    user,
)


async def _four_operations(store: Store) -> None:
    await store.create([new_thread()], [], START)
    await store.put([user("m1")], START)
    (claim,) = await store.claim(ANNA, START, 1)
    await store.commit(claim, after(claim))


def test_operations_are_named_in_their_order_and_what_is_no_transaction_is_not_counted() -> None:
    async def scenario() -> None:
        store = FaultyStore(MemoryStore())
        await _four_operations(store)
        store.on_change(lambda thread_id, urgency: None)()
        await store.secret()
        await store.changed_elsewhere()
        await store.read_log("t")
        await store.close()
        assert store.operations == ["create", "put", "claim", "commit", "read_log"]

    asyncio.run(scenario())


@pytest.mark.parametrize("after_it", [False, True])
@pytest.mark.parametrize("crash_at", [1, 2, 3, 4])
def test_a_process_dies_before_or_after_any_operation(crash_at: int, after_it: bool) -> None:
    async def scenario() -> None:
        inner, reference = MemoryStore(), MemoryStore()
        with pytest.raises(SimulatedCrash):
            await _four_operations(FaultyStore(inner, FaultPlan(crash_at=crash_at, after=after_it)))
        first_undone = crash_at + 1 if after_it else crash_at
        with suppress(StoreFull):
            await _four_operations(FaultyStore(reference, FaultPlan(fail_at={first_undone: StoreFull()})))
        assert await everything(inner) == await everything(reference)

    asyncio.run(scenario())


def test_nothing_works_in_a_process_that_died() -> None:
    async def scenario() -> None:
        store = FaultyStore(MemoryStore(), FaultPlan(crash_at=2))
        await store.create([new_thread()], [], START)
        operations: list[Callable[[], Awaitable[object]]] = [
            lambda: store.put([user("m1")], START),
            lambda: store.read_head("t"),
            lambda: store.claim(ANNA, START, 1),
        ]
        for operation in operations:
            with pytest.raises(SimulatedCrash):
                await operation()
        assert store.operations == ["create", "put"]

    asyncio.run(scenario())


def test_what_was_under_way_when_the_process_died_is_never_heard_of() -> None:
    class Slow(MemoryStore):
        """Holds reads back until it is told."""

        go = asyncio.Event()

        async def stored_bytes(self) -> int:
            await self.go.wait()
            raise StoreBusy

    async def scenario() -> None:
        inner = Slow()
        store = FaultyStore(inner, FaultPlan(crash_at=2, after=True))
        reading = asyncio.create_task(store.stored_bytes())
        await asyncio.sleep(0)
        with pytest.raises(SimulatedCrash):
            await store.create([new_thread()], [], START)
        assert await inner.read_head("t") is not None
        inner.go.set()
        with pytest.raises(SimulatedCrash):
            await reading

    asyncio.run(scenario())


def test_an_operation_fails_once_and_is_not_performed() -> None:
    async def scenario() -> None:
        store = FaultyStore(MemoryStore(), FaultPlan(fail_at={2: StoreBusy("try again")}))
        await store.create([new_thread()], [], START)
        with pytest.raises(StoreBusy, match="try again"):
            await store.put([user("m1")], START)
        assert await store.put([user("m1")], START) == [Outcome.ACCEPTED]
        assert names((await claim_one(store)).messages) == ["m1"]

    asyncio.run(scenario())


@pytest.mark.parametrize("after_it,existed", [(False, [False, True]), (True, [True, True])])
def test_a_harness_is_called_where_the_process_would_die(after_it: bool, existed: list[bool]) -> None:
    async def scenario() -> None:
        inner = MemoryStore()
        calls: list[tuple[int, str]] = []
        seen: list[bool] = []

        def reach(number: int, name: str) -> None:
            calls.append((number, name))
            seen.append("t" in inner._threads)

        store = FaultyStore(inner, FaultPlan(after=after_it, on_operation=reach))
        await store.create([new_thread()], [], START)
        await store.beat(ANNA, START)
        assert calls == [(1, "create"), (2, "beat")]
        assert seen == existed

    asyncio.run(scenario())


def test_a_crash_is_no_error_that_anybody_handles() -> None:
    assert not issubclass(SimulatedCrash, Exception)
