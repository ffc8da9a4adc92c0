"""The feed: exactly once, whoever watches, from wherever, while it happens or later."""

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, Iterable
from contextlib import aclosing
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hibernaut.errors import MalformedInput, StoreFull
from hibernaut.handle import ThreadHandle
from hibernaut.kernel.limits import ThreadOptions
from hibernaut.messages.events import (
    AgentEvent,
    TextChunk,
    ThinkingChunk,
    ToolProgress,
    TurnDiscarded,
)
from hibernaut.messages.stream import (
    CallDelta,
    CallEnded,
    CallStarted,
    Finish,
    ReasoningBlock,
    StreamPiece,
    TextDelta,
    ThinkingDelta,
)
from hibernaut.models.errors import ConnectionLost
from hibernaut.models.protocol import ModelInfo, ModelRequest
from hibernaut.models.scripted import ScriptedModel, call, fail, say, turn
from hibernaut.stores.memory import MemoryStore
from hibernaut.stores.protocol import DEAD_AFTER
from hibernaut.system import AgentSystem
from hibernaut.testing.clock import ManualClock
from hibernaut.testing.gates import Gate
from hibernaut.tools.context import ToolContext
from hibernaut.tools.tool import tool
from tests.engine.scenario import (
    MINUTE,
    FailingStore,
    Watcher,
    killed,
    retell,
    run,
    settle,
    story,
    system,
    until_activity,
)


@tool
async def note() -> str:
    """Take a note."""
    return "noted"


async def replay(agent: ThreadHandle) -> list[str]:
    return retell([event async for event in agent.events(follow=False)])


async def take(events: AsyncGenerator[AgentEvent, None], kind: type[AgentEvent]) -> AgentEvent:
    async for event in events:
        if isinstance(event, kind):
            return event
    raise AssertionError(f"no {kind.__name__} came")


def test_a_watcher_sees_a_turn_while_it_is_made_and_later_readers_see_the_same() -> None:
    gate = Gate()

    async def scenario() -> None:
        async with system([turn("One ", "two ", gate, "three.")]) as it:
            agent = await it.launch()
            watcher = Watcher(agent)
            watcher.attach()
            await agent.send("Count")
            await gate.reached()
            await settle()
            assert retell(watcher.events) == ["user: Count", "started", "says: One two "]
            assert await story(agent) == []
            gate.open()
            await agent.wait_idle()
            await settle()
            whole = ["user: Count", "started", "says: One two three.", "finished"]
            assert retell(watcher.events) == await replay(agent) == whole
            await watcher.detach()

    run(scenario)


def test_every_cursor_is_a_place_to_go_on_from() -> None:
    first, second = Gate(), Gate()
    script = [turn("Let me ", first, "look.", call("look", what="é\U0001f600")), turn("Seen", second, ": é\U0001f600.")]

    @tool
    async def look(what: str) -> str:
        """Look."""
        return what

    async def scenario() -> None:
        async with system(script, look) as it:
            agent = await it.launch()
            watcher = Watcher(agent)
            watcher.attach()
            await agent.send("Look")
            for gate in (first, second):
                await gate.reached()
                await settle()
                gate.open()
            await agent.wait_idle()
            await settle()
            seen = watcher.events
            assert len(seen) == 11
            for place, event in enumerate(seen, 1):
                rest = [event async for event in agent.events(event.cursor, follow=False)]
                assert retell([*seen[:place], *rest]) == retell(seen)
            await watcher.detach()

    run(scenario)


def test_a_watcher_comes_back_in_the_middle_of_a_turn() -> None:
    gates = [Gate(), Gate()]

    async def scenario() -> None:
        async with system([turn("One ", gates[0], "two ", gates[1], "three.")]) as it:
            agent = await it.launch()
            watcher = Watcher(agent)
            watcher.attach()
            await agent.send("Count")
            await gates[0].reached()
            await settle()
            await watcher.detach()
            gates[0].open()
            await gates[1].reached()
            watcher.attach()
            await settle()
            assert watcher.texts() == ["One ", "two "]
            await watcher.detach()
            gates[1].open()
            await agent.wait_idle()
            watcher.attach()
            await settle()
            assert [event.text for event in watcher.events if isinstance(event, TextChunk)] == [
                "One ",
                "two ",
                "three.",
            ]
            assert retell(watcher.events) == await replay(agent)
            await watcher.detach()

    run(scenario)


