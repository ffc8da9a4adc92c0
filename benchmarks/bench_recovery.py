"""How soon an engine works after a crash: `python benchmarks/bench_recovery.py [THREADS] [--pending N] [--keep PATH]`.

A SQLite file with many threads, each with a history of its own. Most are at rest: half of those idle, half waiting for
the result of a deferred call. Of the others a third has a message in its inbox, a third owes an effect that was not
begun, and a third one that was: the engine that held them is dead. Then a process is started on it, and what is
measured is the time from its start to its first commit, and to the last of what was pending. What SQLite did for that
is counted by statement: times it ran, rows it stepped through without an index, instructions of its machine.

The file's pages are put out of the system's cache first. Histories are copies of each other, so `verify` would object.
"""

import argparse
import asyncio
import json
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import apsw

from hibernaut import AgentSystem, Deferred, ToolContext, tool
from hibernaut.bench.caches import forget
from hibernaut.messages.events import ToolCall
from hibernaut.messages.inputs import InputMessage, UserText, encode_input
from hibernaut.messages.items import ResultItem
from hibernaut.models.protocol import ModelRequest
from hibernaut.models.scripted import ScriptedModel, ScriptedTurn, call, last_user_text, say, turn
from hibernaut.stores.known import digest_of
from hibernaut.stores.protocol import Round
from hibernaut.stores.queries import load_queries
from hibernaut.stores.sqlite import SqliteStore
from hibernaut.tools.tool import Tool

IDLE, WAITING, SENT = (f"agent-{number:07d}" for number in range(3))
"""The threads that all others are copies of; names of the same length can be put in each other's place."""

TALK = "The second assertion compares a stale snapshot with a fresh one; I will run the whole suite again. " * 8

MOST_SHOWN = 12
"""Statements that are shown."""


@tool
async def look_up(name: str) -> str:
    """Look something up."""
    return f"{name}: {TALK}"


@tool
async def ask_elsewhere(name: str, ctx: ToolContext) -> Deferred:
    """Have something found out that takes days."""
    del name
    return ctx.defer()


def worker(ends: bool) -> Tool:  # noqa: FBT001  # there are two kinds of it
    """Return a tool that works for longer than its process lives, or one that is done at once."""

    @tool
    async def work(name: str) -> str:
        """Work."""
        if not ends:
            await asyncio.Event().wait()
        return name

    return work


def model() -> ScriptedModel:
    """Return a model that looks something up, then does what it is told."""

    def react(request: ModelRequest) -> ScriptedTurn:
        if isinstance(request.transcript[-1], ResultItem):
            return say(TALK)
        told = last_user_text(request)
        return turn("As you say.", call(told if told in ("ask_elsewhere", "work") else "look_up", name="it"))

    return ScriptedModel(react)


# Making the file


async def make_templates(path: str, living: str) -> None:
    """Make the three threads, and leave as a process does that is killed."""
    store = await SqliteStore.open(living, compress=False)  # names are replaced in their pages
    async with AgentSystem(model=model(), tools=[look_up, ask_elsewhere, worker(ends=False)], store=store) as system:
        for name, told in ((IDLE, "Go on"), (WAITING, "ask_elsewhere"), (SENT, "work")):
            await system.send(name, "Look into it")
            await system.wait_idle()
            await system.send(name, told)
            if name != SENT:
                await system.wait_idle()
        agent = await system.thread(SENT)
        async for event in agent.events():
            if isinstance(event, ToolCall) and event.tool == "work":
                break
        copy_living(living, path)
    await store.close()


def copy_living(living: str, path: str) -> None:
    """Copy a store that is in use."""
    source, copied = apsw.Connection(living), apsw.Connection(path)
    with copied.backup("main", source, "main") as backup:
        backup.step()
    copied.close()
    source.close()


