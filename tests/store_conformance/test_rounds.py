"""Commits, further rounds, releases, and who may no longer write."""

from typing import Any

import pytest
from msgspec.structs import replace

from hibernaut.codec import sha256
from hibernaut.errors import StaleClaim
from hibernaut.kernel.commit import Blob, SliceCommit
from hibernaut.stores.protocol import DEAD_AFTER, Claim, LogRow, Outcome, Round, Store
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


def test_a_commit_moves_its_thread_on(open_store: StoreFactory) -> None:
    async def scenario(store: Store) -> None:
        await a_thread(store, user("m1"), user("m2"))
        claim = await claim_one(store)
        await store.commit(claim, after(claim, consumed=("m1",), status="parked", at=START + 9))
        row = await store.read_head("t")
        assert row is not None
        assert (row.head, row.status, row.created, row.updated, row.waiting) == (
            b"head 1",
            "parked",
            START,
            START + 9,
            1,
        )
        assert await store.read_log("t") == [LogRow(1, b"page 1", b"receipt 1")]
        assert names(await store.read_inbox("t")) == ["m2"]

    run(open_store, scenario)


def test_a_commit_ends_the_claim(open_store: StoreFactory) -> None:
    async def scenario(store: Store) -> None:
        await a_thread(store, user("m1"))
        claim = await claim_one(store)
        await store.commit(claim, after(claim))
        assert not await is_ready(store)
        before = await everything(store)
        second = replace(claim, version=1)
        with pytest.raises(StaleClaim):
            await store.commit(second, after(second))
        with pytest.raises(StaleClaim):
            await store.take(second, START)
        await store.release(second)
        assert await everything(store) == before

    run(open_store, scenario)


def test_a_kept_claim_goes_on_with_what_has_arrived_since(open_store: StoreFactory) -> None:
    async def scenario(store: Store) -> None:
        await a_thread(store, user("m1"), user("m2"))
        claim = await claim_one(store)
        await store.put([event("m3")], START)
        await store.put([timer("m4")], START, due=START + 50)
        await store.commit(claim, after(claim, consumed=("m1",)), keep=True)
        assert await store.claim(BERT, START + 60, 10) == []
        assert names(await store.take(claim, START + 40)) == ["m2", "m3"]
        assert names(await store.take(claim, START + 50)) == ["m2", "m3", "m4"]
        claim = replace(claim, version=1)
        await store.commit(claim, after(claim, consumed=("m2", "m3", "m4")), keep=True)
        assert await store.take(claim, START + 60) == ()
        claim = replace(claim, version=2)
        await store.commit(claim, after(claim, consumed=()))
        assert [row.version for row in await store.read_log("t")] == [1, 2, 3]
        assert not await is_ready(store)

    run(open_store, scenario)


def test_a_message_that_arrives_during_a_slice_wakes_the_thread_after_it(open_store: StoreFactory) -> None:
    async def scenario(store: Store) -> None:
        await a_thread(store, user("m1"))
        claim = await claim_one(store)
        await store.put([event("m2")], START)
        await store.commit(claim, after(claim))
        assert names((await claim_one(store)).messages) == ["m2"]

    run(open_store, scenario)


def test_a_message_that_a_commit_says_nothing_about_stays_and_wakes_again(open_store: StoreFactory) -> None:
    async def scenario(store: Store) -> None:
        await a_thread(store, user("m1"), user("m2"))
        claim = await claim_one(store)
        await store.commit(claim, after(claim, consumed=("m2",)))
        assert names((await claim_one(store)).messages) == ["m1"]

    run(open_store, scenario)


RICH: dict[str, Any] = {
    "status": "closed",
    "deferred": (("m2", START + 5),),
    "dropped": ("m3",),
    "spawned": (new_thread("child", body=b"of the child"),),
    "outgoing": sent_to(user("to child", "child"), user("to other", "other")),
    "effects": (invoke("r2"),),
    "settled": ("r1",),
    "continues": True,
}
"""A commit that leaves its mark on everything."""


