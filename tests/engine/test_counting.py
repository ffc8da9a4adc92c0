"""What engines count, what outlives them, and that what must never happen would be counted if it did."""

import asyncio
from typing import Any

import pytest

from hibernaut import Authority, Rule
from hibernaut.errors import StaleClaim, StoreBusy, StoreFull
from hibernaut.kernel import dispatch, prepare
from hibernaut.kernel.draft import Draft
from hibernaut.kernel.head import Head, Pending
from hibernaut.kernel.limits import ThreadOptions
from hibernaut.messages.events import Usage
from hibernaut.messages.inputs import Command, Event, InputMessage, UserText
from hibernaut.messages.stream import Counted
from hibernaut.metrics import REPEATED, UNKNOWN
from hibernaut.models.errors import Overloaded
from hibernaut.models.protocol import ModelRequest
from hibernaut.models.scripted import ScriptedModel, ScriptedTurn, call, fail, say, turn
from hibernaut.stores.memory import MemoryStore
from hibernaut.stores.protocol import DEAD_AFTER
from hibernaut.stores.sqlite import SqliteStore
from hibernaut.system import AgentSystem
from hibernaut.testing.clock import ManualClock
from hibernaut.testing.gates import Gate
from hibernaut.tools.tool import tool
from tests.engine.scenario import MINUTE, SECOND, FailingStore, killed, run, settle, story, system, until_told


@tool
async def work() -> str:
    """Work for ever."""
    await asyncio.Event().wait()
    return "never"


def client(store: Any, clock: ManualClock) -> AgentSystem:
    return AgentSystem(store=store, clock=clock, run=False)


# Latency


def test_a_resume_takes_from_the_moment_the_input_was_due_to_the_commit_and_to_the_first_word() -> None:
    clock, first, second = ManualClock(), Gate(), Gate()

    async def scenario() -> None:
        async with system(turn(Counted(Usage(9)), first, "Hello ", second, "you."), clock=clock) as it:
            await it.send("t", "Hello")
            await first.reached()
            clock.advance(2 * SECOND)
            first.open()
            await second.reached()
            clock.advance(3 * SECOND)
            second.open()
            await it.wait_idle()
            assert (it._metrics.first_piece.count, it._metrics.first_piece.sum) == (1, 2 * SECOND)
            assert (it._metrics.resumed.count, it._metrics.resumed.greatest) == (1, 5 * SECOND)

    run(scenario)


def test_what_was_held_while_a_thread_was_stopped_is_not_late() -> None:
    clock = ManualClock()

    async def scenario() -> None:
        async with system([say("One."), say("Two.")], clock=clock) as it:
            agent = await it.launch(thread_id="t")
            await agent.send("Go")
            await it.wait_idle()
            await agent.stop()
            await it.wait_idle()
            held = InputMessage("event:call_x:1", "t", Event("call_x", "late", "1", associative=True))
            await it.store.put([held], clock.now())
            clock.advance(MINUTE)
            await agent.send("Go on")
            await it.wait_idle()
            assert it._metrics.resumed.greatest == 0

    run(scenario)


# What outlives a process


def test_counts_outlive_their_processes_and_are_read_without_an_engine(tmp_path: Any) -> None:
    clock, file = ManualClock(), tmp_path / "agents.db"

    async def scenario() -> None:
        for number in range(2):
            store = await SqliteStore.open(file)
            async with system(lambda _: turn("Yes.", usage=Usage(10, 3)), store=store, clock=clock) as it:
                for _ in range(2):
                    await it.send("t", "Hello", message_id=f"m{number}")
                await it.wait_idle()
            await store.close()
        store = await SqliteStore.open(file)
        async with client(store, clock) as it:
            stats = await it.stats()
            assert stats.threads == {"open": 1}
            assert stats.duplicates == 2
            assert stats.resume_latency.count == stats.first_piece.count == 2
            assert stats.recovery.count == 2
            assert stats.counted["slices"] == 2
            assert stats.counted["tokens"] == {"input": 20, "output": 6}
            assert stats.counted["stop_violations"] == stats.counted["approval_misbindings"] == 0
            assert stats.history_bytes.threads == 1
            deep = await it.stats(deep=True)
            assert deep.history_bytes == stats.history_bytes
            assert deep.proven is not None
            assert deep.proven.receipts == 2
            assert deep.proven.inputs == {"accepted": 2}
            assert deep.proven.completions == {"complete": 2}
            assert deep.proven.tokens == {"input": 20, "output": 6}
        await store.close()

    run(scenario)


def test_an_engine_writes_its_counts_down_with_its_signs_of_life() -> None:
    clock, store = ManualClock(), MemoryStore()

    async def scenario() -> None:
        async with killed(say("Yes."), store=store, clock=clock) as it:
            await it.send("t", "Hello")
            await until_told(await it.thread("t"), "says: Yes.")
            clock.advance(DEAD_AFTER)
            await settle()
            assert (await store.read_counts(clock.now())).counted["completions.complete"] == 1
        async with client(store, clock) as it:
            assert (await it.stats()).counted["slices"] == 1

    run(scenario)


