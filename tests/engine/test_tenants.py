"""What engines run stays with its tenant: threads, tools, models, servers, and what the models try."""

from collections.abc import Callable
from typing import Any

import pytest

from hibernaut.errors import ConfigurationError
from hibernaut.messages.items import CallItem
from hibernaut.models.protocol import ModelRequest
from hibernaut.models.scripted import ScriptedTurn, call, last_result, say
from hibernaut.rap.manifest import Toolset
from hibernaut.rap.requests import AskStatus
from hibernaut.stores.memory import MemoryStore
from hibernaut.stores.protocol import DEAD_AFTER, Store
from hibernaut.testing.clock import ManualClock
from hibernaut.testing.tool_servers import MemoryToolServers
from hibernaut.tools.context import ToolContext
from hibernaut.tools.tool import AnyTool, tool
from tests.engine.far import CI, PUBLIC, Far
from tests.engine.scenario import MortalStore, killed, run, settle, story, system, until_told
from tests.tenancy import World, belongings, both


def teller(log: list[str], whose: str) -> AnyTool:
    """A tool of one tenant's program, under a name that the other's has as well."""

    @tool(name="tell")
    async def tell(context: ToolContext) -> str:
        """Tell whose you are."""
        log.append(f"{whose}'s tool for {context.thread_id} of {context.tenant}")
        return whose

    return tell


def telling(whose: str) -> Callable[[ModelRequest], ScriptedTurn]:
    """A model of one tenant's program."""
    return lambda request: (
        say(f"{whose}'s model, {last_result(request)}'s tool") if last_result(request) else call("tell")
    )


def test_an_engine_runs_the_threads_of_its_tenant_with_its_tools_and_its_model() -> None:
    log: list[str] = []

    async def scenario() -> None:
        store, clock = MemoryStore(), ManualClock()

        def program(whose: str, **more: Any) -> Any:
            return system(telling(whose), teller(log, whose), store=store, clock=clock, tenant=whose, **more)

        async with program("acme") as acme, program("other") as other:
            for one, name in ((other, "o"), (acme, "a")):
                await one.launch(thread_id=name, message="Tell")
            for one, name in ((other, "o"), (acme, "a")):
                agent = await one.thread(name)
                await agent.wait_idle()
                assert (await story(agent))[-1] == f"says: {one.tenant}'s model, {one.tenant}'s tool"
        async with program("acme", run=False) as acme, program("other", run=False) as other:
            await acme.send("b", "Tell")
            assert (await other.step([])).completions == 0
            assert (await acme.step([])).completions == 2
        assert sorted(log) == [
            "acme's tool for a of acme",
            "acme's tool for b of acme",
            "other's tool for o of other",
        ]

    run(scenario)


def test_an_engine_for_all_tenants_tells_its_tools_whose_thread_it_is() -> None:
    log: list[str] = []

    async def scenario() -> None:
        store, clock = MemoryStore(), ManualClock()
        async with system(
            telling("the house"), teller(log, "the house"), store=store, clock=clock, all_tenants=True
        ) as house:
            for tenant in ("acme", "other"):
                async with system([], store=store, clock=clock, tenant=tenant, run=False) as client:
                    await client.launch(thread_id=f"{tenant}'s", message="Tell")
            await house.wait_idle()
            assert log == [f"the house's tool for {tenant}'s of {tenant}" for tenant in ("acme", "other")]
            assert await house.threads() == []

    run(scenario)


def test_what_a_dead_engine_left_is_taken_over_for_its_tenant_only() -> None:
    log: list[str] = []

    async def scenario() -> None:
        store, clock = MemoryStore(), ManualClock()
        mortal = MortalStore(store)
        mortal.die_after("commit")
        async with killed(telling("acme"), teller(log, "acme"), store=mortal, clock=clock, tenant="acme") as it:
            await it.launch(thread_id="a", message="Tell")
            await mortal.died.wait()
        clock.advance(DEAD_AFTER)
        assert [row.state for row in await store.read_effects("a")] == ["pending"]
        async with system(telling("other"), teller(log, "other"), store=store, clock=clock, tenant="other") as other:
            await other.wait_idle()
            assert log == []
        async with system(telling("acme"), teller(log, "acme"), store=store, clock=clock, tenant="acme") as acme:
            await until_told(await acme.thread("a"), "says: acme's model, acme's tool")
            assert log == ["acme's tool for a of acme"]

    run(scenario)


# What a model may try


