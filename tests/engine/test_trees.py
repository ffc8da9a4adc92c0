"""Trees of threads in a running engine: children work, events get threads, and whoever watches sees all of it."""

import asyncio
import json
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing

import pytest

from hibernaut.errors import MalformedInput
from hibernaut.handle import ThreadHandle
from hibernaut.kernel.commit import Disposition
from hibernaut.kernel.limits import ThreadOptions
from hibernaut.messages.events import AgentEvent, Notice, TextChunk, ThreadSpawned
from hibernaut.messages.items import EventItem
from hibernaut.messages.parts import plain_text
from hibernaut.models.protocol import ModelRequest
from hibernaut.models.scripted import ScriptedTurn, call, last_result, last_user_text, say, turn
from hibernaut.stores.memory import MemoryStore
from hibernaut.system import AgentSystem
from hibernaut.testing.gates import Gate
from hibernaut.tools.tool import tool
from tests.engine.scenario import head_of, run, story, system, until, until_told

Answer = Callable[[ModelRequest], ScriptedTurn]


def spawn(instructions: str, *stack: str) -> ScriptedTurn:
    return call("spawn_thread", instructions=instructions, child_of=list(stack))


def is_root(request: ModelRequest) -> bool:
    return request.thread_id == "root"


def counting(request: ModelRequest) -> ScriptedTurn:
    """A root that has two things counted, and children that count."""
    if is_root(request):
        heard = last_result(request)
        if "reports" in heard or "Its report" in heard:
            return say(f"I heard: {heard.splitlines()[-1]}")
        if "works on that now" in heard:
            return say("They count.")
        one, two = spawn("Count apples"), spawn("Count pears")
        return turn(one, two)
    what = "apples" if "Count apples" in _seed(request) else "pears"
    return call("close_thread", thread_id=request.thread_id, report_to_parent=f"7 {what}")


def _seed(request: ModelRequest) -> str:
    texts = [plain_text(item.content) for item in request.transcript if hasattr(item, "content")]
    return next(text for text in texts if "You are now in a thread of your own" in text)


async def launched(it: AgentSystem, text: str = "Go") -> ThreadHandle:
    return await it.launch(thread_id="root", message=text)


def test_children_work_beside_their_parent_and_report_to_it() -> None:
    async def scenario() -> None:
        async with system(counting, options=ThreadOptions(parallel_calls=2)) as it:
            agent = await launched(it)
            await it.wait_idle()
            told = [line for line in await story(agent) if line.startswith("says: I heard")]
            assert sorted(told) in (
                ["says: I heard: 7 apples", "says: I heard: 7 pears"],
                ["says: I heard: 7 pears"],
                ["says: I heard: 7 apples"],
            )
            reported = [item for item in await agent.history() if isinstance(item, EventItem)]
            assert len(reported) == 2
            assert (await head_of(agent)).children == {}
            tree = await agent.tree()
            assert [state.status for state in tree] == ["open", "closed", "closed"]
            assert [state.parent for state in tree] == ["", "root", "root"]
            assert [state.purpose for state in tree][1:] == ["Count apples", "Count pears"]

    run(scenario)


def test_the_tenant_and_the_configuration_of_a_child_are_its_parents() -> None:
    async def scenario() -> None:
        store = MemoryStore()
        async with system(counting, store=store, tenant="acme", instructions="You count.") as it:
            agent = await launched(it)
            await it.wait_idle()
            tree = list(await agent.tree())
            assert {state.tenant for state in tree} == {"acme"}
            child = await it.thread(tree[1].thread_id)
            assert (await head_of(child)).config == (await head_of(agent)).config

    run(scenario)


def listening(request: ModelRequest) -> ScriptedTurn:
    """A root that subscribes, and temporary threads that report what matters."""
    if not is_root(request):
        text = last_result(request)
        report = {"report_to_parent": text} if "matters" in text else {}
        return call("close_thread", thread_id=request.thread_id, **report)
    heard = last_result(request)
    if not heard:
        return call("watch")
    return say("I listen." if heard == "subscribed" else f"I heard: {heard.splitlines()[-1]}")


def test_a17_each_event_gets_a_thread_and_only_what_matters_reaches_the_parent() -> None:
    @tool(events="threaded")
    async def watch() -> AsyncGenerator[str, None]:
        """Watch."""
        yield "subscribed"
        yield "nothing"
        yield "it matters"
        yield "nothing again"

    async def scenario() -> None:
        async with system(listening, watch) as it:
            agent = await launched(it, "Watch")
            await until_told(agent, "says: I heard: it matters")
            await it.wait_idle()
            events = [item for item in await agent.history() if isinstance(item, EventItem)]
            assert [item.source for item in events] == ["report"]
            head = await head_of(agent)
            assert head.children == {}
            assert head.calls == {}
            assert [state.status for state in await agent.tree()] == ["open"] + ["closed"] * 4

    run(scenario)


