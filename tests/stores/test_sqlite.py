"""What only the embedded store promises: group commit, hints after durability, no room, clean ends."""

import asyncio
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import apsw
import pytest

from hibernaut.codec import sha256
from hibernaut.errors import StaleClaim, StoreError, StoreFull
from hibernaut.kernel.commit import Blob
from hibernaut.messages.inputs import InputMessage, UserText
from hibernaut.stores.protocol import Outcome
from hibernaut.stores.sqlite import SqliteStore, deliveries, writer
from hibernaut.stores.sqlite.transaction import Transaction
from tests.store_conformance.scenario import (
    ANNA,
    BERT,
    START,
    a_thread,
    after,
    claim_one,
    event,
    everything,
    names,
    new_thread,
    sent_to,
    timer,
    user,
)
from tests.stores.sqlite_scenario import BIG, let_all_ask, play, raw, standing_still

ACCEPTED = Outcome.ACCEPTED


# Group commit


def test_whatever_is_waiting_is_written_in_one_transaction(tmp_path: Path) -> None:
    async def scenario(store: SqliteStore) -> None:
        await a_thread(store)
        synced: list[str] = []
        connection = store._writer._connection
        connection.trace_v2(
            apsw.SQLITE_TRACE_STMT, lambda event: synced.append(event["sql"]) if event["sql"] == "COMMIT" else None
        )
        before = store.transactions
        with standing_still(store):
            puts = [asyncio.ensure_future(store.put([user(f"m{number}")], START)) for number in range(300)]
            await let_all_ask()
        assert await asyncio.gather(*puts) == [[ACCEPTED]] * 300
        assert store.transactions - before == 2
        assert synced == ["COMMIT"] * 2
        assert names(await store.read_inbox("t")) == [f"m{number}" for number in range(300)]

    play(tmp_path, scenario)


