"""Threads that are checked and published: children, threads that go on, and whole stores."""

import asyncio
from pathlib import Path

import apsw
import pytest
from msgspec.structs import replace

from hibernaut.codec import sha256
from hibernaut.engine.audit_all import BATCH, Tally, audit_batch, batches
from hibernaut.engine.auditing import audit
from hibernaut.errors import StoreCorrupt, UnknownThread, VerificationFailed
from hibernaut.kernel.commit import Blob
from hibernaut.kernel.head import decode_head, encode_head
from hibernaut.messages.items import UserItem
from hibernaut.messages.parts import plain_text
from hibernaut.models.protocol import ModelRequest
from hibernaut.models.scripted import ScriptedModel, ScriptedTurn, call, say
from hibernaut.stores.memory import MemoryStore
from hibernaut.stores.protocol import EffectRow
from hibernaut.system import AgentSystem
from hibernaut.testing.clock import ManualClock
from hibernaut.tools.tool import tool
from tests.engine.scenario import run, system, until_activity


@tool
async def add(a: int, b: int) -> int:
    """Add."""
    return a + b


def react(request: ModelRequest) -> ScriptedTurn:
    """Spawn when told so, add when told so, else say something."""
    last = request.transcript[-1]
    said = plain_text(last.content) if isinstance(last, UserItem) else ""
    if said == "Spawn":
        return call("spawn_thread", instructions="Count.", child_of=[])
    if said == "Add":
        return call("add", a=1, b=2)
    return say("Done.")


def test_the_chain_of_a_child_begins_with_its_parents_and_says_who_made_it() -> None:
    async def scenario() -> None:
        async with system(ScriptedModel(react), add) as it:
            agent = await it.launch(thread_id="t", message="Spawn")
            await it.wait_idle()
            (child,) = [state.thread_id for state in await agent.tree() if state.thread_id != "t"]
            first, *_ = [one async for one in it.receipts_of(child)]
            start = decode_head((await it.row(child)).head).head
            assert start.link is not None
            assert first.history_before is not None
            assert [(one.id, one.provenance and one.provenance.sender) for one in first.inputs] == [
                (f"seed:{child}", "thread:t")
            ]
            assert await it.verify(child) >= 1
            with pytest.raises(UnknownThread):
                await anext(it.receipts_of("nobody"))

    run(scenario)


def test_all_threads_of_a_store_are_checked_while_they_go_on() -> None:
    store = MemoryStore()

    async def scenario() -> None:
        async with AgentSystem(model=ScriptedModel(react), tools=[add], store=store) as it:
            names = [f"t{number}" for number in range(40)]
            await asyncio.gather(*[it.send(name, "Add") for name in names])
            total = Tally()
            seen: set[str] = set()
            async with asyncio.TaskGroup() as group:
                talk = group.create_task(speak(it, names))
                while not talk.done():
                    async for rows in batches(store, None):
                        seen.update(row.thread_id for row in rows)
                        total += await audit_batch(store, rows)
            assert total.broken == ()
            assert seen == set(names)
            await it.wait_idle()
            async for rows in batches(store, ""):
                assert (await audit_batch(store, rows)).broken == ()

    run(scenario)


async def speak(it: AgentSystem, names: list[str]) -> None:
    for _ in range(3):
        await asyncio.gather(*[it.send(name, "Add") for name in names])
        await it.wait_idle()


def test_a_thread_that_is_deleted_while_it_is_checked_is_no_broken_one() -> None:
    store = MemoryStore()

    async def scenario() -> None:
        async with AgentSystem(model=ScriptedModel(react), tools=[add], store=store) as it:
            await it.send("t", "Add")
            await it.wait_idle()
            row = await it.row("t")
            await (await it.thread("t")).delete()
            with pytest.raises(UnknownThread):
                await audit(store, row)
            assert await audit_batch(store, [row]) == Tally()

    run(scenario)


