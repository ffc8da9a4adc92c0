"""What a check has found out, rule by rule, and the whole of it as a report."""

from collections.abc import Callable, Iterable
from typing import Any, Final, Literal

import msgspec

from hibernaut.messages.text import clean, shorten
from hibernaut.rap.check.rules import BY_ID, RULES, Rule

Outcome = Literal["kept", "broken", "not applicable", "not tried"]
"""How a rule came out. Not applicable: the server has nothing that it is about. Not tried: something was missing."""

LONGEST_SEEN: Final = 300
"""Characters of what was seen."""

FORMAT: Final = 1
"""The version of a report's JSON form."""

_WEIGHT: Final[dict[Outcome, int]] = {"not applicable": 0, "not tried": 1, "kept": 2, "broken": 3}
_UNREACHED: Final = "nothing that came before it let it be tried"
_OVER: Final = "the time of the whole check was up"


class Finding(msgspec.Struct, frozen=True):
    """How one rule came out, and by what."""

    rule: Rule
    outcome: Outcome
    seen: str


class Report(msgspec.Struct, frozen=True):
    """All that a check found. `started` is in milliseconds since 1970, `took` in milliseconds."""

    server: str
    name: str
    started: int
    took: int
    findings: tuple[Finding, ...]

    @property
    def passed(self) -> bool:
        """No MUST is broken."""
        return not any(finding.outcome == "broken" and finding.rule.level == "MUST" for finding in self.findings)

    def of(self, outcome: Outcome) -> list[Finding]:
        """Return the findings of one outcome, in order."""
        return [finding for finding in self.findings if finding.outcome == outcome]

    def fields(self) -> dict[str, Any]:
        """Return the report's documented JSON form."""
        return {
            "rap_check": FORMAT,
            "server": self.server,
            "name": self.name,
            "started": self.started,
            "took": self.took,
            "passed": self.passed,
            "rules": [
                {
                    "id": finding.rule.id,
                    "level": finding.rule.level,
                    "section": finding.rule.section,
                    "demand": finding.rule.demand,
                    "outcome": finding.outcome,
                    "seen": finding.seen,
                }
                for finding in self.findings
            ],
        }


class Findings:
    """Takes what is seen. Of several outcomes of one rule the gravest counts, of equal ones the first.

    Args:
        only: the ids of the rules that are asked for; nothing means all.
        told: is called with each finding that changes something.
    """

    def __init__(self, only: Iterable[str] = (), told: Callable[[Finding], None] | None = None) -> None:
        self._only = frozenset(only) or frozenset(BY_ID)
        self._told = told
        self._found: dict[str, Finding] = {}

    def wants(self, *ids: str) -> bool:
        """Tell whether any of these rules is asked for."""
        return not self._only.isdisjoint(ids)

    def kept(self, rule: str, seen: str) -> None:
        """Say that a rule is kept, as far as this goes."""
        self._add(rule, "kept", seen)

    def broken(self, rule: str, seen: str) -> None:
        """Say that a rule is broken."""
        self._add(rule, "broken", seen)

    def judge(self, rule: str, holds: bool, seen: str) -> None:  # noqa: FBT001  # it is what the method is about
        """Say which of the two."""
        self._add(rule, "kept" if holds else "broken", seen)

    def not_tried(self, rule: str, why: str) -> None:
        """Say that a rule could not be tried."""
        self._add(rule, "not tried", why)

    def not_applicable(self, rule: str, why: str) -> None:
        """Say that the server has nothing that a rule is about."""
        self._add(rule, "not applicable", why)

    def all(self, *, over: bool) -> tuple[Finding, ...]:
        """Return a finding for every rule that is asked for. `over`: the time was up before all were tried."""
        return tuple(
            self._found.get(rule.id) or Finding(rule, "not tried", _OVER if over else rule.needs or _UNREACHED)
            for rule in RULES
            if rule.id in self._only
        )

    def _add(self, rule: str, outcome: Outcome, seen: str) -> None:
        before = self._found.get(rule)
        if rule not in self._only or (before and _WEIGHT[before.outcome] >= _WEIGHT[outcome]):
            return
        finding = Finding(BY_ID[rule], outcome, shorten(clean(seen), LONGEST_SEEN))
        self._found[rule] = finding
        if self._told:
            self._told(finding)
