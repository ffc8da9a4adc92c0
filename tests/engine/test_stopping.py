"""A stop ends a completion within a second, in whatever process that streams, and nothing goes on after it."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import TypeVar

import pytest

from hibernaut.engine.interruptions import LOOK_EVERY
from hibernaut.errors import StoreBusy
from hibernaut.handle import ThreadHandle
from hibernaut.kernel.receipt import TurnCommit
from hibernaut.messages.inputs import Delivered, InputMessage, UserText
from hibernaut.messages.stream import StreamPiece, TextDelta
from hibernaut.models.protocol import Model, ModelInfo, ModelRequest
from hibernaut.models.scripted import Script, say, turn
from hibernaut.stores.protocol import Store
from hibernaut.stores.sqlite import SqliteStore
from hibernaut.system import AgentSystem
from hibernaut.testing.clock import ManualClock
from hibernaut.testing.faults import FaultyStore
from hibernaut.testing.gates import Gate
from tests.engine.scenario import SECOND, START, run, story, system

T = TypeVar("T")

BOUND = SECOND
"""Milliseconds within which a stop must have ended a completion."""


class Stubborn:
    """A model that swallows its cancellation, a few times or for ever, and waits or talks on."""

    info: ModelInfo = ModelInfo()

    def __init__(self, times: int, *, talks: bool = False) -> None:
        self.times = times
        self.talks = talks
        self.streaming = asyncio.Event()

    async def stream(self, request: ModelRequest) -> AsyncGenerator[StreamPiece, None]:
        yield TextDelta("I was ")
        while True:
            self.streaming.set()
            try:
                await asyncio.get_running_loop().create_future()
            except asyncio.CancelledError:
                self.times -= 1
                if self.times < 0:
                    raise
            if self.talks:
                yield TextDelta("saying ")


class Lingering(Stubborn):
    """A model that talks on, and whose connection never closes."""

    async def stream(self, request: ModelRequest) -> AsyncGenerator[StreamPiece, None]:
        try:
            async for piece in super().stream(request):
                yield piece
        finally:
            await asyncio.get_running_loop().create_future()


class WatchedClock(ManualClock):
    """A clock that counts how often somebody has looked around and waits to do so again."""

    looks = 0

    async def sleep(self, milliseconds: int) -> None:
        self.looks += milliseconds == LOOK_EVERY
        await super().sleep(milliseconds)


Processes = tuple[AgentSystem, AgentSystem, WatchedClock]
"""A system on a file, a client of that file in another process, and the system's clock."""


@asynccontextmanager
async def two_processes(
    file: Path, model: Model | Script, wrap: Callable[[Store], Store] = lambda store: store, *, resident: bool = True
) -> AsyncIterator[Processes]:
    """Run a system on a file, and a client that the system hears of only by what is stored."""
    clock = WatchedClock()
    async with AsyncExitStack() as stack:
        own, elsewhere = await SqliteStore.open(file), await SqliteStore.open(file)
        stack.push_async_callback(own.close)
        stack.push_async_callback(elsewhere.close)
        client = await stack.enter_async_context(system([], store=elsewhere, clock=ManualClock(), run=False))
        it = await stack.enter_async_context(system(model, store=wrap(own), clock=clock, run=resident))
        yield it, client, clock


async def tick(it: AgentSystem, clock: WatchedClock) -> None:
    """Let the system look around once, and return when it has seen to what it found."""
    looks = clock.looks
    clock.advance(LOOK_EVERY)
    engine = it._engine
    while clock.looks == looks or (engine is not None and engine.interruptions._looking):
        await it.store.read_head("t")


async def stopped(agent: ThreadHandle) -> None:
    """Return when the thread is stopped, without that time goes on, and check that the bound was kept."""
    while (await agent.state()).status != "stopped":
        await agent._system.store.read_head(agent.thread_id)
    cut, end = (await agent.receipts())[-2:]
    assert (cut.turn, end.turn) == (TurnCommit.INTERRUPTED, TurnCommit.NONE)
    assert end.started + end.took <= START + BOUND