def test_a_head_that_cannot_be_read_and_one_of_another_history_are_named() -> None:
    store = MemoryStore()

    async def scenario() -> None:
        async with AgentSystem(model=ScriptedModel(react), tools=[add], store=store) as it:
            await it.send("t", "Add")
            await it.wait_idle()
            row = await it.row("t")
            head = decode_head(row.head).head
            other = Blob(sha256(b"another"), b"another")
            await store.put([], 0, blobs=[other])
            heads = [
                replace(head, history=bytes(32)),
                replace(head, authority=other.digest),
                replace(head, config=b"?"),
            ]
            for forged in (b"\xc1", *map(encode_head, heads)):
                with pytest.raises(VerificationFailed) as caught:
                    await audit(store, replace(row, head=forged))
                assert caught.value.kind == "head"

    run(scenario)


def test_an_outbox_that_differs_from_the_receipts_is_found() -> None:
    class Forging(MemoryStore):
        async def read_effects(self, thread_id: str | None = None) -> list[EffectRow]:
            rows = await super().read_effects(thread_id)
            return [replace(row, effect=replace(row.effect, request_id="call_forged")) for row in rows]

    store = Forging()

    @tool
    async def hang() -> str:
        """Hang."""
        await asyncio.Event().wait()
        return "never"

    async def scenario() -> None:
        async with AgentSystem(model=ScriptedModel([call("hang")]), tools=[hang], store=store) as it:
            await it.send("t", "Go")
            agent = await it.thread("t")
            await until_activity(agent, "waiting")
            with pytest.raises(VerificationFailed, match="call_forged is in the outbox, and no receipt owes it"):
                await it.verify("t")

    run(scenario)


def test_an_outbox_that_cannot_be_read_is_told_of_its_thread_and_the_others_are_checked() -> None:
    class Unreadable(MemoryStore):
        async def read_effects(self, thread_id: str | None = None) -> list[EffectRow]:
            if thread_id == "t":
                raise StoreCorrupt("an effect cannot be read")
            return await super().read_effects(thread_id)

    store = Unreadable()

    async def scenario() -> None:
        async with AgentSystem(model=ScriptedModel(react), tools=[add], store=store) as it:
            for name in ("t", "u"):
                await it.send(name, "Add")
            await it.wait_idle()
            tally = await audit_batch(store, await store.list_threads())
            assert [(one.thread_id, one.kind) for one in tally.broken] == [("t", "effect")]
            assert tally.threads == 2

    run(scenario)


def test_a_thread_that_moves_up_while_a_store_is_listed_is_not_missed() -> None:
    store, clock = MemoryStore(), ManualClock()

    async def scenario() -> None:
        async with system(ScriptedModel(react), add, store=store, clock=clock) as it:
            for number in range(BATCH + 1):
                await it.send(f"t{number}", "Hello")
                clock.advance(1)
            await it.wait_idle()
            seen: set[str] = set()
            async for rows in batches(store, None):
                if not seen:
                    (last,) = {f"t{number}" for number in range(BATCH + 1)} - {row.thread_id for row in rows}
                    clock.advance(1)
                    await it.send(last, "Hello again")
                    await it.wait_idle()
                seen.update(row.thread_id for row in rows)
            assert len(seen) == BATCH + 1

    run(scenario)


def test_a_packed_page_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    path = tmp_path / "agents.db"

    async def scenario() -> None:
        async with AgentSystem(model=ScriptedModel(react), tools=[add], store=path) as it:
            for _ in range(3):
                await it.send("t", "Hello, and tell me at length what you have seen of the build. " * 10)
                await it.wait_idle()
            damage(path, 2)
            with pytest.raises(VerificationFailed, match="the page of version 2 cannot be read") as caught:
                await it.verify("t")
            assert (caught.value.kind, caught.value.version) == ("page", 2)

    asyncio.run(scenario())


def damage(path: Path, version: int) -> None:
    connection = apsw.Connection(str(path))
    where = "packed AND place & 4294967295 = ?"
    ((page,),) = connection.execute(f"SELECT page FROM log WHERE {where}", (version,))
    assert isinstance(page, bytes)
    connection.execute(f"UPDATE log SET page = ? WHERE {where}", (page[:-4], version))
    connection.close()
