"""The text format in which Prometheus reads metrics, version 0.0.4."""

from collections.abc import Iterable, Sequence
from typing import Final, Literal

from hibernaut.metrics import LATENCIES, Family, Latencies, Metrics

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"

Sample = tuple[str, float]
"""The value of the family's label, "" without one, and the number."""

_SECONDS: Final = 1_000


def render(metrics: Metrics) -> str:
    """Return all that a process has counted."""
    lines: list[str] = []
    samples: dict[str, tuple[Family, list[Sample]]] = {}
    for family, value, number in metrics.counts():
        samples.setdefault(family.name, (family, []))[1].append((value, number))
    for family, values in samples.values():
        lines += lines_of(family, "counter", values)
    for family in LATENCIES:
        lines += _histogram(family, getattr(metrics, family.field))
    lines += lines_of(
        Family("", "hibernaut_resume_latency_max_seconds", "The longest resume latency since the process began."),
        "gauge",
        [("", metrics.resumed.greatest / _SECONDS)],
    )
    if metrics.recovery.count:
        lines += lines_of(
            Family(
                "", "hibernaut_recovery_seconds", "From the start of the engine until all that dead ones left is had."
            ),
            "gauge",
            [("", metrics.recovery.greatest / _SECONDS)],
        )
    callbacks = Family("", "hibernaut_callbacks_total", "Callbacks, by what became of them.", "result")
    lines += lines_of(callbacks, "counter", sorted(metrics.callbacks.items()))
    return text_of(lines)


def lines_of(family: Family, kind: Literal["counter", "gauge"], samples: Iterable[Sample]) -> list[str]:
    """Return the lines of one family; none if it has no samples."""
    lines = [f"{family.name}{_labels(family.label, value)} {_number(number)}" for value, number in samples]
    return [*_heading(family, kind), *lines] if lines else []


def text_of(lines: Sequence[str]) -> str:
    """Return lines as one text."""
    return "".join([f"{line}\n" for line in lines])


def _histogram(family: Family, latencies: Latencies) -> list[str]:
    lines, total = _heading(family, "histogram"), 0
    for doublings, count in enumerate(latencies.buckets[:-1]):
        total += count
        lines.append(f"{family.name}_bucket{_labels('le', _number((1 << doublings) / _SECONDS))} {total}")
    lines.append(f"{family.name}_bucket{_labels('le', '+Inf')} {latencies.count}")
    lines.append(f"{family.name}_sum {_number(latencies.sum / _SECONDS)}")
    lines.append(f"{family.name}_count {latencies.count}")
    return lines


def _heading(family: Family, kind: str) -> list[str]:
    told = family.help.replace("\\", "\\\\").replace("\n", "\\n")
    return [f"# HELP {family.name} {told}", f"# TYPE {family.name} {kind}"]


def _labels(label: str, value: str) -> str:
    if not label:
        return ""
    escaped = value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'{{{label}="{escaped}"}}'


def _number(number: float) -> str:
    return str(int(number)) if number == int(number) else repr(number)
