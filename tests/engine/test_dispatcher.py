"""Calls: begun once, answered once, whatever their tool does and whatever happens meanwhile."""

import asyncio
import sys
import threading
from collections.abc import AsyncGenerator

import pytest

from hibernaut.engine.local import LOOK_EVERY
from hibernaut.engine.slice import INLINE_GRACE
from hibernaut.errors import AlreadyAnswered, StoreBusy, TokenRefused, ToolError
from hibernaut.kernel.limits import ThreadOptions
from hibernaut.kernel.prepare import STILL_RUNNING
from hibernaut.messages.inputs import InputMessage
from hibernaut.messages.inputs import ToolResult as Result
from hibernaut.messages.items import ResultItem
from hibernaut.messages.parts import Excerpt, plain_text
from hibernaut.models.protocol import ModelRequest
from hibernaut.models.scripted import ScriptedModel, ScriptedTurn, call, last_user_text, say, turn
from hibernaut.stores.memory import MemoryStore
from hibernaut.testing.clock import ManualClock
from hibernaut.tools.context import Deferred, ToolContext
from hibernaut.tools.tool import tool
from tests.engine.scenario import (
    MINUTE,
    SECOND,
    FailingStore,
    pass_time,
    run,
    settle,
    story,
    system,
    until_activity,
    until_told,
)


class Bench:
    """A tool `work(name)` whose calls end when the test says how."""

    def __init__(self) -> None:
        self.begun: list[str] = []
        self.cancelled: list[str] = []
        self._ends: dict[str, asyncio.Future[str]] = {}

        @tool
        async def work(name: str) -> str:
            """Work."""
            self.begun.append(name)
            try:
                return await self._end(name)
            except asyncio.CancelledError:
                self.cancelled.append(name)
                raise

        self.work = work

    def _end(self, name: str) -> asyncio.Future[str]:
        if name not in self._ends:
            self._ends[name] = asyncio.get_running_loop().create_future()
        return self._ends[name]

    def finish(self, name: str) -> None:
        self._end(name).set_result(f"{name} is done")

    def break_off(self, name: str) -> None:
        self._end(name).set_exception(ToolError(f"{name} is broken"))


def works(*names: str) -> ScriptedTurn:
    return turn(*[call("work", name=name) for name in names])


def test_a08_calls_that_are_open_at_once_are_answered_in_their_order_whatever_order_they_end_in() -> None:
    bench = Bench()
    model = ScriptedModel([works("a", "b", "c"), say("All are there.")])

    async def scenario() -> None:
        async with system(model, bench.work, options=ThreadOptions(parallel_calls=3)) as it:
            agent = await it.launch()
            await agent.send("Do three things")
            await settle()
            assert bench.begun == ["a", "b", "c"]
            bench.finish("c")
            await settle()
            bench.break_off("b")
            await settle()
            assert len(model.requests) == 1
            bench.finish("a")
            await agent.wait_idle()
            assert (await story(agent))[4:] == [
                "result: a is done",
                "error: b is broken",
                "result: c is done",
                "says: All are there.",
            ]
            assert len(model.requests) == 2

    run(scenario)


def test_a08_calls_that_must_wait_are_begun_one_after_the_other_without_asking_the_model() -> None:
    bench = Bench()
    model = ScriptedModel([works("a", "b", "c"), say("All are there.")])

    async def scenario() -> None:
        async with system(model, bench.work) as it:
            agent = await it.launch()
            await agent.send("Do three things")
            for name in "abc":
                await settle()
                assert bench.begun[-1] == name
                assert len(model.requests) == 1
                bench.finish(name)
            await agent.wait_idle()
            assert bench.begun == ["a", "b", "c"]
            assert len(model.requests) == 2

    run(scenario)


def test_a09_c02_the_result_of_a_call_that_was_cut_short_comes_as_an_event_and_comes_once() -> None:
    token: list[str] = []

    @tool
    async def ask_boss(context: ToolContext) -> Deferred:
        """Ask the boss."""
        deferred = context.defer()
        token.append(deferred.token)
        return deferred

    model = ScriptedModel([call("ask_boss"), say("I have asked."), say("The boss says yes.")])

    async def scenario() -> None:
        async with system(model, ask_boss) as it:
            agent = await it.launch()
            await agent.send("May I?")
            await until_activity(agent, "waiting")
            await agent.send("And?")
            await agent.wait_idle()
            await it.deliver(token[0], "yes")
            await agent.wait_idle()
            with pytest.raises(AlreadyAnswered):
                await it.deliver(token[0], "no, after all")
            await agent.wait_idle()
            assert await story(agent) == [
                "user: May I?",
                "calls: ask_boss {}",
                f"result: {STILL_RUNNING}",
                "user: And?",
                "says: I have asked.",
                "late_result: ask_boss yes",
                "says: The boss says yes.",
            ]

    run(scenario)


def test_c06_a_second_result_of_an_answered_call_changes_nothing() -> None:
    bench = Bench()
    model = ScriptedModel([works("a"), say("Done.")])

    async def scenario() -> None:
        async with system(model, bench.work) as it:
            agent = await it.launch()
            await agent.send("Work")
            await until_activity(agent, "waiting")
            (open_call,) = (await agent.state()).calls
            bench.finish("a")
            told = await until_told(agent, "says: Done.")
            for message_id in (f"result:{open_call.call_id}", "another id"):
                late = InputMessage(message_id, agent.thread_id, Result(open_call.call_id, "again"))
                await it.store.put([late], it.clock.now())
            await it.wait_idle()
            assert await story(agent) == told
            assert len(model.requests) == 2

    run(scenario)


