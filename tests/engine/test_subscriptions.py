"""Async generators as tools: what they bring, how they end, and what holds them up."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from typing import Any

import pytest

from hibernaut.handle import ThreadHandle
from hibernaut.kernel.waiting import STILL_RUNNING
from hibernaut.messages.inputs import Event, InputMessage
from hibernaut.messages.items import SpawnItem
from hibernaut.models.protocol import ModelRequest
from hibernaut.models.scripted import ScriptedModel, ScriptedTurn, call, say
from hibernaut.stores.memory import MemoryStore
from hibernaut.stores.protocol import Outcome
from hibernaut.testing.clock import ManualClock
from hibernaut.testing.faults import FaultyStore
from hibernaut.tools.context import ToolEvent
from hibernaut.tools.tool import tool
from tests.engine.bench import Bench, works
from tests.engine.scenario import (
    SECOND,
    pass_time,
    run,
    settle,
    story,
    system,
    until,
    until_told,
)

# Subscriptions


class Ticker:
    """A subscription whose values come when the test says so."""

    def __init__(self) -> None:
        self.values: asyncio.Queue[object] = asyncio.Queue()
        self.ended = 0

        @tool(events="associative")
        async def watch() -> AsyncGenerator[object, None]:
            """Watch."""
            try:
                while (value := await self.values.get()) is not None:
                    if isinstance(value, BaseException):
                        raise value
                    yield value
            finally:
                self.ended += 1

        self.watch = watch

    def tell(self, *values: object) -> None:
        for value in values:
            self.values.put_nowait(value)


def test_a_subscription_confirms_and_then_brings_events_until_it_ends() -> None:
    async def scenario() -> None:
        ticker = Ticker()
        model = [call("watch"), say("I am watching."), say("One."), say("Two."), say("Over.")]
        async with system(model, ticker.watch) as it:
            agent = await it.launch()
            await agent.send("Watch")
            ticker.tell("subscribed")
            await until_told(agent, "says: I am watching.")
            assert (await agent.state()).activity == "idle"
            ticker.tell("first")
            await until_told(agent, "says: One.")
            ticker.tell("second")
            await until_told(agent, "says: Two.")
            ticker.tell(None)
            told = await until_told(agent, "says: Over.")
            assert told[2:] == [
                "result: subscribed",
                "says: I am watching.",
                "event: watch first",
                "says: One.",
                "event: watch second",
                "says: Two.",
                "event: watch The subscription has ended. [final]",
                "says: Over.",
            ]
            await it.wait_idle()
            assert (await agent.state()).calls == ()
            assert await it.store.read_effects() == []

    run(scenario)


@pytest.mark.parametrize(
    "value, answer",
    [(None, "result: The subscription has ended."), (ValueError("no feed"), "error: Error: ValueError: no feed")],
    ids=["nothing", "error"],
)
def test_a_subscription_that_never_begins_is_answered(value: object, answer: str) -> None:
    async def scenario() -> None:
        ticker = Ticker()
        async with system([call("watch"), say("Oh.")], ticker.watch) as it:
            agent = await it.launch()
            await agent.send("Watch")
            ticker.tell(value)
            assert (await until_told(agent, "says: Oh."))[2] == answer
            await it.wait_idle()
            assert (await agent.state()).calls == ()
            assert await it.store.read_effects() == []

    run(scenario)


def test_a_subscription_that_fails_later_says_so_with_its_last_event() -> None:
    async def scenario() -> None:
        ticker = Ticker()
        async with system([call("watch"), say("I am watching."), say("Oh.")], ticker.watch) as it:
            agent = await it.launch()
            await agent.send("Watch")
            ticker.tell("subscribed")
            await until_told(agent, "says: I am watching.")
            ticker.tell(ConnectionError("gone"))
            await until_told(agent, "event: watch Error: ConnectionError: gone [final]", "says: Oh.")

    run(scenario)


def test_an_event_waits_for_an_open_call_but_not_for_long() -> None:
    clock = ManualClock()

    async def scenario() -> None:
        ticker, bench = Ticker(), Bench()
        model = [call("watch"), works("a"), say("Seen."), say("And done.")]
        async with system(model, ticker.watch, bench.work, clock=clock) as it:
            agent = await it.launch()
            await agent.send("Watch and work")
            ticker.tell("subscribed")
            await until_told(agent, 'calls: work {"name":"a"}')
            ticker.tell("news")
            await pass_time(clock, 4 * SECOND)
            assert (await story(agent))[-1] == 'calls: work {"name":"a"}'
            await pass_time(clock, 2 * SECOND)
            await until_told(agent, f"result: {STILL_RUNNING}", "event: watch news", "says: Seen.")
            bench.finish("a")
            await until_told(agent, "late_result: work a is done", "says: And done.")

    run(scenario)


def test_events_have_threads_of_their_own_unless_a_tool_says_otherwise() -> None:
    @tool
    async def watch() -> AsyncGenerator[str, None]:
        """Watch."""
        yield "subscribed"
        yield "news"
        await asyncio.Event().wait()

    async def scenario() -> None:
        async with system([call("watch"), say("Watching."), say("Nothing new.")], watch) as it:
            agent = await it.launch()
            await agent.send("Watch")
            await until(agent, lambda: _has_child(agent))
            (spawned,) = [item for item in await agent.history() if isinstance(item, SpawnItem)]
            child = await it.thread(spawned.thread_id)
            await until_told(child, "event: watch news", "says: Nothing new.")
            assert not any(line.startswith("event: watch news") for line in await story(agent))

    run(scenario)


async def _has_child(agent: ThreadHandle) -> bool:
    return any(isinstance(item, SpawnItem) for item in await agent.history())


def test_an_event_that_has_an_id_comes_once_and_one_may_be_the_last() -> None:
    @tool(events="associative")
    async def watch() -> AsyncGenerator[object, None]:
        """Watch."""
        yield ToolEvent("subscribed", "ignored")
        for offset in (1, 1, 2, 1):
            yield ToolEvent(f"offset {offset}", f"{offset}")
        yield "made up"
        yield ToolEvent("the last", "3", final=True)
        raise AssertionError("it was over")

    async def scenario() -> None:
        first = [call("watch")]

        def answer(_: ModelRequest) -> ScriptedTurn:
            return first.pop() if first else say("I see.")

        async with system(answer, watch) as it:
            agent = await it.launch()
            await agent.send("Watch")
            told = await until_told(agent, "event: watch the last [final]")
            assert [line for line in told if line.startswith(("result", "event"))] == [
                "result: subscribed",
                "event: watch offset 1",
                "event: watch offset 2",
                "event: watch made up",
                "event: watch the last [final]",
            ]
            await it.wait_idle()
            assert (await agent.state()).calls == ()
            assert await it.store.read_effects() == []

    run(scenario)


def test_a_final_event_that_was_there_before_ends_the_subscription_all_the_same() -> None:
    @tool(events="associative")
    async def watch() -> AsyncGenerator[object, None]:
        """Watch."""
        yield "subscribed"
        yield ToolEvent("one", "1")
        yield ToolEvent("one", "1", final=True)

    async def scenario() -> None:
        first = [call("watch")]
        async with system(lambda _: first.pop() if first else say("I see."), watch) as it:
            agent = await it.launch()
            await agent.send("Watch")
            await until_told(agent, "event: watch one", "event: watch The subscription has ended. [final]")

    run(scenario)


class FullStore(FaultyStore):
    """A store whose inboxes take no event for some times."""

    def __init__(self, times: int) -> None:
        super().__init__(MemoryStore())
        self.times = times

    async def put(self, messages: Sequence[InputMessage], now: int, **more: Any) -> list[Outcome]:
        if any(isinstance(message.content, Event) for message in messages) and self.times > 0:
            self.times -= 1
            return [Outcome.FULL] * len(messages)
        return await super().put(messages, now, **more)


def test_a_subscription_waits_while_the_inbox_is_full_of_events() -> None:
    yielded: list[int] = []
    clock = ManualClock()

    @tool(events="associative")
    async def watch() -> AsyncGenerator[str, None]:
        """Watch."""
        yield "subscribed"
        for number in range(2):
            yielded.append(number)
            yield f"event {number}"

    async def scenario() -> None:
        first = [call("watch")]
        store = FullStore(3)
        model = ScriptedModel(lambda _: first.pop() if first else say("I see."), clock=clock)
        async with system(model, watch, store=store, clock=clock) as it:
            agent = await it.launch()
            await agent.send("Watch")
            await until_told(agent, "says: I see.")
            await settle()
            assert yielded == [0]
            await pass_time(clock, SECOND, step=50)
            await until_told(agent, "event: watch event 0", "event: watch event 1")
            assert store.times == 0

    run(scenario)


def test_a_cancelled_subscription_ends_its_generator() -> None:
    async def scenario() -> None:
        ticker = Ticker()
        async with system([call("watch"), say("Watching."), say("It is over.")], ticker.watch) as it:
            agent = await it.launch()
            await agent.send("Watch")
            ticker.tell("subscribed")
            await until_told(agent, "says: Watching.")
            (watching,) = (await agent.state()).calls
            await agent.cancel(watching.call_id)
            await until_told(agent, "says: It is over.")
            await it.wait_idle()
            assert ticker.ended == 1
            assert await it.store.read_effects() == []

    run(scenario)


def test_a_subscription_of_a_closed_thread_ends() -> None:
    async def scenario() -> None:
        ticker = Ticker()
        async with system([call("watch"), say("Watching.")], ticker.watch) as it:
            agent = await it.launch()
            await agent.send("Watch")
            ticker.tell("subscribed")
            await until_told(agent, "says: Watching.")
            await agent.close("done")
            await it.wait_idle()
            assert ticker.ended == 1
            assert await it.store.read_effects() == []

    run(scenario)
