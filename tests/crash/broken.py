"""Builds that are broken on purpose, each in one place, so that the harness can show that it would find that."""

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import pytest
from msgspec.structs import replace

import hibernaut.engine.dispatcher
import hibernaut.kernel.ending
from hibernaut.engine.dispatcher import Dispatcher
from hibernaut.engine.slice import SliceRunner
from hibernaut.engine.work import Work
from hibernaut.errors import ModelError, StaleClaim, StoreError
from hibernaut.kernel.commit import SliceCommit
from hibernaut.kernel.draft import Draft
from hibernaut.messages.inputs import InputMessage, ToolResult
from hibernaut.stores.memory import MemoryStore
from hibernaut.stores.protocol import Claim, LogRow, Outcome, Round, Store, ThreadRow
from hibernaut.testing.courses import OpenStore
from hibernaut.testing.watched import WatchedStore
from hibernaut.tools.tokens import Grant, KeyRing


def opening(make: Callable[[], Store]) -> Callable[[], OpenStore]:
    """Return a kind of store: each is made once, and is opened for one process after the other."""

    def new() -> OpenStore:
        store = make()

        @asynccontextmanager
        async def open_it() -> AsyncIterator[Store]:
            yield store

        return open_it

    return new


# Stores


class WithoutFence(MemoryStore):
    """Lets a writer write whose claim is over."""

    async def commit(self, claim: Claim, commit: SliceCommit, *, keep: bool = False) -> None:
        try:
            await super().commit(claim, commit, keep=keep)
        except StaleClaim:
            thread = self._threads[claim.thread_id]
            thread.version = commit.version - 1
            thread.owner = thread.owner or next(iter(self._engines.values()))
            await super().commit(replace(claim, token=thread.token), commit, keep=keep)


class Forgetful(MemoryStore):
    """Does not record the ids of what was taken in."""

    async def put(self, messages: Sequence[InputMessage], now: int, **more: Any) -> list[Outcome]:
        outcomes = await super().put(messages, now, **more)
        for place, (message, outcome) in enumerate(zip(messages, outcomes, strict=True)):
            waits = {one.message_id for one in await self.read_inbox(message.thread_id)}
            if outcome is Outcome.DUPLICATE and message.message_id not in waits:
                again = replace(message, message_id=f"{message.message_id} again")
                outcomes[place] = (await super().put([again], now))[0]
        return outcomes


class LosingResults(MemoryStore):
    """Says "accepted" to a result before it is stored, and loses the first one."""

    lost = False

    async def put(self, messages: Sequence[InputMessage], now: int, **more: Any) -> list[Outcome]:
        if not self.lost and any(isinstance(message.content, ToolResult) for message in messages):
            self.lost = True
            return [Outcome.ACCEPTED] * len(messages)
        return await super().put(messages, now, **more)


class DroppingReceipts(MemoryStore):
    """Keeps no receipt of the second round of a thread."""

    async def commit(self, claim: Claim, commit: SliceCommit, *, keep: bool = False) -> None:
        kept = replace(commit, receipt=b"") if commit.version == 2 else commit
        await super().commit(claim, kept, keep=keep)


class RewritingHistory(MemoryStore):
    """Changes what a thread has said, when it is read again."""

    async def read_log(self, thread_id: str, after: int = 0, limit: int = 0) -> list[LogRow]:
        rows = await super().read_log(thread_id, after, limit)
        return [replace(row, page=row.page.replace(b"morning", b"evening")) for row in rows]


class Swapping(MemoryStore):
    """Delivers two results each to the call of the other."""

    held: InputMessage | None = None

    async def put(self, messages: Sequence[InputMessage], now: int, **more: Any) -> list[Outcome]:
        if not messages or not all(isinstance(message.content, ToolResult) for message in messages):
            return await super().put(messages, now, **more)
        results = [self.held, *messages] if self.held is not None else messages
        self.held = None
        if len(results) == 1:
            (self.held,) = results
            return [Outcome.ACCEPTED]
        one, other = results
        swapped = [_swapped(one, other), _swapped(other, one)]
        return (await super().put(swapped, now, **more))[: len(messages)]


