"""Conversations that move: everything a thread has goes on where it went, and nothing is lost on the way."""

import asyncio
import io
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest
from msgspec.structs import replace

from hibernaut.errors import (
    AlreadyAnswered,
    MalformedInput,
    NotAtRest,
    TokenRefused,
    UnknownThread,
)
from hibernaut.kernel.compaction import HEADING
from hibernaut.messages.items import ResultItem
from hibernaut.messages.parts import Excerpt, plain_text
from hibernaut.models.protocol import ModelRequest
from hibernaut.models.scripted import ScriptedModel, ScriptedTurn, call, last_result, last_user_text, say, turn
from hibernaut.stores.archive import EffectRecord, MessageRecord, Record, ThreadRecord
from hibernaut.stores.archive_file import archive_of, read_archive
from hibernaut.stores.memory import MemoryStore
from hibernaut.stores.protocol import Store
from hibernaut.stores.sqlite import SqliteStore
from hibernaut.system import AgentSystem
from hibernaut.testing.clock import ManualClock
from hibernaut.testing.gates import Gate
from hibernaut.tools.context import Deferred, ToolContext
from hibernaut.tools.tool import AnyTool, tool
from tests.engine.scenario import (
    SECOND,
    head_of,
    pass_time,
    run,
    settle,
    story,
    system,
    until_activity,
    until_told,
)
from tests.store_conformance.scenario import (
    START,
)


def client(store: Store, clock: ManualClock | None = None) -> AgentSystem:
    """A system on a store that runs no engine."""
    return system([], store=store, clock=clock, run=False)


async def carried(source: Store, thread_id: str = "t") -> MemoryStore:
    """Take a tree through a file into a new store, and let it go on there."""
    file = io.BytesIO()
    async with client(source) as here:
        await (await here.thread(thread_id)).freeze()
        await here.export(thread_id, file)
    file.seek(0)
    destination = MemoryStore()
    async with client(destination) as there:
        imported = await there.import_(file)
        agent = await there.thread(imported.thread_id)
        assert (await agent.state()).frozen
        assert await agent.thaw() == imported.threads
    return destination


# Frozen


def test_a_frozen_thread_hears_nobody_until_it_is_resumed() -> None:
    async def scenario() -> None:
        async with system(lambda request: say(f"You said {last_user_text(request)}.")) as it:
            agent = await it.launch(thread_id="t", message="one")
            await agent.wait_idle()
            assert await agent.freeze() == 1
            await agent.send("two")
            state = await agent.wait_idle()
            assert (state.frozen, state.status, state.waiting) == (True, "open", 1)
            await it.wait_idle()
            assert (await story(agent))[-1] == "says: You said one."
            await agent.resume(tree=True)
            assert (await until_told(agent, "says: You said two."))[-2:] == ["user: two", "says: You said two."]
            assert not (await agent.state()).frozen

    run(scenario)


def test_a_turn_that_is_under_way_when_a_tree_freezes_is_made_anew() -> None:
    gate = Gate()

    async def scenario() -> None:
        async with system([turn("half a ", gate, "turn"), say("A whole turn.")]) as it:
            agent = await it.launch(thread_id="t", message="Go")
            await gate.reached()
            await agent.freeze()
            gate.open()
            await it.wait_idle()
            assert await story(agent) == []
            await agent.thaw()
            assert await until_told(agent, "says: A whole turn.") == ["user: Go", "says: A whole turn."]
            assert await it.verify("t") == 1

    run(scenario)


def test_a_tool_that_works_when_its_tree_freezes_is_heard_after_it_thaws() -> None:
    done = asyncio.Event()

    @tool
    async def work() -> str:
        """Work."""
        await done.wait()
        return "it works"

    async def scenario() -> None:
        async with system([call("work"), say("Good.")], work) as it:
            agent = await it.launch(thread_id="t", message="Go")
            await until_activity(agent, "waiting")
            await settle()
            await agent.freeze()
            with pytest.raises(NotAtRest, match="work"):
                await it.export("t", io.BytesIO())
            done.set()
            await it.wait_idle()
            assert (await it.export("t", io.BytesIO())).counts["message"] == 1
            await agent.thaw()
            assert (await until_told(agent, "says: Good."))[-2:] == ["result: it works", "says: Good."]

    run(scenario)


# Everything a thread can have


def test_a40_what_was_heard_is_a_duplicate_where_the_thread_went(tmp_path: Path) -> None:
    async def scenario() -> None:
        source = await SqliteStore.open(tmp_path / "agents.db")
        async with system([say("Hello.")], store=source) as here:
            agent = await here.launch(thread_id="t", metadata={"city": "Oslo"})
            await agent.send("Hi", message_id="m1")
            await until_told(agent, "says: Hello.")
        destination = await carried(source)
        await source.close()
        async with system([say("Hello again.")], store=destination) as there:
            agent = await there.thread("t")
            await agent.send("Hi", message_id="m1")
            await there.wait_idle()
            assert await story(agent) == ["user: Hi", "says: Hello."]
            assert await there.verify("t") == 1
            await agent.send("Hi", message_id="m2")
            await until_told(agent, "says: Hello again.")
            assert await there.verify("t") == 2
            assert (await agent.state()).metadata == {"city": "Oslo"}

    run(scenario)


