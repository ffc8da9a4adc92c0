"""Forks: roots that share the history of another thread, which has to stay for them; and messages that are changed."""

import pytest
from msgspec.structs import replace

from hibernaut.codec import sha256
from hibernaut.errors import HasForks, MalformedInput
from hibernaut.kernel.commit import NewThread
from hibernaut.messages.inputs import Event, InputMessage, UserText
from hibernaut.stores.archive import ForkRecord
from hibernaut.stores.protocol import Outcome, Store
from tests.store_conformance.scenario import (
    START,
    StoreFactory,
    a_thread,
    after,
    claim_one,
    event,
    is_ready,
    names,
    new_thread,
    run,
    user,
)

LATER = START + 1_000


def fork(thread_id: str = "fork", origin: str = "t", *, tenant: str = "") -> NewThread:
    return replace(new_thread(thread_id, tenant=tenant, body=b""), config=sha256(b"config"), fork_of=origin)


async def close(store: Store, thread_id: str) -> None:
    await store.put([user(f"end of {thread_id}", thread_id)], START)
    claim = await claim_one(store, thread_id=thread_id)
    await store.commit(claim, after(claim, status="closed"))


# Made


def test_a_fork_is_a_root_of_its_own(open_store: StoreFactory) -> None:
    async def scenario(store: Store) -> None:
        await a_thread(store)
        assert await store.create([fork()], [user("m1", "fork")], START) == [Outcome.ACCEPTED]
        row = await store.read_head("fork")
        assert row is not None
        assert (row.parent, row.root) == ("", "")
        assert [one.thread_id for one in await store.read_tree("t")] == ["t"]
        assert await store.read_forks("t") == ["fork"]
        assert await store.read_forks("fork") == await store.read_forks("nobody") == []
        assert await store.count_living("t") == 0

    run(open_store, scenario)


def test_a_fork_of_what_is_not_there_or_is_another_tenant_s_is_not_made(open_store: StoreFactory) -> None:
    async def scenario(store: Store) -> None:
        await a_thread(store)
        new = [fork("one", "nobody"), fork("two", "t", tenant="other")]
        outcomes = await store.create(new, [user("m1", "one"), user("m1", "two")], START)
        assert outcomes == [Outcome.UNKNOWN, Outcome.UNKNOWN]
        assert await store.read_head("one") is None
        assert await store.read_head("two") is None
        assert await store.read_forks("t") == []

    run(open_store, scenario)


def test_a_child_is_a_fork_of_what_its_parent_s_tenant_has_whatever_tenant_it_names(open_store: StoreFactory) -> None:
    async def scenario(store: Store) -> None:
        await a_thread(store)
        await store.create([new_thread("red", tenant="red")], [], START)
        new = [replace(fork("one", "t"), parent="red"), replace(fork("two", "red"), parent="red")]
        await store.create(new, [], START)
        assert await store.read_head("one") is None
        assert (await store.read_forks("red"), await store.read_forks("t")) == (["two"], [])
        made = await store.read_head("two")
        assert made is not None
        assert (made.tenant, made.parent) == ("red", "red")

    run(open_store, scenario)


def test_a_thread_that_is_there_is_not_made_a_fork(open_store: StoreFactory) -> None:
    async def scenario(store: Store) -> None:
        await a_thread(store)
        await store.create([new_thread("fork")], [], START)
        await store.create([fork()], [], START)
        assert await store.read_forks("t") == []
        assert await store.delete("t") == 1

    run(open_store, scenario)


# Removed


def test_c66_a_tree_stays_as_long_as_its_forks(open_store: StoreFactory) -> None:
    async def scenario(store: Store) -> None:
        await a_thread(store)
        await store.put([user("m1")], START)
        claim = await claim_one(store)
        below = replace(new_thread("child", body=b""), config=sha256(b"config"), parent="t", root="t")
        await store.commit(claim, after(claim, spawned=(below,)))
        await store.create([fork("of root"), fork("of child", "child"), fork("second of root")], [], START)
        assert await store.read_forks("t") == ["of root", "of child", "second of root"]
        with pytest.raises(HasForks, match="of root, of child, second of root") as refused:
            await store.delete("t")
        assert refused.value.forks == ("of root", "of child", "second of root")
        assert len(await store.read_tree("t")) == 2
        for name in ("of root", "of child"):
            assert await store.delete(name) == 1
            with pytest.raises(HasForks):
                await store.delete("t")
        assert await store.delete("second of root") == 1
        assert await store.read_forks("t") == []
        assert await store.delete("t") == 2
        assert await store.list_threads() == []

    run(open_store, scenario)


