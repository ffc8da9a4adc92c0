"""The embedded store's file: made whole, recognised, refused when it is not ours or not whole, and read for ever."""

import asyncio
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import apsw
import pytest

from hibernaut.codec import pack, sha256
from hibernaut.errors import StoreCorrupt, StoreError, StoreFormatTooNew
from hibernaut.kernel.commit import Effect
from hibernaut.messages.inputs import UserText
from hibernaut.messages.items import UserItem, encode_page
from hibernaut.stores.migrations import Migration, migrations
from hibernaut.stores.protocol import Outcome, Owner
from hibernaut.stores.sqlite import SqliteStore, opening
from tests.store_conformance.scenario import ANNA, START, after, everything, names, new_thread, user

FIXTURES = Path(__file__).parent / "fixtures"
NEXT = Migration(
    len(migrations()) + 1, "next", "CREATE TABLE extra (value TEXT) STRICT; INSERT INTO extra VALUES ('x');", b"2" * 32
)


async def opened_and_closed(path: Path) -> None:
    store = await SqliteStore.open(path)
    await store.close()


async def make(path: Path, commits: int = 3) -> None:
    """Make a store with one thread that has some commits."""
    store = await SqliteStore.open(path)
    await store.create([new_thread()], [], START)
    for version in range(1, commits + 1):
        await commit(store, version)
    await store.close()


async def commit(store: SqliteStore, version: int) -> None:
    await store.put([user(f"m{version}")], START)
    (claim,) = await store.claim(ANNA, START, 1)
    await store.commit(claim, after(claim, page=b"page %d " % version + b"p" * 3_000))


def files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def refused(path: Path, kind: type[StoreError], match: str) -> None:
    """Check that a file is refused by name and that nothing beside or in it changes."""
    before = files(path.parent)
    with pytest.raises(kind, match=match) as caught:
        asyncio.run(opened_and_closed(path))
    assert type(caught.value) is kind
    assert path.name in str(caught.value)
    assert files(path.parent) == before


# Making


def test_a_missing_file_is_made_and_says_what_it_is(tmp_path: Path) -> None:
    path = tmp_path / "new.db"
    asyncio.run(opened_and_closed(path))
    assert [file.name for file in tmp_path.iterdir()] == ["new.db"]
    raw = apsw.Connection(str(path))
    assert raw.pragma("application_id") == opening.APPLICATION_ID == int.from_bytes(b"HBNT", "big")
    assert raw.pragma("user_version") == len(migrations())
    assert raw.pragma("journal_mode") == "wal"
    raw.close()


def test_a_missing_directory_is_not_made(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=r"no directory .*nowhere; make it first"):
        asyncio.run(opened_and_closed(tmp_path / "nowhere" / "agents.db"))
    assert list(tmp_path.iterdir()) == []


def test_many_who_open_a_missing_file_at_once_get_the_same_store(tmp_path: Path) -> None:
    async def main() -> set[bytes]:
        stores = await asyncio.gather(*[SqliteStore.open(tmp_path / "new.db") for _ in range(6)])
        secrets = {await store.secret() for store in stores}
        await asyncio.gather(*[store.close() for store in stores])
        return secrets

    (secret,) = asyncio.run(main())
    assert len(secret) == 32
    assert [file.name for file in tmp_path.iterdir()] == ["new.db"]