def test_tokens_of_a_tree_are_counted_once() -> None:
    store, clock = MemoryStore(), ManualClock()

    def answer(request: ModelRequest) -> ScriptedTurn:
        asked = len(request.transcript)
        if request.thread_id == "t" and asked == 1:
            return turn(call("spawn_thread", instructions="Look", child_of=["t"]), usage=Usage(100, 10))
        return turn("Done.", usage=Usage(100, 10))

    async def scenario() -> None:
        async with system(answer, store=store, clock=clock) as it:
            await it.send("t", "Go")
            await it.wait_idle()
            used = [row.head for row in await store.read_tree("t")]
            assert len(used) == 2
            made = it.completions
            assert it._metrics.tokens == [100 * made, 10 * made]
            stats = await it.stats(deep=True)
            assert stats.proven is not None
            assert stats.proven.tokens == {"input": 100 * made, "output": 10 * made}

    run(scenario)


# What goes wrong


def test_late_events_are_counted() -> None:
    clock = ManualClock()

    async def scenario() -> None:
        async with system(say("Yes."), clock=clock) as it:
            await it.send("t", "Hello")
            late = InputMessage("event:call_x:1", "t", Event("call_x", "it rained", "1", associative=True))
            await it.store.put([late], clock.now())
            await it.wait_idle()
            assert it._metrics.late_events == 1
            assert "hibernaut_late_events_total 1\n" in await it.metrics()
            proven = (await it.stats(deep=True)).proven
            assert proven is not None
            assert proven.late_events == 1

    run(scenario)


def test_failed_completions_that_are_put_back_and_given_up_are_counted() -> None:
    clock = ManualClock()

    async def scenario() -> None:
        model = ScriptedModel(lambda _: fail(Overloaded("busy")), clock=clock)
        async with system(model, clock=clock, options=ThreadOptions(max_attempts=3)) as it:
            agent = await it.launch(thread_id="t", message="Hello")
            while (await agent.state()).status != "parked":
                clock.advance(MINUTE)
                await settle()
            assert it._metrics.retries == 2
            assert it._metrics.parked == [1, 0, 0]
            assert it._metrics.completions[3] == 3

    run(scenario)


def test_compactions_that_come_to_nothing_are_counted() -> None:
    async def scenario() -> None:
        async with system(say("Yes.")) as it:
            agent = await it.launch(thread_id="t")
            await agent.compact()
            await it.wait_idle()
            assert it._metrics.compaction_failures == 1

    run(scenario)


def test_uncertain_effects_are_counted_by_what_was_done_about_them() -> None:
    store, clock = MemoryStore(), ManualClock()
    done: list[str] = []

    @tool(idempotent=True)
    async def note() -> str:
        """Write a note, which may be done twice."""
        done.append("noted")
        if len(done) == 1:
            await asyncio.Event().wait()
        return "noted"

    async def scenario() -> None:
        script = [turn(call("work"), call("note"))]
        parallel = ThreadOptions(parallel_calls=2)
        async with killed(script, work, note, store=store, clock=clock, options=parallel) as it:
            await it.send("t", "Go")
            while [row.state for row in await store.read_effects()] != ["sent", "sent"]:
                await settle()
        clock.advance(DEAD_AFTER)
        async with system(lambda _: say("I see."), work, note, store=store, clock=clock) as it:
            await until_told(await it.thread("t"), "says: I see.")
            assert it._metrics.adopted == 2
            assert [it._metrics.reconciled[how] for how in (REPEATED, UNKNOWN)] == [1, 1]
            assert sum(it._metrics.reconciled) == 2
            assert it._metrics.unknown == 1
            proven = (await it.stats(deep=True)).proven
            assert proven is not None
            assert proven.unknown == 1

    run(scenario)


@pytest.mark.parametrize(
    "error, expected",
    [(StaleClaim("lost"), ([1, 0], 0)), (StoreBusy("busy"), ([0, 1], 0)), (StoreFull("full"), ([0, 0], 1))],
)
def test_what_the_store_refuses_is_counted_by_its_kind(error: Any, expected: tuple[list[int], int]) -> None:
    store = FailingStore(MemoryStore())
    store.failures["commit"] = error

    async def scenario() -> None:
        async with system(lambda _: say("Yes."), store=store) as it:
            await it.send("t", "Hello")
            await settle()
            assert (it._metrics.conflicts, it._metrics.store_failures) == expected

    run(scenario)


def test_what_a_process_has_counted_is_told_though_its_store_fails() -> None:
    store = FailingStore(MemoryStore())

    async def scenario() -> None:
        async with system(say("Yes."), store=store) as it:
            assert "hibernaut_store_up 1\n" in await it.metrics()
            store.failures["read_counts"] = StoreBusy("busy")
            told = await it.metrics()
            assert "hibernaut_store_up 0\n" in told
            assert "hibernaut_slices_total 0\n" in told
            assert "hibernaut_store_threads" not in told

    run(scenario)


