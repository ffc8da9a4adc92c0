"""Moments at which something is to be done: one task for all of them."""

import asyncio
import heapq
from collections.abc import Callable
from itertools import count
from typing import Final

from hibernaut.clock import Clock

LONGEST_NAP: Final = 30_000
"""Milliseconds that it sleeps at most: after a suspend of the machine everything is at most so late."""

MOST_OFF: Final = 1_000
"""Alarms that were called off and are still held, unless others are as many."""


class Alarm:
    """Something that is to be done at a moment. `ring` is None once it was done or called off."""

    __slots__ = ("ring",)

    def __init__(self, ring: Callable[[], None] | None) -> None:
        self.ring = ring


class Alarms:
    """Calls functions when their moment has come, for as long as `run` runs. They must not fail, nor take long."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._order = count()
        self._heap: list[tuple[int, int, Alarm]] = []
        self._wake = asyncio.Event()
        self._off = 0

    def at(self, due: int, ring: Callable[[], None]) -> Alarm:
        """Have something done at a moment, in milliseconds since 1970."""
        alarm = Alarm(ring)
        heapq.heappush(self._heap, (due, next(self._order), alarm))
        if self._heap[0][2] is alarm:
            self._wake.set()
        return alarm

    def call_off(self, alarm: Alarm) -> None:
        """Let something not be done."""
        if alarm.ring is None:
            return
        alarm.ring = None
        self._off += 1
        if self._off > MOST_OFF and self._off > len(self._heap) // 2:
            self._heap = [entry for entry in self._heap if entry[2].ring is not None]
            heapq.heapify(self._heap)
            self._off = 0

    async def run(self) -> None:
        """Ring, until it is cancelled."""
        while True:
            self._wake.clear()
            self._ring()
            nap = asyncio.create_task(self._nap(self._heap[0][0])) if self._heap else None
            try:
                await self._wake.wait()
            finally:
                if nap is not None:
                    nap.cancel()

    def _ring(self) -> None:
        while self._heap and (self._heap[0][0] <= self._clock.now() or self._heap[0][2].ring is None):
            alarm = heapq.heappop(self._heap)[2]
            ring, alarm.ring = alarm.ring, None
            if ring is None:
                self._off -= 1
            else:
                ring()

    async def _nap(self, until: int) -> None:
        while (left := until - self._clock.now()) > 0:
            await self._clock.sleep(min(left, LONGEST_NAP))
        self._wake.set()
