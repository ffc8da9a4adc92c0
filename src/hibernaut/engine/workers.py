"""Tasks that take jobs from a queue: as many as there are jobs under way, not one for every job.

A task costs more than a short job does. So a worker that has done its job takes the next one, and jobs that never
suspend are all done by one worker; before it begins one, it sees to it that another worker follows if jobs are left, so
none ever waits for one that has suspended.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine
from contextvars import Context, copy_context
from typing import Any, Generic, TypeVar

J = TypeVar("J")

JOBS_IN_A_ROW = 32
"""Jobs that one worker does before others on the event loop have their turn."""


class Workers(Generic[J]):
    """Does jobs in the order they were put, each as if it had a task of its own. `do` is given that, too.

    A job may be cancelled through its task. A worker whose task was cancelled, or whose job has left a context variable
    behind, is not used again.
    """

    def __init__(self, tasks: asyncio.TaskGroup, do: Callable[[J, asyncio.Task[None]], Awaitable[None]]) -> None:
        self._tasks = tasks
        self._do = do
        self._jobs: deque[J] = deque()
        self._follows = False
        """A worker was called and has not begun yet: it will find what is put until then."""
        self._calling = False

    def put(self, job: J) -> None:
        """Have a job done."""
        self._jobs.append(job)
        if not self._follows:
            self._call()

    def _call(self) -> None:
        self._follows = self._calling = True
        _ = start(self._tasks, self._work())
        self._calling = False

    async def _work(self) -> None:
        if self._calling:  # tasks begin eagerly on this loop: workers would stand inside one another
            await asyncio.sleep(0)
        self._follows = False
        task, context, jobs = asyncio.current_task(), copy_context(), self._jobs
        if task is None:
            raise RuntimeError("a worker needs a task")
        for _ in range(JOBS_IN_A_ROW):
            if not jobs:
                return
            job = jobs.popleft()
            if jobs and not self._follows:
                self._call()
            await self._do(job, task)
            if task.cancelling() or not _is_untouched(context):
                return


def start(
    tasks: asyncio.TaskGroup, work: Coroutine[Any, Any, None], among: set[asyncio.Task[None]] | None = None
) -> asyncio.Task[None]:
    """Create a task; as long as it is not done it is `among` those. A group that is ending takes none.

    Raises:
        RuntimeError: the group is ending. Nothing is left of the work.
    """
    try:
        task = tasks.create_task(work)
    except RuntimeError:
        work.close()
        raise
    if among is not None:
        among.add(task)
        task.add_done_callback(among.discard)
    return task


def _is_untouched(context: Context) -> bool:
    """Tell whether the current context holds the same values as `context`; the values themselves are never asked."""
    current = copy_context()
    if len(current) != len(context):
        return False
    return not current or all(variable in context and context[variable] is value for variable, value in current.items())