def test_a24_c51_a_failed_attempt_is_taken_back_and_late_readers_never_see_it() -> None:
    gate = Gate()
    broken = fail(ConnectionLost("reset"), turn("Half of ", gate, call("run", code="pri")), after=2)
    clock = ManualClock()

    @tool
    async def run_code(code: str) -> str:
        """Run."""
        raise AssertionError("half a call was run")

    async def scenario() -> None:
        async with system([broken, say("All of it.")], run_code, clock=clock) as it:
            agent = await it.launch()
            watcher = Watcher(agent)
            watcher.attach()
            await agent.send("Say it")
            await gate.reached()
            await settle()
            seen = list(watcher.events)
            gate.open()
            await until_activity(agent, "retrying")
            await settle()
            assert retell(seen)[-1] == "says: Half of "
            assert any(isinstance(event, TurnDiscarded) for event in watcher.events)
            assert retell(watcher.events)[:1] == ["user: Say it"]
            clock.advance(MINUTE)
            await agent.wait_idle()
            await settle()
            assert retell(watcher.events) == await replay(agent)
            assert [line for line in await replay(agent) if not line.startswith("notice")] == [
                "user: Say it",
                "started",
                "says: All of it.",
                "finished",
            ]
            # Somebody who was cut off before the failure and comes back after it.
            rest = [event async for event in agent.events(seen[-1].cursor, follow=False)]
            assert retell([*seen, *rest]) == await replay(agent)
            await watcher.detach()

    run(scenario)


def test_an_interrupted_turn_goes_on_for_its_watchers_as_it_is_stored() -> None:
    gate = Gate()

    async def scenario() -> None:
        async with system([turn("I was ", "about ", gate, "to"), say("Yes?")]) as it:
            agent = await it.launch()
            watcher = Watcher(agent)
            watcher.attach()
            await agent.send("Tell me")
            await gate.reached()
            await settle()
            cut = list(watcher.events)
            await agent.send("Wait")
            await agent.wait_idle()
            await settle()
            whole = ["user: Tell me", "started", "says: I was about ", "interrupted"]
            whole += ["user: Wait", "started", "says: Yes?", "finished"]
            assert retell(watcher.events) == await replay(agent) == whole
            rest = [event async for event in agent.events(cut[-1].cursor, follow=False)]
            assert retell([*cut, *rest]) == whole
            await watcher.detach()

    run(scenario)


def test_what_was_seen_of_a_turn_that_died_with_its_process_is_taken_back() -> None:
    store, clock, gate = MemoryStore(), ManualClock(), Gate()

    async def scenario() -> None:
        async with killed(turn("I nearly ", gate, "said"), store=store, clock=clock) as it:
            agent = await it.launch(thread_id="t")
            watcher = Watcher(agent)
            watcher.attach()
            await agent.send("Speak")
            await gate.reached()
            await settle()
            await watcher.detach()
        assert retell(watcher.events)[-1] == "says: I nearly "
        clock.advance(DEAD_AFTER)
        async with system(say("I speak."), store=store, clock=clock) as it:
            agent = await it.thread("t")
            watcher.attach(agent)
            await agent.wait_idle()
            await settle()
            assert (
                retell(watcher.events)
                == await replay(agent)
                == ["user: Speak", "started", "says: I speak.", "finished"]
            )
            await watcher.detach()

    run(scenario)


def test_what_is_said_after_a_call_in_the_same_turn_comes_once() -> None:
    gate = Gate()

    async def scenario() -> None:
        async with system([turn("First ", call("note"), "then ", gate, "that."), say("Noted.")], note) as it:
            agent = await it.launch()
            watcher = Watcher(agent)
            watcher.attach()
            await agent.send("Go on")
            await gate.reached()
            await settle()
            gate.open()
            await agent.wait_idle()
            await settle()
            assert retell(watcher.events) == await replay(agent)
            await watcher.detach()

    run(scenario)


class Hand:
    """A model whose every piece is handed out by the test."""

    info = ModelInfo()

    def __init__(self) -> None:
        self.out: asyncio.Queue[StreamPiece | Exception] = asyncio.Queue()

    async def stream(self, request: ModelRequest) -> AsyncGenerator[StreamPiece, None]:
        piece: StreamPiece | Exception = TextDelta("")
        while not isinstance(piece, Finish):
            piece = await self.out.get()
            if isinstance(piece, Exception):
                raise piece
            yield piece


