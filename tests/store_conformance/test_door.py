"""Making threads and putting messages: `create` and `put`."""

import asyncio
from collections import Counter

import pytest
from msgspec.structs import replace

from hibernaut.codec import sha256
from hibernaut.kernel.commit import Blob
from hibernaut.kernel.head import Status
from hibernaut.messages.inputs import InputMessage, UserText
from hibernaut.messages.parts import Excerpt, Image, Text
from hibernaut.stores.protocol import Outcome, Store
from tests.store_conformance.scenario import (
    START,
    StoreFactory,
    a_thread,
    after,
    claim_one,
    command,
    event,
    everything,
    names,
    new_thread,
    result,
    run,
    timer,
    user,
)

ACCEPTED, DUPLICATE, HELD, CLOSED, UNKNOWN, FULL = Outcome


def test_an_accepted_message_stands_in_the_inbox_as_it_was_put(open_store: StoreFactory) -> None:
    parts = (Text("look:"), Image("image/png", b"\x89PNG", url="https://example.org"), Excerpt("…", b"d" * 32, 70_000))
    messages = [
        InputMessage("m1", "t", UserText(parts, "anna"), "api", '{"a":1}'),
        *(user("m2"), result("m3"), event("m4"), timer("m5"), command("m6")),
    ]

    async def scenario(store: Store) -> None:
        await a_thread(store)
        assert await store.put(messages, START + 7) == [ACCEPTED] * 6
        inbox = await store.read_inbox("t")
        assert [one.message for one in inbox] == messages
        assert names(inbox) == [message.message_id for message in messages]
        assert {(one.accepted, one.problem) for one in inbox} == {(START + 7, "")}

    run(open_store, scenario)


def test_a_message_for_no_thread_is_unknown_and_makes_none(open_store: StoreFactory) -> None:
    async def scenario(store: Store) -> None:
        assert await store.put([user("m1", "nobody")], START) == [UNKNOWN]
        assert await store.read_head("nobody") is None
        assert await store.read_inbox("nobody") == ()
        await a_thread(store, thread_id="nobody")
        assert await store.put([user("m1", "nobody")], START) == [ACCEPTED]

    run(open_store, scenario)


def test_a_message_that_waits_is_a_duplicate_when_it_comes_again(open_store: StoreFactory) -> None:
    async def scenario(store: Store) -> None:
        await a_thread(store, user("m1"))
        before = await everything(store)
        assert await store.put([result("m1")], START + 5) == [DUPLICATE]
        assert await everything(store) == before

    run(open_store, scenario)


def test_a_message_that_was_consumed_is_a_duplicate_for_ever(open_store: StoreFactory) -> None:
    async def scenario(store: Store) -> None:
        await a_thread(store, user("m1"))
        for number in range(3):
            claim = await claim_one(store)
            await store.commit(claim, after(claim))
            assert await store.put([user("m1")], START) == [DUPLICATE]
            await store.put([user(f"other {number}")], START)

    run(open_store, scenario)


def test_a_message_that_comes_again_while_its_slice_runs_is_a_duplicate(open_store: StoreFactory) -> None:
    async def scenario(store: Store) -> None:
        await a_thread(store, user("m1"))
        await claim_one(store)
        assert await store.put([user("m1")], START) == [DUPLICATE]

    run(open_store, scenario)


def test_of_two_messages_with_one_id_in_one_batch_the_first_counts(open_store: StoreFactory) -> None:
    async def scenario(store: Store) -> None:
        await a_thread(store)
        assert await store.put([user("m1"), result("m1"), user("m2")], START) == [ACCEPTED, DUPLICATE, ACCEPTED]
        assert [one.message for one in await store.read_inbox("t")] == [user("m1"), user("m2")]

    run(open_store, scenario)


def test_the_same_id_in_two_threads_is_two_messages(open_store: StoreFactory) -> None:
    async def scenario(store: Store) -> None:
        await a_thread(store, thread_id="a")
        await a_thread(store, thread_id="b")
        assert await store.put([user("m1", "a"), user("m1", "b")], START) == [ACCEPTED, ACCEPTED]

    run(open_store, scenario)


