"""Calls: begun once, answered once, whatever their tool does and whatever happens meanwhile."""

import asyncio
import threading

import msgspec
import pytest

from hibernaut.engine.interruptions import LOOK_EVERY
from hibernaut.engine.streams import INLINE_GRACE
from hibernaut.errors import AlreadyAnswered, StoreBusy, TokenRefused, ToolError
from hibernaut.kernel.limits import ThreadOptions
from hibernaut.kernel.waiting import STILL_RUNNING
from hibernaut.messages.inputs import InputMessage
from hibernaut.messages.inputs import ToolResult as Result
from hibernaut.messages.items import ResultItem
from hibernaut.messages.parts import Excerpt, plain_text
from hibernaut.models.protocol import ModelRequest
from hibernaut.models.scripted import ScriptedModel, ScriptedTurn, call, last_user_text, say, turn
from hibernaut.stores.memory import MemoryStore
from hibernaut.testing.clock import ManualClock
from hibernaut.tools.context import Deferred, ToolContext
from hibernaut.tools.tokens import KeyRing, read, sign
from hibernaut.tools.tool import tool
from tests.engine.bench import Bench, works
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


def test_c02_calls_that_a_stop_cut_short_are_answered_and_what_comes_late_is_shown_as_an_event() -> None:
    bench, token = Bench(), []

    @tool
    async def ask_boss(context: ToolContext) -> Deferred:
        """Ask the boss."""
        deferred = context.defer()
        token.append(deferred.token)
        return deferred

    script = [turn(works("a"), call("ask_boss"), works("b")), say("Hi."), say("I see, the boss agrees.")]

    async def scenario() -> None:
        async with system(script, bench.work, ask_boss, options=ThreadOptions(parallel_calls=2)) as it:
            agent = await it.launch()
            await agent.send("Go")
            await settle()
            await agent.stop()
            await agent.wait_idle()
            await agent.send("hi")
            await agent.wait_idle()
            told = await story(agent)
            cut = "error: Stopped before it was done. It is unknown how far it got; check before repeating it."
            assert told[4:7] == [cut, cut, "error: Not run: the turn was cut short before its time came."]
            assert told[-2:] == ["user: hi", "says: Hi."]
            await it.deliver(token[0], "agreed")
            await until_told(agent, "late_result: ask_boss agreed", "says: I see, the boss agrees.")
            assert bench.cancelled == ["a"]
            assert bench.begun == ["a"]

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
    [
        ValueError("bad"),
        ToolError("bad"),
        SystemExit("bad"),
        ExceptionGroup("both", [ValueError("bad"), KeyError("x")]),
    ],
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


def test_a_function_that_takes_the_next_of_nothing_is_answered() -> None:
    @tool
    def first() -> str:
        """Return the first."""
        return next(iter(()))

    async def scenario() -> None:
        async with system([call("first"), say("Oh.")], first) as it:
            agent = await it.launch()
            await agent.send("Try")
            assert "error: Error: RuntimeError: the function raised" in (await until_told(agent, "says: Oh."))[2]

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


def test_a_stopped_thread_cancels_its_inline_tool_too() -> None:
    hung, ended, clock = asyncio.Event(), asyncio.Event(), ManualClock()

    @tool(inline=True)
    async def hang() -> str:
        """Hang."""
        hung.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()
        return "never"

    async def scenario() -> None:
        async with system([call("hang")], hang, clock=clock) as it:
            agent = await it.launch()
            await agent.send("Go")
            await hung.wait()
            await agent.stop("enough")
            await pass_time(clock, INLINE_GRACE, LOOK_EVERY)
            await ended.wait()
            assert (await agent.wait_idle()).status == "stopped"

    run(scenario)


def test_an_inline_tool_that_is_quick_is_not_cut_short_by_the_user() -> None:
    begun, gate = asyncio.Event(), asyncio.Event()

    @tool(inline=True)
    async def compute() -> str:
        """Compute."""
        begun.set()
        await gate.wait()
        return "42"

    def answer(request: ModelRequest) -> ScriptedTurn:
        return call("compute") if len(request.transcript) == 1 else say(f"To {last_user_text(request)}: 42")

    async def scenario() -> None:
        async with system(answer, compute) as it:
            agent = await it.launch()
            await agent.send("this")
            await begun.wait()
            await agent.send("that")
            await settle()
            gate.set()
            await agent.wait_idle()
            assert (await story(agent))[2:] == ["result: 42", "user: that", "says: To that: 42"]

    run(scenario)


def test_an_operator_cancels_one_call_and_the_model_hears_of_it() -> None:
    bench = Bench()
    model = [works("a", "b"), say("I see.")]

    async def scenario() -> None:
        async with system(model, bench.work, options=ThreadOptions(parallel_calls=2)) as it:
            agent = await it.launch()
            await agent.send("Work")
            await settle()
            first, _ = (await agent.state()).calls
            await agent.cancel(first.call_id, "too dear")
            await settle()
            bench.finish("b")
            told = await until_told(agent, "result: b is done", "says: I see.")
            assert told[3].startswith("error: Cancelled by an operator (too dear).")
            assert bench.cancelled == ["a"]
            await it.wait_idle()
            assert await it.store.read_effects() == []

    run(scenario)