def test_a40_a_sleep_ends_at_the_moment_it_was_set_for() -> None:
    clock = ManualClock()

    async def scenario() -> None:
        source = MemoryStore()
        async with system([call("sleep", seconds=60)], store=source, clock=clock) as here:
            agent = await here.launch(thread_id="t", message="Sleep")
            await until_activity(agent, "resting")
        clock.advance(20 * SECOND)
        destination = await carried(source)
        async with system([say("I am awake.")], store=destination, clock=clock) as there:
            agent = await there.thread("t")
            await pass_time(clock, 39 * SECOND)
            assert (await agent.state()).activity == "resting"
            await pass_time(clock, SECOND)
            told = await until_told(agent, "says: I am awake.")
            assert told[-2:] == ["result: Slept until the time set.", "says: I am awake."]

    run(scenario)


def test_a40_a_subscription_brings_its_next_event_where_the_thread_went() -> None:
    seen: list[tuple[str, int]] = []

    @tool(resumable=True, events="associative")
    async def watch(context: ToolContext) -> AsyncGenerator[str, None]:
        """Watch."""
        seen.append((context.last_event_id, context.last_sequence))
        yield "watching"
        yield f"event {context.last_sequence + 1}"
        await asyncio.Event().wait()

    def answer(request: ModelRequest) -> ScriptedTurn:
        heard = last_result(request)
        return say(f"I heard of {heard}.") if heard else call("watch")

    async def scenario() -> None:
        source = MemoryStore()
        async with system(answer, watch, store=source) as here:
            agent = await here.launch(thread_id="t", message="Watch")
            await until_told(agent, "says: I heard of event 1.")
        destination = await carried(source)
        async with system(answer, watch, store=destination) as there:
            agent = await there.thread("t")
            await until_told(agent, "says: I heard of event 2.")
            assert seen == [("", 0), ("#1", 1)]
            assert [one.tool for one in (await agent.state()).subscriptions] == ["watch"]

    run(scenario)


def test_a40_a_question_is_answered_by_its_id_where_the_thread_went() -> None:
    @tool
    async def deploy(context: ToolContext) -> str:
        """Deploy."""
        return await context.ask("Deploy?", ["yes", "no"])

    async def scenario() -> None:
        source = MemoryStore()
        async with system([call("deploy")], deploy, store=source) as here:
            agent = await here.launch(thread_id="t", message="Deploy")
            while not (questions := await here.questions()):
                await settle()
        destination = await carried(source)
        async with system([say("Deployed.")], deploy, store=destination) as there:
            agent = await there.thread("t")
            assert [one.question_id for one in await there.questions()] == [questions[0].question_id]
            assert await there.answer(questions[0].question_id, "yes") == "yes"
            await until_told(agent, "answered: yes", "says: Deployed.")
            with pytest.raises(AlreadyAnswered):
                await there.answer(questions[0].question_id, "no")

    run(scenario)


def test_a40_a_child_reports_to_its_parent_where_they_went() -> None:
    def answer(request: ModelRequest) -> ScriptedTurn:
        if request.thread_id != "t":
            slept = "Slept" in last_result(request)
            return call("report_to_parent", report="7 apples") if slept else call("sleep", seconds=60)
        heard = last_result(request)
        if "7 apples" in heard:
            return say("There are 7.")
        return say("They are counted.") if heard else call("spawn_thread", instructions="Count", child_of=[])

    clock = ManualClock()

    async def scenario() -> None:
        source = MemoryStore()
        async with system(answer, store=source, clock=clock) as here:
            agent = await here.launch(thread_id="t", message="Count the apples")
            await until_told(agent, "says: They are counted.")
            (child,) = [state.thread_id for state in await agent.tree() if state.parent]
            await until_activity(await here.thread(child), "resting")
            with pytest.raises(MalformedInput, match="moves as a whole"):
                await here.export(child, io.BytesIO())
        destination = await carried(source)
        async with system(answer, store=destination, clock=clock) as there:
            agent = await there.thread("t")
            await pass_time(clock, 61 * SECOND)
            await until_told(agent, "says: There are 7.")
            assert [state.thread_id for state in await agent.tree()] == ["t", child]
            assert await there.verify(child) > 0
            inherited = await (await there.thread(child)).history(inherited=True)
            assert plain_text(inherited[0].content if hasattr(inherited[0], "content") else "") == "Count the apples"

    run(scenario)