def test_a_completion_that_streams_in_another_process_ends_within_a_second(tmp_path: Path) -> None:
    async def scenario() -> None:
        gate = Gate()
        async with two_processes(tmp_path / "agents.db", turn("I was ", gate)) as (it, client, clock):
            await it.send("t", "Tell me")
            await gate.reached()
            agent = await client.thread("t")
            await agent.stop("enough")
            clock.advance(LOOK_EVERY)
            await stopped(agent)
            assert await story(agent) == ["user: Tell me", "says: I was  [interrupted]", "notice: stopped enough"]
            # What comes is held, and no further slice asks the model: its script has no more.
            (decision,) = [one async for one in client.receipts_of("t")][-1].operator_decision
            assert (decision.action, decision.reason, decision.sender) == ("stop", "enough", "operator")

    run(scenario)


class GatedStore(FaultyStore):
    """A store on which a history is read only when the test lets it be."""

    def __init__(self, inner: Store) -> None:
        super().__init__(inner)
        self.reading, self.opened = asyncio.Event(), asyncio.Event()

    async def _perform(self, name: str, operation: Callable[[], Awaitable[T]]) -> T:
        if name == "read_log":
            self.reading.set()
            await self.opened.wait()
        return await super()._perform(name, operation)


def test_a_stop_between_the_claim_of_a_thread_and_its_completion_is_heeded(tmp_path: Path) -> None:
    file = tmp_path / "agents.db"

    async def scenario() -> None:
        async with two_processes(file, say("Hello.")) as (it, _, _):
            await it.send("t", "Hello")
            await (await it.thread("t")).wait_idle()
        gate, made = Gate(), list[GatedStore]()

        def gated(store: Store) -> Store:
            made.append(GatedStore(store))
            return made[0]

        async with two_processes(file, turn("I was ", gate), gated) as (it, client, clock):
            await it.send("t", "Tell me")
            await made[0].reading.wait()
            agent = await client.thread("t")
            await agent.stop()
            await tick(it, clock)
            made[0].opened.set()
            await stopped(agent)

    run(scenario)


def test_a_completion_inside_a_step_ends_within_a_second(tmp_path: Path) -> None:
    async def scenario() -> None:
        gate = Gate()
        message = InputMessage("m1", "t", UserText("Tell me"), "test")
        async with two_processes(tmp_path / "agents.db", turn("I was ", gate), resident=False) as (it, client, clock):
            step = asyncio.create_task(it.step([message]))
            await gate.reached()
            agent = await client.thread("t")
            await agent.stop()
            clock.advance(LOOK_EVERY)
            await stopped(agent)
            assert (await step).completions == 0
            assert await story(agent) == ["user: Tell me", "says: I was  [interrupted]", "notice: stopped"]

    run(scenario)


@pytest.mark.parametrize(
    "make",
    [
        lambda: Stubborn(1),
        lambda: Stubborn(2),
        lambda: Stubborn(1_000, talks=True),
        lambda: Lingering(0),
        lambda: Lingering(1_000, talks=True),
    ],
    ids=["swallows one", "swallows two", "talks on", "never closes", "talks on and never closes"],
)
def test_a_model_whose_code_does_not_want_to_end_is_ended_all_the_same(
    make: Callable[[], Stubborn], tmp_path: Path
) -> None:
    async def scenario() -> None:
        model = make()
        async with two_processes(tmp_path / "agents.db", model) as (it, client, clock):
            await it.send("t", "Tell me")
            await model.streaming.wait()
            agent = await client.thread("t")
            await agent.stop()
            for _ in range(BOUND // LOOK_EVERY):
                await tick(it, clock)
            await stopped(agent)
            # Nothing of it is left behind with the worker that ran the slice.
            assert all(not task.cancelling() for task in asyncio.all_tasks() if not task.done())

    run(scenario)


class BusyStore(FaultyStore):
    """A store whose inboxes cannot be read for once."""

    failures = 1

    async def read_inbox(self, thread_id: str) -> tuple[Delivered, ...]:
        if self.failures:
            self.failures -= 1
            raise StoreBusy("another process held the store")
        return await super().read_inbox(thread_id)


def test_an_inbox_that_cannot_be_read_is_read_again(tmp_path: Path) -> None:
    async def scenario() -> None:
        gate = Gate()
        async with two_processes(tmp_path / "agents.db", turn("I was ", gate), BusyStore) as (it, client, clock):
            await it.send("t", "Tell me")
            await gate.reached()
            agent = await client.thread("t")
            await agent.stop()
            for _ in range(2):
                await tick(it, clock)
            await stopped(agent)

    run(scenario)