def test_functions_that_block_run_beside_each_other_and_hold_nothing_up() -> None:
    together = threading.Barrier(20)

    @tool
    def meet(name: str) -> str:
        """Meet all others."""
        together.wait(10)
        return f"{name} was there"

    def answer(request: ModelRequest) -> ScriptedTurn:
        return say("Met.") if len(request.transcript) > 1 else call("meet", name=request.thread_id)

    async def scenario() -> None:
        async with system(answer, meet) as it:
            agents = [await it.launch(thread_id=f"t{number}") for number in range(20)]
            for agent in agents:
                await agent.send("Meet")
            for agent in agents:
                assert f"result: {agent.thread_id} was there" in await until_told(agent, "says: Met.")

    run(scenario)


def test_a_blocking_function_that_never_returns_does_not_keep_the_system_from_ending() -> None:
    begun, never = threading.Event(), threading.Event()

    @tool
    def hang() -> str:
        """Hang."""
        begun.set()
        never.wait()
        return "never"

    async def scenario() -> None:
        async with system([call("hang")], hang) as it:
            agent = await it.launch()
            await agent.send("Go")
            await asyncio.to_thread(begun.wait)

    run(scenario)
    never.set()


# Deferred calls


def test_a_deferred_call_is_answered_by_whoever_has_its_token_while_nobody_runs() -> None:
    store, clock, tokens = MemoryStore(), ManualClock(), []

    @tool
    async def build(context: ToolContext) -> Deferred:
        """Build."""
        deferred = context.defer()
        tokens.append(deferred.token)
        return deferred

    async def scenario() -> None:
        async with system([call("build")], build, store=store, clock=clock) as it:
            agent = await it.launch(thread_id="t")
            await agent.send("Build")
            await until_activity(agent, "waiting")
            while not tokens:  # noqa: ASYNC110  # the call waits before its function is run
                await asyncio.sleep(0)
        async with system([], store=store, clock=clock, run=False) as client:
            await client.deliver(tokens[0], {"passed": 12, "failed": 0})
            with pytest.raises(AlreadyAnswered):
                await client.deliver(tokens[0], "again")
            with pytest.raises(TokenRefused):
                await client.deliver(tokens[0][:-1] + "x", "forged")
            keys = KeyRing([await store.secret()])
            events_only = msgspec.structs.replace(read(keys, tokens[0], clock.now()), kinds=("subscription_event",))
            with pytest.raises(TokenRefused, match="does not allow a tool_result"):
                await client.deliver(sign(keys, events_only), "for events only")
        async with system([say("It builds.")], build, store=store, clock=clock) as it:
            agent = await it.thread("t")
            await agent.wait_idle()
            assert (await story(agent))[2:] == ['result: {"passed":12,"failed":0}', "says: It builds."]
            assert await store.read_effects() == []

    run(scenario)


def test_a_deferred_call_outlives_a_graceful_end_and_is_not_taken_for_one_that_died() -> None:
    store, clock, tokens = MemoryStore(), ManualClock(), []

    @tool
    async def build(context: ToolContext) -> Deferred:
        """Build."""
        deferred = context.defer()
        tokens.append(deferred.token)
        return deferred

    async def scenario() -> None:
        for _ in range(3):
            async with system([call("build"), say("Yes.")], build, store=store, clock=clock) as it:
                agent = await it.launch(thread_id="t")
                await agent.send("Build", message_id="m1")
                await until_activity(agent, "waiting")
                await it.wait_idle()
                assert await story(agent) == ["user: Build", "calls: build {}"]
            clock.advance(MINUTE)
        assert len(tokens) == 1

    run(scenario)


# What comes back


def test_c22_a_long_result_keeps_its_head_and_its_tail_and_the_whole_in_a_blob() -> None:
    whole = "ok\n" * 200_000 + "FAILED (exit status 1)"

    @tool
    async def test_all() -> str:
        """Test."""
        return whole

    async def scenario() -> None:
        async with system([call("test_all"), say("It failed.")], test_all) as it:
            agent = await it.launch()
            await agent.send("Test")
            await agent.wait_idle()
            (result,) = [item for item in await agent.history() if isinstance(item, ResultItem)]
            part = result.content[0]
            assert isinstance(part, Excerpt)
            assert part.text.startswith("ok\n")
            assert part.text.endswith("FAILED (exit status 1)")
            assert len(part.text) < 20_000
            assert await it.store.read_blob(part.blob) == whole.encode()

    run(scenario)


@pytest.mark.parametrize(
    "value, shown",
    [
        ("x" * 5_000_000, "xxx"),
        ("a\ud800b\x00", "a\ufffdb\u2400"),
        (b"caf\xe9", "caf\ufffd"),
        (object(), "The tool ran, but its result, a object, cannot be written as text"),
        (None, "Done."),
        ("", "(empty)"),
    ],
    ids=["5 MB", "surrogate", "bytes", "object", "none", "empty"],
)
def test_c23_whatever_a_tool_returns_is_kept_or_refused_and_the_thread_goes_on(value: object, shown: str) -> None:
    @tool
    async def work() -> object:
        """Work."""
        return value

    model = ScriptedModel([call("work"), say("I see.")])

    async def scenario() -> None:
        async with system(model, work) as it:
            agent = await it.launch()
            await agent.send("Work")
            await until_told(agent, "says: I see.")
            (result,) = [item for item in model.requests[-1].transcript if isinstance(item, ResultItem)]
            assert plain_text(result.content).startswith(shown)
            assert len(plain_text(result.content)) < 20_000
            assert await it.verify(agent.thread_id) > 0

    run(scenario)
