"""What a store keeps beside conversations: views of threads, and notes."""

import pytest

from hibernaut.errors import TooLarge
from hibernaut.stores.memory import MemoryStore
from hibernaut.stores.protocol import LARGEST_NOTE, MOST_VIEWS, Outcome, Store, ViewRow
from tests.store_conformance.scenario import (
    START,
    StoreFactory,
    a_thread,
    after,
    claim_one,
    everything,
    new_thread,
    result,
    run,
    user,
)


def test_a_view_is_kept_by_its_kind_and_the_last_one_counts(open_store: StoreFactory) -> None:
    async def scenario(store: Store) -> None:
        await a_thread(store)
        assert await store.put_view("t", "plan", '{"a":"\u2400 ü"}', START) is Outcome.ACCEPTED
        assert await store.put_view("t", "files", "[]", START + 1) is Outcome.ACCEPTED
        assert await store.put_view("t", "plan", "1", START + 2) is Outcome.ACCEPTED
        assert await store.read_views("t") == [ViewRow("files", "[]", START + 1), ViewRow("plan", "1", START + 2)]
        assert await store.read_views("nobody") == []

    run(open_store, scenario)


def test_the_same_view_again_is_taken_and_changes_nothing(open_store: StoreFactory) -> None:
    async def scenario(store: Store) -> None:
        await a_thread(store)
        await store.put_view("t", "plan", "1", START)
        assert await store.put_view("t", "plan", "1", START + 9) is Outcome.ACCEPTED
        assert await store.read_views("t") == [ViewRow("plan", "1", START)]

    run(open_store, scenario)


def test_a_view_touches_no_inbox_no_head_and_wakes_nobody(open_store: StoreFactory) -> None:
    async def scenario(store: Store) -> None:
        await a_thread(store, result("m1"))
        claim = await claim_one(store)
        before = await everything(store)
        told: list[str] = []
        end = store.on_change(lambda thread_id, _: told.append(thread_id))
        await store.put_view("t", "plan", "1", START)
        end()
        assert await everything(store) == before
        assert told == []
        await store.commit(claim, after(claim))

    run(open_store, scenario)


def test_a_thread_has_a_bounded_number_of_kinds_of_views(open_store: StoreFactory) -> None:
    async def scenario(store: Store) -> None:
        await a_thread(store)
        await a_thread(store, thread_id="u")
        for number in range(MOST_VIEWS):
            assert await store.put_view("t", f"kind {number}", "0", START) is Outcome.ACCEPTED
        assert await store.put_view("t", "one more", "0", START) is Outcome.FULL
        assert await store.put_view("t", "kind 7", "1", START) is Outcome.ACCEPTED
        assert await store.put_view("u", "one more", "0", START) is Outcome.ACCEPTED
        assert len(await store.read_views("t")) == MOST_VIEWS

    run(open_store, scenario)


def test_a_thread_that_is_not_there_or_closed_takes_no_view(open_store: StoreFactory) -> None:
    async def scenario(store: Store) -> None:
        assert await store.put_view("t", "plan", "1", START) is Outcome.UNKNOWN
        await a_thread(store, status="closed")
        assert await store.put_view("t", "plan", "1", START) is Outcome.CLOSED
        assert await store.read_views("t") == []

    run(open_store, scenario)


@pytest.mark.parametrize("how", ["delete", "prune"])
def test_c66_views_go_with_their_thread(open_store: StoreFactory, how: str) -> None:
    async def scenario(store: Store) -> None:
        await store.create([new_thread("other"), new_thread()], [], START)
        await store.put_view("other", "plan", "1", START)
        await store.put_view("t", "plan", "1", START)
        await store.put([user("m1")], START)
        claim = await claim_one(store)
        await store.commit(claim, after(claim, status="closed"))
        gone = store.delete("t") if how == "delete" else store.prune(START + 1)
        assert await gone == 1
        await a_thread(store)
        assert await store.read_views("t") == []
        assert len(await store.read_views("other")) == 1

    run(open_store, scenario)


def test_views_and_notes_count_for_what_is_stored(open_store: StoreFactory) -> None:
    async def scenario(store: Store) -> None:
        await a_thread(store)
        empty = await store.stored_bytes()
        await store.put_view("t", "plan", "x" * 100_000, START)
        await store.write_note("n", bytes(100_000))
        assert await store.stored_bytes() >= empty + 200_000

    run(open_store, scenario)


def test_what_a_view_took_in_memory_is_given_back() -> None:
    async def open_memory() -> Store:
        return MemoryStore()

    async def scenario(store: Store) -> None:
        await a_thread(store)
        await a_thread(store, thread_id="u")
        before = await store.stored_bytes()
        await store.delete("u")
        without = await store.stored_bytes()
        await a_thread(store, thread_id="u")
        await store.put_view("u", "plan", "x" * 1_000, START)
        await store.put_view("u", "plan", "ü", START)
        assert await store.stored_bytes() == before + len("planü".encode())
        await store.delete("u")
        assert await store.stored_bytes() == without

    run(open_memory, scenario)


def test_a_note_is_kept_until_it_is_written_again(open_store: StoreFactory) -> None:
    async def scenario(store: Store) -> None:
        assert await store.read_note("port") is None
        await store.write_note("port", b"8080")
        await store.write_note("none", b"")
        await store.write_note("port", b"8081")
        assert await store.read_note("port") == b"8081"
        assert await store.read_note("none") == b""

    run(open_store, scenario)


def test_a_note_is_bounded(open_store: StoreFactory) -> None:
    async def scenario(store: Store) -> None:
        await store.write_note("n", bytes(LARGEST_NOTE))
        with pytest.raises(TooLarge, match="LARGEST_NOTE"):
            await store.write_note("n", bytes(LARGEST_NOTE + 1))
        assert await store.read_note("n") == bytes(LARGEST_NOTE)

    run(open_store, scenario)


def test_a_store_knows_what_it_accepted_even_when_it_is_consumed(open_store: StoreFactory) -> None:
    async def scenario(store: Store) -> None:
        await a_thread(store, result("m1"), result("m2"))
        claim = await claim_one(store)
        await store.commit(claim, after(claim, consumed=("m1",)))
        known = [await store.knows("t", name) for name in ("m1", "m2", "m3")]
        assert known == [True, True, False]
        assert not await store.knows("nobody", "m1")

    run(open_store, scenario)


def test_the_heads_of_many_threads_are_read_at_once(open_store: StoreFactory) -> None:
    async def scenario(store: Store) -> None:
        await a_thread(store, status="stopped")
        await store.create([new_thread("u"), new_thread("a\0b")], [], START)
        assert await store.read_heads(["u", "nobody", "a\0b", "t", "u"]) == {
            "t": ("stopped", b"head 1"),
            "u": ("open", b"head 0 of u"),
            "a\0b": ("open", b"head 0 of a\0b"),
        }
        assert await store.read_heads([]) == {}

    run(open_store, scenario)
