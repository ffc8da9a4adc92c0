"""What a bad network and bad neighbours do to a process: delay, reorder, repeat what is handed in, and forge more."""

import asyncio
import random
from collections.abc import Sequence

from hibernaut.clock import Clock
from hibernaut.messages.inputs import InputMessage
from hibernaut.stores.protocol import Outcome, Store
from hibernaut.testing.strangers import Strangers
from hibernaut.testing.world import World

LONGEST_DELAY = 0.004
"""Seconds for which an input is held up at most. What is under way at the same time changes places."""

OFTEN, SELDOM = 0.3, 0.1


class Disturbance:
    """Disturbs one process, as its seed says, past everything of it that can die."""

    def __init__(self, seed: str, store: Store, secret: bytes, world: World, clock: Clock) -> None:
        self._chance = random.Random(seed)  # noqa: S311  # what is drawn is to be drawn again
        self._store = store
        self._world = world
        self._clock = clock
        self._taken: list[InputMessage] = []
        self._strangers = Strangers(store, secret, world, clock, self._chance)

    async def before(self) -> None:
        """Hold up whoever hands something in."""
        if self._chance.random() < OFTEN:
            await asyncio.sleep(self._chance.uniform(0, LONGEST_DELAY))

    async def after(self, messages: Sequence[InputMessage], outcomes: Sequence[Outcome]) -> None:
        """Hand in once more what was taken, at once or later."""
        stored = (Outcome.ACCEPTED, Outcome.HELD, Outcome.DUPLICATE)
        taken = [message for message, outcome in zip(messages, outcomes, strict=True) if outcome in stored]
        self._taken += taken
        if taken and self._chance.random() < OFTEN:
            await self._repeat(taken)
        if self._taken and self._chance.random() < SELDOM:
            await self._repeat([self._chance.choice(self._taken)])
        await self.forge()

    async def forge(self) -> None:
        """Let a stranger post something, every now and then."""
        if self._chance.random() < OFTEN:
            await self._strangers.forge()

    async def at_the_end(self) -> None:
        """Hand in everything once more, when all is over, and post what is late."""
        await self._repeat(list(self._taken))  # it may become more meanwhile
        for _ in range(8):
            await self._strangers.forge()
        await self._strangers.come_late()

    async def _repeat(self, messages: Sequence[InputMessage]) -> None:
        outcomes = await self._store.put(messages, self._clock.now()) if messages else []
        for message, outcome in zip(messages, outcomes, strict=True):
            if outcome in (Outcome.ACCEPTED, Outcome.HELD):
                self._world.note("divergence", "repeat", f"{message.message_id} was taken a second time")
            else:
                self._world.note("duplicate", message.thread_id, message.message_id)
