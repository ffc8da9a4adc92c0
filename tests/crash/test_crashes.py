"""The crash matrix: whatever runs, cut at every operation it makes, ends as if nobody had disturbed it.

`make crash` sweeps all operations; a run of the whole suite takes a share of them, which CRASH_SEED draws anew.
"""

import asyncio
from typing import Literal

import pytest

from hibernaut.testing import crash_matrix
from hibernaut.testing.courses import Stores, run_course
from hibernaut.testing.crashes import Cut, draw, every_crash, run_cut
from hibernaut.testing.report import Report
from tests.crash.scenarios import SCENARIOS
from tests.crash.shares import SEED, assert_clean

Kind = Literal["memory", "sqlite"]

SHARE = {"memory": 8, "sqlite": 1}
"""Crashes of each scenario in a short run."""

KINDS: list[Kind] = ["memory", "sqlite"]


def twice(name: str, share: int | None) -> Report:
    """Kill a run at two places, one after the other."""
    report = Report(name)
    with Stores("memory") as stores:
        plain = run_course(SCENARIOS[name], stores.new())
        pairs = [(first, second) for first in every_crash(plain) for second in every_crash(plain)]
        for pair in draw(f"{SEED} {name} twice", pairs, share):
            report += run_cut(SCENARIOS[name], stores, Cut("killed", pair), plain, exact=True)
    return report


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", SCENARIOS)
def test_a01_a03_c12_c33_c35_a_crash_anywhere_changes_only_what_is_unknown(name: str, kind: Kind) -> None:
    matrix = crash_matrix(
        SCENARIOS[name], stores=[kind], ways=["killed"], exact=True, share=SHARE[kind], seed=f"{SEED} {name}"
    )
    assert_clean(asyncio.run(matrix))


@pytest.mark.parametrize("name", SCENARIOS)
def test_a_crash_while_recovering_from_a_crash_changes_nothing_more(name: str) -> None:
    assert_clean(twice(name, 4))


@pytest.mark.long
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", SCENARIOS)
def test_a01_a03_c12_c33_c35_a_crash_at_every_operation_changes_only_what_is_unknown(name: str, kind: Kind) -> None:
    assert_clean(asyncio.run(crash_matrix(SCENARIOS[name], stores=[kind], ways=["killed"], exact=True)))


@pytest.mark.long
@pytest.mark.parametrize("name", SCENARIOS)
def test_two_crashes_at_any_two_operations_change_nothing_more(name: str) -> None:
    assert_clean(twice(name, None))


@pytest.mark.parametrize("name", SCENARIOS)
def test_a11_a12_c42_a_store_that_fails_once_changes_nothing(name: str) -> None:
    """A read that fails is never taken for an empty one, and what a tool did is never done again for it."""
    matrix = crash_matrix(
        SCENARIOS[name], stores=["memory"], ways=["failing"], exact=True, share=8, seed=f"{SEED} {name}"
    )
    assert_clean(asyncio.run(matrix))


@pytest.mark.long
@pytest.mark.parametrize("name", SCENARIOS)
def test_a11_a12_c42_a_store_that_fails_at_any_operation_changes_nothing(name: str) -> None:
    assert_clean(asyncio.run(crash_matrix(SCENARIOS[name], stores=["memory"], ways=["failing"], exact=True)))
