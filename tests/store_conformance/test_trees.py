"""Threads in trees: made, listed, counted, pruned and deleted, with all that belongs to them and nothing else."""

import pytest
from msgspec.structs import replace

from hibernaut.codec import pack, sha256
from hibernaut.errors import HasForks, StaleClaim, TooLarge
from hibernaut.kernel.commit import Blob, NewThread
from hibernaut.kernel.head import Status
from hibernaut.messages.inputs import InputMessage, UserText
from hibernaut.messages.parts import Excerpt
from hibernaut.stores.protocol import LARGEST_NOTE, Outcome, Store, ThreadRow
from tests.store_conformance.scenario import (
    ANNA,
    BERT,
    START,
    StoreFactory,
    a_thread,
    after,
    claim_one,
    event,
    everything,
    invoke,
    new_thread,
    run,
    sent_to,
    timer,
    user,
)

TREE = (("child", "t"), ("other child", "t"), ("grandchild", "child"))


def below(thread_id: str, parent: str, root: str = "t", **fields: object) -> NewThread:
    return replace(new_thread(thread_id, body=b""), config=sha256(b"config"), parent=parent, root=root, **fields)


async def turn(store: Store, thread_id: str, **fields: object) -> None:
    """Let a thread make one commit."""
    row = await store.read_head(thread_id)
    assert row is not None
    await store.put([user(f"turn at {row.head!r}", thread_id)], START)
    claim = await claim_one(store, START, thread_id=thread_id)
    await store.commit(claim, after(claim, **fields))


async def a_tree(store: Store, root: str = "t", tenant: str = "") -> None:
    """Make a root with two children and a grandchild."""
    await store.create([new_thread(root, tenant=tenant)], [], START)
    prefix = "" if root == "t" else f"{root}/"
    for thread_id, parent in TREE:
        maker = root if parent == "t" else prefix + parent
        await turn(store, maker, spawned=(below(prefix + thread_id, maker, root),))


async def close(store: Store, *thread_ids: str, at: int = START) -> None:
    for thread_id in thread_ids:
        await turn(store, thread_id, status="closed", at=at)


def ids(rows: list[ThreadRow]) -> list[str]:
    return [row.thread_id for row in rows]


async def existing(store: Store) -> set[str]:
    return set(ids(await store.list_threads(limit=1_000)))


# Making and reading


def test_what_a_commit_spawns_is_its_thread_s_child_and_of_its_tenant(open_store: StoreFactory) -> None:
    async def scenario(store: Store) -> None:
        await a_tree(store, tenant="x")
        rows = [await store.read_head(name) for name in ("t", "child", "grandchild")]
        assert [(row.parent, row.root, row.tenant) for row in rows if row] == [
            ("", "", "x"),
            ("t", "t", "x"),
            ("child", "t", "x"),
        ]
        assert await existing(store) == {"t", "child", "other child", "grandchild"}
        assert len(await store.list_threads("x")) == 4
        assert await store.list_threads("") == []

    run(open_store, scenario)


def test_a_child_without_a_configuration_s_body_leaves_what_is_stored(open_store: StoreFactory) -> None:
    async def scenario(store: Store) -> None:
        await a_tree(store)
        assert await store.read_config(sha256(b"config")) == b"config"
        unknown = replace(below("strange", "t"), config=sha256(b"unheard of"))
        await turn(store, "t", spawned=(unknown,))
        assert await store.read_config(sha256(b"unheard of")) is None

    run(open_store, scenario)


def test_a_thread_whose_parent_is_not_there_is_a_root(open_store: StoreFactory) -> None:
    async def scenario(store: Store) -> None:
        await store.create([below("a", "nobody", "nobody"), below("b", "b", "b")], [], START)
        rows = await store.list_threads(roots=True)
        assert {(row.thread_id, row.parent, row.root) for row in rows} == {("a", "", ""), ("b", "", "")}

    run(open_store, scenario)


