"""What is outside of the process under test, and outlives it: what tools did there, tool servers, and the time."""

import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path

import msgspec

from hibernaut.rap.replies import Reply
from hibernaut.rap.requests import Invocation
from hibernaut.testing.tool_servers import MemoryToolServers

Record = tuple[str, ...]

START = 1_700_000_000_000
"""The moment at which the first process begins, milliseconds since 1970."""


class World:
    """A list of records that only grows; in a file, when processes that are really killed share it."""

    def __init__(self, path: Path | None = None) -> None:
        self._path = path
        self.servers: OutsideServers | None = None
        self.records: list[Record] = []
        if path is not None and path.exists():
            lines = path.read_bytes().splitlines()
            self.records = [msgspec.json.decode(line, type=Record) for line in lines]

    def note(self, *words: str) -> None:
        """Add a record; it is there whatever becomes of the process."""
        self.records.append(words)
        if self._path is not None:
            file = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
            try:
                os.write(file, msgspec.json.encode(words) + b"\n")
            finally:
                os.close(file)

    def again(self) -> "World":
        """Return the world with what other processes have noted since."""
        return World(self._path) if self._path is not None else self

    def of(self, kind: str) -> list[Sequence[str]]:
        """Return what follows the kind in all records of that kind."""
        return [record[1:] for record in self.records if record[0] == kind]

    @property
    def now(self) -> int:
        """The moment that the last process had come to."""
        return max((int(moment) for (moment,) in self.of("clock")), default=START)


class OutsideServers(MemoryToolServers):
    """Tool servers that may do something between the moment at which they take a call and their answer to it."""

    before_acknowledging: Callable[[], Awaitable[object]] | None = None
    """What that is."""

    async def invoke(self, name: str, invocation: Invocation, headers: Mapping[str, str], endpoint: str) -> Reply:
        reply = await super().invoke(name, invocation, headers, endpoint)
        if self.before_acknowledging is not None:
            await self.before_acknowledging()
        return reply
