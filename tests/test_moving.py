"""Conversations that move: everything a thread has goes on where it went, and nothing is lost on the way."""

import asyncio
import io
from collections.abc import AsyncGenerator, Awaitable, Callable
from pathlib import Path

import pytest
from msgspec.structs import replace

from hibernaut.errors import (
    AlreadyAnswered,
    ConfigurationError,
    MalformedInput,
    MoveUnfinished,
    NotAtRest,
    ServersNotMoved,
    StoreBusy,
    ThreadExists,
    TokenRefused,
    UnknownThread,
)
from hibernaut.kernel.compaction import HEADING
from hibernaut.messages.inputs import InputMessage, UserText
from hibernaut.messages.items import ResultItem
from hibernaut.messages.parts import Excerpt, plain_text
from hibernaut.models.protocol import ModelRequest
from hibernaut.models.scripted import ScriptedModel, ScriptedTurn, call, last_result, last_user_text, say, turn
from hibernaut.moving import Move
from hibernaut.stores.archive import EffectRecord, MessageRecord, Record, ThreadRecord
from hibernaut.stores.archive_file import archive_of, read_archive
from hibernaut.stores.memory import MemoryStore
from hibernaut.stores.protocol import Store
from hibernaut.stores.sqlite import SqliteStore
from hibernaut.system import AgentSystem
from hibernaut.testing.clock import ManualClock
from hibernaut.testing.faults import FaultPlan, FaultyStore, SimulatedCrash
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
    ANNA,
    BERT,
    START,
    after,
    claim_one,
    everything,
    invoke,
    new_thread,
    result,
    timer,
    user,
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


# Moving from store to store


async def a_conversation(store: Store) -> None:
    """Make a tree at rest: a root that waits for a server and has a timer, and a child with something in its inbox."""
    child = replace(new_thread("child", body=b""), config=new_thread().config, parent="t", root="t")
    await store.create([new_thread()], [user("m1")], START)
    claim = await claim_one(store)
    remote = replace(invoke("r1"), local=False)
    await store.commit(claim, after(claim, spawned=(child,), effects=(remote, invoke("r2"))))
    await store.start_effects(ANNA, ["r1", "r2"])
    await store.accept_effects(["r1", "r2"])
    await store.put([timer("alarm")], START, due=START + 9_000)
    await store.put([result("m2", "child")], START)


class Servers:
    """Tool servers that move their state, refuse to, or do something first."""

    def __init__(self, *refusing: str, first: Callable[[], Awaitable[object]] | None = None) -> None:
        self.asked: list[tuple[str, str, str]] = []
        self.refusing = set(refusing)
        self.first = first

    async def migrate(self, server: str, session_id: str, destination_url: str) -> None:
        self.asked.append((server, session_id, destination_url))
        if self.first is not None:
            await self.first()
        if server in self.refusing:
            raise ConnectionRefusedError(f"{server} is full")


URLS = {"files": "http://there/files", "shell": "http://there/shell"}


def move(source: Store, destination: Store, servers: Servers | None = None, root: str = "t") -> Move:
    return Move(
        source,
        destination,
        ManualClock(),
        root,
        servers=servers,
        urls=URLS if servers else {},
        reissue=lambda effect: effect.tool == "look_up",
    )


async def is_all_there(store: Store) -> bool:
    """Tell whether a store has the whole conversation, and all of it frozen."""
    rows = await store.read_tree("t")
    inboxes = [message.message_id for row in rows for message in await store.read_inbox(row.thread_id)]
    effects = [(row.effect.request_id, row.state) for row in await store.read_effects()]
    return (
        [(row.thread_id, row.frozen) for row in rows] == [("t", True), ("child", True)]
        and inboxes[:2] == ["alarm", "m2"]
        and effects in ([("r1", "pending"), ("r2", "accepted")], [("r1", "accepted"), ("r2", "accepted")])
    )


