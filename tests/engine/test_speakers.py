"""Several people speak in one thread: work goes on for whom it was asked for, whoever speaks meanwhile."""

import asyncio
from collections.abc import AsyncGenerator
from typing import Any

import pytest

from hibernaut.kernel.authority import Authority, Rule
from hibernaut.messages.items import CallItem, UserItem
from hibernaut.models.protocol import ModelRequest
from hibernaut.models.scripted import ScriptedTurn, call, last_result, last_user_text, say, turn
from hibernaut.stores.memory import MemoryStore
from hibernaut.stores.protocol import DEAD_AFTER, EffectRow
from hibernaut.system import AgentSystem
from hibernaut.testing.clock import ManualClock
from hibernaut.testing.faults import FaultyStore
from hibernaut.tools.context import Deferred, ToolContext
from hibernaut.tools.tool import AnyTool, tool
from tests.engine.far import PUBLIC, Far
from tests.engine.scenario import MortalStore, killed, run, settle, story, system, until_told

ANN = {"key": "ann's"}
BOB = {"key": "bob's"}

Seen = tuple[str, str, Any]
"""What was done, for whom, and with which key."""


class Notebook:
    """Tools that write down for whom they work."""

    def __init__(self, *, idempotent: bool = False) -> None:
        self.seen: list[Seen] = []
        self.tokens: list[str] = []
        self.gate = asyncio.Event()

        @tool(idempotent=idempotent)
        async def note(what: str, context: ToolContext) -> str:
            """Write something down."""
            self._see(what, context)
            return f"noted {what}"

        @tool
        async def ask(what: str, context: ToolContext) -> Deferred:
            """Ask somebody outside."""
            self._see(what, context)
            deferred = context.defer()
            self.tokens.append(deferred.token)
            return deferred

        @tool(resumable=True)
        async def watch(what: str, context: ToolContext) -> AsyncGenerator[str, None]:
            """Watch something."""
            self._see(what, context)
            yield f"watching {what}"
            await self.gate.wait()
            yield f"{what} happened"
            await asyncio.Event().wait()

        self.tools: tuple[AnyTool, ...] = (note, ask, watch)

    def _see(self, what: str, context: ToolContext) -> None:
        self.seen.append((what, context.user, context.metadata.get("key")))


def with_people(book: Notebook, model: Any, **more: Any) -> AgentSystem:
    return system(model, *book.tools, **{"tenant": "acme", **more})


def made(request: ModelRequest) -> list[str]:
    return [item.name for item in request.transcript if isinstance(item, CallItem)]


def test_a30_queued_calls_of_a_turn_work_for_who_asked_for_the_turn() -> None:
    book = Notebook()

    async def scenario() -> None:
        calls = turn(call("ask", what="one"), call("note", what="two"), call("note", what="three"))
        async with with_people(book, [calls, say("All done.")]) as it:
            agent = await it.launch(user="ann", metadata=ANN)
            await agent.send("Do three things", user="ann")
            await it.wait_idle()
            await it.deliver(book.tokens[0], "one is done")
            await until_told(agent, "says: All done.")
            assert book.seen == [(what, "ann", "ann's") for what in ("one", "two", "three")]

    run(scenario)


def test_a30_what_another_person_asks_for_later_has_what_that_person_gave_and_earlier_work_has_not() -> None:
    book = Notebook()

    def answer(request: ModelRequest) -> ScriptedTurn:
        asked = last_user_text(request)
        if asked in made_for(request):
            return say(f"{asked} is under way.")
        return call("ask" if asked == "one" else "note", what=asked)

    def made_for(request: ModelRequest) -> str:
        return " ".join(item.arguments for item in request.transcript if isinstance(item, CallItem))

    async def scenario() -> None:
        async with with_people(book, answer) as it:
            agent = await it.launch(user="ann", metadata=ANN)
            await agent.send("one", user="ann")
            await it.wait_idle()
            await agent.send("two", user="bob", metadata=BOB)
            await until_told(agent, "says: two is under way.")
            assert book.seen == [("one", "ann", "ann's"), ("two", "ann", "bob's")]
            assert [item.user for item in await agent.history() if isinstance(item, UserItem)] == ["ann", "bob"]
            await it.deliver(book.tokens[0], "one is done")
            await it.wait_idle()
            assert any("one is done" in line for line in await story(agent))

    run(scenario)


@pytest.mark.parametrize("late", [False, True])
def test_a30_a_call_that_waited_for_leave_works_for_who_asked_for_it_and_not_for_who_allowed_it(late: bool) -> None:
    book = Notebook()
    careful = Authority(rules=(Rule(decision="ask", tools=("note",)),))

    async def scenario() -> None:
        store, clock = MemoryStore(), ManualClock()
        first = [call("note", what="wipe"), say("Bob, I wait for leave.")]
        async with with_people(book, first, store=store, clock=clock, authority=careful) as it:
            agent = await it.launch(thread_id="t", user="ann", metadata=ANN)
            await agent.send("Wipe it", user="ann")
            await it.wait_idle()
            await agent.send("Hello?", user="bob", metadata=BOB)
            await it.wait_idle()
            (question,) = await it.questions()
            if not late:
                await it.answer(question.question_id, "Allow", user="bob")
                await it.wait_idle()
        async with with_people(book, [say("Done."), say("Done.")], store=store, clock=clock) as it:
            if late:
                await it.answer(question.question_id, "Allow", user="bob")
            await it.wait_idle()
            assert book.seen == [("wipe", "ann", "ann's")]
            assert any(line == "answered: Allow" for line in await story(await it.thread("t")))

    run(scenario)


