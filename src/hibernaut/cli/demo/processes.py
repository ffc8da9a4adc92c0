"""The processes of the demo: how they are started, found in the system's table of processes, and ended."""

import asyncio
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Self

import msgspec

from hibernaut.cli.demo.engine import READY
from hibernaut.cli.demo.failure import GLANCE, PATIENCE, DemoFailed

_ROLES = {"hibernaut.cli.demo.engine": "engine", "hibernaut.cli.demo.build": "build"}
_TABLE = Path("/proc")


class Resident(msgspec.Struct, frozen=True):
    """A process of the demo that runs."""

    role: str
    pid: int
    memory: int
    """Bytes of it that are in memory."""


def residents(store: Path) -> list[Resident]:
    """Return every process that works on this store, whoever started it: so says the system's own table."""
    rows = _from_proc() if (_TABLE / "self" / "cmdline").exists() else _from_ps()
    found = []
    for pid, memory, command in rows:
        role = next((role for module, role in _ROLES.items() if module in command), "")
        if role and str(store) in command:
            found.append(Resident(role, pid, memory))
    return sorted(found, key=lambda one: one.role, reverse=True)


def end_all(store: Path) -> None:
    """Kill what is left of the processes that work on this store, and what they started."""
    deadline = time.monotonic() + PATIENCE
    while (left := residents(store)) and time.monotonic() < deadline:
        for one in left:
            with suppress(ProcessLookupError):
                os.killpg(one.pid, signal.SIGKILL)  # each leads a session of its own
        time.sleep(GLANCE)  # until the system's table shows it, and what was just being started


def is_gone(pid: int) -> bool:
    """Tell whether there is no process of that number."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


class EngineProcess:
    """A process that runs an engine on a store."""

    def __init__(self, process: asyncio.subprocess.Process, log: Path) -> None:
        self._process = process
        self._log = log
        self.pid = process.pid

    @classmethod
    async def start(cls, store: Path, log: Path) -> Self:
        """Start one, and return when it runs the agents of the store.

        Raises:
            DemoFailed: it did not come that far.
        """
        with log.open("wb") as errors:
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                *("-P", "-m", "hibernaut.cli.demo.engine", str(store)),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=errors,
                start_new_session=True,
            )
        engine = cls(process, log)
        try:
            line = await asyncio.wait_for(process.stdout.readline(), PATIENCE) if process.stdout else b""
        except TimeoutError:
            raise DemoFailed("the engine did not start in time") from None
        if line.decode().strip() != READY:
            raise DemoFailed(f"the engine did not start{engine.last_words()}")
        return engine

    @property
    def runs(self) -> bool:
        """Whether it has not ended."""
        return self._process.returncode is None

    def last_words(self) -> str:
        """Return what it complained of last, after a colon; "" if it did not."""
        return last_line(self._log)

    async def kill(self) -> int:
        """Kill it, as a power cut would; return how it ended."""
        with suppress(ProcessLookupError):
            self._process.kill()
        return await self._ended()

    async def stop(self) -> int:
        """Let it end in peace; return how it ended."""
        if self._process.stdin:
            self._process.stdin.close()
        return await self._ended()

    async def _ended(self) -> int:
        try:
            return await asyncio.wait_for(self._process.wait(), PATIENCE)
        except TimeoutError:
            raise DemoFailed(f"the engine, process {self.pid}, did not end in time") from None


def last_line(log: Path) -> str:
    """Return the last line of a file, after a colon; "" if there is none."""
    lines = log.read_text(encoding="utf-8", errors="replace").split("\n") if log.exists() else []
    last = next((line.strip() for line in reversed(lines) if line.strip()), "")
    return f": {last}" if last else ""


def _from_proc() -> list[tuple[int, int, str]]:
    page = os.sysconf("SC_PAGE_SIZE")
    rows = []
    for folder in _TABLE.iterdir():
        if folder.name.isdecimal():
            with suppress(OSError, IndexError):  # it ended in this moment
                command = (folder / "cmdline").read_bytes().replace(b"\0", b" ")
                memory = int((folder / "statm").read_text(encoding="ascii").split()[1]) * page
                rows.append((int(folder.name), memory, os.fsdecode(command)))
    return rows


def _from_ps() -> list[tuple[int, int, str]]:
    listing = subprocess.run(
        ["ps", "-axww", "-o", "pid=,rss=,command="],  # noqa: S607  # its place differs between systems
        stdout=subprocess.PIPE,
        encoding="utf-8",
        errors="surrogateescape",
        check=True,
    )
    rows = [line.split(None, 2) for line in listing.stdout.splitlines()]
    return [(int(row[0]), int(row[1]) * 1024, row[2]) for row in rows if len(row) == 3]  # noqa: PLR2004
