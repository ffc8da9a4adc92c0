"""Trees that are frozen, taken out as records, and made again in another store."""

import pytest
from msgspec.structs import replace

from hibernaut.codec import pack, sha256
from hibernaut.errors import MalformedInput, NotAtRest, StaleClaim, ThreadExists, UnknownThread
from hibernaut.kernel.commit import Blob, NewThread
from hibernaut.messages.inputs import Event, InputMessage, ToolResult, UserText
from hibernaut.messages.parts import Excerpt
from hibernaut.stores.archive import (
    BlobRecord,
    CommitRecord,
    ConfigRecord,
    EffectRecord,
    KnownRecord,
    MessageRecord,
    Record,
    ThreadRecord,
    digest_of,
    kind_of,
)
from hibernaut.stores.memory import MemoryStore
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
    event,
    everything,
    invoke,
    is_ready,
    names,
    new_thread,
    owe,
    result,
    run,
    sent_to,
    timer,
    user,
)

DUE = START + 5_000
BLOB = Blob(sha256(b"blob" * 30_000), b"blob" * 30_000)
CANCEL = replace(invoke("r1:cancel"), kind="cancel", call_id="r1")


def child(thread_id: str, parent: str) -> NewThread:
    return replace(new_thread(thread_id, body=b""), config=sha256(b"config"), parent=parent, root="t")


async def a_full_tree(store: Store, owner: str = "t") -> None:
    """Make a tree that has one of everything: commits, timers, waiting and deferred inputs, effects, a blob."""
    await store.create([replace(new_thread(owner, tenant="x"), head=pack(sha256(b"config")))], [], START)
    large = InputMessage("large", owner, UserText((Excerpt("…", BLOB.digest, len(BLOB.data)),)))
    await store.put([large, user("m1", owner)], START, blobs=[BLOB])
    claim = await claim_one(store, thread_id=owner)
    await store.commit(
        claim,
        after(
            claim,
            head=pack(sha256(b"config")),
            consumed=("m1",),
            deferred=(("large", DUE),),
            spawned=(child("child", owner), child("other", owner)),
            effects=(invoke("r1"), CANCEL, invoke("r2")),
            outgoing=sent_to(timer("alarm", owner, "sleep"), due=DUE),
            asking=2,
            continues=True,
        ),
    )
    claim = await claim_one(store, thread_id=owner)
    await store.commit(claim, after(claim, head=pack([sha256(b"config")]), consumed=(), asking=2))
    await store.put([user("c1", "child"), result("c2", "child")], START + 1)
    claim = await claim_one(store, START + 1, thread_id="child")
    await store.commit(claim, after(claim, consumed=("c1",), spawned=(child("grandchild", "child"),), at=START + 1))
    await store.put([user("o1", "other")], START)
    claim = await claim_one(store, thread_id="other")
    await store.commit(claim, after(claim, status="closed"))
    await store.start_effects(ANNA, ["r2"])
    await store.accept_effects(["r2"])
    await store.put_view("child", "todo", "[1]", START)
    await store.put_view("child", "plan", "{}", START + 1)


async def exported(store: Store, root: str = "t", now: int = START) -> list[Record]:
    await store.freeze(root)
    return await store.export_tree(root, now)


# Frozen trees


