"""The demo as a process that a test watches, disturbs and sees end."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from hibernaut.cli.demo.processes import residents

COMMAND = [sys.executable, "-m", "hibernaut.cli", "demo"]
LONGEST_LINE = 79
LONGEST_RUN = 20
"""Seconds that a story may say it took."""
PATIENCE = 50
"""Seconds until a test gives up on it."""


@contextmanager
def running_demo(folder: Path, *words: str) -> Iterator[subprocess.Popen[str]]:
    demo = subprocess.Popen(
        [*COMMAND, *words, "--fast", "--store", str(folder / "agents.db")],
        env={**os.environ, "TMPDIR": str(folder)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        encoding="utf-8",
    )
    with demo:
        yield demo


def told(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run a story to its end; what it found is the output, what it told is the errors."""
    return subprocess.run(
        [*COMMAND, *words, "--fast", "--json"],
        env={**os.environ, "TMPDIR": str(folder)},
        capture_output=True,
        encoding="utf-8",
        timeout=PATIENCE,
        check=False,
    )


def check_form(story: str, stages: int) -> None:
    """Check that a story is plain, has all its stages and fits a terminal."""
    lines = story.splitlines()
    assert [line for line in lines if len(line) > LONGEST_LINE or "\x1b" in line] == []
    for number in range(1, stages + 1):
        assert any(line.startswith(f"{number}. ") for line in lines)


def read_until(demo: subprocess.Popen[str], pattern: str) -> re.Match[str]:
    assert demo.stdout is not None
    for line in demo.stdout:
        if found := re.search(pattern, line):
            return found
    pytest.fail(f"the demo ended before it said {pattern!r}")


def finish(demo: subprocess.Popen[str]) -> tuple[int, str]:
    """Return the exit code and what was said of errors."""
    _, errors = demo.communicate(timeout=PATIENCE)
    return demo.returncode, errors


def left_over(folder: Path) -> list[object]:
    """Return the processes that still run, and what is in the folder besides the store."""
    files = [path.name for path in folder.iterdir() if not path.name.startswith("agents.db")]
    return [*residents(folder / "agents.db"), *_at_home_in(folder), *files]


def _at_home_in(folder: Path) -> list[int]:
    """Return the processes whose working directory the folder is, where the system tells."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if (entry / "cwd").readlink() == folder:
                found.append(int(entry.name))
    return found