def test_a_fork_of_a_fork_holds_only_that_one(open_store: StoreFactory) -> None:
    async def scenario(store: Store) -> None:
        await a_thread(store)
        await store.create([fork()], [], START)
        await store.create([fork("further", "fork")], [], START)
        with pytest.raises(HasForks):
            await store.delete("fork")
        assert await store.delete("further") == 1
        assert await store.delete("fork") == 1
        assert await store.delete("t") == 1

    run(open_store, scenario)


def test_c66_pruning_spares_what_has_forks(open_store: StoreFactory) -> None:
    async def scenario(store: Store) -> None:
        await a_thread(store)
        await store.create([fork()], [], START)
        await close(store, "t")
        assert await store.prune(LATER) == 0
        await close(store, "fork")
        assert await store.prune(LATER) == 1
        assert await store.prune(LATER) == 1

    run(open_store, scenario)


def test_a_thread_made_again_under_a_deleted_fork_s_name_is_no_fork(open_store: StoreFactory) -> None:
    async def scenario(store: Store) -> None:
        await a_thread(store)
        await store.create([fork()], [], START)
        await store.delete("fork")
        await store.create([new_thread("fork")], [], START)
        assert await store.read_forks("t") == []

    run(open_store, scenario)


# Moved


def test_a_fork_is_made_only_where_its_origin_is(open_store: StoreFactory) -> None:
    async def scenario(store: Store) -> None:
        await a_thread(store)
        await store.create([fork()], [user("m1", "fork")], START)
        await store.freeze("fork")
        records = await store.export_tree("fork", START)
        assert [one for one in records if isinstance(one, ForkRecord)] == [ForkRecord("t")]
        await store.delete("fork", unchanged=b"")
        assert await store.import_tree(records) == 1
        assert await store.read_forks("t") == ["fork"]
        with pytest.raises(HasForks):
            await store.delete("t")
        assert await store.export_tree("fork", START) == records
        await store.delete("fork")
        await store.delete("t")
        with pytest.raises(MalformedInput, match="'fork' is a fork of 't', which this tenant does not have here"):
            await store.import_tree(records)
        await store.create([new_thread(tenant="other")], [], START)
        with pytest.raises(MalformedInput, match="which this tenant does not have here"):
            await store.import_tree(records)
        assert await store.read_head("fork") is None

    run(open_store, scenario)


# Messages that are changed


def said(message_id: str, text: str) -> InputMessage:
    return InputMessage(message_id, "t", UserText(text), "api")


@pytest.mark.parametrize("others", [0, 200])
def test_a_message_that_is_changed_keeps_its_place_and_its_moments(open_store: StoreFactory, others: int) -> None:
    async def scenario(store: Store) -> None:
        await a_thread(store, event("e1"), said("m1", "one"), event("e2"), status="stopped")
        await store.put([event(f"far {number}") for number in range(others)], START)
        before = {one.message_id: one for one in await store.read_inbox("t")}
        claim = await claim_one(store, START)
        changed = said("m1", "two")
        await store.commit(
            claim, after(claim, status="stopped", consumed=(), deferred=(("e1", LATER),), rewritten=(changed,))
        )
        found = await store.read_inbox("t")
        assert names(found)[:3] == ["e1", "m1", "e2"]
        assert len(found) == 3 + others
        assert found[1] == replace(before["m1"], message=changed)
        assert found[2] == before["e2"]
        assert await store.put([said("m1", "three")], START) == [Outcome.DUPLICATE]
        assert await is_ready(store)

    run(open_store, scenario)


def test_a_message_that_is_gone_or_never_came_is_not_made_by_a_change(open_store: StoreFactory) -> None:
    async def scenario(store: Store) -> None:
        await a_thread(store, said("m1", "one"))
        claim = await claim_one(store)
        await store.commit(claim, after(claim, rewritten=(said("m1", "two"), said("m2", "two"))))
        assert await store.read_inbox("t") == ()
        assert not await store.knows("t", "m2")

    run(open_store, scenario)


def test_what_was_changed_far_back_in_a_long_inbox_is_handed_over_so(open_store: StoreFactory) -> None:
    async def scenario(store: Store) -> None:
        await a_thread(store, *[event(f"e{number}") for number in range(500)])
        claim = await claim_one(store)
        changed = InputMessage("e450", "t", Event("call_1", "it snowed"))
        await store.commit(claim, after(claim, rewritten=(changed,)), keep=True)
        handed = await store.take(replace(claim, version=claim.version + 1), START)
        assert {one.message_id: one.message for one in handed}["e450"] == changed

    run(open_store, scenario)
