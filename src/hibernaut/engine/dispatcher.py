"""Performs what commits owe: runs function tools, brings their results back through the inbox, cancels them.

An effect is begun only after it is marked `sent` in the outbox. A process that dies leaves the mark, and whoever adopts
the effect knows that it may have happened.
"""

import asyncio
import inspect
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing
from typing import TypeVar, cast

import msgspec

from hibernaut.clock import Clock
from hibernaut.engine.live import LiveFeed
from hibernaut.errors import StoreError
from hibernaut.kernel.commit import Blob, Effect
from hibernaut.kernel.config import decode_config
from hibernaut.kernel.head import decode_head
from hibernaut.messages.events import ToolProgress
from hibernaut.messages.inputs import Event, InputMessage, ToolResult
from hibernaut.stores.protocol import EffectRow, Owner, Store
from hibernaut.stores.protocol import Outcome as Stored
from hibernaut.tools.context import Deferred, ToolContext
from hibernaut.tools.results import Outcome, failure
from hibernaut.tools.results import outcome as outcome_of
from hibernaut.tools.tokens import sign
from hibernaut.tools.tool import AnyTool

logger = logging.getLogger(__name__)

T = TypeVar("T")

DELIVERY_PAUSE_FIRST = 100
"""Milliseconds before a result that the store did not take is brought again."""

DELIVERY_PAUSE_MOST = 30_000
"""Milliseconds between two tries to bring a result, at most."""

UNKNOWN_EFFECT = (
    "The process that ran {tool} died before it answered. It is unknown whether it happened; check before repeating it."
)
STOPPED_EFFECT = (
    "The process that ran {tool} was shut down before it was done. It is unknown how far it got; "
    "check before repeating it."
)
SUBSCRIPTION_DIED = "The subscription has ended: the process that ran it is gone. Call {tool} again to go on."
NOT_HERE = "{tool} cannot be used here: this engine keeps nothing between messages, so it cannot keep a subscription."


_NOTHING = object()


class Work(msgspec.Struct, frozen=True):
    """An effect, with what its tool may know of the thread."""

    effect: Effect
    thread_id: str
    tenant: str
    user: str
    metadata: str