@pytest.mark.parametrize(
    "body",
    [
        [TextDelta("a"), ReasoningBlock("scripted", b"block"), TextDelta("  "), CallStarted(0, "note"), CallEnded(0)],
        [TextDelta("a \ud83d"), TextDelta("\ude00 b"), CallStarted(0, "note"), CallEnded(0)],
        [TextDelta("a\ud83d"), CallStarted(0, "note"), CallEnded(0)],
        [TextDelta(" "), TextDelta("\n"), TextDelta("a"), TextDelta(" "), CallStarted(0, "note"), CallEnded(0)],
        [TextDelta("a"), ThinkingDelta("hm"), TextDelta(" "), CallStarted(0, "note"), CallEnded(0)],
        [TextDelta("a"), CallStarted(0, "note"), CallEnded(0), TextDelta("b"), TextDelta(" c")],
        [TextDelta("a\x00\u2400"), TextDelta("\x00b"), CallStarted(0, "note"), CallEnded(0)],
    ],
    ids=["blank part", "cut character", "half character", "white space", "thought", "after a call", "marks"],
)
def test_what_is_shown_of_a_turn_is_what_is_stored_of_it_however_it_comes(body: list[StreamPiece]) -> None:
    model = Hand()

    async def scenario() -> None:
        async with system(model, note) as it:
            agent = await it.launch()
            watcher = Watcher(agent)
            watcher.attach()
            await agent.send("Speak")
            for piece in [*body, Finish(), TextDelta("Noted."), Finish()]:
                await settle()
                model.out.put_nowait(piece)
            await agent.wait_idle()
            await settle()
            assert retell(watcher.events) == await replay(agent)
            await watcher.detach()

    run(scenario)


def thoughts(events: Iterable[object]) -> list[str]:
    return [event.text for event in events if isinstance(event, ThinkingChunk | ThinkingDelta)]


texts = st.text("ab \n\té\U0001f600\ud83d\ude00\x00\u2400", max_size=4)
parts = st.one_of(
    st.lists(texts.map(TextDelta), min_size=1, max_size=3),
    st.integers().map(lambda number: [ThinkingDelta(f"Thought {number}"), ReasoningBlock("scripted", b"block")]),
    st.just([ReasoningBlock("scripted", b"block", "\ud800")]),
    st.just([CallStarted(0, "note"), CallDelta(0, "{}"), CallEnded(0)]),
)
endings = st.sampled_from(["finish", "fail", "interrupt"])
turns = st.lists(parts, max_size=5).map(lambda some: [piece for part in some for piece in part])
scripts = st.lists(st.tuples(turns, endings), min_size=1, max_size=4).filter(
    lambda script: max(Counter(thought for body, _ in script for thought in thoughts(body)).values(), default=1) == 1
)
comings = st.lists(st.integers(0, 2), max_size=60)
"""Which watcher comes, or goes if it is there, before each piece."""


@settings(max_examples=60)
@given(scripts, comings)
def test_whoever_comes_and_goes_at_any_time_knows_in_the_end_what_is_stored(
    script: list[tuple[list[StreamPiece], str]], comings: list[int]
) -> None:
    model, clock, coming = Hand(), ManualClock(), iter(comings)

    async def scenario() -> None:
        async with system(model, note, clock=clock, options=ThreadOptions(max_attempts=100)) as it:
            agent = await it.launch()
            watchers = [Watcher(agent) for _ in range(3)]

            async def hand_out(piece: StreamPiece | Exception) -> None:
                number = next(coming, None)
                if number is not None:
                    await watchers[number].toggle()
                model.out.put_nowait(piece)
                await settle()

            for number, (body, ending) in enumerate(script):
                if (await agent.state()).activity == "idle":
                    await agent.send(f"Question {number}")
                    await settle()
                for piece in body:
                    await hand_out(piece)
                if ending == "finish":
                    await hand_out(Finish())
                elif ending == "fail":
                    await hand_out(ConnectionLost("reset"))
                    clock.advance(10 * MINUTE)
                else:
                    await agent.send(f"Interruption {number}")
                await settle()
            if (await agent.state()).activity != "idle":
                await hand_out(Finish())
            for watcher in watchers:
                await watcher.detach()
                watcher.attach()
            await settle()
            whole = await replay(agent)
            for watcher in watchers:
                assert retell(watcher.events) == whole
                assert max(Counter(thoughts(watcher.events)).values(), default=1) == 1
                await watcher.detach()

    run(scenario)


