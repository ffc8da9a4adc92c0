"""Processes that are really killed: a program that has imported everything and forks one life after the other.

It reads an `Order` a line and answers each with a line, the exit status of the child: minus the signal that ended it.
"""

import asyncio
import os
import signal
import sys
from pathlib import Path

import msgspec

import hibernaut.rap.connections
import hibernaut.rap.receiver  # noqa: F401  # a system imports both when it needs them, in every life anew
from hibernaut.testing.faults import FaultPlan
from tests.crash.life import Life
from tests.crash.matrix import sqlite_store
from tests.crash.scenarios import ALL
from tests.crash.world import World

Order = tuple[str, str, int, int, bool]
"""File, scenario, number of the life; the operation at which it is killed (0: at none), and whether after it."""


def world_file(store: str) -> Path:
    return Path(f"{store}.world")


async def live(order: Order) -> None:
    """Live one life, and end as it was ordered."""
    file, scenario, number, operation, after = order

    def reach(reached: int, _name: str) -> None:
        if reached == operation:
            os.kill(os.getpid(), signal.SIGKILL)

    world = World(world_file(file))
    async with sqlite_store(Path(file))() as store:
        # No time passes between two lives: a dead engine is known by its process.
        life = Life(number, world, store, FaultPlan(after=after, on_operation=reach), world.now)
        await life.run(ALL[scenario])
    world.note("operations", str(len(life.faulty.operations)))


def main() -> None:
    for line in sys.stdin:
        order = msgspec.json.decode(line, type=Order)
        child = os.fork()
        if not child:
            try:
                asyncio.run(live(order))
            except BaseException:  # noqa: BLE001  # the child must not go on as its parent
                sys.excepthook(*sys.exc_info())
                os._exit(1)
            os._exit(0)
        _, status = os.waitpid(child, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)  # noqa: T201  # its output is what it is asked for


if __name__ == "__main__":
    main()
