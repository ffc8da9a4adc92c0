"""The crash matrix: whatever an agent does, cut at every operation it makes, ends as if nobody had disturbed it."""

import asyncio
import random
from collections.abc import Callable, Iterator, Sequence
from typing import Literal, TypeVar

import msgspec

from hibernaut.testing.courses import Course, Crash, OpenStore, StoreKind, Stores, run_course, run_stalled
from hibernaut.testing.judging import judge
from hibernaut.testing.life import PATIENCE, Scenario
from hibernaut.testing.quiet import quiet
from hibernaut.testing.report import Divergence, Report

Way = Literal["killed", "failing", "stalled"]

WAYS: tuple[Way, ...] = ("killed", "failing", "stalled")

T = TypeVar("T")


class Cut(msgspec.Struct, frozen=True):
    """One way to disturb a run."""

    way: Way
    places: tuple[Crash, ...]
    """Where: one place, or one in each of the first processes. If it is "failing", those before the last are kills."""

    def told(self, operations: Sequence[str]) -> str:
        """Say what was done, in words."""
        return f"{self.way} " + ", then ".join(
            f"{place} ({operations[place.operation - 1] if place.operation <= len(operations) else '?'})"
            for place in self.places
        )


def every_crash(course: Course) -> list[Crash]:
    """Return every place at which a run can be cut."""
    return [Crash(number, after) for number in range(1, len(course.operations) + 1) for after in (False, True)]


def cuts_of(plain: Course, *, ways: Sequence[Way] = WAYS, shared: bool) -> Iterator[Cut]:
    """Yield every way to disturb a run at one place. `shared`: two processes can have its store open."""
    for way in ways:
        for place in every_crash(plain):
            if way == "killed" or (way == "failing" and not place.after) or (way == "stalled" and shared):
                yield Cut(way, (place,))


async def crash_matrix(
    scenario: Scenario,
    *,
    stores: Sequence[StoreKind] = ("memory", "sqlite"),
    ways: Sequence[Way] = WAYS,
    share: int | None = None,
    seed: int | str = 0,
    exact: bool = False,
    patience: float = PATIENCE,
    on_run: Callable[[Report], object] = lambda _: None,
) -> Report:
    """Run a scenario once, and then once for every operation of its, disturbed there, to its end.

    Args:
        scenario: what is run.
        stores: what it is run on: kinds of ours, or functions that make what opens a new store of another one.
        ways: a process is "killed" before and after an operation; the store is "failing" once at it; or the process is
            "stalled" there, taken for dead and replaced, and then goes on (on stores that two processes can share).
        share: so many of the disturbed runs for each store, drawn by `seed`, instead of all.
        seed: the same one draws the same runs.
        exact: the scenario leaves no order to chance, so that receipts must be the same one by one. Otherwise they must
            say the same in all, since two results may be taken in together or one by one.
        patience: seconds after which a process that goes nowhere is taken for stuck.
        on_run: told of the report after every run.
    """
    report = Report(name_of(scenario))
    for kind in stores:
        with quiet(), Stores(kind) as made:
            plain = await asyncio.to_thread(run_course, scenario, made.new(), patience=patience)
            problems = judge(plain)
            report += counted(plain, Report(runs=1, divergences=placed(problems, f"undisturbed, {made.name}")))
            on_run(report)
            if problems:
                continue
            cuts = list(cuts_of(plain, ways=ways, shared=made.shared))
            for cut in draw(f"{seed} {made.name}", cuts, share):
                report += await asyncio.to_thread(run_cut, scenario, made, cut, plain, exact=exact, patience=patience)
                on_run(report)
    return report


def run_cut(
    scenario: Scenario, stores: Stores, cut: Cut, plain: Course, *, exact: bool = False, patience: float = PATIENCE
) -> Report:
    """Run a scenario disturbed in one way, and compare it with the undisturbed course."""
    course = disturbed(scenario, stores.new(), cut, patience)
    course.exact = course.exact and exact
    found = judge(course, plain)
    if cut.way == "failing" and course.unknown and len(cut.places) == 1:
        found.append(Divergence("unknown", "a store that fails makes nothing unknown"))
    where = f"{name_of(scenario)} on {stores.name}, {cut.told(plain.operations)}"
    report = Report(runs=1, divergences=placed(found, where))
    report.kills = course.killed
    report.stalls, report.failures = cut.way == "stalled", cut.way == "failing"
    return counted(course, report)


def disturbed(scenario: Scenario, open_store: OpenStore, cut: Cut, patience: float = PATIENCE) -> Course:
    """Run a scenario disturbed in one way to its end."""
    if cut.way == "stalled":
        return run_stalled(scenario, open_store, cut.places[0], patience=patience)
    if cut.way == "failing":
        return run_course(scenario, open_store, cut.places[:-1], fail_at=cut.places[-1].operation, patience=patience)
    return run_course(scenario, open_store, cut.places, patience=patience)


def counted(course: Course, report: Report) -> Report:
    """Add to a report what the world of a course has noted."""
    world = course.world
    report.inputs = len(set(map(tuple, world.of("accepted"))))
    report.duplicates = len(world.of("duplicate"))
    report.reconciled = sum(int(number) for (number,) in world.of("adopted"))
    report.unknown = len(course.unknown)
    report.late, report.forged = len(world.of("late")), len(world.of("refused"))
    # The first process has nothing to resume.
    report.worst_resume = max([float(took) for (took,) in world.of("resumed")[1:]], default=0.0)
    return report


def placed(found: Sequence[Divergence], where: str) -> list[Divergence]:
    """Say of divergences in which run they were found."""
    return [Divergence(one.kind, one.text, where) for one in found]


def draw(seed: str, places: Sequence[T], share: int | None) -> list[T]:
    """Draw some of the places, each time the same ones for the same seed; all of them without a share."""
    if share is None or share >= len(places):
        return list(places)
    return random.Random(seed).sample(list(places), share)  # noqa: S311  # what is drawn is to be drawn again


def name_of(scenario: Scenario) -> str:
    """Return what a scenario is called."""
    inner = getattr(scenario, "func", scenario)
    return str(getattr(inner, "__name__", type(inner).__name__))
