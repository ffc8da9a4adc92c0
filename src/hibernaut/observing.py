"""What a system says of its own work: what this process has counted, and what its store has."""

import logging
from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

from hibernaut.engine.core import save_counts
from hibernaut.engine.statistics import HistoryBytes, Proven, prove
from hibernaut.errors import StoreError
from hibernaut.exposition import lines_of, render, text_of
from hibernaut.kernel.head import history_size
from hibernaut.metrics import COUNTERS, Family, Metrics
from hibernaut.part import SystemPart
from hibernaut.stores.protocol import StoreCounts

logger = logging.getLogger(__name__)

RECENT: Final = 1_000
"""Threads whose histories are measured, those that were updated last."""


class Latency(msgspec.Struct, frozen=True):
    """How often something was measured, and how long it took."""

    count: int
    mean_ms: float
    max_ms: int


class Stats(msgspec.Struct, frozen=True):
    """What a store has, of all tenants together, and what was counted by all processes that ever worked on it.

    The latter is as of the last time each process wrote it down: every few seconds, and when it ends.
    """

    threads: Mapping[str, int]
    """By status."""
    frozen: int
    ready: int
    """Threads that could run and that nobody runs,"""
    overdue_ms: int
    """and how long the first of them has been ready."""
    claimed: int
    waiting_inputs: int
    effects: Mapping[str, int]
    """What is owed to the outside, by state."""
    stored_bytes: int
    history_bytes: HistoryBytes
    """Of the threads that were updated last; with `deep` of all."""
    duplicates: int
    """Inputs that were there before, and changed nothing."""
    resume_latency: Latency
    """From an input being due to the commit of its slice."""
    first_piece: Latency
    """From an input being due to the first piece of the model's answer."""
    recovery: Latency
    """From the start of an engine until all that dead ones left was taken over."""
    counted: Mapping[str, int | Mapping[str, int]]
    """The other counts, by their names in `hibernaut.metrics.Metrics`; those with labels have a number for each."""
    proven: Proven | None = None
    """With `deep`: what all receipts and histories say."""


class Observes(SystemPart):
    """The part of an `AgentSystem` that tells how it is doing."""

    _metrics: Metrics

    async def metrics(self) -> str:
        """Return what this process has counted, and what its store has, as Prometheus reads it.

        What begins with `hibernaut_store_` is the same from every process on one store.
        """
        return render(self._metrics) + text_of(await self._store_lines())

    async def stats(self, *, deep: bool = False) -> Stats:
        """Return what the store has and what was counted of it, of all tenants; no engine is needed.

        It reads no history, unless it is to go `deep`: then all receipts and pages are read, which takes its time.

        Raises:
            StoreError: the store cannot be read.
        """
        now = self.clock.now()
        has = await self.store.read_counts(now)
        proven = await prove(self.store) if deep else None
        return Stats(
            threads=has.threads,
            frozen=has.frozen,
            ready=has.ready,
            overdue_ms=_overdue(has, now),
            claimed=has.claimed,
            waiting_inputs=has.waiting,
            effects=has.effects,
            stored_bytes=await self.store.stored_bytes(),
            history_bytes=proven.history if proven else await self._recent(),
            duplicates=has.counted["duplicates"],
            resume_latency=_latency(has.counted, "resumed"),
            first_piece=_latency(has.counted, "first_piece"),
            recovery=_latency(has.counted, "recovery"),
            counted={family.field: _count(family, has.counted) for family in COUNTERS},
            proven=proven,
        )

    async def save_counts(self) -> None:
        """Write down what this process has counted and not written down yet; an engine does so by itself."""
        try:
            await save_counts(self.store, self._metrics)
        except StoreError:
            logger.exception("what was counted could not be stored")

    async def _recent(self) -> HistoryBytes:
        rows = await self.store.list_threads(None, limit=RECENT)
        # An older version counted none.
        return HistoryBytes.of([size for row in rows if (size := history_size(row.head))])

    async def _store_lines(self) -> list[str]:
        up = Family("", "hibernaut_store_up", "Whether the store could be read.")
        try:
            has, size = await self.store.read_counts(self.clock.now()), await self.store.stored_bytes()
            recent = await self._recent()
        except StoreError:
            logger.exception("the store could not be looked at")
            return lines_of(up, "gauge", [("", 0)])
        return [*lines_of(up, "gauge", [("", 1)]), *_gauges(has, size, recent, self.clock.now())]


def _gauges(has: StoreCounts, size: int, recent: HistoryBytes, now: int) -> Iterable[str]:
    gauges: tuple[tuple[Family, Mapping[str, float]], ...] = (
        (Family("", "hibernaut_store_threads", "Threads.", "status"), dict(has.threads)),
        (Family("", "hibernaut_store_effects", "Effects that are owed.", "state"), dict(has.effects)),
        (Family("", "hibernaut_store_frozen_threads", "Threads that are frozen."), {"": has.frozen}),
        (Family("", "hibernaut_store_ready_threads", "Threads that could run and that nobody runs."), {"": has.ready}),
        (
            Family("", "hibernaut_store_overdue_seconds", "How long the first of those has been ready."),
            {"": _overdue(has, now) / 1_000},
        ),
        (Family("", "hibernaut_store_claimed_threads", "Threads that an engine runs now."), {"": has.claimed}),
        (Family("", "hibernaut_store_waiting_inputs", "Messages in all inboxes, due or not."), {"": has.waiting}),
        (Family("", "hibernaut_store_bytes", "What the store holds."), {"": size}),
        (
            Family(
                "", "hibernaut_store_history_bytes", "Bytes of the own histories of the threads updated last.", "of"
            ),
            {"mean": recent.mean, "max": recent.max},
        ),
    )
    for family, samples in gauges:
        yield from lines_of(family, "gauge", sorted(samples.items()))
    duplicates = Family("", "hibernaut_store_duplicates_total", "Inputs that were there before, and changed nothing.")
    yield from lines_of(duplicates, "counter", [("", has.counted["duplicates"])])


def _overdue(has: StoreCounts, now: int) -> int:
    return max(now - has.ready_since, 0) if has.ready else 0


def _count(family: Family, counted: Mapping[str, int]) -> int | Mapping[str, int]:
    if not family.label:
        return counted.get(family.field, 0)
    return {value: counted.get(f"{family.field}.{value}", 0) for value in family.values}


def _latency(counted: Mapping[str, int], field: str) -> Latency:
    count = counted.get(f"{field}.count", 0)
    mean = counted.get(f"{field}.sum", 0) / count if count else 0.0
    return Latency(count, mean, counted.get(f"{field}.greatest", 0))
