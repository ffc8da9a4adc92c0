"""The one thread of a store that writes, and its group commit.

Whatever is waiting when the thread is free is written in one transaction: it costs one sync of the disk for all of it.
What is alike (messages of many senders, say) is done at once.
Nobody hears of success before the transaction is durable. A piece of work that fails before it wrote fails alone; if
one fails later, or the transaction does, everything is rolled back and each is tried again by itself. A crash at any
point leaves the transactions before it whole, and nothing of the one under way.
"""

import asyncio
import logging
import os
import random
import time
from collections.abc import Callable, Sequence
from itertools import groupby
from queue import Empty, SimpleQueue
from threading import Thread
from typing import Any, Generic, TypeVar

import apsw

from hibernaut.errors import StoreBusy, StoreError, StoreFull
from hibernaut.stores.sqlite.failures import translate
from hibernaut.stores.sqlite.transaction import Transaction

logger = logging.getLogger(__name__)

GROUP = 512
"""Pieces of work in one transaction, at most: it bounds how long others wait for the lock."""

CHECKPOINT_PAGES = 2_000
"""Pages in the write-ahead log from which on they are brought into the main file (8 MB). The same pages are written
again and again; the longer the log, the fewer of those are brought in, but the longer others wait meanwhile."""

CROWDED_PAGES = 2 * CHECKPOINT_PAGES
"""Pages from which on other processes are kept out meanwhile; while they write, the log never begins anew otherwise."""

RESTING_ROWS = 500
"""Rows that were changed from here since the log was cut last, from which on it is when nothing goes on here. What
others have written is theirs to bring in."""

CROWDED_WAIT = 0.05
"""Seconds that such a checkpoint waits for others, at most."""

CHECKPOINT_AGAIN = 1.0
"""Seconds after which a checkpoint that a reader cut short is tried again, even if nothing is written."""

LEAST_WAIT = 0.1
"""Seconds that a transaction waits for the lock, however long its work has been waiting already."""

SHORT_PAUSES = (0.0002, 0.001)
"""Seconds between two tries to get the lock. Random, so that waiters do not march in step; they do not grow with every
try, so that whoever came first has no worse a chance."""

LONG_PAUSES = (0.002, 0.01)
"""The same after `MANY_TRIES`: somebody holds the lock for long."""

MANY_TRIES = 200

A = TypeVar("A")
T = TypeVar("T")

Hint = Callable[[str, int], None]


class Part(Generic[A, T]):
    """Work that can be done at once with its like: `do` gets what all of them are about, and returns a result each."""

    __slots__ = ("about", "do")

    def __init__(self, do: Callable[[Transaction, Sequence[A]], Sequence[T]], about: A) -> None:
        self.do = do
        self.about = about


def _bring_in(_: Transaction) -> None:
    """Stand for bringing the log into the main file, which is done in no transaction."""


class _Job:
    __slots__ = ("abandoned", "error", "future", "result", "since", "work", "writes")

    def __init__(
        self,
        work: Callable[[Transaction], Any] | Part[Any, Any],
        future: "asyncio.Future[Any]",
        abandoned: Callable[[Any], None] | None,
        *,
        writes: bool,
    ) -> None:
        self.work = work
        self.future = future
        self.abandoned = abandoned
        self.writes = writes
        self.since = time.monotonic()
        self.result: Any = None
        self.error: Exception | None = None


