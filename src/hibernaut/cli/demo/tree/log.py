"""The log that the agent listens to: who has written which line is known from the byte at which the line ends."""

import asyncio
from collections.abc import AsyncGenerator
from pathlib import Path

import msgspec

from hibernaut.cli.demo.failure import GLANCE

LOG = "canary.log"


class Line(msgspec.Struct, frozen=True):
    """A line, and the byte after it: its event id, and where whoever has read it goes on."""

    text: str
    end: int


def append(log: Path, text: str) -> Line:
    """Write one more line."""
    with log.open("ab") as file:
        file.write(f"{text}\n".encode())
        return Line(text, file.tell())


def lines_after(log: Path, place: int = 0) -> list[Line]:
    """Return the lines that are complete, from a place on."""
    if not log.exists():
        return []
    with log.open("rb") as file:
        file.seek(place)
        found = []
        for line in file:
            if not line.endswith(b"\n"):
                break
            place += len(line)
            found.append(Line(line[:-1].decode(), place))
    return found


async def follow(file: Path, place: int) -> AsyncGenerator[Line, None]:
    """Yield every line from a place on, for ever."""
    while True:
        for line in lines_after(file, place):
            yield line
            place = line.end
        await asyncio.sleep(GLANCE)
