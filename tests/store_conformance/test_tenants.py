"""What a store does for one tenant leaves the others alone, whatever their threads are called."""

import pytest
from msgspec.structs import replace

from hibernaut.codec import pack, sha256
from hibernaut.errors import MalformedInput
from hibernaut.kernel.commit import Blob, Effect
from hibernaut.messages.parts import Excerpt
from hibernaut.stores.archive import BlobRecord, CommitRecord, ThreadRecord
from hibernaut.stores.protocol import DEAD_AFTER, Outcome, Store
from tests.store_conformance.scenario import (
    ANNA,
    BERT,
    START,
    StoreFactory,
    after,
    claim_one,
    everything,
    invoke,
    new_thread,
    owe,
    run,
    sent_to,
    user,
)

BLOB = Blob(sha256(b"the plan of acme"), b"the plan of acme")


async def two(store: Store) -> None:
    """Make a thread of each of two tenants."""
    await store.create([new_thread("a", tenant="acme"), new_thread("o", tenant="other")], [], START)


def test_a_message_for_another_tenants_thread_is_for_an_unknown_one(open_store: StoreFactory) -> None:
    async def scenario(store: Store) -> None:
        await two(store)
        before = await everything(store)
        assert await store.put([user("m1", "a")], START, tenant="other") == [Outcome.UNKNOWN]
        made = [new_thread("a", tenant="other")]
        assert await store.create(made, [user("m1", "a")], START, tenant="other") == [Outcome.UNKNOWN]
        assert await everything(store) == before
        messages = [user("m1", "a"), user("m1", "o")]
        assert await store.put(messages, START, tenant="other") == [Outcome.UNKNOWN, Outcome.ACCEPTED]
        assert await store.put(messages, START, tenant="acme") == [Outcome.ACCEPTED, Outcome.UNKNOWN]

    run(open_store, scenario)


def test_blobs_come_with_the_thread_and_the_message_that_refer_to_them(open_store: StoreFactory) -> None:
    async def scenario(store: Store) -> None:
        made = [new_thread("a", tenant="acme")]
        assert await store.create(made, [user("m1", "a")], START, blobs=[BLOB], tenant="acme") == [Outcome.ACCEPTED]
        assert await store.read_blob(BLOB.digest) == BLOB.data

    run(open_store, scenario)


@pytest.mark.parametrize("word", ["delete", "freeze", "thaw"])
def test_a_tree_of_another_tenant_is_left_as_it_is(open_store: StoreFactory, word: str) -> None:
    async def scenario(store: Store) -> None:
        await two(store)
        if word == "thaw":
            await store.freeze("a")
        before = await everything(store)
        assert await getattr(store, word)("a", tenant="other") == 0
        assert await everything(store) == before
        assert await getattr(store, word)("a", tenant="acme") == 1
        assert await everything(store) != before

    run(open_store, scenario)


def test_claims_of_a_tenant_are_of_its_threads_and_the_others_keep_their_place(open_store: StoreFactory) -> None:
    async def scenario(store: Store) -> None:
        names = {f"{tenant}{number}": tenant for number in range(3) for tenant in ("acme", "other")}
        await store.create([new_thread(name, tenant=tenant) for name, tenant in names.items()], [], START)
        for moment, name in enumerate(names):
            await store.put([user("m", name)], START + moment)
        now = START + len(names)
        for among in (None, list(names)):
            claims = await store.claim(ANNA, now, 2, threads=among, tenant="other")
            assert [claim.thread_id for claim in claims] == ["other0", "other1"]
            for claim in claims:
                await store.release(claim)
        everyone = await store.claim(ANNA, now, 10)
        assert {claim.thread_id for claim in everyone} == set(names)
        assert await store.claim(ANNA, now, 10, tenant="nobody") == []

    run(open_store, scenario)


