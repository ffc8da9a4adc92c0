"""What a fault harness has found, as a value, a table and a verdict."""

from collections.abc import Sequence
from typing import Literal, Self

import msgspec

Kind = Literal[
    "stuck",
    "error",
    "verify",
    "lost input",
    "repeat",
    "unknown",
    "left over",
    "family",
    "history",
    "receipts",
    "effects",
    "servers",
    "stop",
    "refusal",
    "check",
]


class Divergence(msgspec.Struct, frozen=True):
    """One thing that is not as it must be.

    Kinds: `stuck` (it does not come to rest), `error` (something raised), `verify` (receipts do not match what is
    stored), `lost input` (accepted, and without a disposition), `repeat` (done twice, unmarked), `unknown` (called
    unknown though it is not), `left over` (inputs or effects that nobody will come for), `family` (parents and children
    disagree), `history`, `receipts`, `effects` and `servers` (other than in the undisturbed run), `stop` (it went on
    though it was stopped), `refusal` (something that must be refused was taken), `check` (what the scenario itself
    says).
    """

    kind: Kind
    text: str
    where: str = ""
    """Which run, and what was done to it."""

    def __str__(self) -> str:
        return f"{self.kind}: {self.text}" + (f" ({self.where})" if self.where else "")


class Report(msgspec.Struct):
    """What came of many runs of one scenario."""

    scenario: str = ""
    runs: int = 0
    kills: int = 0
    """Processes that died, really or as if."""
    stalls: int = 0
    """Processes that stood still until another one had taken over, and then went on."""
    failures: int = 0
    """Operations of a store that failed."""
    inputs: int = 0
    """Inputs that were accepted."""
    duplicates: int = 0
    """Inputs that were handed in again, and changed nothing."""
    reconciled: int = 0
    """Effects that were under way when their process died, and were taken over by the next."""
    unknown: int = 0
    """Calls of which the model was told that nobody knows how they ended."""
    late: int = 0
    """Events and results that came when their call was over, and were refused."""
    forged: int = 0
    """Callbacks that were forged, expired, truncated or meant for another call, and were refused."""
    worst_resume: float = 0.0
    """Milliseconds from the start of a process after a death to its first commit, at worst."""
    divergences: list[Divergence] = []

    @property
    def lost(self) -> int:
        """Inputs that were accepted and lost."""
        return self.count("lost input")

    @property
    def repeats(self) -> int:
        """Things done twice without a mark."""
        return self.count("repeat")

    def count(self, kind: Kind) -> int:
        """Return how many divergences are of a kind."""
        return sum(one.kind == kind for one in self.divergences)

    def __iadd__(self, other: "Report") -> Self:
        """Take the numbers of another report in."""
        for name in _SUMS:
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.worst_resume = max(self.worst_resume, other.worst_resume)
        self.divergences = [*self.divergences, *other.divergences]
        return self

    def table(self) -> str:
        """Return the numbers as a table, and the first divergences below it."""
        lines = [f"{name:<32}{shown:>12}" for name, shown in self._rows()]
        shown = self.divergences[:MOST_SHOWN]
        lines += [f"divergence: {one}" for one in shown]
        if more := len(self.divergences) - len(shown):
            lines.append(f"and {more} more")
        return "\n".join(lines)

    def _rows(self) -> Sequence[tuple[str, str]]:
        return (
            ("runs", f"{self.runs:,}"),
            ("processes killed", f"{self.kills:,}"),
            ("processes stalled", f"{self.stalls:,}"),
            ("store failures", f"{self.failures:,}"),
            ("inputs accepted", f"{self.inputs:,}"),
            ("duplicates suppressed", f"{self.duplicates:,}"),
            ("effects reconciled", f"{self.reconciled:,}"),
            ("calls told as unknown", f"{self.unknown:,}"),
            ("late events refused", f"{self.late:,}"),
            ("forged callbacks refused", f"{self.forged:,}"),
            ("worst resume time", f"{self.worst_resume:,.0f} ms"),
            ("inputs lost", f"{self.lost:,}"),
            ("unmarked repeats", f"{self.repeats:,}"),
            ("divergences", f"{len(self.divergences):,}"),
        )

    @property
    def verdict(self) -> str:
        """The end of it in one line."""
        word = "failed" if self.divergences else "passed"
        return (
            f"{word}: {self.runs:,} runs, {self.kills:,} kills, {len(self.divergences):,} divergences, "
            f"{self.lost:,} lost inputs, {self.repeats:,} unmarked repeats"
        )


MOST_SHOWN = 20
"""Divergences that a table shows."""

_SUMS = (
    "runs",
    "kills",
    "stalls",
    "failures",
    "inputs",
    "duplicates",
    "reconciled",
    "unknown",
    "late",
    "forged",
)
