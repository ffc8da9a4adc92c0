"""Long inboxes: what a claim hands over of them, and when they take no more."""

from random import Random

import pytest
from msgspec.structs import replace

from hibernaut.messages.inputs import InputMessage, ParentMessage
from hibernaut.stores.protocol import CLAIM_MESSAGES, MOST_WAITING, Outcome, Store
from tests.store_conformance.scenario import (
    ANNA,
    START,
    StoreFactory,
    a_thread,
    after,
    claim_one,
    command,
    event,
    is_ready,
    names,
    new_thread,
    result,
    run,
    sent_to,
    timer,
    user,
)


async def burst(store: Store, count: int) -> list[str]:
    ids = [f"m{number}" for number in range(count)]
    await store.put([event(name) for name in ids], START)
    return ids


def test_a_burst_is_handed_over_oldest_first_claim_after_claim(open_store: StoreFactory) -> None:
    async def scenario(store: Store) -> None:
        await a_thread(store)
        ids, seen = await burst(store, 1_000), []
        while await is_ready(store):
            claim = await claim_one(store)
            assert len(claim.messages) <= CLAIM_MESSAGES
            seen += names(claim.messages)
            await store.commit(claim, after(claim))
        assert seen == ids
        assert await store.read_inbox("t") == ()

    run(open_store, scenario)


def test_what_is_deferred_again_and_again_comes_oldest_first(open_store: StoreFactory) -> None:
    async def scenario(store: Store) -> None:
        await a_thread(store)
        ids = await burst(store, 1_000)
        for first in range(0, 1_000, CLAIM_MESSAGES):
            claim = await claim_one(store)
            fresh = ids[first : first + CLAIM_MESSAGES]
            older = ids[: CLAIM_MESSAGES - len(fresh)]
            assert names(claim.messages) == [*older, *fresh]
            deferred = tuple((name, START + 5_000) for name in names(claim.messages))
            await store.commit(claim, after(claim, consumed=(), deferred=deferred))
        assert not await is_ready(store, now=START + 4_999)
        assert await store.next_due(START) == START + 5_000
        await store.put([result("answer")], START + 1)
        claim = await claim_one(store, START + 1)
        assert names(claim.messages) == [*ids[: CLAIM_MESSAGES - 1], "answer"]
        assert names(await store.take(claim, START + 1)) == names(claim.messages)
        await store.commit(claim, after(claim, consumed=("answer",), dropped=tuple(ids[:100])))
        claim = await claim_one(store, START + 5_000)
        assert names(claim.messages) == ids[100 : 100 + CLAIM_MESSAGES]
        assert names(await store.read_inbox("t")) == ids[100:]

    run(open_store, scenario)


def test_a_long_inbox_that_gets_short_is_like_any_other(open_store: StoreFactory) -> None:
    async def scenario(store: Store) -> None:
        await a_thread(store)
        ids = await burst(store, 300)
        claim = await claim_one(store)
        last = tuple((name, START + 50) for name in ids[-10:])
        await store.commit(claim, after(claim, consumed=tuple(ids[:-10]), deferred=last))
        assert not await is_ready(store)
        assert await store.put([event(ids[0]), event(ids[-1])], START) == [Outcome.DUPLICATE] * 2
        await store.put([event("new")], START)
        claim = await claim_one(store)
        assert names(claim.messages) == [*ids[-10:], "new"]
        await store.commit(claim, after(claim))
        assert await store.read_inbox("t") == ()

    run(open_store, scenario)


def test_a_stopped_thread_with_a_long_inbox_wakes_for_a_command_only(open_store: StoreFactory) -> None:
    async def scenario(store: Store) -> None:
        await a_thread(store, status="stopped")
        ids = await burst(store, 500)
        assert not await is_ready(store)
        assert await store.next_due(START) is None
        await store.put([command("resume")], START, due=START + 40)
        assert await store.next_due(START) == START + 40
        claim = await claim_one(store, START + 40)
        assert names(claim.messages) == [*ids[: CLAIM_MESSAGES - 1], "resume"]
        await store.commit(claim, after(claim, consumed=("resume",), status="open"))
        assert names((await claim_one(store)).messages) == ids[:CLAIM_MESSAGES]

    run(open_store, scenario)


