"""How many completions a second are durable: the density workload on one SQLite file, every commit synced."""

import os
import statistics
import time
from pathlib import Path

import msgspec

from hibernaut.bench.floor import Floor
from hibernaut.bench.places import temporary_folder
from hibernaut.bench.scale import WARM, Sample, run_waves
from hibernaut.bench.workload import COMPLETIONS, WAVE, Workload, drive
from hibernaut.stores.sqlite import SqliteStore
from hibernaut.system import AgentSystem

SYNCS = 50
"""Times that the disk's sync is measured."""

PAGE = bytes(4096)


class DurableResult(msgspec.Struct, frozen=True):
    """What a run measured. The sync is that of 4 KiB in a file that has them already, as SQLite's log has."""

    completions: int
    seconds: float
    completions_per_s: float
    floor_per_s: float
    share_of_floor: float
    processor_us_per_completion: float
    transactions_per_s: float
    completions_per_transaction: float
    stored_bytes_per_completion: float
    sync_ms: float
    samples: tuple[Sample, ...]


async def durable(agents: int, turns: int, wave: int = WAVE, directory: str | None = None) -> DurableResult:
    """Run the workload.

    Args:
        agents: how many agents.
        turns: turns of each.
        wave: agents that are in flight at the same time.
        directory: where the file is made: its disk is what is measured. By default the system's temporary folder.
    """
    workload = Workload()
    with temporary_folder(directory) as folder:
        sync = _sync_ms(folder / "sync")
        floor = Floor(folder / "floor.db", wave)
        store = await SqliteStore.open(folder / "agents.db")
        async with AgentSystem(model=workload, tools=[workload.tool()], store=store) as system:
            await drive(system, workload, [f"warm-{number}" for number in range(WARM)], 2)
            stored, transactions = await store.stored_bytes(), store.transactions
            course = await run_waves(system, workload, floor, agents, turns, wave)
            stored, transactions = await store.stored_bytes() - stored, store.transactions - transactions
        await store.close()
        floor.close()
    completions = agents * turns * COMPLETIONS
    return DurableResult(
        completions=completions,
        seconds=course.seconds,
        completions_per_s=completions / course.seconds,
        floor_per_s=course.floor_per_s,
        share_of_floor=course.share_of_floor,
        processor_us_per_completion=course.processor_s / completions * 1e6,
        transactions_per_s=transactions / course.seconds,
        completions_per_transaction=completions / transactions,
        stored_bytes_per_completion=stored / completions,
        sync_ms=sync,
        samples=course.samples,
    )


def _sync_ms(path: Path) -> float:
    took = []
    with path.open("wb", buffering=0) as file:
        file.write(PAGE * SYNCS)
        os.fsync(file.fileno())
        file.seek(0)
        for _ in range(SYNCS):
            file.write(PAGE)
            began = time.perf_counter()
            os.fdatasync(file.fileno())
            took.append((time.perf_counter() - began) * 1000)
    return statistics.median(took)