def test_a40_a_summary_and_what_is_kept_beside_a_history_are_carried() -> None:
    @tool
    async def read() -> str:
        """Read."""
        return "x" * 200_000

    def answer(request: ModelRequest) -> ScriptedTurn:
        if request.purpose == "summary":
            return say("They talked about a long text.")
        return say(f"You said {last_user_text(request)}.") if last_result(request) else call("read")

    async def scenario() -> None:
        source = MemoryStore()
        async with system(answer, read, store=source) as here:
            agent = await here.launch(thread_id="t", message="Read")
            await until_told(agent, "says: You said Read.")
            for number in range(6):
                await agent.send(f"{number} " + "word " * 400)
                await agent.wait_idle()
            await agent.compact()
            await here.wait_idle()
            summary = (await head_of(agent)).summary
            assert summary is not None
        destination = await carried(source)
        model = ScriptedModel(answer, clock=ManualClock())
        async with system(model, read, store=destination) as there:
            agent = await there.thread("t")
            assert (await head_of(agent)).summary == summary
            await agent.send("Go on")
            await until_told(agent, "user: Go on", "says: You said Go on.")
            shown = model.requests[-1].transcript[0]
            assert HEADING in plain_text(shown.content if hasattr(shown, "content") else "")
            assert await there.verify("t") == len(await agent.receipts())
            long = next(item for item in await agent.history() if isinstance(item, ResultItem))
            part = long.content[0]
            assert isinstance(part, Excerpt)
            assert await destination.read_blob(part.blob) == b"x" * 200_000

    run(scenario)


class Builds:
    """A tool whose calls are answered by whoever has their token."""

    def __init__(self) -> None:
        self.tokens: list[str] = []

        @tool
        async def build(context: ToolContext) -> Deferred:
            """Build."""
            deferred = context.defer()
            self.tokens.append(deferred.token)
            return deferred

        self.build: AnyTool = build


@pytest.mark.parametrize("handed_over", [True, False])
def test_a40_a_callback_that_is_out_finds_the_thread_if_its_secret_went_along(handed_over: bool) -> None:
    builds = Builds()

    async def scenario() -> None:
        source, destination = MemoryStore(), MemoryStore()
        async with system([call("build")], builds.build, store=source) as here:
            agent = await here.launch(thread_id="t", message="Build")
            await until_activity(agent, "waiting")
            await here.wait_idle()
            async with system([say("Built.")], builds.build, store=destination) as there:
                assert await here.migrate("t", there, hand_over_secrets=handed_over) == 1
                with pytest.raises(UnknownThread):
                    await here.thread("t")
                agent = await there.thread("t")
                await agent.resume(tree=True)
                if handed_over:
                    await there.deliver(builds.tokens[0], "green")
                    await until_told(agent, "result: green", "says: Built.")
                else:
                    with pytest.raises(TokenRefused):
                        await there.deliver(builds.tokens[0], "green")

    run(scenario)


def test_calls_that_nobody_can_answer_after_an_import_are_named() -> None:
    builds = Builds()

    async def scenario() -> None:
        source = MemoryStore()
        async with system([call("build")], builds.build, store=source) as here:
            agent = await here.launch(thread_id="t", message="Build")
            await until_activity(agent, "waiting")
            await here.wait_idle()
            await agent.freeze()
            file = io.BytesIO()
            await here.export("t", file)
            assert await source.secret() not in file.getvalue()
            (effect,) = await source.read_effects("t")
            deaf, hearing = MemoryStore(), MemoryStore()
            await hearing.keep_secret(await source.secret())
            for store, unheard in ((deaf, (effect.effect.call_id,)), (hearing, ())):
                file.seek(0)
                async with client(store) as there:
                    assert (await there.import_(file)).unheard == unheard

    run(scenario)


async def test_an_archive_that_says_one_thing_and_holds_another_is_refused() -> None:
    source = MemoryStore()
    async with client(source) as here:
        agent = await here.launch(thread_id="t", message="Hi")
        await agent.freeze()
        file = io.BytesIO()
        await here.export("t", file)
        with pytest.raises(UnknownThread):
            await here.export("nobody", io.BytesIO())
        await here.launch(thread_id="u")
        other = await source.read_head("u")
    file.seek(0)
    archive = read_archive(file)
    first, message, *rest = archive.records
    assert isinstance(first, ThreadRecord)
    assert isinstance(message, MessageRecord)
    assert other is not None
    effect = EffectRecord("r1", "pending", START, "", b"garbled")
    broken: list[list[Record]] = [
        [replace(first, head=other.head), message, *rest],
        [replace(first, version=7), message, *rest],
        [first, replace(message, body=b"garbled"), *rest],
        [first, message, effect, *rest],
        [first, message, replace(effect, state="sent"), *rest],
    ]
    destination = MemoryStore()
    async with client(destination) as there:
        for records in broken:
            with pytest.raises(MalformedInput):
                await there.import_(archive_of(records))
        assert await there.threads() == []
        assert (await there.import_(archive)).threads == 1


def test_a40_what_was_at_work_is_taken_over_as_after_a_crash() -> None:
    begun: list[str] = []

    @tool(idempotent=True)
    async def work() -> str:
        """Work."""
        begun.append("begun")
        if len(begun) == 1:
            await asyncio.Event().wait()
        return "done"

    async def scenario() -> None:
        source = MemoryStore()
        async with system([call("work")], work, store=source) as here:
            agent = await here.launch(thread_id="t", message="Work")
            await until_activity(agent, "waiting")
            await settle()
        destination = await carried(source)
        async with system([say("Good.")], work, store=destination) as there:
            await until_told(await there.thread("t"), "result: done", "says: Good.")
            assert len(begun) == 2

    run(scenario)
