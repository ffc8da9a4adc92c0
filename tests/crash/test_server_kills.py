"""Real processes, killed while a real tool server works for them. It goes on, and finds the next one at their port."""

import asyncio
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from hibernaut.engine.remote import LOST
from hibernaut.messages.items import CallItem, EventItem, ResultItem
from hibernaut.testing.courses import Course, Crash
from hibernaut.testing.crashes import draw, every_crash
from hibernaut.testing.nursery import world_file
from hibernaut.testing.processes import Kill, Nursery
from hibernaut.testing.world import World
from tests.crash.servers import REAL
from tests.crash.shares import SEED
from tests.crash.test_kills import order
from tests.rap.foreign_server import ForeignServer, foreign_server

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="a dead process is known at once by /proc")

ANSWERS = {"later": "this took a while", "tick": "ticking", "choose": "chosen: blue"}


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
    assert [(seen.effects, seen.inbox) for seen in root.tree.values()] == [([], ())] * len(root.tree)
    assert course.broken == []
    assert course.world.of("divergence") == []


async def course(nursery: Nursery, folder: Path, name: str, number: int, crashes: Sequence[Crash] = ()) -> Course:
    with foreign_server() as server:
        first = order(folder, name, number=number)
        World(world_file(first.store)).note("server", server.url)
        done = await nursery.course(first, [Kill(crash) for crash in crashes])
        check(done, server)
        return done


async def kill(folder: Path, name: str, crashes: int) -> None:
    async with Nursery() as nursery:
        plain = await course(nursery, folder, name, 0)
        for number, crash in enumerate(draw(f"{SEED} {name} killed", every_crash(plain), crashes), 1):
            try:
                await course(nursery, folder, name, number, [crash])
            except AssertionError as error:
                error.add_note(f"{name}, killed {crash}")
                raise


def test_a33_a_process_is_killed_and_its_tool_servers_work_once_and_find_the_next(tmp_path: Path) -> None:
    for name in draw(f"{SEED} real servers", list(REAL), 2):
        asyncio.run(kill(tmp_path, name, 1))


@pytest.mark.long
@pytest.mark.parametrize("name", REAL)
def test_a33_a_process_is_killed_anywhere_and_its_tool_servers_find_the_next(name: str, tmp_path: Path) -> None:
    asyncio.run(kill(tmp_path, name, sys.maxsize))
