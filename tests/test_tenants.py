"""Nothing of one tenant can be reached by another: every way in is tried, on every store."""

import contextlib
import io
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar

import pytest

from hibernaut.codec import sha256
from hibernaut.engine.audit_all import batches
from hibernaut.engine.trees import cursor_now
from hibernaut.errors import (
    HibernautError,
    MalformedInput,
    ThreadExists,
    TokenRefused,
    UnknownEffect,
    UnknownQuestion,
    UnknownThread,
)
from hibernaut.handle import ThreadHandle
from hibernaut.kernel.authority import Authority
from hibernaut.messages.events import AgentEvent, ViewChanged
from hibernaut.messages.inputs import Command, InputMessage, ToolResult, UserText
from hibernaut.messages.parts import Excerpt, Image
from hibernaut.models.scripted import say
from hibernaut.stores.memory import MemoryStore
from hibernaut.stores.protocol import Outcome, Store
from hibernaut.system import AgentSystem
from hibernaut.testing.faults import FaultyStore
from tests.engine.scenario import run, system
from tests.tenancy import BLOB, LARGE, SECRET, World, belongings, both, opened

T = TypeVar("T")

Attack = Callable[[World], Awaitable[object]]

KINDS = pytest.mark.parametrize("kind", ["memory", "sqlite"])


async def listed(values: AsyncIterator[Any]) -> list[Any]:
    return [value async for value in values]


async def exported(system: AgentSystem, thread_id: str) -> io.BytesIO:
    file = io.BytesIO()
    await system.export(thread_id, file)
    file.seek(0)
    return file


async def import_of_acme(world: World) -> object:
    await (await world.acme.thread("t")).freeze()
    return await world.other.import_(await exported(world.acme, "t"))


async def answered_in_short(world: World) -> object:
    return await world.other.answer(world.question.partition("@")[0], "yes")


# What other tries with its own system, by the method, and what it gets: an error, or what is not acme's.
SYSTEM: dict[str, list[tuple[Attack, type[HibernautError] | object]]] = {
    "answer": [
        (lambda w: w.other.answer(w.question, "yes", user="ann"), UnknownQuestion),
        (answered_in_short, UnknownQuestion),
    ],
    "audit": [(lambda w: w.other.audit("t"), UnknownThread)],
    "command": [
        (lambda w: w.other.command("t", Command("stop")), UnknownThread),
        (lambda w: w.other.command("o", Command("authorize", authority=BLOB.digest)), MalformedInput),
    ],
    "deliver": [(lambda w: w.other.deliver(w.token, "forged"), UnknownThread)],
    "deletion": [(lambda w: w.other.deletion("t"), None)],
    "effect": [
        (lambda w: w.other.effect(w.calls["ask_outside"]), UnknownEffect),
        (lambda w: w.other.effect(w.calls["ask_outside"].removeprefix("call_")), UnknownEffect),
    ],
    "effects": [(lambda w: w.other.effects(), []), (lambda w: w.other.effects("t"), UnknownThread)],
    "export": [(lambda w: exported(w.other, "t"), UnknownThread)],
    "fork": [
        (lambda w: w.other.fork("t"), UnknownThread),
        (lambda w: w.other.fork("o", name="t"), UnknownThread),
    ],
    "import_": [(import_of_acme, MalformedInput)],
    "launch": [
        (lambda w: w.other.launch(thread_id="t"), UnknownThread),
        (lambda w: w.other.launch(thread_id="t", message="Hello", user="ann"), UnknownThread),
    ],
    "migrate": [(lambda w: w.other.migrate("t", MemoryStore()), UnknownThread)],
    "prune": [(lambda w: w.other.prune(1 << 60), 0)],
    "put": [(lambda w: w.other.put(InputMessage("m", "t", UserText("Hello"))), UnknownThread)],
    "questions": [(lambda w: w.other.questions(), []), (lambda w: w.other.questions("t"), UnknownThread)],
    "receipts_of": [(lambda w: listed(w.other.receipts_of("t", payloads=True)), UnknownThread)],
    "row": [(lambda w: w.other.row("t"), UnknownThread)],
    "send": [
        (lambda w: w.other.send("t", "Hello", user="ann"), UnknownThread),
        (lambda w: w.other.send("o", (Excerpt("…", BLOB.digest, len(BLOB.data)),)), MalformedInput),
        (lambda w: w.other.send("o", (Image("image/png", blob=BLOB.digest),)), MalformedInput),
    ],
    "settle": [(lambda w: w.other.settle(w.calls["ask_outside"], "forged", reason="mine"), UnknownEffect)],
    "step": [
        (lambda w: stepped(w, UserText("Hello", "ann")), [Outcome.UNKNOWN]),
        (lambda w: stepped(w, ToolResult(w.calls["ask_outside"], "forged")), [Outcome.UNKNOWN]),
        (lambda w: stepped(w, Command("close")), [Outcome.UNKNOWN]),
        (lambda w: stepped(w, Command("authorize", authority=BLOB.digest), "o"), MalformedInput),
    ],
    "thread": [(lambda w: w.other.thread("t"), UnknownThread)],
    "threads": [(lambda w: names_of(w.other), ["o"]), (lambda w: names_of(w.other, before=(1 << 60, "z")), ["o"])],
    "verify": [(lambda w: w.other.verify("t"), UnknownThread)],
}