def test_a_burst_of_events_is_worked_off_in_order_and_so_many_at_a_time() -> None:
    most = 0
    at_work = 0

    @tool(events="threaded")
    async def watch() -> AsyncGenerator[str, None]:
        """Watch."""
        yield "subscribed"
        for number in range(40):
            yield f"event {number}"

    @tool
    async def handle() -> str:
        """Handle."""
        nonlocal most, at_work
        at_work += 1
        most = max(most, at_work)
        await asyncio.sleep(0)
        at_work -= 1
        return "handled"

    def answer(request: ModelRequest) -> ScriptedTurn:
        if is_root(request):
            return say("I listen.") if last_result(request) else call("watch")
        if last_result(request) == "handled":
            return call("close_thread", thread_id=request.thread_id)
        return call("handle")

    async def scenario() -> None:
        options = ThreadOptions(max_event_children=3)
        async with system(answer, watch, handle, options=options) as it:
            agent = await launched(it, "Watch")

            async def over() -> bool:
                tree = list(await agent.tree())
                return len(tree) == 42 and all(state.status == "closed" for state in tree[1:])

            await it.wait_idle()
            assert await over()
            events = []
            for state in list(await agent.tree())[1:]:
                child = await it.thread(state.thread_id)
                events += [plain_text(i.content) for i in await child.history() if isinstance(i, EventItem)]
            assert events[:40] == [f"event {number}" for number in range(40)]
            assert 1 < most <= 3

    run(scenario)


def test_a_thread_whose_reports_wait_for_its_open_call_is_waiting_and_not_ready() -> None:
    gate = asyncio.Event()

    @tool
    async def work() -> str:
        """Work."""
        await gate.wait()
        return "worked"

    def answer(request: ModelRequest) -> ScriptedTurn:
        if not is_root(request):
            return call("close_thread", thread_id=request.thread_id, report_to_parent="7 apples")
        return say("Well.") if last_result(request) else turn(spawn("Count apples"), call("work"))

    async def scenario() -> None:
        async with system(answer, work, options=ThreadOptions(parallel_calls=2)) as it:
            agent = await launched(it)

            async def waits() -> bool:
                given = [given for receipt in await agent.receipts() for _, given in receipt.inputs]
                return Disposition.DEFERRED in given

            await until(agent, waits)
            state = await agent.state()
            assert (state.activity, state.waiting) == ("waiting", 1)
            gate.set()
            await until_told(agent, "says: Well.")

    run(scenario)


# Watching a tree


def test_a_tree_is_watched_as_one_stream_that_learns_of_children() -> None:
    async def scenario() -> None:
        async with system(counting, options=ThreadOptions(parallel_calls=2)) as it:
            agent = await launched(it)
            seen: list[AgentEvent] = []
            async with asyncio.timeout(10), aclosing(agent.events(tree=True)) as events:
                async for event in events:
                    seen.append(event)
                    if sum(isinstance(one, Notice) and one.kind == "closed" for one in seen) == 2:
                        break
            spawned = [event.child_id for event in seen if isinstance(event, ThreadSpawned)]
            assert len(spawned) == 2
            assert {event.thread_id for event in seen} == {"root", *spawned}
            for name in spawned:
                born = next(
                    n for n, event in enumerate(seen) if isinstance(event, ThreadSpawned) and event.child_id == name
                )
                assert all(event.thread_id != name for event in seen[:born])

    run(scenario)


def test_a_tree_can_be_read_on_from_any_cursor_without_gap_or_double() -> None:
    async def scenario() -> None:
        async with system(counting, options=ThreadOptions(parallel_calls=2)) as it:
            agent = await launched(it)
            await it.wait_idle()
            whole = [event async for event in agent.events(tree=True, follow=False)]
            told = sorted(_told(event) for event in whole)
            for place in range(len(whole)):
                rest = [event async for event in agent.events(whole[place].cursor, tree=True, follow=False)]
                assert sorted(_told(event) for event in [*whole[: place + 1], *rest]) == told

    run(scenario)


def test_a_cursor_of_a_tree_is_bounded_by_the_threads_that_live() -> None:
    async def scenario() -> None:
        async with system(counting, options=ThreadOptions(parallel_calls=2)) as it:
            agent = await launched(it)
            await it.wait_idle()
            whole = [event async for event in agent.events(tree=True, follow=False)]
            (rest,) = [[event async for event in agent.events(whole[-1].cursor, tree=True, follow=False)]]
            assert rest == []

    run(scenario)