class Dispatcher:
    """Performs effects inside this process."""

    def __init__(
        self,
        store: Store,
        owner: Owner,
        tools: Mapping[str, AnyTool],
        feed: LiveFeed,
        clock: Clock,
        tasks: asyncio.TaskGroup,
        *,
        keeps: bool,
        on_rest: Callable[[], None] = lambda: None,
    ) -> None:
        self._store = store
        self._owner = owner
        self._tools = tools
        self._feed = feed
        self._clock = clock
        self._tasks = tasks
        self._keeps = keeps
        self._on_rest = on_rest
        self._running: dict[str, asyncio.Task[None]] = {}
        self._cancelled: set[str] = set()
        self._ending = False
        self._secret = b""

    @property
    def running(self) -> int:
        """How many tools are at work in this process."""
        return len(self._running)

    def perform(self, work: Sequence[Work]) -> None:
        """Begin effects that a commit owes; returns at once."""
        for one in work:
            if one.effect.kind == "cancel":
                self._tasks.create_task(self._cancel(one.effect, one.thread_id))
            else:
                self._begin(one, started=False)

    async def perform_here(self, work: Sequence[Work]) -> None:
        """Perform effects and return when their results are stored."""
        for one in work:
            self._begin(one, started=False)
        if work:
            await asyncio.wait([self._running[one.effect.request_id] for one in work])

    async def settle_orphan(self, row: EffectRow) -> None:
        """Do what is right for an effect whose engine died.

        It is begun if it certainly was not, repeated if its tool says that this is safe, and else its call is answered:
        it is unknown whether it happened.
        """
        effect = row.effect
        thread = await self._store.read_head(row.thread_id)
        head = decode_head(thread.head).head if thread else None
        call = head.calls.get(effect.call_id) if head else None
        if head is None or call is None or call.state in ("cancelled", "expired") or effect.kind == "cancel":
            await self._store.settle_effects([effect.request_id, effect.call_id, f"{effect.call_id}:cancel"])
            return
        tool = self._tools.get(effect.tool)
        if call.state == "subscribed":
            text = SUBSCRIPTION_DIED.format(tool=effect.tool)
            event = Event(effect.call_id, text, f"{effect.call_id}:died", associative=True, final=True)
            await self._put(InputMessage(f"event:{effect.call_id}:died", row.thread_id, event, "engine"))
        elif row.state == "pending" or (tool is not None and tool.idempotent):
            data = await self._store.read_config(head.config)
            tenant, user = "", ""
            if data is not None:
                config = decode_config(data)
                tenant, user = config.tenant, config.user
            self._begin(Work(effect, row.thread_id, tenant, user, head.metadata), started=row.state == "sent")
        else:
            await self._bring(effect, row.thread_id, Outcome(UNKNOWN_EFFECT.format(tool=effect.tool), is_error=True))

    async def heed_cancellations(self) -> None:
        """Carry out cancellations that other processes wrote for tools that run here."""
        if self._running:
            for row in await self._store.read_effects():
                if row.effect.kind == "cancel" and row.effect.call_id in self._running:
                    await self._cancel(row.effect, row.thread_id)

    async def join(self) -> None:
        """Return when no tool is at work."""
        while self._running:
            await asyncio.wait(list(self._running.values()))

    def shut_down(self) -> None:
        """Cancel what runs; each call is answered as shut down, unless it can be repeated at the next start."""
        self._ending = True
        for task in self._running.values():
            task.cancel()

    # One invocation

    def _begin(self, work: Work, *, started: bool) -> None:
        request = work.effect.request_id
        task = self._tasks.create_task(self._invoke(work, started=started))
        self._running[request] = task
        task.add_done_callback(lambda _: self._over(request))

    def _over(self, request: str) -> None:
        self._running.pop(request, None)
        if not self._running:
            self._on_rest()

    async def _invoke(self, work: Work, *, started: bool) -> None:
        effect = work.effect
        tool = self._tools.get(effect.tool)
        begun = started
        try:
            if not begun:
                begun = await self._retry(self._start, effect.request_id)
                if not begun:
                    return
            if tool is None:
                gone = Outcome(f"Error: there is no tool {effect.tool!r} any more.", is_error=True)
                await self._bring(effect, work.thread_id, gone)
            elif tool.mode == "subscription":
                await self._subscribe(tool, work)
            else:
                await self._call(tool, work)
        except asyncio.CancelledError:
            if effect.request_id in self._cancelled:
                self._cancelled.discard(effect.request_id)
            elif self._ending:
                if begun:
                    await self._answer_shutdown(tool, work)
            else:
                raise

    async def _start(self, request_id: str) -> bool:
        return bool(await self._store.start_effects(self._owner, [request_id]))

    async def _call(self, tool: AnyTool, work: Work) -> None:
        limit = asyncio.timeout(tool.timeout / 1000 if tool.timeout else None)
        try:
            arguments = tool.keywords(work.effect.arguments, await self._context(tool, work))
            async with limit:
                value = await _value(tool, arguments)
            outcome = _outcome(value, work.effect)
        except TimeoutError as error:
            outcome = _too_late(tool) if limit.expired() else failure(error)
        except Exception as error:  # a tool is a stranger: whatever it raises is its answer
            logger.info("tool %s failed", tool.name, exc_info=True)
            outcome = failure(error)
        if outcome is None:
            await self._retry(self._store.accept_effects, [work.effect.request_id])
        else:
            await self._bring(work.effect, work.thread_id, outcome)

    async def _subscribe(self, tool: AnyTool, work: Work) -> None:
        effect = work.effect
        if not self._keeps:
            refusal = Outcome(NOT_HERE.format(tool=tool.name), is_error=True)
            await self._bring(effect, work.thread_id, refusal)
            return
        number = 0
        last = Outcome("The subscription has ended.")
        limit = asyncio.timeout(tool.timeout / 1000 if tool.timeout else None)
        try:
            arguments = tool.keywords(effect.arguments, await self._context(tool, work))
            async with aclosing(cast("AsyncGenerator[object, None]", tool.function(**arguments))) as values:
                async with limit:
                    first = await anext(values, _NOTHING)
                if first is not _NOTHING:
                    confirmation = outcome_of(first)
                    await self._bring(effect, work.thread_id, confirmation, subscription=True)
                    if confirmation.is_error:
                        return
                    number = 1
                async for value in values:
                    stored = await self._bring_event(tool, work, outcome_of(value), number)
                    number += 1
                    if stored in (Stored.CLOSED, Stored.UNKNOWN):
                        await self._retry(self._store.settle_effects, [effect.request_id])
                        return
        except TimeoutError as error:
            last = _too_late(tool) if limit.expired() else failure(error)
        except Exception as error:  # a tool is a stranger: whatever it raises is its answer
            logger.info("subscription %s failed", tool.name, exc_info=True)
            last = failure(error)
        if number:
            await self._bring_event(tool, work, last, number, final=True)
        else:
            await self._bring(effect, work.thread_id, last)

    async def _context(self, tool: AnyTool, work: Work) -> ToolContext:
        if not self._secret:
            self._secret = await self._store.secret()
        effect = work.effect

        loop = asyncio.get_running_loop()

        def token() -> str:
            return sign(self._secret, work.thread_id, effect.call_id)

        def progress(text: str) -> None:
            self._feed.progress(ToolProgress(thread_id=work.thread_id, call_id=effect.call_id, text=text))

        def report(text: str) -> None:
            if not loop.is_closed():
                loop.call_soon_threadsafe(progress, text)

        return ToolContext(
            call_id=effect.call_id,
            thread_id=work.thread_id,
            tool=tool.name,
            tenant=work.tenant,
            user=work.user,
            metadata=work.metadata,
            issue_token=token if tool.mode == "background" else None,
            report=report,
        )

    # Cancelling

    async def _cancel(self, effect: Effect, thread_id: str) -> None:
        """Carry out a cancellation, unless the invocation runs in another engine: that one does it."""
        task = self._running.get(effect.call_id)
        if task is not None:
            self._cancelled.add(effect.call_id)
            task.cancel()
            await asyncio.wait([task])
        else:
            for row in await self._retry(self._store.read_effects, thread_id):
                elsewhere = row.state != "accepted" and row.owner != self._owner.engine_id
                if row.effect.request_id == effect.call_id and elsewhere:
                    return
        await self._retry(self._store.settle_effects, [effect.call_id, effect.request_id])

    async def _answer_shutdown(self, tool: AnyTool | None, work: Work) -> None:
        """Answer a call whose tool was cut off by the end of this engine; what can be repeated is left for the next."""
        if tool is not None and tool.mode == "subscription":
            text = SUBSCRIPTION_DIED.format(tool=tool.name)
            event = Event(work.effect.call_id, text, f"{work.effect.call_id}:died", associative=True, final=True)
            message = InputMessage(f"event:{work.effect.call_id}:died", work.thread_id, event, "engine")
            await self._store.put([message], self._clock.now())
        elif tool is None or not tool.idempotent:
            outcome = Outcome(STOPPED_EFFECT.format(tool=work.effect.tool), is_error=True)
            message = _result(work.effect, work.thread_id, outcome)
            await self._store.put([message], self._clock.now())

    # Bringing results

    async def _bring(self, effect: Effect, thread_id: str, outcome: Outcome, *, subscription: bool = False) -> Stored:
        return await self._put(_result(effect, thread_id, outcome, subscription=subscription), outcome.blobs)

    async def _bring_event(
        self, tool: AnyTool, work: Work, outcome: Outcome, number: int, *, final: bool = False
    ) -> Stored:
        name = f"{work.effect.call_id}:{number}"
        event = Event(
            work.effect.call_id,
            outcome.content,
            name,
            associative=tool.events == "associative",
            final=final,
            sequence=number,
        )
        message = InputMessage(f"event:{name}", work.thread_id, event, f"tool:{tool.name}")
        return await self._put(message, outcome.blobs)

    async def _put(self, message: InputMessage, blobs: Sequence[Blob] = ()) -> Stored:
        async def put() -> Stored:
            return (await self._store.put([message], self._clock.now(), blobs=blobs))[0]

        return await self._retry(put)

    async def _retry(self, write: Callable[..., Awaitable[T]], *arguments: object) -> T:
        """Do it until the store takes it: what a tool did must not be lost, nor be done again for want of a record."""
        pause = DELIVERY_PAUSE_FIRST
        while True:
            try:
                return await write(*arguments)
            except StoreError:
                logger.exception("the store did not take it; trying again in %d ms", pause)
            await self._clock.sleep(pause)
            pause = min(2 * pause, DELIVERY_PAUSE_MOST)


async def _value(tool: AnyTool, arguments: dict[str, object]) -> object:
    if tool.threaded:
        return await asyncio.to_thread(tool.function, **arguments)
    value = tool.function(**arguments)
    return await value if inspect.isawaitable(value) else value


def _outcome(value: object, effect: Effect) -> Outcome | None:
    """Return how a call ended by what its tool returned; None when it goes on under its token."""
    if not isinstance(value, Deferred):
        return outcome_of(value)
    if value.call_id == effect.call_id:
        return None
    return Outcome(
        "Error: the tool deferred another call than its own, so nobody would answer this one.", is_error=True
    )


def _too_late(tool: AnyTool) -> Outcome:
    return Outcome(f"Error: {tool.name} did not answer within {tool.timeout / 1000:g} s.", is_error=True)


def _result(effect: Effect, thread_id: str, outcome: Outcome, *, subscription: bool = False) -> InputMessage:
    content = ToolResult(effect.call_id, outcome.content, outcome.is_error, subscription)
    return InputMessage(f"result:{effect.call_id}", thread_id, content, f"tool:{effect.tool}")