def test_a_file_can_be_made_where_there_are_no_links(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def link(*_: object) -> None:
        raise PermissionError

    monkeypatch.setattr(os, "link", link)
    asyncio.run(make(tmp_path / "new.db"))
    assert [file.name for file in tmp_path.iterdir()] == ["new.db"]


def test_a_file_that_cannot_be_made_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = Migration(1, "broken", "CREATE TABLE half (x); CREATE TABLE half (x);", b"")
    monkeypatch.setattr(opening, "migrations", lambda: (broken,))
    with pytest.raises(StoreError):
        asyncio.run(opened_and_closed(tmp_path / "new.db"))
    assert list(tmp_path.iterdir()) == []


# Refusing


@pytest.mark.parametrize(
    "content,match",
    [
        (b"", "is empty"),
        (b"S", "has only 1 bytes"),
        (b"SQLite format 3\0" + b"\0" * 84, "has only 100 bytes"),
        (b"just some text\n" * 500, "not an SQLite file"),
        (Random(1).randbytes(8_192), "not an SQLite file"),
        (b"\0" * 8_192, "not an SQLite file"),
        (b"SQLite format 3\0" + b"\0" * 8_192, "not an SQLite file"),
    ],
)
def test_c64_what_is_no_store_is_refused_and_left_as_it_was(tmp_path: Path, content: bytes, match: str) -> None:
    path = tmp_path / "agents.db"
    path.write_bytes(content)
    refused(path, StoreCorrupt, match)


@pytest.mark.parametrize("mode", ["wal", "delete"])
def test_another_programs_database_is_refused_and_left_as_it_was(tmp_path: Path, mode: str) -> None:
    path = tmp_path / "agents.db"
    foreign = apsw.Connection(str(path))
    foreign.pragma("journal_mode", mode)
    foreign.execute("CREATE TABLE thread (id INTEGER PRIMARY KEY); INSERT INTO thread VALUES (1)")
    foreign.close()
    refused(path, StoreError, "of another program")


def test_a_directory_is_refused(tmp_path: Path) -> None:
    (tmp_path / "agents.db").mkdir()
    with pytest.raises(StoreError, match="is not a file"):
        asyncio.run(opened_and_closed(tmp_path / "agents.db"))


def test_a_file_that_may_not_be_read_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def connect(*_: object, **__: object) -> None:
        raise apsw.CantOpenError("unable to open database file")

    asyncio.run(make(tmp_path / "agents.db"))
    monkeypatch.setattr(apsw, "Connection", connect)
    refused(tmp_path / "agents.db", StoreError, "check the rights")


def test_a_log_without_its_file_is_not_taken_for_a_new_stores(tmp_path: Path) -> None:
    path = tmp_path / "agents.db"
    (tmp_path / "agents.db-wal").write_bytes(b"the newest part of what was moved away")
    refused(path, StoreCorrupt, "agents.db-wal, is there")


def test_an_older_sqlite_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(apsw, "sqlite_lib_version", lambda: "3.51.2")
    with pytest.raises(StoreError, match=r"3\.51\.2 can corrupt"):
        asyncio.run(opened_and_closed(tmp_path / "agents.db"))
    monkeypatch.setattr(apsw, "sqlite_lib_version", lambda: "3.51.3")
    asyncio.run(opened_and_closed(tmp_path / "agents.db"))


def damage(path: Path, statement: str) -> None:
    raw = apsw.Connection(str(path))
    raw.execute(statement).fetchall()
    raw.close()


@pytest.mark.parametrize(
    "statement,kind,match",
    [
        ("PRAGMA user_version = 999", StoreFormatTooNew, "has format 999, this version of Hibernaut knows up to"),
        ("UPDATE migration SET checksum = x'00' WHERE number = 1", StoreCorrupt, r"migration 1 \(first\) differs"),
        ("UPDATE migration SET name = 'other'", StoreCorrupt, "differs"),
        ("DELETE FROM migration", StoreCorrupt, r"migration 1 \(first\) differs"),
        ("INSERT INTO migration VALUES (99, 'future', x'00')", StoreCorrupt, r"migration 99 \(future\) differs"),
        ("DROP TABLE migration", StoreCorrupt, "no such table"),
    ],
)
def test_a_file_that_was_made_by_other_steps_is_refused_and_left_as_it_was(
    tmp_path: Path, statement: str, kind: type[StoreError], match: str
) -> None:
    path = tmp_path / "agents.db"
    asyncio.run(make(path))
    damage(path, statement)
    refused(path, kind, match)


@pytest.mark.parametrize("cut", [1, 4_096, 5_000, 20_000])
def test_c64_a_file_that_was_cut_off_is_refused(tmp_path: Path, cut: int) -> None:
    path = tmp_path / "agents.db"
    asyncio.run(make(path, 6))
    path.write_bytes(path.read_bytes()[:-cut])
    refused(path, StoreCorrupt, "is cut off|is damaged")


def test_c64_a_file_that_was_cut_off_is_refused_even_if_its_log_is_not_empty(tmp_path: Path) -> None:
    async def main() -> None:
        store = await SqliteStore.open(tmp_path / "agents.db", compress=False)
        await store.create([new_thread()], [], START)
        for version in range(1, 30):
            await commit(store, version)
        await store.close()
        store = await SqliteStore.open(tmp_path / "agents.db", compress=False)
        await store.put([user("last")], START)
        copy = tmp_path / "copy"
        copy.mkdir()
        (copy / "agents.db").write_bytes((tmp_path / "agents.db").read_bytes()[: -8 * 4_096])
        shutil.copy(tmp_path / "agents.db-wal", copy)
        await store.close()

    asyncio.run(main())
    with pytest.raises(StoreCorrupt, match=r"is cut off: .* bytes are missing at its end"):
        asyncio.run(opened_and_closed(tmp_path / "copy" / "agents.db"))


def test_c64_a_file_whose_end_is_still_in_its_log_is_whole(tmp_path: Path) -> None:
    """That is how a crash leaves it while the log is being brought in."""

    async def main() -> None:
        store = await SqliteStore.open(tmp_path / "live.db", compress=False)
        size = (tmp_path / "live.db").stat().st_size
        await store.create([new_thread()], [], START)
        for version in range(1, 9):
            await commit(store, version)
        raw = apsw.Connection(str(tmp_path / "live.db"))
        raw.pragma("user_version")
        pages, done = raw.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)
        assert pages == done > 0
        raw.close()
        whole = (tmp_path / "live.db").read_bytes()
        assert len(whole) > size
        (tmp_path / "copy.db").write_bytes(whole[:size])
        shutil.copy(tmp_path / "live.db-wal", tmp_path / "copy.db-wal")
        copy = await SqliteStore.open(tmp_path / "copy.db")
        assert await everything(copy) == await everything(store)
        await copy.close()
        await store.close()

    asyncio.run(main())


