"""The one thread that has a server's state file, and its group commit.

Whatever waits when the thread is free is done in one transaction, so that all of it costs one sync of the disk. Nobody
hears of success before it is durable. A piece of work that fails is undone and fails alone.
"""

import asyncio
from collections.abc import Callable
from queue import Empty, SimpleQueue
from threading import Thread
from typing import Any, Final, TypeVar

import apsw

from hibernaut.errors import StoreBusy
from hibernaut.stores.sqlite.failures import translate

MOST_TOGETHER: Final = 256
"""Pieces of work in one transaction."""

T = TypeVar("T")


class _Job:
    __slots__ = ("error", "future", "result", "work")

    def __init__(self, work: Callable[[apsw.Connection], Any], future: "asyncio.Future[Any]") -> None:
        self.work = work
        self.future = future
        self.result: Any = None
        self.error: Exception | None = None


class Transactions:
    """Does work on a file, in the order it comes. Belongs to the event loop on which it was made."""

    def __init__(self, path: str, set_up: Callable[[apsw.Connection], None]) -> None:
        """Open the file in the thread, which then sets the connection up; `opened` says when that is done."""
        self._path = path
        self._set_up = set_up
        self._loop = asyncio.get_running_loop()
        self._opened: asyncio.Future[None] = self._loop.create_future()
        self._ended: asyncio.Future[None] = self._loop.create_future()
        self._jobs: SimpleQueue[_Job | None] = SimpleQueue()
        self._thread = Thread(target=self._run, name=f"hibernaut-kit {path}", daemon=True)
        self._thread.start()

    async def opened(self) -> None:
        """Return when the file is open.

        Raises:
            StoreBusy: another process has it. StoreError: it cannot be had, or what sets it up refuses it.
        """
        await self._opened

    async def run(self, work: Callable[[apsw.Connection], T]) -> T:
        """Do work in a transaction, and return what it returned once that is durable.

        It is done even if its caller is cancelled meanwhile: what a function did is written down.

        Raises:
            StoreError: it was not done.
        """
        future: asyncio.Future[T] = self._loop.create_future()
        self._jobs.put(_Job(work, future))
        return await future

    async def close(self) -> None:
        """Do what still waits, and close the file."""
        self._jobs.put(None)
        await self._ended
        self._thread.join()

    # The thread

    def _run(self) -> None:
        connection: apsw.Connection | None = None
        opening = _Job(self._set_up, self._opened)
        try:
            connection = apsw.Connection(self._path)
            self._set_up(connection)
        except Exception as error:  # noqa: BLE001  # it is handed to whoever waits for the file
            opening.error = self._translated(error)
        self._tell([opening])
        closing = False
        while not closing:
            jobs, closing = self._collect()
            if jobs and connection is not None:
                self._transact(connection, jobs)
            self._tell(jobs)
        if connection is not None:
            connection.close(force=True)
        self._tell([_Job(self._set_up, self._ended)])

    def _collect(self) -> tuple[list[_Job], bool]:
        jobs: list[_Job] = []
        job = self._jobs.get()
        try:
            while job is not None:
                jobs.append(job)
                if len(jobs) == MOST_TOGETHER:
                    return jobs, False
                job = self._jobs.get_nowait()
        except Empty:
            return jobs, False
        return jobs, True

    def _transact(self, connection: apsw.Connection, jobs: list[_Job]) -> None:
        try:
            with connection:
                for job in jobs:
                    self._attempt(connection, job)
        except Exception as error:  # noqa: BLE001  # it is handed to everybody whose work it was
            for job in jobs:
                job.error = job.error or self._translated(error)

    def _attempt(self, connection: apsw.Connection, job: _Job) -> None:
        try:
            with connection:  # within a transaction it is a savepoint
                job.result = job.work(connection)
        except Exception as error:  # noqa: BLE001  # it is handed to whoever's work it was
            job.error = self._translated(error)

    def _translated(self, error: Exception) -> Exception:
        problem = translate(error, self._path)
        if isinstance(problem, StoreBusy):
            problem = StoreBusy(f"the state {self._path} is held by another process: stop it, or name another file")
        problem.__cause__ = error if problem is not error else error.__cause__
        return problem

    def _tell(self, jobs: list[_Job]) -> None:
        try:
            self._loop.call_soon_threadsafe(_resolve, jobs)
        except RuntimeError:  # the loop is closed: nobody waits any more
            return


def _resolve(jobs: list[_Job]) -> None:
    for job in jobs:
        if job.future.done():
            continue
        if job.error is None:
            job.future.set_result(job.result)
        else:
            job.future.set_exception(job.error)