def tried(name: str, world: World) -> ScriptedTurn:
    return {
        "send_message_to_child": call("send_message_to_child", thread_id="t", message="Hello"),
        "close_thread": call("close_thread", thread_id="t", report_to_parent="over"),
        "spawn_thread": call("spawn_thread", instructions="Spy", child_of=["t"]),
        "cancel_subscription": call("cancel_subscription", tool_call_id=world.calls["watch"]),
        "report_to_parent": call("report_to_parent", report="Hello"),
        "ask_outside": call("ask_outside", what="Hello"),
    }[name]


TRIED = (
    "send_message_to_child",
    "close_thread",
    "spawn_thread",
    "cancel_subscription",
    "report_to_parent",
    "ask_outside",
)


@pytest.mark.parametrize("in_child", [False, True])
@pytest.mark.parametrize("name", TRIED)
def test_a_model_reaches_no_thread_call_or_tool_of_another_tenant(name: str, in_child: bool) -> None:
    async def scenario() -> None:
        store = MemoryStore()
        async with both(store) as world:
            before = await belongings(store, "acme")

            def answer(request: ModelRequest) -> ScriptedTurn:
                made = [item.name for item in request.transcript if isinstance(item, CallItem)]
                if in_child and request.thread_id == "o":
                    return say("Done.") if made else call("spawn_thread", instructions="Try", child_of=[])
                tries = made[1:] if in_child else made
                return say(f"I heard: {last_result(request)}") if tries else tried(name, world)

            @tool
            async def own() -> str:
                """Be other's own."""
                return ""

            async with system(answer, own, store=store, clock=world.clock, tenant="other") as it:
                agent = await it.launch(thread_id="o2", message="Try")
                if in_child:
                    agent = await it.thread("o")
                    await agent.send("Try")
                await it.wait_idle()
                (*_, last) = await agent.tree()
                told = await story(await it.thread(last.thread_id))
            expected = {"ask_outside": "Not run: there is no tool named ask_outside"}.get(name, "Not done")
            if in_child and name == "report_to_parent":
                expected = "Told to your parent thread, o."
            assert [line for line in told if line.startswith(f"says: I heard: {expected}")]
            assert await belongings(store, "acme") == before

    run(scenario)


def test_a_thread_has_the_tools_it_was_launched_with_and_not_those_that_another_tenants_threads_have() -> None:
    log: list[str] = []

    async def scenario() -> None:
        store, clock = MemoryStore(), ManualClock()
        there = Far(store, clock, CI)

        def answer(request: ModelRequest) -> ScriptedTurn:
            tries = [call("tell"), call("build", commit="abc")]
            made = sum(isinstance(item, CallItem) for item in request.transcript)
            return tries[made] if made < len(tries) else say("I have neither.")

        house = system(
            answer,
            teller(log, "acme"),
            store=store,
            clock=clock,
            servers=there.servers,
            callbacks=PUBLIC,
            all_tenants=True,
        )
        async with house, system([], store=store, clock=clock, tenant="other", run=False) as other:
            with pytest.raises(ConfigurationError):
                await other.launch(tools=["tell"])
            agent = await other.launch(thread_id="o", tools=[], servers=[], message="Try")
            await house.wait_idle()
            assert (await story(agent))[-1] == "says: I have neither."
            assert (log, there.servers.calls) == ([], [])

    run(scenario)


# Tool servers


def test_whoever_reconciles_asks_no_server_after_the_calls_of_another_tenant() -> None:
    async def scenario() -> None:
        store, clock = MemoryStore(), ManualClock()
        there = Far(store, clock, CI)

        def program(tenant: str, servers: MemoryToolServers, model: Any = (), **more: Any) -> Any:
            return system(model, store=store, clock=clock, servers=servers, callbacks=PUBLIC, tenant=tenant, **more)

        async with program("acme", there.servers, [call("build", commit="abc")]) as acme:
            agent = await acme.launch(message="Build")
            while not await accepted(store):
                await settle()
        # A server of the same name, which knows nothing of that call and would have it given up.
        ours = MemoryToolServers({"ci": Toolset("ci", "http://other.test/call", CI.tools)})
        before = await belongings(store, "acme")
        async with program("other", ours, run=False) as other:
            assert await other.reconcile()
        async with program("other", ours) as other:
            await settle()
            assert not await other.reconcile()
            await settle()
        assert ours.received == []
        assert await belongings(store, "acme") == before
        async with program("acme", there.servers, run=False) as acme:
            assert await acme.reconcile()
        assert [one.message for one in there.servers.received if isinstance(one.message, AskStatus)] == [
            AskStatus(agent.thread_id, there.call.id)
        ]

    run(scenario)


async def accepted(store: Store) -> bool:
    return [row.state for row in await store.read_effects()] == ["accepted"]
