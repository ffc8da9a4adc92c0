"""Compaction, seen from outside: what the model is shown, what is stored, and what never gets lost or repeated."""

import asyncio
from collections.abc import AsyncGenerator

from msgspec.structs import replace

from hibernaut.engine.transcripts import Transcripts
from hibernaut.handle import ThreadHandle
from hibernaut.kernel.compaction import HEADING
from hibernaut.kernel.limits import ThreadOptions
from hibernaut.kernel.receipt import TurnCommit
from hibernaut.kernel.transcript import validate
from hibernaut.messages.items import (
    EVENT_TOOL,
    CallItem,
    EventItem,
    ResultItem,
    SpawnItem,
    SummaryItem,
    TextItem,
    UserItem,
)
from hibernaut.messages.parts import plain_text
from hibernaut.models.protocol import ModelRequest
from hibernaut.models.scripted import (
    ScriptedTurn,
    call,
    last_result,
    last_user_text,
    say,
    turn,
)
from hibernaut.stores.memory import MemoryStore
from hibernaut.stores.protocol import LogRow
from hibernaut.tools.tool import tool
from tests.engine.long_talks import (
    LONG,
    TALK,
    WINDOW,
    asked_for,
    is_compacted,
    model_of,
    notices_of,
    size_of,
    summaries_of,
    talk,
    words_of,
)
from tests.engine.scenario import (
    head_of,
    run,
    system,
    until,
    until_activity,
    until_told,
)

# When


def test_c47_a_long_conversation_is_compacted_before_the_window_is_full() -> None:
    model = model_of()

    async def scenario() -> None:
        async with system(model) as it:
            agent = await it.launch()
            await talk(agent, *TALK)
            summaries = await summaries_of(agent)
            assert len(summaries) == 1
            assert all(size_of(request) < WINDOW * 0.8 for request in model.requests)
            shown = asked_for(model, "turn")[-1].transcript
            assert isinstance(shown[0], UserItem)
            assert plain_text(shown[0].content).startswith(HEADING)
            assert shown[0].origin == "runtime"
            assert len(await agent.history()) == 2 * len(TALK) + 2
            assert len([r for r in await agent.receipts() if r.turn is TurnCommit.SUMMARIZED]) == 1
            assert await it.verify(agent.thread_id) == (await agent.state()).version
            assert summaries[0].before > summaries[0].after > 0

    run(scenario)


def test_c47_fifty_calls_of_one_request_never_fill_the_window() -> None:
    busy = 0

    @tool
    async def read(page: int) -> str:
        """Read a page."""
        return f"page {page}: " + "x" * 8_192

    def answer(request: ModelRequest) -> ScriptedTurn:
        nonlocal busy
        busy += 1
        result = last_result(request)
        page = int(result.split()[1].rstrip(":")) + 1 if result else 1
        return call("read", page=page) if page <= 50 else say("I have read it all.")

    model = model_of(answer, window=20_000)

    async def scenario() -> None:
        async with system(model, read) as it:
            agent = await it.launch()
            await talk(agent, "Read the whole book")
            history = await agent.history()
            assert history[-1] == TextItem("I have read it all.")
            assert sum(isinstance(item, ResultItem) for item in history) == 50
            assert all(size_of(request) < 20_000 for request in model.requests)
            assert len(asked_for(model, "turn")) == 51
            for request in asked_for(model, "turn"):
                assert words_of(request).count("Read the whole book") == 1
            versions = [receipt.turn for receipt in await agent.receipts()]
            assert 3 <= versions.count(TurnCommit.SUMMARIZED) <= 20
            # Of the calls of one turn nobody else works meanwhile: each result has one page.
            assert len(asked_for(model, "summary")) == versions.count(TurnCommit.SUMMARIZED)

    run(scenario)


