"""A child shares its parent's history by reference: it is shown the same items, and its chain starts from theirs."""

import pytest

from hibernaut.codec import pack
from hibernaut.errors import StoreCorrupt, VerificationFailed
from hibernaut.handle import ThreadHandle
from hibernaut.messages.items import (
    CallItem,
    Item,
    ResultItem,
    SpawnItem,
    SummaryItem,
    TextItem,
    UserItem,
    encode_page,
)
from hibernaut.models.protocol import ModelRequest
from hibernaut.models.scripted import ScriptedModel, ScriptedTurn, call, last_user_text, say, turn
from hibernaut.stores.memory import MemoryStore
from hibernaut.stores.protocol import LogRow
from hibernaut.system import AgentSystem
from hibernaut.tools.tool import tool
from tests.engine.scenario import head_of, run, system


@tool
async def look(what: str) -> str:
    """Look at something."""
    return f"{what} is fine"


def is_child(request: ModelRequest) -> bool:
    return any(
        "You are now in a" in str(item.content)
        for item in request.transcript
        if isinstance(item, UserItem | ResultItem)
    )


def spawning(request: ModelRequest) -> ScriptedTurn:
    """A parent that looks, then makes a child between two other calls; whoever is asked afterwards says so."""
    calls = [item.name for item in request.transcript if isinstance(item, CallItem)]
    if not calls:
        return call("look", what="the roof")
    if "spawn_thread" not in calls:
        spawn = call("spawn_thread", instructions="Count the tiles.", child_of=[])
        return turn("I have it counted.", call("look", what="a"), spawn, call("look", what="b"))
    return say(f"{'Child' if is_child(request) else 'Parent'} of {last_user_text(request)}")


async def child_of(it: AgentSystem, agent: ThreadHandle) -> ThreadHandle:
    spawned = [item for item in await agent.history() if isinstance(item, SpawnItem)]
    return await it.thread(spawned[-1].thread_id)


def request_of(model: ScriptedModel, thread_id: str, place: int = 0) -> ModelRequest:
    return [request for request in model.requests if request.thread_id == thread_id][place]


def test_a_child_is_shown_what_its_parent_was_shown_byte_for_byte() -> None:
    model = ScriptedModel(spawning)

    async def scenario() -> None:
        async with system(model, look) as it:
            agent = await it.launch()
            await agent.send("Check the roof")
            await it.wait_idle()
            child = await child_of(it, agent)
            ours, its = (
                [pack(item) for item in request_of(model, name, place).transcript]
                for name, place in ((agent.thread_id, -1), (child.thread_id, 0))
            )
            # User, call, result, then the turn of a text and three calls: so much is shared.
            assert its[:7] == ours[:7]
            assert its[7] != ours[7]
            assert request_of(model, child.thread_id).instructions == request_of(model, agent.thread_id).instructions
            assert [
                item.call_id
                for item in request_of(model, child.thread_id).transcript[7:]
                if isinstance(item, ResultItem)
            ]
            inherited = (await child.history(inherited=True))[: -len(await child.history())]
            assert inherited == (await agent.history())[: len(inherited)]
            assert isinstance(inherited[-1], CallItem)

    run(scenario)


def test_a_fresh_child_inherits_nothing() -> None:
    def answer(request: ModelRequest) -> ScriptedTurn:
        if is_child(request):
            return say("Done.")
        made = any(isinstance(item, CallItem) for item in request.transcript)
        return say("Well.") if made else call("spawn_thread", instructions="Think.", child_of=[], fresh_context=True)

    model = ScriptedModel(answer)

    async def scenario() -> None:
        async with system(model) as it:
            agent = await it.launch()
            await agent.send("Hello")
            await it.wait_idle()
            child = await child_of(it, agent)
            assert len(request_of(model, child.thread_id).transcript) == 1
            assert await child.history(inherited=True) == await child.history()
            assert await it.verify(child.thread_id) == (await child.state()).version

    run(scenario)


def test_a_grandchild_inherits_from_all_above_it_and_every_chain_holds() -> None:
    def answer(request: ModelRequest) -> ScriptedTurn:
        made = sum(isinstance(item, CallItem) and item.name == "spawn_thread" for item in request.transcript)
        mine = [
            item
            for item in request.transcript
            if isinstance(item, ResultItem) and "stack of threads is" in str(item.content)
        ]
        if made == len(mine) and made < 3:
            stack = str(mine[-1].content).split("stack of threads is [")[1].split("]")[0] if mine else ""
            names = [name.strip().strip('"') for name in stack.split(",") if name.strip()]
            return call("spawn_thread", instructions=f"Level {made + 1}", child_of=names)
        return say(f"Level {len(mine)} of {made}")

    model = ScriptedModel(answer)

    async def scenario() -> None:
        async with system(model) as it:
            agent = await it.launch()
            await agent.send("Go down")
            await it.wait_idle()
            threads = [agent]
            for _ in range(3):
                threads.append(await child_of(it, threads[-1]))
            for thread in threads:
                assert await it.verify(thread.thread_id) > 0
            deepest = request_of(model, threads[-1].thread_id).transcript
            for level, thread in enumerate(threads[1:], 1):
                first = request_of(model, thread.thread_id).transcript
                assert deepest[: len(first) - 1] == first[:-1]
                assert f"Level {level}" in str(first[-1])
            whole = await threads[-1].history(inherited=True)
            assert whole[0] == UserItem("Go down")
            assert [item.name for item in whole if isinstance(item, CallItem)] == ["spawn_thread"] * 3

    run(scenario)