@pytest.mark.parametrize("seed", range(6))
def test_a_long_inbox_loses_nothing_and_repeats_nothing(open_store: StoreFactory, seed: int) -> None:
    dice = Random(seed)

    async def scenario(store: Store) -> None:
        await a_thread(store)
        now, due = START, dict[str, int]()
        for turn in range(25):
            batch = [dice.choice((event, event, event, result, timer, user))(f"{turn}.{n}") for n in range(60)]
            moment = now + dice.choice((0, 0, 0, 400))
            await store.put(batch, now, due=moment)
            due |= {message.message_id: moment for message in batch}
            claims = await store.claim(ANNA, now, 1)
            for claim in claims:
                got = names(claim.messages)
                order = list(due)
                assert got == sorted(got, key=order.index)
                assert len(got) == len(set(got)) <= CLAIM_MESSAGES
                ready = [name for name in order if due[name] <= now]
                assert len(set(got) & set(ready)) == min(len(ready), CLAIM_MESSAGES)
                gone = [name for name in got if dice.random() < 0.5]
                kept = [name for name in got if name not in gone and dice.random() < 0.5]
                deferred = tuple((name, now + dice.choice((0, 100, 900))) for name in kept)
                await store.commit(claim, after(claim, consumed=tuple(gone), deferred=deferred))
                for name in gone:
                    del due[name]
                due |= dict(deferred)
            assert names(await store.read_inbox("t")) == list(due)
            expected = min((moment for moment in due.values()), default=None)
            if expected is not None and expected > now:
                assert await store.next_due(now) == expected
            now += dice.choice((0, 50, 300))

    run(open_store, scenario)


# The bound


def test_a_full_inbox_takes_no_more_events_from_the_door(open_store: StoreFactory) -> None:
    parent = InputMessage("p", "t", ParentMessage("do this"))

    async def scenario(store: Store) -> None:
        await a_thread(store)
        await a_thread(store, user("m", "u"), thread_id="u")
        ids = await burst(store, MOST_WAITING)
        assert await store.put([event("more"), event(ids[0]), parent], START) == [
            Outcome.FULL,
            Outcome.DUPLICATE,
            Outcome.FULL,
        ]
        assert len(await store.read_inbox("t")) == MOST_WAITING
        others = [user("text"), result("result"), timer("retry"), timer("sleep", purpose="sleep")]
        assert await store.put(others, START) == [Outcome.ACCEPTED] * 4
        claim = await claim_one(store, thread_id="u")
        await store.commit(claim, after(claim, outgoing=sent_to(replace(parent, message_id="sent"))))
        assert names(await store.read_inbox("t"))[MOST_WAITING:] == ["text", "result", "retry", "sleep", "sent"]
        claim = await claim_one(store, thread_id="t")
        await store.commit(claim, after(claim))
        assert await store.put([event("more")], START) == [Outcome.ACCEPTED]

    run(open_store, scenario)


def test_only_what_waits_counts_for_the_bound(open_store: StoreFactory) -> None:
    async def scenario(store: Store) -> None:
        await store.create([new_thread()], [timer("waits")], START)
        for first in range(0, MOST_WAITING, 2_500):
            batch = [event(f"{first}.{number}") for number in range(2_500)]
            assert await store.put(batch, START) == [Outcome.ACCEPTED] * 2_500
            for _ in range(10):
                claim = await claim_one(store)
                events = tuple(name for name in names(claim.messages) if name != "waits")
                await store.commit(claim, after(claim, consumed=events, deferred=(("waits", START),)))
        assert names(await store.read_inbox("t")) == ["waits"]
        assert await store.put([event("more")], START) == [Outcome.ACCEPTED]

    run(open_store, scenario)


def test_events_that_are_put_together_are_taken_up_to_the_bound_and_no_further(open_store: StoreFactory) -> None:
    async def scenario(store: Store) -> None:
        await a_thread(store)
        await a_thread(store, thread_id="u")
        ids = await burst(store, MOST_WAITING - 2)
        together = [event("new"), event(ids[0]), user("text"), event("u1", "u"), event("one more"), event("new")]
        assert await store.put(together, START) == [
            Outcome.ACCEPTED,
            Outcome.DUPLICATE,
            Outcome.ACCEPTED,
            Outcome.ACCEPTED,
            Outcome.FULL,
            Outcome.DUPLICATE,
        ]
        assert names(await store.read_inbox("t"))[-2:] == ["new", "text"]
        assert len(await store.read_inbox("t")) == MOST_WAITING
        assert names(await store.read_inbox("u")) == ["u1"]

    run(open_store, scenario)
