"""Following one thread: its events as they come, until it is over with what it does."""

import asyncio
from contextlib import aclosing, suppress
from typing import Protocol

from msgspec.structs import replace

from hibernaut.engine.answering import as_event, questions_of
from hibernaut.engine.trees import cursor_now
from hibernaut.handle import ThreadHandle
from hibernaut.kernel.head import decode_head
from hibernaut.messages.events import AgentEvent, QuestionAsked, QuestionEnded
from hibernaut.state import ThreadState, state_of
from hibernaut.system import AgentSystem

LOOK_EVERY = 0.1
"""Seconds between two looks at whether a call was deferred, which nothing announces."""

SOON = 30_000
"""Milliseconds until another attempt for which also those stay who do not wait for what sleeps."""


class Teller(Protocol):
    """Shows events."""

    def tell(self, event: AgentEvent) -> None:
        """Show one event."""
        ...

    def end(self) -> None:
        """End what is half shown."""
        ...


class Follower:
    """Shows a thread's events. `cursor` is where to go on after the last one that was shown."""

    def __init__(self, handle: ThreadHandle, cursor: str, teller: Teller) -> None:
        self._handle = handle
        self._teller = teller
        self.cursor = cursor

    async def show(self, *, follow: bool = True) -> None:
        """Show what there is and (with `follow`) what comes, until the system is closed. Cancelling loses nothing.

        With `follow` also what the threads below ask people: they cannot be answered by somebody who does not see it.
        """
        if not follow:
            await self._show_own(follow=False)
            return
        async with asyncio.TaskGroup() as group:
            below = group.create_task(self._show_asked_below())
            await self._show_own(follow=True)
            below.cancel()

    async def _show_asked_below(self) -> None:
        tree = await self._handle.tree()
        for question in await self._handle.questions_below():
            self._teller.tell(as_event(question))
        living = {state.thread_id: state.version for state in tree if state.status != "closed"}
        begin = cursor_now(living or {self._handle.thread_id: tree.thread.version})
        async with aclosing(self._handle.events(begin, tree=True)) as events:
            async for event in events:
                if event.thread_id != self._handle.thread_id and isinstance(event, QuestionAsked | QuestionEnded):
                    self._teller.tell(replace(event, cursor=""))

    async def _show_own(self, *, follow: bool) -> None:
        async with aclosing(self._handle.events(self.cursor, follow=follow)) as events:
            async for event in events:
                self.cursor = event.cursor or self.cursor
                self._teller.tell(event)

    async def show_until_over(
        self, system: AgentSystem, *, wait: bool, kept: bool, answers: bool = False
    ) -> ThreadState:
        """Show the thread until it is over with what it does; see `until_over`."""
        async with asyncio.TaskGroup() as group:
            showing = group.create_task(self.show())
            state = await until_over(system, self._handle, wait=wait, kept=kept, answers=answers)
            showing.cancel()
        await self.show(follow=False)
        return state


async def until_over(
    system: AgentSystem, handle: ThreadHandle, *, wait: bool, kept: bool, answers: bool = False
) -> ThreadState:
    """Return when a thread and those below it have nothing more to do.

    Args:
        system: runs it, or watches it.
        handle: the thread.
        wait: whether sleeping, waiting for a deferred call and being put off for long counts as something to do.
        kept: whether others can reach its store. Where they cannot, a thread is over when only they could wake it.
        answers: whether somebody is here who answers what it asks.
    """
    with system.feed.watch(handle.thread_id) as moved:
        while True:
            moved.clear()
            state = await handle.state()
            below = await _at_work_below(system, state, wait=wait) if state.children else False
            if state.activity == "idle" and not below:
                # What a child has done last is in this thread's inbox by now.
                state = await handle.state() if state.children else state
                if state.activity == "idle":
                    return state
            if state.activity in ("resting", "waiting"):
                if not wait and await _sleeps(system, state, answers=answers):
                    return state
                if not kept and await _is_left_alone(system, state, answers=answers):
                    return state
            if state.activity == "retrying" and not wait and await _is_put_off(system, state):
                return state
            with suppress(TimeoutError):
                async with asyncio.timeout(None if wait and kept and not below else LOOK_EVERY):
                    await moved.wait()


async def _is_put_off(system: AgentSystem, state: ThreadState) -> bool:
    """Tell whether a thread whose completion failed has nothing to do for long."""
    inbox = await system.store.read_inbox(state.thread_id)
    return min((arrived.due for arrived in inbox), default=0) > system.clock.now() + SOON


async def _at_work_below(system: AgentSystem, state: ThreadState, *, wait: bool) -> bool:
    """Tell whether a thread below this one has something to do that will reach it."""
    rows = await system.store.read_tree(state.root or state.thread_id, living=True)
    busy = ("ready", "waiting", "retrying", "resting") if wait else ("ready", "waiting", "retrying")
    return any(state_of(row, ready=row.waiting > 0).activity in busy for row in rows if row.parent)


async def _sleeps(system: AgentSystem, state: ThreadState, *, answers: bool) -> bool:
    """Tell whether no process has to work for what the thread waits for."""
    waits_for = {call.call_id for call in state.calls if call.state == "open"}
    return not waits_for & await _worked_on(system, state, answers=answers)


async def _is_left_alone(system: AgentSystem, state: ThreadState, *, answers: bool) -> bool:
    """Tell whether neither a timer nor anything at work in this process will ever wake the thread."""
    return not state.waiting and not await _worked_on(system, state, answers=answers)


async def _worked_on(system: AgentSystem, state: ThreadState, *, answers: bool) -> set[str]:
    """Return the calls that a process works on, without those that wait for somebody who is not here."""
    rows = await system.store.read_effects(state.thread_id)
    asking = await asking_calls(system, state) if state.questions and not answers else set()
    return {row.effect.call_id for row in rows if row.state != "accepted"} - asking


async def asking_calls(system: AgentSystem, state: ThreadState) -> set[str]:
    """Return the calls of a thread that wait for a person."""
    head = decode_head((await system.row(state.thread_id)).head).head
    return {question.call_id for question in questions_of(head)}