def test_a40_servers_move_first_and_then_the_conversation() -> None:
    async def scenario() -> None:
        source, destination, held = MemoryStore(), MemoryStore(), []

        async def look() -> None:
            held.append((await is_all_there(source), await destination.read_tree("t")))

        servers = Servers(first=look)
        await a_conversation(source)
        assert await move(source, destination, servers).run() == 2
        assert sorted(servers.asked) == [("files", "t", URLS["files"]), ("shell", "t", URLS["shell"])]
        assert held == [(True, [])] * 2
        assert await source.list_threads() == []
        assert await is_all_there(destination)

    run(scenario)


def test_a40_calls_of_servers_are_sent_anew_and_no_others() -> None:
    async def scenario() -> None:
        source, destination = MemoryStore(), MemoryStore()
        await a_conversation(source)
        await move(source, destination).run()
        await destination.thaw("t")
        adopted = await destination.adopt_effects(BERT, START, 10)
        assert [(row.effect.request_id, row.state, row.effect.local) for row in adopted] == [("r1", "pending", False)]

    run(scenario)


def test_a_conversation_with_a_tool_at_work_does_not_move_and_goes_on() -> None:
    done = asyncio.Event()

    @tool
    async def work() -> str:
        """Work."""
        await done.wait()
        return "it works"

    async def scenario() -> None:
        async with system([call("work"), say("Good.")], work) as here:
            agent = await here.launch(thread_id="t", message="Go")
            await until_activity(agent, "waiting")
            await settle()
            servers = Servers()
            with pytest.raises(NotAtRest, match="work"):
                await here.migrate("t", MemoryStore(), servers=servers, urls=URLS)
            assert servers.asked == []
            assert not (await agent.state()).frozen
            done.set()
            await until_told(agent, "result: it works", "says: Good.")

    run(scenario)


def test_a40_if_servers_refuse_the_conversation_goes_on_where_it_was() -> None:
    async def scenario() -> None:
        source, destination = MemoryStore(), MemoryStore()
        await a_conversation(source)
        before = await everything(source)
        with pytest.raises(ServersNotMoved, match="shell: shell is full") as caught:
            await move(source, destination, Servers("shell")).run()
        assert (list(caught.value.failures), caught.value.moved) == (["shell"], ("files",))
        assert "These have moved it already: files" in str(caught.value)
        with pytest.raises(ServersNotMoved) as caught:
            await move(source, destination, Servers("shell", "files")).run()
        assert (list(caught.value.failures), caught.value.moved) == (["files", "shell"], ())
        assert await everything(source) == before
        assert await destination.list_threads() == []

    run(scenario)


def test_a40_if_the_destination_does_not_take_it_the_conversation_goes_on_where_it_was() -> None:
    async def scenario() -> None:
        source, inner = MemoryStore(), MemoryStore()
        await a_conversation(source)
        before = await everything(source)
        probe = FaultyStore(inner)
        await move(source, probe).run()
        number = probe.operations.index("import_tree") + 1
        await move(inner, source).run()
        await source.thaw("t")
        before["effects"] = await source.read_effects()
        failing = FaultyStore(inner, FaultPlan(fail_at={number: StoreBusy("busy")}))
        with pytest.raises(StoreBusy):
            await move(source, failing).run()
        assert await everything(source) == before
        assert await inner.list_threads() == []

    run(scenario)


def test_a_move_that_is_cancelled_leaves_everything_as_it_was() -> None:
    async def scenario() -> None:
        source, destination, reached = MemoryStore(), MemoryStore(), asyncio.Event()

        async def hang() -> None:
            reached.set()
            await asyncio.Event().wait()

        await a_conversation(source)
        before = await everything(source)
        moving = asyncio.create_task(move(source, destination, Servers(first=hang)).run())
        await reached.wait()
        moving.cancel()
        with pytest.raises(asyncio.CancelledError):
            await moving
        assert await everything(source) == before
        assert await destination.list_threads() == []

    run(scenario)


