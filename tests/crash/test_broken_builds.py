"""Every invariant is broken on purpose, one at a time, and the harness finds it."""

import asyncio
from collections.abc import Callable, Sequence

import pytest

from hibernaut.kernel.limits import ThreadOptions
from hibernaut.messages.inputs import Command
from hibernaut.models.errors import ConnectionLost
from hibernaut.models.protocol import ModelRequest
from hibernaut.models.scripted import Playable, call, fail, last_result, say, turn
from hibernaut.stores.protocol import Store
from hibernaut.testing import Life, Play, Report, Scenario, Seen, chaos, crash_matrix
from hibernaut.testing.chores import chores_at_home
from hibernaut.testing.courses import Crash, StoreKind, Stores, run_course
from hibernaut.testing.crashes import Cut, Way, run_cut
from hibernaut.tools.tool import tool
from tests.crash import broken
from tests.crash.broken import opening
from tests.crash.scenarios import SCENARIOS

PATIENCE = 2
"""Seconds after which a broken build is taken for stuck."""

MOST_RUNS = 40
"""Runs of chaos in which a broken build must be found."""

Break = Callable[[pytest.MonkeyPatch], None]


def matrix(
    scenario: Scenario,
    *,
    ways: Sequence[Way] = ("killed",),
    make: Callable[[], Store] | None = None,
    share: int | None = None,
) -> Report:
    kind: StoreKind = opening(make) if make is not None else "memory"
    return asyncio.run(crash_matrix(scenario, stores=[kind], ways=ways, share=share, seed="broken", patience=PATIENCE))


def failing_after_a_crash(scenario: Scenario) -> Report:
    """Kill a run after its first commit, and let each operation of the next process fail."""
    report = Report()
    with Stores("memory") as stores:
        plain = run_course(scenario, stores.new())
        crash = Crash(plain.operations.index("commit") + 1, after=True)
        for number in range(1, len(plain.operations) + 1):
            cut = Cut("failing", (crash, Crash(number, after=False)))
            report += run_cut(scenario, stores, cut, plain, patience=PATIENCE)
    return report


def stuttering(life: Life) -> Play:
    """A stream that breaks once."""

    async def answer(_: ModelRequest) -> Playable:
        seen = await life.look()
        return say("Now it works.") if seen.notices("retry") else fail(ConnectionLost("reset"), "Half a tu")

    def check(seen: Seen) -> None:
        assert not seen.says("Half a tu"), "half a turn is history"

    return Play(answer, inputs=["Hello"], check=check)


def stopped(life: Life) -> Play:
    """A thread that is stopped while its tool works, and stays so."""

    @tool(idempotent=True)
    async def work() -> str:
        """Work."""
        await life.gate("never").wait()
        return "worked"

    async def drive() -> None:
        await life.say("m1", "Work")
        await life.until(lambda seen: life.has_begun("work") or seen.notices("stopped"))
        await life.order("stop", Command("stop"))
        await life.until(lambda seen: seen.notices("stopped"))
        await life.settle()

    def answer(request: ModelRequest) -> Playable:
        return say("I go on.") if last_result(request) else call("work")

    return Play(answer, drive, [work])


def both(_: Life) -> Play:
    """Two calls at once."""

    @tool
    async def left() -> str:
        """Go left."""
        return "went left"

    @tool
    async def right() -> str:
        """Go right."""
        return "went right"

    def answer(request: ModelRequest) -> Playable:
        return say("Both are done.") if last_result(request) else turn(call("left"), call("right"))

    return Play(answer, tools=[left, right], inputs=["Do both"], options=ThreadOptions(parallel_calls=2))


@pytest.mark.parametrize("name", ["async-tool", "two-calls-at-once", "plain-answer", "sleeping", "silent-child"])
def test_the_sound_build_passes(name: str) -> None:
    assert matrix(SCENARIOS[name], ways=["killed", "failing"]).divergences == []


def test_a_build_without_a_fence_is_found() -> None:
    found = matrix(SCENARIOS["async-tool"], ways=["stalled"], make=broken.WithoutFence, share=8)
    assert found.count("verify") + found.count("history") + found.count("repeat")


def test_a_build_that_forgets_what_it_has_taken_in_is_found() -> None:
    found = matrix(SCENARIOS["plain-answer"], make=broken.Forgetful)
    assert found.count("history") + found.count("stuck")


def test_a_build_that_loses_what_it_accepted_is_found() -> None:
    assert matrix(SCENARIOS["async-tool"], make=broken.LosingResults).count("stuck")


def test_a_build_that_drops_a_receipt_is_found() -> None:
    assert matrix(SCENARIOS["async-tool"], make=broken.DroppingReceipts).count("verify")


def test_a_build_that_rewrites_history_is_found() -> None:
    assert matrix(SCENARIOS["plain-answer"], make=broken.RewritingHistory).count("verify")


def test_a_build_that_delivers_results_to_the_wrong_calls_is_found() -> None:
    assert matrix(both).divergences == []
    assert matrix(both, make=broken.Swapping).count("effects")


@pytest.mark.parametrize(
    "name, breaking, kind",
    [
        ("async-tool", broken.dispatching_before_commit, "repeat"),
        ("async-tool", broken.repeating_what_is_uncertain, "repeat"),
        ("sleeping", broken.writing_twice, "history"),
    ],
)
def test_a_build_that_breaks_another_rule_is_found(
    name: str, breaking: Break, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    breaking(monkeypatch)
    assert kind in {one.kind for one in matrix(SCENARIOS[name]).divergences}


def test_a_build_that_goes_on_though_it_was_stopped_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    assert matrix(stopped).divergences == []
    broken.ignoring_stop(monkeypatch)
    assert matrix(stopped).count("stop")


def test_a_build_that_keeps_half_a_turn_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    assert matrix(stuttering).divergences == []
    broken.keeping_half_turns(monkeypatch)
    assert matrix(stuttering).count("check")


def test_a_build_that_takes_a_failed_read_for_an_empty_one_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    assert failing_after_a_crash(SCENARIOS["async-tool"]).divergences == []
    broken.taking_failures_for_nothing(monkeypatch)
    assert failing_after_a_crash(SCENARIOS["async-tool"]).count("stuck")


@pytest.mark.parametrize("breaking", [broken.believing_every_signature, broken.forgetting_the_time])
def test_a_build_that_takes_forged_callbacks_is_found(breaking: Break, monkeypatch: pytest.MonkeyPatch) -> None:
    breaking(monkeypatch)
    runs = (
        asyncio.run(chaos(chores_at_home, seed="broken", run=number, patience=10)) for number in range(1, MOST_RUNS)
    )
    assert any(found.count("refusal") for found in runs)
