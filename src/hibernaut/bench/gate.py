"""Whether the runtime has become slower: what a completion costs beside the floor, in slices taken in turn.

A machine that others use changes its speed by a factor of three within seconds, and takes the processor away. So time
is the process's own on the processor, a slice of the runtime and one of the floor follow each other within a fraction
of a second, and what counts is the median of their ratios.
"""

import gc
import statistics
import time
from collections.abc import Awaitable, Callable

import msgspec

from hibernaut.bench.floor import SLICE, Floor
from hibernaut.bench.workload import COMPLETIONS, Workload, drive
from hibernaut.system import AgentSystem

WAVE = 100
"""Agents of a slice: each does one turn."""

WARM = 5
"""Slices before the first that counts."""


FIRST, AGAIN = 25, 75
"""Pairs that are measured, and those that are before it counts as slower: together under a minute on a busy machine."""

MOST = 1.3
"""Times the recorded cost that it may be: what is left of a machine's noise after the median is below 1.15."""


class Cost(msgspec.Struct, frozen=True):
    """How many times the floor's time a completion takes."""

    median: float
    pairs: int
    low: float
    high: float
    """The quartiles: half of all pairs lie between them."""


async def cost(pairs: int) -> Cost:
    """Measure so many pairs."""
    workload, floor = Workload(), Floor("", WAVE)
    ratios = []
    async with AgentSystem(model=workload, tools=[workload.tool()]) as system:
        for number in range(WARM + pairs):
            names = [f"agent-{number:05d}-{place:03d}" for place in range(WAVE)]
            gc.collect()
            began = time.process_time()
            await drive(system, workload, names, 1)
            ours = (time.process_time() - began) / (WAVE * COMPLETIONS)
            began = time.process_time()
            floor.per_second(SLICE)
            ratios.append(ours / ((time.process_time() - began) / SLICE))
    low, median, high = statistics.quantiles(ratios[WARM:], n=4)
    return Cost(median, pairs, low, high)


class Verdict(msgspec.Struct, frozen=True):
    """What a gate says: the recorded cost, and what was measured, a second time if the first was too much."""

    recorded: float
    measured: tuple[Cost, ...]

    @property
    def times(self) -> float:
        """How many times what is recorded it costs now."""
        return self.measured[-1].median / self.recorded

    @property
    def passed(self) -> bool:
        """Whether it costs no more than may be."""
        return self.times <= MOST


async def judge(recorded: float, measure: Callable[[int], Awaitable[Cost]] = cost) -> Verdict:
    """Measure; if it costs too much, measure once more with more pairs, and take that."""
    first = await measure(FIRST)
    verdict = Verdict(recorded, (first,))
    return verdict if verdict.passed else Verdict(recorded, (first, await measure(AGAIN)))