def test_a24_what_was_seen_of_a_turn_that_the_store_did_not_take_is_taken_back() -> None:
    store, clock, gate = FailingStore(MemoryStore()), ManualClock(), Gate()

    async def scenario() -> None:
        async with system([turn("I say ", gate, "it."), say("I say it.")], store=store, clock=clock) as it:
            agent = await it.launch()
            watcher = Watcher(agent)
            watcher.attach()
            await agent.send("Say it")
            await gate.reached()
            await settle()
            store.failures["commit"] = StoreFull("no room")
            gate.open()
            await settle()
            assert isinstance(watcher.events[-1], TurnDiscarded)
            assert retell(watcher.events) == []
            clock.advance(MINUTE)
            await agent.wait_idle()
            await settle()
            whole = ["user: Say it", "started", "says: I say it.", "finished"]
            assert retell(watcher.events) == await replay(agent) == whole
            await watcher.detach()

    run(scenario)


def test_progress_is_shown_while_it_happens_and_is_no_place_to_lose_oneself() -> None:
    gate = asyncio.Event()

    @tool
    async def work(context: ToolContext) -> str:
        """Work."""
        context.progress("half of it")
        await gate.wait()
        return "all of it"

    async def scenario() -> None:
        async with system([call("work"), say("Done.")], work) as it:
            agent = await it.launch()
            await agent.send("Work")
            async with aclosing(agent.events()) as events:
                progress = await take(events, ToolProgress)
            assert isinstance(progress, ToolProgress)
            assert progress.text == "half of it"
            gate.set()
            await agent.wait_idle()
            rest = [event async for event in agent.events(progress.cursor, follow=False)]
            assert retell(rest) == ["result: all of it", "started", "says: Done.", "finished"]

    run(scenario)


def test_a_feed_ends_with_its_system_when_all_is_read() -> None:
    async def scenario() -> None:
        async with system("Hello.") as it:
            agent = await it.launch()
            watcher = Watcher(agent)
            watcher.attach()
            await agent.send("Hi")
            await agent.wait_idle()
        await watcher.ended()
        assert retell(watcher.events) == ["user: Hi", "started", "says: Hello.", "finished"]

    run(scenario)


def test_a_watcher_that_has_gone_leaves_nothing_behind() -> None:
    async def scenario() -> None:
        async with system("Hello.") as it:
            agent = await it.launch()
            watchers = [Watcher(agent) for _ in range(3)]
            for watcher in watchers:
                watcher.attach()
            await settle()
            assert it.feed.watched(agent.thread_id)
            for watcher in watchers:
                await watcher.detach()
            assert dict(it.feed.observers) == {}

    run(scenario)


def test_a_watcher_that_does_not_read_holds_nothing_up() -> None:
    async def scenario() -> None:
        async with system([say("word " * 500, chunks=5)]) as it:
            agent = await it.launch()
            await agent.send("Talk")
            async with aclosing(agent.events()) as events:
                await anext(events)
                await agent.wait_idle()
                rest = [event async for event in agent.events(follow=False)]
            assert retell(rest)[2] == "says: " + "word " * 500

    run(scenario)


def test_what_is_no_cursor_is_refused() -> None:
    async def scenario() -> None:
        async with system("Hello.") as it:
            agent = await it.launch()
            with pytest.raises(MalformedInput, match="'yesterday' is not a cursor"):
                await anext(agent.events("yesterday"))

    run(scenario)


def test_a_client_of_another_process_sees_what_is_stored(tmp_path: Path) -> None:
    """The engine and the client have a store of their own each, on the same file."""

    async def scenario() -> None:
        file = tmp_path / "agents.db"
        async with (
            AgentSystem(model=ScriptedModel("Hello."), store=file) as it,
            AgentSystem(model=ScriptedModel([]), store=file, run=False) as client,
        ):
            agent = await client.launch()
            watcher = Watcher(agent)
            watcher.attach()
            await agent.send("Hi")
            await agent.wait_idle()
            assert it.completions == 1
        await watcher.ended()
        assert retell(watcher.events) == ["user: Hi", "started", "says: Hello.", "finished"]

    run(scenario)