NO_THREAD = {
    "callbacks": "where callbacks come to",
    "clock": "time",
    "completions": "a number of this process",
    "feed": "of this tenant, see below",
    "ids": "draws names",
    "metrics": "numbers of this process",
    "reconcile": "asks tool servers, see below",
    "save_counts": "numbers of this process",
    "server_places": "what the program was given",
    "servers": "what the program was given",
    "stats": "numbers of the whole store, for whoever runs it; they name no thread",
    "store": "everything there is: whoever holds a store is no tenant, but the house",
    "tenant": "whose it is",
    "tool_servers": "what the program was given",
    "tools": "what the program was given",
    "user_message": "makes a value",
    "wait_idle": "waits for this process's engine",
}
"""What reaches no thread by its id."""


# What other tries with a handle that it made itself, or kept from a thread that it had under that id.
HANDLE: dict[str, Callable[[ThreadHandle, World], Awaitable[object]]] = {
    "authority": lambda handle, _: handle.authority(),
    "authorize": lambda handle, _: handle.authorize(Authority(), tree=True),
    "cancel": lambda handle, world: handle.cancel(world.calls["ask_outside"]),
    "close": lambda handle, _: handle.close(),
    "compact": lambda handle, _: handle.compact(),
    "delete": lambda handle, _: handle.delete(),
    "drop": lambda handle, _: handle.drop("held"),
    "edit": lambda handle, _: handle.edit("held", "forged"),
    "events": lambda handle, _: listed(handle.events(follow=False)),
    "explain": lambda handle, _: handle.explain("ask_outside", {}),
    "fork": lambda handle, _: handle.fork(),
    "freeze": lambda handle, _: handle.freeze(),
    "history": lambda handle, _: handle.history(inherited=True),
    "inbox": lambda handle, _: handle.inbox(),
    "park": lambda handle, _: handle.park(),
    "questions_below": lambda handle, _: handle.questions_below(),
    "receipts": lambda handle, _: handle.receipts(),
    "ask": lambda handle, _: handle.ask("Hello", output=int, user="ann"),
    "resume": lambda handle, _: handle.resume(tree=True),
    "retry": lambda handle, _: handle.retry(),
    "send": lambda handle, _: handle.send("Hello", user="ann"),
    "state": lambda handle, _: handle.state(),
    "stop": lambda handle, _: handle.stop(tree=True),
    "thaw": lambda handle, _: handle.thaw(),
    "tree": lambda handle, _: handle.tree(),
    "views": lambda handle, _: handle.views(),
    "wait_idle": lambda handle, _: handle.wait_idle(),
}


async def stepped(world: World, content: Any, thread_id: str = "t") -> object:
    result = await world.other.step([InputMessage("m", thread_id, content, "test")])
    assert result.completions == 0
    return list(result.outcomes)


async def names_of(system: AgentSystem, **more: Any) -> object:
    return [state.thread_id for state in await system.threads(**more)]


def public(kind: type) -> set[str]:
    return {name for name in dir(kind) if not name.startswith("_")}


def test_every_way_in_is_tried() -> None:
    assert public(AgentSystem) == {*SYSTEM, *NO_THREAD}
    assert public(ThreadHandle) == {*HANDLE, "thread_id"}


@KINDS
def test_a_system_reaches_nothing_of_another_tenant(kind: str, tmp_path: Path) -> None:
    async def scenario() -> None:
        async with opened(kind, tmp_path) as store, both(store) as world:
            for name, attacks in SYSTEM.items():
                for attack, expected in attacks:
                    before = await belongings(store, "acme")
                    if isinstance(expected, type):
                        with pytest.raises(expected) as refusal:
                            await attack(world)
                        assert SECRET not in str(refusal.value), name
                    else:
                        assert await attack(world) == expected, name
                    if name == "import_":
                        await (await world.acme.thread("t")).thaw()
                    assert await belongings(store, "acme") == before, name

    run(scenario)