class Writer:
    """Runs pieces of work in groups. Belongs to the event loop on which it was made."""

    def __init__(
        self, connection: apsw.Connection, path: str, busy_timeout: float, tell: Hint, *, compress: bool = False
    ) -> None:
        self.transactions = 0
        """Transactions made durable."""
        self._connection = connection
        self._path = path
        self._busy_timeout = busy_timeout
        self._tell = tell
        self._loop = asyncio.get_running_loop()
        self._queue: SimpleQueue[_Job | None] = SimpleQueue()
        self._ended: asyncio.Future[None] = self._loop.create_future()
        self._transaction = Transaction(connection, compress=compress)
        self._execute = connection.cursor().execute
        self._file = _identity(path)
        self._closing = False
        self._deadline = 0.0
        self._pages = 0
        self._checkpoint_at = CHECKPOINT_PAGES
        self._behind = False
        self._changed = self._cut = 0
        """Rows that were changed from here, up to now and when the log was cut last."""
        connection.set_busy_handler(self._wait_for_lock)
        connection.set_wal_hook(self._note_pages)
        self._thread = Thread(target=self._run, name=f"hibernaut-writer {path}", daemon=True)
        self._thread.start()

    def submit(
        self,
        work: Callable[[Transaction], T] | Part[Any, T],
        *,
        writes: bool = True,
        abandoned: Callable[[T], None] | None = None,
    ) -> "asyncio.Future[T]":
        """Queue a piece of work; `abandoned` gets its result if nobody waits for it any more."""
        job = _Job(work, self._loop.create_future(), abandoned, writes=writes)
        self._queue.put(job)
        return job.future

    async def rest(self) -> None:
        """Bring a log that has grown into the main file, and cut it: nothing goes on."""
        if self._changed - self._cut >= RESTING_ROWS:
            await self.submit(_bring_in, writes=False)

    async def close(self) -> None:
        """Finish what is queued, bring it into the main file, and end."""
        self._queue.put(None)
        await self._ended
        self._thread.join()

    # The thread

    def _run(self) -> None:
        left: list[_Job] = []
        while not self._closing or left:
            jobs = self._collect(left)
            rests = [job for job in jobs if job.work is _bring_in]
            try:
                work = [job for job in jobs if job.work is not _bring_in] if rests else jobs
                left = self._perform(work) if work else []
                if self._pages >= self._checkpoint_at or rests or not work:
                    self._checkpoint(thorough=bool(rests) or not work)
                if rests:
                    self._on_loop(_resolve, rests, (), self._tell)
            except Exception as error:
                logger.exception("the writer of the store %s failed, and goes on", self._path)
                left = []
                for job in jobs:
                    job.error = error
                self._on_loop(_resolve, jobs, (), self._tell)
        self._checkpoint(thorough=True)
        self._connection.close(force=True)
        self._on_loop(_end, self._ended)

    def _collect(self, jobs: list[_Job]) -> list[_Job]:
        """Wait for work, unless some is left; return it with all that has come meanwhile."""
        get, append = self._queue.get_nowait, jobs.append
        try:
            job = get() if jobs else self._queue.get(timeout=CHECKPOINT_AGAIN if self._behind else None)
            while job is not None:
                append(job)
                if len(jobs) >= GROUP:
                    return jobs
                job = get()
            self._closing = True
        except Empty:
            pass
        return jobs

    def _perform(self, jobs: list[_Job]) -> list[_Job]:
        """Perform a group and tell everybody; return those who may wait for the lock a while longer."""
        try:
            self._transact(jobs)
        except StoreBusy as busy:
            late = time.monotonic() - self._busy_timeout
            failed = [job for job in jobs if job.since <= late] or jobs[:1]
            for job in failed:
                job.error = StoreBusy(str(busy))
            self._resolve(failed)
            return [job for job in jobs if job.error is None]
        except StoreFull as error:
            self._checkpoint(thorough=True)  # what the log gives back may be enough
            self._one_by_one(jobs, error)
        except Exception as error:  # noqa: BLE001 - it is handed to everybody whose work it was
            self._one_by_one(jobs, error)
        self._resolve(jobs)
        return []

    def _transact(self, jobs: Sequence[_Job]) -> None:
        """Perform a group in one transaction.

        Raises:
            StoreBusy: the lock was not to be had. Nothing was done.
            Exception: it failed as a whole and was rolled back.
        """
        self._transaction.hints.clear()
        try:
            self._begin(jobs)
            for _, alike in groupby(jobs, _kind):
                self._attempt(list(alike))
            self._check_place()
            self._execute("COMMIT")
        except Exception as error:
            problem = translate(error, self._path, self._connection.system_errno)
            self._roll_back()
            if problem is error:
                raise
            raise problem from error
        self.transactions += 1
        self._changed = self._connection.total_changes()

    def _begin(self, jobs: Sequence[_Job]) -> None:
        self._deadline = max(jobs[0].since + self._busy_timeout, time.monotonic() + LEAST_WAIT)
        self._execute("BEGIN IMMEDIATE" if any(job.writes for job in jobs) else "BEGIN")

    def _check_place(self) -> None:
        """Make sure that what is committed will be found: a file that was removed while open takes everything along."""
        if _identity(self._path) != self._file:
            raise StoreError(f"{self._path} was removed or replaced while it was open; put it back, or open it anew")

    def _attempt(self, jobs: Sequence[_Job]) -> None:
        """Do one piece of work, or several that are alike; if one fails before it wrote, that is its own affair."""
        connection, hints = self._connection, self._transaction.hints
        written, hinted = connection.total_changes(), len(hints)
        for job in jobs:
            job.result = job.error = None
        try:
            results = _do(jobs, self._transaction)
        except Exception as error:
            if len(jobs) > 1 or connection.total_changes() != written or not connection.in_transaction:
                raise
            jobs[0].error = translate(error, self._path, connection.system_errno)
            if isinstance(jobs[0].error, StoreFull):
                raise
            del hints[hinted:]
        else:
            for job, result in zip(jobs, results, strict=True):
                job.result = result

    def _roll_back(self) -> None:
        if self._connection.in_transaction:
            try:
                self._execute("ROLLBACK")
            except apsw.Error:
                logger.exception("a transaction on the store %s could not be rolled back", self._path)

    def _one_by_one(self, jobs: Sequence[_Job], error: Exception) -> None:
        """After a group has failed: try each alone, unless it was alone and nothing has changed since."""
        if len(jobs) == 1 and not isinstance(error, StoreFull):
            jobs[0].result, jobs[0].error = None, error
            return
        hints: list[tuple[str, int]] = []
        for job in jobs:
            try:
                self._transact([job])
                hints += self._transaction.hints
            except Exception as problem:  # noqa: BLE001 - it is handed to whoever's work it was
                job.result, job.error = None, problem
        self._transaction.hints[:] = hints

    def _resolve(self, jobs: Sequence[_Job]) -> None:
        self._on_loop(_resolve, jobs, self._transaction.hints.copy(), self._tell)

    def _on_loop(self, callback: Callable[..., object], *arguments: object) -> None:
        try:
            self._loop.call_soon_threadsafe(callback, *arguments)
        except RuntimeError:  # the loop is closed: nobody waits any more
            logger.debug("the event loop of the store %s ended before the store was closed", self._path)

    # Waiting for the lock, and keeping the log short

    def _wait_for_lock(self, tries: int) -> bool:
        if time.monotonic() >= self._deadline:
            return False
        pauses = SHORT_PAUSES if tries < MANY_TRIES else LONG_PAUSES
        time.sleep(random.uniform(*pauses))  # noqa: S311 - nobody is kept from guessing it
        return True

    def _note_pages(self, _connection: apsw.Connection, _name: str, pages: int) -> int:
        if pages < self._pages:  # the log began anew
            self._checkpoint_at = CHECKPOINT_PAGES
        self._pages = pages
        return apsw.SQLITE_OK

    def _checkpoint(self, *, thorough: bool) -> None:
        """Bring the log into the main file, as far as readers let us; a full one begins anew with the next write."""
        self._deadline = time.monotonic() + CROWDED_WAIT
        pages, done = self._pages, 0
        try:
            pages, done = self._connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)
            # While a reader keeps a part of it from being brought in, keeping out the others would not help.
            if done == pages and (thorough or pages >= CROWDED_PAGES):
                pages, done = self._connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
                self._pages, self._cut = pages, self._changed
        except apsw.Error as error:
            logger.debug("the log of the store %s could not be brought in now: %s", self._path, error)
        self._behind = done < pages
        self._checkpoint_at = self._pages + CHECKPOINT_PAGES


def _kind(job: _Job) -> object:
    return job.work.do if isinstance(job.work, Part) else job


def _do(jobs: Sequence[_Job], transaction: Transaction) -> Sequence[Any]:
    work = jobs[0].work
    if not isinstance(work, Part):
        return [work(transaction)]
    return work.do(transaction, [job.work.about for job in jobs if isinstance(job.work, Part)])


def _identity(path: str) -> tuple[int, int]:
    try:
        status = os.stat(path)  # noqa: PTH116 - once per transaction; a Path costs more than the look
    except FileNotFoundError:
        return 0, 0
    return status.st_dev, status.st_ino


def _resolve(jobs: Sequence[_Job], hints: Sequence[tuple[str, int]], tell: Hint) -> None:
    """Tell everybody what became of their work; runs on the event loop."""
    for job in jobs:
        future = job.future
        if future.cancelled():
            if job.abandoned is not None and job.error is None:
                job.abandoned(job.result)
        elif future.done():
            continue
        elif job.error is None:
            future.set_result(job.result)
        else:
            future.set_exception(job.error)
    for thread_id, urgency in hints:
        tell(thread_id, urgency)


def _end(ended: "asyncio.Future[None]") -> None:
    if not ended.done():
        ended.set_result(None)
