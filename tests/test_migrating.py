"""Moving a tree from store to store: all of it, once, or not at all, wherever it fails."""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Sequence
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from hibernaut.errors import (
    ConfigurationError,
    MoveUnfinished,
    NotAtRest,
    ServersNotMoved,
    StoreBusy,
    ThreadExists,
)
from hibernaut.kernel.commit import Blob
from hibernaut.messages.inputs import InputMessage, UserText
from hibernaut.models.scripted import call, say
from hibernaut.moving import Move
from hibernaut.stores.archive import Record
from hibernaut.stores.memory import MemoryStore
from hibernaut.stores.protocol import Outcome, Store
from hibernaut.stores.sqlite import SqliteStore
from hibernaut.system import AgentSystem
from hibernaut.testing.clock import ManualClock
from hibernaut.testing.faults import FaultPlan, FaultyStore, SimulatedCrash
from hibernaut.tools.tool import tool
from tests.engine.scenario import (
    run,
    settle,
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


def test_a_copy_that_was_made_though_the_destination_failed_is_removed() -> None:
    class Unsure(FaultyStore):
        async def import_tree(self, records: Sequence[Record], *, reissue: Collection[str] = ()) -> int:
            await super().import_tree(records, reissue=reissue)
            raise StoreBusy("nobody heard of it")

    async def scenario() -> None:
        source, destination = MemoryStore(), MemoryStore()
        await a_conversation(source)
        before = await everything(source)
        with pytest.raises(StoreBusy):
            await move(source, Unsure(destination)).run()
        assert await everything(source) == before
        assert await destination.list_threads() == []

    run(scenario)


def test_what_the_destination_does_not_take_stays_in_the_source() -> None:
    class Deaf(FaultyStore):
        async def put(
            self,
            messages: Sequence[InputMessage],
            now: int,
            *,
            due: int = 0,
            blobs: Sequence[Blob] = (),
            tenant: str | None = None,
        ) -> list[Outcome]:
            return [Outcome.FULL for _ in messages]

    class Chatty(FaultyStore):
        async def delete(self, root: str, **more: Any) -> int:
            await self.put([result("late")], START + 5)
            return await super().delete(root, **more)

    async def scenario() -> None:
        source, destination = MemoryStore(), MemoryStore()
        await a_conversation(source)
        with pytest.raises(MoveUnfinished, match="full"):
            await move(Chatty(source), Deaf(destination)).run()
        assert [one.message_id for one in await source.read_inbox("t")] == ["alarm", "late"]
        assert await move(source, destination).run() == 2
        assert [one.message_id for one in await destination.read_inbox("t")] == ["alarm", "late"]

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
    async with AgentSystem(store=source, run=False) as here:
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
        async def delete(self, root: str, **more: Any) -> int:
            await move_too()
            return await super().delete(root, **more)

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
        async def delete(self, root: str, **more: Any) -> int:
            if self.operations.count("delete") < 2:
                name = f"late {self.operations.count('delete')}"
                await self.put([replace(late, message_id=name)], START + 5, due=START + 7)
                await self.put_view("child", "todo", f'"{name}"', START + 6)
            return await super().delete(root, **more)

    async def scenario() -> None:
        source, destination = MemoryStore(), MemoryStore()
        await a_conversation(source)
        assert await move(Chatty(source), destination).run() == 2
        (view,) = await destination.read_views("child")
        assert (view.content, view.updated) == ('"late 1"', START + 6)
        inbox = await destination.read_inbox("child")
        assert [(one.message_id, one.accepted, one.due) for one in inbox[1:]] == [
            ("late 0", START + 5, START + 7),
            ("late 1", START + 5, START + 7),
        ]
        assert await source.list_threads() == []

    run(scenario)


def test_a_tree_that_is_thawed_while_it_moves_goes_on_where_it_was() -> None:
    class Thawing(FaultyStore):
        async def delete(self, root: str, **more: Any) -> int:
            await self.thaw(root)
            return await super().delete(root, **more)

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
