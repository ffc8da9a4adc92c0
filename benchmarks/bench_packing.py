"""What packing wins and costs: `python benchmarks/bench_packing.py [PAIRS]`.

First, for each kind of text that the dictionaries have not seen: bytes per byte of text, and processor time of a page,
by level and by how many pages are packed together, receipts included. Then what it costs a slice: the density workload
with real texts in waves, in turn in a store that compresses and in one that does not, all that they put away included.
"""

import argparse
import asyncio
import gc
import statistics
import time
from itertools import count

from hibernaut import AgentSystem
from hibernaut.bench.readings import Readings
from hibernaut.bench.workload import Workload, drive
from hibernaut.codec import pack
from hibernaut.kernel.short_receipts import shorten
from hibernaut.stores.memory import MemoryStore
from hibernaut.stores.packing import Packer

AGENTS, TURNS = 200, 20
"""Of a wave: about 11 MB of text."""

KINDS = (("prose",), ("code",), ("logs",), ("prose", "code", "logs"))

Rows = list[tuple[bytes, bytes]]


async def conversations(kinds: tuple[str, ...], agents: int) -> tuple[list[Rows], int]:
    """Return the commits of some agents, and how many bytes of text they hold."""
    workload = Workload(Readings(kinds))
    store = MemoryStore()
    async with AgentSystem(model=workload, tools=[workload.tool()], store=store) as system:
        names = [f"agent-{number}" for number in range(agents)]
        await drive(system, workload, names, TURNS)
        logs = [await store.read_log(name) for name in names]
    return [[(row.page, row.receipt) for row in log] for log in logs], workload.texts.text_bytes


def pieces(logs: list[Rows], together: int) -> list[bytes]:
    """Return commits as they are put away, so many together."""
    found = []
    for log in logs:
        for at in range(0, len(log), together):
            rows = log[at : at + together]
            found.append(
                pack([one for (page, _), short in zip(rows, shorten(rows), strict=True) for one in (page, short)])
            )
    return found


def tell_sizes() -> None:
    """Print what packing makes of each kind of text."""
    for kinds in KINDS:
        logs, text = asyncio.run(conversations(kinds, 10))
        for level in (3, 6, 9, 19):
            for together in (1, 8, 40):
                whole, packer = pieces(logs, together), Packer(level)
                began = time.process_time()
                size = sum(len(packer.pack(piece) or piece) for piece in whole)
                took = (time.process_time() - began) / sum(map(len, logs)) * 1e6
                print(f"{'+'.join(kinds)}, level {level}, {together} together: {size / text:.3f}, {took:.0f} µs a page")


async def wave(number: int, *, compress: bool) -> float:
    """Return the seconds of processor time that a wave took."""
    workload, store = Workload(Readings()), MemoryStore(compress=compress)
    async with AgentSystem(model=workload, tools=[workload.tool()], store=store) as system:
        gc.collect()
        began = time.process_time()
        await drive(system, workload, [f"agent-{number}-{one}" for one in range(AGENTS)], TURNS)
        while await store.rest():  # noqa: ASYNC110 - it works, and lets others do so
            await asyncio.sleep(0)
        return time.process_time() - began


def main() -> None:
    """Measure, and print what was found."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("pairs", nargs="?", type=int, default=10)
    given = parser.parse_args()
    tell_sizes()
    numbers, plain, packed = count(), [], []
    for _ in range(given.pairs):
        plain.append(asyncio.run(wave(next(numbers), compress=False)))
        packed.append(asyncio.run(wave(next(numbers), compress=True)))
    shares = [before / after for before, after in zip(plain, packed, strict=True)]
    slice_of = [statistics.median(times) / (AGENTS * TURNS * 2) * 1e6 for times in (plain, packed)]
    print(
        f"a slice in memory: {slice_of[0]:.0f} µs, compressed {slice_of[1]:.0f} µs; "
        f"{statistics.median(shares):.2f} of the completions a second (between {min(shares):.2f} and {max(shares):.2f})"
    )


if __name__ == "__main__":
    main()
