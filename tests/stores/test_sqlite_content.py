"""What the embedded store keeps and how it finds it again: odd texts, large values, long inboxes; its queries."""

import asyncio
import re
from pathlib import Path
from random import randbytes

import apsw
import pytest

from hibernaut.codec import sha256
from hibernaut.errors import StoreCorrupt
from hibernaut.kernel.commit import Blob
from hibernaut.messages.inputs import InputMessage, UserText
from hibernaut.messages.items import UserItem, encode_page
from hibernaut.stores.migrations import migrations
from hibernaut.stores.protocol import CLAIM_MESSAGES, Claim, Outcome, Owner, Round
from hibernaut.stores.sqlite import SqliteStore, opening
from hibernaut.stores.sqlite.transaction import SQL
from tests.store_conformance.scenario import (
    ANNA,
    START,
    a_thread,
    after,
    claim_one,
    event,
    names,
    new_thread,
    timer,
    user,
)
from tests.stores.sqlite_scenario import play, raw

ACCEPTED = Outcome.ACCEPTED


# What is kept


ODD = [
    "nul \0 inside",
    "\0",
    "the six characters \\u0000",
    "\u2028 \u0085 \u200b \ufeff \r\n",
    "👩‍👩‍👧‍👦 العربية हिन्दी ẞ",
    "'; DROP TABLE thread; -- %s ?1 :name",
    "\uffff \U0010ffff \x7f \x1b[31m",
]


@pytest.mark.parametrize("text", ODD)
def test_c19_odd_text_survives_wherever_it_stands(tmp_path: Path, text: str) -> None:
    async def scenario(store: SqliteStore) -> None:
        thread_id = f"t {text}"
        short = thread_id.partition("\0")[0]
        await store.create([new_thread(thread_id, tenant=text)], [], START)
        if short != thread_id:
            await store.create([new_thread(short)], [user("for the other", short)], START)
        message = InputMessage(text, thread_id, UserText(text, text), text, text)
        assert await store.put([message, message], START) == [ACCEPTED, Outcome.DUPLICATE]
        (claim,) = await store.claim(Owner(text), START, 1, threads=[thread_id])
        assert (claim.thread_id, claim.messages[0].message_id, claim.messages[0].message) == (thread_id, text, message)
        await store.commit(claim, after(claim))
        (row,) = await store.list_threads(text)
        assert (row.thread_id, row.tenant, row.waiting) == (thread_id, text, 0)
        assert len(await store.read_log(thread_id)) == 1

    play(tmp_path, scenario)


def test_c23_large_values_survive(tmp_path: Path) -> None:
    async def scenario(store: SqliteStore) -> None:
        big = "é" * 5_000_000
        await a_thread(store, InputMessage("m1", "t", UserText(big)))
        large = b"\0\xff" * 10_000_000
        blob = Blob(sha256(large), large)
        await store.put([], START, blobs=[blob])
        claim = await claim_one(store)
        assert claim.messages[0].message is not None
        assert claim.messages[0].message.content == UserText(big)
        await store.commit(claim, after(claim, head=big.encode(), page=big.encode()))
        (row,) = await store.read_log("t")
        assert row.page == big.encode()
        assert await store.read_blob(blob.digest) == blob.data

    play(tmp_path, scenario)


def test_a_message_that_cannot_be_read_is_handed_over_with_the_reason(tmp_path: Path) -> None:
    async def scenario(store: SqliteStore) -> None:
        await a_thread(store, user("m1"), user("m2"), user("m3"))
        other = raw(store)
        other.execute("UPDATE inbox SET body = x'93' WHERE message_id = 'm2'")
        claim = await claim_one(store)
        assert names(claim.messages) == ["m1", "m2", "m3"]
        assert [message.message is None for message in claim.messages] == [False, True, False]
        assert "an input message cannot be read" in claim.messages[1].problem
        await store.commit(claim, after(claim))
        assert await store.read_inbox("t") == ()
        other.close()

    play(tmp_path, scenario)


def test_what_is_kept_by_its_digest_and_was_altered_is_not_returned(tmp_path: Path) -> None:
    async def scenario(store: SqliteStore) -> None:
        digest = sha256(b"whole")
        await store.put([], START, blobs=[Blob(digest, b"whole")])
        other = raw(store)
        other.execute("UPDATE blob SET data = x'00'")
        other.close()
        with pytest.raises(StoreCorrupt, match="was altered"):
            await store.read_blob(digest)

    play(tmp_path, scenario)


def test_packed_pages_and_others_are_read_side_by_side(tmp_path: Path) -> None:
    text = encode_page([UserItem("What the engine waits for is a message, and nothing else. " * 20)])
    short, blob = encode_page([UserItem("Hello")]), b"\xc4\x20" + bytes(32) + text

    async def scenario() -> None:
        for version, compress in enumerate((True, False, True)):
            store = await SqliteStore.open(tmp_path / "agents.db", compress=compress)
            if not version:
                await a_thread(store)
            for number, page in enumerate((text, short, blob, b"")):
                await store.put([user(f"m{version}{number}")], START)
                await store.commit(claim := await claim_one(store), after(claim, page=page))
            pages = [row.page for row in await store.read_log("t")]
            assert pages == [text, short, blob, b""] * (version + 1)
            await store.close()
        connection = apsw.Connection(str(tmp_path / "agents.db"))
        packed = connection.execute("SELECT packed FROM log ORDER BY place").fetchall()
        assert packed == [(1,), (0,), (0,), (0,), *[(0,)] * 4, (1,), (0,), (0,), (0,)]
        connection.close()

    asyncio.run(scenario())