async def _rich_ground(store: Store) -> None:
    await a_thread(store, thread_id="other")
    await owe(store, "r1")
    await store.put([user("m1"), user("m2")], START)
    await store.put([timer("m3")], START, due=START + 900_000)


async def _all_of_it(store: Store) -> list[object]:
    return [await everything(store), await store.read_config(sha256(b"of the child"))]


def test_a_commit_shows_all_at_once(open_store: StoreFactory) -> None:
    async def scenario(store: Store) -> None:
        await _rich_ground(store)
        claim = await claim_one(store)
        await store.commit(claim, after(claim, **RICH, consumed=("m1",)))
        assert {row.thread_id for row in await store.list_threads()} == {"t", "child", "other"}
        assert names(await store.read_inbox("t")) == ["m2"]
        assert names(await store.read_inbox("child")) == ["to child"]
        assert names(await store.read_inbox("other")) == ["to other"]
        assert [row.effect.request_id for row in await store.read_effects()] == ["r2"]
        assert await store.read_config(sha256(b"of the child")) == b"of the child"

    run(open_store, scenario)


def test_a_writer_whose_thread_was_taken_over_writes_nothing_at_all(open_store: StoreFactory) -> None:
    async def scenario(store: Store) -> None:
        await _rich_ground(store)
        late = await claim_one(store)
        other = await claim_one(store, START + DEAD_AFTER, BERT)
        assert other.token > late.token
        before = await _all_of_it(store)
        for keep in (False, True):
            with pytest.raises(StaleClaim):
                await store.commit(late, after(late, **RICH), keep=keep)
        with pytest.raises(StaleClaim):
            await store.take(late, START)
        await store.release(late)
        assert await _all_of_it(store) == before
        await store.commit(other, after(other, **RICH))
        assert await _all_of_it(store) != before

    run(open_store, scenario)


@pytest.mark.parametrize("version", [0, 1, 3])
def test_a_version_that_is_not_the_next_one_writes_nothing_at_all(open_store: StoreFactory, version: int) -> None:
    async def scenario(store: Store) -> None:
        await _rich_ground(store)
        claim = await claim_one(store)
        assert claim.version == 1
        before = await _all_of_it(store)
        with pytest.raises(StaleClaim):
            await store.commit(claim, after(claim, **RICH, version=version))
        assert await _all_of_it(store) == before
        await store.commit(claim, after(claim))

    run(open_store, scenario)


@pytest.mark.parametrize(
    "broken",
    [
        {"outgoing": (*RICH["outgoing"], *sent_to(user("\ud800", "other")))},
        {"outgoing": (*RICH["outgoing"], None)},
        {"spawned": (*RICH["spawned"], None)},
        {"effects": (*RICH["effects"], None)},
        {"receipt": None},
    ],
    ids=["unwritable text", "outgoing", "spawned", "effects", "receipt"],
)
def test_a_commit_that_fails_half_way_writes_nothing_at_all(open_store: StoreFactory, broken: dict[str, Any]) -> None:
    async def scenario(store: Store) -> None:
        await _rich_ground(store)
        claim = await claim_one(store)
        before = await _all_of_it(store)
        with pytest.raises(Exception, match=r"."):
            await store.commit(claim, after(claim, **{**RICH, **broken}))
        assert await _all_of_it(store) == before
        assert names(await store.take(claim, START)) == ["m1", "m2"]
        await store.commit(claim, after(claim, **RICH))
        assert len(await store.list_threads()) == 3

    run(open_store, scenario)


def test_a_thread_that_continues_is_ready_without_a_message_until_a_commit_says_otherwise(
    open_store: StoreFactory,
) -> None:
    async def scenario(store: Store) -> None:
        await a_thread(store, user("m1"))
        claim = await claim_one(store)
        await store.commit(claim, after(claim, continues=True, at=START + 100))
        claim = await claim_one(store, START + 100)
        assert claim.messages == ()
        await store.release(claim)
        claim = await claim_one(store, START + 100)
        await store.commit(claim, after(claim))
        assert not await is_ready(store, now=START + 10**9)

    run(open_store, scenario)


