"""What every engine is made of: the parts that run slices and tools, put together on one store."""

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from hibernaut.clock import Clock
from hibernaut.engine.dispatcher import Dispatcher
from hibernaut.engine.launches import Launches
from hibernaut.engine.live import LiveFeed
from hibernaut.engine.servers import Remote
from hibernaut.engine.slice import SliceRunner
from hibernaut.errors import StaleClaim, StoreBusy, StoreError
from hibernaut.metrics import BUSY, STALE_CLAIM, Metrics
from hibernaut.models.protocol import ModelSource
from hibernaut.stores.protocol import Claim, EffectRow, Owner, Store
from hibernaut.tools.tool import AnyTool

if TYPE_CHECKING:
    from hibernaut.engine.traces import Traces

logger = logging.getLogger(__name__)

FAILED_SLICE_PAUSE = 1_000
"""Milliseconds before a thread whose slice came to nothing is tried again, doubled for every further time."""

LOOK_AFTER_EVERY = 3_600_000
"""Milliseconds between two rounds of asking tool servers whether old calls are still at work; the first is at start."""

OLD_CALL = 600_000
"""Milliseconds after which an open call is an old one."""

RECONCILE = "reconcile"
"""The note in which an operator wishes that engines ask tool servers after all calls, now. Its value is the wish's."""

ADOPT_AT_ONCE = 100
"""Orphaned effects that are taken over in one transaction, and settled at the same time."""


