"""The report of a check, for people: a table that fits into 80 columns, and what is broken in full below it."""

import textwrap
from collections.abc import Iterator

from hibernaut.cli.terminal import columns, cut, safe
from hibernaut.rap.check.findings import Finding, Outcome, Report

WIDEST = 120
"""Columns that a line has at most, however wide the terminal is."""

_RULE, _LEVEL, _OUTCOME = 26, 6, 9
_WORDS: dict[Outcome, str] = {
    "kept": "kept",
    "broken": "BROKEN",
    "not applicable": "n/a",
    "not tried": "not tried",
}


def lines_of(report: Report) -> Iterator[str]:
    """Yield the lines of a report."""
    wide = min(columns(), WIDEST)
    yield _row("RULE", "LEVEL", "OUTCOME", "WHAT WAS SEEN", wide)
    for finding in report.findings:
        # What is broken, and why something was not tried, is told in full below.
        seen = {"broken": "see below", "not tried": ""}.get(finding.outcome, finding.seen)
        yield _row(finding.rule.id, finding.rule.level, _WORDS[finding.outcome], seen, wide)
    for finding in report.of("broken"):
        yield ""
        yield from _broken(finding, wide)
    yield from _not_tried(report, wide)
    yield ""
    yield summary(report)


def summary(report: Report) -> str:
    """Return a report in one line."""
    musts = sum(finding.rule.level == "MUST" for finding in report.of("broken"))
    verdict = "no MUST is broken" if report.passed else f"{musts} MUST broken"
    found = [(len(report.of(outcome)), words.lower()) for outcome, words in _WORDS.items()]
    counts = ", ".join(f"{count} {words}" for count, words in found if count)
    return f"{verdict}: {counts} of {len(report.findings)}, in {report.took / 1_000:.1f} s"


def _row(rule: str, level: str, outcome: str, seen: str, wide: int) -> str:
    line = f"{rule:{_RULE}}  {level:{_LEVEL}}  {outcome:{_OUTCOME}}  {safe(seen)}"
    return cut(line.rstrip(), wide)


def _broken(finding: Finding, wide: int) -> Iterator[str]:
    yield f"{finding.rule.id} ({finding.rule.level}) is broken."
    yield from _wrapped(f'Demanded ("{finding.rule.section}"): {finding.rule.demand}', wide)
    yield from _wrapped(f"Seen: {finding.seen}", wide)


def _not_tried(report: Report, wide: int) -> Iterator[str]:
    reasons: dict[str, list[str]] = {}
    for finding in report.of("not tried"):
        reasons.setdefault(finding.seen, []).append(finding.rule.id)
    if reasons:
        yield ""
        yield "Not tried:"
    for reason, rules in reasons.items():
        yield from _wrapped(f"{', '.join(rules)}: {reason}", wide)


def _wrapped(text: str, wide: int) -> list[str]:
    return textwrap.wrap(safe(text), wide, initial_indent="    ", subsequent_indent="      ")
