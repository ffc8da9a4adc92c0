"""What receipts and counting cost a slice: `python benchmarks/bench_receipts.py [PAIRS] [--store sqlite]`.

The density workload (`hibernaut bench scale`) is driven in waves, in turn with and without a part of the work: the same
process, the same store, the same minutes. Measured is the processor time of each wave; what is told is the median over
the pairs, and between which values half of the pairs lie.

Receipts: the digests of the history, of receipts and where inputs came from, the receipt itself, and its bytes in the
store. Counting: all that `hibernaut.metrics` gets from a slice, and the look for broken rules before its commit. What
is left out is put out of the way here, in this program; the runtime has no switch for it.
"""

import argparse
import asyncio
import gc
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest.mock import patch

from hibernaut import AgentSystem
from hibernaut.bench.workload import Workload, drive
from hibernaut.kernel import seal as sealing

AGENTS, TURNS = 150, 3
"""Of a wave."""

SLICES = 2
"""Completions, and slices, of a turn."""


@contextmanager
def without_receipts() -> Iterator[None]:
    """Let rounds leave no receipt and chain no digest."""

    def dispose(self: Any, arrived: Any, disposition: Any, _tool: str = "") -> None:
        self.dispositions.append((arrived.message_id, disposition))

    with (
        patch.object(sealing, "Receipt", lambda *_: None),
        patch.object(sealing, "encode_receipt", lambda _: b""),
        patch.object(sealing, "sha256", lambda *_: b""),
        patch.object(sealing, "next_history", lambda before, _: before),
        patch("hibernaut.kernel.draft.Draft.dispose", dispose),
    ):
        yield


@contextmanager
def without_counting() -> Iterator[None]:
    """Let slices count nothing and look for no broken rule."""
    with (
        patch("hibernaut.engine.slice.count_round", lambda *_, **__: None),
        patch("hibernaut.engine.slice.due_since", lambda *_: 0),
        patch("hibernaut.engine.slice.SliceRunner._check_stopped", lambda *_: None),
        patch("hibernaut.engine.slice.SliceRunner._check_leave", lambda *_: None),
    ):
        yield


async def waves(store: str, pairs: int, without: Callable[[], Any]) -> list[tuple[float, float]]:
    """Return the seconds that each pair of waves took, with all of the work and without."""
    workload, found = Workload(), []

    with TemporaryDirectory() as folder:
        where = ":memory:" if store == "memory" else str(Path(folder) / "agents.db")
        async with AgentSystem(model=workload, tools=[workload.tool()], store=where) as system:
            number = 0

            async def wave() -> float:
                nonlocal number
                names = [f"agent-{one:07d}" for one in range(number, number + AGENTS)]
                number += AGENTS
                gc.collect()
                began = time.process_time()
                await drive(system, workload, names, TURNS)
                return time.process_time() - began

            await wave()
            for pair in range(pairs):
                if pair % 2:
                    whole = await wave()
                with without():
                    bare = await wave()
                if not pair % 2:
                    whole = await wave()
                found.append((whole, bare))
    return found


def main() -> None:
    """Measure, and print what was found."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("pairs", nargs="?", type=int, default=40)
    parser.add_argument("--store", choices=["memory", "sqlite"], default="memory")
    given = parser.parse_args()
    for what, without in (("receipts and digests", without_receipts), ("counting", without_counting)):
        found = asyncio.run(waves(given.store, given.pairs, without))
        shares = [100 * (whole - bare) / whole for whole, bare in found]
        low, middle, high = statistics.quantiles(shares, n=4)
        slice_of = statistics.median(whole for whole, _ in found) / (AGENTS * TURNS * SLICES) * 1e6
        print(
            f"{what}, {given.store}: {middle:.1f} % of a slice of {slice_of:,.0f} µs "
            f"(half of {given.pairs} pairs between {low:.1f} and {high:.1f} %)"
        )


if __name__ == "__main__":
    main()
