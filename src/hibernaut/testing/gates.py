"""A place in a stream that a test holds in its hand."""

import asyncio

from hibernaut.clock import Clock


class Gate:
    """A part of a scripted turn at which the stream stands still until the test opens it.

        gate = Gate()
        model = ScriptedModel(turn("one ", "two ", gate, "three"))
        ...
        await gate.reached()    # "one " and "two " were taken, nothing more will come
        gate.open()

    It stays open: a stream that comes by later does not stop.
    """

    def __init__(self) -> None:
        self._reached = asyncio.Event()
        self._opened = asyncio.Event()

    async def reached(self) -> None:
        """Return when a stream stands at the gate, or has passed it."""
        await self._reached.wait()

    def open(self) -> None:
        """Let the stream go on."""
        self._opened.set()

    async def pause(self, _clock: Clock, /) -> None:
        """Stand still until the gate is open."""
        self._reached.set()
        await self._opened.wait()
