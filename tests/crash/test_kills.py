"""The crash matrix with real processes on a real file, ended by SIGKILL. See `test_crashes`."""

import asyncio
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec
import pytest

from tests.crash.matrix import (
    Course,
    Crash,
    check_course,
    left_unknown,
    memory_store,
    read_store,
    run_course,
    sqlite_store,
)
from tests.crash.nursery import Order, world_file
from tests.crash.scenarios import SCENARIOS, UNTIMELY
from tests.crash.test_crashes import every_crash, share
from tests.crash.trees import TREES
from tests.crash.world import World

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="a dead process is known at once by /proc")

KILLED = -9

MOST_LIVES = 5


class Nursery:
    """Lives scenarios in processes of their own."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._made = 0
        root = Path(__file__).parents[2]
        command = [sys.executable, "-m", "tests.crash.nursery"]
        self.process = subprocess.Popen(command, cwd=root, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def course(self, name: str, crash: Crash | None = None, *, server: str = "") -> Course:
        """Run a scenario, killed at one place, to its end; it may use a tool server that is not killed."""
        self._made += 1
        file = self._folder / f"{self._made}.db"
        if server:
            World(world_file(str(file))).note("server", server)
        unknown = dict[str, str]()
        operation, after = (crash.operation, crash.after) if crash else (0, False)
        for number in range(1, MOST_LIVES):
            status = self._live((str(file), name, number, operation if number == 1 else 0, after))
            seen = asyncio.run(read_store(sqlite_store(file)))
            world = World(world_file(str(file)))
            if status == 0:
                operations = [""] * int(world.of("operations")[0][0])
                return Course(seen, world, operations, unknown)
            assert status == KILLED
            unknown |= left_unknown(seen, world)
        raise AssertionError("it does not come to its end")

    def _live(self, order: Order) -> int:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(msgspec.json.encode(order).decode() + "\n")
        self.process.stdin.flush()
        return int(self.process.stdout.readline())


@pytest.fixture
def nursery(tmp_path: Path) -> Iterator[Nursery]:
    made = Nursery(tmp_path)
    with made.process:
        yield made
        assert made.process.stdin is not None
        made.process.stdin.close()


def check_each(nursery: Nursery, name: str, plain: Course, crashes: Sequence[Crash]) -> None:
    for crash in crashes:
        try:
            check_course(nursery.course(name, crash), plain, untimely=name in UNTIMELY)
        except AssertionError as error:
            error.add_note(f"{name}, killed {crash}")
            raise


def test_a33_c67_a_kill_changes_nothing_but_what_is_unknown(nursery: Nursery) -> None:
    for name in share("killed", [name for name in SCENARIOS if name not in TREES], 10):
        plain = run_course(SCENARIOS[name], memory_store())
        check_each(nursery, name, plain, share(f"{name} killed", every_crash(plain), 1))


def test_a02_a33_a_kill_changes_nothing_in_a_tree_but_what_is_unknown(nursery: Nursery) -> None:
    for name in share("killed trees", list(TREES), 5):
        plain = run_course(SCENARIOS[name], memory_store())
        check_each(nursery, name, plain, share(f"{name} killed", every_crash(plain), 1))


@pytest.mark.long
@pytest.mark.parametrize("name", SCENARIOS)
def test_a33_c67_a_kill_at_every_operation_changes_nothing_but_what_is_unknown(name: str, nursery: Nursery) -> None:
    plain = nursery.course(name)
    check_each(nursery, name, plain, every_crash(plain))
