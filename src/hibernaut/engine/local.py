"""The resident engine: claims ready threads of one store and runs their slices, many at a time."""

import asyncio
import logging
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from hibernaut.clock import Clock
from hibernaut.engine.core import ADOPT_AT_ONCE, Engine
from hibernaut.engine.interruptions import LOOK_EVERY, Interruptions
from hibernaut.engine.live import LiveFeed
from hibernaut.engine.servers import Remote
from hibernaut.engine.stages import Stages
from hibernaut.engine.workers import start
from hibernaut.errors import StoreError
from hibernaut.messages.inputs import USER
from hibernaut.metrics import Metrics
from hibernaut.models.protocol import ModelSource
from hibernaut.stores.protocol import DEAD_AFTER, Claim, Owner, Store
from hibernaut.tools.tool import AnyTool

if TYPE_CHECKING:
    from hibernaut.engine.traces import Traces

logger = logging.getLogger(__name__)

MAX_SLICES = 512
"""Slices that run at the same time."""

UPKEEP_EVERY = DEAD_AFTER // 5
"""Milliseconds between two signs of life."""

LONGEST_NAP = 30_000
"""Milliseconds that the engine sleeps at most: after a suspend, threads wake at most so late."""

CLAIM_PAUSE = 1_000
"""Milliseconds before a store that failed is asked for ready threads again."""

REST_AFTER = 1_000
"""Milliseconds without any work after which decoded transcripts are dropped."""

DRAIN = 10_000
"""Milliseconds that a graceful stop leaves to running slices."""