def test_thousands_of_messages_are_all_remembered(open_store: StoreFactory) -> None:
    async def scenario(store: Store) -> None:
        await a_thread(store)
        ids = [f"m{number}" for number in range(1_200)]
        for first in range(0, 1_200, 200):
            batch = [user(name) for name in ids[first : first + 200]]
            assert await store.put(batch, START) == [ACCEPTED] * 200
            claim = await claim_one(store)
            await store.commit(claim, after(claim))
        assert await store.put([user(name) for name in ids], START) == [DUPLICATE] * 1_200
        assert await store.put([user(f"{name}.") for name in ids[:300]], START) == [ACCEPTED] * 300

    run(open_store, scenario)


def test_an_inbox_keeps_the_order_in_which_messages_were_put(open_store: StoreFactory) -> None:
    async def scenario(store: Store) -> None:
        await a_thread(store)
        await store.put([event("z"), user("a")], START + 20)
        await store.put([result("m")], START + 10)
        await store.put([timer("b")], START, due=START + 90)
        await store.put([user("y")], START)
        assert names(await store.read_inbox("t")) == ["z", "a", "m", "b", "y"]
        claim = await claim_one(store, START + 100)
        assert names(claim.messages) == ["z", "a", "m", "b", "y"]

    run(open_store, scenario)


def test_every_message_of_a_batch_gets_its_own_outcome(open_store: StoreFactory) -> None:
    async def scenario(store: Store) -> None:
        await a_thread(store, user("old", "open"), thread_id="open")
        await a_thread(store, status="stopped", thread_id="stopped")
        await a_thread(store, status="closed", thread_id="closed")
        batch = [user("m", "closed"), user("old", "open"), user("m", "none"), event("m", "stopped"), user("m", "open")]
        assert await store.put(batch, START) == [CLOSED, DUPLICATE, UNKNOWN, HELD, ACCEPTED]

    run(open_store, scenario)


def test_nothing_at_all_may_be_put(open_store: StoreFactory) -> None:
    async def scenario(store: Store) -> None:
        assert await store.put([], START) == []
        assert await store.create([], [], START) == []
        assert await store.list_threads() == []

    run(open_store, scenario)


@pytest.mark.parametrize("status", ["stopped", "parked"])
def test_a_thread_that_is_stopped_or_parked_holds_all_but_user_texts_and_commands(
    open_store: StoreFactory, status: Status
) -> None:
    async def scenario(store: Store) -> None:
        await a_thread(store, status=status)
        held = [result("m1"), event("m2"), timer("m3"), timer("m4", purpose="sleep")]
        assert await store.put(held, START) == [HELD] * 4
        assert await store.put([event("m2")], START) == [DUPLICATE]
        assert await store.put([command("m5"), user("m6")], START) == [ACCEPTED, ACCEPTED]
        assert names(await store.read_inbox("t")) == ["m1", "m2", "m3", "m4", "m5", "m6"]

    run(open_store, scenario)


def test_a_closed_thread_takes_nothing(open_store: StoreFactory) -> None:
    async def scenario(store: Store) -> None:
        await a_thread(store, status="closed")
        before = await everything(store)
        assert await store.put([user("m1"), command("m2")], START) == [CLOSED, CLOSED]
        assert await everything(store) == before

    run(open_store, scenario)


def test_a_message_that_was_consumed_is_a_duplicate_even_when_the_thread_has_closed(open_store: StoreFactory) -> None:
    async def scenario(store: Store) -> None:
        await a_thread(store, command("m1", action="close"))
        claim = await claim_one(store)
        await store.commit(claim, after(claim, status="closed"))
        assert await store.put([command("m1", action="close")], START) == [DUPLICATE]

    run(open_store, scenario)


