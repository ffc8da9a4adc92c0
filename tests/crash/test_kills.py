"""The crash matrix with real processes on a real file, ended by SIGKILL. See `test_crashes`."""

import asyncio
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from hibernaut.testing.courses import Course, memory_store, run_course
from hibernaut.testing.crashes import draw, every_crash
from hibernaut.testing.judging import judge
from hibernaut.testing.nursery import Order
from hibernaut.testing.processes import Kill, Nursery
from tests.crash.scenarios import SCENARIOS
from tests.crash.shares import SEED
from tests.crash.trees import TREES

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="a dead process is known at once by /proc")


def order(folder: Path, name: str, *, number: int = 0) -> Order:
    return Order(store=str(folder / f"{name}-{number}.db"), scenario=f"tests.crash.scenarios:ALL:{name}")


async def check_each(folder: Path, kills: Sequence[tuple[str, Kill]], plains: Mapping[str, Course]) -> None:
    async with Nursery() as nursery:
        for number, (name, kill) in enumerate(kills, 1):
            course = await nursery.course(order(folder, name, number=number), [kill])
            assert judge(course, plains[name]) == [], f"{name}, {kill}, CRASH_SEED={SEED}"


def kill(folder: Path, names: Sequence[str], share: int | None, *, stand_still: bool = False) -> None:
    plains = {name: run_course(SCENARIOS[name], memory_store()) for name in names}
    kills = [
        (name, Kill(place, stand_still=stand_still))
        for name, plain in plains.items()
        for place in draw(f"{SEED} {name} killed", every_crash(plain), share)
    ]
    asyncio.run(check_each(folder, kills, plains))


def test_a33_c67_a_kill_changes_nothing_but_what_is_unknown(tmp_path: Path) -> None:
    kill(tmp_path, draw(f"{SEED} killed", [name for name in SCENARIOS if name not in TREES], 10), 1)


def test_a02_a33_a_kill_changes_nothing_in_a_tree_but_what_is_unknown(tmp_path: Path) -> None:
    kill(tmp_path, draw(f"{SEED} killed trees", list(TREES), 5), 1)


def test_c32_a_process_that_stood_still_while_another_took_over_writes_nothing(tmp_path: Path) -> None:
    kill(tmp_path, draw(f"{SEED} standing still", list(SCENARIOS), 5), 1, stand_still=True)


@pytest.mark.long
@pytest.mark.parametrize("name", SCENARIOS)
def test_a33_c67_a_kill_at_every_operation_changes_nothing_but_what_is_unknown(name: str, tmp_path: Path) -> None:
    kill(tmp_path, [name], None)


@pytest.mark.long
@pytest.mark.parametrize("name", SCENARIOS)
def test_c32_a_process_that_stands_still_at_any_operation_writes_nothing_afterwards(name: str, tmp_path: Path) -> None:
    kill(tmp_path, [name], None, stand_still=True)