def test_a_group_is_bounded(tmp_path: Path) -> None:
    async def scenario(store: SqliteStore) -> None:
        await a_thread(store)
        before = store.transactions
        with standing_still(store):
            puts = [asyncio.ensure_future(store.put([user(f"m{number}")], START)) for number in range(1_000)]
            await let_all_ask()
        await asyncio.gather(*puts)
        assert store.transactions - before == 1 + -(-1_000 // writer.GROUP)

    play(tmp_path, scenario)


def test_of_a_group_only_the_piece_that_is_refused_fails(tmp_path: Path) -> None:
    async def scenario(store: SqliteStore) -> None:
        await a_thread(store, user("m1"))
        old = await claim_one(store)
        await store.release(old)
        claim = await claim_one(store)
        before = store.transactions
        with standing_still(store):
            asked = [
                asyncio.ensure_future(work)
                for work in (
                    store.put([user("m2")], START),
                    store.commit(old, after(old)),
                    store.put([user("m3")], START),
                )
            ]
            await let_all_ask()
        first, stale, last = await asyncio.gather(*asked, return_exceptions=True)
        assert (first, last) == ([ACCEPTED], [ACCEPTED])
        assert isinstance(stale, StaleClaim)
        assert store.transactions - before == 2
        await store.commit(claim, after(claim))
        assert names(await store.read_inbox("t")) == ["m2", "m3"]

    play(tmp_path, scenario)


def test_a_piece_that_fails_after_it_wrote_is_undone_and_the_others_are_not(tmp_path: Path) -> None:
    def half(tx: Transaction) -> None:
        tx.run("add_blob", (b"half", b"half"))
        tx.hints.append(("t", 0))
        raise ZeroDivisionError

    async def scenario(store: SqliteStore) -> None:
        await a_thread(store)
        hints: list[tuple[str, int]] = []
        end = store.on_change(lambda *hint: hints.append(hint))
        with standing_still(store):
            first = asyncio.ensure_future(store.put([user("m1")], START))
            await let_all_ask()
            broken = store._writer.submit(half)
            last = asyncio.ensure_future(store.put([user("m2")], START))
            await let_all_ask()
        assert (await first, await last) == ([ACCEPTED], [ACCEPTED])
        with pytest.raises(ZeroDivisionError):
            await broken
        assert await store.read_blob(b"half") is None
        assert names(await store.read_inbox("t")) == ["m1", "m2"]
        assert hints == [("t", 0)] * 2
        end()

    play(tmp_path, scenario)


def test_what_many_put_at_once_has_an_outcome_each(tmp_path: Path) -> None:
    async def scenario(store: SqliteStore) -> None:
        for name in ("t", "u"):
            await a_thread(store, thread_id=name)
        puts = [[user("m1")], [user("m1")], [], [user("m2", "u"), user("m3")], [user("m4", "nobody")]]
        before = store.transactions
        with standing_still(store):
            asked = [asyncio.ensure_future(store.put(some, START)) for some in puts]
            asked.append(asyncio.ensure_future(store.put([user("m5", "u")], START, tenant="another")))
            asked.append(asyncio.ensure_future(store.put([user("m6", "u")], START)))
            await let_all_ask()
        assert await asyncio.gather(*asked) == [
            [ACCEPTED],
            [Outcome.DUPLICATE],
            [],
            [ACCEPTED, ACCEPTED],
            [Outcome.UNKNOWN],
            [Outcome.UNKNOWN],
            [ACCEPTED],
        ]
        assert store.transactions - before == 2, "they are written together"
        assert names(await store.read_inbox("t")) == ["m1", "m3"]
        assert names(await store.read_inbox("u")) == ["m2", "m6"]

    play(tmp_path, scenario)


def test_of_what_many_put_at_once_only_what_fails_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put_all = deliveries.put_all

    def fail_late(tx: Transaction, puts: Sequence[deliveries.Put]) -> list[list[Outcome]]:
        outcomes = put_all(tx, puts)
        if any(letter.message_id == "m2" for put in puts for letter in put.letters):
            raise ZeroDivisionError
        return outcomes

    monkeypatch.setattr(deliveries, "put_all", fail_late)

    async def scenario(store: SqliteStore) -> None:
        await a_thread(store)
        with standing_still(store):
            asked = [asyncio.ensure_future(store.put([user(f"m{number}")], START)) for number in range(4)]
            await let_all_ask()
        ends = await asyncio.gather(*asked, return_exceptions=True)
        assert [end if isinstance(end, list) else type(end) for end in ends] == [
            [ACCEPTED],
            [ACCEPTED],
            ZeroDivisionError,
            [ACCEPTED],
        ]
        assert names(await store.read_inbox("t")) == ["m0", "m1", "m3"]

    play(tmp_path, scenario)


def test_a_failure_of_the_writer_itself_is_told_and_it_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario(store: SqliteStore) -> None:
        await a_thread(store)

        def fail(_: object) -> list[Any]:
            raise ZeroDivisionError

        with monkeypatch.context() as patch:
            patch.setattr(store._writer, "_perform", fail)
            with pytest.raises(ZeroDivisionError):
                await store.put([user("m1")], START)
        assert await store.put([user("m1")], START) == [ACCEPTED]

    play(tmp_path, scenario)
    assert "failed, and goes on" in caplog.text


# Hints


def test_a_hint_comes_on_the_event_loop_and_only_when_its_cause_is_durable(tmp_path: Path) -> None:
    async def scenario(store: SqliteStore) -> None:
        await a_thread(store)
        other = raw(store)
        seen = []

        def look(thread_id: str, level: int) -> None:
            count = other.execute("SELECT count(*) FROM inbox").fetchall()[0][0]
            seen.append((thread_id, level, count, threading.current_thread() is threading.main_thread()))

        end = store.on_change(look)
        await store.put([user("m1"), user("m2")], START)
        assert seen == [("t", 0, 2, True)] * 2
        claim = await claim_one(store)
        await store.put([event("m3")], START)
        assert seen[2:] == [("t", 2, 3, True)]
        await store.commit(claim, after(claim, outgoing=sent_to(timer("m4"))))
        assert seen[3:] == [("t", 2, 2, True), ("t", 3, 2, True)]
        end()
        await store.put([user("m5")], START)
        assert len(seen) == 5
        other.close()

    play(tmp_path, scenario)


def test_no_hint_is_given_of_what_was_rolled_back(tmp_path: Path) -> None:
    async def scenario(store: SqliteStore) -> None:
        await a_thread(store)
        hints: list[object] = []
        store.on_change(lambda *hint: hints.append(hint))
        await limit_pages(store, 0)
        with pytest.raises(StoreFull):
            await store.put([InputMessage("m1", "t", UserText(BIG))], START)
        assert hints == []

    play(tmp_path, scenario)


# No room


async def limit_pages(store: SqliteStore, more: int) -> None:
    """Let the file have only so many pages more than it has."""
    connection = store._writer._connection
    await store._writer.submit(lambda _: connection.pragma("max_page_count", connection.pragma("page_count") + more))


def test_c64_without_room_a_write_is_refused_whole_and_works_again_when_there_is_room(tmp_path: Path) -> None:
    async def scenario(store: SqliteStore) -> None:
        await a_thread(store, user("m1"))
        await a_thread(store, thread_id="u")
        before = await everything(store)
        blob = Blob(sha256(BIG.encode()), BIG.encode())
        claim = await claim_one(store)
        claimed = await everything(store)
        assert before == claimed
        await limit_pages(store, 20)
        for attempt in (
            lambda: store.put([user("m2"), InputMessage("m3", "t", UserText(BIG))], START),
            lambda: store.put([user("m2")], START, blobs=[blob]),
            lambda: store.create(
                [new_thread("new")], [user("m2", "new"), InputMessage("m3", "u", UserText(BIG))], START
            ),
            lambda: store.commit(claim, after(claim, page=BIG.encode(), outgoing=sent_to(user("m4", "u")))),
            lambda: store.commit(claim, after(claim, outgoing=sent_to(InputMessage("m4", "u", UserText(BIG))))),
        ):
            with pytest.raises(StoreFull, match=r"there is no room to write .*agents\.db"):
                await attempt()
            assert await everything(store) == before
        assert await store.put([user("small")], START) == [ACCEPTED]
        await limit_pages(store, 100_000)
        await store.commit(claim, after(claim, page=BIG.encode(), outgoing=sent_to(user("m4", "u"))))
        assert await store.put([user("m2")], START, blobs=[blob]) == [ACCEPTED]
        assert names(await store.read_inbox("t")) == ["small", "m2"]
        assert await store.read_blob(blob.digest) == blob.data

    play(tmp_path, scenario)


def test_c64_what_is_too_large_for_the_room_does_not_take_small_writes_beside_it_along(tmp_path: Path) -> None:
    async def scenario(store: SqliteStore) -> None:
        await a_thread(store)
        await limit_pages(store, 20)
        messages = [user("m1"), InputMessage("big", "t", UserText(BIG)), user("m2")]
        with standing_still(store):
            asked = [asyncio.ensure_future(store.put([message], START)) for message in messages]
            await let_all_ask()
        first, big, last = await asyncio.gather(*asked, return_exceptions=True)
        assert (first, last) == ([ACCEPTED], [ACCEPTED])
        assert isinstance(big, StoreFull)
        assert names(await store.read_inbox("t")) == ["m1", "m2"]

    play(tmp_path, scenario)


# Ends


def test_what_is_asked_before_the_store_is_closed_is_done(tmp_path: Path) -> None:
    async def scenario(store: SqliteStore) -> None:
        await a_thread(store)
        with standing_still(store):
            puts = [asyncio.ensure_future(store.put([user(f"m{number}")], START)) for number in range(20)]
            await let_all_ask()
            closes = [asyncio.ensure_future(store.close()) for _ in range(2)]
            await let_all_ask()
        assert await asyncio.gather(*puts) == [[ACCEPTED]] * 20
        await asyncio.gather(*closes)
        await store.close()
        for work in (
            store.put([user("late")], START),
            store.read_head("t"),
            store.secret(),
            store.claim(ANNA, START, 1),
        ):
            with pytest.raises(StoreError, match=r"agents\.db is closed"):
                await work
        assert not [thread.name for thread in threading.enumerate() if store.path in thread.name]

    play(tmp_path, scenario)
    assert [path.name for path in tmp_path.iterdir()] == ["agents.db"]


def test_a_task_that_is_cancelled_while_it_waits_harms_nobody(tmp_path: Path) -> None:
    async def scenario(store: SqliteStore) -> None:
        await a_thread(store)
        with standing_still(store):
            puts = [asyncio.ensure_future(store.put([user(f"m{number}")], START)) for number in range(9)]
            reads = [asyncio.ensure_future(store.read_head("t")) for _ in range(3)]
            await let_all_ask()
            for task in (*puts[::2], reads[1]):
                task.cancel()
        outcomes = await asyncio.gather(*puts, return_exceptions=True)
        assert [type(outcome) for outcome in outcomes[::2]] == [asyncio.CancelledError] * 5
        assert outcomes[1::2] == [[ACCEPTED]] * 4
        assert len(await store.read_inbox("t")) == 9, "what was asked may be done all the same"

    play(tmp_path, scenario)


def test_claims_that_nobody_waits_for_are_given_back(tmp_path: Path) -> None:
    async def scenario(store: SqliteStore) -> None:
        await a_thread(store, user("m1"))
        with standing_still(store):
            claim = asyncio.ensure_future(store.claim(ANNA, START, 1))
            await let_all_ask()
            claim.cancel()
        with pytest.raises(asyncio.CancelledError):
            await claim
        hinted = asyncio.Event()
        store.on_change(lambda *_: hinted.set())
        await hinted.wait()
        assert (await claim_one(store, owner=BERT)).tries == 2

    play(tmp_path, scenario)


def test_a_file_can_be_used_on_one_event_loop_after_another(tmp_path: Path) -> None:
    for number in range(3):

        async def scenario(store: SqliteStore) -> None:
            await store.create([new_thread()], [user(f"m{number}")], START)  # noqa: B023 - it runs in this very round
            assert len(await store.read_inbox("t")) == number + 1  # noqa: B023

        play(tmp_path, scenario)


def test_a_store_whose_loop_ended_without_closing_it_ends_quietly(tmp_path: Path) -> None:
    async def forget() -> SqliteStore:
        store = await SqliteStore.open(tmp_path / "agents.db")
        await a_thread(store, user("m1"))
        store._writer.submit(lambda _: None).cancel()
        return store

    store = asyncio.run(forget())
    store._writer._queue.put(None)
    store._reader._queue.put(None)
    store._writer._thread.join(30)
    store._reader._thread.join(30)
    assert not store._writer._thread.is_alive()

    async def scenario(store: SqliteStore) -> None:
        assert names(await store.read_inbox("t")) == ["m1"]

    play(tmp_path, scenario)
