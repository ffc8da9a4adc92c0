"""The store fails, or the process ends: nothing is lost, and it is tried again."""

import asyncio
import logging

import pytest

from hibernaut.engine.local import DRAIN
from hibernaut.engine.slice import MAX_TRIES
from hibernaut.errors import StoreBusy, StoreCorrupt, StoreFull
from hibernaut.kernel.limits import ThreadOptions
from hibernaut.messages.items import UserItem
from hibernaut.models.protocol import ModelRequest
from hibernaut.models.scripted import (
    ScriptedModel,
    ScriptedTurn,
    call,
    last_user_text,
    say,
    turn,
)
from hibernaut.stores.memory import MemoryStore
from hibernaut.stores.protocol import DEAD_AFTER
from hibernaut.testing.clock import ManualClock
from hibernaut.testing.gates import Gate
from hibernaut.tools.tool import tool
from tests.engine.scenario import (
    MINUTE,
    FailingStore,
    killed,
    pass_time,
    run,
    settle,
    story,
    system,
    until_told,
)

# The store fails, the process ends


@pytest.mark.parametrize(
    "operation, times",
    [("claim", 3), ("read_log", 3), ("commit", 3), ("start_effects", 3), ("take", 1), ("release", 1), ("next_due", 1)],
)
def test_a11_a12_a_store_that_fails_for_a_while_costs_time_and_nothing_else(operation: str, times: int) -> None:
    store, clock, ran = FailingStore(MemoryStore()), ManualClock(), []

    @tool(inline=True)
    async def work() -> str:
        """Work."""
        ran.append(1)
        return "done"

    def answer(request: ModelRequest) -> ScriptedTurn:
        last = request.transcript[-1]
        return call("work") if isinstance(last, UserItem) and last.content == "Work" else say("Done.")

    async def scenario() -> None:
        async with system(answer, work, store=store, clock=clock) as it:
            agent = await it.launch()
            await agent.send("Hello")
            await agent.wait_idle()
            await pass_time(clock, MINUTE)
            store.failures = {"commit": [StoreFull("no room")], operation: [StoreFull("no room")] * times}
            await agent.send("Work")
            await pass_time(clock, 2 * MINUTE)
            assert (await story(agent))[2:] == ["user: Work", "calls: work {}", "result: done", "says: Done."]
            assert len(ran) == 1
            assert store.failures == {}

    run(scenario)


def test_a11_a_thread_that_cannot_be_read_is_parked_and_hurts_nobody_else(caplog: pytest.LogCaptureFixture) -> None:
    """What is missing is never taken for empty."""
    store, clock = FailingStore(MemoryStore()), ManualClock()
    model = ScriptedModel(lambda request: say(f"Hello {len(request.transcript)}."), clock=clock)

    async def scenario() -> None:
        async with system(model, store=store, clock=clock) as it:
            bad, good = await it.launch(thread_id="bad"), await it.launch(thread_id="good")
            for agent in (bad, good):
                await agent.send("Hello")
                await agent.wait_idle()
            await pass_time(clock, MINUTE)
            store.failures["read_log"] = [StoreCorrupt("the page cannot be read")] * MAX_TRIES
            await bad.send("Hello")
            await pass_time(clock, MINUTE)
            state = await bad.state()
            assert state.status == "parked"
            assert state.reason.startswith("5 slices in a row came to nothing")
            assert "the page cannot be read" in caplog.text
            await good.send("Hello")
            await until_told(good, "says: Hello 3.")
            await bad.send("Again")
            await until_told(bad, "user: Hello", "user: Again", "says: Hello 4.")

    with caplog.at_level(logging.ERROR):
        run(scenario)


def test_c30_an_event_whose_slice_fails_after_the_model_has_answered_is_handled_once() -> None:
    store, clock = FailingStore(MemoryStore()), ManualClock()
    model = ScriptedModel(lambda request: say(f"I read {last_user_text(request)}."), clock=clock)

    async def scenario() -> None:
        async with system(model, store=store, clock=clock) as it:
            agent = await it.launch()
            store.failures["commit"] = [StoreFull("no room")] * 3
            await agent.send("the news", message_id="m1")
            await pass_time(clock, MINUTE)
            await agent.send("the news", message_id="m1")
            await it.wait_idle()
            assert await story(agent) == ["user: the news", "says: I read the news."]
            assert len(model.requests) == 4

    run(scenario)


def test_c13_a_thread_whose_model_owes_an_answer_is_run_at_boot_without_any_input() -> None:
    store, clock = MemoryStore(), ManualClock()
    options = ThreadOptions(max_rounds=1)

    async def scenario() -> None:
        gate = Gate()
        async with killed([call("nope"), turn(gate, "x")], store=store, clock=clock, options=options) as it:
            agent = await it.launch(thread_id="t")
            await agent.send("Hello")
            await gate.reached()
            assert (await story(agent))[-1].startswith("error: Not run: there is no tool named nope")
            assert await store.read_inbox("t") == ()
        clock.advance(DEAD_AFTER)
        async with system([say("Here is your answer.")], store=store, clock=clock) as it:
            await until_told(await it.thread("t"), "says: Here is your answer.")

    run(scenario)