def multiply(path: str, threads: int, pending: int) -> None:
    """Copy the three threads until there are as many as are wanted."""
    connection = apsw.Connection(path)
    connection.pragma("synchronous", 0)
    number_of = dict(connection.execute("SELECT thread_id, id FROM thread").fetchall())
    (engine,) = connection.execute("SELECT id FROM engine").fetchall()[0]
    kinds = [_Template(connection, name, number_of[name]) for name in (IDLE, WAITING, SENT)]
    now = time.time_ns() // 1_000_000
    first = max(number_of.values()) + 1
    resting = threads - pending - len(kinds)
    with connection:
        connection.execute("UPDATE engine SET beat = 0, gone = 0, process = ''")
        for number in range(first, first + threads - len(kinds)):
            place = number - first
            spot = place - resting
            kind = kinds[place % 2] if spot < 0 else kinds[0] if spot % 3 == 0 else kinds[2]
            state = None if kind is kinds[0] else 2 if kind is kinds[1] else spot % 3 - 1
            kind.copy(number, engine, state, now, waits=spot >= 0 and spot % 3 == 0)
    connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
    connection.close()


class _Template:
    def __init__(self, connection: apsw.Connection, name: str, number: int) -> None:
        self._run = connection.cursor().execute
        self._name = name.encode()
        self._thread = self._run("SELECT * FROM thread WHERE id = ?", (number,)).fetchall()[0]
        self._columns = [row[0] for row in self._run("SELECT name FROM pragma_table_info('thread')")]
        (self._head,) = self._run("SELECT head FROM head WHERE thread = ?", (number,)).fetchall()[0]
        between = (number << 32, (number + 1) << 32)
        log = self._run("SELECT place & 4294967295, page, receipt FROM log WHERE place > ? AND place < ?", between)
        self._log = log.fetchall()
        self._known = self._run("SELECT digest, place FROM known WHERE thread = ?", (number,)).fetchall()
        self._effects = self._run("SELECT request_id, effect FROM outbox WHERE thread = ?", (number,)).fetchall()

    def copy(self, number: int, engine: int, state: int | None, now: int, *, waits: bool) -> None:
        name = f"agent-{number:07d}"
        calls = {request.encode(): f"call_{number:016d}".encode() for request, _ in self._effects}

        def own(data: bytes) -> bytes:
            data = data.replace(self._name, name.encode())
            for old, new in calls.items():
                data = data.replace(old, new)
            return data

        values = dict(zip(self._columns, self._thread, strict=True)) | {"id": number, "thread_id": name}
        if waits:
            values |= {"lane": 0, "wake": now, "rank": now}
        marks = ", ".join("?" * len(values))
        self._run(f"INSERT INTO thread ({', '.join(values)}) VALUES ({marks})", tuple(values.values()))  # noqa: S608
        self._run("INSERT INTO head VALUES (?, ?)", (number, own(self._head)))
        for version, page, receipt in self._log:
            self._run(
                "INSERT INTO log (place, packed, page, receipt) VALUES (?, 0, ?, ?)",
                ((number << 32) + version, own(page), own(receipt)),
            )
        for digest, _ in self._known:
            self._run("INSERT INTO known VALUES (?, ?, 0)", (number, digest))
        for request, effect in self._effects:
            self._run(
                "INSERT INTO outbox (state, engine, thread, created, request_id, effect) VALUES (?, ?, ?, ?, ?, ?)",
                (state, engine, number, now, calls[request.encode()].decode(), own(effect)),
            )
        if waits:
            message = InputMessage(f"msg_{number}", name, UserText("Look into it"), "api")
            place = (number << 32) + 1
            columns = "place, due, rank, urgency, accepted, message_id, body"
            row = (place, now, now, 0, now, message.message_id, encode_input(message))
            self._run(f"INSERT INTO inbox ({columns}) VALUES (?, ?, ?, ?, ?, ?, ?)", row)  # noqa: S608
            self._run("INSERT INTO known VALUES (?, ?, ?)", (number, digest_of(message.message_id), place))


# Recovering


