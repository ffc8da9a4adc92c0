"""The serverless face: a batch in, outcomes out, and nothing left running."""

import asyncio
from collections.abc import AsyncGenerator

import pytest

from hibernaut.errors import MalformedInput, StoreBusy
from hibernaut.messages.inputs import Command, InputMessage, ToolResult, UserText
from hibernaut.models.errors import RateLimited
from hibernaut.models.protocol import ModelRequest
from hibernaut.models.scripted import ScriptedModel, ScriptedTurn, call, last_user_text, say, turn
from hibernaut.stores.memory import MemoryStore
from hibernaut.stores.protocol import Outcome
from hibernaut.testing.clock import ManualClock
from hibernaut.tools.context import Deferred, ToolContext
from hibernaut.tools.tool import tool
from tests.engine.scenario import MINUTE, START, FailingStore, run, story, system

PUBLISHED = '{"content": {"type": "text", "text": "Good morning"}, "group_id": "t"}'


def text(name: str, words: str, thread_id: str = "t") -> InputMessage:
    return InputMessage(name, thread_id, UserText(words), "test")


@tool
async def work() -> str:
    """Work."""
    await asyncio.sleep(0)
    return "done"


def test_a_step_runs_its_threads_until_they_rest_and_leaves_nothing_running() -> None:
    def answer(request: ModelRequest) -> ScriptedTurn:
        return say("Done.") if len(request.transcript) > 1 else call("work")

    async def scenario() -> None:
        async with system(answer, work, run=False) as it:
            tasks = asyncio.all_tasks()
            result = await it.step([text("m1", "Work"), text("m2", "Work", "t2")])
            assert (result.outcomes, result.completions) == ((Outcome.ACCEPTED,) * 2, 4)
            assert result.next_due is None
            assert asyncio.all_tasks() == tasks
            assert it.feed._turns == {}
            for name in ("t", "t2"):
                told = ["user: Work", "calls: work {}", "result: done", "says: Done."]
                assert await story(await it.thread(name)) == told
            assert await it.store.read_effects() == []

    run(scenario)


def test_a_step_takes_the_published_form_and_makes_the_thread_of_a_user_text() -> None:
    async def scenario() -> None:
        async with system(lambda request: f"You said: {last_user_text(request)}", run=False) as it:
            await it.step([PUBLISHED, PUBLISHED.encode()])
            told = ["user: Good morning", "user: Good morning", "says: You said: Good morning"]
            assert await story(await it.thread("t")) == told

    run(scenario)


def test_a22_a_batch_with_a_message_that_cannot_be_read_changes_nothing() -> None:
    async def scenario() -> None:
        async with system("Hello.", run=False) as it:
            for body in ("not JSON", b"\xff\xfe", "[]", '{"group_id": "t"}', '{"content": {}, "group_id": "t"}'):
                with pytest.raises(MalformedInput):
                    await it.step([text("m1", "Hello"), body])
            assert await it.store.list_threads() == []

    run(scenario)


def test_only_a_user_text_makes_a_thread() -> None:
    async def scenario() -> None:
        async with system([], run=False) as it:
            strays = [
                InputMessage("r1", "nobody", ToolResult("call_1", "result"), "test"),
                InputMessage("c1", "nobody", Command("resume"), "test"),
            ]
            result = await it.step(strays)
            assert result.outcomes == (Outcome.UNKNOWN, Outcome.UNKNOWN)
            assert await it.store.list_threads() == []

    run(scenario)


def test_a03_the_same_message_in_two_steps_is_one_input() -> None:
    model = ScriptedModel(["Hello."])

    async def scenario() -> None:
        async with system(model, run=False) as it:
            await it.step([text("m1", "Hello")])
            result = await it.step([text("m1", "Hello")])
            assert (result.outcomes, result.completions) == ((Outcome.DUPLICATE,), 0)
            assert len(model.requests) == 1

    run(scenario)


def test_what_stays_open_is_only_rows_and_the_result_says_when_to_come_back() -> None:
    store, clock, tokens = MemoryStore(), ManualClock(), []

    @tool
    async def ask_boss(context: ToolContext) -> Deferred:
        """Ask the boss."""
        deferred = context.defer()
        tokens.append(deferred.token)
        return deferred

    script = [call("ask_boss"), call("sleep", seconds=60), say("The boss said yes, and I slept.")]

    async def scenario() -> None:
        async with system(script, ask_boss, store=store, clock=clock, run=False) as it:
            assert (await it.step([text("m1", "Ask")])).next_due is None
            await it.deliver(tokens[0], "yes")
            assert (await it.step([])).next_due == START + MINUTE
            assert (await it.step([])).completions == 0
            clock.advance(MINUTE)
            result = await it.step([])
            assert (result.completions, result.next_due) == (1, None)
            assert (await story(await it.thread("t")))[-1] == "says: The boss said yes, and I slept."

    run(scenario)


