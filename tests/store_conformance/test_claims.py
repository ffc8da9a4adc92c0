"""Which threads are ready, in which order they are claimed, and what a claim hands over."""

import asyncio

import pytest

from hibernaut.messages.inputs import InputMessage
from hibernaut.stores.protocol import CLAIM_MESSAGES, Claim, Outcome, Store
from tests.store_conformance.scenario import (
    ANNA,
    BERT,
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
    timer,
    user,
)


def test_a_thread_without_messages_is_not_ready(open_store: StoreFactory) -> None:
    async def scenario(store: Store) -> None:
        await a_thread(store)
        assert await store.claim(ANNA, START + 10**9, 10) == []

    run(open_store, scenario)


def test_a_claim_hands_over_the_thread_and_its_messages(open_store: StoreFactory) -> None:
    async def scenario(store: Store) -> None:
        await a_thread(store, user("m1"), result("m2"))
        claim = await claim_one(store)
        assert (claim.thread_id, claim.tries, claim.version, claim.head) == ("t", 1, 0, b"head 0 of t")
        assert claim.messages == await store.read_inbox("t")
        assert [one.message for one in claim.messages] == [user("m1"), result("m2")]

    run(open_store, scenario)


def test_a_claimed_thread_is_not_ready_for_anybody(open_store: StoreFactory) -> None:
    async def scenario(store: Store) -> None:
        await a_thread(store, user("m1"))
        await claim_one(store)
        await store.put([user("m2")], START)
        for owner in (ANNA, BERT):
            assert await store.claim(owner, START + 1, 10) == []
            assert await store.claim(owner, START + 1, 10, threads=["t"]) == []

    run(open_store, scenario)


def test_no_more_threads_are_claimed_than_asked_for(open_store: StoreFactory) -> None:
    async def scenario(store: Store) -> None:
        for name in "abcde":
            await a_thread(store, user("m", name), thread_id=name)
        assert await store.claim(ANNA, START, 0) == []
        first = await store.claim(ANNA, START, 2)
        second = await store.claim(BERT, START, 2)
        third = await store.claim(ANNA, START, 2)
        assert [len(claims) for claims in (first, second, third)] == [2, 2, 1]
        assert {claim.thread_id for claim in first + second + third} == set("abcde")

    run(open_store, scenario)


def test_only_the_threads_that_are_named_are_claimed(open_store: StoreFactory) -> None:
    async def scenario(store: Store) -> None:
        for name in "abc":
            await a_thread(store, user("m", name), thread_id=name)
        await a_thread(store, thread_id="idle")
        claims = await store.claim(ANNA, START, 10, threads=["c", "nobody", "idle", "a", "c"])
        assert {claim.thread_id for claim in claims} == {"a", "c"}
        assert len(claims) == 2
        assert await store.claim(ANNA, START, 10, threads=[]) == []
        assert [claim.thread_id for claim in await store.claim(ANNA, START, 10)] == ["b"]

    run(open_store, scenario)


def test_a_message_wakes_its_thread_at_its_moment_and_not_before(open_store: StoreFactory) -> None:
    async def scenario(store: Store) -> None:
        await a_thread(store)
        await store.put([timer("m1")], START, due=START + 1_000)
        assert not await is_ready(store, now=START + 999)
        assert not await store.claim(ANNA, START + 999, 10)
        claim = await claim_one(store, START + 1_000)
        assert names(claim.messages) == ["m1"]

    run(open_store, scenario)


def test_only_what_is_due_is_handed_over(open_store: StoreFactory) -> None:
    async def scenario(store: Store) -> None:
        await a_thread(store)
        await store.put([timer("later")], START, due=START + 1_000)
        await store.put([user("m1")], START)
        claim = await claim_one(store, START + 999)
        assert names(claim.messages) == ["m1"]
        await store.commit(claim, after(claim))
        assert names((await claim_one(store, START + 1_000)).messages) == ["later"]

    run(open_store, scenario)


def test_a_thread_wakes_for_what_is_due_first_however_urgent_what_comes_later_is(open_store: StoreFactory) -> None:
    async def scenario(store: Store) -> None:
        await a_thread(store)
        await store.put([user("later")], START, due=START + 500)
        await store.put([event("now")], START)
        assert await store.next_due(START) is None
        assert names((await claim_one(store)).messages) == ["now"]

    run(open_store, scenario)


