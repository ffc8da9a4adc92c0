"""Commands that run until they are told to stop."""

import asyncio
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager

SAME_PRESS = 0.5
"""Seconds in which a second signal is the first one again: a program that started us may pass it on, too."""


@contextmanager
def stop_signals() -> Iterator[asyncio.Event]:
    """Give an event that the first signal sets; a second one ends the process, which loses nothing."""
    loop = asyncio.get_running_loop()
    stopping = asyncio.Event()
    since = 0.0

    def stop(number: int) -> None:
        nonlocal since
        if not stopping.is_set():
            since = loop.time()
            stopping.set()
        elif loop.time() - since > SAME_PRESS:
            sys.stdout.flush()
            os._exit(128 + number)

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop, number)
    try:
        yield stopping
    finally:
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.remove_signal_handler(number)
