"""The crash matrix for calls on tool servers: killed before a message leaves, and after the server has acted upon it.

Both are operations of the process, like those of its store. See `test_crashes`.
"""

import asyncio
from collections.abc import Sequence

import pytest

from hibernaut.testing import crash_matrix
from hibernaut.testing.courses import Course, Crash, Stores, run_course
from hibernaut.testing.crashes import Cut, draw, every_crash, run_cut
from hibernaut.testing.report import Report
from tests.crash.servers import SERVERS
from tests.crash.shares import SEED, assert_clean

MESSAGES = ("discover", "invoke", "cancel", "close_thread", "status", "select")
"""Operations that are messages to a server."""

PAIRS = 100
"""Pairs of crashes that a sweep draws for each scenario."""


def messages(plain: Course) -> list[Crash]:
    """Return the places at which a message is under way."""
    return [crash for crash in every_crash(plain) if plain.operations[crash.operation - 1] in MESSAGES]


def failing(plain: Course) -> list[Cut]:
    """Return the operations that may fail. Without its tools a thread takes another course."""
    numbers = [number for number, name in enumerate(plain.operations, 1) if name != "discover"]
    return [Cut("failing", (Crash(number, after=False),)) for number in numbers]


def killed(*places: Sequence[Crash]) -> list[Cut]:
    return [Cut("killed", tuple(each)) for each in places]


def pairs(name: str, plain: Course, share: int) -> list[Cut]:
    places = every_crash(plain)
    return killed(*draw(f"{SEED} {name} twice", [(first, second) for first in places for second in places], share))


def sweep(name: str, kind: str, cuts: Sequence[Cut], plain: Course) -> Report:
    report = Report(name, runs=1)
    with Stores("memory" if kind == "memory" else "sqlite") as stores:
        for cut in cuts:
            report += run_cut(SERVERS[name], stores, cut, plain, exact=True)
    return report


def undisturbed(name: str) -> Course:
    with Stores("memory") as stores:
        return run_course(SERVERS[name], stores.new())


@pytest.mark.parametrize("name", SERVERS)
def test_a13_a26_a36_c39_a_crash_anywhere_does_nothing_twice_on_a_server_and_loses_nothing(name: str) -> None:
    plain = undisturbed(name)
    places = draw(f"{SEED} {name} sent", messages(plain), 2) + draw(f"{SEED} {name}", every_crash(plain), 2)
    cuts = [*killed(*[(place,) for place in places]), *pairs(name, plain, 1)]
    assert_clean(sweep(name, "memory", [*cuts, *draw(f"{SEED} {name} fails", failing(plain), 1)], plain))


def test_a_crash_does_nothing_twice_on_a_server_when_the_store_is_a_file() -> None:
    for name in draw(f"{SEED} servers in a file", list(SERVERS), 6):
        plain = undisturbed(name)
        places = draw(f"{SEED} {name} in a file", every_crash(plain), 2)
        assert_clean(sweep(name, "sqlite", killed(*[(place,) for place in places]), plain))


@pytest.mark.long
@pytest.mark.parametrize("name", SERVERS)
def test_a13_a26_a36_c39_a_crash_at_every_operation_does_nothing_twice_on_a_server(name: str) -> None:
    assert_clean(asyncio.run(crash_matrix(SERVERS[name], ways=["killed"], exact=True)))


def test_a_server_hears_of_a_cancellation_though_two_processes_die_before_they_tell_it() -> None:
    name = "cancelled-in-trouble-keys"
    plain = undisturbed(name)
    commits = [number for number, operation in enumerate(plain.operations, 1) if operation == "commit"]
    cancelled = Crash(commits[1], after=True)
    early = [place for place in every_crash(plain) if place.operation <= commits[0]]
    assert_clean(sweep(name, "memory", killed(*[(cancelled, place) for place in early]), plain))


@pytest.mark.long
@pytest.mark.parametrize("name", SERVERS)
def test_two_crashes_do_nothing_twice_on_a_server(name: str) -> None:
    plain = undisturbed(name)
    assert_clean(sweep(name, "memory", pairs(name, plain, PAIRS), plain))


@pytest.mark.long
@pytest.mark.parametrize("name", SERVERS)
def test_a36_what_fails_once_changes_nothing_on_a_server(name: str) -> None:
    plain = undisturbed(name)
    assert_clean(sweep(name, "memory", failing(plain), plain))