def test_c67_what_was_accepted_is_there_after_the_process_died_in_the_next_instant() -> None:
    store, clock = MemoryStore(), ManualClock()

    async def scenario() -> None:
        async with killed("never", store=store, clock=clock) as it:
            agent = await it.launch(thread_id="t")
            await agent.send("Hello", message_id="m1")
        clock.advance(DEAD_AFTER)
        async with system("Hello.", store=store, clock=clock) as it:
            agent = await it.thread("t")
            await agent.send("Hello", message_id="m1")
            await agent.wait_idle()
            assert await story(agent) == ["user: Hello", "says: Hello."]

    run(scenario)


def test_a_graceful_stop_lets_a_slice_end_and_begins_no_new_one() -> None:
    store, clock, gate = MemoryStore(), ManualClock(), Gate()
    model = ScriptedModel([turn("I will ", gate, "finish.")], clock=clock)

    async def scenario() -> None:
        it = system(model, store=store, clock=clock, max_slices=1)
        async with it:
            first, second = await it.launch(thread_id="first"), await it.launch(thread_id="second")
            await first.send("Hello")
            await gate.reached()
            await second.send("Hello")
            asyncio.get_running_loop().call_soon(gate.open)
        assert await story(first) == ["user: Hello", "says: I will finish."]
        assert await story(second) == []
        assert len(await store.read_inbox("second")) == 1

    run(scenario)


def test_a_graceful_stop_does_not_wait_for_ever_and_the_slice_is_run_again() -> None:
    store, clock, gate = MemoryStore(), ManualClock(), Gate()

    async def scenario() -> None:
        async with system(turn("I will ", gate, "never"), store=store, clock=clock) as it:
            agent = await it.launch(thread_id="t")
            await agent.send("Hello")
            await gate.reached()
            drain = asyncio.create_task(pass_time(clock, 2 * DRAIN))
        await drain
        assert await story(agent) == []
        async with system(say("Hello."), store=store, clock=clock) as it:
            await until_told(await it.thread("t"), "user: Hello", "says: Hello.")

    run(scenario)


def test_a_graceful_stop_answers_running_tools_and_leaves_idempotent_ones_to_the_next_start() -> None:
    store, clock, begun = MemoryStore(), ManualClock(), []

    @tool
    async def pay() -> str:
        """Pay."""
        begun.append("pay")
        await asyncio.Event().wait()
        return "never"

    @tool(idempotent=True)
    async def look() -> str:
        """Look."""
        begun.append("look")
        if begun.count("look") == 1:
            await asyncio.Event().wait()
        return "seen"

    options = ThreadOptions(parallel_calls=2)

    async def scenario() -> None:
        script = [turn(call("pay"), call("look"))]
        async with system(script, pay, look, store=store, clock=clock, options=options) as it:
            agent = await it.launch(thread_id="t")
            await agent.send("Pay and look")
            await settle()
        assert begun == ["pay", "look"]
        async with system([say("I see.")], pay, look, store=store, clock=clock, options=options) as it:
            agent = await it.thread("t")
            told = await until_told(agent, "result: seen", "says: I see.")
            assert told[3].startswith("error: The process that ran pay was shut down before it was done.")
            assert begun == ["pay", "look", "look"]
            await it.wait_idle()
            assert await store.read_effects() == []

    run(scenario)


def test_a_graceful_stop_keeps_a_result_that_was_on_its_way() -> None:
    """The tool is done, but the store did not take its result yet."""
    store, clock, done = FailingStore(MemoryStore()), ManualClock(), asyncio.Event()

    @tool
    async def pay() -> str:
        """Pay."""
        store.failures["put"] = StoreBusy("busy")
        done.set()
        return "paid"

    async def scenario() -> None:
        async with system([call("pay")], pay, store=store, clock=clock) as it:
            agent = await it.launch(thread_id="t")
            await agent.send("Pay")
            await done.wait()
            await settle()
        async with system([say("It is paid.")], pay, store=store, clock=clock) as it:
            await until_told(await it.thread("t"), "result: paid", "says: It is paid.")

    run(scenario)


def test_a_graceful_stop_on_a_store_that_fails_leaves_the_rest_to_the_next_start() -> None:
    store, clock, begun = FailingStore(MemoryStore()), ManualClock(), asyncio.Event()

    @tool
    async def pay() -> str:
        """Pay."""
        begun.set()
        await asyncio.Event().wait()
        return "never"

    async def scenario() -> None:
        async with system([call("pay")], pay, store=store, clock=clock) as it:
            agent = await it.launch(thread_id="t")
            await agent.send("Pay")
            await begun.wait()
            store.failures = {"put": StoreBusy("busy"), "leave": StoreBusy("busy")}
        clock.advance(DEAD_AFTER)
        async with system([say("Who knows.")], pay, store=store, clock=clock) as it:
            told = await until_told(await it.thread("t"), "says: Who knows.")
            assert told[2].startswith("error: The process that ran pay died before it answered.")

    run(scenario)
