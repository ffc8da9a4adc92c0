"""Forks: a new root that goes on from what another thread had come to, and leaves that one alone."""

import io
from contextlib import suppress

import pytest
from msgspec.structs import replace

from hibernaut.errors import HasForks, MalformedInput, ThreadExists, UnknownThread
from hibernaut.handle import ThreadHandle
from hibernaut.kernel.authority import Authority, Rule
from hibernaut.kernel.compaction import HEADING
from hibernaut.messages.items import CallItem, Item, ResultItem, TextItem, UserItem
from hibernaut.messages.parts import plain_text
from hibernaut.models.protocol import ModelRequest
from hibernaut.models.scripted import ScriptedModel, ScriptedTurn, call, last_user_text, say
from hibernaut.stores.archive import ForkRecord, ThreadRecord
from hibernaut.stores.archive_file import archive_of
from hibernaut.stores.memory import MemoryStore
from hibernaut.stores.protocol import Store
from hibernaut.system import AgentSystem
from hibernaut.testing.faults import FaultPlan, FaultyStore
from hibernaut.tools.tool import tool
from tests.engine.scenario import head_of, run, story, system
from tests.store_conformance.scenario import START


@tool
async def build() -> str:
    """Build it."""
    return "built"


def answer(request: ModelRequest) -> ScriptedTurn:
    last = request.transcript[-1]
    if isinstance(last, UserItem) and not last.origin and str(last.content).startswith("Build"):
        return call("build")
    return say(f"You said: {last_user_text(request)}" if isinstance(last, UserItem) else "It is built.")


async def talked(it: AgentSystem, thread_id: str = "t") -> ThreadHandle:
    """Make a thread whose history is: 1 text, 2 answer, 3 text, 4 call, 5 result, 6 answer."""
    agent = await it.launch("You build.", thread_id=thread_id)
    for text in ("Hello", "Build it"):
        await agent.send(text)
        await agent.wait_idle()
    return agent


async def shared(fork: ThreadHandle) -> list[Item]:
    """Return what a fork has of its origin's history."""
    whole, own = await fork.history(inherited=True), await fork.history()
    return whole[: len(whole) - len(own)]


def test_a_fork_goes_on_from_the_history_that_it_shares_and_its_origin_does_not_notice() -> None:
    async def scenario() -> None:
        async with system(answer, build) as it:
            agent = await talked(it)
            before = await agent.history()
            fork = await agent.fork(2, reason="to try again")
            await fork.send("Build the other one")
            assert (await fork.wait_idle()).fork_of == "t"
            assert await shared(fork) == before[:2]
            kinds = [type(item) for item in await fork.history()]
            assert kinds == [UserItem, UserItem, CallItem, ResultItem, TextItem]
            assert await agent.history() == before
            assert {row.thread_id for row in await it.store.list_threads(roots=True)} == {"t", fork.thread_id}

    run(scenario)


def test_a_fork_is_launched_and_allowed_as_its_origin_is() -> None:
    async def scenario() -> None:
        async with system(answer, build, tenant="x") as it:
            agent = await talked(it)
            await agent.authorize(Authority(rules=(Rule(decision="deny", tools=("build",)),)))
            await agent.send("Hello again", metadata={"room": 7})
            await agent.wait_idle()
            origin = await head_of(agent)
            fork = await agent.fork()
            made = await head_of(fork)
            copied = ("config", "authority", "metadata", "model", "toolsets")
            assert [getattr(made, name) for name in copied] == [getattr(origin, name) for name in copied]
            assert made.salt != origin.salt
            assert (await it.row(fork.thread_id)).tenant == "x"
            await fork.send("Build it")
            await fork.wait_idle()
            assert "error: Not run: this thread's authority does not allow it." in await story(fork)

    run(scenario)


