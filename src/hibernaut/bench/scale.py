"""How many agents a process holds, and how fast they go: the density workload, and then the memory they keep.

What runs is what always runs: the front door, the resident engine, the store, the receipts.
"""

import asyncio
import statistics
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Literal

import msgspec

from hibernaut.bench.floor import Floor
from hibernaut.bench.memory import resident_bytes, resident_now
from hibernaut.bench.places import temporary_folder
from hibernaut.bench.readings import Readings
from hibernaut.bench.texts import Texts
from hibernaut.bench.workload import COMPLETIONS, WAVE, Workload, drive, waves
from hibernaut.engine.interruptions import LOOK_EVERY
from hibernaut.engine.local import REST_AFTER
from hibernaut.stores.memory import MemoryStore
from hibernaut.stores.protocol import Store
from hibernaut.stores.sqlite import SqliteStore
from hibernaut.system import AgentSystem

SETTLED = (REST_AFTER + 5 * LOOK_EVERY) / 1000
"""Seconds after which a resting engine has dropped what it had decoded."""

Text = Literal["unique", "corpus"]

WARM = 50
"""Agents that run before anything is measured."""


class Sample(msgspec.Struct, frozen=True):
    """One wave: how many agents there are after it, how fast it was, and what the process holds (untrimmed)."""

    agents: int
    seconds: float
    """Since the first wave began, what was beside the waves included."""
    completions_per_s: float
    floor_per_s: float
    resident_bytes: int


class Course(msgspec.Struct, frozen=True):
    """All waves, without what was beside them."""

    samples: tuple[Sample, ...]
    seconds: float
    processor_s: float

    @property
    def floor_per_s(self) -> float:
        """Completions a second of the floor, in the middle."""
        return statistics.median([one.floor_per_s for one in self.samples])

    @property
    def share_of_floor(self) -> float:
        """What part of the floor's completions was made, in the middle of the waves."""
        return statistics.median([one.completions_per_s / one.floor_per_s for one in self.samples])


class ScaleResult(msgspec.Struct, frozen=True):
    """What a run of the workload measured."""

    completions: int
    seconds: float
    completions_per_s: float
    floor_per_s: float
    share_of_floor: float
    processor_us_per_completion: float
    resident_bytes_per_agent: float
    text_bytes_per_agent: float
    resident_per_text: float
    stored_bytes_per_agent: float
    samples: tuple[Sample, ...]


async def scale(
    agents: int,
    turns: int,
    store: str = "memory",
    wave: int = WAVE,
    text: Text = "unique",
    compress: bool | None = None,  # noqa: FBT001 - all are given by name
) -> ScaleResult:
    """Run the workload.

    Args:
        agents: how many agents.
        turns: turns of each.
        store: "memory" or "sqlite" (a file in a temporary folder, `synchronous=FULL`).
        wave: agents that are driven at the same time.
        text: made-up texts that never repeat, or real ones.
        compress: whether the store packs what it keeps; None: what it does by itself.
    """
    workload = Workload(Readings() if text == "corpus" else Texts())
    in_memory = store == "memory"
    packs = not in_memory if compress is None else compress
    with temporary_folder() as folder:
        floor = Floor("" if in_memory else folder / "floor.db", wave)
        async with (
            _opened(store, folder / "agents.db", compress=packs) as opened,
            AgentSystem(model=workload, tools=[workload.tool()], store=opened) as system,
        ):
            await drive(system, workload, [f"warm-{number}" for number in range(WARM)], 2)
            await _settle(system.store)
            resident, stored = resident_bytes(), await system.store.stored_bytes()
            workload.texts.text_bytes = 0
            course = await run_waves(system, workload, floor, agents, turns, wave)
            await _settle(system.store)
            resident, stored = resident_bytes() - resident, await system.store.stored_bytes() - stored
        floor.close()
    completions = agents * turns * COMPLETIONS
    return ScaleResult(
        completions=completions,
        seconds=course.seconds,
        completions_per_s=completions / course.seconds,
        floor_per_s=course.floor_per_s,
        share_of_floor=course.share_of_floor,
        processor_us_per_completion=course.processor_s / completions * 1e6,
        resident_bytes_per_agent=resident / agents,
        text_bytes_per_agent=workload.texts.text_bytes / agents,
        resident_per_text=resident / workload.texts.text_bytes,
        stored_bytes_per_agent=stored / agents,
        samples=course.samples,
    )


async def _settle(store: Store) -> None:
    """Wait until a resting engine has dropped what was hot, and the store has put away what it had."""
    await asyncio.sleep(SETTLED)
    while await store.rest():  # noqa: ASYNC110 - it works, and lets others do so
        await asyncio.sleep(0)


@asynccontextmanager
async def _opened(kind: str, path: Path, *, compress: bool) -> AsyncIterator[Store]:
    store: Store = (
        MemoryStore(compress=compress) if kind == "memory" else await SqliteStore.open(path, compress=compress)
    )
    try:
        yield store
    finally:
        await store.close()


async def run_waves(
    system: AgentSystem, workload: Workload, floor: Floor, agents: int, turns: int, wave: int
) -> Course:
    """Run the workload in turn with its floor.

    Raises:
        AssertionError: the engine has not made the completions that it should have made.
    """
    samples: list[Sample] = []
    seconds = processor = 0.0
    since, number = time.perf_counter(), 0
    for names in waves(agents, wave):
        number += len(names)
        before, began, used = system.completions, time.perf_counter(), time.process_time()
        await drive(system, workload, names, turns)
        took = time.perf_counter() - began
        processor += time.process_time() - used
        completions = len(names) * turns * COMPLETIONS
        if system.completions - before != completions:
            raise AssertionError(f"{system.completions - before} completions were made of {completions}")
        seconds += took
        beside = floor.per_second(completions)
        elapsed = time.perf_counter() - since
        samples.append(Sample(number, elapsed, completions / took, beside, resident_now()))
    return Course(tuple(samples), seconds, processor)
