"""The front door: what a program that embeds the runtime sees of it."""

import asyncio
import json
import random
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import pytest

from hibernaut.errors import (
    ConfigurationError,
    MalformedInput,
    StoreBusy,
    ThreadClosed,
    TooLarge,
    UnknownThread,
    VerificationFailed,
)
from hibernaut.kernel.authority import Authority
from hibernaut.kernel.commit import SliceCommit
from hibernaut.kernel.limits import LARGEST_CONTENT, ThreadOptions
from hibernaut.messages.inputs import InputMessage, ToolResult, UserText
from hibernaut.messages.parts import Text
from hibernaut.models.protocol import ModelRequest
from hibernaut.models.scripted import ScriptedModel, ScriptedTurn, call, last_result, last_user_text, say, turn
from hibernaut.models.source import Models
from hibernaut.stores.memory import MemoryStore
from hibernaut.stores.protocol import Claim, LogRow, Outcome, Owner, Store
from hibernaut.stores.sqlite import SqliteStore
from hibernaut.system import AgentSystem
from hibernaut.testing.clock import ManualClock
from hibernaut.testing.faults import FaultyStore
from hibernaut.testing.gates import Gate
from hibernaut.tools.context import Deferred, ToolContext
from hibernaut.tools.tool import tool
from tests.engine.scenario import (
    MINUTE,
    FailingStore,
    pass_time,
    run,
    story,
    system,
    until_activity,
    until_told,
)

T = TypeVar("T")


@tool
async def work() -> str:
    """Work."""
    return "done"


# What a thread is launched with


@pytest.mark.parametrize("kind", ["memory", "sqlite"])
def test_what_a_thread_was_launched_with_survives_restarts(kind: str, tmp_path: Path) -> None:
    seen: list[tuple[str, str, dict[str, Any]]] = []
    clock = ManualClock()

    @tool
    async def whoami(context: ToolContext) -> str:
        """Say who you are."""
        seen.append((context.tenant, context.user, context.metadata))
        return "somebody"

    def answer(request: ModelRequest) -> ScriptedTurn:
        return say(f"{request.model}: {request.instructions}") if last_result(request) else call("whoami")

    script = ScriptedModel(answer, clock=clock)
    models = Models({"large": script, "small": ScriptedModel([])})
    options = ThreadOptions(parallel_calls=7)

    async def scenario() -> None:
        store = MemoryStore() if kind == "memory" else await SqliteStore.open(tmp_path / "agents.db")
        defaults: dict[str, Any] = {"models": models, "store": store, "tenant": "acme", "clock": clock}
        defaults["tools"] = [whoami, work]
        async with AgentSystem(model="small", **defaults) as it:
            agent = await it.launch(
                "You are old.",
                thread_id="t",
                model="large",
                tools=["whoami"],
                options=options,
                user="anna",
                metadata={"token": "secret"},
            )
        async with AgentSystem(model="small", instructions="You are new.", **defaults) as it:
            agent = await it.thread("t")
            await agent.send("Hello")
            await until_told(agent, "says: large: You are old.")
            assert seen == [("acme", "anna", {"token": "secret"})]
            names = [spec.name for spec in script.requests[0].tools]
            assert names[0] == "whoami"
            assert "work" not in names
            state = await agent.state()
            assert (state.tenant, state.metadata) == ("acme", {"token": "secret"})
        await store.close()

    run(scenario)


def test_a_thread_may_use_only_what_its_authority_allows() -> None:
    ran: list[str] = []

    @tool
    async def read_file() -> str:
        """Read."""
        ran.append("read")
        return "read"

    @tool
    async def write_file() -> str:
        """Write."""
        ran.append("write")
        return "written"

    async def scenario() -> None:
        async with system([call("write_file"), call("read_file"), say("Read.")], read_file, write_file) as it:
            agent = await it.launch(authority=Authority(tools=("read_*",)))
            await agent.send("Try")
            told = await until_told(agent, "result: read", "says: Read.")
            assert told[2].startswith("error: Not run: this thread may not use write_file.")
            assert ran == ["read"]

    run(scenario)