def test_a_user_goes_before_a_thread_that_continues(open_store: StoreFactory) -> None:
    async def scenario(store: Store) -> None:
        await a_thread(store, user("m1", "a"), thread_id="a")
        claim = await claim_one(store)
        await store.commit(claim, after(claim, continues=True))
        await a_thread(store, user("m1", "b"), thread_id="b")
        await a_thread(store, event("m1", "c"), thread_id="c")
        assert [claim.thread_id for claim in await store.claim(ANNA, START, 10)] == ["b", "a", "c"]

    run(open_store, scenario)


def test_tries_begin_anew_with_a_commit(open_store: StoreFactory) -> None:
    async def scenario(store: Store) -> None:
        await a_thread(store, user("m1"), user("m2"))
        await store.release(await claim_one(store))
        claim = await claim_one(store)
        assert claim.tries == 2
        await store.commit(claim, after(claim, consumed=("m1",)), keep=True)
        claim = await claim_one(store, START + DEAD_AFTER, BERT)
        assert claim.tries == 2
        await store.commit(claim, after(claim, consumed=()))
        assert (await claim_one(store, START + DEAD_AFTER, BERT)).tries == 1

    run(open_store, scenario)


def test_what_is_released_is_ready_again_as_it_was(open_store: StoreFactory) -> None:
    async def scenario(store: Store) -> None:
        await a_thread(store, user("m1"))
        before = await everything(store)
        first = await claim_one(store)
        await store.release(first)
        assert await everything(store) == before
        second = await claim_one(store, owner=BERT)
        assert (second.head, second.version, second.messages) == (first.head, first.version, first.messages)
        await store.release(first)
        assert await store.claim(ANNA, START, 10) == []

    run(open_store, scenario)


def test_what_is_released_until_a_moment_is_not_ready_before_it(open_store: StoreFactory) -> None:
    async def scenario(store: Store) -> None:
        await a_thread(store, user("m1"))
        await store.release(await claim_one(store), START + 1_000)
        await store.put([user("m2")], START)
        assert not await is_ready(store, now=START + 999)
        assert await store.claim(ANNA, START + 999, 10) == []
        assert await store.next_due(START) == START + 1_000
        claim = await claim_one(store, START + 1_000)
        assert names(claim.messages) == ["m1", "m2"]
        await store.commit(claim, after(claim, at=START + 1_000))
        await store.put([user("m3")], START + 1_001)
        assert await is_ready(store, now=START + 1_001)

    run(open_store, scenario)


def test_a_commit_ends_an_earlier_release_s_wait(open_store: StoreFactory) -> None:
    async def scenario(store: Store) -> None:
        await a_thread(store, user("m1"))
        await store.release(await claim_one(store), START + 1_000)
        claim = await claim_one(store, START + 1_000)
        await store.commit(claim, after(claim, consumed=()))
        assert await is_ready(store, now=START)

    run(open_store, scenario)


def test_a_release_until_a_moment_wakes_nothing_that_has_nothing_to_do(open_store: StoreFactory) -> None:
    async def scenario(store: Store) -> None:
        await a_thread(store, user("m1"))
        claim = await claim_one(store)
        await store.commit(claim, after(claim), keep=True)
        await store.release(claim, START + 50)
        assert await store.next_due(START) is None
        assert await store.claim(ANNA, START + 50, 10) == []

    run(open_store, scenario)


def test_dropped_timers_are_gone(open_store: StoreFactory) -> None:
    async def scenario(store: Store) -> None:
        await a_thread(store)
        await store.put([timer("later")], START, due=START + 500)
        await store.put([user("m1"), timer("due")], START)
        claim = await claim_one(store)
        await store.commit(claim, after(claim, consumed=("m1",), dropped=("later", "due", "never was")))
        assert await store.read_inbox("t") == ()
        assert await store.next_due(START) is None
        assert await store.claim(ANNA, START + 500, 10) == []

    run(open_store, scenario)