class TimedStore(SqliteStore):
    """A store that notes when this process first committed, and what SQLite did until then."""

    commits = 0
    first = 0.0

    def __init__(self, *given: Any, **more: Any) -> None:
        super().__init__(*given, **more)
        self.committed = asyncio.Event()

    def trace(self) -> None:
        """Begin to count."""
        self.ran: Counter[str] = Counter()
        self.scanned: Counter[str] = Counter()
        self.steps: Counter[str] = Counter()
        self.nanoseconds: Counter[str] = Counter()
        for connection in (self._writer._connection, self._reader._connection):  # noqa: SLF001  # nobody else may ask
            connection.trace_v2(apsw.SQLITE_TRACE_PROFILE, self._note)

    def _note(self, event: dict[str, Any]) -> None:
        if self.first:
            return
        sql, status = event["sql"], event["stmt_status"]
        self.ran[sql] += 1
        self.scanned[sql] += status["SQLITE_STMTSTATUS_FULLSCAN_STEP"]
        self.steps[sql] += status["SQLITE_STMTSTATUS_VM_STEP"]
        self.nanoseconds[sql] += event["nanoseconds"]

    async def commit_all(self, rounds: Sequence[Round]) -> list[Exception | None]:
        refused = await super().commit_all(rounds)
        self.first = self.first or time.time()
        self.commits += refused.count(None)
        self.committed.set()
        return refused


async def recover(path: str, began: float) -> dict[str, Any]:
    """Start an engine as a new process would, and tell what it took."""
    imported = time.time()
    store = await TimedStore.open(path)
    store.trace()
    opened, read = time.time(), _read_so_far()
    async with AgentSystem(model=model(), tools=[look_up, ask_elsewhere, worker(ends=True)], store=store) as system:
        started = time.time()
        await store.committed.wait()
        read = _read_so_far() - read
        await system.wait_idle()
        done = time.time()
    await store.close()
    queries = {sql: name for name, sql in load_queries("sqlite").items()}
    statements = [
        (queries.get(sql, sql[:60]), count, store.scanned[sql], store.steps[sql], store.nanoseconds[sql] / 1e6)
        for sql, count in store.ran.items()
    ]
    return {
        "imported": imported - began,
        "opened": opened - began,
        "started": started - began,
        "first": store.first - began,
        "done": done - began,
        "commits": store.commits,
        "read": read,
        "statements": sorted(statements, key=lambda one: -one[4]),
    }


def _read_so_far() -> int:
    fields = dict(line.split(": ") for line in Path("/proc/self/io").read_text(encoding="ascii").splitlines())
    return int(fields["rchar"])


def main() -> None:
    """Measure, and print what was found."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("threads", nargs="?", type=int, default=100_000)
    parser.add_argument("--pending", type=int, default=10_000)
    parser.add_argument("--keep", help="leave the file there, and use it if it is there")
    parser.add_argument("--recover", help=argparse.SUPPRESS)
    parser.add_argument("--began", type=float, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.recover:
        print(json.dumps(asyncio.run(recover(given.recover, given.began))))
        return
    with TemporaryDirectory() as folder:
        path = given.keep or str(Path(folder) / "agents.db")
        if not Path(path).exists():
            asyncio.run(make_templates(path, str(Path(folder) / "living.db")))
            multiply(path, given.threads, given.pending)
        size = Path(path).stat().st_size
        copy = str(Path(folder) / "copy.db")
        subprocess.run(["cp", path, copy], check=True)  # noqa: S603, S607
        forget(Path(copy))
        words = [sys.executable, __file__, "--recover", copy, "--began", repr(time.time())]
        told = subprocess.run(words, check=True, capture_output=True, text=True)  # noqa: S603  # it is this program
    print(told.stderr, file=sys.stderr, end="")
    found = json.loads(told.stdout)
    print(
        f"{given.threads:,} threads, {given.pending:,} of them with something pending, {size / 2**20:,.0f} MiB\n"
        f"from the start of the process: imports {found['imported']:.2f} s, store open {found['opened']:.2f} s, engine "
        f"started {found['started']:.2f} s, first slice {found['first']:.2f} s; everything pending is dealt with after "
        f"{found['done']:.1f} s and {found['commits']:,} commits\n"
        f"read of the file until the first slice: {found['read'] / 2**20:.1f} MiB\n"
        f"{'statement until the first slice':<32}{'times':>8}{'scanned':>9}{'steps':>11}{'ms':>9}"
    )
    for name, times, scanned, steps, spent in found["statements"][:MOST_SHOWN]:
        print(f"{name:<32}{times:>8,}{scanned:>9,}{steps:>11,}{spent:>9.1f}")


if __name__ == "__main__":
    main()