def test_a_name_that_does_not_exist_is_refused_before_anything_is_stored() -> None:
    async def scenario() -> None:
        async with AgentSystem(model="small", models=Models({"small": ScriptedModel([])}), tools=[work]) as it:
            with pytest.raises(ConfigurationError, match="no tool is called 'wrok'; there are: work"):
                await it.launch(tools=["wrok"])
            with pytest.raises(ConfigurationError, match="huge"):
                await it.launch(model="huge")
            assert await it.threads() == []
        with pytest.raises(ConfigurationError, match="two tools are called 'work'"):
            system([], work, tool(_other, name="work"))
        with pytest.raises(ConfigurationError, match="the system is not open"):
            await system([]).launch()

    run(scenario)


async def _other() -> str:
    """Do something else."""
    return ""


def test_launching_the_same_thread_twice_returns_it_as_it_is() -> None:
    async def scenario() -> None:
        async with system("Hello.") as it:
            await it.launch("First.", thread_id="t", metadata={"n": 1})
            agent = await it.launch("Second.", thread_id="t", metadata={"n": 2})
            assert (await agent.state()).metadata == {"n": 1}
            assert len(await it.threads()) == 1

    run(scenario)


# Tenants


def test_nothing_of_one_tenant_can_be_reached_by_another() -> None:
    store, clock = MemoryStore(), ManualClock()

    async def scenario() -> None:
        async with (
            system(lambda _: say("Hello."), store=store, clock=clock, tenant="acme") as acme,
            system(lambda _: say("Hello."), store=store, clock=clock, tenant="other", run=False) as other,
        ):
            agent = await acme.launch(thread_id="t")
            await agent.send("Hello")
            await agent.wait_idle()
            version = (await agent.state()).version
            assert [state.thread_id for state in await acme.threads()] == ["t"]
            assert await other.threads() == []
            for attempt in (
                lambda: other.thread("t"),
                lambda: other.send("t", "Hello"),
                lambda: other.launch(thread_id="t", message="Hello"),
                lambda: other.launch(thread_id="t"),
                lambda: other.verify("t"),
            ):
                with pytest.raises(UnknownThread):
                    await attempt()
            for content in (UserText("Hello"), ToolResult("call_1", "forged")):
                result = await other.step([InputMessage("m", "t", content, "test")])
                assert result.outcomes == (Outcome.UNKNOWN,)
            assert await store.read_inbox("t") == ()
            await acme.wait_idle()
            assert (await agent.state()).version == version

    run(scenario)


class Confidants:
    """Tools and a model that notice when they are shown what belongs to another thread."""

    def __init__(self, chance: random.Random) -> None:
        self.crossed: list[str] = []
        self.tokens: dict[str, str] = {}

        @tool
        async def use(name: str, context: ToolContext) -> str:
            """Use the token."""
            for _ in range(chance.randrange(10)):
                await asyncio.sleep(0)
            seen = [context.thread_id, context.user, context.metadata]
            self._check([name, f"user of {name}", {"token": f"token of {name}"}], seen)
            context.metadata["token"] = "spoilt"
            return f"used by {name}"

        @tool
        async def ask(name: str, context: ToolContext) -> Deferred:
            """Ask somebody outside."""
            deferred = context.defer()
            self.tokens[name] = deferred.token
            return deferred

        self.tools = (use, ask)

    def answer(self, request: ModelRequest) -> ScriptedTurn:
        name = request.thread_id
        self._check(f"Go, {name}", last_user_text(request))
        if len(request.transcript) == 1:
            return turn(call("use", name=name), call("use", name=name))
        if len(request.transcript) == 5:
            self._check(f"used by {name}", last_result(request))
            return call("ask", name=name)
        self._check(f"delivered to {name}", last_result(request))
        return say(f"{name} is done.")

    def _check(self, expected: object, seen: object) -> None:
        if seen != expected:
            self.crossed.append(f"{expected}: {seen}")


