"""How soon an idle agent's model is asked when a message comes, with many agents in one SQLite file.

The messages come one after the other, each to another agent: what is measured is one wake-up, not a queue. Each is
accepted durably first, so the disk's sync is in it.
"""

import asyncio
import random
import time
from collections.abc import Sequence
from pathlib import Path

import msgspec

from hibernaut.bench.answering import Answering
from hibernaut.bench.memory import resident_bytes
from hibernaut.bench.places import temporary_folder
from hibernaut.bench.population import name_of, populate
from hibernaut.bench.scale import SETTLED
from hibernaut.system import AgentSystem

FEW = 1_000
"""Agents of the file beside which the memory of an engine on many is seen."""

RESTS = 3.0
"""Seconds for which an engine is watched while nothing happens."""


class WakeResult(msgspec.Struct, frozen=True):
    """What a run measured."""

    p50_ms: float
    """From before the message is handed in until its agent's model is asked."""
    p99_ms: float
    accepted_p50_ms: float
    """Until the message is stored for good, which is the first part of it."""
    resident_bytes_per_agent: float
    """By how much a process is larger that runs all agents than one that runs a thousand, for each of the others."""
    resident_bytes: int
    idle_processor_percent: float
    """Of one core, while nothing happens."""
    stored_bytes_per_agent: float
    made_per_s: float
    """Agents put into the file; 0: they were there."""


async def wake(agents: int, messages: int, store: str | None = None) -> WakeResult:
    """Wake agents.

    Args:
        agents: how many there are; at least twice a thousand.
        messages: how many of them are woken.
        store: the file; it is made or filled up when it has fewer agents, and kept. By default a temporary one.
    """
    with temporary_folder() as folder:
        path = Path(store) if store else folder / "agents.db"
        made = await populate(path, agents)
        few = folder / "few.db"
        await populate(few, FEW)
        beside, _, _ = await _resident(few, random.sample(range(FEW), min(messages, FEW)))
        resident, late, idle = await _resident(path, random.sample(range(agents), messages))
        size = path.stat().st_size
    accepted = sorted(first for first, _ in late)
    asked = sorted(second for _, second in late)
    return WakeResult(
        p50_ms=asked[len(asked) // 2],
        p99_ms=asked[len(asked) * 99 // 100],
        accepted_p50_ms=accepted[len(accepted) // 2],
        resident_bytes_per_agent=(resident - beside) / (agents - FEW),
        resident_bytes=resident,
        idle_processor_percent=idle,
        stored_bytes_per_agent=size / agents,
        made_per_s=made,
    )


async def _resident(path: Path, numbers: Sequence[int]) -> tuple[int, list[tuple[float, float]], float]:
    """Wake agents one by one; return what the process holds then, how late each was (ms), what resting takes (%)."""
    model = Answering()
    late: list[tuple[float, float]] = []
    async with AgentSystem(model=model, store=path) as system:
        for number in numbers:
            name, began = name_of(number), time.monotonic()
            await system.send(name, "Has anything happened?")
            accepted = time.monotonic()
            await system.wait_idle()
            late.append(((accepted - began) * 1000, (model.asked[name] - began) * 1000))
        await asyncio.sleep(SETTLED)
        used, began = time.process_time(), time.monotonic()
        await asyncio.sleep(RESTS)
        idle = (time.process_time() - used) / (time.monotonic() - began) * 100
        model.asked.clear()
        resident = resident_bytes()
    return resident, late, idle
