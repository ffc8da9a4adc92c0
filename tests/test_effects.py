"""What is owed to the outside, for operators: seen, asked after, and answered by hand."""

import asyncio
from typing import Any

import pytest

from hibernaut.effects import OwedEffect
from hibernaut.engine.local import UPKEEP_EVERY
from hibernaut.errors import (
    AlreadyAnswered,
    ConfigurationError,
    MalformedInput,
    UnknownEffect,
)
from hibernaut.kernel.receipt import Receipt
from hibernaut.messages.inputs import InputMessage, ToolResult
from hibernaut.models.scripted import ScriptedModel, call, say
from hibernaut.rap.requests import AskStatus
from hibernaut.stores.memory import MemoryStore
from hibernaut.stores.protocol import DEAD_AFTER, Store
from hibernaut.system import AgentSystem
from hibernaut.testing.clock import ManualClock
from hibernaut.tools.context import Deferred, ToolContext
from hibernaut.tools.tool import tool
from tests.engine.far import PUBLIC, Far
from tests.engine.scenario import killed, pass_time, run, settle, story, system


@tool
async def ask(context: ToolContext) -> Deferred:
    """Leave the answer to somebody else."""
    return context.defer()


@tool
async def hang() -> str:
    """Hang."""
    await asyncio.Event().wait()
    return "never"


def client(store: Store, clock: ManualClock, **more: Any) -> AgentSystem:
    return AgentSystem(store=store, clock=clock, run=False, **more)


def wired(there: Far) -> dict[str, Any]:
    """Return what a system is given to work with the far servers."""
    return {"store": there.store, "clock": there.clock, "servers": there.servers, "callbacks": PUBLIC}


async def with_an_uncertain_call(store: MemoryStore, clock: ManualClock) -> OwedEffect:
    """Let an engine die while it runs a tool."""
    async with killed([call("hang")], hang, store=store, clock=clock) as it:
        await it.launch(thread_id="t", message="Go")
        await settle()
        (owed,) = await it.effects()
        assert (owed.state, owed.owner_lives, owed.is_uncertain) == ("sent", True, False)
    clock.advance(DEAD_AFTER)
    async with client(store, clock) as it:
        (owed,) = await it.effects("t")
        return owed


def decisions(receipts: list[Receipt]) -> list[Any]:
    return [entry for receipt in receipts for entry in receipt.provenance]


def test_an_effect_says_who_works_on_it_and_what_becomes_of_it() -> None:
    store, clock = MemoryStore(), ManualClock()

    async def scenario() -> None:
        owed = await with_an_uncertain_call(store, clock)
        assert (owed.thread_id, owed.effect.tool, owed.owner_lives, owed.is_uncertain) == ("t", "hang", False, True)
        assert owed.outlook.startswith("the next engine runs it again if its tool says that this is safe")
        async with client(store, clock, tools=[hang]) as it:
            assert (await it.effect(owed.effect.request_id.removeprefix("call_"))).outlook == (
                "the next engine answers that it is unknown whether it happened"
            )
            with pytest.raises(UnknownEffect):
                await it.effect("call_x")
        async with client(store, clock, tenant="other") as it:
            assert await it.effects() == []

    run(scenario)


@pytest.mark.parametrize("result", ["It was done.", None], ids=["with a result", "as unknown"])
def test_a_call_is_answered_by_hand_and_the_receipt_says_who_did_so_and_why(result: str | None) -> None:
    store, clock = MemoryStore(), ManualClock()

    async def scenario() -> None:
        owed = await with_an_uncertain_call(store, clock)
        request = owed.effect.request_id
        async with client(store, clock) as it:
            assert await it.settle(request, result, reason="I looked", user="ada") == f"settled:{request}"
            with pytest.raises(AlreadyAnswered):
                await it.settle(request, "again", reason="I looked")
        async with system(say("Good."), hang, store=store, clock=clock) as it:
            agent = await it.thread("t")
            await it.wait_idle()
            told = await story(agent)
            assert told[3] == ("result: It was done." if result else told[3])
            assert ("it is unknown whether hang was run (I looked)" in told[3]) == (result is None)
            assert f"notice: settled hang {request} was answered by ada: I looked" in told
            assert told[-1] == "says: Good."
            assert await it.effects() == []
            receipts = await agent.receipts()
            assert decisions(receipts)[-1] == ("operator:ada", request, "", "settle", "I looked")
            assert request in [name for receipt in receipts for name in receipt.settled]
            (decided,) = [
                one for receipt in [one async for one in it.receipts_of("t")] for one in receipt.operator_decision
            ]
            assert (decided.action, decided.call, decided.reason, decided.sender) == (
                "settle",
                request,
                "I looked",
                "operator:ada",
            )
            assert await it.verify("t") == len(receipts)

    run(scenario)


