"""What a dead process left behind is taken over: once, and with the truth about what is not known."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TypeVar

import pytest

from hibernaut.engine.core import ADOPT_AT_ONCE
from hibernaut.engine.dispatcher import UNKNOWN_EFFECT
from hibernaut.errors import StoreBusy
from hibernaut.kernel.limits import ThreadOptions
from hibernaut.messages.inputs import Command
from hibernaut.models.scripted import ScriptedModel, call, say, turn
from hibernaut.stores.memory import MemoryStore
from hibernaut.stores.protocol import DEAD_AFTER
from hibernaut.stores.sqlite import SqliteStore
from hibernaut.testing.clock import ManualClock
from hibernaut.testing.faults import FaultyStore
from hibernaut.testing.gates import Gate
from hibernaut.tools.context import Deferred, ToolContext
from hibernaut.tools.tool import tool
from tests.engine.scenario import (
    MINUTE,
    SECOND,
    FailingStore,
    MortalStore,
    killed,
    pass_time,
    run,
    settle,
    story,
    system,
    until_activity,
    until_told,
)

T = TypeVar("T")

UNKNOWN = f"error: {UNKNOWN_EFFECT.format(tool='work')}"


@tool
async def work(name: str = "") -> str:
    """Work for ever."""
    await asyncio.Event().wait()
    return "never"


@tool
async def quick() -> str:
    """Be quick."""
    return "quick"


def test_c01_c12_c35_a_call_that_was_cut_off_is_answered_once_and_stays_visible() -> None:
    store, clock = MemoryStore(), ManualClock()
    script = [turn(call("quick"), call("work"))]

    async def scenario() -> None:
        async with killed(script, quick, work, store=store, clock=clock) as it:
            agent = await it.launch(thread_id="t")
            await agent.send("Go")
            await until_told(agent, "result: quick")
            await settle()
        for _ in range(2):  # the second restart finds what the first one has made of it
            clock.advance(DEAD_AFTER)
            model = ScriptedModel(lambda request: say(f"{len(request.transcript)} items."))
            async with killed(model, quick, work, store=store, clock=clock) as it:
                agent = await it.thread("t")
                await until_told(agent, "says: 5 items.")
                await it.wait_idle()
                assert (await story(agent))[1:6] == [
                    "calls: quick {}",
                    "calls: work {}",
                    "result: quick",
                    UNKNOWN,
                    "says: 5 items.",
                ]
                assert len(model.requests) <= 1
        async with system(say("Two."), quick, work, store=store, clock=clock) as it:
            agent = await it.thread("t")
            await agent.send("U2")
            await until_told(agent, UNKNOWN, "says: 5 items.", "user: U2", "says: Two.")
            assert await it.verify("t") > 0

    run(scenario)


def test_a15_a_deadline_goes_on_over_a_restart() -> None:
    store, clock = MemoryStore(), ManualClock()

    @tool(deadline=60)
    async def ask_boss(context: ToolContext) -> Deferred:
        """Ask the boss."""
        return context.defer()

    async def scenario() -> None:
        async with killed(call("ask_boss"), ask_boss, store=store, clock=clock) as it:
            agent = await it.launch(thread_id="t")
            await agent.send("Ask")
            await until_activity(agent, "waiting")
            await settle()
        clock.advance(40 * SECOND)
        async with system(say("No answer."), ask_boss, store=store, clock=clock) as it:
            agent = await it.thread("t")
            (waiting,) = (await agent.state()).calls
            assert (waiting.tool, waiting.state) == ("ask_boss", "open")
            await pass_time(clock, 19 * SECOND)
            assert (await agent.state()).activity == "waiting"
            await pass_time(clock, SECOND)
            await until_told(agent, "error: Timed out: no result within 60 s. It may still happen.", "says: No answer.")

    run(scenario)


@pytest.mark.parametrize("action", ["stop", "close"])
def test_c35_a_thread_that_was_ended_while_its_engine_died_is_not_run_again(action: str) -> None:
    store, clock, ran = MemoryStore(), ManualClock(), []
    mortal = MortalStore(store)

    @tool(idempotent=True)
    async def hang() -> str:
        """Hang."""
        ran.append(1)
        await asyncio.Event().wait()
        return "never"

    async def scenario() -> None:
        async with killed(call("hang"), hang, store=mortal, clock=clock) as it:
            agent = await it.launch(thread_id="t")
            await agent.send("Go")
            await settle()
            mortal.die_after("commit")
            await it.command("t", Command(action))  # type: ignore[arg-type]  # one of its actions
            await mortal.died.wait()
        assert len(await store.read_effects()) == 2
        clock.advance(DEAD_AFTER)
        async with system([], hang, store=store, clock=clock) as it:
            await it.wait_idle()
            await pass_time(clock, MINUTE)
            assert await store.read_effects() == []
            assert (await story(await it.thread("t")))[-1].startswith(("notice: stopped", "notice: closed"))
            assert len(ran) == 1

    run(scenario)


# Tools that are gone


@pytest.mark.parametrize("begun", [False, True], ids=["not begun", "begun"])
def test_c36_a_call_whose_tool_was_removed_while_it_was_open_is_answered(begun: bool) -> None:
    store, clock = MemoryStore(), ManualClock()
    mortal = MortalStore(store)
    mortal.die_after("start_effects" if begun else "commit")

    async def scenario() -> None:
        async with killed(call("work"), work, store=mortal, clock=clock) as it:
            await it.send("t", "Go")
            await mortal.died.wait()
        clock.advance(DEAD_AFTER)
        async with system(say("Without it, then."), quick, store=store, clock=clock) as it:
            told = await until_told(await it.thread("t"), "says: Without it, then.")
            assert told[2] == (UNKNOWN if begun else "error: Error: there is no tool 'work' any more.")
            assert await store.read_effects() == []

    run(scenario)


def test_c36_a_thread_keeps_its_tools_by_name_and_a_receipt_says_when_they_changed() -> None:
    store, clock = MemoryStore(), ManualClock()

    @tool(name="work", idempotent=True)
    async def new_work(name: str, times: int = 1) -> str:
        """Work, as version 2 does."""
        return f"{name} × {times}"

    async def scenario() -> None:
        async with system(say("Hello."), work, quick, store=store, clock=clock) as it:
            agent = await it.launch(thread_id="t")
            await agent.send("Hello")
            await agent.wait_idle()
        script = [call("quick"), call("work", name="it", times=2), say("Done.")]
        model = ScriptedModel(script)
        async with system(model, new_work, store=store, clock=clock) as it:
            agent = await it.thread("t")
            await agent.send("Go")
            await until_told(agent, "result: it × 2", "says: Done.")
            assert any(line.startswith("error: Not run: there is no tool named quick.") for line in await story(agent))
            receipts = await agent.receipts()
            assert [bool(receipt.tools) for receipt in receipts[:3]] == [True, True, False]
            names = [spec.name for spec in model.requests[0].tools]
            assert names[0] == "work"
            assert "quick" not in names

    run(scenario)


# Subscriptions


def test_a_subscription_that_died_with_its_process_says_so_at_boot() -> None:
    store, clock, values = MemoryStore(), ManualClock(), asyncio.Queue[str]()

    @tool(events="associative")
    async def watch() -> AsyncGenerator[str, None]:
        """Watch."""
        while True:
            yield await values.get()

    async def scenario() -> None:
        async with killed([call("watch"), say("Watching.")], watch, store=store, clock=clock) as it:
            agent = await it.launch(thread_id="t")
            await agent.send("Watch")
            values.put_nowait("subscribed")
            await until_told(agent, "says: Watching.")
        clock.advance(DEAD_AFTER)
        async with system(say("It is over."), watch, store=store, clock=clock) as it:
            agent = await it.thread("t")
            told = await until_told(agent, "says: It is over.")
            died = (
                "event: watch The subscription has ended: the process that ran it is gone. Call watch again to go on."
            )
            assert told[-2] == f"{died} [final]"
            await it.wait_idle()
            assert (await agent.state()).calls == ()
            assert await store.read_effects() == []

    run(scenario)


def test_a_subscription_whose_process_died_before_anybody_read_its_confirmation_has_ended() -> None:
    store, clock = MemoryStore(), ManualClock()
    mortal = MortalStore(store)

    @tool(events="associative")
    async def watch() -> AsyncGenerator[str, None]:
        """Watch."""
        mortal.die_after("put")
        yield "subscribed"
        await asyncio.Event().wait()

    async def scenario() -> None:
        async with killed(call("watch"), watch, store=mortal, clock=clock) as it:
            await it.send("t", "Watch")
            await mortal.died.wait()
        clock.advance(DEAD_AFTER)
        async with system(lambda _: say("I see."), watch, store=store, clock=clock) as it:
            agent = await it.thread("t")
            told = await until_told(agent, "result: subscribed", "says: I see.")
            assert told[3].startswith("event: watch The subscription has ended")
            assert (await agent.state()).calls == ()
            assert await store.read_effects() == []

    run(scenario)


def test_a_subscription_that_a_graceful_stop_cuts_off_before_it_is_confirmed_is_answered() -> None:
    store, clock = MemoryStore(), ManualClock()

    @tool(events="associative")
    async def watch() -> AsyncGenerator[str, None]:
        """Watch."""
        await asyncio.Event().wait()
        yield "never"

    async def scenario() -> None:
        async with system(call("watch"), watch, store=store, clock=clock) as it:
            agent = await it.launch(thread_id="t")
            await agent.send("Watch")
            await settle()
        async with system(lambda _: say("I see."), watch, store=store, clock=clock) as it:
            agent = await it.thread("t")
            told = await until_told(agent, "says: I see.")
            assert told[2].startswith("error: The process that ran watch was shut down before it was done.")
            assert (await agent.state()).calls == ()
            assert await store.read_effects() == []

    run(scenario)


# Adoption


def test_what_was_adopted_and_could_not_be_settled_is_not_forgotten() -> None:
    store, clock = FailingStore(MemoryStore()), ManualClock()
    three = turn(call("work", name="a"), call("work", name="b"), call("work", name="c"))
    options = ThreadOptions(parallel_calls=3)

    async def scenario() -> None:
        async with AsyncExitStack() as stack:
            async with killed(three, work, store=store, clock=clock, options=options) as dying:
                await dying.send("t", "Go")
                await settle()
                it = await stack.enter_async_context(system(say("I see."), work, store=store, clock=clock))
            store.failures["read_head"] = [StoreBusy("busy")] * 3
            await pass_time(clock, MINUTE)
            told = await until_told(await it.thread("t"), "says: I see.")
            assert told.count(UNKNOWN) == 3
            assert await store.read_effects() == []

    run(scenario)


def test_more_orphans_than_are_taken_over_at_once_are_all_taken_over() -> None:
    store, clock = MemoryStore(), ManualClock()
    threads = ADOPT_AT_ONCE + 20

    async def scenario() -> None:
        async with killed(lambda _: call("work"), work, store=store, clock=clock) as it:
            for number in range(threads):
                await it.send(f"t{number}", "Go")
            while len([row for row in await store.read_effects() if row.state == "sent"]) < threads:
                await settle()
        clock.advance(DEAD_AFTER)
        async with system(lambda _: say("I see."), work, store=store, clock=clock) as it:
            for number in range(threads):
                await until_told(await it.thread(f"t{number}"), UNKNOWN, "says: I see.")

    run(scenario)


def test_threads_go_on_before_all_that_a_dead_engine_left_is_taken_over() -> None:
    store, clock = MemoryStore(), ManualClock()
    threads, gate = 2 * ADOPT_AT_ONCE, asyncio.Event()

    class Slow(FaultyStore):
        adoptions = 0

        async def _perform(self, name: str, operation: Callable[[], Awaitable[T]]) -> T:
            if name == "adopt_effects":
                self.adoptions += 1
                if self.adoptions == 2:
                    await gate.wait()
            return await super()._perform(name, operation)

    async def scenario() -> None:
        async with killed(lambda _: call("work"), work, store=store, clock=clock) as it:
            for number in range(threads):
                await it.send(f"t{number:03}", "Go")
            while len([row for row in await store.read_effects() if row.state == "sent"]) < threads:
                await settle()
        clock.advance(DEAD_AFTER)
        async with system(lambda _: say("I see."), work, store=Slow(store), clock=clock) as it:
            await it.send("new", "Hello")
            await until_told(await it.thread("new"), "says: I see.")
            assert len(await store.read_effects()) >= ADOPT_AT_ONCE
            gate.set()
            await it.wait_idle()  # idle is who has taken all of it over
            assert await store.read_effects() == []

    run(scenario)


def test_a_living_engine_takes_over_the_slice_of_one_that_died_though_nothing_wakes_it(tmp_path: Path) -> None:
    clock, gate = ManualClock(), Gate()

    async def scenario() -> None:
        file = tmp_path / "agents.db"
        async with AsyncExitStack() as stack:
            store, its_store = await SqliteStore.open(file), await SqliteStore.open(file)
            stack.push_async_callback(store.close)
            stack.push_async_callback(its_store.close)
            async with killed(turn("I was ", gate), store=its_store, clock=clock) as dying:
                await dying.send("t", "Hello")
                await gate.reached()
                it = await stack.enter_async_context(system(say("I took it over."), store=store, clock=clock))
            for _ in range(20):
                clock.advance(SECOND)
                for _ in range(5):  # what the engine asks of its store is done before what is asked after it
                    await store.read_head("t")
                    await settle()
            await until_told(await it.thread("t"), "user: Hello", "says: I took it over.")

    run(scenario)


def test_a_living_engine_takes_over_the_tools_of_one_that_died() -> None:
    store, clock = MemoryStore(), ManualClock()

    async def scenario() -> None:
        async with AsyncExitStack() as stack:
            async with killed(call("work"), work, store=store, clock=clock) as dying:
                await dying.send("t", "Go")
                await settle()
                it = await stack.enter_async_context(system(say("I see."), work, store=store, clock=clock))
            await pass_time(clock, DEAD_AFTER - 5 * SECOND)
            assert (await (await it.thread("t")).state()).activity == "waiting"
            await pass_time(clock, 10 * SECOND)
            await until_told(await it.thread("t"), UNKNOWN, "says: I see.")

    run(scenario)