def _swapped(message: InputMessage, other: InputMessage) -> InputMessage:
    assert isinstance(message.content, ToolResult)
    assert isinstance(other.content, ToolResult)
    return replace(message, content=replace(message.content, content=other.content.content))


# Engines and the kernel


def dispatching_before_commit(patch: pytest.MonkeyPatch) -> None:
    """Run tools before the commit that owes their calls."""
    made = SliceRunner.__init__
    call, done = Dispatcher._call, dict[str, Any]()

    class Early:
        def __init__(self, store: Store, dispatcher: Dispatcher) -> None:
            self._store, self._dispatcher = store, dispatcher

        def __getattr__(self, name: str) -> Any:
            return getattr(self._store, name)

        async def commit(self, claim: Claim, commit: SliceCommit, *, keep: bool = False) -> None:
            for effect in commit.effects:
                if effect.kind == "invoke" and effect.local:
                    tool = self._dispatcher._tools.get(effect.tool)
                    done[effect.request_id] = await call(self._dispatcher, tool, Work(effect, claim.thread_id), None)
            await self._store.commit(claim, commit, keep=keep)

        async def commit_all(self, rounds: Sequence[Round]) -> list[Exception | None]:
            for one in rounds:
                await self.commit(one.claim, one.commit, keep=one.keep)
            return [None] * len(rounds)

    def make(self: SliceRunner, store: Store, launches: Any, models: Any, dispatcher: Dispatcher, *more: Any) -> None:
        made(self, Early(store, dispatcher), launches, models, dispatcher, *more)

    async def call_once(self: Dispatcher, tool: Any, work: Work, span: Any) -> Any:
        request = work.effect.request_id
        return done.pop(request) if request in done else await call(self, tool, work, span)

    patch.setattr(SliceRunner, "__init__", make)
    patch.setattr(Dispatcher, "_call", call_once)


def repeating_what_is_uncertain(patch: pytest.MonkeyPatch) -> None:
    """Run a tool again whose process died, whatever it says of itself."""
    patch.setattr(hibernaut.engine.dispatcher, "_is_repeatable", lambda _tool: True)


def keeping_half_turns(patch: pytest.MonkeyPatch) -> None:
    """Make history of what a broken stream had said."""
    stream = SliceRunner._plain_stream

    async def forgive(self: SliceRunner, *arguments: Any) -> str:
        try:
            return await stream(self, *arguments)
        except ModelError:
            return "interrupted"

    patch.setattr(SliceRunner, "_plain_stream", forgive)


def ignoring_stop(patch: pytest.MonkeyPatch) -> None:
    """Note that a thread was stopped, and go on."""
    end = hibernaut.kernel.ending._end

    def go_on(draft: Draft, status: str, reason: str) -> None:
        end(draft, status, reason)
        draft.head.status = "open"

    patch.setattr(hibernaut.kernel.ending, "_end", go_on)


def taking_failures_for_nothing(patch: pytest.MonkeyPatch) -> None:
    """Take a thread that cannot be read for one that does not exist."""
    read = WatchedStore.read_head

    async def read_or_not(self: WatchedStore, thread_id: str) -> ThreadRow | None:
        try:
            return await read(self, thread_id)
        except StoreError:
            return None

    patch.setattr(WatchedStore, "read_head", read_or_not)


def writing_twice(patch: pytest.MonkeyPatch) -> None:
    """Send what a commit sends in a second write, after it."""

    async def commit(self: WatchedStore, claim: Claim, commit: SliceCommit, *, keep: bool = False) -> None:
        alone = replace(commit, outgoing=())
        await self._perform("commit", lambda: self._inner.commit(claim, alone, keep=keep))
        for sent in commit.outgoing:
            await self._perform("put", partial(self._inner.put, [sent.message], commit.at, due=sent.due))

    patch.setattr(WatchedStore, "commit", commit)


def believing_every_signature(patch: pytest.MonkeyPatch) -> None:
    """Take any callback token for genuine."""
    patch.setattr(KeyRing, "is_genuine", lambda *_: True)


def forgetting_the_time(patch: pytest.MonkeyPatch) -> None:
    """Take callbacks whose token has expired."""
    patch.setattr(Grant, "is_over", lambda *_: False)
