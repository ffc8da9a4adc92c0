"""An archive brings nothing of another tenant with it, whoever wrote it, and reaches nothing of it once it is in."""

import asyncio
import io
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from hibernaut.codec import pack
from hibernaut.errors import MalformedInput, ThreadExists, UnknownThread
from hibernaut.handle import ThreadHandle
from hibernaut.kernel.commit import Effect
from hibernaut.kernel.config import decode_config, encode_config
from hibernaut.kernel.head import Call, Child, Link, decode_head, encode_head
from hibernaut.messages.inputs import InputMessage, ToolResult, UserText, encode_input
from hibernaut.messages.items import SpawnItem, decode_page, encode_page
from hibernaut.messages.parts import Excerpt
from hibernaut.models.protocol import ModelRequest
from hibernaut.models.scripted import ScriptedTurn, call, last_result, say
from hibernaut.stores.archive import (
    CommitRecord,
    ConfigRecord,
    EffectRecord,
    MessageRecord,
    Record,
    ThreadRecord,
)
from hibernaut.stores.archive_file import archive_of, write_archive
from hibernaut.stores.memory import MemoryStore
from hibernaut.testing.clock import ManualClock
from hibernaut.tools.tool import tool
from tests.engine.scenario import run, settle, system, until_told
from tests.tenancy import BLOB, SECRET, World, belongings, both, opened

Records = list[Record]

EXCERPT = Excerpt("…", BLOB.digest, len(BLOB.data))


def archive(records: Sequence[Record]) -> io.BytesIO:
    """Write records as a file whose checksum fits: what is altered is altered well."""
    file = io.BytesIO()
    write_archive(archive_of(records), file)
    file.seek(0)
    return file


async def own_tree(world: World) -> Records:
    """Take other's own thread out, so that it may come back as something else."""
    agent = await world.other.thread("o")
    await agent.send("Mine.", message_id="m1")
    await agent.freeze()
    records = await world.store.export_tree("o", 0)
    await agent.delete()
    return records


def altered(record: Record, **fields: Any) -> ThreadRecord:
    assert isinstance(record, ThreadRecord)
    return replace(record, **fields)


def with_head(records: Records, **fields: Any) -> Records:
    """Give the root another head."""
    (root, *rest) = records
    assert isinstance(root, ThreadRecord)
    same = {name: fields[name] for name in ("thread_id", "version") if name in fields}
    return [replace(root, head=encode_head(replace(decode_head(root.head).head, **fields)), **same), *rest]


def after_root(records: Records, *more: Record) -> Records:
    return [records[0], *more, *records[1:]]


def said(message: InputMessage, message_id: str = "") -> MessageRecord:
    return MessageRecord(message_id or message.message_id, 1, 1, 0, False, encode_input(message))


def launched_for(records: Records, **fields: Any) -> Records:
    """Let the thread have been launched with something else."""
    (root, *rest) = records
    assert isinstance(root, ThreadRecord)
    (config,) = [record for record in records if isinstance(record, ConfigRecord)]
    digest, body = encode_config(replace(decode_config(config.body), **fields))
    return with_head([root, *[one for one in rest if one is not config], ConfigRecord(digest, body)], config=digest)


async def config_of_acme(world: World) -> bytes:
    return decode_head((await world.acme.row("t")).head).head.config


Forgery = Callable[[Records, World, bytes], Records]

BRINGS_NOT = "does not bring it"

