"""What a store tells of what it keeps, and when it says that there is something to do."""

import asyncio
from random import Random

import pytest

from hibernaut.messages.inputs import EVENT, RESULT, USER
from hibernaut.stores.protocol import DEAD_AFTER, LogRow, Store, ThreadRow
from tests.store_conformance.scenario import (
    ANNA,
    START,
    StoreFactory,
    a_thread,
    after,
    claim_one,
    command,
    event,
    new_thread,
    owe,
    result,
    run,
    sent_to,
    timer,
    user,
)


def test_a_new_thread_is_shown_as_it_was_made(open_store: StoreFactory) -> None:
    async def scenario(store: Store) -> None:
        await store.create([new_thread("a", tenant="x", created=START - 9)], [], START)
        row = ThreadRow("a", "x", "open", b"head 0 of a", START - 9, START - 9, 0)
        assert await store.read_head("a") == row
        assert await store.list_threads() == [row]
        assert await store.read_head("b") is None

    run(open_store, scenario)


def test_a_thread_is_shown_with_the_number_of_messages_that_wait_due_or_not(open_store: StoreFactory) -> None:
    async def scenario(store: Store) -> None:
        await a_thread(store, user("m1"), event("m2"))
        await store.put([timer("m3")], START, due=START + 50)
        rows = [await store.read_head("t"), *await store.list_threads()]
        assert [row and row.waiting for row in rows] == [3, 3]

    run(open_store, scenario)


def test_a_log_is_read_from_any_version_and_in_pieces(open_store: StoreFactory) -> None:
    async def scenario(store: Store) -> None:
        await a_thread(store)
        await a_thread(store, user("m", "u"), thread_id="u")
        for number in range(5):
            await store.put([user(f"m{number}")], START)
            claim = await claim_one(store, thread_id="t")
            await store.commit(claim, after(claim))
        rows = [LogRow(n, b"page %d" % n, b"receipt %d" % n) for n in range(1, 6)]
        assert await store.read_log("t") == rows
        assert await store.read_log("t", 3) == rows[3:]
        assert await store.read_log("t", 1, 2) == rows[1:3]
        assert await store.read_log("t", 4, 10) == rows[4:]
        assert await store.read_log("t", 5) == []
        assert await store.read_log("t", 99, 2) == []
        assert await store.read_log("u") == []
        assert await store.read_log("nobody") == []

    run(open_store, scenario)


def test_threads_are_listed_by_their_last_commit_the_latest_first(open_store: StoreFactory) -> None:
    async def scenario(store: Store) -> None:
        for number, name in enumerate("abcd"):
            await store.create([new_thread(name, created=START + number)], [], START)
        await store.put([user("m", "b"), user("m", "c")], START + 900)
        claim = await claim_one(store, START + 900, thread_id="b")
        await store.commit(claim, after(claim, at=START + 1_000))
        rows = await store.list_threads()
        assert [(row.thread_id, row.updated) for row in rows] == [
            ("b", START + 1_000),
            ("d", START + 3),
            ("c", START + 2),
            ("a", START),
        ]

    run(open_store, scenario)