def test_c42_a_result_that_the_store_does_not_take_is_brought_again_and_the_tool_runs_once() -> None:
    store, clock, runs = FailingStore(MemoryStore()), ManualClock(), []

    @tool
    async def pay() -> str:
        """Pay."""
        runs.append(1)
        store.failures["put"] = [StoreBusy("busy")] * 3
        return "paid"

    async def scenario() -> None:
        async with system([call("pay"), say("It is paid.")], pay, store=store, clock=clock) as it:
            agent = await it.launch()
            await agent.send("Pay")
            for _ in range(3):
                await settle()
                clock.advance(SECOND)
            await agent.wait_idle()
            assert (await story(agent))[2:] == ["result: paid", "says: It is paid."]
            assert len(runs) == 1

    run(scenario)


def test_a15_a_call_that_is_open_for_too_long_is_answered_and_what_comes_all_the_same_is_shown() -> None:
    clock, token = ManualClock(), []

    @tool(deadline=60)
    async def ask_boss(context: ToolContext) -> Deferred:
        """Ask the boss."""
        deferred = context.defer()
        token.append(deferred.token)
        return deferred

    async def scenario() -> None:
        async with system([call("ask_boss"), say("No answer."), say("It came.")], ask_boss, clock=clock) as it:
            agent = await it.launch()
            await agent.send("May I?")
            await until_activity(agent, "waiting")
            clock.advance(MINUTE)
            await until_told(agent, "error: Timed out: no result within 60 s. It may still happen.", "says: No answer.")
            await it.deliver(token[0], "yes")
            await until_told(agent, "late_result: ask_boss yes", "says: It came.")

    run(scenario)


def test_a15_a_tool_whose_call_timed_out_is_cancelled() -> None:
    bench, clock = Bench(), ManualClock()
    options = ThreadOptions(call_deadline=MINUTE)

    async def scenario() -> None:
        async with system([works("a"), say("No answer.")], bench.work, clock=clock, options=options) as it:
            agent = await it.launch()
            await agent.send("Work")
            await until_activity(agent, "waiting")
            await settle()
            clock.advance(MINUTE)
            await agent.wait_idle()
            await it.wait_idle()
            assert bench.cancelled == ["a"]
            assert await it.store.read_effects() == []

    run(scenario)


def test_a_tool_has_its_own_time_limit() -> None:
    @tool(timeout=0.01)
    async def slow() -> str:
        """Take ages."""
        await asyncio.Event().wait()
        return "never"

    @tool(timeout=600)
    async def hasty() -> str:
        """Give up at once."""
        raise TimeoutError("the server did not answer")

    async def scenario() -> None:
        async with system([call("slow"), call("hasty"), say("Oh.")], slow, hasty) as it:
            agent = await it.launch()
            await agent.send("Try")
            told = await until_told(agent, "says: Oh.")
            assert "error: Error: slow did not answer within 0.01 s." in told
            assert "error: Error: TimeoutError: the server did not answer" in told

    run(scenario)


@pytest.mark.parametrize(
    "error",
    [ValueError("bad"), ToolError("bad"), SystemExit("bad"), ExceptionGroup("both", [ValueError("bad"), KeyError("x")])],
    ids=["exception", "tool-error", "exit", "group"],
)
def test_whatever_a_tool_raises_is_its_answer(error: BaseException) -> None:
    @tool
    async def bad() -> str:
        """Be bad."""
        raise error

    @tool
    def worse() -> str:
        """Be bad in a thread."""
        raise error

    async def scenario() -> None:
        async with system([call("bad"), call("worse"), say("Oh.")], bad, worse) as it:
            agent = await it.launch()
            await agent.send("Try")
            told = await until_told(agent, "says: Oh.")
            errors = [line for line in told if line.startswith("error: ")]
            assert len(errors) == 2
            assert all("bad" in line for line in errors)

    run(scenario)


def test_a_tool_that_is_cancelled_from_inside_is_answered() -> None:
    @tool
    async def nested() -> str:
        """Wait for a task that somebody else cancels."""
        inner = asyncio.create_task(asyncio.sleep(3_600))
        inner.cancel()
        await inner
        return "never"

    async def scenario() -> None:
        async with system([call("nested"), say("Oh.")], nested) as it:
            agent = await it.launch()
            await agent.send("Try")
            told = await until_told(agent, "says: Oh.")
            assert told[2] == "error: Error: CancelledError"

    run(scenario)


@pytest.mark.parametrize("inline", [False, True], ids=["background", "inline"])
def test_a21_the_user_is_answered_at_once_while_a_tool_hangs(inline: bool) -> None:
    hung, clock = asyncio.Event(), ManualClock()

    @tool(inline=inline)
    async def hang() -> str:
        """Hang."""
        hung.set()
        await asyncio.Event().wait()
        return "never"

    def answer(request: ModelRequest) -> ScriptedTurn:
        return call("hang") if last_user_text(request) == "Go" else say("I am here.")

    async def scenario() -> None:
        async with system(answer, hang, clock=clock) as it:
            agent = await it.launch()
            await agent.send("Go")
            await hung.wait()
            await agent.send("Are you there?")
            await pass_time(clock, INLINE_GRACE, LOOK_EVERY)
            await until_told(agent, f"result: {STILL_RUNNING}", "user: Are you there?", "says: I am here.")

    run(scenario)
