"""Whether a slice costs more in a long thread than in a short one: both in turn, as their histories grow.

A slice here is a message, the completion it asks for, and the commit, with the thread's transcript in memory as it is
while a conversation goes on. What a provider does with its prompt is not in it. `cold` is the first slice of a process:
the whole history is read from the store and decoded.
"""

import statistics
import time

import msgspec

from hibernaut.bench.answering import Answering
from hibernaut.bench.places import temporary_folder
from hibernaut.kernel.limits import ThreadOptions
from hibernaut.messages.inputs import InputMessage, UserText
from hibernaut.stores.memory import MemoryStore
from hibernaut.stores.protocol import Store
from hibernaut.stores.sqlite import SqliteStore
from hibernaut.system import AgentSystem

SHORT = 10
"""Items of the short thread when a measurement begins."""

AT_ONCE = 200
"""Messages that a thread is grown by in one slice."""

COLD_STARTS = 5
"""First slices that are measured."""

TEXT = "Go on with the next part of it, and tell me what you find there. " * 2


class HistoryResult(msgspec.Struct, frozen=True):
    """Medians. The ratio is that of pairs of slices, each taken one right after the other."""

    short_ms: float
    long_ms: float
    ratio: float
    cold_short_ms: float
    cold_long_ms: float


async def history(items: int, pairs: int, store: str = "memory") -> HistoryResult:
    """Measure.

    Args:
        items: items of the long thread; the short one has 10.
        pairs: slices of each.
        store: "memory" or "sqlite".
    """
    with temporary_folder() as folder:
        kept: Store = MemoryStore() if store == "memory" else await SqliteStore.open(folder / "agents.db")
        try:
            short, long = await _hot(kept, items, pairs)
            cold_short = [await _cold(kept, "short-0") for _ in range(COLD_STARTS)]
            cold_long = [await _cold(kept, "long") for _ in range(COLD_STARTS)]
        finally:
            await kept.close()
    return HistoryResult(
        short_ms=statistics.median(short),
        long_ms=statistics.median(long),
        ratio=statistics.median([second / first for first, second in zip(short, long, strict=True)]),
        cold_short_ms=statistics.median(cold_short),
        cold_long_ms=statistics.median(cold_long),
    )


async def _hot(store: Store, items: int, pairs: int) -> tuple[list[float], list[float]]:
    async with _system(store) as system:
        await _grow(system, "long", items)
        short, long = [], []
        for number in range(pairs):
            # A new one for every few slices, or it would not stay short.
            name = f"short-{number // SHORT}"
            if number % SHORT == 0:
                await _grow(system, name, SHORT)
                await _slice(system, "long")
            short.append(await _slice(system, name))
            long.append(await _slice(system, "long"))
    return short, long


async def _cold(store: Store, name: str) -> float:
    async with _system(store) as system:
        return await _slice(system, name)


def _system(store: Store) -> AgentSystem:
    return AgentSystem(model=Answering(), store=store, options=ThreadOptions(compact_at=0))


async def _slice(system: AgentSystem, name: str) -> float:
    began = time.perf_counter()
    await system.send(name, TEXT)
    await system.wait_idle()
    return (time.perf_counter() - began) * 1000


async def _grow(system: AgentSystem, name: str, items: int) -> None:
    """Let a thread grow to that many items: users say much before it is their turn."""
    agent = await system.launch(thread_id=name)
    while (missing := items - (await agent.state()).items) > 0:
        texts = [
            InputMessage(system.ids.new("msg"), name, UserText(f"{TEXT}{number}"), "api")
            for number in range(max(1, min(missing - 1, AT_ONCE)))
        ]
        await system.store.put(texts, system.clock.now())
        await system.wait_idle()
