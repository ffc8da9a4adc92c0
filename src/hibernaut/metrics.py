"""What one process has counted since it began, made by whoever opens a system and passed to what counts.

A count is an attribute of `Metrics` and is raised where the thing happens; `FAMILIES` says what each is called outside.
Nothing here knows of threads, texts or users, and no label has more values than the tables below.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

import msgspec

DOUBLINGS: Final = 23
"""Buckets of a latency: up to 1 ms, 2 ms, 4 ms and so on, the last up to 70 minutes; beyond that there is one more."""

_MOST_BITS: Final = 64

OUTCOMES: Final = ("none", "complete", "interrupted", "failed", "summarized", "not_summarized")
"""What came of asking the model, in the order of `hibernaut.kernel.receipt.TurnCommit`."""

DISPOSITIONS: Final = (
    "accepted",
    "duplicate",
    "stale",
    "deferred",
    "routed",
    "surfaced",
    "held",
    "refused",
    "closed",
    "dropped",
)
"""What became of inputs, in the order of `hibernaut.kernel.commit.Disposition`."""

RECONCILED: Final = ("repeated", "server", "person", "unknown", "over")
"""What was done about an uncertain effect: it was repeated, since that is safe; its server is asked; it is left to a
person's answer; its call was told that it is unknown; its call was over."""
REPEATED, SERVER, PERSON, UNKNOWN, OVER = range(len(RECONCILED))

GAVE_UP: Final = ("completions", "slices", "other")
"""Why a thread was parked: its retries of failed completions, or of failed slices, were used up; something else."""
COMPLETIONS, SLICES, OTHER = range(len(GAVE_UP))

CONFLICTS: Final = ("stale_claim", "busy")
"""How the store refused a write: somebody else has the thread, or the whole store for too long."""
STALE_CLAIM, BUSY = range(len(CONFLICTS))


class Latencies:
    """Milliseconds by size: how many are in each bucket and beyond the last one, their sum and the greatest."""

    def __init__(self) -> None:
        self._new: list[int] = []
        self._by_bits = [0] * _MOST_BITS
        self._sum = 0
        self._greatest = 0
        self.observe: Callable[[int], None] = self._new.append
        """Count a value. It is put in its place when somebody looks, an engine with every sign of life."""

    def _place(self) -> None:
        """Put new values in their places, at little cost for each."""
        new = self._new
        if new and min(new) < 0:  # the clock was set back
            new[:] = [max(value, 0) for value in new]
        by_bits = self._by_bits
        for value in new:
            by_bits[value and (value - 1).bit_length()] += 1
        self._sum += sum(new)
        self._greatest = max(self._greatest, max(new, default=0))
        new.clear()

    @property
    def buckets(self) -> Sequence[int]:
        """How many values are in each bucket."""
        self._place()
        return [*self._by_bits[:DOUBLINGS], sum(self._by_bits[DOUBLINGS:])]

    @property
    def count(self) -> int:
        """How many values there were."""
        self._place()
        return sum(self._by_bits)

    @property
    def sum(self) -> int:
        """All of them together."""
        self._place()
        return self._sum

    @property
    def greatest(self) -> int:
        """The greatest of them."""
        self._place()
        return self._greatest


class Family(msgspec.Struct, frozen=True):
    """What a count is called: the attribute of `Metrics` that has it, its outside name, what it means.

    With `label`, the attribute is a list with a count for each of `values`.
    """

    field: str
    name: str
    help: str
    label: str = ""
    values: tuple[str, ...] = ()


