"""The calls of a tool server, from the moment they are accepted until their last callback is owed.

A call that was acknowledged is stored. If the process dies, the next one begins it where that is safe (it had not
begun, its tool is idempotent, or it is a resumable subscription), and otherwise answers that nobody knows whether it
happened.
"""

import asyncio
import json
import logging
from collections.abc import Callable, Coroutine, Mapping
from functools import partial
from typing import Any, Final, TypeVar

from hibernaut.clock import Clock
from hibernaut.codec import sha256
from hibernaut.errors import AlreadyAnswered, EventMisfit, MalformedInput, StoreError, TokenRefused
from hibernaut.ids import base32
from hibernaut.kernel.fold import Refusal
from hibernaut.rap.answers import Unavailable
from hibernaut.rap.kit.alarms import Alarm, Alarms
from hibernaut.rap.kit.delivery import Delivery
from hibernaut.rap.kit.questions import Questions
from hibernaut.rap.kit.results import event_of, failed, result_of, said_by
from hibernaut.rap.kit.state import CallbackKind, Owed, State, StoredCall
from hibernaut.rap.requests import Invocation
from hibernaut.rap.wire import encode
from hibernaut.tools.context import ToolContext, ToolEvent
from hibernaut.tools.event_schema import misfit
from hibernaut.tools.results import Outcome, failure
from hibernaut.tools.results import outcome as outcome_of
from hibernaut.tools.running import Functions, Subscription
from hibernaut.tools.table import ToolTable
from hibernaut.tools.tool import AnyTool

logger = logging.getLogger(__name__)

T = TypeVar("T")

MOST_RUNNING: Final = 10_000
"""Calls that are at work at the same time; one more is told to come again."""

LAST_MOMENTS: Final = 5
"""Seconds that functions have to clean up when the server stops."""

STATE_PAUSE: Final = 1_000
"""Milliseconds before what the state file did not take is tried again."""

UNKNOWN: Final = (
    "The server of {tool} was stopped before it answered. It is unknown whether it happened; check before repeating it."
)
BROKE: Final = "{tool} broke off inside the server. It is unknown whether it happened; check before repeating it."
DIED: Final = "The subscription has ended: the server that ran it was stopped. Call {tool} again to go on."
GONE: Final = "there is no tool {tool} any more."
EXPIRED: Final = "{tool} did not answer before its deadline."