def test_c64_damage_inside_the_file_is_loud(tmp_path: Path) -> None:
    path = tmp_path / "agents.db"
    asyncio.run(make(path, 12))
    whole = path.read_bytes()
    outcomes = set()

    async def read_all() -> dict[str, object]:
        store = await SqliteStore.open(path)
        try:
            return await everything(store)
        finally:
            await store.close()

    expected = asyncio.run(read_all())
    for page in range(1, len(whole) // 4_096):
        path.write_bytes(whole[: page * 4_096] + Random(page).randbytes(4_096) + whole[(page + 1) * 4_096 :])
        try:
            found = asyncio.run(read_all())
        except StoreCorrupt:
            outcomes.add("loud")
        else:
            assert found == expected
            outcomes.add("not read")
    assert outcomes == {"loud", "not read"}


# Torn logs


async def with_log(folder: Path, commits: int) -> list[int]:
    """Make a store whose commits are all still in its log; return the size of the log after each of them."""
    store = await SqliteStore.open(folder / "live.db")
    await store.create([new_thread()], [], START)
    sizes = []
    for version in range(1, commits + 1):
        await commit(store, version)
        sizes.append((folder / "live.db-wal").stat().st_size)
    for name in ("db", "db-wal"):
        shutil.copy(folder / f"live.{name}", folder / f"copy.{name}")
    await store.close()
    return sizes


async def check_torn(path: Path, at_least: int) -> int:
    """Open what is left, check that it is whole, that it can be written, and that what is written then stays."""
    store = await SqliteStore.open(path)
    log = await store.read_log("t")
    assert [row.version for row in log] == list(range(1, len(log) + 1))
    assert [row.page for row in log] == [b"page %d " % row.version + b"p" * 3_000 for row in log]
    assert len(log) >= at_least
    row = await store.read_head("t")
    assert row is None or row.head == (b"head %d" % len(log) if log else b"head 0 of t")
    await store.create([new_thread()], [user("later")], START)
    claims = await store.claim(Owner("engine_later"), START + 60_000, 1)
    await store.commit(claims[0], after(claims[0]))
    await store.close()
    again = await SqliteStore.open(path)
    assert len(await again.read_log("t")) == len(log) + 1
    assert await again.read_inbox("t") == ()
    await again.close()
    return len(log)


def torn_at(tmp_path: Path, cuts: Callable[[int, int], list[int]]) -> None:
    sizes = asyncio.run(with_log(tmp_path, 3))
    log, main = (tmp_path / "copy.db-wal").read_bytes(), (tmp_path / "copy.db").read_bytes()
    seen = set()
    for number, cut in enumerate(cuts(sizes[1], sizes[2])):
        path = tmp_path / f"{number}.db"
        path.write_bytes(main)
        (tmp_path / f"{number}.db-wal").write_bytes(log[:cut])
        seen.add(asyncio.run(check_torn(path, at_least=2)))
        path.unlink()
    assert seen == {2, 3}


def test_c64_a_log_that_is_torn_in_its_last_record_gives_all_before_it(tmp_path: Path) -> None:
    def cuts(start: int, end: int) -> list[int]:
        frames = list(range(start, end + 1, 4_096 + 24))
        beside = [frame + step for frame in frames for step in (-1, 0, 1, 24) if start <= frame + step <= end]
        return sorted({*beside, *Random(64).sample(range(start, end), 20)})

    torn_at(tmp_path, cuts)


@pytest.mark.long
@pytest.mark.timeout(3_600)
def test_c64_a_log_that_is_torn_anywhere_in_its_last_record_gives_all_before_it(tmp_path: Path) -> None:
    """At every byte of its last page, and at every 13th of those before."""
    torn_at(tmp_path, lambda start, end: [*range(start, end - 4_120, 13), *range(end - 4_120, end + 1)])


@pytest.mark.parametrize("filling", [b"\0" * 10_000, Random(3).randbytes(10_000), b"half a line of something"])
def test_c64_a_log_that_ends_in_something_else_gives_all_before_it(tmp_path: Path, filling: bytes) -> None:
    asyncio.run(with_log(tmp_path, 3))
    with (tmp_path / "copy.db-wal").open("ab") as log:
        log.write(filling)
    assert asyncio.run(check_torn(tmp_path / "copy.db", at_least=3)) == 3


# Formats


def test_a_file_of_format_1_opens_for_ever(tmp_path: Path) -> None:
    path = tmp_path / "agents.db"
    shutil.copy(FIXTURES / "format-1.db", path)

    async def main() -> None:
        store = await SqliteStore.open(path)
        busy, sleeping, stopped = [await store.read_head(name) for name in ("busy", "sleeping", "stopped")]
        assert busy is not None
        assert sleeping is not None
        assert stopped is not None
        assert (busy.head, busy.status, busy.created, busy.updated, busy.waiting) == (
            b"head 2",
            "open",
            START,
            START + 2,
            1,
        )
        assert (sleeping.waiting, stopped.status, stopped.waiting) == (1, "stopped", 1)
        assert [row.page[:7] for row in await store.read_log("busy")] == [b"page 1 ", b"page 2 "]
        assert [row.thread_id for row in await store.list_threads("tenant")] == ["other"]
        assert len(await store.list_threads()) == 6
        assert names(await store.read_inbox("shelf")) == ["busy.sent.1", "busy.sent.2"]
        assert [(row.effect.request_id, row.state, row.owner) for row in await store.read_effects()] == [
            ("busy.effect.1", "sent", "engine_anna"),
            ("busy.effect.2", "pending", "engine_anna"),
        ]
        assert await store.read_blob(sha256(b"blob")) == b"blob"
        assert await store.read_config(sha256(b"c")) == b"c"
        assert await store.secret() == (FIXTURES / "format-1.secret").read_bytes()
        assert await store.next_due(START + 10) == START + 50
        assert await store.put([user("busy.1", "busy")], START) == [Outcome.DUPLICATE]
        assert await store.put([user("x", "closed")], START) == [Outcome.CLOSED]
        (claim,) = await store.claim(ANNA, START + 10, 10)
        assert (claim.thread_id, claim.token, claim.version) == ("busy", 3, 2)
        (message,) = claim.messages
        assert message.message is not None
        assert message.message_id == "nul \0 and \\u0000"
        assert message.message.content == UserText("x" * 100)
        await store.commit(claim, after(claim))
        rows = await store.list_threads(roots=True)
        assert {(row.parent, row.root, row.asking) for row in rows} == {("", "", 0)}
        assert len(rows) == 6
        assert await store.delete("busy") == 1
        assert await store.read_effects() == []
        await store.close()

    asyncio.run(main())
    asyncio.run(opened_and_closed(path))


def test_a_cancellation_that_format_1_wrote_is_found(tmp_path: Path) -> None:
    path = tmp_path / "agents.db"
    shutil.copy(FIXTURES / "format-1.db", path)
    cancel, work = (
        Effect("call_1:cancel", "cancel", "call_1", "look_up"),
        Effect("call_1", "invoke", "call_1", "look_up"),
    )
    odd = Effect("odd:cancel", "invoke", "odd:cancel", "look_up")
    older = apsw.Connection(str(path))
    engine, thread = older.execute("SELECT engine, thread FROM outbox LIMIT 1").fetchall()[0]
    for effect in (cancel, work, odd):
        older.execute(
            "INSERT INTO outbox (state, engine, thread, created, request_id, effect) VALUES (1, ?, ?, 0, ?, ?)",
            (engine, thread, effect.request_id, pack(effect)),
        )
    older.close()

    async def main() -> None:
        store = await SqliteStore.open(path)
        assert [row.effect for row in await store.cancellations(ANNA)] == [cancel]
        await store.close()

    asyncio.run(main())


def test_commits_that_format_6_kept_in_order_of_their_threads_stay_as_they_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    path, threads, rounds = tmp_path / "agents.db", ("t", "u", "v"), range(5)
    page = encode_page([UserItem("What the engine waits for is a message, and nothing else. " * 20)])

    async def work() -> None:
        store = await SqliteStore.open(path)
        await store.create([new_thread(name) for name in threads], [], START)
        for number in rounds:
            await store.put([user(f"m{number}", name) for name in threads], START)
            for claim in await store.claim(ANNA, START, len(threads)):
                await store.commit(claim, after(claim, page=page + claim.thread_id.encode() * number))
        await store.close()

    async def read() -> dict[str, list[tuple[int, bytes]]]:
        store = await SqliteStore.open(path)
        logs = {name: [(row.version, row.page) for row in await store.read_log(name)] for name in threads}
        await store.close()
        return logs

    older = migrations()[:6]
    monkeypatch.setattr(opening, "migrations", lambda: older)
    asyncio.run(work())
    monkeypatch.undo()
    monkeypatch.setattr(opening, "LARGE", 1)
    logs = asyncio.run(read())
    assert logs == {name: [(number + 1, page + name.encode() * number) for number in rounds] for name in threads}
    assert "is brought up from format 6 to" in caplog.text
    raw = apsw.Connection(str(path))
    assert raw.execute("SELECT sum(packed), count(*) FROM log").fetchall() == [(15, 15)]
    raw.close()


def test_the_fixture_is_of_format_1() -> None:
    header = (FIXTURES / "format-1.db").read_bytes()[:100]
    assert int.from_bytes(header[60:64], "big") == 1
    assert migrations()[0].number == 1


def test_an_older_format_is_brought_up_to_date_and_the_older_version_then_refuses_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "agents.db"
    asyncio.run(make(path))
    known = migrations()
    monkeypatch.setattr(opening, "migrations", lambda: (*known, NEXT))
    asyncio.run(opened_and_closed(path))
    asyncio.run(opened_and_closed(path))
    raw = apsw.Connection(str(path))
    assert raw.execute("SELECT number, name, checksum FROM migration ORDER BY number").fetchall() == [
        (step.number, step.name, step.checksum) for step in (*known, NEXT)
    ]
    assert raw.execute("SELECT value FROM extra").fetchall() == [("x",)]
    raw.close()
    monkeypatch.undo()
    refused(path, StoreFormatTooNew, f"has format {NEXT.number}")


def test_a_step_that_fails_leaves_the_file_in_the_older_format(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "agents.db"
    asyncio.run(make(path))
    known = migrations()
    failing = Migration(NEXT.number + 1, "third", "CREATE TABLE more (x); INSERT INTO missing VALUES (1);", b"")
    monkeypatch.setattr(opening, "migrations", lambda: (*known, NEXT, failing))
    with pytest.raises(StoreError, match="no such table: missing"):
        asyncio.run(opened_and_closed(path))
    monkeypatch.undo()

    async def main() -> Any:
        store = await SqliteStore.open(path)
        log = await store.read_log("t")
        await store.close()
        return log

    assert len(asyncio.run(main())) == 3
    raw = apsw.Connection(str(path))
    assert not raw.table_exists("main", "extra")
    raw.close()
