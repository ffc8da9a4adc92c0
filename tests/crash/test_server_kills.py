"""Real processes, killed while a real tool server works for them. It goes on, and finds the next one at their port."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from hibernaut.engine.remote import LOST
from hibernaut.kernel.chain import verify_chain
from hibernaut.messages.items import CallItem, EventItem, ResultItem
from tests.crash.matrix import Course
from tests.crash.servers import REAL
from tests.crash.test_crashes import every_crash, share
from tests.crash.test_kills import Nursery
from tests.rap.foreign_server import ForeignServer, foreign_server

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="a dead process is known at once by /proc")

ANSWERS = {"later": "this took a while", "tick": "ticking", "choose": "chosen: blue"}


@pytest.fixture
def nursery(tmp_path: Path) -> Iterator[Nursery]:
    made = Nursery(tmp_path)
    with made.process:
        yield made
        assert made.process.stdin is not None
        made.process.stdin.close()


def check(course: Course, server: ForeignServer) -> None:
    """Check that the server worked once, and that the thread knows what became of it."""
    root = course.seen
    (call,) = [item for item in root.items if isinstance(item, CallItem)]
    (result,) = [item.content for item in root.items if isinstance(item, ResultItem)]
    late = [item.content for item in root.items if isinstance(item, EventItem)]
    posts = sum(body["id"] == call.id for body in server.bodies("/invoke"))
    assert posts <= 1
    if result == LOST.format(tool=call.name, server="far"):
        assert len(late) == posts, "it was not posted, or what came of it is shown"
        assert root.children == []
    else:
        assert (posts, result, late) == (1, ANSWERS[call.name], [])
        assert len(root.children) == (3 if call.name == "tick" else 0)
    assert root.says("It is in hand.")
    for seen in root.tree.values():
        assert (seen.effects, seen.inbox) == ([], ())
        rows = [(row.page, row.receipt) for row in seen.log]
        assert verify_chain(rows, seen.head.history, seen.head.receipts, seen.start) == len(rows)


def kill(nursery: Nursery, name: str, crashes: int) -> None:
    with foreign_server() as server:
        plain = nursery.course(name, server=server.url)
        check(plain, server)
        assert len(server.done) == 1
    for crash in share(f"{name} killed", every_crash(plain), crashes):
        with foreign_server() as server:
            try:
                check(nursery.course(name, crash, server=server.url), server)
            except AssertionError as error:
                error.add_note(f"{name}, killed {crash}")
                raise


def test_a33_a_process_is_killed_and_its_tool_servers_work_once_and_find_the_next(nursery: Nursery) -> None:
    for name in share("real servers", list(REAL), 2):
        kill(nursery, name, 1)


@pytest.mark.long
@pytest.mark.parametrize("name", REAL)
def test_a33_a_process_is_killed_anywhere_and_its_tool_servers_find_the_next(name: str, nursery: Nursery) -> None:
    kill(nursery, name, sys.maxsize)
