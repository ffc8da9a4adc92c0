"""The process whose start is measured. It loads what a program with an agent loads, and no more."""

import asyncio
import time

import msgspec

from hibernaut.bench.answering import Answering
from hibernaut.bench.memory import resident_now
from hibernaut.system import AgentSystem


class Start(msgspec.Struct, frozen=True):
    """Seconds from before the process was made, and what it held once its agent was idle again."""

    python: float
    imports: float
    opened: float
    asked: float
    resident_bytes: int


def wake_one(python: float, path: str, name: str) -> None:
    """Wake an agent in this process, and print the moments (by a clock that all processes share) at which it got on."""
    asyncio.run(_wake_one(python, time.monotonic(), path, name))


async def _wake_one(python: float, imports: float, path: str, name: str) -> None:
    model = Answering()
    async with AgentSystem(model=model, store=path) as system:
        opened = time.monotonic()
        await system.send(name, "Has anything happened?")
        await system.wait_idle()
        resident = resident_now()
    print(msgspec.json.encode(Start(python, imports, opened, model.asked[name], resident)).decode())  # noqa: T201
