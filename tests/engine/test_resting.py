"""Threads that rest by the thousand: what wakes one costs nothing for the others, and none of them leaves a thing."""

import asyncio
from collections.abc import AsyncGenerator

from hibernaut.kernel.commit import NewThread
from hibernaut.kernel.config import LaunchConfig, encode_config
from hibernaut.kernel.head import Call, Head, decode_head, encode_head
from hibernaut.kernel.limits import ThreadOptions
from hibernaut.messages.inputs import Event, InputMessage, UserText, event_message
from hibernaut.models.protocol import ModelRequest
from hibernaut.models.scripted import ScriptedTurn, call, last_result, say, turn
from hibernaut.stores.memory import MemoryStore
from hibernaut.stores.protocol import DEAD_AFTER
from hibernaut.testing.clock import ManualClock
from hibernaut.testing.faults import FaultyStore
from hibernaut.tools.tool import tool
from tests.engine.scenario import (
    MINUTE,
    START,
    head_of,
    killed,
    pass_time,
    run,
    settle,
    story,
    system,
    until_activity,
    until_told,
)

RESTING = 10_000

SUBSCRIBED = "call_subscribed"

OPERATIONS_OF_ONE_EVENT = 8
"""Store operations that waking one thread may take: claim, read what it is, write, and see that nothing else is due."""


async def resting(threads: int, options: ThreadOptions | None = None) -> MemoryStore:
    """Return a store of idle threads, each with an active subscription that somebody elsewhere keeps."""
    store = MemoryStore()
    digest, body = encode_config(LaunchConfig(options=options or ThreadOptions()))

    def new(name: str) -> NewThread:
        call = Call(SUBSCRIBED, "watch", mode="subscription", state="subscribed")
        head = Head(name, b"saltsalt", digest, calls={SUBSCRIBED: call})
        return NewThread(name, "", encode_head(head), digest, body, START)

    await store.create([new(f"t{number}") for number in range(threads)], [], START)
    return store


def news(text: str, thread_id: str = "t77", *, associative: bool = True) -> InputMessage:
    return event_message(thread_id, Event(SUBSCRIBED, text, text, associative=associative), "test")


def test_c27_an_event_for_one_of_ten_thousand_resting_threads_touches_that_one_only() -> None:
    async def scenario() -> None:
        inner = await resting(RESTING)
        store = FaultyStore(inner)
        async with system(["I see."], store=store) as it:
            await it.wait_idle()
            before = len(store.operations)
            await inner.put([news("news")], START)
            await it.wait_idle()
            done = store.operations[before:]
            assert len(done) <= OPERATIONS_OF_ONE_EVENT, done
            assert "list_threads" not in done
            assert (await story(await it.thread("t77")))[-1] == "says: I see."
        touched = 0
        for number in range(RESTING):
            row = await inner.read_head(f"t{number}")
            assert row is not None
            touched += decode_head(row.head).head.version > 0
        assert touched == 1

    run(scenario)


async def _left_by(threads: int) -> tuple[int, int, int]:
    """Return how many tasks, timers of the loop and open streams there are when so many threads have come to rest."""
    store, clock = await resting(threads), ManualClock()
    async with system(lambda _: say("I see."), store=store, clock=clock) as it:
        await store.put([news("news", f"t{number}") for number in range(threads)], clock.now())
        await it.wait_idle()
        await pass_time(clock, MINUTE, 20_000)
        await it.wait_idle()
        assert it.completions == threads
        loop = asyncio.get_running_loop()
        timers = len([one for one in loop._scheduled if not one.cancelled()])  # type: ignore[attr-defined]
        assert it._engine is not None
        return len(asyncio.all_tasks()), timers, len(it._engine.engine.runner.streams)


def test_a32_threads_that_rest_leave_no_task_timer_or_stream_behind() -> None:
    async def scenario() -> None:
        few = await _left_by(1)
        assert await _left_by(1_000) == few

    run(scenario)


def test_c28_when_an_event_comes_before_the_sleep_ends_the_timer_is_gone_and_the_thread_idle_at_once() -> None:
    gate = asyncio.Event()

    @tool(events="associative")
    async def watch() -> AsyncGenerator[str, None]:
        """Watch."""
        yield "subscribed"
        await gate.wait()
        yield "news"
        await asyncio.Event().wait()

    def answer(request: ModelRequest) -> ScriptedTurn:
        heard = last_result(request)
        if not heard:
            return call("watch")
        return call("sleep", seconds=4 * 3_600) if heard == "subscribed" else say("I see.")

    async def scenario() -> None:
        store, clock = MemoryStore(), ManualClock()
        async with system(answer, watch, store=store, clock=clock) as it:
            agent = await it.launch(message="Wait")
            await until_activity(agent, "resting")
            assert await store.next_due(clock.now()) is not None
            gate.set()
            await until_activity(agent, "idle")
            (timer,) = await store.read_inbox(agent.thread_id)
            assert timer.message_id.startswith("expiry:")
            assert (await story(agent))[-3:] == [
                "result: Woken early: something arrived.",
                "event: watch news",
                "says: I see.",
            ]

    run(scenario)


