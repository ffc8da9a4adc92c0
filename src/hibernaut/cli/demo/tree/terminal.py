"""Another terminal: the `hibernaut` command, each time in a process of its own, as a person would use it."""

import asyncio
import os
import shlex
import sys
from pathlib import Path

import msgspec

from hibernaut.cli.demo.failure import PATIENCE, DemoFailed, check
from hibernaut.cli.demo.voice import Voice


class Said(msgspec.Struct, frozen=True):
    """How a command ended, and what it has printed."""

    code: int
    lines: list[str]
    errors: str


class Terminal:
    """Runs commands on one store."""

    def __init__(self, voice: Voice, store: Path) -> None:
        self._voice = voice
        self._store = store

    async def run(self, *words: str) -> Said:
        """Show a command and run it to its end."""
        command = [*words, "--store", self._store.name]
        self._voice.typed(shlex.join(["hibernaut", *command]))
        process = await asyncio.create_subprocess_exec(
            *[sys.executable, "-P", "-m", "hibernaut.cli", *command],
            cwd=self._store.parent,
            env={name: value for name, value in os.environ.items() if not name.startswith("HIBERNAUT_")},
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            start_new_session=True,
        )
        try:
            async with asyncio.timeout(PATIENCE):
                output, errors = await process.communicate()
        except TimeoutError:
            raise DemoFailed(f"waited {PATIENCE:.0f} s in vain for `hibernaut {words[0]}`") from None
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        return Said(process.returncode or 0, output.decode().splitlines(), " ".join(errors.decode().split()))

    async def done(self, *words: str) -> list[str]:
        """Show a command, run it, and return what it has printed.

        Raises:
            DemoFailed: it has not done what it should.
        """
        said = await self.run(*words)
        check(said.code == 0, f"`hibernaut {words[0]}` ended with code {said.code}: {said.errors}")
        return said.lines