@pytest.mark.parametrize("tenant", [None, "x", "y"])
def test_a_listing_can_be_read_page_by_page(open_store: StoreFactory, tenant: str | None) -> None:
    async def scenario(store: Store) -> None:
        made = [new_thread(f"t{n:02}", tenant="xxy"[n % 3], created=START + n // 5) for n in range(25)]
        await store.create(made, [], START)
        mine = [new for new in made if tenant in (None, new.tenant)]
        expected = sorted(((new.created, new.thread_id) for new in mine), reverse=True)
        seen: list[tuple[int, str]] = []
        while page := await store.list_threads(tenant, limit=4, before=seen[-1] if seen else None):
            assert len(page) <= 4
            seen += [(row.updated, row.thread_id) for row in page]
        assert seen == expected

    run(open_store, scenario)


def test_a_tenant_s_listing_shows_nobody_else_s_threads(open_store: StoreFactory) -> None:
    async def scenario(store: Store) -> None:
        await store.create([new_thread("a"), new_thread("b", tenant="x"), new_thread("c", tenant="y")], [], START)
        assert [row.thread_id for row in await store.list_threads("")] == ["a"]
        assert [row.thread_id for row in await store.list_threads("x")] == ["b"]
        assert await store.list_threads("z") == []
        assert len(await store.list_threads()) == 3

    run(open_store, scenario)


def test_the_next_moment_is_the_first_at_which_a_thread_wakes_by_itself(open_store: StoreFactory) -> None:
    async def scenario(store: Store) -> None:
        assert await store.next_due(START) is None
        for name in "abc":
            await a_thread(store, thread_id=name)
        await store.put([timer("m", "a")], START, due=START + 900)
        await store.put([timer("m", "b"), timer("n", "b")], START, due=START + 700)
        await store.put([user("m", "b")], START, due=START + 800)
        assert await store.next_due(START) == START + 700
        assert await store.next_due(START + 699) == START + 700
        assert await store.next_due(START + 700) == START + 900
        assert await store.next_due(START + 900) is None

    run(open_store, scenario)


def test_the_next_moment_passes_over_threads_that_are_ready_or_claimed(open_store: StoreFactory) -> None:
    async def scenario(store: Store) -> None:
        await a_thread(store, user("m1"))
        await store.put([timer("m2")], START, due=START + 500)
        assert await store.next_due(START) is None
        claim = await claim_one(store)
        assert await store.next_due(START) is None
        await store.commit(claim, after(claim))
        assert await store.next_due(START) == START + 500

    run(open_store, scenario)


def test_the_next_moment_counts_only_what_the_thread_wakes_for(open_store: StoreFactory) -> None:
    async def scenario(store: Store) -> None:
        await a_thread(store, status="stopped")
        await store.put([timer("m1")], START, due=START + 500)
        assert await store.next_due(START) is None
        await store.put([command("m2")], START, due=START + 600)
        assert await store.next_due(START) == START + 600

    run(open_store, scenario)


def test_a_dead_engine_s_timers_count_for_the_next_moment(open_store: StoreFactory) -> None:
    async def scenario(store: Store) -> None:
        await a_thread(store, user("m1"))
        claim = await claim_one(store)
        timers = sent_to(timer("m2"), due=START + 3 * DEAD_AFTER)
        await store.commit(claim, after(claim, outgoing=timers), keep=True)
        assert await store.next_due(START + DEAD_AFTER - 1) is None
        assert await store.next_due(START + DEAD_AFTER) == START + 3 * DEAD_AFTER
        await store.beat(ANNA, START + DEAD_AFTER)
        assert await store.next_due(START + DEAD_AFTER) is None
        await store.leave(ANNA)
        assert await store.next_due(START + DEAD_AFTER) == START + 3 * DEAD_AFTER

    run(open_store, scenario)


def test_a_store_keeps_one_secret_of_its_own(open_store: StoreFactory) -> None:
    async def scenario(store: Store) -> None:
        other = await open_store()
        secret = await store.secret()
        assert len(secret) == 32
        assert await store.secret() == secret
        assert await other.secret() != secret
        await other.close()

    run(open_store, scenario)


def test_what_is_stored_takes_at_least_its_own_size(open_store: StoreFactory) -> None:
    page = Random(1).randbytes(400_000)

    async def scenario(store: Store) -> None:
        await a_thread(store, user("m1"))
        empty = await store.stored_bytes()
        claim = await claim_one(store)
        await store.commit(claim, after(claim, page=page))
        with_page = await store.stored_bytes()
        assert empty < 400_000 <= with_page
        await owe(store, "r1")
        assert await store.stored_bytes() >= with_page

    run(open_store, scenario)


def test_nobody_else_writes_to_a_store_that_one_process_has(open_store: StoreFactory) -> None:
    async def scenario(store: Store) -> None:
        await a_thread(store, user("m1"))
        assert not await store.changed_elsewhere()

    run(open_store, scenario)


class _Hints:
    """Collects hints, and waits for those that must come."""

    def __init__(self) -> None:
        self._heard: set[tuple[str, int]] = set()
        self._changed = asyncio.Event()

    def __call__(self, thread_id: str, urgency: int) -> None:
        self._heard.add((thread_id, urgency))
        self._changed.set()

    async def expect(self, *hints: tuple[str, int]) -> None:
        async with asyncio.timeout(5):
            while not self._heard >= set(hints):
                self._changed.clear()
                await self._changed.wait()
        self._heard.clear()


def test_whoever_listens_is_told_when_a_thread_gets_something_to_do(open_store: StoreFactory) -> None:
    async def scenario(store: Store) -> None:
        hints, others = _Hints(), _Hints()
        store.on_change(hints)
        store.on_change(others)
        await store.create([new_thread("t"), new_thread("u")], [user("m1", "t")], START)
        await hints.expect(("t", USER))
        await others.expect(("t", USER))
        await store.put([result("m2", "t"), event("m1", "u")], START)
        await hints.expect(("t", RESULT), ("u", EVENT))
        await store.put([user("m2", "u")], START, due=START + 500)
        await hints.expect(("u", USER))

    run(open_store, scenario)


def test_whoever_listens_is_told_of_a_message_for_a_thread_that_is_claimed(open_store: StoreFactory) -> None:
    async def scenario(store: Store) -> None:
        await a_thread(store, event("m1"))
        await claim_one(store)
        hints = _Hints()
        store.on_change(hints)
        await store.put([user("m2")], START)
        await hints.expect(("t", USER))

    run(open_store, scenario)


def test_whoever_listens_is_told_what_a_commit_leads_to(open_store: StoreFactory) -> None:
    async def scenario(store: Store) -> None:
        await a_thread(store, thread_id="other")
        await a_thread(store, user("m1"))
        claim = await claim_one(store)
        hints = _Hints()
        store.on_change(hints)
        spawned, outgoing = (new_thread("child"),), sent_to(user("m", "child"), event("m", "other"))
        await store.commit(claim, after(claim, spawned=spawned, outgoing=outgoing, continues=True))
        await hints.expect(("child", USER), ("other", EVENT), ("t", RESULT))

    run(open_store, scenario)


def test_whoever_listens_is_told_when_a_thread_is_free_again_and_has_something_to_do(
    open_store: StoreFactory,
) -> None:
    async def scenario(store: Store) -> None:
        await a_thread(store, event("m1"), user("m2"))
        hints = _Hints()
        store.on_change(hints)
        await store.release(await claim_one(store))
        await hints.expect(("t", USER))
        claim = await claim_one(store)
        await store.commit(claim, after(claim, consumed=("m2",)))
        await hints.expect(("t", EVENT))
        await claim_one(store)
        await store.leave(ANNA)
        await hints.expect(("t", EVENT))

    run(open_store, scenario)


def test_whoever_has_stopped_listening_is_told_nothing(open_store: StoreFactory) -> None:
    async def scenario(store: Store) -> None:
        await a_thread(store)
        ended, hints = _Hints(), _Hints()
        end = store.on_change(ended)
        store.on_change(hints)
        end()
        end()
        await store.put([user("m1")], START)
        await hints.expect(("t", USER))
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0):
                await ended.expect(("t", USER))

    run(open_store, scenario)