def test_c52_a_step_does_not_wait_for_a_provider_that_asks_for_patience() -> None:
    clock = ManualClock()
    model = ScriptedModel([RateLimited("slow down", MINUTE), say("Hello.")], clock=clock)

    async def scenario() -> None:
        async with system(model, clock=clock, run=False) as it:
            result = await it.step([text("m1", "Hello")])
            assert result.next_due == START + MINUTE
            clock.advance(MINUTE)
            await it.step([])
            assert (await story(await it.thread("t")))[-1] == "says: Hello."

    run(scenario)


def test_a_step_that_is_for_its_own_threads_only_leaves_the_others_alone() -> None:
    store, clock = MemoryStore(), ManualClock()

    async def scenario() -> None:
        async with system(lambda _: say("Hello."), store=store, clock=clock, run=False) as it:
            await it.send("other", "Hello")
            await it.step([text("m1", "Hello")], due=False)
            assert await story(await it.thread("other")) == []
            await it.step([])
            assert (await story(await it.thread("other")))[-1] == "says: Hello."

    run(scenario)


def test_a_subscription_is_refused_where_nothing_is_kept() -> None:
    @tool(events="associative")
    async def watch() -> AsyncGenerator[str, None]:
        """Watch."""
        yield "subscribed"

    async def scenario() -> None:
        async with system([call("watch"), say("A pity.")], watch, run=False) as it:
            await it.step([text("m1", "Watch")])
            told = await story(await it.thread("t"))
            assert told[2].startswith("error: watch cannot be used here")
            assert await it.store.read_effects() == []

    run(scenario)


def test_an_interruption_between_two_steps_detaches_the_open_call() -> None:
    @tool
    async def ask_boss(context: ToolContext) -> Deferred:
        """Ask the boss."""
        return context.defer()

    async def scenario() -> None:
        async with system([turn("One moment. ", call("ask_boss")), say("I have asked.")], ask_boss, run=False) as it:
            await it.step([text("m1", "May I?")])
            await it.step([text("m2", "And?")])
            told = await story(await it.thread("t"))
            assert told[3:] == [
                "result: Still running. The result will arrive later as an event.",
                "user: And?",
                "says: I have asked.",
            ]

    run(scenario)


@pytest.mark.parametrize("operation", ["claim", "beat", "adopt_effects", "put"])
def test_a11_a_store_that_fails_makes_the_step_fail_and_the_same_step_again_goes_on(operation: str) -> None:
    store = FailingStore(MemoryStore())

    async def scenario() -> None:
        async with system(["Hello."], store=store, run=False) as it:
            store.failures[operation] = StoreBusy("busy")
            with pytest.raises(StoreBusy):
                await it.step([text("m1", "Hello")])
            await it.step([text("m1", "Hello")])
            assert await story(await it.thread("t")) == ["user: Hello", "says: Hello."]

    run(scenario)


def test_a11_a_slice_that_the_store_did_not_take_is_due_again_later() -> None:
    store, clock = FailingStore(MemoryStore()), ManualClock()

    async def scenario() -> None:
        async with system(lambda _: say("Hello."), store=store, clock=clock, run=False) as it:
            store.failures["commit"] = StoreBusy("busy")
            result = await it.step([text("m1", "Hello")])
            assert result.next_due is not None
            clock.advance(result.next_due - clock.now())
            await it.step([])
            assert await story(await it.thread("t")) == ["user: Hello", "says: Hello."]

    run(scenario)


def test_many_threads_of_one_step_run_at_the_same_time() -> None:
    together = asyncio.Event()
    there: set[str] = set()

    async def answer(request: ModelRequest) -> ScriptedTurn:
        there.add(request.thread_id)
        if len(there) == 20:
            together.set()
        await together.wait()
        return say("We are all here.")

    async def scenario() -> None:
        async with system(answer, run=False) as it:
            result = await it.step([text("m1", "Meet", f"t{number}") for number in range(20)])
            assert result.completions == 20

    run(scenario)