def test_c47_fifty_calls_of_one_turn_are_shown_shortened_rather_than_too_long() -> None:
    @tool
    async def read(page: int) -> str:
        """Read a page."""
        return f"page {page}: " + "x" * 8_192

    def answer(request: ModelRequest) -> ScriptedTurn:
        if last_result(request):
            return say("I have read it all.")
        return turn(*[call("read", page=page) for page in range(50)])

    model = model_of(answer, window=20_000)

    async def scenario() -> None:
        async with system(model, read, options=ThreadOptions(parallel_calls=8)) as it:
            agent = await it.launch()
            await talk(agent, "Read the whole book")
            last = asked_for(model, "turn")[-1]
            assert size_of(last) < 20_000
            assert words_of(last).count("left out here") == 50
            assert all(len(plain_text(i.content)) > 8_000 for i in await agent.history() if isinstance(i, ResultItem))

    run(scenario)


def test_below_the_threshold_and_with_compaction_off_nothing_is_summarized() -> None:
    model = model_of()

    async def scenario() -> None:
        async with system(model) as it:
            quiet = await it.launch()
            await talk(quiet, *TALK[:3])
            off = await it.launch(options=ThreadOptions(compact_at=0))
            await talk(off, *TALK)
            assert asked_for(model, "summary") == []

    run(scenario)


def test_with_an_unknown_window_only_a_command_compacts() -> None:
    model = model_of(window=0)

    async def scenario() -> None:
        async with system(model) as it:
            agent = await it.launch()
            await talk(agent, *TALK)
            assert asked_for(model, "summary") == []
            await agent.compact()
            await it.wait_idle()
            assert len(await summaries_of(agent)) == 1
            assert (await notices_of(agent, "compacting"))[0].endswith(" tokens")
            await talk(agent, "And now?")
            assert size_of(asked_for(model, "turn")[-1]) < 4_000

    run(scenario)


def test_the_option_can_only_make_the_window_smaller() -> None:
    model = model_of(window=100_000)

    async def scenario() -> None:
        async with system(model) as it:
            agent = await it.launch(options=ThreadOptions(context_window=WINDOW))
            await talk(agent, *TALK)
            assert len(await summaries_of(agent)) == 1

    run(scenario)


# What is shown afterwards


def test_c50_the_last_request_is_there_exactly_once() -> None:
    model = model_of()

    async def scenario() -> None:
        async with system(model) as it:
            agent = await it.launch()
            await talk(agent, *TALK)
            for request in asked_for(model, "turn"):
                said = [item for item in request.transcript if isinstance(item, UserItem) and not item.origin]
                assert said[-1] is request.transcript[-1]
                assert words_of(request).count(str(said[-1].content)) == 1
            assert [i.content for i in await agent.history() if isinstance(i, UserItem)] == TALK

    run(scenario)


def test_c05_the_request_for_a_summary_is_as_valid_as_any_other() -> None:
    model = model_of(check=False)

    async def scenario() -> None:
        async with system(model) as it:
            agent = await it.launch("You are tested.")
            await talk(agent, *TALK)
            (request,) = asked_for(model, "summary")
            validate(request.transcript)
            assert request.tools == ()
            assert request.instructions != "You are tested."
            (item,) = request.transcript
            assert isinstance(item, UserItem)
            assert item.origin == "runtime"
            assert "The user: Question 1" in plain_text(item.content)
            assert "The agent: About Question 1" in plain_text(item.content)

    run(scenario)


def test_a_second_summary_is_made_from_the_first_and_what_came_after() -> None:
    numbers = iter(range(1, 9))
    model = model_of(summaries=lambda request: say(f"Summary number {next(numbers)}."))

    async def scenario() -> None:
        async with system(model) as it:
            agent = await it.launch()
            await talk(agent, *TALK, *[f"Later {text}" for text in TALK])
            first, *_, last = asked_for(model, "summary")
            assert f"Summary number {len(asked_for(model, 'summary')) - 1}." in words_of(last)
            assert "Summary number" not in words_of(first)
            assert "The user: Question 1\n" not in words_of(last)
            covers = [item.covers for item in await summaries_of(agent)]
            assert len(covers) >= 2
            assert covers == sorted(covers)
            shown = words_of(asked_for(model, "turn")[-1])
            assert f"Summary number {len(covers)}." in shown
            assert f"Summary number {len(covers) - 1}." not in shown
            assert await it.verify(agent.thread_id)

    run(scenario)


