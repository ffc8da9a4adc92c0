"""The `hibernaut` command as a process: spoken to by signals and pipes, listened to line by line."""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

COMMAND = [sys.executable, "-m", "hibernaut.cli"]

PATIENCE = 50
"""Seconds until a test gives up on a process."""

AGENT = '''
"""A model that stalls as long as there is a file that says so, and tools."""

import time
from pathlib import Path

from hibernaut import ScriptedModel, ToolContext, tool
from hibernaut.messages.items import UserItem
from hibernaut.messages.parts import plain_text
from hibernaut.models.scripted import call, say, stall


@tool
async def ask(ctx: ToolContext) -> object:
    """Leave the answer to somebody else."""
    deferred = ctx.defer()
    Path("token").write_text(deferred.token)
    return deferred


@tool
def hang() -> str:
    """Never return."""
    Path("hangs").touch()
    while True:
        time.sleep(3600)


def answer(request):
    last = request.transcript[-1]
    said = plain_text(last.content)
    if not isinstance(last, UserItem):
        return say("It says: " + said)
    if Path("stalled").exists():
        Path("asked").touch()
        return stall(say("Let me think"))
    word, _, rest = said.partition(" ")
    return call(rest) if word == "call" else say("You said: ", said)


model = ScriptedModel(answer)
'''


def environment(**more: str) -> dict[str, str]:
    kept = {
        name: value for name, value in os.environ.items() if not name.startswith("HIBERNAUT_") and name != "NO_COLOR"
    }
    return {**kept, "HIBERNAUT_STORE": "agents.db", "TERM": "xterm", **more}


def heed_ctrl_c() -> None:
    """Let a child heed Ctrl-C, though the tests may have been started in the background, where it is ignored."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


class Command:
    """A command that runs in a folder of its own."""

    def __init__(self, folder: Path, words: Sequence[str], **more: str) -> None:
        self.process = subprocess.Popen(
            [*COMMAND, *words],
            cwd=folder,
            env=environment(**more),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            encoding="utf-8",
            preexec_fn=heed_ctrl_c,  # noqa: PLW1509  # the test has no threads
        )

    def read_until(self, pattern: str) -> str:
        """Return the first line that matches."""
        assert self.process.stdout is not None
        seen = []
        for line in self.process.stdout:
            seen.append(line)
            if re.search(pattern, line):
                return line
        raise AssertionError(f"the command ended before it said {pattern!r}: {''.join(seen)}{self.errors()}")

    def errors(self) -> str:
        """Return what is left of what it says of errors."""
        assert self.process.stderr is not None
        return self.process.stderr.read()

    def end(self) -> tuple[int, str, str]:
        """Wait for its end; return the exit code and what was not read yet of output and errors."""
        output, errors = self.process.communicate(timeout=PATIENCE)
        return self.process.returncode, output, errors


def until_there(path: Path, process: subprocess.Popen[Any]) -> None:
    """Return when a process has made a file."""
    while not path.exists():
        assert process.poll() is None, "it ended before"
        time.sleep(0.01)


@contextmanager
def running(folder: Path, *words: str, **more: str) -> Iterator[Command]:
    """Run a command beside the test; it is killed when the test is through with it."""
    command = Command(folder, words, **more)
    try:
        yield command
    finally:
        command.process.kill()
        command.process.communicate()


@contextmanager
def serving(folder: Path, *words: str) -> Iterator[Command]:
    """Run an engine on the folder's store, from the moment it is ready."""
    with running(folder, "serve", "--local", "--tools", "agent.py", *words) as command:
        command.read_until(" serving ")
        yield command


def done(folder: Path, *words: str, stdin: bytes = b"", **more: str) -> tuple[int, str, str]:
    """Run a command to its end; return the exit code, the output and the errors."""
    result = subprocess.run(
        [*COMMAND, *words],
        cwd=folder,
        env=environment(**more),
        input=stdin,
        capture_output=True,
        timeout=PATIENCE,
        check=False,
    )
    return result.returncode, result.stdout.decode(), result.stderr.decode()
