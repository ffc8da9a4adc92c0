"""The one thread of a store that only reads, so that a long read never holds up a write."""

import asyncio
import logging
import random
import time
from collections.abc import Callable
from queue import SimpleQueue
from threading import Thread
from typing import Any, TypeVar

import apsw

from hibernaut.stores.sqlite.failures import translate
from hibernaut.stores.sqlite.transaction import Transaction

logger = logging.getLogger(__name__)

T = TypeVar("T")


class Reader:
    """Runs reads, one after the other, each in a transaction. It belongs to the event loop on which it was made."""

    def __init__(self, connection: apsw.Connection, path: str, busy_timeout: float) -> None:
        self._connection = connection
        self._path = path
        self._busy_timeout = busy_timeout
        self._loop = asyncio.get_running_loop()
        self._ended: asyncio.Future[None] = self._loop.create_future()
        self._queue: SimpleQueue[tuple[Callable[[Transaction], Any], asyncio.Future[Any]] | None] = SimpleQueue()
        self._deadline = 0.0
        self._transaction = Transaction(connection)
        self._execute = connection.cursor().execute
        connection.set_busy_handler(self._wait_for_lock)
        self._thread = Thread(target=self._run, name=f"hibernaut-reader {path}", daemon=True)
        self._thread.start()

    def submit(self, read: Callable[[Transaction], T]) -> "asyncio.Future[T]":
        """Queue a read."""
        future: asyncio.Future[T] = self._loop.create_future()
        self._queue.put((read, future))
        return future

    async def close(self) -> None:
        """Finish what is queued, and end."""
        self._queue.put(None)
        await self._ended
        self._thread.join()

    def _run(self) -> None:
        while (asked := self._queue.get()) is not None:
            read, future = asked
            if not future.cancelled():
                self._on_loop(_resolve, future, *self._answer(read))
        self._connection.close(force=True)
        self._on_loop(_resolve, self._ended, None, None)

    def _answer(self, read: Callable[[Transaction], Any]) -> tuple[Any, Exception | None]:
        self._deadline = time.monotonic() + self._busy_timeout
        try:
            self._execute("BEGIN")
            try:
                return read(self._transaction), None
            finally:
                if self._connection.in_transaction:
                    self._execute("ROLLBACK")
        except Exception as error:  # noqa: BLE001 - it is handed to whoever asked
            return None, translate(error, self._path, self._connection.system_errno)

    def _on_loop(self, callback: Callable[..., object], *arguments: object) -> None:
        try:
            self._loop.call_soon_threadsafe(callback, *arguments)
        except RuntimeError:  # the loop is closed: nobody waits any more
            logger.debug("the event loop of the store %s ended before the store was closed", self._path)

    def _wait_for_lock(self, _attempts: int) -> bool:
        if time.monotonic() >= self._deadline:
            return False
        time.sleep(random.uniform(0.001, 0.005))  # noqa: S311 - so that waiters do not march in step
        return True


def _resolve(future: "asyncio.Future[Any]", result: Any, error: Exception | None) -> None:
    if future.cancelled():
        return
    if error is None:
        future.set_result(result)
    else:
        future.set_exception(error)
