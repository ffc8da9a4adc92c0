"""Time and names that a test holds in its hand."""

import asyncio
import heapq
from itertools import count


class ManualClock:
    """A clock that stands still until it is advanced. Sleepers wake in the order of their moments."""

    def __init__(self, start: int = 1_700_000_000_000) -> None:
        self._now = start
        self._order = count()
        self._sleepers: list[tuple[int, int, asyncio.Future[None]]] = []

    def now(self) -> int:
        """Return the present moment in milliseconds since 1970."""
        return self._now

    async def sleep(self, milliseconds: int) -> None:
        """Return when the clock has been advanced by that much."""
        if milliseconds <= 0:
            await asyncio.sleep(0)
            return
        wake: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heapq.heappush(self._sleepers, (self._now + milliseconds, next(self._order), wake))
        await wake

    def advance(self, milliseconds: int) -> None:
        """Let time pass, at once: everybody whose moment has come wakes."""
        self._now += milliseconds
        while self._sleepers and self._sleepers[0][0] <= self._now:
            wake = heapq.heappop(self._sleepers)[2]
            if not wake.done():
                wake.set_result(None)


class SequentialIds:
    """Names that count: the same run draws the same ones."""

    def __init__(self) -> None:
        self._count = count(1)

    def new(self, prefix: str) -> str:
        """Return the next name."""
        return f"{prefix}_{next(self._count):06d}"

    def salt(self) -> bytes:
        """Return the next 8 bytes."""
        return next(self._count).to_bytes(8, "big")