def test_nothing_runs_in_a_frozen_tree_whatever_comes_until_it_is_thawed(open_store: StoreFactory) -> None:
    async def scenario(store: Store) -> None:
        await a_thread(store, result("m1"))
        await store.create([child("child", "t")], [], START)
        await a_thread(store, thread_id="u")
        assert await store.freeze("t") == 2
        assert await store.freeze("t") == 0
        said = [user("m2"), command("m3"), event("m4", "child"), user("m5", "u")]
        assert await store.put(said, START) == [Outcome.HELD] * 3 + [Outcome.ACCEPTED]
        assert await store.put(said[:1], START) == [Outcome.DUPLICATE]
        assert [row.frozen for row in await store.read_tree("t")] == [True, True]
        assert [(row.thread_id, row.frozen) for row in await store.list_threads(roots=True)] == [
            ("u", False),
            ("t", True),
        ]
        assert [claim.thread_id for claim in await store.claim(ANNA, START, 10)] == ["u"]
        assert await store.claim(ANNA, START, 10, threads=["t", "child"]) == []
        assert await store.next_due(START - 10) is None
        assert await store.thaw("t") == 2
        assert await store.thaw("t") == 0
        row = await store.read_head("t")
        assert row is not None
        assert not row.frozen
        claims = await store.claim(ANNA, START, 10)
        assert {claim.thread_id: names(claim.messages) for claim in claims} == {
            "t": ["m1", "m2", "m3"],
            "child": ["m4"],
        }

    run(open_store, scenario)


def test_a_frozen_thread_is_taken_from_whoever_runs_it_and_counts_no_failure(open_store: StoreFactory) -> None:
    async def scenario(store: Store) -> None:
        await a_thread(store, user("m1"))
        lost = await claim_one(store)
        assert await store.freeze("t") == 1
        with pytest.raises(StaleClaim):
            await store.commit(lost, after(lost))
        with pytest.raises(StaleClaim):
            await store.take(lost, START)
        await store.release(lost)
        await store.leave(ANNA)
        assert await store.claim(BERT, START, 10) == []
        assert await store.thaw("t") == 1
        with pytest.raises(StaleClaim):
            await store.commit(lost, after(lost))
        claim = await claim_one(store, owner=BERT)
        assert (claim.tries, names(claim.messages)) == (1, ["m1"])
        with pytest.raises(StaleClaim):
            await store.commit(lost, after(lost))
        await store.commit(claim, after(claim))

    run(open_store, scenario)


def test_a_thread_that_continues_or_sleeps_does_so_after_it_was_frozen(open_store: StoreFactory) -> None:
    async def scenario(store: Store) -> None:
        await a_thread(store, user("m1"))
        claim = await claim_one(store)
        await store.commit(claim, after(claim, continues=True, outgoing=sent_to(timer("alarm"), due=DUE)))
        await store.freeze("t")
        assert await store.claim(ANNA, DUE, 10) == []
        await store.thaw("t")
        claim = await claim_one(store)
        await store.commit(claim, after(claim))
        await store.freeze("t")
        await store.thaw("t")
        assert not await is_ready(store)
        assert await store.next_due(START) == DUE
        assert names((await claim_one(store, DUE)).messages) == ["alarm"]

    run(open_store, scenario)


def test_a_stopped_thread_that_was_frozen_is_stopped_again(open_store: StoreFactory) -> None:
    async def scenario(store: Store) -> None:
        await a_thread(store, result("m1"), status="stopped")
        await store.freeze("t")
        await store.thaw("t")
        assert not await is_ready(store)
        assert await store.put([user("m2")], START) == [Outcome.ACCEPTED]
        assert await is_ready(store)

    run(open_store, scenario)


def test_effects_of_a_frozen_tree_are_not_begun_and_adopted_once_it_is_thawed(open_store: StoreFactory) -> None:
    async def scenario(store: Store) -> None:
        await owe(store, "r1", "r2")
        await owe(store, "q1", thread_id="u")
        assert await store.start_effects(ANNA, ["r2"]) == ["r2"]
        await store.freeze("t")
        assert await store.start_effects(ANNA, ["r1", "q1"]) == ["q1"]
        assert {row.effect.request_id: row.owner for row in await store.read_effects()} == {
            "r1": "",
            "r2": "engine_anna",
            "q1": "engine_anna",
        }
        late = START + DEAD_AFTER
        assert [row.effect.request_id for row in await store.adopt_effects(BERT, late, 10)] == ["q1"]
        assert await store.adopt_effects(BERT, late, 10, threads=["t"]) == []
        await store.thaw("t")
        adopted = await store.adopt_effects(BERT, late, 10)
        assert {row.effect.request_id: row.state for row in adopted} == {"r1": "pending", "r2": "sent"}
        assert await store.start_effects(BERT, ["r1"]) == ["r1"]

    run(open_store, scenario)