def test_a_genuine_result_that_comes_after_is_shown_as_an_event() -> None:
    async def scenario() -> None:
        async with system([call("ask"), say("So."), say("Ah.")], ask) as it:
            agent = await it.launch(message="Go")
            await it.wait_idle()
            (owed,) = await it.effects()
            assert (owed.state, owed.outlook[:26]) == ("accepted", "it waits for its answer, f")
            name = owed.effect.request_id
            await it.settle(name, "By hand.", reason="tired of waiting")
            await it.wait_idle()
            late = InputMessage(f"result:{name}", agent.thread_id, ToolResult(name, "Yes."), "tool:ask")
            await it.store.put([late], it.clock.now())
            await it.wait_idle()
            told = await story(agent)
            assert told.index("result: By hand.") < told.index("says: So.")
            assert told[-1] == "says: Ah."
            assert any("Yes." in line for line in told)
            assert await it.verify(agent.thread_id) > 0

    run(scenario)


def test_what_cannot_be_answered_by_hand_is_refused_with_the_reason() -> None:
    store, clock = MemoryStore(), ManualClock()

    async def scenario() -> None:
        owed = await with_an_uncertain_call(store, clock)
        request = owed.effect.request_id
        async with client(store, clock) as it:
            with pytest.raises(MalformedInput, match="say why"):
                await it.settle(request, "x", reason=" ")
            with pytest.raises(UnknownEffect, match="call_x"):
                await it.settle("call_x", "x", reason="y")
            there = InputMessage(f"result:{request}", "t", ToolResult(request, "done"), "tool:hang")
            await store.put([there], clock.now())
            with pytest.raises(AlreadyAnswered, match="not taken it in yet"):
                await it.settle(request, "x", reason="y")

    run(scenario)


# Asking tool servers


def test_a_running_engine_carries_out_the_wish_to_have_servers_asked() -> None:
    there = Far(MemoryStore(), ManualClock())

    async def scenario() -> None:
        more = wired(there)
        async with system([call("build", commit="a"), say("Lost, then.")], **more) as it:
            agent = await it.launch(message="Go")
            await it.wait_idle()
            there.servers.alive.clear()
            async with client(there.store, there.clock) as operator:
                assert not await operator.reconcile()
            assert [one for one in there.servers.received if isinstance(one.message, AskStatus)] == []
            await pass_time(there.clock, UPKEEP_EVERY)
            await it.wait_idle()
            assert len([one for one in there.servers.received if isinstance(one.message, AskStatus)]) == 1
            await pass_time(there.clock, 2 * UPKEEP_EVERY)
            assert len([one for one in there.servers.received if isinstance(one.message, AskStatus)]) == 1
            assert (await story(agent))[-1] == "says: Lost, then."

    run(scenario)


def test_where_no_engine_runs_the_servers_are_asked_here_or_it_is_refused() -> None:
    there = Far(MemoryStore(), ManualClock())

    async def scenario() -> None:
        more = wired(there)
        async with system(ScriptedModel([call("build", commit="a")]), **more) as it:
            await it.launch(thread_id="t", message="Go")
            await it.wait_idle()
        there.servers.alive.clear()
        async with client(there.store, there.clock) as it:
            with pytest.raises(ConfigurationError, match="no engine runs on this store"):
                await it.reconcile()
            (owed,) = await it.effects()
            assert owed.outlook.startswith("ci works on it")
        async with client(there.store, there.clock, servers=there.servers, callbacks=PUBLIC) as it:
            assert await it.reconcile()
            (waiting,) = await there.store.read_inbox("t")
            assert waiting.message_id == f"unknown:{owed.effect.request_id}"

    run(scenario)
