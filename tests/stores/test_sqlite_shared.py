"""The embedded store beside others that have its file open: waiting for the lock, the log, and a file that is gone."""

import asyncio
import sys
from pathlib import Path
from typing import Any

import pytest

from hibernaut.errors import StoreBusy, StoreError
from hibernaut.messages.inputs import InputMessage, UserText
from hibernaut.stores.protocol import Outcome, Round, ViewRow
from hibernaut.stores.sqlite import SqliteStore, opening, writer
from tests.store_conformance.scenario import (
    ANNA,
    BERT,
    START,
    a_thread,
    after,
    claim_one,
    everything,
    new_thread,
    user,
)
from tests.stores.sqlite_scenario import BIG, held_lock, log_size, play, raw

ACCEPTED = Outcome.ACCEPTED


def move(here: Path, there: Path) -> None:
    here.rename(there)


def test_c65_a_write_waits_for_another_process(tmp_path: Path) -> None:
    async def scenario(store: SqliteStore) -> None:
        await a_thread(store)
        waiting = asyncio.Event()
        loop = asyncio.get_running_loop()

        def note(tries: int) -> bool:
            loop.call_soon_threadsafe(waiting.set)
            return store._writer._wait_for_lock(tries)

        store._writer._connection.set_busy_handler(note)
        with held_lock(store):
            put = asyncio.ensure_future(store.put([user("m1")], START))
            await waiting.wait()
            assert not put.done()
        assert await put == [ACCEPTED]

    play(tmp_path, scenario)


def test_c65_a_write_that_waits_too_long_is_refused_as_busy_and_nothing_of_it_is_written(tmp_path: Path) -> None:
    async def scenario(store: SqliteStore) -> None:
        await a_thread(store, user("m1"))
        claim = await claim_one(store)
        before = await everything(store)
        with held_lock(store):
            refused = await asyncio.gather(
                store.put([user("m2")], START),
                store.commit(claim, after(claim)),
                store.claim(BERT, START, 1),
                return_exceptions=True,
            )
            assert [type(error) for error in refused] == [StoreBusy] * 3
            assert "agents.db is held by another process" in str(refused[0])
            assert await everything(store) == before, "reading does not wait"
        assert await store.put([user("m2")], START) == [ACCEPTED]
        await store.commit(claim, after(claim))

    play(tmp_path, scenario, busy_timeout=150)


def test_c65_the_log_stays_short_and_is_cut_when_a_reader_lets_go(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer, "CHECKPOINT_PAGES", 50)
    monkeypatch.setattr(writer, "CROWDED_PAGES", 200)
    monkeypatch.setattr(opening, "LOG_KEPT", 100 * 4_096)

    async def fill(store: SqliteStore, start: int) -> None:
        for number in range(start, start + 100):
            await store.put([InputMessage(f"m{number}", "t", UserText("x" * 10_000))], START)

    async def scenario(store: SqliteStore) -> None:
        await a_thread(store)
        await fill(store, 0)
        assert log_size(store) < 150 * 4_096
        reader = raw(store)
        reader.execute("BEGIN")
        held = reader.execute("SELECT count(*) FROM inbox").fetchall()
        await fill(store, 100)
        assert reader.execute("SELECT count(*) FROM inbox").fetchall() == held == [(100,)]
        assert log_size(store) > 300 * 4_096, "the reader's pages must be kept"
        reader.execute("COMMIT")
        await fill(store, 200)
        assert log_size(store) < 150 * 4_096
        assert len(await store.read_inbox("t")) == 300
        reader.close()

    play(tmp_path, scenario)


def test_a_log_that_has_grown_is_brought_in_when_nothing_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer, "RESTING_ROWS", 50)

    async def scenario(store: SqliteStore) -> None:
        await a_thread(store)
        assert not await store.rest()
        assert log_size(store), "a short one may stay"
        for number in range(50):
            await store.put([InputMessage(f"m{number}", "t", UserText("x" * 10_000))], START)
        assert not await store.rest()
        assert not log_size(store)
        assert len(await store.read_inbox("t")) == 50
        transactions, other = store.transactions, await SqliteStore.open(store.path)
        for number in range(50):
            await other.put([user(f"other{number}")], START)
        assert not await store.rest()
        assert store.transactions == transactions
        assert log_size(store), "it is the other one's to bring in"
        await other.close()

    play(tmp_path, scenario)


def test_a_store_that_is_closed_rests(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer, "RESTING_ROWS", 1)

    async def scenario(store: SqliteStore) -> None:
        await a_thread(store, user("m1"))
        async with asyncio.timeout(10):
            resting = asyncio.ensure_future(store.rest())
            await asyncio.gather(store.close(), resting)
            assert not await store.rest()

    play(tmp_path, scenario)