class Engine:
    """Runs claimed slices to their end and keeps their failures from hurting anybody else."""

    def __init__(
        self,
        store: Store,
        owner: Owner,
        tools: Mapping[str, AnyTool],
        models: ModelSource,
        feed: LiveFeed,
        clock: Clock,
        tasks: asyncio.TaskGroup,
        *,
        keeps: bool,
        only: Sequence[str] | None = None,
        note_due: Callable[[int], None] = lambda due: None,
        on_rest: Callable[[], None] = lambda: None,
        remote: Remote | None = None,
        tenant: str | None = None,
        metrics: Metrics | None = None,
        traces: "Traces | None" = None,
    ) -> None:
        self.store = store
        self.owner = owner
        self.clock = clock
        self._metrics = metrics = metrics or Metrics()
        self._began = clock.now()
        toolsets = None
        if remote is not None:
            from hibernaut.engine.toolsets import Toolsets  # noqa: PLC0415  # most programs have no tool servers

            toolsets = Toolsets(remote.servers, store)
        self.dispatcher = Dispatcher(
            store,
            owner,
            tools,
            feed,
            clock,
            tasks,
            keeps=keeps,
            on_rest=on_rest,
            remote=remote,
            toolsets=toolsets,
            tenant=tenant,
            metrics=metrics,
            traces=traces,
        )
        launches = Launches(store, tools, toolsets)
        self.runner = SliceRunner(
            store, launches, models, self.dispatcher, feed, clock, note_due, toolsets, metrics, traces
        )
        self._keeps = keeps
        self._looked = 0
        self._wish: bytes | None = None
        self._only = only
        self._tenant = tenant
        self._note_due = note_due
        self._unreleased: list[tuple[Claim, int]] = []
        self._orphans: list[EffectRow] = []

    async def slice(self, claim: Claim) -> None:
        """Run a claimed slice. Whatever goes wrong with it stays with its thread."""
        try:
            await self.runner.run(claim)
        except Exception as error:  # noqa: BLE001  # it is told
            await self.failed(claim, error)

    async def failed(self, claim: Claim, error: Exception) -> None:
        """Tell why a slice came to nothing, and see to it that its thread is tried again."""
        thread_id = claim.thread_id
        if isinstance(error, StaleClaim):
            self._metrics.conflicts[STALE_CLAIM] += 1
            logger.info("thread %s was taken over by another engine", thread_id)
        elif isinstance(error, StoreError):
            if await self._is_deleted(thread_id):
                logger.info("thread %s was deleted while it was at work", thread_id)
                return
            if isinstance(error, StoreBusy):
                self._metrics.conflicts[BUSY] += 1
            else:
                self._metrics.store_failures += 1
            logger.error("the store failed in a slice of thread %s", thread_id, exc_info=error)
            await self._give_back(claim)
        else:
            # One thread's defect must not end the engine: it is tried again a bounded number of times, then parked.
            self._metrics.slices_failed += 1
            logger.error("a slice of thread %s failed", thread_id, exc_info=error)
            await self._give_back(claim)

    async def _is_deleted(self, thread_id: str) -> bool:
        try:
            return await self.store.read_head(thread_id) is None
        except StoreError:
            return False

    async def _give_back(self, claim: Claim) -> None:
        pause = FAILED_SLICE_PAUSE << min(claim.tries - 1, 6)
        not_before = self.clock.now() + pause
        try:
            await self.store.release(claim, not_before)
            self._note_due(not_before)
        except StoreError:
            logger.exception("thread %s could not be given back; trying again", claim.thread_id)
            self._unreleased.append((claim, not_before))

    async def upkeep(self, most: int = 0) -> bool:
        """Give back what could not be given back, take over what the dead left, and say that this engine lives.

        Of what they left at most so many effects, 0 for all; tells whether these were all.
        """
        # Together, so that a store can write them in one go.
        await asyncio.gather(self.store.beat(self.owner, self.clock.now()), save_counts(self.store, self._metrics))
        while self._unreleased:
            claim, not_before = self._unreleased[-1]
            await self.store.release(claim, not_before)
            self._note_due(not_before)
            self._unreleased.pop()
        all_taken = await self.adopt(most)
        if all_taken and self._began:
            self._metrics.recovery.observe(self.clock.now() - self._began)
            self._began = 0
        self.dispatcher.look_after_cancellations()
        if self._keeps:
            await self._look_after_servers()
        return all_taken

    async def _look_after_servers(self) -> None:
        now, wish = self.clock.now(), await self.store.read_note(RECONCILE)
        if not self._looked:
            self._wish = wish  # whatever is wished for, at start all are asked
        if wish != self._wish:
            if self.dispatcher.look_after_servers(now + 1):
                self._wish = wish
        elif now - self._looked >= LOOK_AFTER_EVERY:
            self.dispatcher.look_after_servers(now - OLD_CALL if self._looked else now + 1)
            self._looked = now

    async def adopt(self, most: int = 0) -> bool:
        """Take over the effects of engines that died, up to `most` (0: all); tell whether these were all.

        Raises:
            StoreError: not all could be settled. Those that could not are kept for the next time.
        """
        problems: list[BaseException] = []
        # They are this engine's from now on, so one that could not be settled must not be forgotten.
        rows, self._orphans = self._orphans, []
        taken = 0
        while rows or (rows := await self._adopt_some()):
            ends = await asyncio.gather(*map(self.dispatcher.settle_orphan, rows), return_exceptions=True)
            for row, problem in zip(rows, ends, strict=True):
                if problem is not None:
                    self._orphans.append(row)
                    problems.append(problem)
            taken += len(rows)
            self._metrics.adopted += len(rows)
            if most and taken >= most:
                break
            rows = []
        if problems:
            raise problems[0]
        return not rows

    async def _adopt_some(self) -> list[EffectRow]:
        return await self.store.adopt_effects(
            self.owner, self.clock.now(), ADOPT_AT_ONCE, threads=self._only, tenant=self._tenant
        )

    async def leave(self) -> None:
        """Say that this engine ends. Should the store not hear it, others find out by themselves."""
        try:
            with suppress(StoreError):  # it is of no use to others
                await save_counts(self.store, self._metrics)
            await self.store.leave(self.owner)
        except StoreError:
            logger.exception("the store was not told that engine %s has ended", self.owner.engine_id)


async def save_counts(store: Store, metrics: Metrics) -> None:
    """Add what a process has counted to what is counted of the store for ever.

    What is counted after the last time is lost when a process dies; nothing is ever counted twice.

    Raises:
        StoreError: nothing was added.
    """
    added, greatest = metrics.unsaved()
    if added or greatest:
        await store.add_counts(added, greatest)
        metrics.saved(added, greatest)