def test_commits_of_many_threads_fill_pages_of_the_file_one_after_the_other(tmp_path: Path) -> None:
    """Each in a place of its own thread would have two to three pages of the file written anew."""
    threads, rounds = [f"t{number}" for number in range(100)], 8

    async def scenario(store: SqliteStore) -> None:
        await store.create([new_thread(name) for name in threads], [], START)
        for number in range(rounds):
            await store.put([user(f"m{number}", name) for name in threads], START)
            claims = await store.claim(ANNA, START, len(threads))
            before = pages()
            await store.commit_all([Round(claim, after(claim, page=randbytes(1_000))) for claim in claims])
            written.append(pages() - before)

    def pages() -> int:
        return (tmp_path / "agents.db-wal").stat().st_size // 4_096

    written: list[int] = []
    play(tmp_path, scenario)
    assert max(written[1:]) < 0.7 * len(threads)


def test_a_thread_without_a_head_is_told_and_does_not_keep_others_from_running(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario(store: SqliteStore) -> None:
        await a_thread(store, user("m1"))
        await store.create([new_thread("u")], [user("m2", "u")], START)
        other = raw(store)
        other.execute("DELETE FROM head WHERE thread = (SELECT id FROM thread WHERE thread_id = 't')")
        other.close()
        claims = await store.claim(Owner("engine"), START, 10)
        assert [claim.thread_id for claim in claims] == ["u"]
        assert await store.claim(Owner("engine"), START, 10) == []
        assert [record.getMessage() for record in caplog.records] == [
            "thread t has lost its head in the store and cannot run; restore it from a backup"
        ]

    play(tmp_path, scenario)


def test_a_store_that_lost_its_secret_says_so(tmp_path: Path) -> None:
    async def scenario(store: SqliteStore) -> None:
        other = raw(store)
        other.execute("DELETE FROM meta")
        other.close()
        with pytest.raises(StoreCorrupt, match="lost its secret"):
            await store.secret()

    play(tmp_path, scenario)


# Long inboxes


def test_a_due_message_behind_very_many_timers_wakes_the_thread(tmp_path: Path) -> None:
    async def scenario(store: SqliteStore) -> None:
        await a_thread(store)
        await store.put([timer(f"timer {number}") for number in range(1_000)], START, due=START + 50_000)
        await store.put([user("first"), user("second")], START)
        claim = await claim_one(store)
        assert names(claim.messages) == ["first", "second"]
        await store.commit(claim, after(claim, consumed=("first",)))
        assert names((await claim_one(store)).messages) == ["second"]

    play(tmp_path, scenario)


@pytest.mark.parametrize("count", [60, 70, CLAIM_MESSAGES - 1, CLAIM_MESSAGES, CLAIM_MESSAGES + 1])
def test_an_inbox_is_handed_over_the_same_whatever_its_length(tmp_path: Path, count: int) -> None:
    async def scenario(store: SqliteStore) -> None:
        expected = [f"m{number}" for number in range(count)]
        await a_thread(store, *[event(name) for name in expected])
        await a_thread(store, event("of another", "u"), thread_id="u")
        claims: dict[str, Claim] = {claim.thread_id: claim for claim in await store.claim(ANNA, START, 9)}
        assert names(claims["t"].messages) == expected[:CLAIM_MESSAGES]
        assert names(claims["u"].messages) == ["of another"]

    play(tmp_path, scenario)


# The queries


def test_c27_no_query_of_the_working_path_looks_at_all_threads() -> None:
    """No query looks at all threads, inboxes or effects, but for `read_effects` and those that count, for people.

    Questions and cancellations are found through indexes that hold nothing else, and one blob is some blob. Whether
    anything still refers to a blob is looked for piece by piece, and only when something may be gone.
    """
    connection = apsw.Connection(":memory:")
    for step in migrations():
        connection.execute(step.script).fetchall()
    connection.execute(SQL["make_migrations"])
    tables = {"thread", "head", "inbox", "known", "log", "outbox", "blob", "config", "view", "note"}
    counting = {"count_statuses": {"thread"}, "count_inbox": {"inbox"}, "count_effects": {"outbox"}}
    scans = {}
    for name, query in SQL.items():
        count = max(map(int, re.findall(r"\?(\d+)", query)), default=0)
        plan = connection.execute(f"EXPLAIN QUERY PLAN {query}", [apsw.carray((b"x",))] * count).fetchall()
        scanned = {table for *_, step in plan for table in re.findall(r"^SCAN (\w+)", str(step))}
        if scanned & tables:
            scans[name] = scanned & tables
    few = {"asking": {"thread"}, "cancellations": {"outbox"}, "has_blobs": {"blob"}}
    assert scans == {"read_effects": {"outbox"}, **few, **counting}
    connection.close()


def test_every_query_is_used_and_every_one_that_is_used_is_there() -> None:
    folder = Path(opening.__file__).parent
    source = "\n".join(path.read_text(encoding="utf-8") for path in folder.glob("*.py"))
    asks = r"\.run|\.rows|\.first|\.many|\.each|SQL\[|read_value\(tx, |find_dead\(tx, |_values\(tx, "
    used = set(re.findall(rf'(?:{asks})\(?\s*"(\w+)"', source))
    assert used == set(SQL)