def test_a_dropped_timer_can_be_set_again_even_in_the_same_commit(open_store: StoreFactory) -> None:
    async def scenario(store: Store) -> None:
        await a_thread(store, user("m1"))
        await store.put([timer("alarm")], START, due=START + 500)
        claim = await claim_one(store)
        again = sent_to(timer("alarm"), due=START + 800)
        await store.commit(claim, after(claim, dropped=("alarm",), outgoing=again))
        assert await store.next_due(START) == START + 800
        assert await store.put([timer("alarm")], START) == [Outcome.DUPLICATE]

    run(open_store, scenario)


def test_a_timer_that_was_consumed_is_still_known_when_it_is_dropped(open_store: StoreFactory) -> None:
    async def scenario(store: Store) -> None:
        await a_thread(store, timer("m1"))
        claim = await claim_one(store)
        await store.commit(claim, after(claim), keep=True)
        await store.commit(claim, after(replace(claim, version=1), consumed=(), dropped=("m1",)))
        assert await store.put([timer("m1")], START) == [Outcome.DUPLICATE]

    run(open_store, scenario)


def test_a_deferred_message_waits_for_its_moment(open_store: StoreFactory) -> None:
    async def scenario(store: Store) -> None:
        await a_thread(store, event("m1"))
        claim = await claim_one(store)
        await store.commit(claim, after(claim, consumed=(), deferred=(("m1", START + 500),)))
        assert names(await store.read_inbox("t")) == ["m1"]
        assert await store.put([event("m1")], START) == [Outcome.DUPLICATE]
        assert await store.next_due(START) == START + 500
        assert not await is_ready(store, now=START + 499)
        claim = await claim_one(store, START + 500)
        assert names(claim.messages) == ["m1"]
        await store.commit(claim, after(claim))
        assert await store.read_inbox("t") == ()

    run(open_store, scenario)


def test_a_deferred_message_comes_along_with_any_other_in_the_order_of_arrival(open_store: StoreFactory) -> None:
    async def scenario(store: Store) -> None:
        await a_thread(store, event("m1"), event("m2"))
        claim = await claim_one(store)
        await store.commit(claim, after(claim, consumed=(), deferred=(("m1", START + 500), ("m2", START + 600))))
        await store.put([timer("m3")], START, due=START + 900)
        await store.put([result("m4")], START)
        claim = await claim_one(store)
        assert names(claim.messages) == ["m1", "m2", "m4"]
        assert names(await store.take(claim, START)) == ["m1", "m2", "m4"]
        await store.commit(claim, after(claim, consumed=("m2", "m4")))
        assert await store.next_due(START) == START + 500
        assert names((await claim_one(store, START + 500)).messages) == ["m1"]

    run(open_store, scenario)


def test_a_message_can_be_deferred_again(open_store: StoreFactory) -> None:
    async def scenario(store: Store) -> None:
        await a_thread(store, event("m1"))
        for moment in (START + 500, START + 100, START + 900):
            claim = await store.claim(ANNA, START + 10**6, 1)
            await store.commit(claim[0], after(claim[0], consumed=(), deferred=(("m1", moment), ("nobody", START))))
            assert await store.next_due(START) == moment

    run(open_store, scenario)


def test_a_kept_claim_may_defer_and_is_handed_the_message_again(open_store: StoreFactory) -> None:
    async def scenario(store: Store) -> None:
        await a_thread(store, event("m1"), user("m2"))
        claim = await claim_one(store)
        await store.commit(claim, after(claim, consumed=("m2",), deferred=(("m1", START + 500),)), keep=True)
        assert names(await store.take(claim, START)) == ["m1"]
        await store.release(claim)
        assert not await is_ready(store)

    run(open_store, scenario)