class TamperedStore(MemoryStore):
    """A store in which a page of one thread is another one than was written."""

    def __init__(self) -> None:
        super().__init__()
        self.forged: dict[tuple[str, int], bytes | None] = {}

    async def read_log(self, thread_id: str, after: int = 0, limit: int = 0) -> list[LogRow]:
        rows = []
        for row in await super().read_log(thread_id, after, limit):
            page = self.forged.get((thread_id, row.version), row.page)
            if page is not None:
                rows.append(LogRow(row.version, page, row.receipt))
        return rows


@pytest.mark.parametrize("forged", [encode_page([UserItem("Other")] * 9), encode_page([]), None])
def test_what_a_child_inherits_cannot_be_changed_unseen(forged: bytes | None) -> None:
    store = TamperedStore()

    async def scenario() -> None:
        async with system(ScriptedModel(spawning), look, store=store) as it:
            agent = await it.launch()
            await agent.send("Check the roof")
            await it.wait_idle()
            child = await child_of(it, agent)
            link = (await head_of(child)).link
            assert link is not None
            assert await it.verify(child.thread_id) > 0
            store.forged[agent.thread_id, link.version + 1] = forged
            with pytest.raises(VerificationFailed):
                await it.verify(child.thread_id)

    run(scenario)


def test_what_was_inherited_and_is_gone_is_an_error_and_not_empty() -> None:
    store = TamperedStore()

    async def scenario() -> None:
        async with system(ScriptedModel(spawning), look, store=store) as it:
            agent = await it.launch()
            await agent.send("Check the roof")
            await it.wait_idle()
            child = await child_of(it, agent)
            store.forged[agent.thread_id, 1] = None
            with pytest.raises(StoreCorrupt):
                await child.history(inherited=True)

    run(scenario)


def test_a_summary_of_the_parent_is_inherited_and_what_it_covers_is_not_read() -> None:
    asked: list[tuple[str, int]] = []

    class Counting(MemoryStore):
        async def read_log(self, thread_id: str, after: int = 0, limit: int = 0) -> list[LogRow]:
            asked.append((thread_id, after))
            return await super().read_log(thread_id, after, limit)

    def answer(request: ModelRequest) -> ScriptedTurn:
        if request.purpose == "summary":
            return say("They talked.")
        if last_user_text(request) == "Make one" and not any(isinstance(i, CallItem) for i in request.transcript):
            return call("spawn_thread", instructions="Think.", child_of=[])
        return say("Yes. " + "word " * 200)

    model = ScriptedModel(answer)

    async def scenario() -> None:
        store = Counting()
        async with system(model, store=store) as it:
            agent = await it.launch()
            for text in ("One", "Two", "Three"):
                await agent.send(text)
                await it.wait_idle()
            await agent.compact()
            await it.wait_idle()
            summary = (await head_of(agent)).summary
            assert summary is not None
            asked.clear()
            await agent.send("Make one")
            await it.wait_idle()
            child = await child_of(it, agent)
            link = (await head_of(child)).link
            assert link is not None
            assert link.summary == summary
            assert {after for name, after in asked if name == agent.thread_id} >= {summary.kept - 1}
            first = request_of(model, child.thread_id).transcript
            parents = request_of(model, agent.thread_id, -1).transcript
            assert "They talked." in str(first[0])
            assert [pack(item) for item in first[:-1]] == [pack(item) for item in parents[: len(first) - 1]]
            assert await it.verify(child.thread_id) > 0
            whole = await child.history(inherited=True)
            assert whole[0] == UserItem("One")
            assert any(isinstance(item, SummaryItem) for item in whole)

    run(scenario)


def test_a_page_of_a_child_never_holds_what_it_inherits() -> None:
    async def scenario() -> None:
        async with system(ScriptedModel(spawning), look) as it:
            agent = await it.launch()
            await agent.send("Check the roof")
            await it.wait_idle()
            child = await child_of(it, agent)
            own: list[Item] = await child.history()
            assert not any(isinstance(item, UserItem) and item.content == "Check the roof" for item in own)
            assert any(isinstance(item, TextItem) for item in own)

    run(scenario)
