"""The crash matrix: whatever runs, killed at every operation it makes, ends as if nobody had disturbed it.

`make crash` sweeps all operations; a run of the whole suite takes a share of them, which CRASH_SEED draws anew.
"""

import os
import random
from collections.abc import Sequence
from pathlib import Path
from typing import TypeVar

import pytest

from tests.crash.matrix import Course, Crash, OpenStore, check_course, memory_store, run_course, sqlite_store
from tests.crash.scenarios import SCENARIOS, UNTIMELY

T = TypeVar("T")

SEED = os.environ.get("CRASH_SEED", "hibernaut")

SHARE = {"memory": 8, "sqlite": 1}
"""Crashes of each scenario in a short run."""


class Stores:
    """Makes new stores of one kind."""

    def __init__(self, kind: str, folder: Path) -> None:
        self.kind = kind
        self._folder = folder
        self._made = 0

    def new(self) -> OpenStore:
        self._made += 1
        return memory_store() if self.kind == "memory" else sqlite_store(self._folder / f"{self._made}.db")


@pytest.fixture(params=["memory", "sqlite"])
def stores(request: pytest.FixtureRequest, tmp_path: Path) -> Stores:
    return Stores(request.param, tmp_path)


def every_crash(course: Course) -> list[Crash]:
    """Return every place at which a run can be cut."""
    return [Crash(number, after) for number in range(1, len(course.operations) + 1) for after in (False, True)]


def share(name: str, places: Sequence[T], size: int) -> list[T]:
    """Draw some of the places, each time the same ones for the same seed."""
    print(f"CRASH_SEED={SEED}")  # noqa: T201  # pytest shows it when the test fails
    return random.Random(f"{SEED} {name}").sample(places, min(size, len(places)))


def check_each(name: str, plain: Course, crashes: Sequence[Sequence[Crash]], stores: Stores) -> None:
    for places in crashes:
        course = run_course(SCENARIOS[name], stores.new(), places)
        try:
            check_course(course, plain, untimely=name in UNTIMELY)
        except AssertionError as error:
            died = ", then ".join(f"{place} ({plain.operations[place.operation - 1]})" for place in places)
            error.add_note(f"{name} on {stores.kind}, killed {died}")
            raise


@pytest.mark.parametrize("name", SCENARIOS)
def test_a01_a03_c12_c33_c35_a_crash_anywhere_changes_only_what_is_unknown(name: str, stores: Stores) -> None:
    plain = run_course(SCENARIOS[name], stores.new())
    crashes = share(name, every_crash(plain), SHARE[stores.kind])
    check_each(name, plain, [[crash] for crash in crashes], stores)


@pytest.mark.parametrize("name", SCENARIOS)
def test_a_crash_while_recovering_from_a_crash_changes_nothing_more(name: str, tmp_path: Path) -> None:
    stores = Stores("memory", tmp_path)
    plain = run_course(SCENARIOS[name], stores.new())
    crashes = share(f"{name} twice", every_crash(plain), 8)
    check_each(name, plain, list(zip(crashes[::2], crashes[1::2], strict=True)), stores)


@pytest.mark.long
@pytest.mark.parametrize("name", SCENARIOS)
def test_a01_a03_c12_c33_c35_a_crash_at_every_operation_changes_only_what_is_unknown(name: str, stores: Stores) -> None:
    plain = run_course(SCENARIOS[name], stores.new())
    check_each(name, plain, [[crash] for crash in every_crash(plain)], stores)


@pytest.mark.long
@pytest.mark.parametrize("name", SCENARIOS)
def test_two_crashes_at_any_two_operations_change_nothing_more(name: str, tmp_path: Path) -> None:
    stores = Stores("memory", tmp_path)
    plain = run_course(SCENARIOS[name], stores.new())
    places = every_crash(plain)
    check_each(name, plain, [[first, second] for first in places for second in places], stores)


@pytest.mark.parametrize("name", SCENARIOS)
def test_a11_a12_c42_a_store_that_fails_once_changes_nothing(name: str) -> None:
    """A read that fails is never taken for an empty one, and what a tool did is never done again for it."""
    plain = run_course(SCENARIOS[name], memory_store())
    check_failures(name, plain, share(f"{name} fails", range(1, len(plain.operations) + 1), 8))


@pytest.mark.long
@pytest.mark.parametrize("name", SCENARIOS)
def test_a11_a12_c42_a_store_that_fails_at_any_operation_changes_nothing(name: str) -> None:
    plain = run_course(SCENARIOS[name], memory_store())
    check_failures(name, plain, range(1, len(plain.operations) + 1))


def check_failures(name: str, plain: Course, places: Sequence[int]) -> None:
    for place in places:
        course = run_course(SCENARIOS[name], memory_store(), fail_at=place)
        try:
            assert course.unknown == {}
            check_course(course, plain)
        except AssertionError as error:
            error.add_note(f"{name}: operation {place} ({plain.operations[place - 1]}) failed")
            raise