def test_a_tree_that_was_frozen_before_a_move_that_failed_stays_so() -> None:
    async def scenario() -> None:
        source = MemoryStore()
        await a_conversation(source)
        await source.freeze("t")
        with pytest.raises(ServersNotMoved):
            await move(source, MemoryStore(), Servers("shell")).run()
        assert await is_all_there(source)

    run(scenario)


def test_servers_without_a_place_to_move_to_are_named_before_anything_is_done() -> None:
    async def scenario() -> None:
        source, destination, servers = MemoryStore(), MemoryStore(), Servers()
        await a_conversation(source)
        before = await everything(source)
        with pytest.raises(ConfigurationError, match="shell"):
            await Move(source, destination, ManualClock(), "t", servers=servers, urls={"shell": ""}).run()
        with pytest.raises(ConfigurationError, match="files, shell"):
            await Move(source, destination, ManualClock(), "t", urls=URLS).run()
        assert await everything(source) == before
        assert servers.asked == []

    run(scenario)


async def test_a_thread_is_not_moved_to_where_it_is(tmp_path: Path) -> None:
    source = await SqliteStore.open(tmp_path / "agents.db")
    again = await SqliteStore.open(tmp_path / "agents.db")
    await a_conversation(source)
    before = await everything(source)
    for destination in (source, again):
        with pytest.raises(ConfigurationError, match="the store that the thread is in"):
            await move(source, destination).run()
    async with client(source) as here:
        other = AgentSystem(store=MemoryStore(), run=False, tenant="x")
        with pytest.raises(ConfigurationError, match="its tenant"):
            await here.migrate("t", other)
    assert await everything(source) == before
    await again.close()
    await source.close()


async def test_of_two_moves_to_two_places_one_says_that_it_is_not_alone() -> None:
    source, one, other = MemoryStore(), MemoryStore(), MemoryStore()

    async def move_too() -> None:
        await move(source, other).run()

    class Slow(FaultyStore):
        async def delete(self, root: str, *, unchanged: bytes = b"") -> int:
            await move_too()
            return await super().delete(root, unchanged=unchanged)

    await a_conversation(source)
    with pytest.raises(MoveUnfinished, match="one place only"):
        await move(Slow(source), one).run()
    assert [await is_all_there(store) for store in (one, other)] == [True, True]


async def test_a_tree_that_cannot_be_set_going_again_is_said_to_be_frozen() -> None:
    source, destination = MemoryStore(), MemoryStore()
    await a_conversation(source)
    probe = FaultyStore(source)
    with pytest.raises(ServersNotMoved):
        await move(probe, destination, Servers("shell")).run()
    plan = FaultPlan(fail_at={probe.operations.index("thaw") + 1: StoreBusy("busy")})
    with pytest.raises(MoveUnfinished, match="busy"):
        await move(FaultyStore(source, plan), destination, Servers("shell")).run()
    assert await is_all_there(source)
    assert await move(source, destination, Servers()).run() == 2


@pytest.mark.parametrize("name", ["t", "child"])
def test_a_thread_that_the_destination_has_is_left_alone_and_no_server_moves(name: str) -> None:
    async def scenario() -> None:
        source, destination, servers = MemoryStore(), MemoryStore(), Servers()
        await a_conversation(source)
        await destination.create([new_thread(name)], [user("m", name)], START)
        before = await everything(source), await everything(destination)
        with pytest.raises(ThreadExists, match=name):
            await move(source, destination, servers).run()
        assert (await everything(source), await everything(destination)) == before
        assert servers.asked == []

    run(scenario)


def test_a40_what_comes_while_servers_move_goes_along() -> None:
    async def scenario() -> None:
        source, destination = MemoryStore(), MemoryStore()

        async def call_back() -> None:
            await source.put([result("late")], START + 1)

        await a_conversation(source)
        await move(source, destination, Servers(first=call_back)).run()
        assert [one.message_id for one in await destination.read_inbox("t")] == ["alarm", "late"]

    run(scenario)


