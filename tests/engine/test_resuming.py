"""What goes on in the next process, and what comes all the same after nobody expected it any more."""

import asyncio
from collections.abc import AsyncGenerator, Callable

import pytest

from hibernaut.errors import AlreadyAnswered
from hibernaut.handle import ThreadHandle
from hibernaut.messages.items import CallItem
from hibernaut.models.protocol import ModelRequest
from hibernaut.models.scripted import ScriptedTurn, call, say
from hibernaut.stores.memory import MemoryStore
from hibernaut.stores.protocol import DEAD_AFTER
from hibernaut.testing.clock import ManualClock
from hibernaut.tools.context import Deferred, ToolContext, ToolEvent
from hibernaut.tools.tool import tool
from tests.engine.scenario import MortalStore, killed, run, settle, story, system, until_told


class Ticker:
    """A resumable subscription: numbers from where it was, with their offsets as ids."""

    def __init__(self, *, own_ids: bool = True) -> None:
        self.begun: list[tuple[str, int]] = []
        self.allowed = asyncio.Semaphore(0)

        @tool(resumable=True, events="associative")
        async def watch(context: ToolContext) -> AsyncGenerator[object, None]:
            """Watch."""
            self.begun.append((context.last_event_id, context.last_sequence))
            yield "subscribed"
            number = max(int(context.last_event_id.lstrip("#") or 0) - 1, 0)  # the last one comes once more
            while True:
                number += 1
                await self.allowed.acquire()
                yield ToolEvent(f"number {number}", f"{number}" if own_ids else "")

        self.watch = watch

    async def tick(self, agent: ThreadHandle, *numbers: int) -> None:
        for number in numbers:
            self.allowed.release()
            await until_told(agent, f"event: watch number {number}")


def _watching() -> Callable[[ModelRequest], ScriptedTurn]:
    def answer(request: ModelRequest) -> ScriptedTurn:
        asked = any(isinstance(item, CallItem) for item in request.transcript)
        return say("I see.") if asked else call("watch")

    return answer


@pytest.mark.parametrize("gracefully", [True, False])
def test_a_resumable_subscription_goes_on_in_the_next_process(gracefully: bool) -> None:
    store, clock, ticker = MemoryStore(), ManualClock(), Ticker()

    async def scenario() -> None:
        life = system if gracefully else killed
        async with life(_watching(), ticker.watch, store=store, clock=clock) as it:
            agent = await it.launch(thread_id="t")
            await agent.send("Watch")
            await ticker.tick(agent, 1, 2)
        clock.advance(DEAD_AFTER)
        ticker.allowed = asyncio.Semaphore(0)
        async with system(_watching(), ticker.watch, store=store, clock=clock) as it:
            agent = await it.thread("t")
            ticker.allowed.release()  # the second number once more, which is no event
            await ticker.tick(agent, 3)
            events = [line for line in await story(agent) if line.startswith(("event", "result"))]
            assert events == ["result: subscribed", *[f"event: watch number {number}" for number in (1, 2, 3)]]
            assert ticker.begun == [("", 0), ("2", 2)]
            (one,) = (await agent.state()).calls
            assert one.state == "subscribed"

    run(scenario)


def test_a_resumable_subscription_goes_on_after_the_last_event_that_was_stored_though_nobody_read_it() -> None:
    store, clock, ticker = MemoryStore(), ManualClock(), Ticker(own_ids=False)

    async def scenario() -> None:
        mortal = MortalStore(store)
        async with killed(_watching(), ticker.watch, store=mortal, clock=clock) as it:
            agent = await it.launch(thread_id="t")
            await agent.send("Watch")
            await ticker.tick(agent, 1)
            mortal.die_after("put")
            ticker.allowed.release()
            await mortal.died.wait()
        _, waiting = await store.read_inbox("t")
        assert waiting.message_id.endswith(":#2")
        clock.advance(DEAD_AFTER)
        async with system(_watching(), ticker.watch, store=store, clock=clock) as it:
            agent = await it.thread("t")
            await until_told(agent, "event: watch number 2")
            await settle()
            assert ticker.begun == [("", 0), ("#2", 2)]

    run(scenario)