def test_c34_a_hundred_interleaved_threads_see_each_only_what_is_theirs() -> None:
    chance = random.Random(34)
    confidants = Confidants(chance)
    names = [f"t{number:03}" for number in range(100)]

    async def scenario() -> None:
        options = ThreadOptions(parallel_calls=2)
        async with system(confidants.answer, *confidants.tools, options=options, max_slices=20) as it:
            agents = [
                await it.launch(thread_id=name, user=f"user of {name}", metadata={"token": f"token of {name}"})
                for name in names
            ]
            for agent in chance.sample(agents, 100):
                await agent.send(f"Go, {agent.thread_id}")
            await it.wait_idle()
            for name in chance.sample(names, 100):
                await it.deliver(confidants.tokens[name], f"delivered to {name}")
            for agent in agents:
                told = await until_told(agent, f"says: {agent.thread_id} is done.")
                assert len(told) == 8
            assert confidants.crossed == []

    run(scenario)


# What is refused


def test_what_cannot_be_said_is_refused_and_changes_nothing() -> None:
    async def scenario() -> None:
        async with system("Hello.") as it:
            agent = await it.launch()
            for blank in ("", " \n\t ", (Text(" "),), ()):
                with pytest.raises(MalformedInput, match="the text is blank"):
                    await agent.send(blank)
            with pytest.raises(TooLarge):
                await agent.send("x" * (LARGEST_CONTENT + 1))
            with pytest.raises(UnknownThread):
                await it.thread("nobody")
            assert await it.store.read_inbox(agent.thread_id) == ()
            assert (await agent.state()).version == 0

    run(scenario)


def test_a_closed_thread_takes_nothing_more_and_says_so() -> None:
    async def scenario() -> None:
        async with system("Hello.") as it:
            agent = await it.launch(thread_id="t")
            await agent.close("done")
            state = await agent.wait_idle()
            assert (state.status, state.reason) == ("closed", "done")
            for attempt in (
                lambda: agent.send("Hello?"),
                lambda: it.send("t", "Hello?"),
                lambda: it.launch(thread_id="t", message="Hello?"),
                agent.resume,
            ):
                with pytest.raises(ThreadClosed):
                    await attempt()
            assert (await story(agent)) == ["notice: closed done"]

    run(scenario)


def test_a_stopped_thread_holds_what_comes_until_somebody_speaks() -> None:
    model = ScriptedModel(["All of it."])

    async def scenario() -> None:
        async with system(model) as it:
            agent = await it.launch()
            await agent.stop("pause")
            await agent.wait_idle()
            stray = InputMessage("r", agent.thread_id, ToolResult("call_1", "late"), "test")
            assert await it.store.put([stray], it.clock.now()) == [Outcome.HELD]
            await it.wait_idle()
            state = await agent.state()
            assert (state.status, state.activity, state.waiting) == ("stopped", "idle", 1)
            await agent.send("Go on")
            await until_told(agent, "notice: stopped pause", "user: Go on", "says: All of it.")
            assert (await agent.state()).waiting == 0

    run(scenario)


def test_the_same_message_id_twice_is_one_message() -> None:
    model = ScriptedModel(["Hello."])

    async def scenario() -> None:
        async with system(model) as it:
            agent = await it.launch()
            assert await agent.send("Hello", message_id="m1") == "m1"
            assert await agent.send("Hello", message_id="m1") == "m1"
            await agent.wait_idle()
            await agent.send("Something else", message_id="m1")
            await it.wait_idle()
            assert await story(agent) == ["user: Hello", "says: Hello."]

    run(scenario)


