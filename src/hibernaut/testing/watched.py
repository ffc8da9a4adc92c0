"""The store of a process under test: it says when something moved, and notes what was accepted and what was not."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar

from hibernaut.kernel.commit import NewThread
from hibernaut.messages.inputs import InputMessage
from hibernaut.stores.protocol import Outcome, Store
from hibernaut.testing.disturbing import Disturbance
from hibernaut.testing.faults import FaultPlan, FaultyStore
from hibernaut.testing.world import World

T = TypeVar("T")

ACCEPTED = (Outcome.ACCEPTED, Outcome.HELD)


class WatchedStore(FaultyStore):
    """A `FaultyStore` that tells its world what it sees."""

    def __init__(self, inner: Store, plan: FaultPlan, world: World) -> None:
        super().__init__(inner, plan)
        self.moved = asyncio.Event()
        """Set whenever something may have changed."""
        self.disturbing: Disturbance | None = None
        self._world = world
        self._began = time.monotonic()
        self._resumed = False

    def stood_still(self) -> None:
        """Hear that the process stood still, so that the time to its first commit tells nothing."""
        self._resumed = True

    async def create(
        self, threads: Sequence[NewThread], messages: Sequence[InputMessage], now: int, **more: Any
    ) -> list[Outcome]:
        outcomes = await super().create(threads, messages, now, **more)
        await self._handed_in(messages, outcomes)
        return outcomes

    async def put(self, messages: Sequence[InputMessage], now: int, **more: Any) -> list[Outcome]:
        if self.disturbing is not None:
            await self.disturbing.before()
        outcomes = await super().put(messages, now, **more)
        await self._handed_in(messages, outcomes)
        return outcomes

    async def _handed_in(self, messages: Sequence[InputMessage], outcomes: Sequence[Outcome]) -> None:
        for message, outcome in zip(messages, outcomes, strict=True):
            if outcome in ACCEPTED:
                self._world.note("accepted", message.thread_id, message.message_id)
            elif outcome is Outcome.DUPLICATE:
                self._world.note("duplicate", message.thread_id, message.message_id)
        if self.disturbing is not None:
            await self.disturbing.after(messages, outcomes)

    async def _perform(self, name: str, operation: Callable[[], Awaitable[T]]) -> T:
        try:
            result = await super()._perform(name, operation)
        finally:
            self.moved.set()
        self._look(name, result)
        if name == "commit" and self.disturbing is not None:
            await self.disturbing.forge()
        return result

    def _look(self, name: str, result: Any) -> None:
        if name == "adopt_effects" and result:
            self._world.note("adopted", str(len(result)))
        elif name == "commit" and not self._resumed:
            self._resumed = True
            self._world.note("resumed", f"{(time.monotonic() - self._began) * 1_000:.1f}")