# What must never happen


def ignoring_stops(*given: Any, **more: Any) -> Draft:
    """Prepare a round as a build would that forgets that threads are stopped."""
    head: Head = given[0]
    head.status = "open"
    return prepare.prepare(*given, **more)


async def stopped_while_it_owes_an_answer(it: AgentSystem) -> None:
    """Stop a thread that was spoken to, and have a slice of it run all the same."""
    agent = await it.launch(thread_id="t")
    stop = InputMessage("stop", "t", Command("stop"), "operator")
    await it.store.put([InputMessage("m1", "t", UserText("Go")), stop], it.clock.now())
    await it.wait_idle()
    assert (await agent.state()).status == "stopped"
    upkeep = InputMessage("cancel", "t", Command("cancel", "call_x"), "operator")
    await it.store.put([upkeep], it.clock.now())
    await settle()


def test_a_slice_that_works_in_a_stopped_thread_is_counted_and_not_committed(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        async with system(lambda _: say("At work!")) as it:
            await stopped_while_it_owes_an_answer(it)
            await it.wait_idle()
            assert it._metrics.stop_violations == 0
        monkeypatch.setattr("hibernaut.engine.slice.prepare", ignoring_stops)
        async with system(lambda _: say("At work!")) as it:
            await stopped_while_it_owes_an_answer(it)
            assert it._metrics.stop_violations == 1
            assert "says: At work!" not in await story(await it.thread("t"))
            assert (await (await it.thread("t")).state()).status == "stopped"

    run(scenario)


def test_work_in_a_stopped_thread_is_proved_by_what_is_stored(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hibernaut.engine.slice.prepare", ignoring_stops)
    monkeypatch.setattr("hibernaut.engine.slice.works_though_stopped", lambda *_: False)

    async def scenario() -> None:
        async with system(lambda _: say("At work!")) as it:
            await stopped_while_it_owes_an_answer(it)
            await it.wait_idle()
            assert "says: At work!" in await story(await it.thread("t"))
            proven = (await it.stats(deep=True)).proven
            assert proven is not None
            assert proven.stop_violations == 1

    run(scenario)


def for_another(draft: Draft, pending: Pending, _choice: int, _user: str) -> None:
    """Begin any call that waits for leave, whatever the leave was for."""
    other = next(one for one in draft.head.calls.values() if one.approval and one.id != pending.call_id)
    other.approval = ""
    dispatch._work(draft, other)


def for_other_arguments(draft: Draft, pending: Pending, _choice: int, _user: str) -> None:
    """Begin the call that leave was given for, with what was not shown."""
    one = draft.head.calls[pending.call_id]
    one.approval, one.arguments = "", '{"disk":"c"}'
    dispatch._work(draft, one)


def whatever_was_decided(draft: Draft, pending: Pending, _choice: int, _user: str) -> None:
    """Begin the call though it was denied."""
    one = draft.head.calls[pending.call_id]
    one.approval = ""
    dispatch._work(draft, one)


@pytest.mark.parametrize(
    "decide, choice",
    [(for_another, "Allow"), (for_other_arguments, "Allow"), (whatever_was_decided, "Deny")],
)
def test_leave_that_lands_on_another_call_is_counted_and_nothing_is_begun(
    decide: Any, choice: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hibernaut.kernel.questions.decide", decide)
    asks = Authority(rules=(Rule(decision="ask", annotations=("destructive",)),))
    wiped: list[str] = []

    @tool(destructive=True)
    async def wipe(disk: str) -> str:
        """Wipe a disk."""
        wiped.append(disk)
        return "empty"

    async def scenario() -> None:
        script = [turn(call("wipe", disk="a"), call("wipe", disk="b"))]
        async with system(script, wipe, authority=asks, options=ThreadOptions(parallel_calls=2)) as it:
            await it.send("t", "Wipe")
            await it.wait_idle()
            questions = await it.questions()
            await it.answer(questions[0].question_id, choice)
            await settle()
            assert it._metrics.approval_misbindings == 1
            assert wiped == []
            assert await it.store.read_effects() == []

    run(scenario)


def test_leave_that_is_given_is_none_of_those() -> None:
    asks = Authority(rules=(Rule(decision="ask", annotations=("destructive",)),))

    @tool(destructive=True)
    async def wipe(disk: str) -> str:
        """Wipe a disk."""
        return f"{disk} is empty"

    async def scenario() -> None:
        async with system([call("wipe", disk="a"), say("Done.")], wipe, authority=asks) as it:
            await it.send("t", "Wipe")
            await it.wait_idle()
            (question,) = await it.questions()
            await it.answer(question.question_id, "Allow")
            await until_told(await it.thread("t"), "says: Done.")
            assert it._metrics.approval_misbindings == 0

    run(scenario)
