"""Time, passed in. Everywhere in Hibernaut a moment is an integer: milliseconds since 1970, UTC."""

import asyncio
import time
from typing import Protocol


class Clock(Protocol):
    """Tells the time and lets it pass."""

    def now(self) -> int:
        """Return the present moment in milliseconds since 1970."""
        ...

    async def sleep(self, milliseconds: int) -> None:
        """Return when that much time has passed on this clock."""
        ...


class SystemClock:
    """The wall clock of this machine."""

    def now(self) -> int:
        """Return the present moment in milliseconds since 1970."""
        return time.time_ns() // 1_000_000

    async def sleep(self, milliseconds: int) -> None:
        """Sleep without holding anything up."""
        await asyncio.sleep(milliseconds / 1000)
