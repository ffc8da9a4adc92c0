"""Programs beside a test."""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

ROOT = Path(__file__).parents[3]
COMMAND = ("-m", "hibernaut.cli")
PATIENCE = 30
"""Seconds after which a program that says nothing will say nothing."""


@asynccontextmanager
async def process(
    *words: str, cwd: Path = ROOT, ends: signal.Signals = signal.SIGKILL, **more: str
) -> AsyncIterator[asyncio.subprocess.Process]:
    """Run a Python program until the end of the context."""
    running = await asyncio.create_subprocess_exec(
        *(sys.executable, *words),
        cwd=cwd,
        env=environment(**more),
        stdout=asyncio.subprocess.PIPE,
    )
    try:
        yield running
    finally:
        if running.returncode is None:
            running.send_signal(ends)
        await running.communicate()


def environment(**more: str) -> dict[str, str]:
    """Return the environment of a program that finds what the tests find, and nothing that commands heed."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("HIBERNAUT_")}
    return {**kept, "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path]), **more}


async def line_of(running: asyncio.subprocess.Process) -> str:
    """Return the next line that a program prints, "" at its end."""
    assert running.stdout is not None
    async with asyncio.timeout(PATIENCE):
        return (await running.stdout.readline()).decode().rstrip("\n")


async def done(*words: str, cwd: Path, **more: str) -> tuple[int, str, str]:
    """Run a command to its end; return the exit code, the output and the errors."""
    running = await asyncio.create_subprocess_exec(
        *(sys.executable, *COMMAND, *words),
        cwd=cwd,
        env=environment(**more),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    async with asyncio.timeout(PATIENCE):
        output, errors = await running.communicate()
    assert running.returncode is not None
    return running.returncode, output.decode(), errors.decode()
