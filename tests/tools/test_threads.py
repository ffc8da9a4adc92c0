"""Threads for functions that block."""

import asyncio
import contextvars
import threading

import pytest

from hibernaut.tools.threads import Threads
from tests.engine.scenario import run


def test_what_a_function_returns_or_raises_comes_back() -> None:
    def fail() -> int:
        raise LookupError("bad")

    async def scenario() -> None:
        threads = Threads()
        assert await threads.run(lambda: 42) == 42
        with pytest.raises(LookupError, match="bad"):
            await threads.run(fail)

    run(scenario)


def test_a_function_sees_the_context_of_its_caller() -> None:
    word = contextvars.ContextVar("word", default="")

    async def scenario() -> None:
        word.set("here")
        assert await Threads().run(word.get) == "here"

    run(scenario)


def test_no_more_run_at_once_than_may_and_one_that_nobody_waits_for_counts_until_it_ends() -> None:
    gate, entered = threading.Event(), threading.Semaphore(0)

    def wait() -> None:
        entered.release()
        gate.wait()

    async def scenario() -> None:
        threads = Threads(most=2)
        waiting = [asyncio.create_task(threads.run(wait)) for _ in range(3)]
        for _ in range(2):
            await asyncio.to_thread(entered.acquire)
        for task in waiting[:2]:
            task.cancel()
        await asyncio.wait(waiting[:2])
        assert not entered.acquire(blocking=False)
        gate.set()
        await waiting[2]
        assert entered.acquire(blocking=False)

    run(scenario)
