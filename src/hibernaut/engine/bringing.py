"""Brings what tools say back through the inbox, until the store takes it."""

import logging
from collections.abc import Awaitable, Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from hibernaut.clock import Clock
from hibernaut.engine.work import Work
from hibernaut.errors import InputRefused, StoreError
from hibernaut.kernel.commit import Blob, Effect
from hibernaut.kernel.head import registry_of
from hibernaut.messages.inputs import Event, InputMessage, ToolResult, event_message
from hibernaut.stores.protocol import Outcome as Stored
from hibernaut.stores.protocol import Store
from hibernaut.tools.event_gate import EventGate
from hibernaut.tools.results import Outcome
from hibernaut.tools.results import outcome as outcome_of
from hibernaut.tools.running import Subscription
from hibernaut.tools.tool import AnyTool

if TYPE_CHECKING:
    from hibernaut.engine.traces import Traced

logger = logging.getLogger(__name__)

T = TypeVar("T")

DELIVERY_PAUSE_FIRST = 100
"""Milliseconds before a result that the store did not take is brought again."""

DELIVERY_PAUSE_MOST = 30_000
"""Milliseconds between two tries to bring a result, at most."""

FAILED_CALL = "tool_error"
"""What a span says of a call that ended in an error, whatever error that was."""


class Bringing:
    """Brings results and events to their threads."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._gate = EventGate(store)

    async def failure(self, effect: Effect, thread_id: str, text: str) -> Stored:
        """Bring an error as the result of a call, and return what became of that."""
        return await self.result(effect, thread_id, Outcome(text, is_error=True))

    async def result(self, effect: Effect, thread_id: str, outcome: Outcome, *, subscription: bool = False) -> Stored:
        """Bring the result of a call, and return what became of it."""
        return await self.retry(partial(self.store_result, effect, thread_id, outcome, subscription=subscription))

    async def store_result(
        self, effect: Effect, thread_id: str, outcome: Outcome, *, subscription: bool = False
    ) -> Stored:
        """Try it once.

        Raises:
            StoreError: the store did not take it.
        """
        message = _result_message(effect, thread_id, outcome, subscription=subscription)
        return (await self._store.put([message], self._clock.now(), blobs=outcome.blobs))[0]

    async def store_results(self, results: Sequence[tuple[Work, Outcome]]) -> None:
        """Try to bring the results of several calls, in one write.

        Raises:
            StoreError: the store did not take them.
        """
        messages: list[InputMessage] = []
        blobs: list[Blob] = []
        for work, outcome in results:
            messages.append(_result_message(work.effect, work.thread_id, outcome))
            blobs += outcome.blobs
        await self._store.put(messages, self._clock.now(), blobs=blobs)

    async def follow(
        self, tool: AnyTool, work: Work, subscription: Subscription, numbers: Iterator[int], span: "Traced | None"
    ) -> None:
        """Confirm a subscription with its first value, and bring what it yields until it is over."""
        first = await subscription.next()
        word = outcome_of(first.content) if first is not None else subscription.ended or Outcome("")
        if span is not None:  # it stands for subscribing; what comes later may take months
            if word.is_error:
                span.fail(FAILED_CALL)
            span.end()
        if first is None or word.is_error:
            if await self.result(work.effect, work.thread_id, word) is Stored.DUPLICATE:  # it was confirmed before
                await self.event(tool, work, word, next(numbers), final=True, sender="engine")
            return
        # One that goes on after a restart confirms itself once more, and that is a duplicate.
        await self.result(work.effect, work.thread_id, word, subscription=True)
        refused: InputRefused | None = None
        while (event := await subscription.next(refused)) is not None:
            refused = None
            try:
                stored = await self.event(
                    tool, work, outcome_of(event.content), next(numbers), event_id=event.event_id, final=event.final
                )
            except InputRefused as error:
                logger.warning("an event of %s was refused: %s", tool.name, error)
                refused = error
                continue
            if stored in (Stored.CLOSED, Stored.UNKNOWN):
                await self.retry(self._store.settle_effects, [work.effect.request_id])
                return
            if event.final:
                if stored is not Stored.DUPLICATE:
                    return
                break  # an event of this id was there before, so that the last one is still to come
        last = subscription.ended or Outcome("The subscription has ended.")
        await self.event(tool, work, last, next(numbers), final=True, sender="engine")

    async def event(
        self,
        tool: AnyTool,
        work: Work,
        outcome: Outcome,
        number: int,
        *,
        event_id: str = "",
        final: bool = False,
        sender: str = "",
    ) -> Stored:
        """Bring an event; `sender` is the tool, unless the engine itself has to say something of it.

        Raises:
            InputRefused: the thread does not take it.
        """
        event = Event(
            work.effect.call_id,
            outcome.content,
            event_id or f"#{number}",
            associative=tool.events == "associative",
            final=final,
            sequence=number,
        )
        message = event_message(work.thread_id, event, sender or f"tool:{tool.name}")

        async def put() -> Stored:
            if not sender and (row := await self._store.read_head(work.thread_id)) is not None:
                await self._gate.check(registry_of(row.head), event, self._clock.now(), outcome.blobs)
            return (await self._store.put([message], self._clock.now(), blobs=outcome.blobs))[0]

        pause = DELIVERY_PAUSE_FIRST
        while (stored := await self.retry(put)) is Stored.FULL:  # the thread is behind: the generator waits, too
            await self._clock.sleep(pause)
            pause = min(2 * pause, DELIVERY_PAUSE_MOST)
        return stored

    async def retry(self, write: Callable[..., Awaitable[T]], *arguments: object) -> T:
        """Do it until the store takes it: what a tool did must not be lost, nor be done again for want of a record."""
        pause = DELIVERY_PAUSE_FIRST
        while True:
            try:
                return await write(*arguments)
            except StoreError:
                logger.exception("the store did not take it; trying again in %d ms", pause)
            await self._clock.sleep(pause)
            pause = min(2 * pause, DELIVERY_PAUSE_MOST)


def _result_message(effect: Effect, thread_id: str, outcome: Outcome, *, subscription: bool = False) -> InputMessage:
    content = ToolResult(effect.call_id, outcome.content, outcome.is_error, subscription)
    return InputMessage(f"result:{effect.call_id}", thread_id, content, f"tool:{effect.tool}")