def test_a_log_that_a_reader_kept_is_brought_in_without_another_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer, "CHECKPOINT_PAGES", 5)
    monkeypatch.setattr(writer, "CHECKPOINT_AGAIN", 0.01)

    async def scenario(store: SqliteStore) -> None:
        await a_thread(store)
        reader = raw(store)
        reader.execute("BEGIN; SELECT count(*) FROM inbox").fetchall()
        await store.put([InputMessage("m1", "t", UserText(BIG))], START)
        await store.put([user("m2")], START)  # once it is answered, it was tried to bring in what is before it
        assert log_size(store) > len(BIG)
        cut = asyncio.Event()
        loop = asyncio.get_running_loop()
        checkpoint = store._writer._checkpoint

        def watch(*, thorough: bool) -> None:
            checkpoint(thorough=thorough)
            if not log_size(store):
                loop.call_soon_threadsafe(cut.set)

        monkeypatch.setattr(store._writer, "_checkpoint", watch)
        reader.execute("COMMIT")
        await cut.wait()
        reader.close()

    play(tmp_path, scenario)


def test_a_store_tells_whether_others_wrote_and_does_not_take_itself_for_another(tmp_path: Path) -> None:
    async def scenario(store: SqliteStore) -> None:
        other = await SqliteStore.open(store.path)
        await a_thread(store, user("m1"))
        assert not await store.changed_elsewhere()
        assert await other.changed_elsewhere()
        assert not await other.changed_elsewhere()
        await other.read_head("t")
        (claim,) = await other.claim(ANNA, START, 1)
        assert await store.changed_elsewhere()
        assert not await store.changed_elsewhere()
        await other.commit(claim, after(claim))
        assert await store.changed_elsewhere()
        assert not await other.changed_elsewhere()
        await other.close()

    play(tmp_path, scenario)


def test_a_store_whose_file_was_moved_away_takes_nothing_until_it_is_back(tmp_path: Path) -> None:
    async def scenario(store: SqliteStore) -> None:
        await a_thread(store)
        here, elsewhere = Path(store.path), tmp_path / "moved"
        move(here, elsewhere)
        for _ in range(2):
            with pytest.raises(StoreError, match="was removed or replaced while it was open"):
                await store.put([user("m1")], START)
        move(elsewhere, here)
        assert await store.put([user("m1")], START) == [ACCEPTED]

    play(tmp_path, scenario)


@pytest.mark.skipif(sys.platform != "linux", reason="only there the locks of a process can be seen")
def test_opening_a_file_twice_in_one_process_keeps_its_locks(tmp_path: Path) -> None:
    """A descriptor that is closed takes along all locks of its process on the file; SQLite looks after its own."""

    def locks() -> int:
        inode = (tmp_path / "agents.db").stat().st_ino
        return sum(f":{inode} " in line for line in Path("/proc/locks").read_text(encoding="ascii").splitlines())

    async def scenario(store: SqliteStore) -> None:
        await a_thread(store)
        assert await store.read_head("t") is not None  # whoever writes and whoever reads are at rest again
        held = locks()
        assert held
        other = await SqliteStore.open(store.path)
        assert locks() >= held
        await other.close()
        assert locks() == held

    play(tmp_path, scenario)


def test_a_view_and_a_note_are_seen_by_another_that_has_the_file_open(tmp_path: Path) -> None:
    async def scenario(store: SqliteStore) -> None:
        other = await SqliteStore.open(store.path)
        await store.create([new_thread("t")], [], START)
        assert await other.changed_elsewhere()
        await store.put_view("t", "plan", "1", START)
        assert await other.changed_elsewhere()
        assert await other.read_views("t") == [ViewRow("plan", "1", START)]
        await store.write_note("port", b"1")
        assert await other.changed_elsewhere()
        await store.put_view("t", "plan", "1", START + 1)
        assert not await other.changed_elsewhere()
        await other.close()

    play(tmp_path, scenario)


def test_c65_rounds_that_are_committed_together_wait_for_the_lock_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(store: SqliteStore) -> None:
        for name in ("a", "b", "c"):
            await a_thread(store, user(f"m {name}", name), thread_id=name)
        rounds = [Round(claim, after(claim)) for claim in await store.claim(ANNA, START, 3)]
        waits, submit = [], store._writer.submit

        def noted(*given: Any, **more: Any) -> Any:
            waits.append(1)
            return submit(*given, **more)

        monkeypatch.setattr(store._writer, "submit", noted)
        with held_lock(store):
            refused = await store.commit_all(rounds)
        assert [type(error) for error in refused] == [StoreBusy] * 3
        assert len(waits) == 1, "each by itself they would wait three times as long"
        assert await store.commit_all(rounds) == [None, None, None]

    play(tmp_path, scenario, busy_timeout=150)