def test_a40_what_comes_after_the_copy_was_made_is_brought_along() -> None:
    late = InputMessage("late", "child", UserText("Wait"))

    class Chatty(FaultyStore):
        async def delete(self, root: str, *, unchanged: bytes = b"") -> int:
            if self.operations.count("delete") < 2:
                name = f"late {self.operations.count('delete')}"
                await self.put([replace(late, message_id=name)], START + 5, due=START + 7)
            return await super().delete(root, unchanged=unchanged)

    async def scenario() -> None:
        source, destination = MemoryStore(), MemoryStore()
        await a_conversation(source)
        assert await move(Chatty(source), destination).run() == 2
        inbox = await destination.read_inbox("child")
        assert [(one.message_id, one.accepted, one.due) for one in inbox[1:]] == [
            ("late 0", START + 5, START + 7),
            ("late 1", START + 5, START + 7),
        ]
        assert await source.list_threads() == []

    run(scenario)


def test_a_tree_that_is_thawed_while_it_moves_goes_on_where_it_was() -> None:
    class Thawing(FaultyStore):
        async def delete(self, root: str, *, unchanged: bytes = b"") -> int:
            await self.thaw(root)
            return await super().delete(root, unchanged=unchanged)

    async def scenario() -> None:
        source, destination = MemoryStore(), MemoryStore()
        await a_conversation(source)
        before = await everything(source)
        with pytest.raises(NotAtRest):
            await move(Thawing(source), destination).run()
        assert await everything(source) == before
        assert await destination.list_threads() == []

    run(scenario)


def test_a_source_that_cannot_be_cleaned_is_said_to_be_there_still() -> None:
    async def scenario() -> None:
        source, destination = MemoryStore(), MemoryStore()
        await a_conversation(source)
        probe = FaultyStore(source)
        await move(probe, destination).run()
        source, destination = MemoryStore(), MemoryStore()
        await a_conversation(source)
        plan = FaultPlan(fail_at={probe.operations.index("delete") + 1: StoreBusy("busy")})
        with pytest.raises(MoveUnfinished, match="busy"):
            await move(FaultyStore(source, plan), destination).run()
        assert await is_all_there(source)
        assert await is_all_there(destination)
        servers = Servers("shell")
        assert await move(source, destination, servers).run() == 2
        assert servers.asked == []
        assert await source.list_threads() == []

    run(scenario)


@pytest.mark.parametrize("after_it", [False, True])
@pytest.mark.parametrize("side", ["source", "destination"])
def test_a40_a_crash_at_any_step_loses_nothing_and_the_move_can_be_made_again(side: str, after_it: bool) -> None:
    async def attempt(crash_at: int) -> bool:
        """Die at an operation of one side, and move again; False when the move made fewer operations."""
        source, destination = MemoryStore(), MemoryStore()
        await a_conversation(source)
        plan = FaultPlan(crash_at=crash_at, after=after_it)
        here = FaultyStore(source, plan if side == "source" else None)
        there = FaultyStore(destination, plan if side == "destination" else None)
        servers = Servers()
        try:
            await move(here, there, servers).run()
        except SimulatedCrash:
            died = True
        else:
            died = False
        assert await is_all_there(source) or await is_all_there(destination) or crash_at == 1
        left = await source.read_tree("t")
        if left:
            await source.put([result("late", "child")], START + 2)
            assert await move(source, destination, servers).run() == 2
        assert await source.list_threads() == []
        assert await is_all_there(destination)
        inbox = [one.message_id for one in await destination.read_inbox("child")]
        assert inbox == (["m2", "late"] if left else ["m2"])
        return died

    async def scenario() -> None:
        number = 1
        while await attempt(number):
            number += 1
        assert number > 4

    run(scenario)
