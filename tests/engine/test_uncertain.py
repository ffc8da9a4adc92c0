"""A call that may have happened when its process died is repeated only where somebody says that this is safe."""

import asyncio
from collections.abc import AsyncGenerator
from typing import Any, Literal

import pytest
from msgspec.structs import replace

from hibernaut.messages.items import ResultItem
from hibernaut.models.scripted import ScriptedModel, call, say
from hibernaut.rap.manifest import RemoteTool
from hibernaut.rap.requests import AskStatus
from hibernaut.stores.memory import MemoryStore
from hibernaut.stores.protocol import DEAD_AFTER
from hibernaut.testing.clock import ManualClock
from hibernaut.tools.tool import tool
from tests.engine.far import CI, PUBLIC, SCHEMA, Far
from tests.engine.scenario import MINUTE, MortalStore, killed, pass_time, run, settle, story, system

Kind = Literal["idempotent", "not idempotent", "resumable", "not resumable"]


@pytest.mark.parametrize(
    "kind, repeated",
    [("idempotent", True), ("not idempotent", False), ("resumable", True), ("not resumable", False)],
)
def test_a_tool_of_a_process_that_died_is_run_again_only_if_it_says_that_this_is_safe(
    kind: Kind, repeated: bool
) -> None:
    store, clock, ran = MemoryStore(), ManualClock(), []

    @tool(name="work", idempotent=kind == "idempotent")
    async def work() -> str:
        """Work."""
        ran.append(1)
        await asyncio.Event().wait()
        return "never"

    @tool(name="work", resumable=kind == "resumable")
    async def watch() -> AsyncGenerator[str, None]:
        """Watch."""
        ran.append(1)
        await asyncio.Event().wait()
        yield "never"

    one = watch if "resumable" in kind else work

    async def scenario() -> None:
        async with killed([call("work")], one, store=store, clock=clock) as it:
            await it.launch(thread_id="t", message="Go")
            await settle()
        assert len(ran) == 1
        (row,) = await store.read_effects()
        assert row.state == "sent"
        clock.advance(DEAD_AFTER)
        async with killed(ScriptedModel(lambda _: say("Seen.")), one, store=store, clock=clock) as it:
            await settle()
            results = [item for item in await (await it.thread("t")).history() if isinstance(item, ResultItem)]
            assert len(ran) == (2 if repeated else 1)
            assert ["It is unknown whether it happened" in str(item.content) for item in results] == [True] * (
                not repeated
            )

    run(scenario)


BARE = replace(CI, idempotency_keys=False)
TOOLS = {
    "keys": replace(CI, idempotency_keys=True, tools=(RemoteTool("work", "Work.", SCHEMA),)),
    "idempotent": replace(BARE, tools=(RemoteTool("work", "Work.", SCHEMA, '{"idempotent":true}', idempotent=True),)),
    "neither": replace(BARE, tools=(RemoteTool("work", "Work.", SCHEMA),)),
}


@pytest.mark.parametrize("knows", [True, False], ids=["the server works on it", "the server does not know it"])
@pytest.mark.parametrize("kind", list(TOOLS))
def test_a_call_that_may_have_reached_a_server_is_sent_again_only_if_that_is_safe(kind: str, knows: bool) -> None:
    there = Far(MemoryStore(), ManualClock(), TOOLS[kind])
    mortal = MortalStore(there.store)

    async def scenario() -> None:
        mortal.die_after("start_effects")
        model = ScriptedModel([call("work")])
        more: dict[str, Any] = {"clock": there.clock, "servers": there.servers, "callbacks": PUBLIC}
        async with killed(model, store=mortal, **more) as it:
            await it.launch(thread_id="t", message="Go")
            await mortal.died.wait()
        (row,) = await there.store.read_effects()
        assert (row.state, len(there.servers.calls)) == ("sent", 0)
        if knows:  # it arrived, and the process died before it heard so
            there.servers.alive.add(row.effect.call_id)
        there.clock.advance(DEAD_AFTER)
        async with system(ScriptedModel(lambda _: say("Seen.")), store=there.store, **more) as it:
            await pass_time(there.clock, MINUTE)
            asked = [one for one in there.servers.received if isinstance(one.message, AskStatus)]
            sent = [one.key for one in there.servers.received if one.key]
            expected = [row.effect.request_id] if kind == "keys" or (kind == "idempotent" and not knows) else []
            assert sent == expected
            assert asked or kind == "keys"
            told = [line for line in await story(await it.thread("t")) if "unknown how far it got" in line]
            assert len(told) == (kind == "neither" and not knows)

    run(scenario)
