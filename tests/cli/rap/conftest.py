"""A tool server that runs beside the command, on a thread of its own."""

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from tests.rap.check.tool_server import ToolServer


@contextmanager
def beside(*faults: str) -> Iterator[ToolServer]:
    server = ToolServer(*faults)
    started = threading.Event()
    ended: list[Callable[[], object]] = []

    async def run() -> None:
        over = asyncio.Event()
        loop = asyncio.get_running_loop()
        ended.append(lambda: loop.call_soon_threadsafe(over.set))
        async with server.running():
            started.set()
            await over.wait()

    thread = threading.Thread(target=asyncio.run, args=(run(),))
    thread.start()
    assert started.wait(10)
    try:
        yield server
    finally:
        ended[0]()
        thread.join()


@pytest.fixture(scope="package")
def server() -> Iterator[ToolServer]:
    """One that is as it must be."""
    with beside() as there:
        yield there