def test_a_commit_sends_messages_to_any_thread(open_store: StoreFactory) -> None:
    async def scenario(store: Store) -> None:
        await a_thread(store, thread_id="other")
        await a_thread(store, status="closed", thread_id="closed")
        await a_thread(store, user("m1"))
        claim = await claim_one(store)
        outgoing = (
            *sent_to(result("now", "other"), user("m1", "closed"), user("m1", "nobody"), timer("own"), user("m1")),
            *sent_to(timer("later", "other"), timer("own later"), due=START + 700),
        )
        await store.commit(claim, after(claim, outgoing=outgoing, at=START + 5))
        assert names(await store.read_inbox("t")) == ["own", "own later"]
        inbox = await store.read_inbox("other")
        assert [(one.message_id, one.accepted) for one in inbox] == [("now", START + 5), ("later", START + 5)]
        assert await store.read_inbox("closed") == ()
        assert await store.read_head("nobody") is None
        claims = await store.claim(ANNA, START + 5, 10)
        assert {claim.thread_id: names(claim.messages) for claim in claims} == {"t": ["own"], "other": ["now"]}
        assert await store.put([timer("later", "other")], START) == [Outcome.DUPLICATE]

    run(open_store, scenario)


def test_a_message_that_a_commit_sends_twice_arrives_once(open_store: StoreFactory) -> None:
    async def scenario(store: Store) -> None:
        await a_thread(store, user("known", "other"), thread_id="other")
        await a_thread(store, user("m1"))
        claim = await claim_one(store, thread_id="t")
        twice = sent_to(user("a", "other"), user("a", "other"), user("known", "other"))
        await store.commit(claim, after(claim, outgoing=twice))
        assert names(await store.read_inbox("other")) == ["known", "a"]

    run(open_store, scenario)


def test_a_commit_may_write_to_its_own_stopped_thread(open_store: StoreFactory) -> None:
    async def scenario(store: Store) -> None:
        await a_thread(store, command("m1", action="stop"))
        claim = await claim_one(store)
        await store.commit(claim, after(claim, status="stopped", outgoing=sent_to(timer("m2"))))
        assert not await is_ready(store)
        assert names(await store.read_inbox("t")) == ["m2"]

    run(open_store, scenario)


def test_a_commit_makes_threads_and_gives_them_their_first_message(open_store: StoreFactory) -> None:
    async def scenario(store: Store) -> None:
        await a_thread(store, thread_id="old")
        await a_thread(store, user("m1"))
        claim = await claim_one(store)
        spawned = (new_thread("child", tenant="x", created=START + 3), replace(new_thread("old"), head=b"other"))
        outgoing = sent_to(user("first", "child"))
        await store.commit(claim, after(claim, spawned=spawned, outgoing=outgoing))
        row, old = await store.read_head("child"), await store.read_head("old")
        assert row is not None
        assert old is not None
        assert (row.tenant, row.status, row.created, row.head) == ("", "open", START + 3, b"head 0 of child")
        assert old.head == b"head 0 of old"
        child = await claim_one(store)
        assert (child.thread_id, child.version, names(child.messages)) == ("child", 0, ["first"])

    run(open_store, scenario)


def test_an_id_that_a_commit_consumes_is_known_even_if_it_never_waited(open_store: StoreFactory) -> None:
    async def scenario(store: Store) -> None:
        await a_thread(store, user("m1"))
        claim = await claim_one(store)
        await store.commit(claim, after(claim, consumed=("m1", "unheard of")))
        assert await store.put([user("unheard of")], START) == [Outcome.DUPLICATE]

    run(open_store, scenario)