def test_what_is_kept_is_the_same_for_who_remembers_and_for_who_reads() -> None:
    store = MemoryStore()
    model = model_of()

    async def scenario() -> None:
        async with system(model, store=store) as it:
            agent = await it.launch(thread_id="t")
            await talk(agent, *TALK)
            await agent.send("Last")
            await agent.wait_idle()
            before = asked_for(model, "turn")[-1].transcript
        again = model_of()
        async with system(again, store=store) as it:
            await talk(await it.thread("t"), "More")
            after = again.requests[-1].transcript
            assert list(after[: len(before)]) == list(before)
            assert len(after) == len(before) + 2

    run(scenario)


def test_a_transcript_in_memory_from_before_the_summary_of_another_engine_is_not_used() -> None:
    store = MemoryStore()

    async def scenario() -> None:
        async with system(model_of(), store=store) as it:
            agent = await it.launch()
            await talk(agent, *TALK)
            head = await head_of(agent)
            assert head.summary is not None
            transcripts = Transcripts(store)
            old = await transcripts.at(replace(head, summary=None, version=head.summary.version - 1))
            assert old.transcript.items[0] == UserItem(TALK[0])
            new = await transcripts.at(head)
            assert HEADING in str(new.transcript.items[0])
            assert TALK[0] not in [item.content for item in new.transcript.items if isinstance(item, UserItem)]

    run(scenario)


def test_a_compacted_thread_of_ten_thousand_items_reads_only_what_is_kept() -> None:
    class Counting(MemoryStore):
        rows = 0

        async def read_log(self, thread_id: str, after: int = 0, limit: int = 0) -> list[LogRow]:
            found = await super().read_log(thread_id, after, limit)
            self.rows += len(found)
            return found

    store = Counting()
    model = model_of(lambda request: say("Yes."), window=0, record=False, check=False)

    async def scenario() -> None:
        async with system(model, store=store) as it:
            agent = await it.launch(thread_id="t")
            await talk(agent, *[f"Question {number}" for number in range(5_000)])
            await agent.compact()
            await it.wait_idle()
            version = (await agent.state()).version
            assert version > 5_000
            summary = (await head_of(agent)).summary
            assert summary is not None
        async with system(model, store=store) as it:
            store.rows = 0
            agent = await it.thread("t")
            await talk(agent, "And?")
            assert store.rows <= version - summary.kept + 3 < version / 4

    run(scenario)


# What is never forgotten


async def has_come(agent: ThreadHandle, source: str) -> bool:
    return any(isinstance(item, EventItem) and item.source == source for item in await agent.history())


def test_a04_a_subscription_made_before_still_delivers_and_a_child_still_reports() -> None:
    feeds: dict[str, asyncio.Event] = {"push": asyncio.Event(), "report": asyncio.Event()}

    @tool(events="associative")
    async def watch(branch: str) -> AsyncGenerator[str, None]:
        """Watch a branch."""
        yield f"watching {branch}"
        await feeds["push"].wait()
        yield "a push"

    @tool
    async def count() -> str:
        """Count."""
        await feeds["report"].wait()
        return "nine"

    def answer(request: ModelRequest) -> ScriptedTurn:
        text, words = last_user_text(request), words_of(request)
        last = request.transcript[-1]
        if "You are now in a thread of your own" in words and "Count the tiles" in words:
            if last_result(request) == "nine":
                return call("report_to_parent", report="There are nine tiles.")
            return say("I am done.") if "Told to your parent" in words else call("count")
        if isinstance(last, ResultItem):
            return say(f"Noted: {text}.")
        if text == "Watch":
            return call("watch", branch="main")
        if text == "Spawn":
            return call("spawn_thread", instructions="Count the tiles", child_of=[])
        return say(LONG)

    model = model_of(answer)

    async def scenario() -> None:
        async with system(model, watch, count) as it:
            agent = await it.launch()
            await talk(agent, "Watch")
            await agent.send("Spawn")
            await until_told(agent, "says: Noted: Spawn.")
            await talk(agent, *TALK)
            history = await agent.history()
            summary = next(item for item in history if isinstance(item, SummaryItem))
            made = {item.name: item for item in history if isinstance(item, CallItem)}
            (child,) = [item for item in history if isinstance(item, SpawnItem)]
            assert history.index(made["watch"]) < summary.covers
            assert history.index(made["spawn_thread"]) < summary.covers
            assert made["watch"].id in summary.text
            assert '{"branch":"main"}' in summary.text
            assert child.thread_id in summary.text
            assert "Count the tiles" in summary.text
            for feed in feeds.values():
                feed.set()
            await until_told(agent, "event: watch a push")

            await until(agent, lambda: has_come(agent, "report"))
            await it.wait_idle()
            events = {item.source: item for item in reversed(await agent.history()) if isinstance(item, EventItem)}
            push, report = events["event"], events["report"]
            assert (push.tool, push.call_id, push.arguments) == ("watch", made["watch"].id, '{"branch":"main"}')
            assert (report.tool, report.call_id) == ("spawn_thread", made["spawn_thread"].id)
            assert "There are nine tiles." in plain_text(report.content)
            shown = asked_for(model, "turn")[-1].transcript
            assert any(isinstance(item, CallItem) and item.name == EVENT_TOOL for item in shown)

    run(scenario)


