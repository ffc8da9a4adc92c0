"""What a benchmark found, with all that must be known to believe it, and how it compares with an earlier one.

Every run has a process of its own: memory that an earlier one has left behind would be counted, or would be used again.
"""

import asyncio
import os
import statistics
from collections.abc import Callable, Coroutine, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from datetime import UTC, datetime
from multiprocessing import get_context, parent_process
from pathlib import Path
from threading import Thread
from typing import Any

import msgspec

from hibernaut.bench.machine import Build, Machine, this_build, this_machine
from hibernaut.errors import MalformedInput
from hibernaut.garbage import collect_seldom

Measure = Callable[..., Coroutine[Any, Any, msgspec.Struct]]
"""One benchmark: measures once, and returns a struct of figures."""

SAMPLES = "samples"
"""The field that holds what was measured on the way."""


class Figure(msgspec.Struct, frozen=True):
    """One quantity over all runs."""

    median: float
    min: float
    max: float


class Report(msgspec.Struct, frozen=True):
    """A benchmark's runs."""

    bench: str
    at: str
    """When, in UTC."""
    machine: Machine
    build: Build
    parameters: dict[str, Any]
    runs: list[dict[str, Any]]
    """The figures of each run, in the order in which they were taken."""

    @property
    def figures(self) -> dict[str, Figure]:
        """Each quantity, over all runs."""
        found = {}
        for name in self.runs[0]:
            if name != SAMPLES:
                values = [run[name] for run in self.runs]
                found[name] = Figure(statistics.median(values), min(values), max(values))
        return found


def measure(bench: str, runs: int, function: Measure, parameters: Mapping[str, Any]) -> Report:
    """Run a benchmark so many times, each in a process of its own.

    Raises:
        Whatever it raises.
    """
    taken = []
    for _ in range(runs):
        with ProcessPoolExecutor(1, mp_context=get_context("spawn"), initializer=_end_with_parent) as process:
            taken.append(process.submit(_once, function, dict(parameters)).result())
    at = datetime.now(UTC).isoformat(timespec="seconds")
    return Report(bench, at, this_machine(), this_build(), dict(parameters), taken)


def _end_with_parent() -> None:
    """Let this process end when the one that made it does, were it killed: it would measure on for nobody."""
    Thread(target=_end_after_parent, name="parent", daemon=True).start()


def _end_after_parent() -> None:
    if (parent := parent_process()) is not None:
        parent.join()
        os._exit(1)


def _once(function: Measure, parameters: dict[str, Any]) -> dict[str, Any]:
    collect_seldom()  # as `hibernaut serve` does
    found: dict[str, Any] = msgspec.to_builtins(asyncio.run(function(**parameters)))
    return found


def encode(report: Report, earlier: Report | None = None) -> bytes:
    """Write a report as JSON: what it holds, the median of each figure under its name, and what an earlier one says."""
    known = msgspec.to_builtins(report)
    known |= {name: figure.median for name, figure in report.figures.items()}
    if earlier is not None:
        known["compared"] = {"ratios": ratios(report, earlier), "differs": list(differences(report, earlier))}
    return msgspec.json.encode(known)


def read(path: Path) -> Report:
    """Read a report that `encode` wrote.

    Raises:
        MalformedInput: it is none.
    """
    try:
        report = msgspec.json.decode(path.read_bytes(), type=Report)
    except OSError as error:
        raise MalformedInput(f"{path} cannot be read: {error.strerror}") from error
    except msgspec.DecodeError as error:
        raise MalformedInput(f"{path} is no report of `hibernaut bench … --json`: {error}") from error
    if not report.runs:
        raise MalformedInput(f"{path} is a report of no run")
    return report


def ratios(report: Report, earlier: Report) -> dict[str, float]:
    """Return by what each figure is larger than in an earlier report; those that one lacks or has as 0 are left out."""
    before = earlier.figures
    return {
        name: figure.median / before[name].median
        for name, figure in report.figures.items()
        if name in before and before[name].median
    }


def differences(report: Report, earlier: Report) -> Iterator[str]:
    """Say why two reports may differ for other reasons than the code."""
    if report.bench != earlier.bench:
        yield f"another benchmark: {report.bench}, before {earlier.bench}"
    pairs: list[tuple[str, Any, Any]] = [
        *((name, getattr(report.machine, name), getattr(earlier.machine, name)) for name in _MACHINE),
        ("python", report.build.python, earlier.build.python),
        ("sqlite", report.build.sqlite, earlier.build.sqlite),
    ]
    now, before = report.build.libraries, earlier.build.libraries
    pairs += [(name, now.get(name, "none"), before.get(name, "none")) for name in sorted(now.keys() | before.keys())]
    given, wanted = report.parameters, earlier.parameters
    for name in sorted(given.keys() | wanted.keys()):
        pairs += [(f"--{name.replace('_', '-')}", given.get(name), wanted.get(name))]
    for name, this, that in pairs:
        if this != that:
            yield f"{name} is {this}, was {that}"


MANY = 1_000
"""From here on a number is shown without what comes after its point."""

_MACHINE = ("processor", "cores", "memory_bytes", "system")


def table(report: Report, earlier: Report | None = None) -> Iterator[str]:
    """Write a report for people, a line each."""
    build = report.build
    commit = f", {build.commit[:10]}{build.commit[40:]}" if build.commit else ""
    given = ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in report.parameters.items() if value)
    yield f"{report.bench}: {given}"
    yield f"{report.machine.processor}, {report.machine.cores} cores, {report.machine.memory_bytes / 2**30:.0f} GiB"
    yield f"hibernaut {build.hibernaut}{commit}, {build.python}, SQLite {build.sqlite}"
    compared = ratios(report, earlier) if earlier is not None else {}
    several = len(report.runs) > 1
    head = f"{'':<32}{'median' if several else '':>16}"
    yield (head + (f"{'min':>16}{'max':>16}" if several else "") + (f"{'ratio':>10}" if compared else "")).rstrip()
    for name, figure in report.figures.items():
        line = f"{name:<32}{shown(figure.median):>16}"
        if several:
            line += f"{shown(figure.min):>16}{shown(figure.max):>16}"
        yield line + (f"{compared[name]:>10.2f}" if name in compared else "")
    for difference in differences(report, earlier) if earlier is not None else ():
        yield f"not the same: {difference}"


def shown(value: float) -> str:
    """Return a number as people read it: whole ones whole, small ones with three figures."""
    if isinstance(value, int) or abs(value) >= MANY:
        return f"{value:,.0f}"
    return f"{value:,.2f}" if abs(value) >= 1 else f"{value:.3g}"
