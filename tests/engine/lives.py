"""A system that lives, ends or is killed, and begins again on the same store."""

import asyncio
from abc import ABC, abstractmethod
from contextlib import suppress

from hibernaut.stores.protocol import DEAD_AFTER
from hibernaut.system import AgentSystem
from hibernaut.testing.clock import ManualClock
from tests.engine.scenario import SECOND, MortalStore, settle


class Lives(ABC):
    """One process after the other. `make_system` puts a fresh `MortalStore` into `mortal` for each."""

    clock: ManualClock
    mortal: MortalStore
    system: AgentSystem
    _life: asyncio.Task[None]
    _end: asyncio.Event

    @abstractmethod
    def make_system(self) -> AgentSystem:
        """Return the system of the next process, not begun."""
        ...

    async def pause(self) -> None:
        """Let the process go on for a while."""
        await settle()

    async def begin(self) -> None:
        """Begin the next process."""
        self.system, self._end = self.make_system(), asyncio.Event()
        runs = asyncio.Event()

        async def live() -> None:
            with suppress(BaseExceptionGroup):
                async with self.system:
                    runs.set()
                    await self._end.wait()

        self._life = asyncio.create_task(live())
        await runs.wait()

    async def end(self, *, gracefully: bool) -> None:
        """End the process; one that is killed counts as dead afterwards."""
        if gracefully:
            self._end.set()
        else:
            self.mortal.kill()
            self._life.cancel()
        while not self._life.done():
            self.clock.advance(SECOND)
            await self.pause()
        await asyncio.wait([self._life])
        self.clock.advance(0 if gracefully else DEAD_AFTER)
