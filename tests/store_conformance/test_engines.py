"""Engines that live, die, come back and leave, and what becomes of the threads they had claimed."""

import subprocess
import sys

import pytest

from hibernaut.errors import StaleClaim
from hibernaut.stores.owners import process_name
from hibernaut.stores.protocol import DEAD_AFTER, Outcome, Owner, Store
from tests.store_conformance.scenario import (
    ANNA,
    BERT,
    START,
    StoreFactory,
    a_thread,
    after,
    claim_one,
    names,
    result,
    run,
    user,
)


def test_an_engine_that_gives_no_sign_of_life_loses_its_threads(open_store: StoreFactory) -> None:
    async def scenario(store: Store) -> None:
        await store.beat(ANNA, START)
        await a_thread(store, user("m1"))
        lost = await claim_one(store)
        assert await store.claim(BERT, START + DEAD_AFTER - 1, 10) == []
        claim = await claim_one(store, START + DEAD_AFTER, BERT)
        assert (claim.tries, names(claim.messages)) == (2, ["m1"])
        with pytest.raises(StaleClaim):
            await store.commit(lost, after(lost))
        await store.commit(claim, after(claim))

    run(open_store, scenario)


def test_an_engine_that_never_beat_is_known_by_its_claim(open_store: StoreFactory) -> None:
    async def scenario(store: Store) -> None:
        await a_thread(store, user("m1"))
        await claim_one(store, START + 100)
        assert await store.claim(BERT, START + 100 + DEAD_AFTER - 1, 10) == []
        await claim_one(store, START + 100 + DEAD_AFTER, BERT)

    run(open_store, scenario)


def test_an_engine_that_beats_keeps_its_threads(open_store: StoreFactory) -> None:
    async def scenario(store: Store) -> None:
        await a_thread(store, user("m1"))
        claim = await claim_one(store)
        now = START
        for _ in range(4):
            now += DEAD_AFTER - 1
            assert await store.claim(BERT, now, 10) == []
            await store.beat(ANNA, now)
        await store.commit(claim, after(claim))

    run(open_store, scenario)


def test_an_engine_whose_process_has_ended_loses_its_threads_at_once(open_store: StoreFactory) -> None:
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    other = Owner("engine_other", process_name(process.pid))

    def end() -> None:
        with process:
            process.kill()

    async def scenario(store: Store) -> None:
        await a_thread(store, user("m1"))
        await store.beat(other, START)
        await claim_one(store, owner=other)
        assert await store.claim(BERT, START, 10) == []
        end()
        assert names((await claim_one(store, owner=BERT)).messages) == ["m1"]

    try:
        if not other.process:
            pytest.skip("this platform does not tell which processes run")
        run(open_store, scenario)
    finally:
        end()


def test_an_engine_that_is_late_may_commit_as_long_as_nobody_took_over(open_store: StoreFactory) -> None:
    async def scenario(store: Store) -> None:
        for name in "ab":
            await a_thread(store, user("m", name), thread_id=name)
        late = {claim.thread_id: claim for claim in await store.claim(ANNA, START, 2)}
        (taken,) = await store.claim(BERT, START + DEAD_AFTER, 1)
        left = late["b" if taken.thread_id == "a" else "a"]
        await store.commit(left, after(left))
        with pytest.raises(StaleClaim):
            await store.commit(late[taken.thread_id], after(late[taken.thread_id]))
        assert await store.claim(BERT, START + DEAD_AFTER, 10) == []

    run(open_store, scenario)


def test_an_engine_that_comes_back_keeps_what_nobody_took_over(open_store: StoreFactory) -> None:
    async def scenario(store: Store) -> None:
        await a_thread(store, user("m1"))
        claim = await claim_one(store)
        now = START + DEAD_AFTER
        assert await store.claim(BERT, now, 10, threads=["another"]) == []
        assert await store.put([result("m2")], now) == [Outcome.ACCEPTED]
        await store.beat(ANNA, now)
        assert await store.claim(BERT, now, 10) == []
        assert await store.claim(BERT, now, 10, threads=["t"]) == []
        await store.commit(claim, after(claim))
        assert names((await claim_one(store, now, BERT)).messages) == ["m2"]

    run(open_store, scenario)


def test_a_thread_of_a_dead_engine_that_has_nothing_to_do_is_not_ready(open_store: StoreFactory) -> None:
    async def scenario(store: Store) -> None:
        await a_thread(store, user("m1"))
        claim = await claim_one(store)
        await store.commit(claim, after(claim), keep=True)
        assert await store.claim(BERT, START + DEAD_AFTER, 10) == []
        await store.put([user("m2")], START + DEAD_AFTER)
        claim = await claim_one(store, START + DEAD_AFTER, BERT)
        assert (names(claim.messages), claim.version, claim.tries) == (["m2"], 1, 2)

    run(open_store, scenario)


def test_an_engine_never_takes_a_thread_over_from_itself(open_store: StoreFactory) -> None:
    async def scenario(store: Store) -> None:
        await a_thread(store, user("m1"))
        claim = await claim_one(store)
        assert await store.claim(ANNA, START + 10 * DEAD_AFTER, 10) == []
        assert await store.claim(ANNA, START + 10 * DEAD_AFTER, 10, threads=["t"]) == []
        await store.commit(claim, after(claim))

    run(open_store, scenario)


def test_the_threads_of_an_engine_that_leaves_are_free_at_once(open_store: StoreFactory) -> None:
    async def scenario(store: Store) -> None:
        for name in "abc":
            await a_thread(store, user("m", name), thread_id=name)
        left = await claim_one(store, thread_id="a")
        other = await claim_one(store, owner=BERT, thread_id="b")
        await store.leave(ANNA)
        await store.leave(Owner("engine_nobody"))
        with pytest.raises(StaleClaim):
            await store.commit(left, after(left))
        claims = await store.claim(BERT, START, 10)
        assert {claim.thread_id: claim.tries for claim in claims} == {"a": 2, "c": 1}
        await store.commit(other, after(other))

    run(open_store, scenario)


def test_an_engine_that_left_may_come_again(open_store: StoreFactory) -> None:
    async def scenario(store: Store) -> None:
        await a_thread(store, user("m1"))
        await claim_one(store)
        await store.leave(ANNA)
        claim = await claim_one(store)
        assert await store.claim(BERT, START, 10) == []
        await store.commit(claim, after(claim))

    run(open_store, scenario)
