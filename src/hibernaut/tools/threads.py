"""Threads for functions that block.

A function that never returns holds nothing up, not even the end of the process: its thread is a daemon. Its caller may
be cancelled at any time, and then nobody hears of the result.
"""

import asyncio
import contextvars
import threading
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

MOST_THREADS = 256
"""Functions that run at the same time, those that nobody waits for any more included; others wait their turn."""


class Threads:
    """Runs functions, each in a thread of its own."""

    def __init__(self, most: int = MOST_THREADS) -> None:
        self._free = asyncio.Semaphore(most)

    async def run(self, function: Callable[[], T]) -> T:
        """Return what a function returns, or raise what it raises."""
        await self._free.acquire()
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()
        context = contextvars.copy_context()

        def resolve(result: T | None, error: BaseException | None) -> None:
            self._free.release()
            if future.cancelled():
                return
            if error is not None:
                future.set_exception(error)
            else:
                future.set_result(result)  # type: ignore[arg-type]  # without an error it is what the function returned

        def work() -> None:
            result: T | None = None
            error: BaseException | None = None
            try:
                result = context.run(function)
            except StopIteration as raised:  # a future takes it for the end of its own generator
                error = RuntimeError(f"the function raised StopIteration: {raised}")
            except BaseException as raised:  # noqa: BLE001  # it is raised where it is waited for
                error = raised
            try:
                loop.call_soon_threadsafe(resolve, result, error)
            except RuntimeError:
                return  # the loop has ended: nobody waits

        threading.Thread(target=work, name="hibernaut-tool", daemon=True).start()
        return await future