def test_what_is_no_root_is_neither_frozen_nor_thawed(open_store: StoreFactory) -> None:
    async def scenario(store: Store) -> None:
        await store.create([new_thread(), child("child", "t")], [user("m", "child")], START)
        assert [await store.freeze(name) for name in ("child", "nobody")] == [0, 0]
        assert [await store.thaw(name) for name in ("child", "nobody")] == [0, 0]
        assert await is_ready(store, "child")

    run(open_store, scenario)


# Taken out and made again


def test_a40_a_tree_that_was_moved_has_all_that_it_had(open_store: StoreFactory) -> None:
    async def scenario(store: Store) -> None:
        await a_full_tree(store)
        records = await exported(store)
        kept = await everything(store)
        assert {kind_of(record) for record in records} == {
            "thread",
            "commit",
            "message",
            "known",
            "effect",
            "config",
            "blob",
            "view",
        }
        views = await store.read_views("child")
        assert [row.view_type for row in views] == ["plan", "todo"]
        assert await store.delete("t") == 4
        assert await store.read_blob(BLOB.digest) is None
        assert await store.import_tree(records) == 4
        assert await store.read_views("child") == views
        assert await everything(store) == kept | {
            "effects": [replace(row, owner="") for row in await store.read_effects()]
        }
        assert [row.state for row in await store.read_effects("t")] == ["pending", "pending", "accepted"]
        assert await store.read_blob(BLOB.digest) == BLOB.data
        assert await store.read_config(sha256(b"config")) == b"config"
        assert [(row.thread_id, row.asking) for row in await store.list_asking("x")] == [("t", 2)]
        assert await store.count_living("t") == 2
        assert await store.export_tree("t", START) == records

    run(open_store, scenario)


def test_every_store_gives_the_same_records_and_takes_those_of_others(open_store: StoreFactory) -> None:
    async def scenario(store: Store) -> None:
        other = MemoryStore()
        await a_full_tree(other)
        await a_full_tree(store)
        records = await exported(other)
        assert await exported(store) == records
        assert await store.delete("t") == 4
        assert await store.import_tree(records) == 4
        assert digest_of(await store.export_tree("t", START)) == digest_of(records)

    run(open_store, scenario)


def test_a40_a_tree_that_was_moved_goes_on(open_store: StoreFactory) -> None:
    async def scenario(store: Store) -> None:
        other = MemoryStore()
        await a_full_tree(other)
        await store.import_tree(await exported(other))
        repeated = [user("m1"), user("c1", "child"), user("o1", "other"), result("c2", "child")]
        assert await store.put(repeated, START) == [Outcome.DUPLICATE] * 4
        assert await store.put([user("new")], START) == [Outcome.HELD]
        assert await store.claim(BERT, DUE, 10) == []
        assert await store.adopt_effects(BERT, START, 10) == []
        assert await store.thaw("t") == 4
        claims = {claim.thread_id: claim for claim in await store.claim(BERT, DUE, 10)}
        assert {name: names(claim.messages) for name, claim in claims.items()} == {
            "t": ["large", "alarm", "new"],
            "child": ["c2"],
        }
        await store.commit(claims["t"], after(claims["t"]))
        assert [row.version for row in await store.read_log("t")] == [1, 2, 3]
        adopted = await store.adopt_effects(BERT, START, 10)
        assert [(row.effect.request_id, row.state) for row in adopted] == [("r1", "pending"), ("r1:cancel", "pending")]

    run(open_store, scenario)


