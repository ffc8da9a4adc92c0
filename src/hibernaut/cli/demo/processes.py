"""The processes of the demo: how they are started, found in the system's table of processes, and ended."""

import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import msgspec

from hibernaut.cli.demo.engine import READY
from hibernaut.cli.demo.failure import GLANCE, PATIENCE

_ROLES = {
    "hibernaut.cli.demo.engine": "engine",
    "hibernaut.cli.demo.build": "build",
    "hibernaut.cli.demo.tree.canary": "canary",
}
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


class OwnProcess:
    """A module of ours that runs in a process of its own, which ends at the latest when this process does."""

    def __init__(self, folder: Path, name: str, module: str, *arguments: str) -> None:
        self._output, self._log = folder / f"{name}-output.txt", folder / f"{name}.log"
        with self._output.open("wb") as output, self._log.open("wb") as log:
            self._process = subprocess.Popen(  # noqa: S603  # our own program
                [sys.executable, "-P", "-m", module, *arguments],
                bufsize=0,  # what it does not read any more must not be written once more when the pipe is closed
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=log,
                start_new_session=True,  # Ctrl-C is for the demo, which ends it in order
            )
        self.pid = self._process.pid

    def output(self) -> str:
        """Return what it has printed."""
        return self._output.read_text(encoding="utf-8")

    def tell(self, line: str) -> None:
        """Give it a line to read, if it still reads."""
        if self._process.stdin:
            with suppress(BrokenPipeError):
                self._process.stdin.write(f"{line}\n".encode())

    @property
    def ended(self) -> int | None:
        """How it ended, as an exit code; None while it runs."""
        return self._process.poll()

    def last_words(self) -> str:
        """Return what it complained of last, after a colon; "" if it did not."""
        return last_line(self._log)

    def kill(self) -> None:
        """Kill it, as a power cut would."""
        self._process.kill()

    def let_go(self) -> None:
        """Let it end in peace."""
        if self._process.stdin:
            self._process.stdin.close()

    def end(self) -> None:
        """Kill it and return when it is over."""
        self.let_go()
        self.kill()
        self._process.wait(PATIENCE)


class EngineProcess(OwnProcess):
    """A process that runs an engine on a store, with the tools and the model of a module."""

    def __init__(self, store: Path, folder: Path, module: str) -> None:
        super().__init__(folder, "engine", "hibernaut.cli.demo.engine", str(store), module)

    @property
    def ready(self) -> bool:
        """Whether it has said that it runs the agents of the store."""
        return self.output().strip() == READY


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