def test_a_tree_is_read_in_the_order_in_which_it_was_made(open_store: StoreFactory) -> None:
    async def scenario(store: Store) -> None:
        await a_tree(store)
        await a_tree(store, "u")
        assert ids(await store.read_tree("t")) == ["t", "child", "other child", "grandchild"]
        assert (await store.read_tree("t"))[1] == await store.read_head("child")
        await close(store, "other child")
        assert ids(await store.read_tree("t", living=True)) == ["t", "child", "grandchild"]
        await close(store, "t")
        assert ids(await store.read_tree("t", living=True)) == ["child", "grandchild"]
        assert ids(await store.read_tree("t")) == ["t", "child", "other child", "grandchild"]
        assert await store.read_tree("child") == []
        assert await store.read_tree("nobody") == []

    run(open_store, scenario)


def test_the_descendants_that_live_are_counted(open_store: StoreFactory) -> None:
    async def scenario(store: Store) -> None:
        await a_tree(store)
        assert [await store.count_living(name) for name in ("t", "child", "nobody")] == [3, 0, 0]
        await close(store, "grandchild", "t")
        assert await store.count_living("t") == 2
        await turn(store, "child", status="stopped")
        assert await store.count_living("t") == 2
        await close(store, "child", "other child")
        assert await store.count_living("t") == 0

    run(open_store, scenario)


def test_roots_are_listed_page_by_page_without_their_descendants(open_store: StoreFactory) -> None:
    async def scenario(store: Store) -> None:
        for number in range(5):
            tenant = "xy"[number % 2]
            await store.create([new_thread(f"r{number}", tenant=tenant, created=START + number)], [], START)
            await store.create([below(f"c{number}", f"r{number}", f"r{number}", created=START + 9)], [], START)
        assert ids(await store.list_threads(roots=True)) == ["r4", "r3", "r2", "r1", "r0"]
        assert ids(await store.list_threads("x", roots=True, limit=2)) == ["r4", "r2"]
        assert ids(await store.list_threads("x", roots=True, before=(START + 2, "r2"))) == ["r0"]
        assert ids(await store.list_threads("x", limit=4)) == ["c4", "c2", "c0", "r4"]
        assert ids(await store.list_threads(limit=3, before=(START + 9, "c1"))) == ["c0", "r4", "r3"]

    run(open_store, scenario)


def test_threads_that_ask_a_person_are_listed_the_longest_untouched_first(open_store: StoreFactory) -> None:
    async def scenario(store: Store) -> None:
        await a_tree(store, tenant="x")
        await a_tree(store, "u")
        assert await store.list_asking() == []
        for number, name in enumerate(("grandchild", "u", "t", "child")):
            await turn(store, name, asking=number + 1, at=START + number)
        rows = await store.list_asking()
        assert [(row.thread_id, row.asking) for row in rows] == [("grandchild", 1), ("u", 2), ("t", 3), ("child", 4)]
        assert ids(await store.list_asking(limit=2)) == ["grandchild", "u"]
        assert ids(await store.list_asking("")) == ["u"]
        assert ids(await store.list_asking("x", limit=2)) == ["grandchild", "t"]
        assert ids(await store.list_asking(root="t")) == ["grandchild", "t", "child"]
        assert await store.list_asking("", root="t") == []
        assert await store.list_asking(root="child") == []
        await turn(store, "grandchild", at=START + 9)
        assert ids(await store.list_asking("x")) == ["t", "child"]

    run(open_store, scenario)


# Deleting


def referring(*digests: bytes) -> bytes:
    return pack([Excerpt("…", digest, 70_000) for digest in digests])


def test_c66_deleting_a_tree_leaves_nothing_of_it_and_all_of_the_others(open_store: StoreFactory) -> None:
    async def scenario(store: Store) -> None:
        await a_tree(store, "u")
        await turn(store, "u", effects=(invoke("of u"),), outgoing=sent_to(timer("alarm", "u"), due=START + 700))
        before, size = await everything(store), await store.stored_bytes()
        await a_tree(store)
        work = (invoke("r1"), replace(invoke("r1:cancel"), kind="cancel", call_id="r1"))
        await turn(store, "child", asking=2, effects=work, outgoing=sent_to(timer("alarm", "child"), due=START + 500))
        await store.put([user("waits", "grandchild")], START)
        await store.start_effects(ANNA, ["r1"])
        assert await store.delete("child") == await store.delete("nobody") == 0
        assert await store.delete("t") == 4
        assert await everything(store) == before
        assert await store.list_asking() == []
        assert await store.cancellations(ANNA) == []
        assert await store.claim(ANNA, START + 600, 10) == []
        assert await store.count_living("t") == await store.delete("t") == 0
        assert await store.put([user("late", "child")], START) == [Outcome.UNKNOWN]
        assert await store.stored_bytes() <= size or size > 40_000

    run(open_store, scenario)


