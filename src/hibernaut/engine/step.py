"""The serverless face: a batch of messages in, outcomes out, nothing kept.

A step drives the threads that its messages are for until they rest: their slices run, the function tools that they call
are worked on inside the step, and what stays open (deferred calls, timers) is only rows in the store when it returns.
"""

import asyncio
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import msgspec

from hibernaut.clock import Clock
from hibernaut.engine.core import Engine
from hibernaut.engine.interruptions import LOOK_EVERY, Interruptions
from hibernaut.engine.live import LiveFeed
from hibernaut.engine.servers import Remote
from hibernaut.errors import StoreError
from hibernaut.kernel.commit import Blob
from hibernaut.messages.inputs import InputMessage
from hibernaut.metrics import Metrics
from hibernaut.models.protocol import ModelSource
from hibernaut.stores.protocol import Outcome, Owner, Store
from hibernaut.tools.tool import AnyTool

if TYPE_CHECKING:
    from hibernaut.engine.traces import Traces

MAX_SLICES_AT_ONCE = 64
"""Slices of one step that run at the same time."""


class StepResult(msgspec.Struct, frozen=True):
    """What a step did."""

    outcomes: tuple[Outcome, ...]
    """What the door said to each message, in their order."""
    completions: int
    """Turns that were completed."""
    next_due: int | None
    """When the next thread of this store becomes ready by time alone (milliseconds since 1970): call again then."""


class StepEngine:
    """Runs steps. It holds nothing between them, so any process can run the next one.

    With `tenant`, it runs the threads of that tenant and leaves all others alone.
    """

    def __init__(
        self,
        store: Store,
        tools: Mapping[str, AnyTool],
        models: ModelSource,
        feed: LiveFeed,
        clock: Clock,
        remote: Remote | None = None,
        tenant: str | None = None,
        metrics: Metrics | None = None,
        traces: "Traces | None" = None,
    ) -> None:
        self._store = store
        self._tools = tools
        self._models = models
        self._feed = feed
        self._clock = clock
        self._remote = remote
        self._tenant = tenant
        self._metrics = metrics
        self._traces = traces

    async def step(
        self,
        owner: Owner,
        messages: Sequence[InputMessage],
        *,
        due: bool = True,
        blobs: Sequence[Blob] = (),
        tenant: str | None = None,
    ) -> StepResult:
        """Store the messages and what they refer to, then run their threads until they rest.

        With `tenant`, a message for a thread of another one is for an unknown thread.
        With `due`, threads whose time has come (timers, retries) and those that a dead engine left run too. If the step
        is cut off, what it did not commit is as if it had not begun: the messages are stored and wait.

        Raises:
            StoreError: the messages could not be stored, and none was; or they wait, and the store failed later. A step
                with the same messages goes on in either case.
        """
        now = self._clock.now()
        outcomes = await self._store.put(messages, now, blobs=blobs, tenant=tenant) if messages else []
        only = None if due else sorted({message.thread_id for message in messages})
        problem: StoreError | None = None
        async with asyncio.TaskGroup() as group:
            engine = Engine(
                self._store,
                owner,
                self._tools,
                self._models,
                self._feed,
                self._clock,
                group,
                keeps=False,
                remote=self._remote,
                tenant=self._tenant,
                metrics=self._metrics,
                traces=self._traces,
            )
            interruptions = Interruptions(self._store, engine.runner.streams, group)
            engine.runner.on_stream = interruptions.streaming
            looking = group.create_task(self._look_around(engine, interruptions))
            try:
                await self._drive(engine, only)
            except StoreError as error:
                problem = error
                await engine.dispatcher.join()
            looking.cancel()
        await engine.leave()
        if problem is not None:
            raise problem
        next_due = await self._store.next_due(self._clock.now())
        return StepResult(tuple(outcomes), engine.runner.completions, next_due)

    async def _look_around(self, engine: Engine, interruptions: Interruptions) -> None:
        """Notice streams that stalled, and whether anybody has stopped a thread that streams, or spoken to it."""
        while True:
            await self._clock.sleep(LOOK_EVERY)
            interruptions.poke(engine.runner.streams)
            interruptions.look(self._clock.now())

    async def _drive(self, engine: Engine, only: Sequence[str] | None) -> None:
        await engine.upkeep()
        while True:
            claims = await self._store.claim(
                engine.owner, self._clock.now(), MAX_SLICES_AT_ONCE, threads=only, tenant=self._tenant
            )
            if claims:
                await asyncio.gather(*[engine.slice(claim) for claim in claims])
            elif engine.dispatcher.running:
                await engine.dispatcher.join()
            else:
                return