FORGED: dict[str, tuple[Forgery, str]] = {
    "launched for acme": (
        lambda own, *_: launched_for(own, tenant="acme", user="ann"),
        "launched for another tenant",
    ),
    "launched with what acme's thread was": (
        lambda own, _, config: with_head(own, config=config),
        "what 'o' was launched with is not in it",
    ),
    "acme's bytes as its authority": (lambda own, *_: with_head(own, authority=BLOB.digest), BRINGS_NOT),
    "acme's bytes as the tools of a server": (lambda own, *_: with_head(own, toolsets={"ci": BLOB.digest}), BRINGS_NOT),
    "acme's bytes in a message": (
        lambda own, *_: after_root(own, said(InputMessage("m2", "o", UserText((EXCERPT,))))),
        BRINGS_NOT,
    ),
    "acme's bytes in its history": (
        lambda own, *_: after_root(with_head(own, version=1), CommitRecord(1, pack([EXCERPT]), b"")),
        BRINGS_NOT,
    ),
    "a child of acme's thread": (
        lambda own, *_: with_head(own, link=Link(("t",), "call_1", "spawn_thread", version=9)),
        "hangs somewhere else",
    ),
    "acme's effect": (
        lambda own, world, _: after_root(own, effect(world.calls["ask_outside"], world.calls["ask_outside"])),
        "that of another thread here",
    ),
    "acme's effect under another id": (
        lambda own, world, _: after_root(own, effect("mine", world.calls["ask_outside"])),
        "is another one",
    ),
    "a message for acme's thread": (
        lambda own, *_: after_root(own, said(InputMessage("m2", "t", UserText("Hello")))),
        "is for another thread",
    ),
    "a message under another id": (
        lambda own, *_: after_root(own, said(InputMessage("m2", "o", UserText("Hello")), "m3")),
        "is for another thread",
    ),
    "the name of acme": (lambda own, *_: [altered(own[0], tenant="acme"), *own[1:]], "is of the tenant 'acme'"),
    "the name of acme within": (
        lambda own, *_: [*own, altered(own[0], tenant="acme", thread_id="c", parent="o", root="o")],
        "is that of another thread",
    ),
}
"""What other makes of its own thread before it imports that, and why it is refused."""


def effect(name: str, call_id: str) -> EffectRecord:
    return EffectRecord(name, "pending", 1, "", pack(Effect(call_id, "invoke", call_id, "ask_outside")))


@pytest.mark.parametrize("kind", ["memory", "sqlite"])
@pytest.mark.parametrize("forgery", FORGED)
def test_an_altered_archive_that_names_what_is_another_tenants_is_refused(
    forgery: str, kind: str, tmp_path: Path
) -> None:
    async def scenario() -> None:
        async with opened(kind, tmp_path) as store, both(store) as world:
            own = await own_tree(world)
            forge, why = FORGED[forgery]
            forged = forge(own, world, await config_of_acme(world))
            before = await belongings(store, "acme")
            with pytest.raises(MalformedInput, match=why):
                await world.other.import_(archive(forged))
            assert await world.other.threads() == []
            assert await belongings(store, "acme") == before
            await world.other.import_(archive(own))
            assert [state.thread_id for state in await world.other.threads()] == ["o"]

    run(scenario)


def test_an_archive_of_ones_own_under_the_name_of_another_tenants_thread_is_refused() -> None:
    async def scenario() -> None:
        async with both(MemoryStore()) as world:
            own = await own_tree(world)
            (root, *rest) = with_head(own, thread_id="t")
            message = said(InputMessage("m1", "t", UserText("Mine.")))
            kept = [one for one in rest if not isinstance(one, MessageRecord)]
            before = await belongings(world.store, "acme")
            with pytest.raises(ThreadExists):
                await world.other.import_(archive([replace(root, thread_id="t"), message, *kept]))
            assert await belongings(world.store, "acme") == before

    run(scenario)


def test_an_archive_of_acmes_with_the_name_changed_is_other_words_about_other_threads_or_refused() -> None:
    async def scenario() -> None:
        async with both(MemoryStore()) as world:
            await (await world.acme.thread("t")).freeze()
            records = await world.store.export_tree("t", 0)
            renamed = [replace(one, tenant="other") if isinstance(one, ThreadRecord) else one for one in records]
            async with system([], store=MemoryStore(), tenant="other", run=False) as elsewhere:
                with pytest.raises(MalformedInput, match="launched for another tenant"):
                    await elsewhere.import_(archive(renamed))

    run(scenario)


# What is let in, and lies all the same