def test_a_receipt_or_a_page_that_was_changed_is_found() -> None:
    store = Forged(MemoryStore())

    async def scenario() -> None:
        async with system([call("set_title", title="T"), say("Hello.")], store=store) as it:
            agent = await it.launch()
            await agent.send("Hello")
            await agent.wait_idle()
            assert await it.verify(agent.thread_id) == 2
            rows = await store.read_log(agent.thread_id)
            store.log = [rows[0], LogRow(2, rows[1].page.replace(b"Hello.", b"Jello."), rows[1].receipt)]
            with pytest.raises(VerificationFailed, match="the history at version 2 is not the one its receipt names"):
                await it.verify(agent.thread_id)
            store.log = rows[:1]
            with pytest.raises(VerificationFailed):
                await it.verify(agent.thread_id)

    run(scenario)


class Forged(FaultyStore):
    log: list[LogRow] | None = None

    async def read_log(self, thread_id: str, after: int = 0, limit: int = 0) -> list[LogRow]:
        return await super().read_log(thread_id, after, limit) if self.log is None else self.log


# Its life


def test_what_a_program_raises_inside_leaves_as_it_is() -> None:
    async def scenario() -> None:
        with pytest.raises(LookupError, match="mine"):
            async with system("Hello."):
                raise LookupError("mine")

    run(scenario)


@pytest.mark.parametrize("operation", ["beat", "adopt_effects"])
def test_a_system_that_cannot_start_says_why(operation: str) -> None:
    store = FailingStore(MemoryStore())
    store.failures[operation] = StoreBusy("busy")

    async def scenario() -> None:
        with pytest.raises(StoreBusy, match="busy"):
            async with system("Hello.", store=store):
                raise AssertionError("it started")
        async with system("Hello.", store=store) as it:
            await (await it.launch()).send("Hello")

    run(scenario)


def test_a_client_speaks_into_a_stream_of_another_process_and_is_heard(tmp_path: Path) -> None:
    gate, file = Gate(), tmp_path / "agents.db"
    model = ScriptedModel([turn("I was about to ", gate), say("Yes?")])

    async def scenario() -> None:
        async with AgentSystem(model=model, store=file) as it, AgentSystem(store=file, run=False) as client:
            agent = await client.launch(thread_id="t")
            await agent.send("Tell me")
            await gate.reached()
            await agent.send("Wait")
            await until_told(agent, "says: I was about to  [interrupted]", "user: Wait", "says: Yes?")
            await it.wait_idle()  # the client may see a commit before the engine that made it goes on
            assert it.completions == 1

    run(scenario)


def test_a_client_cancels_a_tool_of_another_process(tmp_path: Path) -> None:
    begun, ended, file = asyncio.Event(), asyncio.Event(), tmp_path / "agents.db"

    @tool
    async def hang() -> str:
        """Hang."""
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()
        return "never"

    async def scenario() -> None:
        model = ScriptedModel([call("hang"), say("I see.")])
        async with AgentSystem(model=model, tools=[hang], store=file), AgentSystem(store=file, run=False) as client:
            agent = await client.launch(thread_id="t")
            await agent.send("Go")
            await begun.wait()
            (running,) = (await agent.state()).calls
            await agent.cancel(running.call_id)
            await ended.wait()
            await until_told(agent, "says: I see.")

    run(scenario)


# Cost follows what is new


class Measured(FaultyStore):
    """A store that counts what it is asked for and what goes in and out."""

    def __init__(self, inner: Store) -> None:
        super().__init__(inner)
        self.asked: list[str] = []
        self.read = 0
        self.written = 0

    def begin(self) -> None:
        self.asked, self.read, self.written = [], 0, 0

    async def _perform(self, name: str, operation: Callable[[], Awaitable[T]]) -> T:
        self.asked.append(name)
        return await super()._perform(name, operation)

    async def claim(
        self, owner: Owner, now: int, limit: int, *, threads: Sequence[str] | None = None, tenant: str | None = None
    ) -> list[Claim]:
        claims = await super().claim(owner, now, limit, threads=threads, tenant=tenant)
        self.read += sum(len(claim.head) for claim in claims)
        return claims

    async def read_log(self, thread_id: str, after: int = 0, limit: int = 0) -> list[LogRow]:
        rows = await super().read_log(thread_id, after, limit)
        self.read += sum(len(row.page) + len(row.receipt) for row in rows)
        return rows

    async def commit(self, claim: Claim, commit: SliceCommit, *, keep: bool = False) -> None:
        await super().commit(claim, commit, keep=keep)
        self.written += len(commit.head) + len(commit.page) + len(commit.receipt)


