"""What the user does while an agent is at work, and what time does to one that waits."""

import asyncio
from collections.abc import AsyncGenerator
from typing import Any

import pytest

from hibernaut.kernel.commit import SliceCommit
from hibernaut.messages.inputs import Command, Delivered
from hibernaut.models.protocol import ModelRequest
from hibernaut.models.scripted import (
    ScriptedModel,
    ScriptedTurn,
    call,
    say,
    turn,
)
from hibernaut.stores.memory import MemoryStore
from hibernaut.stores.protocol import DEAD_AFTER, Claim, Store
from hibernaut.testing.clock import ManualClock
from hibernaut.testing.faults import FaultyStore
from hibernaut.testing.gates import Gate
from hibernaut.tools.tool import tool
from tests.engine.scenario import (
    MINUTE,
    SECOND,
    START,
    killed,
    run,
    settle,
    story,
    system,
    until_activity,
    until_told,
)

HOUR = 60 * MINUTE
DAY = 24 * HOUR


# What the user does meanwhile


def test_a_user_who_speaks_stops_the_stream_and_what_was_said_stays() -> None:
    gate = Gate()
    model = ScriptedModel([turn("I was about to ", gate, call("nothing")), say("Yes?")])

    async def scenario() -> None:
        async with system(model) as it:
            agent = await it.launch()
            await agent.send("Tell me")
            await gate.reached()
            await agent.send("Wait")
            await agent.wait_idle()
            assert await story(agent) == [
                "user: Tell me",
                "says: I was about to  [interrupted]",
                "user: Wait",
                "says: Yes?",
            ]
            assert model.streaming == 0

    run(scenario)


def test_a_stop_ends_the_stream_and_holds_what_comes_until_the_thread_is_resumed() -> None:
    gate = Gate()
    model = ScriptedModel([turn("I was ", gate, "never"), say("Yes.")])

    async def scenario() -> None:
        async with system(model) as it:
            agent = await it.launch()
            await agent.send("Tell me")
            await gate.reached()
            await agent.stop("enough")
            state = await agent.wait_idle()
            assert (state.status, state.reason) == ("stopped", "enough")
            assert model.streaming == 0
            await agent.resume()
            await agent.send("Go on")
            await until_told(agent, "says: I was  [interrupted]", "notice: stopped enough", "says: Yes.")

    run(scenario)


@pytest.mark.parametrize(
    "orders, status",
    [(["stop", "resume"], "open"), (["stop", "resume", "stop"], "stopped"), (["park", "resume"], "open")],
)
def test_orders_that_arrive_together_are_carried_out_in_their_order(orders: list[Any], status: str) -> None:
    store, clock = MemoryStore(), ManualClock()

    async def scenario() -> None:
        async with system([], store=store, clock=clock, run=False) as client:
            agent = await client.launch(thread_id="t")
            for order in orders:
                await client.command("t", Command(order))
        async with system([], store=store, clock=clock) as it:
            agent = await it.thread("t")
            assert (await agent.wait_idle()).status == status

    run(scenario)


class SlowStore(FaultyStore):
    """A store whose answers about an inbox may be long on their way, and its commits too."""

    def __init__(self, inner: Store) -> None:
        super().__init__(inner)
        self.inbox_read, self.answers = asyncio.Event(), asyncio.Event()
        self.committing, self.commits = asyncio.Event(), asyncio.Event()

    async def read_inbox(self, thread_id: str) -> tuple[Delivered, ...]:
        inbox = await super().read_inbox(thread_id)
        self.inbox_read.set()
        await self.answers.wait()
        return inbox

    async def commit(self, claim: Claim, commit: SliceCommit, *, keep: bool = False) -> None:
        self.committing.set()
        await self.commits.wait()
        await super().commit(claim, commit, keep=keep)


@pytest.mark.parametrize("answered", ["while it is stored", "while the next is said"])
def test_a_user_who_speaks_as_a_turn_ends_interrupts_neither_its_commit_nor_the_answer(answered: str) -> None:
    store, first, second = SlowStore(MemoryStore()), Gate(), Gate()

    async def scenario() -> None:
        async with system([turn("One", first, "."), turn("Two", second, ".")], store=store) as it:
            await it.send("t", "First")
            await first.reached()
            await it.send("t", "Second")
            await store.inbox_read.wait()
            first.open()
            await store.committing.wait()
            if answered == "while it is stored":
                store.answers.set()
                await settle()
            store.commits.set()
            await second.reached()
            store.answers.set()
            await settle()
            second.open()
            agent = await it.thread("t")
            await until_told(agent, "says: Two.")
            assert await story(agent) == ["user: First", "says: One.", "user: Second", "says: Two."]

    run(scenario)


