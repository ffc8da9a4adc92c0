"""Chaos with a fixed seed and a bound on its time. `make crash` gives it minutes; CHAOS_MINUTES gives it more."""

import asyncio
import os
import sys

import pytest

from hibernaut.errors import ConfigurationError
from hibernaut.testing import Life, Play, Scenario, chaos
from hibernaut.testing.chores import chores, chores_at_home
from tests.crash.scenarios import SCENARIOS
from tests.crash.shares import SEED, assert_clean

MINUTES = float(os.environ.get("CHAOS_MINUTES", "2"))

linux = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="processes are killed on Linux only")


def test_c33_c35_c67_nothing_is_other_after_chaos() -> None:
    report = asyncio.run(chaos(chores_at_home, minutes=0.08, seed=SEED))
    assert_clean(report)
    assert min(report.kills, report.duplicates, report.reconciled, report.late, report.forged) > 0


@linux
def test_a33_c67_nothing_is_other_after_chaos_with_real_kills() -> None:
    report = asyncio.run(chaos(chores, minutes=0.08, seed=SEED, processes=True))
    assert report.divergences == [], report.table()
    assert min(report.runs, report.kills + report.stalls, report.forged) > 0


@linux
def test_events_of_a_tool_server_are_heard_in_chaos() -> None:
    report = asyncio.run(chaos(chores, seed="landed", run=1, processes=True))  # in it something is followed
    assert (report.divergences, report.runs) == ([], 1), report.table()


def test_a_run_is_repeated_by_its_number() -> None:
    told = [asyncio.run(chaos(chores_at_home, seed=SEED, run=3)) for _ in range(2)]
    assert [(report.runs, report.inputs) for report in told] == [(1, told[0].inputs)] * 2


@pytest.mark.parametrize("name", ["async-tool", "deferred-call-idempotent", "silent-child", "compacted"])
def test_a_scenario_of_the_matrix_stands_chaos(name: str) -> None:
    report = asyncio.run(chaos(SCENARIOS[name], minutes=0.02, seed=SEED))
    assert report.divergences == [], report.table()


def test_a_scenario_that_processes_cannot_import_is_refused() -> None:
    def here(_: Life) -> Play:
        return Play("Hello")

    with pytest.raises(ConfigurationError, match="cannot be imported"):
        asyncio.run(chaos(here, processes=True))


def test_a_tool_server_beside_no_processes_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="processes=True"):
        asyncio.run(chaos(chores, minutes=0.01))


@pytest.mark.long
@pytest.mark.parametrize("scenario", [chores_at_home])
def test_nothing_is_other_after_minutes_of_chaos(scenario: Scenario) -> None:
    assert_clean(asyncio.run(chaos(scenario, minutes=MINUTES, seed=SEED)))


@linux
@pytest.mark.long
def test_nothing_is_other_after_minutes_of_chaos_with_real_kills() -> None:
    assert_clean(asyncio.run(chaos(chores, minutes=MINUTES, seed=SEED, processes=True)))