def test_pages_receipts_and_heads_are_any_bytes(open_store: StoreFactory) -> None:
    pages = [(b"", b"r"), (b"\x00" * 1_000_000, b""), (bytes(range(256)), b"\xff" * 70_000)]

    async def scenario(store: Store) -> None:
        await a_thread(store)
        for number, (page, receipt) in enumerate(pages):
            await store.put([user(f"m{number}")], START)
            claim = await claim_one(store)
            commit: SliceCommit = after(claim, page=page, receipt=receipt, head=page)
            await store.commit(claim, commit)
            row = await store.read_head("t")
            assert row is not None
            assert row.head == page
        assert [(row.page, row.receipt) for row in await store.read_log("t")] == pages

    run(open_store, scenario)


def test_the_blobs_of_a_round_are_kept_with_it_or_not_at_all(open_store: StoreFactory) -> None:
    blob = Blob(sha256(b"manifest"), b"manifest")

    async def scenario(store: Store) -> None:
        await a_thread(store, user("m1"))
        claim = await claim_one(store)
        with pytest.raises(StaleClaim):
            await store.commit(replace(claim, token=claim.token + 1), after(claim, blobs=(blob,)))
        assert await store.read_blob(blob.digest) is None
        await store.commit(claim, after(claim, blobs=(blob,), head=b"a head with \xc4\x20" + blob.digest))
        assert await store.read_blob(blob.digest) == b"manifest"
        await store.delete("t")
        assert await store.read_blob(blob.digest) is None

    run(open_store, scenario)


async def three_claims(store: Store) -> list[Claim]:
    for name in ("a", "b", "c"):
        await a_thread(store, user(f"m {name}", name), thread_id=name)
    return sorted(await store.claim(ANNA, START, 3), key=lambda claim: claim.thread_id)


def test_rounds_of_several_threads_are_committed_together(open_store: StoreFactory) -> None:
    async def scenario(store: Store) -> None:
        a, b, c = await three_claims(store)
        keeping = after(b, outgoing=sent_to(user("from b", "a")))
        assert await store.commit_all([Round(a, after(a)), Round(b, keeping, keep=True), Round(c, after(c))]) == [
            None,
            None,
            None,
        ]
        assert [len(await store.read_log(name)) for name in "abc"] == [1, 1, 1]
        assert [claim.thread_id for claim in await store.claim(BERT, START, 9)] == ["a"], "it was sent something"
        assert await store.commit_all([Round(replace(b, version=1), after(replace(b, version=1)))]) == [None]
        assert await store.commit_all([]) == []

    run(open_store, scenario)


def test_a_round_that_is_refused_takes_none_of_those_beside_it_along(open_store: StoreFactory) -> None:
    async def scenario(store: Store) -> None:
        a, b, c = await three_claims(store)
        broken: Any = replace(after(b), page=None)
        none, unreadable, stale = await store.commit_all(
            [Round(a, after(a)), Round(b, broken), Round(replace(c, token=c.token + 1), after(c))]
        )
        assert none is None
        assert isinstance(unreadable, Exception)
        assert not isinstance(unreadable, StaleClaim)
        assert isinstance(stale, StaleClaim)
        assert [len(await store.read_log(name)) for name in "abc"] == [1, 0, 0]
        assert await store.commit_all([Round(b, after(b)), Round(c, after(c))]) == [None, None], "they are still held"

    run(open_store, scenario)


def test_rounds_that_touch_each_other_s_threads_are_committed_in_their_order(open_store: StoreFactory) -> None:
    async def scenario(store: Store) -> None:
        first, second, _ = await three_claims(store)
        one, two = first.thread_id, second.thread_id
        bye = after(first, status="closed", outgoing=sent_to(event("to the second", two), event("to a child", "child")))
        child = replace(new_thread("child"), parent=two)
        too_late = after(second, status="closed", outgoing=sent_to(event("to the first", one)), spawned=(child,))
        assert await store.commit_all([Round(first, bye), Round(second, too_late)]) == [None, None]
        assert "to the first" not in names(await store.read_inbox(one)), "it had closed"
        assert "to the second" in names(await store.read_inbox(two))
        assert await store.read_inbox("child") == ()

    run(open_store, scenario)