def test_a_child_is_compacted_with_all_that_it_inherited_and_keeps_its_task() -> None:
    @tool
    async def read(page: int) -> str:
        """Read a page."""
        return f"page {page}: " + LONG

    def answer(request: ModelRequest) -> ScriptedTurn:
        words = words_of(request)
        if "your parent" in words:
            result = last_result(request)
            page = int(result.split()[1].rstrip(":")) + 1 if result.startswith("page") else 1
            return call("read", page=page) if page < 15 else say("Read.")
        if isinstance(request.transcript[-1], ResultItem):
            return say("It reads.")
        return call("spawn_thread", instructions="Read 15 pages.", child_of=[]) if "Spawn" in words else say(LONG)

    model = model_of(answer)

    async def scenario() -> None:
        async with system(model, read) as it:
            agent = await it.launch()
            await talk(agent, *TALK[:3], "Spawn")
            await it.wait_idle()
            (made,) = [item for item in await agent.history() if isinstance(item, SpawnItem)]
            child = await it.thread(made.thread_id)
            summaries = await summaries_of(child)
            assert len(summaries) >= 2
            for summary in summaries:
                assert "Your task, word for word" in summary.text
                assert "Read 15 pages." in summary.text
                assert made.thread_id in summary.text
            its = [request for request in asked_for(model, "summary") if request.thread_id == made.thread_id]
            assert "The user: Question 1" in words_of(its[0])
            assert TextItem("Read.") in await child.history()
            assert all(size_of(request) < WINDOW for request in model.requests)
            assert await it.verify(made.thread_id)
            assert await summaries_of(agent) == []

    run(scenario)


def test_compaction_while_a_call_is_open_keeps_the_call_and_its_result_together() -> None:
    goes_on = asyncio.Event()

    @tool
    async def build() -> str:
        """Build."""
        await goes_on.wait()
        return "built"

    def answer(request: ModelRequest) -> ScriptedTurn:
        if last_user_text(request) == "Build" and not last_result(request):
            return call("build")
        return say(last_result(request) or LONG)

    model = model_of(answer)

    async def scenario() -> None:
        async with system(model, build) as it:
            agent = await it.launch()
            await talk(agent, *TALK[:4])
            await agent.send("Build")
            await until_activity(agent, "waiting")
            await agent.compact()
            await until(agent, lambda: is_compacted(agent))
            (summary,) = await summaries_of(agent)
            assert "Not answered yet: build" in summary.text
            assert (await agent.state()).activity == "waiting"
            goes_on.set()
            await until_told(agent, "says: built")
            last = asked_for(model, "turn")[-1].transcript
            assert [type(item) for item in last[-3:]] == [UserItem, CallItem, ResultItem]
            assert await it.verify(agent.thread_id)

    run(scenario)