def test_a_claim_from_before_a_move_stays_lost_where_the_tree_comes_back(open_store: StoreFactory) -> None:
    async def scenario(store: Store) -> None:
        await a_thread(store, user("m1"))
        lost = await claim_one(store)
        records = await exported(store)
        await store.delete("t")
        await store.import_tree(records)
        await store.thaw("t")
        claim = await claim_one(store, owner=BERT)
        assert (claim.tries, claim.token > lost.token) == (1, True)
        for attempt in (store.commit(lost, after(lost)), store.take(lost, START)):
            with pytest.raises(StaleClaim):
                await attempt
        await store.commit(claim, after(claim))

    run(open_store, scenario)


def test_a_long_inbox_is_moved_in_its_order(open_store: StoreFactory) -> None:
    async def scenario(store: Store) -> None:
        ids = [f"m{number:03}" for number in range(300)]
        await a_thread(store, *map(event, ids))
        records = await exported(store)
        await store.delete("t")
        await store.import_tree(records)
        await store.thaw("t")
        claim = await claim_one(store)
        assert names(claim.messages) == ids[:256]
        assert await store.put([event("m299")], START) == [Outcome.DUPLICATE]
        await store.commit(claim, after(claim))
        assert names((await claim_one(store)).messages) == ids[256:]

    run(open_store, scenario)


def test_a_thread_that_knows_many_ids_knows_them_after_it_was_moved(open_store: StoreFactory) -> None:
    async def scenario(store: Store) -> None:
        ids = [f"m{number:03}" for number in range(600)]
        await a_thread(store, user("first"))
        claim = await claim_one(store)
        await store.commit(claim, after(claim, consumed=("first", *ids)))
        records = await exported(store)
        await store.delete("t")
        await store.import_tree(records)
        assert set(await store.put(list(map(user, ids)), START)) == {Outcome.DUPLICATE}
        assert await store.export_tree("t", START) == records

    run(open_store, scenario)


def test_a40_effects_that_are_issued_anew_are_pending_again(open_store: StoreFactory) -> None:
    async def scenario(store: Store) -> None:
        await owe(store, "r1", "r2", "r3")
        await store.start_effects(ANNA, ["r1", "r2"])
        await store.accept_effects(["r1", "r2"])
        records = await exported(store)
        await store.delete("t")
        await store.import_tree(records, reissue=["r2", "r3", "unheard of"])
        await store.thaw("t")
        states = {row.effect.request_id: row.state for row in await store.read_effects()}
        assert states == {"r1": "accepted", "r2": "pending", "r3": "pending"}
        adopted = await store.adopt_effects(BERT, START, 10)
        assert [row.effect.request_id for row in adopted] == ["r2", "r3"]

    run(open_store, scenario)


# What is refused


def test_a_tree_that_is_not_at_rest_is_not_exported(open_store: StoreFactory) -> None:
    async def scenario(store: Store) -> None:
        await owe(store, "r1")
        with pytest.raises(NotAtRest, match="not frozen"):
            await store.export_tree("t", START)
        await store.start_effects(ANNA, ["r1"])
        await store.freeze("t")
        with pytest.raises(NotAtRest, match=r"look_up \(r1\)"):
            await store.export_tree("t", START)
        confirmed = InputMessage("confirmed", "t", ToolResult("r1", "listening", subscription=True))
        await store.put([confirmed], START)
        with pytest.raises(NotAtRest, match="at work"):
            await store.export_tree("t", START)
        await store.put([InputMessage("last", "t", Event("r1", "it ended", final=True))], START)
        assert len(await store.export_tree("t", START)) == 6
        with pytest.raises(UnknownThread):
            await store.export_tree("nobody", START)

    run(open_store, scenario)


def test_what_a_dead_engine_had_begun_does_not_hold_a_tree_back(open_store: StoreFactory) -> None:
    async def scenario(store: Store) -> None:
        await owe(store, "r1")
        await store.start_effects(ANNA, ["r1"])
        await store.freeze("t")
        assert [
            one.state for one in await exported(store, now=START + DEAD_AFTER) if isinstance(one, EffectRecord)
        ] == ["sent"]
        await store.beat(ANNA, START + DEAD_AFTER)
        with pytest.raises(NotAtRest):
            await store.export_tree("t", START + DEAD_AFTER)
        await store.leave(ANNA)
        assert await store.export_tree("t", START + DEAD_AFTER)

    run(open_store, scenario)