URGENCIES = [
    ("user", user("m", "user")),
    ("command", command("m", "command")),
    ("result", result("m", "result")),
    ("sleep", timer("m", "sleep", purpose="sleep")),
    ("event", event("m", "event")),
    ("deadline", timer("m", "deadline", purpose="deadline")),
    ("retry", timer("m", "retry", purpose="retry")),
]


@pytest.mark.parametrize("named", [False, True])
def test_the_urgent_go_first(open_store: StoreFactory, named: bool) -> None:
    async def scenario(store: Store) -> None:
        for name, message in reversed(URGENCIES):
            await a_thread(store, message, thread_id=name)
        threads = [name for name, _ in URGENCIES] if named else None
        order: list[str] = []
        for limit in (1, 3, 10):
            order += [claim.thread_id for claim in await store.claim(ANNA, START, limit, threads=threads)]
        assert set(order[:2]) == {"user", "command"}
        assert set(order[2:4]) == {"result", "sleep"}
        assert order[4] == "event"
        assert set(order[5:]) == {"deadline", "retry"}

    run(open_store, scenario)


@pytest.mark.parametrize(
    "message,penalty",
    [(result("m", "other"), 250), (event("m", "other"), 1_000), (timer("m", "other"), 4_000)],
    ids=["result", "event", "upkeep"],
)
def test_who_waits_long_enough_is_first(open_store: StoreFactory, message: InputMessage, penalty: int) -> None:
    async def scenario(store: Store) -> None:
        await a_thread(store, thread_id="other")
        await a_thread(store, thread_id="before")
        await a_thread(store, thread_id="after")
        await store.put([message], START)
        await store.put([user("m", "after")], START + penalty + 1)
        await store.put([user("m", "before")], START + penalty - 1)
        claims = await store.claim(ANNA, START + 10_000, 10)
        assert [claim.thread_id for claim in claims] == ["before", "other", "after"]

    run(open_store, scenario)


def test_the_moment_that_counts_is_when_a_message_became_due(open_store: StoreFactory) -> None:
    async def scenario(store: Store) -> None:
        for name in "abc":
            await a_thread(store, thread_id=name)
        await store.put([user("m", "a")], START, due=START + 300)
        await store.put([user("m", "b")], START + 200)
        await store.put([user("m", "c")], START + 250, due=START + 260)
        assert [claim.thread_id for claim in await store.claim(ANNA, START + 300, 10)] == ["b", "c", "a"]

    run(open_store, scenario)


def test_the_most_urgent_message_speaks_for_its_thread(open_store: StoreFactory) -> None:
    async def scenario(store: Store) -> None:
        await a_thread(store, result("m1", "a"), thread_id="a")
        await a_thread(store, event("m1", "b"), event("m2", "b"), user("m3", "b"), event("m4", "b"), thread_id="b")
        assert [claim.thread_id for claim in await store.claim(ANNA, START, 10)] == ["b", "a"]

    run(open_store, scenario)


def test_tokens_grow_and_tries_count_the_claims_since_the_last_commit(open_store: StoreFactory) -> None:
    async def scenario(store: Store) -> None:
        await a_thread(store, user("m1"))
        tokens = []
        for tries in (1, 2, 3):
            claim = await claim_one(store)
            assert claim.tries == tries
            tokens.append(claim.token)
            await store.release(claim)
        claim = await claim_one(store)
        await store.commit(claim, after(claim))
        tokens.append(claim.token)
        await store.put([user("m2")], START)
        claim = await claim_one(store)
        assert (claim.tries, claim.version) == (1, 1)
        tokens.append(claim.token)
        assert tokens == sorted(set(tokens))

    run(open_store, scenario)


def test_one_claim_hands_over_a_bounded_number_and_the_rest_is_for_the_next(open_store: StoreFactory) -> None:
    async def scenario(store: Store) -> None:
        ids = [f"m{number}" for number in range(CLAIM_MESSAGES + 44)]
        await a_thread(store, *map(user, ids))
        claim = await claim_one(store)
        assert names(claim.messages) == ids[:CLAIM_MESSAGES]
        assert names(await store.take(claim, START)) == ids[:CLAIM_MESSAGES]
        await store.commit(claim, after(claim))
        claim = await claim_one(store)
        assert names(claim.messages) == ids[CLAIM_MESSAGES:]
        await store.commit(claim, after(claim))
        assert not await is_ready(store)

    run(open_store, scenario)