def test_a_fork_with_an_authority_of_its_origin_is_verified_before_it_has_run() -> None:
    store = MemoryStore()

    async def scenario() -> None:
        async with system(answer, build, store=store) as it:
            agent = await talked(it)
            await agent.authorize(Authority(calls=7))
            await agent.wait_idle()
        async with system(answer, build, store=store, run=False) as it:
            fork = await (await it.thread("t")).fork()
            assert (await head_of(fork)).authority
            assert await it.verify(fork.thread_id) == 0

    run(scenario)


@pytest.mark.parametrize("at", [1, 3, 5])
def test_a_fork_whose_history_waits_for_an_answer_is_answered_at_once(at: int) -> None:
    async def scenario() -> None:
        async with system(answer, build) as it:
            fork = await (await talked(it)).fork(at)
            await fork.wait_idle()
            assert [type(item) for item in await fork.history()] == [UserItem, TextItem]

    run(scenario)


def test_a_fork_that_owes_nothing_says_nothing_until_it_is_spoken_to() -> None:
    async def scenario() -> None:
        async with system(answer, build) as it:
            fork = await (await talked(it)).fork()
            state = await fork.wait_idle()
            assert (state.activity, state.items, len(await shared(fork))) == ("idle", 1, 6)
            other = await (await it.thread("t")).fork(message="Build more")
            await other.wait_idle()
            assert (await story(other))[-1] == "says: It is built."

    run(scenario)


def test_the_chain_of_a_fork_begins_with_the_digest_of_its_origin_and_says_who_made_it_and_why() -> None:
    async def scenario() -> None:
        async with system(answer, build) as it:
            agent = await talked(it)
            fork = await agent.fork(2, reason="to try again")
            further = await fork.fork(message="Build it")
            for one in (fork, further):
                await one.wait_idle()
                assert await it.verify(one.thread_id) == (await one.state()).version
            origin = [one async for one in it.receipts_of("t")]
            first, *_ = [one async for one in it.receipts_of(fork.thread_id)]
            assert first.history_before == origin[0].history_after
            (decision,) = first.operator_decision
            assert (decision.action, decision.reason, decision.sender) == ("fork", "to try again", "operator")
            assert decision.input == "fork:t:2"
            assert await it.verify("t") == len(origin)

    run(scenario)


def test_a_fork_stands_never_between_a_call_and_its_result() -> None:
    async def scenario() -> None:
        async with system(answer, build) as it:
            agent = await talked(it)
            with pytest.raises(MalformedInput, match=r"between a call and its result\. Fork it after item 3 or 5"):
                await agent.fork(4)
            assert len(await it.store.list_threads()) == 1

    run(scenario)


def test_what_is_under_way_stays_with_the_origin() -> None:
    async def scenario() -> None:
        async with system([call("sleep", seconds=60), say("Yes?")]) as it:
            agent = await it.launch(thread_id="t")
            await agent.send("Rest a while")
            await agent.wait_idle()
            fork = await agent.fork()
            state = await fork.wait_idle()
            assert (state.calls, await fork.inbox()) == ((), ())
            assert await shared(fork) == (await agent.history())[:1]
            assert (await agent.state()).activity == "resting"

    run(scenario)


def test_a_fork_that_is_made_again_under_its_name_is_the_same() -> None:
    async def scenario() -> None:
        async with system(answer, build) as it:
            agent = await talked(it)
            first = await agent.fork(2, thread_id="fork")
            await first.send("Hello")
            await first.wait_idle()
            again = await agent.fork(2, thread_id="fork")
            assert (await again.state()).items == 3
            with pytest.raises(ThreadExists):
                await agent.fork(1, thread_id="fork")
            with pytest.raises(ThreadExists):
                await agent.fork(thread_id="t")

    run(scenario)


