"""Several engines on one store: each thread has one, and what is cancelled ends wherever it runs."""

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable
from io import BytesIO
from pathlib import Path
from typing import TypeVar

import pytest

from hibernaut.engine.transcripts import Transcripts
from hibernaut.errors import StoreBusy
from hibernaut.kernel.head import decode_head
from hibernaut.messages.inputs import InputMessage, ToolResult, UserText
from hibernaut.messages.items import UserItem
from hibernaut.models.protocol import ModelRequest
from hibernaut.models.scripted import ScriptedModel, ScriptedTurn, call, last_user_text, say, turn
from hibernaut.stores.memory import MemoryStore
from hibernaut.stores.protocol import DEAD_AFTER, Store
from hibernaut.system import AgentSystem
from hibernaut.testing.clock import ManualClock
from hibernaut.testing.faults import FaultyStore
from hibernaut.testing.gates import Gate
from hibernaut.tools.tool import tool
from tests.engine.scenario import SECOND, MortalStore, killed, pass_time, run, settle, system, until_told

T = TypeVar("T")


def test_two_engines_on_one_store_share_the_threads_and_never_the_same_one() -> None:
    store, clock = MemoryStore(), ManualClock()
    under_way: dict[str, int] = defaultdict(int)
    handled: list[str] = []

    async def answer(request: ModelRequest) -> ScriptedTurn:
        under_way[request.thread_id] += 1
        assert under_way[request.thread_id] == 1
        for _ in range(3):
            await asyncio.sleep(0)
        under_way[request.thread_id] -= 1
        handled.append(last_user_text(request))
        return say("Yes.")

    async def scenario() -> None:
        async with (
            system(answer, store=store, clock=clock, max_slices=3) as one,
            system(answer, store=store, clock=clock, max_slices=3) as two,
        ):
            for round_ in range(5):
                for number in range(20):
                    await (one, two)[number % 2].send(f"t{number}", f"{number}.{round_}")
                while await _busy(store):
                    await settle()
            assert one.completions > 10
            assert two.completions > 10
            assert sorted(handled) == sorted(f"{number}.{round_}" for number in range(20) for round_ in range(5))

    run(scenario)


async def _busy(store: Store) -> bool:
    return any([await store.read_inbox(row.thread_id) for row in await store.list_threads()])


class FarStore(FaultyStore):
    """A store that can be cut off from its engine."""

    cut_off = False

    async def _perform(self, name: str, operation: Callable[[], Awaitable[T]]) -> T:
        if self.cut_off:
            raise StoreBusy("the store cannot be reached")
        return await super()._perform(name, operation)


def test_an_engine_that_was_taken_for_dead_writes_nothing_and_goes_on_working() -> None:
    """It could not reach the store. Another has run its thread meanwhile, and then it gets the same thread again."""
    store, clock, gate = MemoryStore(), ManualClock(), Gate()
    far = FarStore(store)
    first = ScriptedModel([turn("I was about to ", gate, "say something stale."), say("Third.")], clock=clock)

    async def scenario() -> None:
        async with system(first, store=far, clock=clock) as it:
            agent = await it.launch(thread_id="t")
            await agent.send("One")
            await gate.reached()
            far.cut_off = True
            async with system(say("First."), store=store, clock=clock, max_slices=1) as other:
                await pass_time(clock, DEAD_AFTER)
                await until_told(await other.thread("t"), "user: One", "says: First.")
            far.cut_off = False
            await store.put([InputMessage("stray", "t", ToolResult("call_nobody", "made"))], clock.now())
            await pass_time(clock, 5 * SECOND)
            assert await store.read_inbox("t") == ()
            gate.open()
            await settle()
            await agent.send("Three")
            told = await until_told(agent, "user: Three", "says: Third.")
            assert told == ["user: One", "says: First.", "user: Three", "says: Third."]
            assert await it.verify("t") > 0

    run(scenario)


def test_a_call_that_another_engine_cancelled_is_cancelled_where_it_runs(tmp_path: Path) -> None:
    """The engine that runs the tool has no slot free, so the other one takes the order."""
    file, gate, begun, ended = tmp_path / "agents.db", Gate(), asyncio.Event(), asyncio.Event()

    @tool
    async def hang() -> str:
        """Hang."""
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()
        return "never"

    def answer(request: ModelRequest) -> ScriptedTurn:
        return turn(gate) if request.thread_id == "busy" else call("hang")

    async def scenario() -> None:
        async with AgentSystem(model=ScriptedModel(answer), tools=[hang], store=file, max_slices=1) as it:
            await it.send("t", "Go")
            await begun.wait()
            await it.send("busy", "Hold it up")
            await gate.reached()
            async with AgentSystem(model=ScriptedModel(say("I see.")), tools=[hang], store=file) as other:
                agent = await other.thread("t")
                (running,) = (await agent.state()).calls
                await agent.cancel(running.call_id)
                await until_told(agent, "says: I see.")
                await ended.wait()
                while await it.store.read_effects():
                    await settle()
            gate.open()

    run(scenario)