class LocalEngine:
    """Runs until it is stopped.

    `run` returns after `stop`: no new slice begins, running ones have `DRAIN` to end, running tools are cancelled and
    their calls answered so. Cancelling `run` is the ungraceful way, and loses nothing either.

    With `only`, it runs these threads, with `tenant` those of that tenant, and leaves all others alone.
    """

    def __init__(
        self,
        store: Store,
        owner: Owner,
        tools: Mapping[str, AnyTool],
        models: ModelSource,
        feed: LiveFeed,
        clock: Clock,
        *,
        max_slices: int = MAX_SLICES,
        only: Sequence[str] | None = None,
        remote: Remote | None = None,
        tenant: str | None = None,
        metrics: Metrics | None = None,
        traces: "Traces | None" = None,
    ) -> None:
        self._store = store
        self._owner = owner
        self._tools = tools
        self._models = models
        self._feed = feed
        self._clock = clock
        self._max_slices = max_slices
        self._only = only
        self._remote = remote
        self._tenant = tenant
        self._metrics = metrics
        self._traces = traces
        self._worked = 0
        self._recovered = False
        self._wake = asyncio.Event()
        self._quiet = asyncio.Event()
        self._stopping = asyncio.Event()
        self._alarm: asyncio.Task[None] | None = None
        self._alarm_due = 0
        self._started = asyncio.Event()
        self._engine: Engine | None = None
        self._interruptions: Interruptions | None = None
        self._stages: Stages | None = None
        self._group: asyncio.TaskGroup | None = None

    @property
    def engine(self) -> Engine:
        """The parts it is made of, once it runs."""
        if self._engine is None:
            raise RuntimeError("the engine does not run")
        return self._engine

    async def started(self) -> None:
        """Return when the engine has taken over what was left, or the first of much, and claims threads."""
        await self._started.wait()

    def stop(self) -> None:
        """Begin a graceful stop."""
        self._stopping.set()
        self._wake.set()

    @property
    def slices(self) -> Stages:
        """The slices that run."""
        if self._stages is None:
            raise RuntimeError("the engine does not run")
        return self._stages

    @property
    def interruptions(self) -> Interruptions:
        """What stops completions."""
        if self._interruptions is None:
            raise RuntimeError("the engine does not run")
        return self._interruptions

    async def wait_quiet(self) -> None:
        """Return when no slice and no tool runs and no thread is ready."""
        while True:
            self._wake.set()
            self._quiet.clear()
            await self._quiet.wait()
            if not self.engine.dispatcher.running and not self.slices and not self._wake.is_set():
                return

    async def run(self) -> None:
        """Run until `stop`."""
        end_hints = self._store.on_change(self._hint)
        try:
            async with asyncio.TaskGroup() as group:
                self._group = group
                self._engine = Engine(
                    self._store,
                    self._owner,
                    self._tools,
                    self._models,
                    self._feed,
                    self._clock,
                    group,
                    keeps=True,
                    only=self._only,
                    note_due=self._set_alarm,
                    on_rest=self._wake.set,
                    remote=self._remote,
                    tenant=self._tenant,
                    metrics=self._metrics,
                    traces=self._traces,
                )
                self._interruptions = Interruptions(self._store, self._engine.runner.streams, group)
                self._engine.runner.on_stream = self._interruptions.streaming
                self._stages = Stages(self._engine, self._interruptions, group, self._wake.set)
                self._recovered = await self._engine.upkeep(ADOPT_AT_ONCE)
                await self._look_ahead()
                upkeep = [group.create_task(self._keep_up()), group.create_task(self._look_around())]
                self._started.set()
                await self._claim_until_stopped()
                await self._wind_down(group)
                for task in [*upkeep, self._alarm]:
                    if task is not None:
                        task.cancel()
        finally:
            end_hints()
            self._group = None
        await self.engine.leave()

    # Claiming

    async def _claim_until_stopped(self) -> None:
        while not self._stopping.is_set():
            self._wake.clear()
            free = self._max_slices - len(self.slices)
            if free and await self._begin(free) == free:
                continue
            if self._recovered and not self._wake.is_set() and not self.slices and not self.engine.dispatcher.running:
                self._quiet.set()
            await self._wake.wait()

    async def _begin(self, most: int) -> int:
        """Begin slices; return how many. None is held on to here: while nothing goes on, nobody's messages are."""
        claims = await self._claim(most)
        await self.slices.begin(claims)
        return len(claims)

    async def _claim(self, limit: int) -> list[Claim]:
        try:
            claims = await self._store.claim(
                self._owner, self._clock.now(), limit, threads=self._only, tenant=self._tenant
            )
        except StoreError:
            logger.exception("ready threads could not be claimed; trying again")
            self._set_alarm(self._clock.now() + CLAIM_PAUSE)
            return []
        if claims:
            self._worked = self._clock.now()
        return claims

    def _hint(self, thread_id: str, urgency: int) -> None:
        if self._stages is None or thread_id not in self._stages.threads:
            self._wake.set()
        elif urgency == USER:
            self.interruptions.poke([thread_id])

    async def _wind_down(self, group: asyncio.TaskGroup) -> None:
        if self.slices:
            drained = group.create_task(self._clock.sleep(DRAIN))
            drained.add_done_callback(lambda _: self._wake.set())
            while self.slices and not drained.done():
                self._wake.clear()
                await self._wake.wait()
            drained.cancel()
            self.slices.cancel()
        self.engine.dispatcher.shut_down()
        await self.engine.dispatcher.join()

    # Time

    def _set_alarm(self, due: int) -> None:
        if due and (self._alarm is None or due < self._alarm_due) and self._group is not None:
            if self._alarm is not None:
                self._alarm.cancel()
            self._alarm_due = due
            self._alarm = start(self._group, self._ring(due))

    async def _ring(self, due: int) -> None:
        while (left := due - self._clock.now()) > 0:
            await self._clock.sleep(min(left, LONGEST_NAP))
        self._alarm = None
        self._wake.set()
        await self._look_ahead()

    async def _look_ahead(self) -> None:
        """Set the alarm for the next thread that becomes ready by time alone."""
        try:
            due = await self._store.next_due(self._clock.now())
        except StoreError:
            logger.exception("due times could not be read; trying again")
            due = self._clock.now() + CLAIM_PAUSE
        if due is not None:
            self._set_alarm(due)

    async def _keep_up(self) -> None:
        while True:
            # Where dead engines left much, threads are claimed before all of it is taken over.
            if self._recovered:
                await self._clock.sleep(UPKEEP_EVERY)
            try:
                self._recovered = await self.engine.upkeep(ADOPT_AT_ONCE)
            except StoreError:
                logger.exception("upkeep failed; trying again in %d s", UPKEEP_EVERY // 1_000)
                self._recovered = True
            self._wake.set()  # nobody says it when an engine that had threads has died

    async def _look_around(self) -> None:
        """Notice what other processes wrote, streams that stalled, and that there is nothing to do."""
        while True:
            await self._clock.sleep(LOOK_EVERY)
            now = self._clock.now()
            runner = self.engine.runner
            self.interruptions.look(now)
            if self.slices:
                self._worked = now
            elif now - self._worked > REST_AFTER:
                runner.transcripts.clear()
                await self._put_away()
            try:
                if await self._store.changed_elsewhere():
                    await self._heed_others()
            except StoreError:
                logger.exception("the store could not be looked at; trying again")

    async def _put_away(self) -> None:
        """Let the store put away what is hot, until something goes on again."""
        try:
            while not self.slices and await self._store.rest():  # noqa: ASYNC110 - it works, and lets others do so
                await asyncio.sleep(0)
        except StoreError:
            logger.exception("the store could not put away what is hot; trying again")

    async def _heed_others(self) -> None:
        self._wake.set()
        self._feed.moved_elsewhere()
        self.interruptions.poke(self.slices.threads)
        await self.engine.dispatcher.heed_cancellations()
        await self._look_ahead()