def test_a_thread_rests_while_only_its_sleep_is_under_way_whatever_else_the_turn_has() -> None:
    async def scenario() -> None:
        sleeps = turn(call("sleep_until_event_or_input"), call("no_such_tool"), call("work"))

        @tool
        async def work() -> str:
            """Work."""
            return "worked"

        async with system([sleeps, "I am awake."], work) as agents:
            agent = await agents.launch(message="Wait")
            assert (await agent.wait_idle()).activity == "resting"
            await agent.send("Hello")
            await until_told(agent, "result: Woken early: something arrived.", "says: I am awake.")

    run(scenario)


def test_a16_a_restart_loses_no_deferred_event_no_queued_text_and_no_sleep() -> None:
    """A child sleeps while its parent works, has an event that waits for that, and is spoken to while nobody runs."""

    @tool(idempotent=True)
    async def work() -> str:
        """Work."""
        await asyncio.Event().wait()
        return "never"

    def answer(request: ModelRequest) -> ScriptedTurn:
        heard = last_result(request)
        if request.thread_id != "t77":
            return say("I am awake.") if "Slept" in heard else call("sleep", seconds=3_600)
        if "works on that now" in heard:
            return call("work")
        return say("I see.") if heard else call("spawn_thread", instructions="Sleep", child_of=[])

    async def scenario() -> None:
        store, clock = await resting(100), ManualClock()
        async with killed(answer, work, store=store, clock=clock) as it:
            agent = await it.thread("t77")
            await agent.send("Go")
            await until_activity(agent, "waiting")
            await store.put([news("news")], clock.now())
            await settle()
            (waiting,) = await store.read_inbox("t77")
            assert waiting.due > clock.now()
        async with system(answer, store=store, clock=clock, run=False) as client:
            await client.send("t77", "Hello")
        clock.advance(DEAD_AFTER)
        async with system(answer, work, store=store, clock=clock) as it:
            agent = await it.thread("t77")
            await until_told(agent, "event: watch news", "user: Hello", "says: I see.")
            (name,) = (await head_of(agent)).children
            child = await it.thread(name)
            await until_activity(child, "resting")
            clock.advance(3_600_000)
            await until_told(child, "says: I am awake.")
            await settle()
            assert any(line.startswith("report: spawn_thread") for line in await story(agent))

    run(scenario)


def test_a25_a_thread_for_an_event_counts_when_the_same_round_wants_another() -> None:
    """The bound of the tree holds within one round, too."""

    def answer(request: ModelRequest) -> ScriptedTurn:
        if request.thread_id != "t77":
            return call("sleep", seconds=60)
        if last_result(request):
            return say("As you wish.")
        return call("spawn_thread", instructions="Look", child_of=[])

    async def scenario() -> None:
        store = await resting(100, ThreadOptions(max_descendants=1))
        async with system(answer, store=store) as it:
            said = InputMessage("m", "t77", UserText("Have it looked at"), "test")
            await store.put([news("news", associative=False), said], START)
            await settle()
            await it.wait_idle()
            agent = await it.thread("t77")
            assert len((await head_of(agent)).children) == 1
            assert "max_descendants" in (await story(agent))[-2]

    run(scenario)


def test_an_engine_that_rests_lets_the_store_put_away_what_was_hot() -> None:
    store, clock = MemoryStore(compress=True), ManualClock()

    async def scenario() -> None:
        async with system(lambda _: say("So it is. " * 50), store=store, clock=clock) as it:
            agents = [await it.launch(thread_id=f"t{number}", message="Hello") for number in range(20)]
            await it.wait_idle()
            size = await store.stored_bytes()
            await pass_time(clock, 2_000)
            await settle()
            assert await store.stored_bytes() < 0.7 * size
            assert not await store.rest()
            for agent in agents:
                await agent.send("And now?")
            await it.wait_idle()
            assert [await it.verify(agent.thread_id) for agent in agents] == [2] * 20

    run(scenario)