@pytest.mark.parametrize("kind", ["memory", "sqlite"])
@pytest.mark.parametrize("name", ["send_message_to_child", "close_thread"])
def test_a_thread_that_takes_another_tenants_for_its_child_reaches_nothing(
    name: str, kind: str, tmp_path: Path
) -> None:
    arguments = {"thread_id": "t", **({"message": "Hello"} if name == "send_message_to_child" else {})}

    def answer(request: ModelRequest) -> ScriptedTurn:
        return say("Tried.") if last_result(request) else call(name, arguments)

    async def scenario() -> None:
        async with opened(kind, tmp_path) as store, both(store) as world:
            own = with_head(await own_tree(world), children={"t": Child("call_1", "spawn_thread")})
            before = await belongings(store, "acme")
            await world.other.import_(archive(own))
            async with system(answer, store=store, clock=world.clock, tenant="other") as it:
                agent = await it.thread("o")
                await agent.thaw()
                await until_told(agent, "says: Tried.")
                await agent.close()
                await it.wait_idle()
            assert await belongings(store, "acme") == before

    run(scenario)


@pytest.mark.parametrize("kind", ["memory", "sqlite"])
@pytest.mark.parametrize("word", ["cancel", "close", "result"])
def test_a_thread_that_takes_another_tenants_call_for_its_own_neither_ends_nor_settles_it(
    word: str, kind: str, tmp_path: Path
) -> None:
    begun, stopped = asyncio.Event(), asyncio.Event()

    @tool
    async def work() -> str:
        """Work."""
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            stopped.set()
        return ""

    def answer(request: ModelRequest) -> ScriptedTurn:
        return call("work") if request.thread_id == "a" else say("Mine.")

    async def scenario() -> None:
        async with opened(kind, tmp_path) as store:
            more: dict[str, Any] = {"store": store, "clock": ManualClock()}
            async with (
                system(answer, work, tenant="other", all_tenants=True, **more) as other,
                system([], tenant="acme", run=False, **more) as acme,
            ):
                agent = await acme.launch(thread_id="a", message="Work")
                await begun.wait()
                (row,) = await store.read_effects("a")
                stolen = row.effect.call_id
                mine = await other.launch(thread_id="o", message="Hello")
                await until_told(mine, "says: Mine.")
                await mine.freeze()
                own = await store.export_tree("o", 0)
                await mine.delete()
                await other.import_(archive(with_head(own, calls={stolen: Call(stolen, "work", state="detached")})))
                await mine.thaw()
                before = await belongings(store, "acme")
                if word == "cancel":
                    await mine.cancel(stolen)
                elif word == "close":
                    await mine.close()
                else:
                    await other.put(InputMessage(f"result:{stolen}", "o", ToolResult(stolen, "forged")))
                while (await mine.state()).waiting or stolen in await owed_or_open(mine):
                    await settle()
                assert await belongings(store, "acme") == before
                assert not stopped.is_set()
                await agent.cancel(stolen)
                await stopped.wait()

    async def owed_or_open(mine: ThreadHandle) -> set[str]:
        """Return the calls that the thread has open, and those that are still to be told of their end."""
        open_calls = {one.call_id for one in (await mine.state()).calls if one.state == "detached"}
        return open_calls | {row.effect.call_id for row in await mine._system.store.read_effects(mine.thread_id)}

    run(scenario)


@pytest.mark.parametrize("kind", ["memory", "sqlite"])
def test_a_history_that_tells_of_another_tenants_thread_shows_nothing_of_it(kind: str, tmp_path: Path) -> None:
    async def scenario() -> None:
        async with opened(kind, tmp_path) as store, both(store) as world:
            async with system(lambda _: say("Mine."), store=store, clock=world.clock, tenant="other") as it:
                agent = await it.thread("o")
                await agent.send("Hello")
                await until_told(agent, "says: Mine.")
            await agent.freeze()
            records = await store.export_tree("o", 0)
            await (await world.other.thread("o")).delete()
            forged = [
                replace(one, page=encode_page([*decode_page(one.page), SpawnItem("t", "call_1", False)]))
                if isinstance(one, CommitRecord)
                else one
                for one in records
            ]
            await world.other.import_(archive(forged))
            agent = await world.other.thread("o")
            seen = []
            with pytest.raises(UnknownThread):
                seen += [event async for event in agent.events(follow=False, tree=True)]
            assert SECRET not in repr(seen)
            assert SECRET not in repr(await agent.tree())

    run(scenario)