class Calls:
    """Begins, repeats, cancels and answers calls.

    Args:
        tools: what can be called, by name.
        state: where calls are kept.
        delivery: what brings their callbacks.
        questions: what asks on their behalf.
        alarms: what ends those that have a deadline.
        clock: the time.
    """

    def __init__(
        self,
        tools: Mapping[str, AnyTool],
        state: State,
        delivery: Delivery,
        questions: Questions,
        alarms: Alarms,
        clock: Clock,
    ) -> None:
        self._tools = tools
        self._table = ToolTable(list(tools.values()), builtins=False)
        self._state = state
        self._delivery = delivery
        self._questions = questions
        self._alarms = alarms
        self._clock = clock
        self._functions = Functions()
        self._running: dict[str, asyncio.Task[None]] = {}
        self._accepted: set[str] = set()
        """Calls that are stored and not begun: their acknowledgement is on its way."""
        self._expiring: set[asyncio.Task[None]] = set()
        self._deadlines: dict[str, Alarm] = {}
        self._stopping = False

    # What the runtime wants

    async def accept(self, invocation: Invocation, key: str, base: str) -> Callable[[], None]:
        """Store a call, or hear that it is a repeat; return what begins it once it is acknowledged.

        Args:
            invocation: the call.
            key: what makes it this one; "": its thread and its id do.
            base: the URL that the server was called under.

        Raises:
            MalformedInput: the key belongs to another call.
            Unavailable: there is no room, or the server is being stopped.
        """
        if self._stopping or len(self._running) >= MOST_RUNNING:
            raise Unavailable("the server cannot take a call now; come again")
        key = f"k:{key}" if key else "c:" + base32(_digest(invocation.group_id, invocation.id)[:20])
        token = self._questions.secret("token", key)
        now = self._clock.now()
        known = await self._state.accept(key, invocation, encode(invocation), base=base, token=token, now=now)
        if known is None:
            call = StoredCall(key, invocation, invocation.callback_url, base, token, "accepted", now, "", 0)
            self._accepted.add(key)
            return partial(self._begin_accepted, call)
        if (known.invocation.group_id, known.invocation.id) != (invocation.group_id, invocation.id):
            raise MalformedInput("the Idempotency-Key was used for another call; each call has its own")
        self._delivery.readdress(key, invocation.callback_url, again=known.state == "over")
        return _nothing

    async def cancel(self, thread_id: str, call_id: str = "") -> None:
        """End a call, or all of a thread, so that nothing is heard of it any more."""
        for key in await self._state.cancel(thread_id, call_id, self._clock.now()):
            self._let_go(key)
            self._stop(key)

    async def is_alive(self, thread_id: str, call_id: str) -> bool:
        """Tell whether something is still to come of a call."""
        return await self._state.is_alive(thread_id, call_id)

    # What the program wants

    async def deliver(self, token: str, value: object) -> None:
        """Answer a call that was deferred.

        Raises:
            TokenRefused: no call has this token.
            AlreadyAnswered: the call is over.
        """
        call = await self._state.find_token(token)
        if call is None:
            raise TokenRefused("no call has this token")
        result = failure(value) if isinstance(value, BaseException) else outcome_of(value)
        if not await self._owe(call, "result", result_of(call.invocation, result)):
            raise AlreadyAnswered("the call is over: it has its result, or was cancelled")

    async def resume(self) -> None:
        """Go on with what the last process left."""
        for call in await self._state.open_calls():
            tool = self._tools.get(call.invocation.operation)
            if tool is None:
                await self._end(call, failed(GONE.format(tool=call.invocation.operation)))
            elif call.state == "deferred":
                self._watch_deadline(call, tool)
            elif call.state == "accepted" or _is_repeatable(tool):
                self._begin(call)
            else:
                words = DIED if call.state == "subscribed" else UNKNOWN
                await self._end(call, failed(words.format(tool=tool.name)))

    async def stop(self) -> None:
        """Cancel all functions. What they leave is taken up by the next process that has the state file."""
        self._stopping = True
        tasks = [*self._running.values(), *self._expiring]
        for task in tasks:
            task.cancel()
        if tasks:
            _, left = await asyncio.wait(tasks, timeout=LAST_MOMENTS)
            if left:
                logger.warning("%d functions did not end when they were cancelled, and are left alone", len(left))

    async def refused(self, key: str, owed: Owed, why: str) -> None:
        """Hear that a callback was not taken: nobody wants the events of a subscription, or nobody can be asked."""
        if owed.kind == "question":
            self._questions.fail(key, f"the runtime did not take it ({why})")
        elif owed.kind != "result":
            await self._state.end(key, self._clock.now())
            self._let_go(key)
            self._stop(key)

    # One call

    def _begin_accepted(self, call: StoredCall) -> None:
        if call.key in self._accepted:  # otherwise it was cancelled meanwhile
            self._accepted.discard(call.key)
            self._begin(call)

    def _begin(self, call: StoredCall) -> None:
        if call.key in self._running or self._stopping:
            return
        task = self._running[call.key] = asyncio.get_running_loop().create_task(self._supervise(call))
        task.add_done_callback(lambda _: self._running.pop(call.key, None))

    def _stop(self, key: str) -> None:
        task = self._running.get(key)
        if task is not None and task is not asyncio.current_task():
            task.cancel()

    def _let_go(self, key: str) -> None:
        self._accepted.discard(key)
        self._delivery.drop(key)
        alarm = self._deadlines.pop(key, None)
        if alarm is not None:
            self._alarms.call_off(alarm)

    async def _supervise(self, call: StoredCall) -> None:
        try:
            await self._work(call)
        except Exception:
            logger.exception("call %s of %s broke off", call.invocation.id, call.invocation.operation)
            await self._end_as_it_stands(call.key, failed(BROKE.format(tool=call.invocation.operation)))

    async def _work(self, call: StoredCall) -> None:
        written = json.dumps(call.invocation.arguments, ensure_ascii=False)
        judged = self._table.judge(call.invocation.operation, written, self._clock.now())
        tool = self._tools.get(call.invocation.operation)
        if isinstance(judged.verdict, Refusal) or tool is None:
            reason = judged.verdict.reason if isinstance(judged.verdict, Refusal) else ""
            await self._end(call, failed(reason))
            return
        self._watch_deadline(call, tool)
        if not _is_repeatable(tool) and not await self._keep(partial(self._state.set_state, call.key, "running")):
            return
        if tool.mode == "subscription":
            await self._subscribe(tool, call, judged.arguments)
            return
        context = self._context(tool, call)
        ended = await self._functions.run(tool, judged.arguments, context, call.invocation.id)
        if ended is None:
            await self._keep(partial(self._state.set_state, call.key, "deferred"))
        else:
            await self._end(call, ended)

    async def _subscribe(self, tool: AnyTool, call: StoredCall, arguments: str) -> None:
        subscription = Subscription(tool, arguments, self._context(tool, call))
        try:
            if await self._confirm(call, subscription):
                await self._bring_events(tool, call, subscription)
        finally:
            await subscription.close()

    async def _confirm(self, call: StoredCall, subscription: Subscription) -> bool:
        """Bring the first value, which confirms a subscription; tell whether it goes on."""
        first = await subscription.next()
        if call.state == "subscribed":  # one that goes on after a restart says it once more
            return True
        word = outcome_of(first.content) if first is not None else subscription.ended or Outcome("")
        if first is None or word.is_error:
            await self._end(call, word)
            return False
        return await self._owe(call, "confirmation", result_of(call.invocation, word, subscription=True))

    async def _bring_events(self, tool: AnyTool, call: StoredCall, subscription: Subscription) -> None:
        number, last = call.last_sequence, False
        refused: EventMisfit | None = None
        while not last:
            event = await subscription.next(refused)
            if event is None:
                event, outcome, last = ToolEvent(""), _last_words(tool, subscription.ended), True
            else:
                outcome, last = outcome_of(event.content), event.final
                refused = _misfit(tool, outcome)
                if refused is not None:
                    logger.warning("%s", refused)
                    last = False
                    continue
            number += 1
            name = event.event_id or f"#{number}"
            associative = tool.events == "associative"
            body = event_of(
                call.invocation, outcome, associative=associative, event_id=name, sequence=number, final=last
            )
            if not await self._owe(call, "final" if last else "event", body, event_id=name, sequence=number):
                return
            await self._delivery.room(call.key)

    def _context(self, tool: AnyTool, call: StoredCall) -> ToolContext:
        answers = tool.mode != "subscription"
        return ToolContext(
            call_id=call.invocation.id,
            thread_id=call.invocation.group_id,
            tool=tool.name,
            user=call.invocation.user_id or "",
            issue_token=(lambda: call.token) if answers else None,
            ask=partial(self._questions.ask, call) if answers and not tool.threaded else None,
            last_event_id=call.last_event_id,
            last_sequence=call.last_sequence,
        )

    # Ends

    def _watch_deadline(self, call: StoredCall, tool: AnyTool) -> None:
        if tool.deadline:
            late = partial(self._expire, call, failed(EXPIRED.format(tool=tool.name)))
            self._deadlines[call.key] = self._alarms.at(call.accepted + tool.deadline, late)

    def _expire(self, call: StoredCall, outcome: Outcome) -> None:
        task = asyncio.get_running_loop().create_task(self._end_late(call, outcome))
        self._expiring.add(task)
        task.add_done_callback(self._expiring.discard)

    async def _end_late(self, call: StoredCall, outcome: Outcome) -> None:
        await self._end_as_it_stands(call.key, outcome)
        self._stop(call.key)

    async def _end_as_it_stands(self, key: str, outcome: Outcome) -> None:
        """End a call by what its state is now, and not by what it was when its task began."""
        known = await self._keep(partial(self._state.read_call, key))
        if known is not None:
            await self._end(known, outcome)

    async def _end(self, call: StoredCall, outcome: Outcome) -> None:
        """Say how a call ended: by its result, or by the last event if it is a subscription that was confirmed."""
        if call.state != "subscribed":
            await self._owe(call, "result", result_of(call.invocation, outcome))
            return
        tool = self._tools.get(call.invocation.operation)
        number = call.last_sequence + 1
        associative = tool is None or tool.events == "associative"
        name = f"#{number}"
        body = event_of(call.invocation, outcome, associative=associative, event_id=name, sequence=number, final=True)
        await self._owe(call, "final", body, event_id=name, sequence=number)

    async def _owe(
        self, call: StoredCall, kind: CallbackKind, body: bytes, *, event_id: str = "", sequence: int = 0
    ) -> bool:
        """Store a callback and have it brought; tell whether the call was not over already."""
        now = self._clock.now()
        owe = partial(self._state.owe, call.key, kind, body, now, event_id=event_id, sequence=sequence)
        url = await self._keep(owe)
        if url is None:
            return False
        self._delivery.note(call.key, url)
        if kind in ("result", "final") and (alarm := self._deadlines.pop(call.key, None)) is not None:
            self._alarms.call_off(alarm)
        return True

    async def _keep(self, write: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Do it until the state file takes it: what a function did must not be lost for want of a record."""
        while True:
            try:
                return await write()
            except StoreError:
                logger.exception("the state file did not take it; trying again")
            await self._clock.sleep(STATE_PAUSE)


def _is_repeatable(tool: AnyTool) -> bool:
    """Tell whether a call whose process has ended is simply begun again."""
    return tool.resumable if tool.mode == "subscription" else tool.idempotent


def _misfit(tool: AnyTool, outcome: Outcome) -> EventMisfit | None:
    problems = misfit(tool.event_schema, said_by(outcome)) if tool.event_schema else ""
    return EventMisfit(tool.name, problems) if problems else None


def _last_words(tool: AnyTool, ended: Outcome | None) -> Outcome:
    """Return what a subscription says of its own end: nothing if its events have a schema, unless it failed."""
    return Outcome("") if ended is None or (tool.event_schema and not ended.is_error) else ended


def _digest(*names: str) -> bytes:
    return sha256("\x00".join(names).encode())


def _nothing() -> None:
    pass