def test_create_makes_threads_and_puts_messages_in_one_go(open_store: StoreFactory) -> None:
    async def scenario(store: Store) -> None:
        made = [new_thread("a", tenant="x", created=START - 5), new_thread("b")]
        assert await store.create(made, [user("m1", "a"), user("m1", "c")], START) == [ACCEPTED, UNKNOWN]
        row = await store.read_head("a")
        assert row is not None
        assert (row.tenant, row.status, row.head, row.created) == ("x", "open", b"head 0 of a", START - 5)
        assert names(await store.read_inbox("a")) == ["m1"]
        assert await store.read_inbox("b") == ()

    run(open_store, scenario)


def test_create_leaves_a_thread_that_exists_as_it_is(open_store: StoreFactory) -> None:
    async def scenario(store: Store) -> None:
        await store.create([new_thread("a", tenant="x")], [user("m1", "a")], START)
        claim = await claim_one(store)
        await store.commit(claim, after(claim))
        before = await everything(store)
        other = replace(new_thread("a", tenant="y", created=START + 9), head=b"another")
        assert await store.create([other], [user("m1", "a")], START + 9) == [DUPLICATE]
        assert await everything(store) == before

    run(open_store, scenario)


def test_of_two_threads_with_one_name_in_one_call_the_first_is_made(open_store: StoreFactory) -> None:
    async def scenario(store: Store) -> None:
        await store.create([new_thread("a", tenant="x"), new_thread("a", tenant="y")], [], START)
        assert [row.tenant for row in await store.list_threads()] == ["x"]

    run(open_store, scenario)


def test_threads_share_launch_configurations(open_store: StoreFactory) -> None:
    async def scenario(store: Store) -> None:
        await store.create([new_thread("a", body=b"one"), new_thread("b", body=b"two")], [], START)
        await store.create([new_thread("c", body=b"one")], [], START)
        assert await store.read_config(sha256(b"one")) == b"one"
        assert await store.read_config(sha256(b"two")) == b"two"
        assert await store.read_config(sha256(b"three")) is None

    run(open_store, scenario)


def test_blobs_are_kept_by_their_digest(open_store: StoreFactory) -> None:
    async def scenario(store: Store) -> None:
        await a_thread(store, user("m1"))
        blobs = [Blob(sha256(data), data) for data in (b"one", b"", b"x" * 300_000)]
        assert await store.put([user("m1")], START, blobs=blobs) == [DUPLICATE]
        assert await store.put([user("m2")], START, blobs=blobs[:1]) == [ACCEPTED]
        for blob in blobs:
            assert await store.read_blob(blob.digest) == blob.data
        assert await store.read_blob(sha256(b"two")) is None

    run(open_store, scenario)


def test_when_one_message_cannot_be_stored_none_is(open_store: StoreFactory) -> None:
    async def scenario(store: Store) -> None:
        await a_thread(store, user("m1"))
        before = await everything(store)
        blob = Blob(sha256(b"one"), b"one")
        with pytest.raises(ValueError, match="surrogate"):
            await store.put([user("m2"), user("\ud800")], START, blobs=[blob])
        with pytest.raises(ValueError, match="surrogate"):
            await store.create([new_thread("a")], [user("m2", "a"), user("\ud800", "a")], START)
        assert await everything(store) == before
        assert await store.read_blob(blob.digest) is None
        assert await store.put([user("m2")], START) == [ACCEPTED]

    run(open_store, scenario)


def test_a_message_that_many_tasks_put_at_once_is_accepted_once(open_store: StoreFactory) -> None:
    async def scenario(store: Store) -> None:
        await a_thread(store)
        outcomes = await asyncio.gather(*[store.put([user("m1"), user(f"m2.{n}")], START) for n in range(50)])
        assert Counter(first for first, _ in outcomes) == {ACCEPTED: 1, DUPLICATE: 49}
        assert Counter(second for _, second in outcomes) == {ACCEPTED: 50}
        assert len(await store.read_inbox("t")) == 51

    run(open_store, scenario)