@KINDS
def test_a_handle_reaches_nothing_of_another_tenant(kind: str, tmp_path: Path) -> None:
    async def scenario() -> None:
        async with opened(kind, tmp_path) as store, both(store) as world:
            before = await belongings(store, "acme")
            for attack in HANDLE.values():
                with pytest.raises(UnknownThread) as refusal:
                    await attack(ThreadHandle(world.other, "t"), world)
                assert SECRET not in str(refusal.value)
            assert await belongings(store, "acme") == before

    run(scenario)


def test_what_is_tried_is_there_to_be_had_for_whose_it_is() -> None:
    async def scenario() -> None:
        async with both(MemoryStore()) as world:
            agent = await world.acme.thread("t")
            known = [
                await world.acme.effects("t"),
                await world.acme.questions(),
                await listed(world.acme.receipts_of("t", payloads=True)),
                await agent.history(),
                await agent.state(),
                await agent.views(),
                await listed(agent.events(follow=False)),
            ]
            assert [SECRET in repr(one) for one in known] == [True] * len(known)
            assert await world.store.read_blob(BLOB.digest) == BLOB.data
            assert BLOB.digest == sha256(BLOB.data)
            await world.acme.deliver(world.token, "genuine")
            await world.acme.answer(world.question, "yes")
            await agent.freeze()
            file = await exported(world.acme, "t")
            with pytest.raises(ThreadExists):
                await world.acme.import_(file)

    run(scenario)


# Ids that are used again


@KINDS
def test_what_is_left_of_a_thread_is_worth_nothing_for_the_thread_that_has_its_id_now(
    kind: str, tmp_path: Path
) -> None:
    async def scenario() -> None:
        async with opened(kind, tmp_path) as store, both(store) as world:
            kept = await world.acme.thread("t")
            cursor = (await listed(kept.events(follow=False, tree=True)))[-1].cursor
            await kept.delete()
            await world.other.launch("Mine.", thread_id="t", message="Mine.")
            await store.put_view("t", "plan", "1", 0)
            before = await belongings(store, "other")
            for attack in HANDLE.values():
                with pytest.raises(UnknownThread):
                    await attack(kept, world)
            for after in ("", cursor):
                with pytest.raises(UnknownThread):
                    await listed(kept.events(after, follow=False, tree=bool(after)))
            with pytest.raises(UnknownThread):
                await world.acme.deliver(world.token, "late")
            with pytest.raises(TokenRefused, match="has not made"):
                await world.other.deliver(world.token, "stolen")
            with pytest.raises(UnknownQuestion):
                await world.acme.answer(world.question, "yes")
            assert await belongings(store, "other") == before

    run(scenario)


def test_a_token_is_for_the_thread_that_gave_it_out_and_not_for_a_later_one_of_the_same_tenant() -> None:
    async def scenario() -> None:
        async with both(MemoryStore()) as world:
            await (await world.acme.thread("t")).delete()
            await world.acme.launch(thread_id="t")
            with pytest.raises(TokenRefused, match="has not made"):
                await world.acme.deliver(world.token, "late")

    run(scenario)


def test_whoever_follows_a_thread_is_not_shown_the_one_that_another_tenant_makes_under_its_id() -> None:
    async def scenario() -> None:
        store = MemoryStore()
        async with both(store) as world:
            agent = await world.acme.thread("t")
            followers = [aiter(agent.events()), aiter(agent.events(tree=True))]
            for follower in followers:
                seen = [await anext(follower) for _ in range(3)]
                assert SECRET in repr(seen)
                cursor = seen[-1].cursor
                assert cursor
            await agent.delete()
            mine = await world.other.launch(thread_id="t", message="Mine.")
            async with system(lambda _: say("Mine."), store=store, clock=world.clock, tenant="other") as running:
                for number in range(8):
                    await mine.send(f"Mine {number}.")
                    await running.wait_idle()
            for follower in followers:
                world.acme.feed.moved("t")
                with pytest.raises(UnknownThread):
                    await read_on(follower)

    run(scenario)


async def read_on(follower: AsyncIterator[AgentEvent]) -> None:
    """Read what a follower still had, which is acme's own, and go on."""
    async for event in follower:
        assert "Mine" not in repr(event)


def test_a_view_of_a_thread_that_another_tenant_made_under_an_id_is_not_shown_to_who_watched_it() -> None:
    async def scenario() -> None:
        async with both(MemoryStore()) as world:
            agent = await world.acme.thread("t")
            follower = agent.events()
            while not isinstance(await anext(follower), ViewChanged):
                pass
            await agent.delete()
            await world.other.launch(thread_id="t")
            world.acme.feed.view("t", "plan", '"Mine"')
            with pytest.raises(UnknownThread):
                await read_on(follower)

    run(scenario)


