"""The `hibernaut` command as a process beside servers that run in this one."""

import asyncio
import os
import sys
from pathlib import Path

KEY = "sk-secret-of-a-test"


class Said:
    """What a command has printed, and how it ended."""

    def __init__(self, code: int, out: bytes, err: bytes) -> None:
        self.code = code
        self.out = out.decode()
        self.err = err.decode()


async def hibernaut(folder: Path, *words: str, **variables: str) -> Said:
    environment = {**os.environ, "HIBERNAUT_STORE": "agents.db", "COLUMNS": "200", **variables}
    for name in ("HIBERNAUT_MODEL", "HIBERNAUT_CONFIG", "HIBERNAUT_TENANT", "HTTP_PROXY", "http_proxy"):
        environment.pop(name, None)
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "hibernaut.cli",
        *words,
        cwd=folder,
        env=environment,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    async with asyncio.timeout(50):
        out, err = await process.communicate()
    return Said(process.returncode or 0, out, err)