def test_a_resumable_subscription_that_died_before_it_was_confirmed_is_confirmed_by_the_next_process() -> None:
    store, clock, fail = MemoryStore(), ManualClock(), [True]

    @tool(resumable=True, events="associative")
    async def watch() -> AsyncGenerator[str, None]:
        """Watch."""
        if fail[0]:
            await asyncio.Event().wait()
        yield "subscribed"
        yield "news"

    async def scenario() -> None:
        async with system(_watching(), watch, store=store, clock=clock) as it:
            await it.send("t", "Watch")
            await settle()
        fail[0] = False
        async with system(_watching(), watch, store=store, clock=clock) as it:
            agent = await it.thread("t")
            await until_told(agent, "result: subscribed", "event: watch news")

    run(scenario)


@pytest.mark.parametrize("how", ["error", "nothing"])
def test_a_resumable_subscription_that_cannot_go_on_ends(how: str) -> None:
    store, clock, lives = MemoryStore(), ManualClock(), list[str]()

    @tool(resumable=True, events="associative")
    async def watch() -> AsyncGenerator[str, None]:
        """Watch."""
        lives.append(how)
        if len(lives) == 1:
            yield "subscribed"
            await asyncio.Event().wait()
        if how == "error":
            raise ConnectionError("gone")

    async def scenario() -> None:
        async with killed(_watching(), watch, store=store, clock=clock) as it:
            agent = await it.launch(thread_id="t")
            await agent.send("Watch")
            await until_told(agent, "says: I see.")
        clock.advance(DEAD_AFTER)
        async with system(_watching(), watch, store=store, clock=clock) as it:
            agent = await it.thread("t")
            words = "Error: ConnectionError: gone" if how == "error" else "The subscription has ended."
            await until_told(agent, f"event: watch {words} [final]")
            await it.wait_idle()
            assert (await agent.state()).calls == ()
            assert await store.read_effects() == []

    run(scenario)


def test_a_resumable_subscription_is_left_alone_by_a_step() -> None:
    store, clock, ticker = MemoryStore(), ManualClock(), Ticker()

    async def scenario() -> None:
        async with killed(_watching(), ticker.watch, store=store, clock=clock) as it:
            agent = await it.launch(thread_id="t")
            await agent.send("Watch")
            await ticker.tick(agent, 1)
        clock.advance(DEAD_AFTER)
        ticker.allowed = asyncio.Semaphore(0)
        async with system(_watching(), ticker.watch, store=store, clock=clock, run=False) as it:
            await it.step([])
            assert len(ticker.begun) == 1
        async with system(_watching(), ticker.watch, store=store, clock=clock) as it:
            agent = await it.thread("t")
            ticker.allowed.release()
            await ticker.tick(agent, 2)
            assert len(ticker.begun) == 2

    run(scenario)


# What is unknown, and comes all the same


def test_a_result_that_comes_after_its_call_was_told_to_be_unknown_is_shown_once() -> None:
    store, clock, tokens = MemoryStore(), ManualClock(), list[str]()

    @tool
    async def build(context: ToolContext) -> Deferred:
        """Build."""
        deferred = context.defer()
        tokens.append(deferred.token)
        await asyncio.Event().wait()
        return deferred

    async def scenario() -> None:
        async with killed([call("build")], build, store=store, clock=clock) as it:
            await it.send("t", "Build")
            await settle()
        clock.advance(DEAD_AFTER)
        async with system([say("Oh."), say("Fine.")], build, store=store, clock=clock) as it:
            agent = await it.thread("t")
            told = await until_told(agent, "says: Oh.")
            assert told[2].startswith("error: The process that ran build died")
            await it.wait_idle()
            assert [one.state for one in (await agent.state()).calls] == ["expired"]
            assert await store.read_effects() == []
            await it.deliver(tokens[0], "built after all")
            with pytest.raises(AlreadyAnswered):
                await it.deliver(tokens[0], "built twice")
            await until_told(agent, "late_result: build built after all", "says: Fine.")
            await it.wait_idle()
            assert (await agent.state()).calls == ()

    run(scenario)