def test_a_cursor_of_a_tree_that_names_the_thread_of_another_tenant_shows_nothing_of_it() -> None:
    async def scenario() -> None:
        async with both(MemoryStore()) as world:
            own = await world.other.thread("o")
            forged = cursor_now({"o": 0, "t": 0})
            with pytest.raises(UnknownThread):
                await listed(own.events(forged, follow=False, tree=True))

    run(scenario)


# Races


class Hasty(FaultyStore):
    """A store in which acme is a moment faster than whoever comes next."""

    hurry: Callable[[], Awaitable[object]] | None = None

    async def _perform(self, name: str, operation: Callable[[], Awaitable[T]]) -> T:
        if name in ("create", "put", "delete", "freeze", "thaw") and self.hurry is not None:
            hurry, self.hurry = self.hurry, None
            await hurry()
        return await super()._perform(name, operation)


@pytest.mark.parametrize(
    "attack",
    [
        lambda it: it.launch(thread_id="n", message="Hello"),
        lambda it: it.launch(thread_id="n"),
        lambda it: it.send("n", "Hello"),
        lambda it: it.put(InputMessage("m", "n", UserText("Hello"))),
        lambda it: it.command("n", Command("stop")),
    ],
)
def test_a_thread_that_another_tenant_makes_at_the_same_moment_is_its_own(
    attack: Callable[[AgentSystem], Awaitable[object]],
) -> None:
    async def scenario() -> None:
        store = MemoryStore()
        hasty = Hasty(store)
        async with client(store, "acme") as acme, client(hasty, "other") as it:
            hasty.hurry = lambda: acme.launch(thread_id="n")
            with pytest.raises(UnknownThread):
                await attack(it)
            assert await it.threads() == []
            assert await store.read_inbox("n") == ()

    run(scenario)


@pytest.mark.parametrize("word", ["delete", "freeze", "thaw", "send", "stop"])
def test_what_was_meant_for_a_thread_does_not_befall_the_one_that_another_tenant_has_just_made(word: str) -> None:
    async def scenario() -> None:
        store = MemoryStore()
        hasty = Hasty(store)
        async with client(store, "acme") as acme, client(hasty, "other") as it:
            agent = await it.launch(thread_id="n")

            async def replace_it() -> None:
                await store.delete("n")
                made = await acme.launch(thread_id="n")
                if word == "thaw":
                    await made.freeze()

            hasty.hurry = replace_it
            with contextlib.suppress(UnknownThread):
                assert await getattr(agent, word)(*(["Hello"] if word == "send" else [])) == 0
            (state,) = await acme.threads()
            assert (state.frozen, state.waiting) == (word == "thaw", 0)

    run(scenario)


# Blobs


def test_the_same_bytes_of_two_tenants_stay_as_long_as_one_of_them_has_them() -> None:
    async def scenario() -> None:
        store = MemoryStore()
        hasty = Hasty(store)
        async with client(store, "acme") as acme, client(hasty, "other") as it:
            agent = await acme.launch(thread_id="a", message=LARGE)
            await it.launch(thread_id="b", message=LARGE)
            await agent.delete()
            assert await store.read_blob(BLOB.digest) == BLOB.data
            agent = await acme.launch(thread_id="a", message=LARGE)
            await (await it.thread("b")).delete()
            # Bytes come in the transaction that refers to them, so that nobody deletes them in between.
            hasty.hurry = agent.delete
            await it.send("b", LARGE)
            assert await store.read_blob(BLOB.digest) == BLOB.data
            await (await it.thread("b")).delete()
            assert await store.read_blob(BLOB.digest) is None

    run(scenario)


# Message ids


@KINDS
def test_a_message_id_is_a_threads_own(kind: str, tmp_path: Path) -> None:
    async def scenario() -> None:
        async with opened(kind, tmp_path) as store, client(store, "acme") as acme, client(store, "other") as it:
            first = await acme.launch(thread_id="a")
            second = await it.launch(thread_id="b")
            for agent in (first, second):
                await agent.send("Hello", message_id="m1")
                await agent.send("Hello", message_id="m1")
                assert (await agent.state()).waiting == 1

    run(scenario)


def client(store: Store, tenant: str) -> AgentSystem:
    return system([], store=store, tenant=tenant, run=False)


# Audits


@KINDS
def test_whoever_checks_all_threads_checks_its_own(kind: str, tmp_path: Path) -> None:
    async def scenario() -> None:
        async with opened(kind, tmp_path) as store, both(store):
            found = {
                tenant: [row.tenant for rows in await listed(batches(store, tenant)) for row in rows]
                for tenant in ("acme", "other", "")
            }
            assert found == {"acme": ["acme"] * 2, "other": ["other"], "": []}

    run(scenario)
