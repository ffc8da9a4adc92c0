"""Courses in processes of their own on a file, ended by SIGKILL or stopped by SIGSTOP. For Linux.

A dead process is known by `/proc` at once, so no time passes between two lives.
"""

import asyncio
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

import msgspec
from msgspec.structs import replace

from hibernaut.errors import ConfigurationError
from hibernaut.stores.protocol import DEAD_AFTER
from hibernaut.testing.courses import Course, Crash, left_unknown, read_store, sqlite_store, told_unknown
from hibernaut.testing.nursery import Died, Order, world_file
from hibernaut.testing.world import World

KILLED = -9


class Kill(msgspec.Struct, frozen=True):
    """How a process ends, or stands still until another has taken over."""

    place: Crash | None = None
    within: float = 0
    """Seconds after which it is killed, wherever it is."""
    stand_still: bool = False

    def __str__(self) -> str:
        if self.place is None:
            return f"killed after {self.within * 1_000:.0f} ms"
        return f"{'stopped' if self.stand_still else 'killed'} {self.place}"


class Nursery:
    """Lives lives in processes of their own, one after the other."""

    _process: asyncio.subprocess.Process

    async def __aenter__(self) -> Self:
        if not sys.platform.startswith("linux"):
            raise ConfigurationError("processes are killed on Linux only, where a dead one is known at once by /proc")
        self._process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", "from hibernaut.testing.nursery import main; main()"),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": os.pathsep.join([str(Path.cwd()), *filter(None, sys.path)])},
        )
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process.stdin is not None:
            self._process.stdin.close()
        await self._process.communicate()

    async def live(self, order: Order) -> Died:
        """Live one life; return how it ended.

        Raises:
            ConfigurationError: the nursery has ended; what it said stands on stderr.
        """
        if self._process.stdin is None or self._process.stdout is None:
            raise RuntimeError("the nursery has no pipes")
        self._process.stdin.write(msgspec.json.encode(order) + b"\n")
        await self._process.stdin.drain()
        line = await self._process.stdout.readline()
        if not line:
            raise ConfigurationError("the process that starts the others has ended")
        return msgspec.json.decode(line, type=Died)

    async def course(self, first: Order, kills: Sequence[Kill] = ()) -> Course:
        """Run a scenario through kills, one in each of the first lives, to its end."""
        unknown, stalled, killed, number = dict[str, str](), False, 0, 0
        for kill in [*kills, Kill()]:
            number += 1
            died = await self.live(_doomed(first, number, kill))
            if died.stands_still:
                stalled, number = True, number + 1
                await self._overtake(died, replace(first, number=number, late=2 * DEAD_AFTER, port=first.other_port))
                continue
            world = World(world_file(first.store))
            if died.status == KILLED:
                seen, _ = await read_store(sqlite_store(Path(first.store)))
                unknown |= left_unknown(seen, world)
                killed += 1
                continue
            if died.status:
                world.note("divergence", "error", f"process {number} ended with exit code {died.status}")
            break
        course = await self._end(first, unknown, stalled=stalled)
        course.killed = killed
        return course

    async def _overtake(self, still: Died, order: Order) -> None:
        """Let another process come to the end, and then the one that stands still."""
        for one in (order, Order(go_on=still.stands_still)):
            if status := (await self.live(one)).status:
                text = f"a process ended with exit code {status}, one standing still and one taking over"
                World(world_file(order.store)).note("divergence", "error", text)

    async def _end(self, first: Order, unknown: dict[str, str], *, stalled: bool) -> Course:
        seen, broken = await read_store(sqlite_store(Path(first.store)))
        world = World(world_file(first.store))
        if stalled:
            unknown = unknown | told_unknown(seen)
        operations = list(world.of("operations")[-1]) if world.of("operations") else []
        exact = not (stalled or first.disturbed_by)
        return Course(seen, world, operations, unknown, broken, exact=exact, stalled=stalled)


def _doomed(first: Order, number: int, kill: Kill) -> Order:
    place = kill.place or Crash(0, after=False)
    return replace(
        first,
        number=number,
        operation=place.operation,
        after=place.after,
        stand_still=kill.stand_still,
        within=kill.within,
        disturbed_by=f"{first.disturbed_by} {number}" if first.disturbed_by else "",
    )