def test_a_child_is_forked_into_a_root_that_knows_what_the_child_knew() -> None:
    def model(request: ModelRequest) -> ScriptedTurn:
        splits = request.transcript[-1] == UserItem("Split")
        return call("spawn_thread", instructions="Count.", child_of=[]) if splits else say("I heard.")

    async def scenario() -> None:
        async with system(model) as it:
            agent = await it.launch(thread_id="t")
            await agent.send("Split")
            await it.wait_idle()
            child = next(state.thread_id for state in await agent.tree() if state.parent)
            fork = await (await it.thread(child)).fork()
            await fork.send("And now?")
            await it.wait_idle()
            state = await fork.state()
            assert (state.parent, state.root, state.fork_of) == ("", "", child)
            assert (await shared(fork))[0] == UserItem("Split")
            assert await it.verify(fork.thread_id) == state.version
            with pytest.raises(HasForks):
                await agent.delete()
            assert await fork.delete() == 1
            assert await agent.delete() == 2

    run(scenario)


def begins(model: ScriptedModel) -> str:
    """Return what the last prompt begins with."""
    first = model.requests[-1].transcript[0]
    assert isinstance(first, UserItem)
    return plain_text(first.content)


def test_a_fork_of_a_history_that_was_compacted_begins_with_the_summary_and_is_compacted_in_its_turn() -> None:
    def brief(request: ModelRequest) -> ScriptedTurn:
        return say("They counted.") if request.purpose == "summary" else say(f"I heard {last_user_text(request)[:1]}.")

    async def scenario() -> None:
        model = ScriptedModel(brief)
        async with system(model) as it:
            agent = await it.launch(thread_id="t")
            for number in range(6):
                await agent.send(f"{number} " + "word " * 400)
                await agent.wait_idle()
            await agent.compact()
            await agent.wait_idle()
            summary = (await head_of(agent)).summary
            fork = await agent.fork()
            early = await agent.fork(2)
            made = [(await head_of(one)).fork for one in (fork, early)]
            assert [one.summary for one in made if one] == [summary, None]
            for number in range(6):
                await fork.send(f"{number} " + "more " * 400)
                await fork.wait_idle()
                assert begins(model).startswith(HEADING)
            await fork.compact()
            await fork.wait_idle()
            await fork.send("Who are you?")
            await fork.wait_idle()
            assert f"You are thread {fork.thread_id}, forked from t" in begins(model)
            await early.send("And you?")
            await early.wait_idle()
            assert begins(model).startswith("0 word")
            for one in (agent, fork, early):
                assert await it.verify(one.thread_id) == (await one.state()).version

    run(scenario)


@pytest.mark.parametrize("after", [False, True])
def test_c35_a_crash_while_a_fork_is_made_leaves_it_whole_or_not_there(*, after: bool) -> None:
    async def scenario() -> None:
        store = MemoryStore()
        async with system(answer, build, store=store) as it:
            await talked(it)
        for crash_at in range(1, 12):
            dying, name = FaultyStore(store, FaultPlan(crash_at=crash_at, after=after)), f"fork {crash_at}"
            with suppress(BaseExceptionGroup):
                async with system([], store=dying, run=False) as it:
                    await (await it.thread("t")).fork(2, thread_id=name, message="Build more")
            there = await store.read_head(name)
            assert len(await store.read_inbox(name)) == (2 if there else 0)
            async with system([], store=store, run=False) as it:
                await (await it.thread("t")).fork(2, thread_id=name)
        async with system(answer, build, store=store) as it:
            await it.wait_idle()
            assert await store.read_forks("t") == [f"fork {number}" for number in range(1, 12)]
            for name in await store.read_forks("t"):
                assert await it.verify(name) == (await (await it.thread(name)).state()).version

    run(scenario)


# Tenants


def test_no_tenant_forks_the_thread_of_another_or_into_its_name() -> None:
    store = MemoryStore()

    async def scenario() -> None:
        async with system(answer, build, store=store, tenant="a") as it:
            await talked(it, "a's")
        async with system(answer, build, store=store, tenant="b") as other:
            agent = await talked(other, "b's")
            with pytest.raises(UnknownThread):
                await other.fork("a's")
            with pytest.raises(UnknownThread):
                await agent.fork(thread_id="a's")
            assert len(await store.list_threads()) == 2

    run(scenario)