def test_effects_of_the_dead_are_adopted_and_looked_after_by_tenant(open_store: StoreFactory) -> None:
    async def scenario(store: Store) -> None:
        await two(store)
        await owe(store, "r1", thread_id="a")
        await owe(store, "r2", thread_id="o")
        later = START + DEAD_AFTER
        for tenant, request in (("nobody", []), ("other", ["r2"]), ("acme", ["r1"])):
            adopted = await store.adopt_effects(BERT, later, 10, tenant=tenant)
            assert [row.effect.request_id for row in adopted] == request
        await store.accept_effects(["r1", "r2"])
        for tenant, request in (("nobody", []), ("other", ["r2"]), ("acme", ["r1"])):
            rows = await store.accepted_effects(later, tenant=tenant)
            assert [row.effect.request_id for row in rows] == request
        assert len(await store.accepted_effects(later)) == 2

    run(open_store, scenario)


def test_effects_of_named_roots_are_adopted_by_tenant(open_store: StoreFactory) -> None:
    async def scenario(store: Store) -> None:
        await two(store)
        await owe(store, "r1", thread_id="a")
        later = START + DEAD_AFTER
        assert await store.adopt_effects(BERT, later, 10, threads=["a", "o"], tenant="other") == []
        assert len(await store.adopt_effects(BERT, later, 10, threads=["a", "o"], tenant="acme")) == 1

    run(open_store, scenario)


def test_a_commit_sends_nothing_to_a_thread_of_another_tenant(open_store: StoreFactory) -> None:
    async def scenario(store: Store) -> None:
        await two(store)
        await store.create([new_thread("o2", tenant="other")], [user("m", "o")], START)
        claim = await claim_one(store, thread_id="o")
        sent = sent_to(user("to acme", "a"), user("to mine", "o2"))
        await store.commit(claim, after(claim, outgoing=sent))
        assert await store.read_inbox("a") == ()
        assert [one.message_id for one in await store.read_inbox("o2")] == ["to mine"]

    run(open_store, scenario)


def test_a_commit_settles_and_cancels_no_effect_of_another_thread(open_store: StoreFactory) -> None:
    async def scenario(store: Store) -> None:
        await two(store)
        await owe(store, "r1", thread_id="a")
        await store.put([user("m", "o")], START)
        claim = await claim_one(store, thread_id="o")
        cancel = Effect("r1:cancel", "cancel", "r1", "look_up")
        await store.commit(claim, after(claim, settled=("r1",), effects=(cancel, invoke("r2"))))
        assert [row.effect.request_id for row in await store.read_effects("a")] == ["r1"]
        assert await store.cancellations(ANNA) == []
        await store.settle_effects(["r1", "r1:cancel"], thread_id="o")
        assert [row.effect.request_id for row in await store.read_effects()] == ["r1", "r2"]
        await store.settle_effects(["r1"], thread_id="nobody")
        await store.settle_effects(["r1"], thread_id="a")
        assert [row.effect.request_id for row in await store.read_effects()] == ["r2"]

    run(open_store, scenario)


def test_a_tree_that_refers_to_bytes_that_are_here_brings_them(open_store: StoreFactory) -> None:
    async def scenario(store: Store) -> None:
        await store.put([], START, blobs=[BLOB])
        root = ThreadRecord("o", "other", "", "", START, START, 1, "open", None, 0, b"head")
        commit = CommitRecord(1, pack([Excerpt("…", BLOB.digest, 16)]), b"receipt")
        with pytest.raises(MalformedInput, match="does not bring it"):
            await store.import_tree([root, commit])
        assert await store.read_head("o") is None
        assert await store.import_tree([root, commit, BlobRecord(BLOB.digest, BLOB.data)]) == 1
        unknown = CommitRecord(1, pack([Excerpt("…", sha256(b"nobody has it"), 16)]), b"receipt")
        assert await store.import_tree([replace(root, thread_id="p"), unknown]) == 1

    run(open_store, scenario)
