"""Performs what commits owe: runs function tools, brings their results back through the inbox, cancels them.

What works on tool servers is theirs; see `hibernaut.engine.remote`.

An effect is begun only after it is marked `sent` in the outbox. A process that dies leaves the mark, and whoever adopts
the effect knows that it may have happened.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, TypeVar

import msgspec

from hibernaut.clock import Clock
from hibernaut.engine.asking import Asking, answers_of
from hibernaut.engine.bringing import FAILED_CALL, Bringing
from hibernaut.engine.live import LiveFeed
from hibernaut.engine.resuming import BEGINNING, LastEvent, last_event
from hibernaut.engine.servers import Remote
from hibernaut.engine.work import Work, work_of
from hibernaut.engine.workers import Workers, start
from hibernaut.errors import StoreError
from hibernaut.kernel.commit import Effect
from hibernaut.kernel.head import decode_head
from hibernaut.messages.events import ToolProgress
from hibernaut.messages.inputs import Event, InputMessage, Settlement, ToolResult, event_message
from hibernaut.metrics import OVER, PERSON, REPEATED, SERVER, UNKNOWN, Metrics
from hibernaut.stores.protocol import EffectRow, Owner, Store
from hibernaut.stores.protocol import Outcome as Stored
from hibernaut.tools.context import ToolContext
from hibernaut.tools.results import Outcome
from hibernaut.tools.running import Functions, Subscription
from hibernaut.tools.tokens import Grant, KeyRing, sign
from hibernaut.tools.tool import AnyTool

if TYPE_CHECKING:
    from hibernaut.engine.remote import RemoteCalls
    from hibernaut.engine.toolsets import Toolsets
    from hibernaut.engine.traces import Traced, Traces

logger = logging.getLogger(__name__)

T = TypeVar("T")

UNKNOWN_EFFECT = (
    "The process that ran {tool} died before it answered. It is unknown whether it happened; check before repeating it."
)
STOPPED_EFFECT = (
    "The process that ran {tool} was shut down before it was done. It is unknown how far it got; "
    "check before repeating it."
)
SUBSCRIPTION_DIED = "The subscription has ended: the process that ran it is gone. Call {tool} again to go on."
DIED = "#died"
"""The event id of that."""

NOT_HERE = "{tool} cannot be used here: this engine keeps nothing between messages, so it cannot keep a subscription."


_UNTRACED: AbstractContextManager[None] = nullcontext()


class _Invocation(msgspec.Struct, eq=False):
    """An effect whose tool runs, or waits for a worker."""

    work: Work
    started: bool
    """It was begun before, by an engine that has died."""
    task: asyncio.Task[None] | None = None
    """Where it runs, while it does."""
    outcome: Outcome | None = None
    """What the tool returned, until that is stored."""


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
        remote: Remote | None = None,
        toolsets: "Toolsets | None" = None,
        tenant: str | None = None,
        metrics: Metrics | None = None,
        traces: "Traces | None" = None,
    ) -> None:
        self._store = store
        self._owner = owner
        self._tools = tools
        self._feed = feed
        self._clock = clock
        self._tasks = tasks
        self._keeps = keeps
        self._metrics = metrics or Metrics()
        self._traces = traces
        self._on_rest = on_rest
        self._workers = Workers(tasks, self._run)
        self._running: dict[str, _Invocation] = {}
        self._unmarked: list[_Invocation] = []
        """Those to be marked as sent, all in one write, before others on the event loop have their turn;"""
        self._returned: list[_Invocation] = []
        """those whose results are to be stored so;"""
        self._writing: set[asyncio.Task[None]] = set()
        """and where either is done."""
        self._rests = asyncio.Event()
        self._cancelled: set[str] = set()
        self._cancelling = 0
        self._left_to_others: dict[str, tuple[Effect, str]] = {}
        self._ending = False
        self._keys: KeyRing | None = None
        self._bringing = Bringing(store, clock)
        self._asking = Asking(store, feed, clock, self._bringing.retry, self._abandon, keeps=keeps)
        self._remote: RemoteCalls | None = None
        if remote is not None and toolsets is not None:
            from hibernaut.engine.remote import RemoteCalls as Calls  # noqa: PLC0415  # most programs have no servers

            self._remote = Calls(
                remote,
                toolsets,
                store,
                clock,
                retry=self._bringing.retry,
                refuse=self._bringing.failure,
                end_unknown=self._end_unknown,
                tenant=tenant,
            )
        self._looking: asyncio.Task[None] | None = None
        self._functions = Functions()

    @property
    def running(self) -> int:
        """How many tools are at work in this process, or are being cancelled."""
        return len(self._running) + self._cancelling

    def perform(self, work: Sequence[Work]) -> None:
        """Begin effects that a commit owes; returns at once."""
        for one in work:
            if one.effect.kind == "cancel":
                self._tasks.create_task(self._cancel(one.effect, one.thread_id))
            else:
                self._begin(one, started=False)

    async def perform_here(self, work: Sequence[Work]) -> None:
        """Perform effects and return when their results are stored."""
        begun = [start(self._tasks, self._run_here(self._register(one, started=False))) for one in work]
        if begun:
            await asyncio.wait(begun)

    async def settle_orphan(self, row: EffectRow) -> None:
        """Do what is right for an effect whose engine died.

        It is begun if it certainly was not, repeated if its tool says that this is safe, and left to the answer if it
        asks a person. Else its call is answered: it is unknown whether it happened.
        """
        done = await self._settle_orphan(row)
        if done is not None and row.state == "sent":
            self._metrics.reconciled[done] += 1

    async def _settle_orphan(self, row: EffectRow) -> int | None:
        """Do it; return which of `RECONCILED` that was, None if it is left to another engine, or is a cancellation."""
        effect = row.effect
        if effect.kind == "cancel":
            self._tasks.create_task(self._cancel(effect, row.thread_id))
            return None
        if effect.server and self._remote is None:
            return None  # it is an orphan again when this engine ends, for one that knows the server
        if effect.kind != "invoke":
            self._begin(Work(effect, row.thread_id), started=row.state == "sent")
            return REPEATED
        thread = await self._store.read_head(row.thread_id)
        head = decode_head(thread.head).head if thread else None
        call = head.calls.get(effect.call_id) if head else None
        if head is None or call is None or call.state in ("cancelled", "expired"):
            # A tool server has still to be told, which is an effect of its own; here there is nothing left to cancel.
            told = [] if effect.server else [f"{effect.call_id}:cancel"]
            await self._store.settle_effects([effect.request_id, *told])
            return OVER
        tool = self._tools.get(effect.tool)
        if tool is not None and tool.resumable and row.state == "sent" and not self._keeps:
            return None  # it is an orphan again when this engine ends, for one that can keep it
        if await self._is_settled_by_hand(effect, row.thread_id):
            return OVER
        if row.state == "pending" or effect.server or (tool is not None and _is_repeatable(tool)):
            work = await work_of(self._store, row, head)
            self._begin(work, started=row.state == "sent")
            return SERVER if effect.server else REPEATED
        if await self._asking.leave(effect, row.thread_id):
            return PERSON
        text = UNKNOWN_EFFECT.format(tool=effect.tool) + answers_of(head, call.id)
        await self._end_unknown(effect, row.thread_id, text, subscription=call.mode == "subscription")
        return UNKNOWN

    async def _is_settled_by_hand(self, effect: Effect, thread_id: str) -> bool:
        """Tell whether an operator has answered a call, which its thread has not taken in yet."""
        for one in await self._store.read_inbox(thread_id):
            content = one.message.content if one.message is not None else None
            if isinstance(content, Settlement) and content.call_id == effect.call_id:
                return True
        return False

    async def heed_cancellations(self) -> None:
        """Carry out cancellations that other processes wrote for tools that run here."""
        if self._running:
            for row in await self._store.cancellations(self._owner):
                call_id = row.effect.call_id
                if call_id in self._running and call_id not in self._cancelled:
                    self._tasks.create_task(self._cancel(row.effect, row.thread_id))

    def look_after_cancellations(self) -> None:
        """Settle the cancellations left to others whose tool has ended before they heard of it."""
        left, self._left_to_others = self._left_to_others, {}
        for effect, thread_id in left.values():
            self._tasks.create_task(self._cancel(effect, thread_id))

    def look_after_servers(self, before: int) -> bool:
        """Look after the calls that tool servers took before that moment; False: that is under way already."""
        if self._looking is not None and not self._looking.done():
            return False
        if self._remote is not None and not self._ending:
            self._looking = self._tasks.create_task(self._look_after(self._remote, before))
        return True

    async def ask_servers(self, before: int) -> None:
        """Do the same, and return when it is done.

        Raises:
            StoreError: not all could be looked after.
        """
        if self._remote is not None:
            await self._remote.look_after(before)

    async def _look_after(self, remote: "RemoteCalls", before: int) -> None:
        try:
            await remote.look_after(before)
        except StoreError:
            logger.exception("calls on tool servers were not looked after; the next time is tried again")

    async def join(self) -> None:
        """Return when no tool is at work."""
        while self.running:
            self._rests.clear()
            await self._rests.wait()

    def shut_down(self) -> None:
        """Cancel what runs; each call is answered as shut down, unless it can be repeated at the next start."""
        self._ending = True
        if self._looking is not None:
            self._looking.cancel()
        for task in self._writing:
            task.cancel()
        for one in list(self._running.values()):
            self._end(one)
        if self._returned:
            _ = start(self._tasks, self._store_returned(), self._writing)

    # One invocation

    def _register(self, work: Work, *, started: bool) -> _Invocation:
        one = self._running[work.effect.request_id] = _Invocation(work, started)
        return one

    def _begin(self, work: Work, *, started: bool) -> None:
        one = self._register(work, started=started)
        if started:
            self._workers.put(one)
        else:
            self._unmarked.append(one)
            if len(self._unmarked) == 1:
                _ = start(self._tasks, self._mark(), self._writing)

    async def _mark(self) -> None:
        """Mark effects as sent, and begin them."""
        unmarked, self._unmarked = self._unmarked, []
        names, marked = [one.work.effect.request_id for one in unmarked], frozenset[str]()
        try:
            if not self._ending:
                marked = frozenset(await self._bringing.retry(self._store.start_effects, self._owner, names))
        except asyncio.CancelledError:
            if not self._ending:
                for one in unmarked:
                    self._over(one)
                raise
        for one, name in zip(unmarked, names, strict=True):
            if name in marked:
                self._workers.put(one)
            else:
                self._over(one)

    async def _run(self, one: _Invocation, task: asyncio.Task[None]) -> None:
        """Have an effect performed that is marked; what was returned is stored with what others return meanwhile."""
        if self._running.get(one.work.effect.request_id) is not one:  # it was cancelled before it began
            return
        one.task = task
        try:
            if not self._ending:
                await self._invoke(one)
            elif not one.started and not one.work.effect.server:
                await self._end_in_time(one.work, deferred=False)
        finally:
            one.task = None
            if one.outcome is None:
                self._over(one)
        if one.outcome is not None:
            self._returned.append(one)
            if len(self._returned) == 1:
                try:
                    _ = start(self._tasks, self._store_returned(), self._writing)
                except RuntimeError:  # everything ends, and takes no more tasks
                    await self._store_returned()

    async def _run_here(self, one: _Invocation) -> None:
        """Do all that there is to do about an effect, by itself."""
        if self._running.get(one.work.effect.request_id) is not one:
            return
        one.task = asyncio.current_task()
        try:
            if await self._bringing.retry(self._store.start_effects, self._owner, [one.work.effect.request_id]):
                await self._invoke(one)
                await self._store_result(one)
        except asyncio.CancelledError:
            if not self._ending and one.work.effect.request_id not in self._cancelled:
                raise
        finally:
            self._over(one)

    async def _store_returned(self) -> None:
        """Bring what functions have returned: together, or each by itself if the store does not take it so."""
        returned, self._returned = self._returned, []
        try:
            if len(returned) == 1 or not await self._are_stored_together(returned):
                await asyncio.gather(*map(self._store_result, returned))
        except asyncio.CancelledError:
            if not self._ending:
                raise
        finally:
            for one in returned:
                self._over(one)

    async def _are_stored_together(self, returned: Sequence[_Invocation]) -> bool:
        results = [(one.work, one.outcome) for one in returned if one.outcome is not None]
        try:
            await self._bringing.store_results(results)
        except StoreError:
            logger.exception("%d results were not taken together; each is brought by itself", len(results))
            return False
        except asyncio.CancelledError:
            if not self._ending:
                raise
            return False
        return True

    async def _store_result(self, one: _Invocation) -> None:
        """Bring what a function has returned; an engine that ends has one try."""
        if one.outcome is None:
            return
        store = partial(self._bringing.store_result, one.work.effect, one.work.thread_id, one.outcome)
        try:
            await self._until_it_ends(store)
        except StoreError:
            logger.exception("the end of call %s was not stored; the next engine finds it", one.work.effect.call_id)
        finally:
            self._over(one)

    async def _until_it_ends(self, write: Callable[[], Awaitable[object]]) -> None:
        """Do something until the store takes it; once more when this engine ends meanwhile."""
        try:
            if not self._ending:
                await self._bringing.retry(write)
                return
        except asyncio.CancelledError:
            if not self._ending:
                raise
        await write()

    def _over(self, one: _Invocation) -> None:
        request = one.work.effect.request_id
        if self._running.get(request) is one:
            del self._running[request]
            self._cancelled.discard(request)
        self._maybe_rest()

    def _maybe_rest(self) -> None:
        if not self.running:
            self._rests.set()
            self._on_rest()

    def _end(self, one: _Invocation) -> None:
        if one.task is not None:
            one.task.cancel()
        elif one.outcome is None:  # what has returned is about to be stored
            self._over(one)

    async def _invoke(self, one: _Invocation) -> None:
        """Perform an effect that is marked as sent; leave what a function returned in `outcome`."""
        work, effect = one.work, one.work.effect
        tool = self._tools.get(effect.tool)
        deferred = False
        try:
            if effect.kind != "invoke":
                await self._perform_there(work, started=one.started)
                return
            with self._traced(work, repeated=one.started) as span:
                if effect.server:
                    await self._perform_there(work, started=one.started)
                elif tool is not None and tool.mode == "subscription":
                    await self._subscribe(tool, work, span, started=one.started)
                else:
                    one.outcome = await self._call(tool, work, span)
                    deferred = one.outcome is None
            if deferred:
                await self._bringing.retry(self._store.accept_effects, [effect.request_id])
        except asyncio.CancelledError:
            if effect.request_id in self._cancelled:
                return
            if not self._ending:
                raise
            if not effect.server:
                await self._end_in_time(work, deferred=deferred)

    def _traced(self, work: Work, *, repeated: bool) -> "AbstractContextManager[Traced | None]":
        return _UNTRACED if self._traces is None else self._traces.tool(work, repeated=repeated)

    async def _perform_there(self, work: Work, *, started: bool) -> None:
        """Perform what is owed to a tool server."""
        effect = work.effect
        if self._remote is None:
            unknown = f"Error: {effect.tool} was not run: its server {effect.server} is not known here."
            if effect.kind == "invoke":
                await self._bringing.failure(effect, work.thread_id, unknown)
        elif effect.kind == "invoke":
            await self._remote.invoke(work, started=started)
        elif effect.kind == "answer":
            await self._remote.answer(work)
        else:
            await self._remote.close(work)

    async def _call(self, tool: AnyTool | None, work: Work, span: "Traced | None") -> Outcome | None:
        """Run a function; return how its call ended, None if it was deferred."""
        effect = work.effect
        if tool is None:
            return Outcome(f"Error: there is no tool {effect.tool!r} any more.", is_error=True)
        takes_context = tool.signature.context_parameter is not None
        context = self._context(tool, work, BEGINNING, self._keys or await self._secrets()) if takes_context else None
        outcome = await self._functions.run(tool, effect.arguments, context, effect.call_id)
        if span is not None and outcome is None:
            span.note("hibernaut.deferred", True)
        elif span is not None and outcome is not None and outcome.is_error:
            span.fail(FAILED_CALL)
        return outcome

    async def _subscribe(self, tool: AnyTool, work: Work, span: "Traced | None", *, started: bool) -> None:
        effect = work.effect
        if not self._keeps:
            refusal = Outcome(NOT_HERE.format(tool=tool.name), is_error=True)
            await self._bringing.result(effect, work.thread_id, refusal)
            return
        known = (
            await self._bringing.retry(last_event, self._store, work.thread_id, effect.call_id)
            if started
            else BEGINNING
        )
        if known.final:
            return
        subscription = Subscription(tool, effect.arguments, self._context(tool, work, known, await self._secrets()))
        try:
            await self._bringing.follow(tool, work, subscription, count(known.sequence + 1), span)
        finally:
            await subscription.close()

    async def _secrets(self) -> KeyRing:
        if self._keys is None:
            self._keys = KeyRing([await self._bringing.retry(self._store.secret)])
        return self._keys

    def _context(self, tool: AnyTool, work: Work, last: LastEvent, keys: KeyRing) -> ToolContext:
        effect = work.effect

        loop = asyncio.get_running_loop()

        def token() -> str:
            return sign(keys, Grant(work.thread_id, effect.call_id))

        def progress(text: str) -> None:
            self._feed.pass_on(ToolProgress(thread_id=work.thread_id, call_id=effect.call_id, text=text))

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
            ask=partial(self._asking.ask, effect, work.thread_id) if _can_ask(tool) else None,
            last_event_id=last.event_id,
            last_sequence=last.sequence,
        )

    def _abandon(self, call_id: str) -> None:
        """End an invocation here, and leave its call to somebody else."""
        if (one := self._running.get(call_id)) is not None:
            self._cancelled.add(call_id)
            self._end(one)

    # Cancelling

    async def _cancel(self, effect: Effect, thread_id: str) -> None:
        """Carry out a cancellation, unless the invocation runs in another engine: that one does it."""
        self._cancelling += 1
        try:
            running = self._running.get(effect.call_id)
            if running is not None and running.work.thread_id == thread_id:
                self._cancelled.add(effect.call_id)
                self._end(running)
                if running.task is not None:
                    await asyncio.wait([running.task])
            elif await self._is_left_to_others(effect, thread_id):
                return
            if effect.server and self._remote is not None:
                await self._remote.cancel(effect, thread_id)
            over = [effect.call_id, effect.request_id]
            await self._bringing.retry(partial(self._store.settle_effects, over, thread_id=thread_id))
        finally:
            self._cancelling -= 1
            self._maybe_rest()

    async def _is_left_to_others(self, effect: Effect, thread_id: str) -> bool:
        for row in await self._bringing.retry(self._store.read_effects, thread_id):
            elsewhere = row.state != "accepted" and row.owner != self._owner.engine_id
            if row.effect.request_id == effect.call_id and elsewhere:
                self._left_to_others[effect.request_id] = (effect, thread_id)
                return True
        return False

    async def _end_in_time(self, work: Work, *, deferred: bool) -> None:
        """Write down how a call ended that this engine's end cut off; the next one repeats what can be repeated."""
        tool = self._tools.get(work.effect.tool)
        try:
            if deferred:
                await self._store.accept_effects([work.effect.request_id])
            elif tool is not None and _is_repeatable(tool):
                return
            elif not await self._asking.leave(work.effect, work.thread_id):
                subscription = tool is not None and tool.mode == "subscription"
                text = STOPPED_EFFECT.format(tool=work.effect.tool)
                await self._end_unknown(work.effect, work.thread_id, text, subscription=subscription)
        except StoreError:
            logger.exception("the end of call %s was not stored; the next engine finds it", work.effect.call_id)

    async def _end_unknown(self, effect: Effect, thread_id: str, text: str, *, subscription: bool) -> None:
        """Answer a call whose end nobody knows; a subscription that was confirmed has its last event then."""
        self._metrics.unknown += 1
        if not subscription:
            # An id of its own: the genuine result, should it come all the same, is no second one.
            unknown = ToolResult(effect.call_id, text, is_error=True, unknown=True)
            message = InputMessage(f"unknown:{effect.call_id}", thread_id, unknown, "engine")
            await self._store.put([message], self._clock.now())
        elif await self._bringing.store_result(effect, thread_id, Outcome(text, is_error=True)) is Stored.DUPLICATE:
            died = SUBSCRIPTION_DIED.format(tool=effect.tool)
            last = Event(effect.call_id, died, DIED, associative=True, final=True)
            await self._store.put([event_message(thread_id, last, "engine")], self._clock.now())


def _is_repeatable(tool: AnyTool) -> bool:
    """Tell whether a call whose process has ended is simply begun again."""
    return tool.resumable if tool.mode == "subscription" else tool.idempotent


def _can_ask(tool: AnyTool) -> bool:
    return tool.mode == "background" and not tool.threaded
