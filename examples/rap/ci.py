"""A build server: it runs the jobs of a folder and tells what they print while they run.

    cd project && hibernaut rap serve path/to/ci.py:server

The jobs stand in `jobs.json`, so a model chooses among commands and never writes one:

    {"test": ["python", "-m", "pytest", "-q"], "lint": ["ruff", "check"]}

A build is a subscription: what is printed goes into the thread line by line, and the last event is how it ended. To
cancel the subscription, or to close its thread, ends the command and all that it started.
"""

import asyncio
import json
import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path

from hibernaut import ToolError, ToolEvent
from hibernaut.rap import ToolServer

LONGEST_LINE = 2_000
"""Bytes of a line that are told; the rest of it becomes a line of its own."""

STOP_WITHIN = 5
"""Seconds that a command has to end."""

server = ToolServer("ci", description="Runs the jobs of a project.")


def read_jobs() -> dict[str, list[str]]:
    """Read what can be run here."""
    try:
        jobs: dict[str, list[str]] = json.loads(Path("jobs.json").read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ToolError(f"jobs.json cannot be read: {error}") from error
    return jobs


@server.tool(read_only=True, idempotent=True)
def jobs() -> dict[str, list[str]]:
    """List the jobs and the command of each."""
    return read_jobs()


@server.tool(events="associative", timeout=30, display_script='"build: " + args.job')
async def build(job: str) -> AsyncIterator[object]:
    """Run a job. What it prints comes as events; the last one says how it ended.

    Args:
        job: Which one; `jobs` lists them.
    """
    known = await asyncio.to_thread(read_jobs)
    if job not in known:
        raise ToolError(f"there is no job {job!r}; there are: {', '.join(known)}")
    process = await asyncio.create_subprocess_exec(
        *known[job],
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        limit=LONGEST_LINE,
        start_new_session=True,
    )
    try:
        yield f"{job} runs: {' '.join(known[job])}"
        async for line in lines_of(process):
            yield line
        status = await process.wait()
        yield ToolEvent(f"{job} {'passed' if status == 0 else f'failed with status {status}'}", final=True)
    finally:
        await stop(process)


async def lines_of(process: asyncio.subprocess.Process) -> AsyncIterator[str]:
    """Yield what a process prints, line by line."""
    printed = process.stdout
    if printed is None:
        return
    while True:
        try:
            line = await printed.readuntil(b"\n")
        except asyncio.IncompleteReadError as end:
            if end.partial:
                yield end.partial.decode(errors="replace")
            return
        except asyncio.LimitOverrunError as much:
            line = await printed.read(max(much.consumed, 1))
        yield line.decode(errors="replace").rstrip("\n")


async def stop(process: asyncio.subprocess.Process) -> None:
    """End a process that still runs, with all that it started."""
    if process.returncode is not None:
        return
    os.killpg(process.pid, signal.SIGTERM)
    try:
        async with asyncio.timeout(STOP_WITHIN):
            await process.wait()
    except TimeoutError:
        os.killpg(process.pid, signal.SIGKILL)
        await process.wait()
