"""The crash matrix for calls on tool servers: killed before a message leaves, and after the server has acted upon it.

Both are operations of the process, like those of its store. See `test_crashes`.
"""

from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.crash.matrix import Course, Crash, OpenStore, check_course, memory_store, run_course, sqlite_store
from tests.crash.servers import SERVERS, UNTIMELY_SERVERS
from tests.crash.test_crashes import every_crash, share

MESSAGES = ("discover", "invoke", "cancel", "close_thread", "status", "select")
"""Operations that are messages to a server."""

PAIRS = 100
"""Pairs of crashes that a sweep draws for each scenario."""


def check(name: str, plain: Course, store: OpenStore, *crashes: Crash) -> None:
    course = run_course(SERVERS[name], store, crashes)
    try:
        check_course(course, plain, untimely=name in UNTIMELY_SERVERS)
    except AssertionError as error:
        died = ", then ".join(f"{place} ({plain.operations[place.operation - 1]})" for place in crashes)
        error.add_note(f"{name}, killed {died}")
        raise


def check_failures(name: str, plain: Course, places: Sequence[int]) -> None:
    for place in places:
        course = run_course(SERVERS[name], memory_store(), fail_at=place)
        try:
            assert course.unknown == {}
            check_course(course, plain)
        except AssertionError as error:
            error.add_note(f"{name}: operation {place} ({plain.operations[place - 1]}) failed")
            raise


def messages(plain: Course) -> list[Crash]:
    """Return the places at which a message is under way."""
    return [crash for crash in every_crash(plain) if plain.operations[crash.operation - 1] in MESSAGES]


def failing(plain: Course) -> list[int]:
    """Return the operations that may fail. Without its tools a thread takes another course."""
    return [number for number, name in enumerate(plain.operations, 1) if name != "discover"]


@pytest.mark.parametrize("name", SERVERS)
def test_a13_a26_a36_c39_a_crash_anywhere_does_nothing_twice_on_a_server_and_loses_nothing(name: str) -> None:
    plain = run_course(SERVERS[name], memory_store())
    places = every_crash(plain)
    for crash in share(f"{name} sent", messages(plain), 2) + share(name, places, 2):
        check(name, plain, memory_store(), crash)
    for pair in zip(share(f"{name} first", places, 1), share(f"{name} second", places, 1), strict=True):
        check(name, plain, memory_store(), *pair)
    check_failures(name, plain, share(f"{name} fails", failing(plain), 1))


def test_a_crash_does_nothing_twice_on_a_server_when_the_store_is_a_file(tmp_path: Path) -> None:
    for name in share("servers in a file", list(SERVERS), 6):
        plain = run_course(SERVERS[name], memory_store())
        for number, crash in enumerate(share(f"{name} in a file", every_crash(plain), 2)):
            check(name, plain, sqlite_store(tmp_path / f"{name}-{number}.db"), crash)


@pytest.mark.long
@pytest.mark.parametrize("name", SERVERS)
def test_a13_a26_a36_c39_a_crash_at_every_operation_does_nothing_twice_on_a_server(name: str, tmp_path: Path) -> None:
    plain = run_course(SERVERS[name], memory_store())
    for number, crash in enumerate(every_crash(plain)):
        check(name, plain, memory_store(), crash)
        check(name, plain, sqlite_store(tmp_path / f"{number}.db"), crash)


@pytest.mark.long
@pytest.mark.parametrize("name", SERVERS)
def test_two_crashes_do_nothing_twice_on_a_server(name: str) -> None:
    plain = run_course(SERVERS[name], memory_store())
    places = every_crash(plain)
    for pair in share(f"{name} twice", [(first, second) for first in places for second in places], PAIRS):
        check(name, plain, memory_store(), *pair)


@pytest.mark.long
@pytest.mark.parametrize("name", SERVERS)
def test_a36_what_fails_once_changes_nothing_on_a_server(name: str) -> None:
    plain = run_course(SERVERS[name], memory_store())
    check_failures(name, plain, failing(plain))