def test_what_woke_a_stopped_thread_comes_along_however_much_is_held(open_store: StoreFactory) -> None:
    async def scenario(store: Store) -> None:
        await a_thread(store, status="stopped")
        held = [f"m{number}" for number in range(CLAIM_MESSAGES + 10)]
        await store.put([*map(event, held), command("resume")], START)
        claim = await claim_one(store)
        assert names(claim.messages) == [*held[: CLAIM_MESSAGES - 1], "resume"]

    run(open_store, scenario)


def test_what_is_due_comes_along_however_much_is_deferred(open_store: StoreFactory) -> None:
    async def scenario(store: Store) -> None:
        ids = [f"m{number}" for number in range(CLAIM_MESSAGES + 10)]
        await a_thread(store, *map(event, ids))
        claim = await claim_one(store)
        deferred = tuple((name, START + 5_000) for name in ids)
        await store.commit(claim, after(claim, consumed=(), deferred=deferred))
        await store.put([result("due")], START)
        claim = await claim_one(store)
        assert names(claim.messages) == [*ids[: CLAIM_MESSAGES - 1], "due"]

    run(open_store, scenario)


@pytest.mark.parametrize("status", ["stopped", "parked"])
@pytest.mark.parametrize("waking", [user("wakes"), command("wakes")], ids=["user text", "command"])
def test_what_was_held_is_delivered_when_the_thread_is_resumed(
    open_store: StoreFactory, status: str, waking: InputMessage
) -> None:
    async def scenario(store: Store) -> None:
        await a_thread(store, event("m1"))
        claim = await claim_one(store)
        await store.commit(claim, after(claim, consumed=(), status=status))
        await store.put([result("m2")], START)
        await store.put([timer("m3")], START, due=START + 50)
        assert not await is_ready(store, now=START + 1_000)
        assert await store.next_due(START) is None
        await store.put([waking], START)
        claim = await claim_one(store, START + 10)
        assert names(claim.messages) == ["m1", "m2", "wakes"]
        await store.commit(claim, after(claim, consumed=("wakes",), status="open"))
        assert names((await claim_one(store, START + 50)).messages) == ["m1", "m2", "m3"]

    run(open_store, scenario)


def test_held_messages_that_are_left_wake_the_thread_once_it_is_open(open_store: StoreFactory) -> None:
    async def scenario(store: Store) -> None:
        await a_thread(store, status="stopped")
        await store.put([event("m1"), command("m2")], START)
        claim = await claim_one(store)
        await store.commit(claim, after(claim, consumed=("m2",), status="stopped"))
        assert not await is_ready(store)
        await store.put([command("m3")], START)
        claim = await claim_one(store)
        await store.commit(claim, after(claim, consumed=("m3",), status="open"))
        assert names((await claim_one(store)).messages) == ["m1"]

    run(open_store, scenario)


def test_a_closed_thread_is_ready_only_for_what_reached_it_before_it_closed(open_store: StoreFactory) -> None:
    async def scenario(store: Store) -> None:
        await a_thread(store, event("m1"), user("m2"))
        await store.put([timer("m3")], START, due=START + 50)
        claim = await claim_one(store)
        await store.put([user("m4")], START)
        await store.commit(claim, after(claim, consumed=("m2",), status="closed"))
        assert await store.put([user("m5")], START) == [Outcome.CLOSED]
        (claim,) = await store.claim(ANNA, START + 1_000, 10)
        assert names(claim.messages) == ["m1", "m3", "m4"]
        await store.commit(claim, after(claim, consumed=("m1", "m3", "m4"), status="closed"))
        assert not await is_ready(store, now=START + 1_000)
        assert await store.next_due(START) is None
        assert await store.read_inbox("t") == ()

    run(open_store, scenario)


def test_many_tasks_that_claim_at_once_never_get_the_same_thread(open_store: StoreFactory) -> None:
    async def scenario(store: Store) -> None:
        ids = [f"t{number}" for number in range(60)]
        await store.create([new_thread(name) for name in ids], [user("m", name) for name in ids], START)

        async def work() -> list[Claim]:
            return await store.claim(ANNA, START, 7)

        claimed = [claim.thread_id for claims in await asyncio.gather(*[work() for _ in range(12)]) for claim in claims]
        assert sorted(claimed) == sorted(ids)

    run(open_store, scenario)
