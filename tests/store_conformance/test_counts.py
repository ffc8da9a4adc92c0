"""What a store says of itself: how much there is, and what was counted of it."""

from hibernaut.kernel.commit import Outgoing
from hibernaut.stores.protocol import DEAD_AFTER, Outcome, Store
from tests.store_conformance.scenario import (
    ANNA,
    BERT,
    START,
    StoreFactory,
    a_thread,
    after,
    claim_one,
    command,
    invoke,
    run,
    timer,
    user,
)


def test_an_empty_store_has_nothing(open_store: StoreFactory) -> None:
    async def scenario(store: Store) -> None:
        counts = await store.read_counts(START)
        assert dict(counts.threads) == dict(counts.effects) == {}
        assert (counts.ready, counts.ready_since, counts.claimed, counts.waiting, counts.frozen) == (0, 0, 0, 0, 0)
        assert counts.counted == {"duplicates": 0}

    run(open_store, scenario)


def test_threads_inputs_and_effects_are_counted_by_how_they_stand(open_store: StoreFactory) -> None:
    async def scenario(store: Store) -> None:
        await a_thread(store, user("m1", "a"), thread_id="a")
        claim = await claim_one(store)
        await store.commit(claim, after(claim, effects=(invoke("call_1"), invoke("call_2"))))
        await store.start_effects(ANNA, ["call_2"])
        await a_thread(store, user("m2", "b"), thread_id="b")
        claim = await claim_one(store)
        await store.commit(claim, after(claim, status="stopped"))
        await a_thread(store, user("m3", "c"), thread_id="c")
        await a_thread(store, user("m4", "d"), thread_id="d")
        (claim,) = await store.claim(BERT, START, 1)
        await store.put([timer("later", "a")], START, due=START + 500)
        counts = await store.read_counts(START + 100)
        assert dict(counts.threads) == {"open": 3, "stopped": 1}
        assert dict(counts.effects) == {"pending": 1, "sent": 1}
        assert (counts.ready, counts.ready_since, counts.claimed, counts.waiting) == (1, START, 1, 3)
        assert (await store.read_counts(START + 500)).ready == 2
        assert (await store.read_counts(START + DEAD_AFTER)).ready == 3, "the claim of a dead engine is none"
        assert (await store.read_counts(START + DEAD_AFTER)).claimed == 0
        await store.freeze("d")
        assert (await store.read_counts(START)).frozen == 1

    run(open_store, scenario)


def test_every_message_that_was_there_before_is_counted_once_whoever_sent_it(open_store: StoreFactory) -> None:
    async def scenario(store: Store) -> None:
        await a_thread(store, user("m1"))
        await a_thread(store, thread_id="u")
        assert await store.put([user("m1"), user("m2"), user("m2")], START) == [
            Outcome.DUPLICATE,
            Outcome.ACCEPTED,
            Outcome.DUPLICATE,
        ]
        assert (await store.read_counts(START)).counted["duplicates"] == 2
        claim = await claim_one(store)
        await store.commit(claim, after(claim, outgoing=(Outgoing(user("m1")), Outgoing(user("m3", "u")))))
        assert (await store.read_counts(START)).counted["duplicates"] == 3
        await store.put([command("close", action="close")], START)
        claim = await claim_one(store, thread_id="t")
        await store.commit(claim, after(claim, status="closed"))
        assert await store.put([user("m1"), user("m9")], START) == [Outcome.DUPLICATE, Outcome.CLOSED]
        assert (await store.read_counts(START)).counted["duplicates"] == 4

    run(open_store, scenario)


def test_sums_are_added_and_greatest_values_kept(open_store: StoreFactory) -> None:
    async def scenario(store: Store) -> None:
        await store.add_counts({"slices": 2, "resumed.sum": 10}, {"resumed.greatest": 7})
        await store.add_counts({"slices": 3}, {"resumed.greatest": 4})
        await store.add_counts({}, {"resumed.greatest": 9})
        counted = (await store.read_counts(START)).counted
        assert counted == {"duplicates": 0, "slices": 5, "resumed.sum": 10, "resumed.greatest": 9}

    run(open_store, scenario)