class Cost:
    """What one thing that happened to a thread cost."""

    def __init__(self, store: Measured) -> None:
        self.asked = sorted(store.asked)
        self.read, self.written = store.read, store.written


def test_a31_c24_a_slice_of_a_thread_with_ten_thousand_items_costs_what_one_of_a_new_thread_costs() -> None:
    store, clock = Measured(MemoryStore()), ManualClock()

    def answer(request: ModelRequest) -> ScriptedTurn:
        said = last_user_text(request)
        if said == "Ask two":
            return turn(call("ask"), call("ask"))
        return call("work") if said == "Work" and not last_result(request).startswith("done") else say("Fine.")

    @tool
    async def ask(context: ToolContext) -> Deferred:
        """Ask somebody outside."""
        return context.defer()

    model = ScriptedModel(answer, clock=clock, record=False, check=False)

    async def costs(it: AgentSystem, name: str) -> list[Cost]:
        agent = await it.thread(name)
        found = []
        await agent.send("Wake up")
        await it.wait_idle()
        for said in ("Say something", "Work"):  # the transcript is at hand
            store.begin()
            await it.store.put([InputMessage(f"{said} now", name, UserText(said), "test")], clock.now())
            await it.wait_idle()
            found.append(Cost(store))
        await agent.send("Ask two")
        await until_activity(agent, "waiting")
        await pass_time(clock, MINUTE)  # the transcript is forgotten
        first, _ = (await agent.state()).calls
        store.begin()
        await store.put([InputMessage("r1", name, ToolResult(first.call_id, "yes"), "test")], clock.now())
        await it.wait_idle()
        found.append(Cost(store))
        return found

    async def scenario() -> None:
        options = ThreadOptions(parallel_calls=2)
        async with system(model, ask, work, store=store, clock=clock, options=options) as it:
            for name, slices in (("young", 1), ("old", 40)):
                for number in range(slices):
                    texts = [InputMessage(f"m{number}.{n}", name, UserText(f"Line {n}"), "test") for n in range(250)]
                    await it.launch(thread_id=name)
                    await store.put(texts, clock.now())
                    await it.wait_idle()
            assert (await (await it.thread("old")).state()).items == 10_040
            young, old = await costs(it, "young"), await costs(it, "old")
            for one, other in zip(young, old, strict=True):
                assert other.asked == one.asked
                assert abs(other.read - one.read) < 64
                assert abs(other.written - one.written) < 64
            assert "read_log" not in old[2].asked
            assert old[2].read < 2_000

    run(scenario)


def test_an_event_that_is_sent_twice_under_its_id_is_one_message() -> None:
    def event(**more: object) -> str:
        origin = {"type": "subscription_event", "tool_call_id": "call_a"} | more
        content = {"type": "toolresult", "id": "x", "content": [{"type": "text", "text": "news"}]}
        return json.dumps({"content": content, "group_id": "t", "synthetic": origin})

    async def scenario() -> None:
        async with system([say("Hello.")], run=False) as it:
            await it.step(['{"content": {"type": "text", "text": "Hello"}, "group_id": "t"}'])
            same = event(event_id="e1", sequence=7)
            assert (await it.step([same, same])).outcomes == (Outcome.ACCEPTED, Outcome.DUPLICATE)
            assert (await it.step([same, event(event_id="e2")])).outcomes == (Outcome.DUPLICATE, Outcome.ACCEPTED)
            assert (await it.step([event(), event()])).outcomes == (Outcome.ACCEPTED, Outcome.ACCEPTED)
            for bad in ({"event_id": 5}, {"sequence": "7"}, {"sequence": -1}):
                with pytest.raises(MalformedInput):
                    await it.step([event(**bad)])

    run(scenario)