COUNTERS: Final = (
    Family("slices", "hibernaut_slices_total", "Slices that were run to their end."),
    Family("slices_failed", "hibernaut_slices_failed_total", "Slices that came to nothing by a defect."),
    Family(
        "completions",
        "hibernaut_completions_total",
        "Times the model was asked, by what came of it.",
        "outcome",
        OUTCOMES,
    ),
    Family("tokens", "hibernaut_tokens_total", "Tokens that completions took.", "kind", ("input", "output")),
    Family("inputs", "hibernaut_inputs_total", "Inputs, by what became of them.", "disposition", DISPOSITIONS),
    Family("late_events", "hibernaut_late_events_total", "Events refused: their subscription or thread had ended."),
    Family("retries", "hibernaut_completion_retries_total", "Failed completions put back, to be tried again later."),
    Family("parked", "hibernaut_threads_parked_total", "Threads that were given up for now.", "gave_up", GAVE_UP),
    Family("compaction_failures", "hibernaut_compaction_failures_total", "Compactions that were given up."),
    Family("adopted", "hibernaut_effects_adopted_total", "Effects taken over from engines that died."),
    Family(
        "reconciled",
        "hibernaut_effects_reconciled_total",
        "Effects of which it was uncertain whether they had happened, by what was done.",
        "how",
        RECONCILED,
    ),
    Family("unknown", "hibernaut_calls_unknown_total", "Calls answered: it is unknown whether this happened."),
    Family("stop_violations", "hibernaut_stop_violations_total", "Slices that would have worked in a stopped thread."),
    Family(
        "approval_misbindings",
        "hibernaut_approval_misbindings_total",
        "Calls that would have begun under leave for another call.",
    ),
    Family(
        "conflicts", "hibernaut_store_conflicts_total", "Writes of slices that the store refused.", "kind", CONFLICTS
    ),
    Family("store_failures", "hibernaut_store_failures_total", "Slices that the store failed in any other way."),
)

LATENCIES: Final = (
    Family("resumed", "hibernaut_resume_latency_seconds", "From an input being due to the commit of its slice."),
    Family("first_piece", "hibernaut_first_piece_seconds", "From an input being due to the first piece of the answer."),
)


class Metrics:
    """The counts of one process. See `COUNTERS` and `LATENCIES`; times are milliseconds."""

    def __init__(self) -> None:
        self.slices = 0
        self.slices_failed = 0
        self.completions = [0] * len(OUTCOMES)
        self.tokens = [0, 0]
        self.inputs = [0] * len(DISPOSITIONS)
        self.late_events = 0
        self.retries = 0
        self.parked = [0] * len(GAVE_UP)
        self.compaction_failures = 0
        self.adopted = 0
        self.reconciled = [0] * len(RECONCILED)
        self.unknown = 0
        self.stop_violations = 0
        self.approval_misbindings = 0
        self.conflicts = [0] * len(CONFLICTS)
        self.store_failures = 0
        self.resumed = Latencies()
        self.first_piece = Latencies()
        self.recovery = Latencies()
        """From the start of an engine to the moment at which all that dead ones left was taken over."""
        self.callbacks: Mapping[str, int] = {}
        """What became of callbacks, by code: "taken", or why not. The receiver's own, where there is one."""
        self._saved: dict[str, int] = {}

    def counts(self) -> Iterator[tuple[Family, str, int]]:
        """Yield every counter: its family, the value of its label ("" without one), and how many."""
        for family in COUNTERS:
            count = getattr(self, family.field)
            for value, number in zip(family.values, count, strict=True) if family.label else (("", count),):
                yield family, value, number

    def unsaved(self) -> tuple[dict[str, int], dict[str, int]]:
        """Return what was counted since `saved` was last told of it: to be added, and greatest values so far."""
        added: dict[str, int] = {}
        for family, value, number in self.counts():
            added[f"{family.field}.{value}" if value else family.field] = number
        greatest: dict[str, int] = {}
        for field in ("resumed", "first_piece", "recovery"):
            latencies: Latencies = getattr(self, field)
            added[f"{field}.count"], added[f"{field}.sum"] = latencies.count, latencies.sum
            greatest[f"{field}.greatest"] = latencies.greatest
        known = self._saved
        added = {name: number - known.get(name, 0) for name, number in added.items() if number != known.get(name, 0)}
        return added, {name: number for name, number in greatest.items() if number > known.get(name, 0)}

    def saved(self, added: Mapping[str, int], greatest: Mapping[str, int]) -> None:
        """Note that these counts, as `unsaved` gave them, are in the store."""
        for name, number in added.items():
            self._saved[name] = self._saved.get(name, 0) + number
        self._saved.update(greatest)
