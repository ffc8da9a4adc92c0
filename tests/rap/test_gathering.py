"""Work for many: what comes meanwhile is done together, and a failure or an end reaches everybody."""

import asyncio
from collections.abc import Sequence

import pytest

from hibernaut.rap.answers import Unavailable
from hibernaut.rap.gathering import Gathering


class Work:
    """Divides by numbers; each group may end when it is let."""

    def __init__(self) -> None:
        self.groups: list[list[int]] = []
        self.begun, self.may_end = asyncio.Event(), asyncio.Semaphore(0)

    async def __call__(self, items: Sequence[int]) -> list[int]:
        self.groups.append(list(items))
        self.begun.set()
        await self.may_end.acquire()
        return [100 // item for item in items]


async def test_what_comes_while_the_work_is_under_way_is_done_together_next() -> None:
    work = Work()
    gathering = Gathering(work)
    async with asyncio.TaskGroup() as tasks:
        first = tasks.create_task(gathering.join(1))
        await work.begun.wait()
        others = [tasks.create_task(gathering.join(number)) for number in (2, 4, 5)]
        await asyncio.sleep(0)
        work.may_end.release()
        work.may_end.release()
    assert work.groups == [[1], [2, 4, 5]]
    assert [first.result(), *(task.result() for task in others)] == [100, 50, 25, 20]
    work.may_end.release()
    assert await gathering.join(10) == 10


async def test_a_failure_is_everybody_s_of_the_group_and_of_no_other() -> None:
    work = Work()
    gathering = Gathering(work)
    first = asyncio.create_task(gathering.join(1))
    await work.begun.wait()
    group = [asyncio.create_task(gathering.join(number)) for number in (2, 0)]
    await asyncio.sleep(0)
    work.may_end.release()
    work.may_end.release()
    found = await asyncio.gather(first, *group, return_exceptions=True)
    assert found[0] == 100
    assert [type(one) for one in found[1:]] == [ZeroDivisionError, ZeroDivisionError]
    work.may_end.release()
    assert await gathering.join(50) == 2


@pytest.mark.parametrize("begun", [True, False])
async def test_when_the_one_who_leads_is_cancelled_the_others_are_told_to_come_again(begun: bool) -> None:
    work = Work()
    gathering = Gathering(work)
    first = asyncio.create_task(gathering.join(1))
    await work.begun.wait()
    leader = asyncio.create_task(gathering.join(2))
    await asyncio.sleep(0)
    follower = asyncio.create_task(gathering.join(4))
    await asyncio.sleep(0)
    if begun:
        work.begun.clear()
        work.may_end.release()
        await first
        await work.begun.wait()
    leader.cancel()
    found = await asyncio.gather(leader, follower, return_exceptions=True)
    assert [type(one) for one in found] == [asyncio.CancelledError, Unavailable]
    work.may_end.release()
    await first
    work.may_end.release()
    assert await gathering.join(25) == 4


async def test_one_who_is_cancelled_while_it_waits_for_a_leader_harms_nobody() -> None:
    work = Work()
    gathering = Gathering(work)
    first = asyncio.create_task(gathering.join(1))
    await work.begun.wait()
    group = [asyncio.create_task(gathering.join(number)) for number in (2, 4, 5)]
    await asyncio.sleep(0)
    group[1].cancel()
    work.may_end.release()
    work.may_end.release()
    found = await asyncio.gather(first, *group, return_exceptions=True)
    assert found[:2] == [100, 50]
    assert isinstance(found[2], asyncio.CancelledError)
    assert found[3] == 20