class Neglectful(FaultyStore):
    """A store whose engine takes over nothing."""

    async def adopt_effects(self, *_: Any, **__: Any) -> list[EffectRow]:
        return []


@pytest.mark.parametrize("state", ["pending", "sent"])
def test_a30_work_that_the_next_engine_begins_or_repeats_is_for_who_asked_for_it(state: str) -> None:
    book = Notebook(idempotent=True)

    async def scenario() -> None:
        store, clock = MemoryStore(), ManualClock()
        mortal = MortalStore(store)
        mortal.die_after("commit" if state == "pending" else "start_effects")
        async with killed([call("note", what="one")], *book.tools, store=mortal, clock=clock) as it:
            await it.launch(thread_id="t", message="Do one", user="ann", metadata=ANN)
            await mortal.died.wait()
        book.seen.clear()
        clock.advance(DEAD_AFTER)
        # Bob speaks before anybody has taken over what was begun.
        async with system([], store=store, clock=clock, run=False) as client:
            agent = await client.thread("t")
            assert [row.state for row in await store.read_effects("t")] == [state]
            await agent.send("Hello?", user="bob", metadata=BOB)
        async with system([say("Bob, it is under way.")], store=Neglectful(store), clock=clock, run=False) as it:
            assert (await it.step([])).completions == 1
        async with system([say("Done.")], *book.tools, store=store, clock=clock) as it:
            await it.wait_idle()
            assert book.seen == [("one", "ann", "ann's")]

    run(scenario)


def test_a30_a_subscription_goes_on_for_who_asked_for_it_and_so_do_the_threads_of_its_events() -> None:
    book = Notebook()

    def answer(request: ModelRequest) -> ScriptedTurn:
        if request.thread_id != "t":
            return say("Dealt with.") if "note" in made(request) else call("note", what="event")
        if last_user_text(request) == "Watch" and not made(request):
            return call("watch", what="it")
        return say("Good.")

    async def scenario() -> None:
        store, clock = MemoryStore(), ManualClock()
        async with with_people(book, answer, store=store, clock=clock) as it:
            agent = await it.launch(thread_id="t", message="Watch", user="ann", metadata=ANN)
            await until_told(agent, "says: Good.")
            await agent.send("Hello?", user="bob", metadata=BOB)
            await until_told(agent, "user: Hello?", "says: Good.")
        async with with_people(book, answer, store=store, clock=clock) as it:
            book.gate.set()
            while ("event", "ann", "ann's") not in book.seen:
                await settle()
            assert book.seen == [("it", "ann", "ann's")] * 2 + [("event", "ann", "ann's")]
            assert (await it.thread("t")).thread_id == "t"

    run(scenario)


def test_a30_a_child_works_for_who_asked_for_it_though_another_person_speaks_to_it_and_to_its_parent() -> None:
    book = Notebook()

    def answer(request: ModelRequest) -> ScriptedTurn:
        if request.thread_id == "t":
            return say("Good.") if made(request) else call("spawn_thread", instructions="Work", child_of=[])
        if made(request)[-1] == "sleep_until_event_or_input" and "Hello" in last_user_text(request):
            return call("note", what="of the child")
        return say("Done.") if "noted" in last_result(request) else call("sleep_until_event_or_input")

    async def scenario() -> None:
        store, clock = MemoryStore(), ManualClock()
        async with with_people(book, answer, store=store, clock=clock) as it:
            agent = await it.launch(thread_id="t", message="Begin", user="ann", metadata=ANN)
            await it.wait_idle()
            await agent.send("And I am Bob", user="bob", metadata=BOB)
            await it.wait_idle()
        async with with_people(book, answer, store=store, clock=clock) as it:
            (child,) = [state.thread_id for state in await (await it.thread("t")).tree() if state.parent]
            await (await it.thread(child)).send("Hello", user="bob")
            await it.wait_idle()
            assert book.seen == [("of the child", "ann", "ann's")]

    run(scenario)


def test_a30_a_tool_server_is_told_who_asked_over_a_restart_and_when_a_call_is_sent_again() -> None:
    async def scenario() -> None:
        store, clock = MemoryStore(), ManualClock()
        there = Far(store, clock)
        more: dict[str, Any] = {"store": store, "clock": clock, "servers": there.servers, "callbacks": PUBLIC}
        mortal = MortalStore(store)
        mortal.die_after("commit")
        async with killed([call("build", commit="abc")], **{**more, "store": mortal}) as it:
            await it.launch(thread_id="t", message="Build", user="ann")
            await mortal.died.wait()
        assert there.servers.calls == []
        clock.advance(DEAD_AFTER)
        async with system([], run=False, store=store, clock=clock) as client:
            await (await client.thread("t")).send("Hello?", user="bob")
        async with system([say("It is under way.")], **more) as it:
            await it.wait_idle()
            assert [one.user_id for one in there.servers.calls] == ["ann"]

    run(scenario)