def test_a_result_that_has_come_ends_the_work(open_store: StoreFactory) -> None:
    async def scenario(store: Store) -> None:
        await owe(store, "call_1")
        await store.start_effects(ANNA, ["call_1"])
        await store.freeze("t")
        await store.put([result("m")], START)
        assert await store.export_tree("t", START)

    run(open_store, scenario)


def test_a_thread_that_exists_is_not_overwritten(open_store: StoreFactory) -> None:
    async def scenario(store: Store) -> None:
        await a_full_tree(store)
        records = await exported(store)
        before = await everything(store)
        with pytest.raises(ThreadExists):
            await store.import_tree(records)
        assert await everything(store) == before
        await store.delete("t")
        await store.create([new_thread("grandchild")], [user("m", "grandchild")], START)
        before = await everything(store)
        with pytest.raises(ThreadExists, match="grandchild"):
            await store.import_tree(records)
        assert await everything(store) == before
        assert await store.read_blob(BLOB.digest) is None

    run(open_store, scenario)


def test_a_tree_that_is_not_whole_is_refused_and_changes_nothing(open_store: StoreFactory) -> None:
    async def scenario(store: Store) -> None:
        await owe(store, "r1", thread_id="u")
        other = MemoryStore()
        await a_full_tree(other)
        records = await exported(other)
        before = await everything(store)
        first = records[0]
        assert isinstance(first, ThreadRecord)
        effect = next(one for one in records if isinstance(one, EffectRecord))
        broken: list[list[Record]] = [
            [],
            records[1:],
            [replace(first, parent="u", root="u"), *records[1:]],
            [first, first, *records[1:]],
            [one for one in records if not isinstance(one, CommitRecord)],
            [replace(one, thread_id="child") if one is first else one for one in records],
            [replace(one, data=b"other") if isinstance(one, BlobRecord) else one for one in records],
            [replace(one, body=b"other") if isinstance(one, ConfigRecord) else one for one in records],
            [replace(one, request_id="r1") if one is effect else one for one in records],
        ]
        for number, some in enumerate(broken):
            with pytest.raises(MalformedInput):
                await store.import_tree(some)
            assert await everything(store) == before, number
        assert await store.read_blob(BLOB.digest) is None

    run(open_store, scenario)


# Deleted where it came from


def test_a_tree_is_deleted_only_if_it_is_what_was_exported(open_store: StoreFactory) -> None:
    async def scenario(store: Store) -> None:
        await a_full_tree(store)
        digest = digest_of(await exported(store))
        await store.put([user("late", "child")], START)
        assert await store.delete("t", unchanged=digest) == 0
        records = await store.export_tree("t", START)
        added = [one.message_id for one in records if isinstance(one, MessageRecord)]
        assert added == ["large", "alarm", "c2", "late"]
        assert any(isinstance(one, KnownRecord) for one in records)
        digest = digest_of(records)
        await store.thaw("t")
        assert await store.delete("t", unchanged=digest) == 0
        await store.freeze("t")
        assert await store.delete("child", unchanged=digest) == 0
        assert await store.delete("t", unchanged=digest) == 4
        assert await store.delete("t", unchanged=digest) == 0

    run(open_store, scenario)


def test_secrets_of_other_stores_are_kept_beside_its_own(open_store: StoreFactory) -> None:
    async def scenario(store: Store) -> None:
        own = await store.secret()
        assert await store.old_secrets() == []
        for secret in (b"a" * 32, b"b" * 32, b"a" * 32):
            await store.keep_secret(secret)
        assert sorted(await store.old_secrets()) == [b"a" * 32, b"b" * 32]
        assert await store.secret() == own

    run(open_store, scenario)
