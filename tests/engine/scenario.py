"""A system under test: its store, its clock and its model are in the test's hand."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import aclosing, asynccontextmanager, suppress
from types import TracebackType
from typing import Any, TypeVar, cast

from hibernaut.errors import StoreError
from hibernaut.handle import ThreadHandle
from hibernaut.kernel.head import Head, decode_head
from hibernaut.messages.events import (
    AgentEvent,
    CompletionFinished,
    CompletionStarted,
    Notice,
    SubscriptionEvent,
    TextChunk,
    ThinkingChunk,
    ToolCall,
    ToolProgress,
    ToolResult,
    TurnDiscarded,
    UserInput,
)
from hibernaut.messages.items import (
    CallItem,
    EventItem,
    Item,
    NoticeItem,
    QuestionEndItem,
    QuestionItem,
    ReasoningItem,
    ResultItem,
    TextItem,
    UserItem,
)
from hibernaut.messages.parts import plain_text
from hibernaut.models.protocol import Model, ModelSource
from hibernaut.models.scripted import Script, ScriptedModel
from hibernaut.stores.memory import MemoryStore
from hibernaut.stores.protocol import Store
from hibernaut.system import AgentSystem
from hibernaut.testing.clock import ManualClock
from hibernaut.testing.faults import FaultyStore, SimulatedCrash
from hibernaut.tools.tool import AnyTool

START = 1_700_000_000_000
SECOND = 1_000
MINUTE = 60 * SECOND

PATIENCE = 20
"""Seconds of real time after which a scenario that goes nowhere has failed."""

T = TypeVar("T")


class FailingStore(FaultyStore):
    """A store whose next operation of a name fails, or as many as there are errors for it."""

    def __init__(self, inner: Store) -> None:
        super().__init__(inner)
        self.failures: dict[str, StoreError | list[StoreError]] = {}

    async def _perform(self, name: str, operation: Callable[[], Awaitable[T]]) -> T:
        failure = self.failures.pop(name, None)
        if isinstance(failure, list):
            failure, *rest = failure
            if rest:
                self.failures[name] = rest
        if failure is not None:
            raise failure
        return await super()._perform(name, operation)


def run(scenario: Callable[[], Awaitable[None]]) -> None:
    """Run a scenario on a loop of its own, in bounded time."""

    async def bounded() -> None:
        async with asyncio.timeout(PATIENCE):
            await scenario()

    asyncio.run(bounded())


def system(
    model: Model | ModelSource | Script,
    *tools: AnyTool | Callable[..., Any],
    store: Store | None = None,
    clock: ManualClock | None = None,
    **more: Any,
) -> AgentSystem:
    """Make a system in memory, whose time stands still; a script makes a model that plays it on the same clock."""
    clock = clock or ManualClock()
    is_one = hasattr(model, "stream") or hasattr(model, "resolve")
    played = cast("Model", model) if is_one else ScriptedModel(cast("Script", model), clock=clock)
    return _Tested(model=played, tools=tools, store=store or MemoryStore(), clock=clock, **more)


class _Tested(AgentSystem):
    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        if isinstance(error, AssertionError):
            # A graceful end would wait for what the test did not do any more.
            with suppress(asyncio.CancelledError):
                await super().__aexit__(asyncio.CancelledError, asyncio.CancelledError(), trace)
            return None
        return await super().__aexit__(kind, error, trace)


class MortalStore(FaultyStore):
    """A store whose process can be killed at any moment."""

    def __init__(self, inner: Store) -> None:
        super().__init__(inner)
        self.died = asyncio.Event()
        self._fatal: tuple[str, int] = ("", 0)

    def kill(self) -> None:
        """Let nothing of the process reach the store from now on."""
        self._dead = True
        self.died.set()

    def die_after(self, name: str, times: int = 1) -> None:
        """Be killed when an operation has been performed that often from now on."""
        self._fatal = (name, times)

    async def _perform(self, name: str, operation: Callable[[], Awaitable[T]]) -> T:
        result = await super()._perform(name, operation)
        fatal, times = self._fatal
        if name == fatal:
            self._fatal = (fatal, times - 1)
            if times == 1:
                self.kill()
                raise SimulatedCrash(f"killed after {name}")
        return result


@asynccontextmanager
async def killed(
    model: Model | Script, *tools: AnyTool | Callable[..., Any], store: Store, **more: Any
) -> AsyncIterator[AgentSystem]:
    """Run a system whose process is killed at the end of the block, if its `MortalStore` did not die before."""
    mortal = store if isinstance(store, MortalStore) else MortalStore(store)
    it, runs = system(model, *tools, store=mortal, **more), asyncio.Event()

    async def live() -> None:
        with suppress(BaseExceptionGroup):
            async with it:
                runs.set()
                await asyncio.Event().wait()

    life = asyncio.create_task(live())
    await runs.wait()
    try:
        yield it
    finally:
        mortal.kill()
        life.cancel()
        await asyncio.wait([life])


async def until(agent: ThreadHandle, condition: Callable[[], Awaitable[bool]]) -> None:
    """Return when a condition holds that only changes when the thread moves."""
    with agent._system.feed.watch(agent.thread_id) as moved:
        while True:
            moved.clear()
            if await condition():
                return
            await moved.wait()


async def until_told(agent: ThreadHandle, *lines: str) -> list[str]:
    """Return the story of a thread when it has come to these lines (in this order, not one after the other)."""
    told: list[str] = []

    async def has_come() -> bool:
        told[:] = await story(agent)
        rest = iter(told)
        return all(line in rest for line in lines)

    await until(agent, has_come)
    return told


async def until_activity(agent: ThreadHandle, activity: str) -> None:
    """Return when a thread is "waiting", "resting", "retrying" or "idle"."""

    async def is_it() -> bool:
        return (await agent.state()).activity == activity

    await until(agent, is_it)


async def pass_time(clock: ManualClock, milliseconds: int, step: int = SECOND) -> None:
    """Let time pass in small steps, so that whoever waits for a moment in between acts at it."""
    for _ in range(0, milliseconds, step):
        clock.advance(step)
        await settle()


async def settle() -> None:
    """Let everything on this loop go on that can. Only for what works in memory: there nothing else ever waits."""
    for _ in range(50):
        await asyncio.sleep(0)


async def head_of(agent: ThreadHandle) -> Head:
    """Return the head of a thread as it is stored."""
    return decode_head((await agent._system.row(agent.thread_id)).head).head


async def story(agent: ThreadHandle) -> list[str]:
    """Return the history of a thread, one line for each item."""
    return tell(await agent.history())


def tell(items: Iterable[Item]) -> list[str]:
    """Write items down, one line for each."""
    return [_line(item) for item in items]


def _line(item: Item) -> str:
    match item:
        case UserItem():
            return f"{item.origin or 'user'}: {plain_text(item.content)}"
        case TextItem():
            return f"says: {item.text}{' [interrupted]' if item.interrupted else ''}"
        case ReasoningItem():
            return f"thinks: {item.data!r}"
        case CallItem():
            return f"calls: {item.name} {item.arguments}"
        case ResultItem():
            return f"{'error' if item.is_error else 'result'}: {plain_text(item.content)}"
        case EventItem():
            return f"{item.source}: {item.tool} {plain_text(item.content)}{' [final]' if item.final else ''}"
        case NoticeItem():
            return f"notice: {item.kind}" + (f" {item.text}" if item.text else "")
        case QuestionItem():
            return f"asks: {item.prompt} [{', '.join(item.choices)}]"
        case QuestionEndItem():
            return f"{item.outcome}: {item.text}"
        case _:
            return repr(item)


class Watcher:
    """Somebody who reads a feed, is cut off, and comes back with the last cursor."""

    def __init__(self, agent: ThreadHandle) -> None:
        self._agent = agent
        self.events: list[AgentEvent] = []
        self._reading: asyncio.Task[None] | None = None

    @property
    def cursor(self) -> str:
        return self.events[-1].cursor if self.events else ""

    def texts(self) -> list[str]:
        return [event.text for event in self.events if isinstance(event, TextChunk)]

    def attach(self, agent: ThreadHandle | None = None) -> None:
        self._agent = agent or self._agent
        self._reading = asyncio.create_task(self._read())

    async def detach(self) -> None:
        if self._reading is not None:
            self._reading.cancel()
            await asyncio.wait([self._reading])
            self._reading = None

    async def ended(self) -> None:
        assert self._reading is not None
        await self._reading

    @property
    def reads(self) -> bool:
        return self._reading is not None

    async def toggle(self) -> None:
        if self.reads:
            await self.detach()
        else:
            self.attach()

    async def _read(self) -> None:
        with suppress(SimulatedCrash, StoreError):
            async with aclosing(self._agent.events(self.cursor)) as events:
                async for event in events:
                    self.events.append(event)


def retell(events: Sequence[AgentEvent]) -> list[str]:
    """Write down what somebody who read these events knows: what was taken back is left out, texts are whole."""
    kept: list[AgentEvent] = []
    for event in events:
        if isinstance(event, TurnDiscarded):
            while kept and "~" in kept[-1].cursor:
                kept.pop()
        elif not isinstance(event, ThinkingChunk | ToolProgress):
            kept.append(event)
    lines: list[str] = []
    for event in kept:
        if isinstance(event, TextChunk) and lines and lines[-1].startswith("says: "):
            lines[-1] += event.text
        else:
            lines.append(_event_line(event))
    return lines


def _event_line(event: AgentEvent) -> str:
    match event:
        case UserInput():
            return f"{event.origin or 'user'}: {plain_text(event.content)}"
        case TextChunk():
            return f"says: {event.text}"
        case CompletionStarted():
            return "started"
        case CompletionFinished():
            return "interrupted" if event.interrupted else "finished"
        case ToolCall():
            return f"calls: {event.tool} {event.arguments}"
        case ToolResult():
            return f"{'error' if event.is_error else 'result'}: {plain_text(event.content)}"
        case SubscriptionEvent():
            return f"{event.source}: {event.tool} {plain_text(event.content)}"
        case Notice():
            return f"notice: {event.kind}" + (f" {event.text}" if event.text else "")
        case _:
            return repr(event)
