"""Jobs, and the tasks that do them."""

import asyncio
import sys
from collections.abc import Awaitable, Callable
from contextvars import ContextVar

import pytest

from hibernaut.engine.workers import JOBS_IN_A_ROW, Workers

mark: ContextVar[str] = ContextVar("mark", default="none")


async def do_all(count: int, job: Callable[[int, asyncio.Task[None]], Awaitable[None]]) -> None:
    async with asyncio.TaskGroup() as group:
        workers = Workers(group, job)
        for number in range(count):
            workers.put(number)


def test_jobs_that_never_suspend_are_done_in_order_by_few_tasks() -> None:
    done: list[int] = []
    tasks: set[object] = set()

    async def job(number: int, _task: asyncio.Task[None]) -> None:
        done.append(number)
        tasks.add(asyncio.current_task())

    asyncio.run(do_all(10 * JOBS_IN_A_ROW, job))

    assert done == list(range(10 * JOBS_IN_A_ROW))
    assert len(tasks) == 10


@pytest.mark.skipif(sys.version_info < (3, 12), reason="there are no eager tasks")
def test_jobs_are_done_in_order_where_tasks_begin_eagerly() -> None:
    done: list[int] = []

    async def job(number: int, _task: asyncio.Task[None]) -> None:
        done.append(number)

    async def scenario() -> None:
        asyncio.get_running_loop().set_task_factory(asyncio.eager_task_factory)  # type: ignore[attr-defined, unused-ignore]
        await do_all(2_000, job)

    asyncio.run(scenario())

    assert done == list(range(2_000))


def test_no_job_waits_for_one_that_has_suspended() -> None:
    begun: list[int] = []

    async def job(number: int, _task: asyncio.Task[None]) -> None:
        begun.append(number)
        if len(begun) == 100:
            everybody.set()
        await everybody.wait()

    async def scenario() -> None:
        async with asyncio.timeout(5):
            await do_all(100, job)

    everybody = asyncio.Event()
    asyncio.run(scenario())

    assert begun == list(range(100))


def test_others_have_their_turn_between_the_jobs() -> None:
    done: list[str] = []

    async def job(number: int, _task: asyncio.Task[None]) -> None:
        done.append(f"job {number}")

    async def scenario() -> None:
        async with asyncio.TaskGroup() as group:
            workers = Workers(group, job)
            for number in range(2 * JOBS_IN_A_ROW):
                workers.put(number)
            await asyncio.sleep(0)
            done.append("somebody else")

    asyncio.run(scenario())

    assert done.index("somebody else") == JOBS_IN_A_ROW


def test_what_a_job_leaves_in_a_context_variable_no_other_job_sees() -> None:
    seen: list[str] = []

    async def job(number: int, _task: asyncio.Task[None]) -> None:
        seen.append(mark.get())
        mark.set(f"job {number}")
        await asyncio.sleep(0)

    asyncio.run(do_all(3, job))

    assert seen == ["none", "none", "none"]


def test_a_context_variable_whose_value_refuses_to_be_compared_harms_no_other_job() -> None:
    class Odd:
        def __eq__(self, _other: object) -> bool:
            raise TypeError

        __hash__ = None  # type: ignore[assignment]

    odd: ContextVar[object] = ContextVar("odd", default=None)
    seen: list[object] = []

    async def job(_number: int, _task: asyncio.Task[None]) -> None:
        seen.append(odd.get())
        odd.set(Odd())

    async def scenario() -> None:
        odd.set(before)
        await do_all(3, job)

    before = Odd()
    asyncio.run(scenario())

    assert [one is before for one in seen] == [True, True, True]


def test_a_job_that_is_cancelled_takes_no_other_with_it() -> None:
    done: list[int] = []
    tasks: dict[int, asyncio.Task[None] | None] = {}

    async def job(number: int, _task: asyncio.Task[None]) -> None:
        tasks[number] = asyncio.current_task()
        if number == 1:
            await asyncio.Event().wait()
        done.append(number)

    async def scenario() -> None:
        async with asyncio.TaskGroup() as group:
            workers = Workers(group, job)
            for number in range(3):
                workers.put(number)
            await asyncio.sleep(0)
            workers.put(3)
            assert tasks[1] is not None
            tasks[1].cancel()

    asyncio.run(scenario())

    assert done == [0, 2, 3]


def test_a_job_that_swallows_its_cancellation_does_not_leave_it_to_the_next() -> None:
    cancelling: list[int] = []

    async def job(number: int, _task: asyncio.Task[None]) -> None:
        task = asyncio.current_task()
        assert task is not None
        cancelling.append(task.cancelling())
        if number == 0:
            asyncio.get_running_loop().call_soon(task.cancel)
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                workers[0].put(1)

    workers: list[Workers[int]] = []

    async def scenario() -> None:
        async with asyncio.TaskGroup() as group:
            workers.append(Workers(group, job))
            workers[0].put(0)

    asyncio.run(scenario())

    assert cancelling == [0, 0]
