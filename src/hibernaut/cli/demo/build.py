"""One build, in a process of its own: `python -m hibernaut.cli.demo.build STORE REQUEST FOLDER SECONDS`.

It belongs to nobody. It runs the tests of the project in FOLDER and takes at least so many SECONDS, as builds do. At
the end it hands its report to the store, as the answer to the call for which it read a token from its input, whether
or not anybody is there to take it.
"""

import asyncio
import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import msgspec

from hibernaut.cli.demo.failure import GLANCE
from hibernaut.cli.demo.project import PACKAGE, read_pins
from hibernaut.system import AgentSystem

LOG = "builds.log"
"""Beside the project's files: one line for every build that was begun."""

OUTPUT = "build-output.txt"
"""Beside the project's files, too: what builds print, if anything."""

HOLD = "hold"
"""As long as this file is in the folder, a build does not end: on a slow machine, too, the story keeps its order."""

HELD_AT_MOST = 60
"""Seconds for which a build heeds that file."""

PASSED, FAILED = "PASSED", "FAILED"


class Begun(msgspec.Struct):
    """A line of the log: which call asked for the build, and the process that does it."""

    request: str
    pid: int


def begun(folder: Path) -> list[Begun]:
    """Return all builds of a project that were begun, oldest first."""
    try:
        lines = (folder / LOG).read_bytes().splitlines()
    except FileNotFoundError:
        return []
    return [msgspec.json.decode(line, type=Begun) for line in lines]


def main() -> None:
    """Build, and deliver what came of it."""
    store, request, folder, seconds = sys.argv[1:]
    token = sys.stdin.read()
    start = time.monotonic()
    project = Path(folder)
    with (project / LOG).open("a", encoding="utf-8") as log:
        log.write(json.dumps({"request": request, "pid": os.getpid()}) + "\n")
    report = run_tests(project)
    time.sleep(max(0, start + float(seconds) - time.monotonic()))
    while (project / HOLD).exists() and time.monotonic() < start + HELD_AT_MOST:
        time.sleep(GLANCE)
    asyncio.run(_deliver(store, token, report))


def run_tests(project: Path) -> str:
    """Run the tests with the pinned package, and report: a line that says how it went, then all they printed."""
    package = project / "packages" / f"{PACKAGE}-{read_pins(project)[PACKAGE]}"
    tests = subprocess.run(
        [sys.executable, "-S", "-B", "-m", "unittest", "-v", "test_labels"],
        cwd=project,
        env={**os.environ, "PYTHONPATH": str(package)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        encoding="utf-8",
        check=False,
    )
    run = re.search(r"^Ran (\d+) tests?", tests.stdout, re.MULTILINE)
    count = run[1] if run else "0"
    if not tests.returncode:
        return f"{PASSED}: {count} tests\n\n{tests.stdout}"
    failed = re.findall(r"^(?:FAIL|ERROR): ", tests.stdout, re.MULTILINE)
    return f"{FAILED}: {len(failed)} of {count} tests\n\n{tests.stdout}"


async def _deliver(store: str, token: str, report: str) -> None:
    async with AgentSystem(store=store, run=False) as system:
        await system.deliver(token, report)


if __name__ == "__main__":
    main()