def test_c66_a_note_is_left_of_what_was_deleted_and_of_nothing_else(open_store: StoreFactory) -> None:
    async def scenario(store: Store) -> None:
        await a_tree(store)
        note = ("deleted:t", b"why")
        assert await store.delete("child", note=note) == 0
        await store.create([replace(new_thread("fork", body=b""), fork_of="child")], [], START)
        with pytest.raises(HasForks):
            await store.delete("t", note=note)
        await store.delete("fork")
        with pytest.raises(TooLarge):
            await store.delete("t", note=("deleted:t", bytes(LARGEST_NOTE + 1)))
        assert await store.read_note("deleted:t") is None
        assert await store.delete("t", note=note) == 4
        assert await store.read_note("deleted:t") == b"why"

    run(open_store, scenario)


def test_c66_a_thread_made_again_under_a_deleted_name_starts_from_nothing(open_store: StoreFactory) -> None:
    async def scenario(store: Store) -> None:
        await a_thread(store, user("m1"))
        lost = await claim_one(store)
        assert await store.delete("t") == 1
        with pytest.raises(StaleClaim):
            await store.commit(lost, after(lost))
        assert await store.read_log("t") == []
        await a_thread(store)
        assert await store.put([user("m1")], START) == [Outcome.ACCEPTED]
        claim = await claim_one(store, owner=BERT)
        assert (claim.version, claim.tries, claim.head) == (0, 1, b"head 0 of t")
        with pytest.raises(StaleClaim):
            await store.commit(lost, after(lost))
        await store.release(lost)
        await store.commit(claim, after(claim))
        assert len(await store.read_log("t")) == 1

    run(open_store, scenario)


def test_c66_blobs_and_configurations_go_with_the_last_that_refers_to_them(open_store: StoreFactory) -> None:
    async def scenario(store: Store) -> None:
        names = ("page", "inbox", "head", "shared page", "shared inbox", "shared head", "never used")
        contents = {name: name.encode() * 30_000 for name in names}
        blobs = {name: Blob(sha256(content), content) for name, content in contents.items()}
        digest = {name: blob.digest for name, blob in blobs.items()}
        await a_tree(store)
        await store.create([replace(new_thread("u", body=b"own"), head=pack(sha256(b"own")))], [], START)
        await store.create([replace(new_thread("v"), head=pack([sha256(b"config"), digest["shared head"]]))], [], START)
        kept = InputMessage("m", "v", UserText((Excerpt("…", digest["shared inbox"], 70_000),)))
        mine = InputMessage("m", "u", UserText((Excerpt("…", digest["inbox"], 70_000),)))
        await store.put([kept, mine], START, blobs=list(blobs.values()))
        await turn(store, "child", page=referring(digest["shared page"]))
        claim = await claim_one(store, thread_id="u")
        head = pack([sha256(b"own"), digest["head"], digest["shared head"], sha256(b"config")])
        page = referring(digest["page"], digest["shared page"], digest["shared inbox"], digest["page"])
        await store.commit(claim, after(claim, consumed=(), head=head, page=page))
        assert await store.delete("u") == 1
        found = {name for name in names if await store.read_blob(digest[name]) is not None}
        assert found == {"shared page", "shared inbox", "shared head", "never used"}
        assert await store.read_config(sha256(b"own")) is None
        assert await store.read_config(sha256(b"config")) == b"config"
        assert await store.delete("t") == 4
        assert await store.read_blob(digest["shared page"]) is None

    run(open_store, scenario)


# Pruning