def test_what_several_people_say_at_once_is_answered_at_once() -> None:
    model = ScriptedModel(["To all three."])

    async def scenario() -> None:
        store = MemoryStore()
        async with system(model, store=store, run=False) as client:
            agent = await client.launch(thread_id="t")
            for text in ("one", "two", "three"):
                await agent.send(text)
        async with system(model, store=store) as it:
            agent = await it.thread("t")
            await agent.wait_idle()
            assert await story(agent) == ["user: one", "user: two", "user: three", "says: To all three."]

    run(scenario)


# Time


def test_a37_a_sleep_ends_on_time_whether_it_is_short_or_long() -> None:
    lengths = [0.5, 900, 901, 400 * 86_400]

    def answer(request: ModelRequest) -> ScriptedTurn:
        return say("Awake.") if len(request.transcript) > 1 else call("sleep", seconds=float(request.thread_id))

    async def scenario() -> None:
        clock = ManualClock()
        async with system(answer, clock=clock) as it:
            agents = [await it.launch(thread_id=str(length)) for length in lengths]
            for agent in agents:
                await agent.send("Sleep")
                await until_activity(agent, "resting")
            for agent in agents:
                (resting,) = (await agent.state()).calls
                assert resting.due == START + float(agent.thread_id) * SECOND
                while resting.due - clock.now() > 1:
                    clock.advance((resting.due - clock.now()) // 2)
                    await settle()
                assert (await story(agent))[-1].startswith("calls: sleep")
                clock.advance(1)
                await until_told(agent, "result: Slept until the time set.", "says: Awake.")

    run(scenario)


def test_a16_a37_a_sleep_goes_on_over_restarts_and_ends_late_if_nobody_ran() -> None:
    store, clock = MemoryStore(), ManualClock()

    def answer(request: ModelRequest) -> ScriptedTurn:
        return say("Awake.") if len(request.transcript) > 1 else call("sleep", seconds=DAY / SECOND)

    async def scenario() -> None:
        async with system(answer, store=store, clock=clock) as it:
            agent = await it.launch(thread_id="t")
            await agent.send("Sleep")
            await until_activity(agent, "resting")
        for _ in range(3):
            clock.advance(6 * HOUR)
            async with system(answer, store=store, clock=clock) as it:
                await it.wait_idle()
                assert (await (await it.thread("t")).state()).activity == "resting"
        clock.advance(9 * HOUR)
        async with system(answer, store=store, clock=clock) as it:
            agent = await it.thread("t")
            await agent.wait_idle()
            told = ["result: Slept until the time set. It was noticed 3 h late.", "says: Awake."]
            assert (await story(agent))[-2:] == told

    run(scenario)


def test_c29_a_timer_fires_once_however_the_clock_jumps() -> None:
    clock = ManualClock()
    model = ScriptedModel([call("sleep", seconds=60), say("Awake.")], clock=clock)

    async def scenario() -> None:
        async with system(model, clock=clock) as it:
            agent = await it.launch()
            await agent.send("Sleep")
            await until_activity(agent, "resting")
            clock.advance(8 * HOUR)
            await until_told(agent, "says: Awake.")
            clock.advance(8 * HOUR)
            await it.wait_idle()
            assert len([line for line in await story(agent) if line.startswith("result")]) == 1

    run(scenario)


def test_a16_what_waits_at_a_restart_is_all_still_there() -> None:
    """A deferred event, queued texts and a sleeping thread."""
    store, clock, gate = MemoryStore(), ManualClock(), asyncio.Event()

    @tool(events="associative")
    async def watch() -> AsyncGenerator[str, None]:
        """Watch."""
        yield "subscribed"
        await gate.wait()
        yield "news"
        await asyncio.Event().wait()

    @tool(idempotent=True)
    async def work() -> str:
        """Work."""
        await asyncio.Event().wait()
        return "never"

    model = [call("watch"), call("work")]

    async def scenario() -> None:
        async with killed(model, watch, work, store=store, clock=clock) as it:
            agent = await it.launch(thread_id="t")
            await agent.send("Watch, then work")
            await until_told(agent, "calls: work {}")
            gate.set()
            await settle()
        async with system([], store=store, clock=clock, run=False) as client:
            await client.send("t", "one")
            await client.send("t", "two")
        clock.advance(DEAD_AFTER)
        async with system(["Caught up.", "And more.", "And more."], watch, work, store=store, clock=clock) as it:
            agent = await it.thread("t")
            await until_told(agent, "user: one", "user: two", "says: Caught up.")
            assert "event: watch news" in await story(agent)

    run(scenario)
