"""Who runs first, how many at once, and that everybody's turn comes."""

import asyncio

from hibernaut.kernel.limits import ThreadOptions
from hibernaut.messages.inputs import InputMessage, ToolResult
from hibernaut.models.protocol import ModelRequest
from hibernaut.models.scripted import ScriptedTurn, call, last_result, last_user_text, say
from hibernaut.stores.memory import MemoryStore
from hibernaut.stores.protocol import URGENCY_PENALTY
from hibernaut.testing.clock import ManualClock
from hibernaut.testing.gates import Gate
from hibernaut.tools.context import Deferred, ToolContext
from hibernaut.tools.tool import tool
from tests.engine.scenario import MINUTE, SECOND, run, settle, story, system, until_activity, until_told


@tool
async def ask(context: ToolContext) -> Deferred:
    """Ask somebody outside."""
    return context.defer()


def test_no_more_slices_run_at_once_than_may() -> None:
    running, most = 0, 0

    async def answer(request: ModelRequest) -> ScriptedTurn:
        nonlocal running, most
        running += 1
        most = max(most, running)
        for _ in range(5):
            await asyncio.sleep(0)
        running -= 1
        return say("Done.")

    async def scenario() -> None:
        async with system(answer, max_slices=4) as it:
            for number in range(40):
                await it.send(f"t{number}", "Go")
            await it.wait_idle()
            assert it.completions == 40
            assert most == 4

    run(scenario)


def test_one_thread_never_runs_twice_at_once_however_much_it_is_told() -> None:
    running = 0

    async def answer(request: ModelRequest) -> ScriptedTurn:
        nonlocal running
        running += 1
        try:
            assert running == 1
            for _ in range(3):
                await asyncio.sleep(0)
        finally:  # whoever speaks meanwhile interrupts it
            running -= 1
        return say("Done.")

    async def scenario() -> None:
        async with system(answer) as it:
            agent = await it.launch()
            for number in range(30):
                await agent.send(f"{number}")
                await asyncio.sleep(0)
            await agent.wait_idle()
            texts = [line for line in await story(agent) if line.startswith("user")]
            assert texts == [f"user: {number}" for number in range(30)]

    run(scenario)


def test_people_come_before_results_and_results_before_upkeep() -> None:
    """All become ready while the only slot is taken."""
    store, clock, gate = MemoryStore(), ManualClock(), Gate()
    order: list[str] = []

    def answer(request: ModelRequest) -> ScriptedTurn:
        if request.thread_id == "first":
            return ScriptedTurn([gate], say("First.").ending)
        if request.thread_id != "person" and len(request.transcript) == 1:
            return call("ask") if request.thread_id == "result" else call("sleep", seconds=60)
        order.append(request.thread_id)
        return say("Done.")

    async def scenario() -> None:
        async with system(answer, ask, store=store, clock=clock, max_slices=1) as it:
            result, timer = await it.launch(thread_id="result"), await it.launch(thread_id="timer")
            for agent in (result, timer):
                await agent.send("Prepare")
                await agent.wait_idle() if agent is timer else await until_activity(agent, "waiting")
            await it.send("first", "Hold everybody up")
            await gate.reached()
            (waiting,) = (await result.state()).calls
            await store.put([InputMessage("r", "result", ToolResult(waiting.call_id, "yes"))], clock.now())
            clock.advance(URGENCY_PENALTY[1] - 1)
            await it.send("person", "Hello")
            clock.advance(MINUTE)
            gate.open()
            await it.wait_idle()
            assert order == ["person", "result", "timer"]

    run(scenario)


def test_whoever_waits_long_enough_is_first_whatever_else_comes() -> None:
    """People talk without end, and a result still gets its turn."""
    store, clock = MemoryStore(), ManualClock()
    people = system([], store=store, clock=clock, run=False)
    order: list[str] = []

    async def answer(request: ModelRequest) -> ScriptedTurn:
        if request.thread_id == "result" and len(request.transcript) == 1:
            return call("ask")
        order.append(request.thread_id)
        clock.advance(100)
        if len(order) < 40:  # there is always somebody else who has just said something
            await people.send(f"person {len(order)}", "Hello")
        return say("Done.")

    async def scenario() -> None:
        async with people, system(answer, ask, store=store, clock=clock, max_slices=1) as it:
            agent = await it.launch(thread_id="result")
            await agent.send("Prepare")
            await until_activity(agent, "waiting")
            (waiting,) = (await agent.state()).calls
            await it.send("person 0", "Hello")
            await store.put([InputMessage("r", "result", ToolResult(waiting.call_id, "yes"))], clock.now())
            await it.wait_idle()
            assert order.index("result") <= URGENCY_PENALTY[1] // 100 + 1
            assert len(order) == 41

    run(scenario)


def test_a_thread_that_goes_on_and_on_gives_the_others_their_turn() -> None:
    order: list[str] = []

    def answer(request: ModelRequest) -> ScriptedTurn:
        order.append(request.thread_id)
        if request.thread_id == "busy" and len(order) < 30:
            return call("set_title", title=f"{len(order)}")
        return say("Done.")

    async def scenario() -> None:
        clock = ManualClock()
        options = ThreadOptions(max_rounds=4)
        async with system(answer, clock=clock, max_slices=1, options=options) as it:
            await it.send("busy", "Go on")
            await it.send("other", "Hello")
            await it.wait_idle()
            assert order.index("other") <= 4
            assert order.count("busy") >= 29

    run(scenario)


def test_waiting_threads_take_no_slot() -> None:
    def answer(request: ModelRequest) -> ScriptedTurn:
        rested = last_user_text(request) == "Now" or last_result(request)
        return say("Done.") if rested else call("sleep", seconds=3_600)

    async def scenario() -> None:
        clock = ManualClock()
        async with system(answer, clock=clock, max_slices=2) as it:
            for number in range(50):
                await it.send(f"t{number}", "Sleep")
            await it.wait_idle()
            await it.send("other", "Now")
            await until_told(await it.thread("other"), "says: Done.")
            clock.advance(3_600 * SECOND)
            await settle()
            await it.wait_idle()
            assert it.completions == 101

    run(scenario)