def test_c66_pruning_removes_what_is_closed_and_old_with_its_tree(open_store: StoreFactory) -> None:
    async def scenario(store: Store) -> None:
        for root, tenant in (("t", ""), ("u", ""), ("v", "x"), ("w", "")):
            await a_tree(store, root, tenant)
        await close(store, "t", "child", "other child", "grandchild", at=START + 5)
        await close(store, "v", "v/child", "v/other child", "v/grandchild", at=START + 5)
        await close(store, "w", "w/child", "w/other child", at=START + 5)
        await close(store, "w/grandchild", at=START + 9)
        assert await store.prune(START + 5) == 0
        assert await store.prune(START + 6, tenant="") == 4
        assert len(await store.read_tree("v")) == 4
        assert await store.prune(START + 6) == 4
        assert {row.root or row.thread_id for row in await store.list_threads()} == {"u", "w"}
        assert await store.prune(START + 10) == 4
        assert ids(await store.read_tree("u")) == ["u", "u/child", "u/other child", "u/grandchild"]

    run(open_store, scenario)


@pytest.mark.parametrize("reason", ["question", "effect", "open", "stopped"])
def test_c66_pruning_spares_a_tree_with_open_work(open_store: StoreFactory, reason: str) -> None:
    async def scenario(store: Store) -> None:
        await a_tree(store)
        await close(store, "t", "child", "other child")
        if reason in ("open", "stopped"):
            state: Status = "open" if reason == "open" else "stopped"
            await turn(store, "grandchild", status=state)
        else:
            asking, effects = (1, ()) if reason == "question" else (0, (invoke("r1"),))
            await turn(store, "grandchild", status="closed", asking=asking, effects=effects)
        before = await everything(store)
        assert await store.prune(START + 1) == 0
        assert await everything(store) == before
        if reason == "effect":
            await store.settle_effects(["r1"])
            assert await store.prune(START + 1) == 4

    run(open_store, scenario)


def test_c66_a_closed_child_stays_while_a_descendant_of_its_lives(open_store: StoreFactory) -> None:
    async def scenario(store: Store) -> None:
        await a_tree(store)
        await close(store, "child", "other child")
        assert await store.prune(START + 1) == 1
        assert ids(await store.read_tree("t")) == ["t", "child", "grandchild"]
        assert await store.count_living("t") == 1
        await close(store, "grandchild")
        assert await store.prune(START + 1) == 2
        assert ids(await store.read_tree("t")) == ["t"]
        await turn(store, "t", spawned=(below("child", "t"),))
        assert await store.count_living("t") == 1

    run(open_store, scenario)


def test_c66_a_thousand_turns_leave_one_row_each(open_store: StoreFactory) -> None:
    async def scenario(store: Store) -> None:
        await a_thread(store)
        for number in range(1_000):
            await store.put([event(f"m{number}")], START)
            claim = await claim_one(store)
            await store.commit(claim, after(claim, page=b"p" * 1_000))
        assert len(await store.read_log("t")) == 1_000
        assert await store.read_inbox("t") == ()
        assert await store.read_effects() == []
        while await store.rest():
            pass
        assert await store.stored_bytes() < 1_000 * 2_500
        assert await store.delete("t") == 1
        assert await store.read_log("t") == []

    run(open_store, scenario)


# Cancellations


def test_an_engine_finds_the_cancellations_of_the_calls_it_works_on(open_store: StoreFactory) -> None:
    async def scenario(store: Store) -> None:
        await a_thread(store, user("m1"))
        claim = await claim_one(store)
        await store.commit(claim, after(claim, effects=(invoke("mine"), invoke("over"), invoke("alone"))))
        await store.start_effects(ANNA, ["mine", "over", "alone"])
        await store.put([user("m2")], START)
        claim = await claim_one(store, owner=BERT)
        cancels = tuple(
            replace(invoke(f"{name}:cancel"), kind="cancel", call_id=name) for name in ("mine", "over", "theirs")
        )
        await store.commit(claim, after(claim, effects=(invoke("theirs"), *cancels)))
        await store.start_effects(BERT, ["theirs"])
        await store.settle_effects(["over"])
        assert [row.effect.request_id for row in await store.cancellations(ANNA)] == ["mine:cancel"]
        (row,) = await store.cancellations(BERT)
        assert row in await store.read_effects("t")
        assert (row.effect.call_id, row.owner, row.state) == ("theirs", BERT.engine_id, "pending")
        await store.settle_effects(["mine:cancel"])
        assert await store.cancellations(ANNA) == []

    run(open_store, scenario)