# Moving


async def exported(store: Store, thread_id: str) -> io.BytesIO:
    file = io.BytesIO()
    async with system([], store=store, run=False) as it:
        await (await it.thread(thread_id)).freeze()
        await it.export(thread_id, file)
    file.seek(0)
    return file


def test_a_fork_is_imported_where_its_origin_is_and_goes_on_there() -> None:
    source, destination = MemoryStore(), MemoryStore()

    async def scenario() -> None:
        async with system(answer, build, store=source) as it:
            agent = await talked(it)
            fork = await agent.fork(2, thread_id="fork", message="Build more")
            await fork.wait_idle()
        files = [await exported(source, name) for name in ("t", "fork")]
        async with system(answer, build, store=destination) as there:
            with pytest.raises(MalformedInput, match="is a fork of 't', which this tenant does not have here"):
                await there.import_(files[1])
            files[1].seek(0)
            for file in files:
                await (await there.thread((await there.import_(file)).thread_id)).thaw()
            moved = await there.thread("fork")
            assert (await shared(moved))[0] == UserItem("Hello")
            await moved.send("Build still more")
            await moved.wait_idle()
            assert await there.verify("fork") == (await moved.state()).version

    run(scenario)


def test_a_fork_is_not_imported_where_its_origin_has_another_history_or_another_tenant() -> None:
    source, destination = MemoryStore(), MemoryStore()

    async def scenario() -> None:
        async with system(answer, build, store=source) as it:
            await (await talked(it)).fork(2, thread_id="fork", message="Build more")
            await it.wait_idle()
        file = await exported(source, "fork")
        async with system(lambda _: "Something else.", store=destination) as there:
            agent = await there.launch(thread_id="t")
            with pytest.raises(MalformedInput, match="does not go on from the history that 't' has here"):
                await there.import_(file)
            for text in ("Hello", "Build it"):
                await agent.send(text)
                await agent.wait_idle()
            file.seek(0)
            with pytest.raises(MalformedInput, match="does not go on from the history that 't' has here"):
                await there.import_(file)
            assert await there.store.read_forks("t") == []

    run(scenario)


def test_an_archive_that_hides_that_it_is_a_fork_is_refused() -> None:
    """Or it would read the history of a thread that is another tenant's."""
    source, destination = MemoryStore(), MemoryStore()

    async def scenario() -> None:
        async with system(answer, build, store=source, tenant="thief") as it:
            await (await talked(it)).fork(2, thread_id="fork")
            await it.wait_idle()
        async with system(answer, build, store=destination, tenant="owner") as owner:
            await talked(owner)
        await source.freeze("fork")
        records = await source.export_tree("fork", START)
        hidden = [one for one in records if not isinstance(one, ForkRecord)]
        linked = [replace(one, parent="t", root="t") if isinstance(one, ThreadRecord) else one for one in hidden]
        async with system([], store=destination, tenant="thief", run=False) as it:
            for crafted in (records, hidden, linked):
                with pytest.raises(MalformedInput):
                    await it.import_(archive_of(crafted, ()))
        assert [row.thread_id for row in await destination.list_threads()] == ["t"]

    run(scenario)


def test_a_tree_with_forks_is_not_migrated_and_goes_on_where_it_is() -> None:
    source, destination = MemoryStore(), MemoryStore()

    async def scenario() -> None:
        async with system(answer, build, store=source) as it:
            agent = await talked(it)
            fork = await agent.fork(2, thread_id="fork")
            with pytest.raises(HasForks, match="fork"):
                await it.migrate("t", destination)
            with pytest.raises(MalformedInput, match="which this tenant does not have here"):
                await it.migrate("fork", destination)
            for one in (agent, fork):
                assert not (await one.state()).frozen
                await one.send("Hello again")
                await one.wait_idle()
        assert await destination.list_threads() == []

    run(scenario)