def test_a_feed_that_is_closed_while_a_tree_is_read_ends_it() -> None:
    async def scenario() -> None:
        async with system(counting, options=ThreadOptions(parallel_calls=2)) as it:
            agent = await launched(it)
            await it.wait_idle()
            seen = 0
            async with asyncio.timeout(5):
                async for _ in agent.events(tree=True):
                    seen += 1
                    it.feed.close()
            assert seen == len([event async for event in agent.events(tree=True, follow=False)])

    run(scenario)


@pytest.mark.parametrize("cursor", ["12.3", "tree.", "tree.!!", "tree.gKFh", "x", "tree.é"])
def test_what_is_no_cursor_of_a_tree_is_refused(cursor: str) -> None:
    async def scenario() -> None:
        async with system(counting) as it:
            agent = await it.launch(thread_id="root")
            with pytest.raises(MalformedInput, match="no cursor of a tree"):
                _ = [event async for event in agent.events(cursor, tree=True, follow=False)]

    run(scenario)


def test_what_a_child_says_is_seen_while_it_says_it() -> None:
    gate = Gate()

    def answer(request: ModelRequest) -> ScriptedTurn:
        if is_root(request):
            return say("Well.") if last_user_text(request) == "Go" and last_result(request) else spawn("Talk")
        return turn("One ", gate, "two.")

    async def scenario() -> None:
        async with system(answer) as it:
            agent = await launched(it)
            seen: list[AgentEvent] = []
            async with asyncio.timeout(10), aclosing(agent.events(tree=True)) as events:
                async for event in events:
                    seen.append(event)
                    if isinstance(event, TextChunk) and event.text == "One ":
                        assert event.thread_id != "root"
                        gate.open()
                    if isinstance(event, TextChunk) and event.text == "two.":
                        break

    run(scenario)


def _told(event: AgentEvent) -> tuple[str, str]:
    return event.thread_id, repr(event).replace(event.cursor, "")


def test_what_waits_for_a_thread_that_closes_gets_its_disposition() -> None:
    gate = asyncio.Event()

    @tool
    async def work() -> str:
        """Work."""
        await gate.wait()
        return "done"

    @tool(events="associative")
    async def watch() -> AsyncGenerator[str, None]:
        """Watch."""
        yield "watching"
        yield "news"
        yield "more news"

    def answer(request: ModelRequest) -> ScriptedTurn:
        if last_user_text(request) == "Go" and not last_result(request):
            return turn(call("watch"), call("work"))
        return say("Well.")

    async def scenario() -> None:
        async with system(answer, work, watch, options=ThreadOptions(parallel_calls=2)) as it:
            agent = await launched(it)
            await until(agent, lambda: _waits(it, 2))
            await agent.close()
            await until_told(agent, "notice: closed")
            assert await it.store.read_inbox("root") == ()
            fates = [fate for receipt in await agent.receipts() for _, fate in receipt.inputs]
            assert fates.count(Disposition.CLOSED) >= 2
            await it.verify("root")

    run(scenario)


async def _waits(it: AgentSystem, messages: int) -> bool:
    return len(await it.store.read_inbox("root")) >= messages


def test_a25_c44_threads_that_spawn_at_the_same_moment_meet_the_bound_of_the_tree() -> None:
    def answer(request: ModelRequest) -> ScriptedTurn:
        text = "\n".join(plain_text(item.content) for item in request.transcript if hasattr(item, "content"))
        found = [line for line in text.splitlines() if "its stack of threads is" in line]
        stack = json.loads(found[-1].partition("stack of threads is ")[2].removesuffix(".")) if found else []
        made = "works on that now" in last_result(request) or "Not done" in last_result(request)
        return say("Enough.") if made else turn(*[spawn(f"Again {n}", *stack) for n in range(4)])

    async def scenario() -> None:
        options = ThreadOptions(parallel_calls=4, max_children=4, max_depth=100, max_descendants=30)
        async with system(answer, options=options) as it:
            agent = await launched(it)
            await it.wait_idle()
            living = [state for state in await agent.tree() if state.status != "closed"]
            assert len(living) - 1 == 30

    run(scenario)


def test_a_tree_that_has_ended_is_read_with_short_cursors() -> None:
    @tool
    async def watch() -> AsyncGenerator[str, None]:
        """Watch."""
        yield "subscribed"
        for number in range(50):
            yield f"event {number}"

    async def scenario() -> None:
        async with system(listening, watch) as it:
            agent = await launched(it, "Watch")
            await it.wait_idle()
            whole = [event async for event in agent.events(tree=True, follow=False)]
            assert len({event.thread_id for event in whole}) == 52
            assert max(len(event.cursor) for event in whole) < 200

    run(scenario)