def test_a_cancellation_whose_engine_died_is_carried_out_where_the_tool_runs() -> None:
    store, clock, gate, ended = MemoryStore(), ManualClock(), Gate(), asyncio.Event()
    mortal = MortalStore(store)

    @tool
    async def hang() -> str:
        """Hang."""
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()
        return "never"

    def answer(request: ModelRequest) -> ScriptedTurn:
        if request.thread_id == "busy":
            return turn(gate, "At last.")
        return say("I see.") if len(request.transcript) > 1 else call("hang")

    async def scenario() -> None:
        async with system(answer, hang, store=store, clock=clock, max_slices=1) as it:
            await it.send("t", "Go")
            await settle()
            await it.send("busy", "Hold it up")
            await gate.reached()
            async with killed(say("never"), hang, store=mortal, clock=clock) as other:
                agent = await other.thread("t")
                (running,) = (await agent.state()).calls
                mortal.die_after("commit")
                await agent.cancel(running.call_id)
                await mortal.died.wait()
            assert not ended.is_set()
            await pass_time(clock, DEAD_AFTER + 5 * SECOND)
            assert ended.is_set()
            gate.open()
            await it.wait_idle()
            assert await store.read_effects() == []

    run(scenario)


def test_a_tool_that_takes_its_time_to_end_keeps_nobody_from_being_heard(tmp_path: Path) -> None:
    file, gate = tmp_path / "agents.db", Gate()
    begun, ending, cleaned = asyncio.Event(), asyncio.Event(), asyncio.Event()

    @tool
    async def messy() -> str:
        """Hang, and tidy up slowly."""
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            ending.set()
            await cleaned.wait()
        return "never"

    def answer(request: ModelRequest) -> ScriptedTurn:
        if request.thread_id == "t":
            return call("messy")
        return turn(gate, "never") if len(request.transcript) == 1 else say("I heard you.")

    async def scenario() -> None:
        model = ScriptedModel(answer)
        async with AgentSystem(model=model, tools=[messy], store=file, only=["t", "talk"], max_slices=1) as it:
            await it.send("t", "Go")
            await begun.wait()
            await it.send("talk", "Hold it up")
            await gate.reached()
            async with AgentSystem(model=ScriptedModel(say("I see.")), tools=[messy], store=file, only=["t"]) as other:
                agent = await other.thread("t")
                (running,) = (await agent.state()).calls
                await agent.cancel(running.call_id)
                await until_told(agent, "says: I see.")
                await ending.wait()
                await other.send("talk", "Hello?")
                await until_told(await it.thread("talk"), "user: Hello?", "says: I heard you.")
            cleaned.set()

    run(scenario)


def test_a_cancellation_that_another_engine_did_not_hear_of_in_time_is_not_kept_for_ever() -> None:
    """On this store nobody tells an engine what others write."""
    store, clock, gate, finish = MemoryStore(), ManualClock(), Gate(), asyncio.Event()

    @tool
    async def pay() -> str:
        """Pay."""
        await finish.wait()
        return "paid"

    def answer(request: ModelRequest) -> ScriptedTurn:
        return turn(gate) if request.thread_id == "busy" else call("pay")

    async def scenario() -> None:
        async with system(answer, pay, store=store, clock=clock, max_slices=1) as it:
            await it.send("t", "Go")
            await settle()
            await it.send("busy", "Hold it up")
            await gate.reached()
            async with system([say("I see."), say("After all.")], pay, store=store, clock=clock) as other:
                agent = await other.thread("t")
                (running,) = (await agent.state()).calls
                await agent.cancel(running.call_id)
                await until_told(agent, "says: I see.")
                finish.set()
                await until_told(agent, "late_result: pay paid", "says: After all.")
                await pass_time(clock, 10 * SECOND)
                assert await store.read_effects() == []
            gate.open()

    run(scenario)


def test_a_thread_that_another_engine_has_made_anew_says_nothing_of_the_one_before() -> None:
    store = MemoryStore()
    transcripts = Transcripts(store)

    async def said(text: str) -> list[object]:
        async with system(lambda _: say("Yes."), store=store, run=False) as it:
            await it.step([InputMessage(f"about {text}", "t", UserText(text))])
            row = await store.read_head("t")
            assert row is not None
            hot = await transcripts.at(decode_head(row.head).head)
            await (await it.thread("t")).delete()
            return [item.content for item in hot.transcript.items if isinstance(item, UserItem)]

    async def scenario() -> None:
        assert await said("a secret") == ["a secret"]
        assert await said("hello") == ["hello"]

    run(scenario)


@pytest.mark.parametrize("more", [1, 2])
def test_a_thread_that_was_brought_back_from_elsewhere_says_nothing_of_what_it_had_become_here(more: int) -> None:
    asked: list[list[object]] = []

    def answer(request: ModelRequest) -> ScriptedTurn:
        asked.append([item.content for item in request.transcript if isinstance(item, UserItem)])
        return say("Yes.")

    async def exported(it: AgentSystem) -> BytesIO:
        await (await it.thread("t")).freeze()
        archive = BytesIO()
        await it.export("t", archive)
        archive.seek(0)
        return archive

    async def scenario() -> None:
        async with (
            system(answer, store=MemoryStore(), clock=ManualClock()) as here,
            system(answer, store=MemoryStore(), clock=ManualClock()) as there,
        ):
            await here.send("t", "one")
            await here.wait_idle()
            await there.import_(await exported(here))
            for it, texts in ((here, ["two, here"]), (there, ["two, there"] * more)):
                await (await it.thread("t")).thaw()
                for text in texts:
                    await it.send("t", text)
                    await it.wait_idle()
            back = await exported(there)
            await (await here.thread("t")).freeze()
            await (await here.thread("t")).delete()
            await here.import_(back)
            await (await here.thread("t")).thaw()
            await here.send("t", "three")
            await here.wait_idle()
        assert asked[-1] == ["one", *["two, there"] * more, "three"]

    run(scenario)
