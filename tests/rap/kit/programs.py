"""Servers as programs of their own, started as a runtime starts them."""

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from tests.rap.kit.runtime import Runtime

EXAMPLES = Path(__file__).parents[3] / "examples" / "rap"


@asynccontextmanager
async def program(
    runtime: Runtime, name: str, folder: Path, *options: str, kill: bool = False
) -> AsyncIterator[asyncio.subprocess.Process]:
    """Run `hibernaut rap serve` on an example, and stop it in the end, or kill it."""
    command = [sys.executable, "-m", "hibernaut.cli", "rap", "serve", f"{EXAMPLES / name}.py:server"]
    process = await asyncio.create_subprocess_exec(
        *command,
        *options,
        cwd=folder,
        env={**os.environ, "RAP_EMBEDDED": "1"},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    assert process.stdout is not None
    assert process.stderr is not None
    try:
        async with asyncio.timeout(30):
            line = await process.stdout.readline()
        assert line, (await process.stderr.read()).decode()
        runtime.server = f"http://127.0.0.1:{json.loads(line)['port']}"
        yield process
    finally:
        process.send_signal(signal.SIGKILL if kill else signal.SIGTERM)
        rest, errors = await process.communicate()
    assert rest == b""
    assert kill or (process.returncode, b"Traceback" in errors) == (0, False), errors.decode()
