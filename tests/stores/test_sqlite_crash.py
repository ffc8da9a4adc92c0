"""The embedded store among processes that are killed, that compete for the file, or that have no room."""

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from random import Random
from typing import IO

import apsw
import pytest

from hibernaut.stores.migrations import migrations
from hibernaut.stores.protocol import Owner
from hibernaut.stores.sqlite import SqliteStore, opening
from hibernaut.stores.sqlite.store import BUSY_TIMEOUT
from tests.store_conformance.scenario import START, names, new_thread
from tests.stores import sqlite_programs as programs

PROGRAM = [sys.executable, programs.__file__]


@contextmanager
def running(*words: object) -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen(
        [*PROGRAM, *map(str, words)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, encoding="utf-8"
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def pipes(process: subprocess.Popen[str]) -> tuple[IO[str], IO[str]]:
    assert process.stdin is not None
    assert process.stdout is not None
    return process.stdin, process.stdout


class Acknowledged:
    """What programs said was stored."""

    def __init__(self) -> None:
        self.messages: defaultdict[str, list[str]] = defaultdict(list)
        self.versions: defaultdict[str, int] = defaultdict(int)

    def note(self, line: str) -> None:
        kind, thread, what = line.split()
        if kind == "put":
            self.messages[thread].append(what)
        else:
            assert kind == "commit"
            self.versions[thread] = int(what)


async def check_whole(store: SqliteStore, acknowledged: Acknowledged) -> None:
    """Check that all that was acknowledged is there, and that every commit is whole, acknowledged or not."""
    effects, shelf = await store.read_effects(), names(await store.read_inbox("shelf"))
    assert len(set(shelf)) == len(shelf)
    rows = [row for row in await store.list_threads(limit=1_000_000) if row.thread_id != "shelf"]
    assert set(acknowledged.messages) <= {row.thread_id for row in rows}
    for row in rows:
        name = row.thread_id
        log = await store.read_log(name)
        versions = list(range(1, len(log) + 1))
        assert [entry.version for entry in log] == versions
        assert len(log) >= acknowledged.versions[name]
        assert row.head == b"head %d" % len(log)
        assert all(entry.page.startswith(b"page %d pp" % entry.version) for entry in log)
        assert [entry.receipt for entry in log] == [b"receipt %d" % version for version in versions]
        owed = [effect.effect.request_id for effect in effects if effect.thread_id == name]
        assert owed == [f"{name}.effect.{version}" for version in versions]
        assert [one for one in shelf if one.startswith(f"{name}.sent.")] == [f"{name}.sent.{one}" for one in versions]
        waiting = names(await store.read_inbox(name))
        consumed = acknowledged.messages[name][: len(log)]
        assert set(waiting).isdisjoint(consumed)
        assert set(acknowledged.messages[name]) <= {*waiting, *consumed}


# Killed


def kill_again_and_again(path: Path, times: int, seed: int) -> None:
    """Let writers be killed after a random number of acknowledgements; look at the file after each."""
    chance, acknowledged = Random(seed), Acknowledged()

    async def begin() -> None:
        store = await SqliteStore.open(path)
        await store.create([programs.new_thread("shelf")], [], programs.START)
        await store.close()

    async def look(dead: str) -> None:
        store = await SqliteStore.open(path)
        await check_whole(store, acknowledged)
        survivor = Owner(f"survivor_of_{dead}")
        claims = await store.claim(survivor, programs.now(), 100)
        assert {claim.thread_id for claim in claims} >= {
            name for name, messages in acknowledged.messages.items() if len(messages) > acknowledged.versions[name] + 1
        }
        for claim in claims:
            if claim.thread_id.startswith(f"{dead}."):
                await store.commit(claim, programs.round_of(claim))
                acknowledged.versions[claim.thread_id] = claim.version + 1
        await store.leave(survivor)
        await check_whole(store, acknowledged)
        await store.close()

    asyncio.run(begin())
    with running("serve") as server:
        orders, answers = pipes(server)
        for number in range(times):
            orders.write(f"{path} w{number}\n")
            orders.flush()
            pid = int(answers.readline().split()[1])
            for _ in range(chance.randrange(1, 120)):
                acknowledged.note(answers.readline())
            os.kill(pid, signal.SIGKILL)
            while (line := answers.readline()) != "ended\n":
                acknowledged.note(line)
            asyncio.run(look(f"w{number}"))
    assert sum(acknowledged.versions.values()) > times


def test_a33_c67_whatever_was_acknowledged_is_there_after_a_kill_and_every_commit_is_whole(tmp_path: Path) -> None:
    kill_again_and_again(tmp_path / "agents.db", times=20, seed=33)


@pytest.mark.long
@pytest.mark.timeout(3_600)
@pytest.mark.parametrize("seed", range(10))
def test_a33_c67_whatever_was_acknowledged_is_there_after_very_many_kills(tmp_path: Path, seed: int) -> None:
    kill_again_and_again(tmp_path / "agents.db", times=100, seed=seed)


# Competing


PROCESSES, WRITERS, PAGES = 4, 4, 100
"""`PAGES`: those from which on the programs bring in the log."""


def compete(path: Path, rounds: int, *, held: bool) -> tuple[float, int]:
    """Let processes write at the same time, beside a reader that holds the log if told so; return how long the slowest
    round took and how large the log was at most."""

    async def begin() -> None:
        store = await SqliteStore.open(path)
        await store.create([programs.new_thread("shelf")], [], programs.START)
        await store.close()

    asyncio.run(begin())
    with ExitStack() as stack:
        processes = [
            pipes(stack.enter_context(running("compete", path, f"p{number}", WRITERS, rounds, PAGES)))
            for number in range(PROCESSES)
        ]
        for _, answers in processes:
            assert answers.readline() == "ready\n"
        reader = apsw.Connection(str(path))
        if held:
            reader.execute("BEGIN; SELECT count(*) FROM log").fetchall()
        for orders, _ in processes:
            orders.write("go\n")
            orders.flush()
        results = [json.loads(answers.readline()) for _, answers in processes]
        if held:
            assert reader.execute("SELECT count(*) FROM log").fetchall() == [(0,)]
            reader.execute("COMMIT")
        reader.close()
    return max(slowest for slowest, _ in results), max(largest for _, largest in results)


async def check_all_written(path: Path, rounds: int) -> None:
    store = await SqliteStore.open(path)
    acknowledged = Acknowledged()
    for thread in (f"p{process}.{task}" for process in range(PROCESSES) for task in range(WRITERS)):
        acknowledged.versions[thread] = rounds
        acknowledged.messages[thread] = [f"{thread}.{turn}" for turn in range(rounds)]
    await check_whole(store, acknowledged)
    assert {len(await store.read_log(thread)) for thread in acknowledged.versions} == {rounds}
    await store.close()


def test_c65_sixteen_writers_in_four_processes_lose_nothing_and_keep_the_log_short(tmp_path: Path) -> None:
    """Nobody waits for as long as `BUSY_TIMEOUT`."""
    path = tmp_path / "agents.db"
    slowest, largest = compete(path, 50, held=False)
    assert slowest * 1_000 < BUSY_TIMEOUT
    assert largest < 12 * PAGES * 4_120
    asyncio.run(check_all_written(path, 50))


def test_c65_the_same_beside_a_reader_that_holds_the_log_which_is_short_again_afterwards(tmp_path: Path) -> None:
    path = tmp_path / "agents.db"
    slowest, largest = compete(path, 25, held=True)
    assert slowest * 1_000 < BUSY_TIMEOUT
    assert largest > 12 * PAGES * 4_120, "the reader has really held it"
    asyncio.run(check_all_written(path, 25))
    assert not Path(f"{path}-wal").exists()


# No room


def test_c64_when_the_system_refuses_to_let_the_file_grow_nothing_is_half_written(tmp_path: Path) -> None:
    path, acknowledged = tmp_path / "agents.db", Acknowledged()
    with running("limited", path, 1_500_000) as process:
        lines = pipes(process)[1].read().splitlines()
    refusals = [line for line in lines if line.startswith("full ")]
    assert len(refusals) == 1
    assert "there is no room to write" in refusals[0]
    refused = lines.index(refusals[0])
    assert refused > 10
    assert lines[-1].startswith("commit t "), "it works again once there is room"
    for line in lines[:refused] + lines[refused + 1 :]:
        acknowledged.note(line)

    async def look() -> None:
        store = await SqliteStore.open(path)
        await check_whole(store, acknowledged)
        await store.close()

    asyncio.run(look())


def test_c64_without_room_a_file_stays_in_its_older_format_and_is_brought_up_when_there_is_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, older = tmp_path / "agents.db", migrations()[:6]
    monkeypatch.setattr(opening, "migrations", lambda: older)

    async def make() -> None:
        store = await SqliteStore.open(path)
        await store.create([new_thread("t")], [], START)
        await store.close()

    asyncio.run(make())
    raw = apsw.Connection(str(path))
    with raw:
        raw.executemany(
            "INSERT INTO log (place, page, receipt) SELECT (id << 32) + ?, zeroblob(3000), x'' FROM thread",
            [(version,) for version in range(1, 301)],
        )
    raw.close()
    with running("upgrade", path, path.stat().st_size // 2) as process:
        lines = pipes(process)[1].read().splitlines()
    assert lines[0].startswith("full there is no room to write")
    assert lines[1:] == ["whole 300"]
