"""Compaction, seen from outside: what the model is shown, what is stored, and what never gets lost or repeated."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from typing import Any, TypeVar

import pytest
from msgspec.structs import replace

from hibernaut.engine.transcripts import Transcripts
from hibernaut.errors import StoreBusy
from hibernaut.handle import ThreadHandle
from hibernaut.kernel.compaction import HEADING
from hibernaut.kernel.limits import ThreadOptions
from hibernaut.kernel.receipt import TurnCommit
from hibernaut.kernel.transcript import validate
from hibernaut.messages.events import CompletionStarted, Notice, Summarized, TextChunk, TurnDiscarded, Usage
from hibernaut.messages.items import (
    EVENT_TOOL,
    CallItem,
    EventItem,
    Item,
    NoticeItem,
    ResultItem,
    SpawnItem,
    SummaryItem,
    TextItem,
    UserItem,
)
from hibernaut.messages.parts import plain_text
from hibernaut.models.errors import ContextOverflow, InvalidRequest, RateLimited
from hibernaut.models.protocol import ModelInfo, ModelRequest
from hibernaut.models.scripted import (
    Playable,
    ScriptedModel,
    ScriptedTurn,
    call,
    cut,
    drop,
    last_result,
    last_user_text,
    refuse,
    say,
    turn,
)
from hibernaut.stores.memory import MemoryStore
from hibernaut.stores.protocol import LogRow
from hibernaut.testing.clock import ManualClock
from hibernaut.testing.faults import FaultPlan, FaultyStore, SimulatedCrash
from hibernaut.testing.gates import Gate
from hibernaut.tools.tool import tool
from tests.engine.scenario import (
    MINUTE,
    SECOND,
    START,
    MortalStore,
    Watcher,
    head_of,
    pass_time,
    retell,
    run,
    settle,
    system,
    until,
    until_activity,
    until_told,
)

T = TypeVar("T")

WINDOW = 8_000
"""Tokens, hence 32,000 bytes."""

LONG = "word " * 800
"""About 1,000 tokens."""


def model_of(
    answer: Callable[[ModelRequest], Any] | None = None,
    summaries: Sequence[Playable] | Callable[[ModelRequest], Any] = (),
    window: int = WINDOW,
    **more: Any,
) -> ScriptedModel:
    """A model that answers with a long text, and with these summaries (the last one again and again)."""
    left = list(summaries) if not callable(summaries) else []

    def play(request: ModelRequest) -> Any:
        if request.purpose == "summary":
            if callable(summaries):
                return summaries(request)
            return (left.pop(0) if len(left) > 1 else left[0]) if left else say("They talked at length.")
        return answer(request) if answer else say(f"About {last_user_text(request)[:20]}: {LONG}")

    return ScriptedModel(play, info=ModelInfo(context_window=window), **more)


def asked_for(model: ScriptedModel, purpose: str) -> list[ModelRequest]:
    return [request for request in model.requests if request.purpose == purpose]


async def talk(agent: ThreadHandle, *texts: str) -> None:
    for text in texts:
        await agent.send(text)
        await agent.wait_idle()


async def summaries_of(agent: ThreadHandle) -> list[SummaryItem]:
    return [item for item in await agent.history() if isinstance(item, SummaryItem)]


async def is_compacted(agent: ThreadHandle) -> bool:
    return bool(await summaries_of(agent))


async def notices_of(agent: ThreadHandle, kind: str) -> list[str]:
    return [item.text for item in await agent.history() if isinstance(item, NoticeItem) and item.kind == kind]


def words_of(request: ModelRequest) -> str:
    return "\n".join(_word(item) for item in request.transcript)


def _word(item: Item) -> str:
    if isinstance(item, UserItem | ResultItem):
        return plain_text(item.content)
    return item.text if isinstance(item, TextItem) else item.arguments if isinstance(item, CallItem) else ""


def size_of(request: ModelRequest) -> int:
    return len(words_of(request)) // 4


TALK = [f"Question {number}" for number in range(1, 10)]


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


# Bad summaries


BAD: list[tuple[Playable, str]] = [
    (turn(), "it is empty"),
    (say("  \n "), "it is empty"),
    (turn("Let me see.", call("look")), "it called a tool"),
    (refuse("I would rather not."), "declined"),
    (cut("So far they"), "output limit"),
    (say(LONG * 9), "longer than what it would replace"),
    (say(LONG * 3), "more than a quarter"),
]


@pytest.mark.parametrize("bad, why", BAD, ids=["empty", "blank", "call", "refusal", "cut", "longer", "large"])
def test_c48_a_bad_summary_is_refused_twice_and_then_given_up_visibly(bad: Playable, why: str) -> None:
    model = model_of(summaries=[bad])

    async def scenario() -> None:
        async with system(model) as it:
            agent = await it.launch()
            await talk(agent, *TALK[:6])
            assert len(asked_for(model, "summary")) == 2
            assert why in words_of(asked_for(model, "summary")[1])
            (reason,) = await notices_of(agent, "compaction_failed")
            assert why in reason
            assert await summaries_of(agent) == []
            assert (await agent.history())[-1] == TextItem(f"About Question 6: {LONG}")
            shown = [item for item in asked_for(model, "turn")[-1].transcript if isinstance(item, UserItem)]
            assert [item.content for item in shown] == TALK[:6]
            assert await it.verify(agent.thread_id)

    run(scenario)


@pytest.mark.parametrize(
    "bad", [bad for bad, _ in BAD], ids=["empty", "blank", "call", "refusal", "cut", "longer", "large"]
)
def test_c48_a_second_try_is_enough(bad: Playable) -> None:
    model = model_of(summaries=[bad, say("They talked at length.")])

    async def scenario() -> None:
        async with system(model) as it:
            agent = await it.launch()
            await talk(agent, *TALK[:6])
            (summary,) = await summaries_of(agent)
            assert "They talked at length." in summary.text
            assert await notices_of(agent, "compaction_failed") == []
            assert len(asked_for(model, "summary")) == 2

    run(scenario)


def test_c48_an_answer_instead_of_a_summary_is_taken_with_what_the_runtime_knows() -> None:
    def answer(request: ModelRequest) -> ScriptedTurn:
        return say("Good.") if last_result(request) else call("set_title", title="The long talk")

    model = model_of(
        lambda request: say(LONG) if "Name" not in words_of(request) or last_result(request) else answer(request),
        [say("Sure, I can help you with that!")],
    )

    async def scenario() -> None:
        async with system(model) as it:
            agent = await it.launch()
            await talk(agent, "Name yourself", *TALK[:6])
            summary = (await summaries_of(agent))[0]
            assert "Sure, I can help" in summary.text
            assert "Your title: The long talk" in summary.text

    run(scenario)


# Never in a loop


def loops(usage: Callable[[ModelRequest], Usage], summary: Playable, turns: int = 30) -> ScriptedModel:
    model = model_of(lambda request: turn(LONG, usage=usage(request)), [summary])

    async def scenario() -> None:
        async with system(model) as it:
            agent = await it.launch()
            await talk(agent, *[f"Question {number}" for number in range(turns)])
            said = [item for item in await agent.history() if isinstance(item, TextItem)]
            assert len(said) == turns
            assert await it.verify(agent.thread_id)

    run(scenario)
    return model


SHORT = say("They talked at length.")


@pytest.mark.parametrize(
    "usage",
    [
        lambda request: Usage(),
        lambda request: Usage(10, 10),
        lambda request: Usage(size_of(request) // 9, 1_000),
        lambda request: Usage(size_of(request), 1_000),
    ],
    ids=["none", "tiny", "without cached", "true"],
)
def test_c46_it_is_compacted_in_time_whatever_the_provider_says(usage: Callable[[ModelRequest], Usage]) -> None:
    model = loops(usage, SHORT)
    assert 2 <= len(asked_for(model, "summary")) <= 12
    assert all(size_of(request) < WINDOW * 2 for request in model.requests)


def test_c46_a_provider_that_counts_too_much_does_not_make_it_compact_for_nothing() -> None:
    model = loops(lambda request: Usage(10**6, 10), SHORT)
    assert len(asked_for(model, "summary")) <= 3


def test_c46_a_history_that_does_not_get_shorter_is_not_compacted_again_and_again() -> None:
    big = "They talked. " * 550
    model = model_of(lambda request: say("Yes."), [say(big)], window=WINDOW)

    async def scenario() -> None:
        async with system(model, options=ThreadOptions(compact_at=20)) as it:
            agent = await it.launch()
            await talk(agent, LONG, LONG, LONG)
            for number in range(20):
                await talk(agent, f"Small {number}")
            assert 1 <= len(asked_for(model, "summary")) <= 3
            assert (await head_of(agent)).fruitless > 0

    run(scenario)


def test_a_summary_that_fails_for_good_is_a_fruitless_try() -> None:
    model = model_of(summaries=[InvalidRequest("no such field")])

    async def scenario() -> None:
        async with system(model) as it:
            agent = await it.launch()
            await talk(agent, *TALK[:6])
            assert len(asked_for(model, "summary")) == 1
            assert await notices_of(agent, "compaction_failed") == ["invalid_request: no such field"]
            assert (await agent.state()).status == "open"
            await talk(agent, "Small")
            assert len(asked_for(model, "summary")) <= 2

    run(scenario)


@pytest.mark.parametrize("error", [RateLimited("slow down"), drop("So far")], ids=["limited", "broken"])
def test_a_summary_that_fails_for_now_is_tried_again_later_like_any_completion(error: Playable) -> None:
    clock = ManualClock()
    model = model_of(summaries=[error, say("They talked at length.")], clock=clock)

    async def scenario() -> None:
        async with system(model, clock=clock) as it:
            agent = await it.launch()
            await talk(agent, *TALK[:5])
            await agent.send(TALK[5])
            await until_activity(agent, "retrying")
            assert await summaries_of(agent) == []
            await pass_time(clock, 5 * SECOND)
            await agent.wait_idle()
            assert len(await summaries_of(agent)) == 1
            assert len(await notices_of(agent, "retry")) == 1
            assert (await agent.history())[-1] == TextItem(f"About Question 6: {LONG}")
            assert (await head_of(agent)).attempts == 0

    run(scenario)


@pytest.mark.parametrize("end", [InvalidRequest("no"), say(""), say("They talked.")], ids=["failed", "bad", "good"])
def test_whatever_a_summary_comes_to_after_a_failure_the_completion_follows(end: Playable) -> None:
    clock = ManualClock()
    model = model_of(summaries=[RateLimited("slow down"), end], clock=clock)

    async def scenario() -> None:
        async with system(model, clock=clock) as it:
            agent = await it.launch()
            await talk(agent, *TALK[:5])
            await agent.send(TALK[5])
            await until_activity(agent, "retrying")
            await pass_time(clock, 5 * SECOND)
            assert (await agent.state()).activity == "idle"
            assert (await agent.history())[-1] == TextItem(f"About Question 6: {LONG}")

    run(scenario)


def test_a_summary_that_never_comes_parks_the_thread_like_any_completion() -> None:
    clock = ManualClock()
    model = model_of(summaries=[RateLimited("slow down")], clock=clock)

    async def scenario() -> None:
        async with system(model, clock=clock, options=ThreadOptions(max_attempts=3)) as it:
            agent = await it.launch()
            await talk(agent, *TALK[:5])
            await agent.send(TALK[5])
            await until_activity(agent, "retrying")
            await pass_time(clock, 5 * MINUTE)
            assert (await agent.state()).status == "parked"
            assert len(asked_for(model, "summary")) == 3

    run(scenario)


# Overflow and what is too large


def overflowing(limit: int, **more: Any) -> ScriptedModel:
    """A model whose window is smaller than it says."""

    def answer(request: ModelRequest) -> Playable:
        if size_of(request) > limit:
            return ContextOverflow(f"the prompt is longer than {limit} tokens")
        return say(LONG)

    return model_of(answer, **more)


@pytest.mark.parametrize("window", [0, 100_000], ids=["unknown", "wrong"])
def test_a18_an_overflow_compacts_once_and_the_completion_is_made_again(window: int) -> None:
    model = overflowing(5_000, window=window)

    async def scenario() -> None:
        async with system(model) as it:
            agent = await it.launch()
            await talk(agent, *TALK)
            assert (await agent.state()).status == "open"
            assert len(await summaries_of(agent)) >= 1
            said = [item for item in await agent.history() if isinstance(item, TextItem)]
            assert len(said) == len(TALK)
            assert not (await head_of(agent)).overflowed

    run(scenario)


def test_a18_a_second_overflow_in_a_row_parks_with_the_providers_words() -> None:
    model = model_of(lambda request: ContextOverflow("far too long"), window=0)

    async def scenario() -> None:
        async with system(model) as it:
            agent = await it.launch()
            await talk(agent, "Hello")
            state = await agent.state()
            assert (state.status, "far too long" in state.reason) == ("parked", True)
            assert len(asked_for(model, "turn")) == 2
            await talk(agent, "Again")
            assert (await agent.state()).status == "parked"
            assert len(asked_for(model, "turn")) == 4

    run(scenario)


def test_a18_with_compaction_off_an_overflow_parks_at_once() -> None:
    model = model_of(lambda request: ContextOverflow("far too long"), window=0)

    async def scenario() -> None:
        async with system(model, options=ThreadOptions(compact_at=0)) as it:
            agent = await it.launch()
            await talk(agent, "Hello")
            assert (await agent.state()).status == "parked"
            assert len(model.requests) == 1

    run(scenario)


def test_a18_one_result_that_is_larger_than_the_window_is_shown_as_an_excerpt() -> None:
    @tool
    async def read() -> str:
        """Read."""
        return "BEGIN " + "x" * 60_000 + " END"

    def answer(request: ModelRequest) -> ScriptedTurn:
        return call("read") if last_user_text(request) == "Read" and not last_result(request) else say("Fine.")

    model = model_of(answer)

    async def scenario() -> None:
        async with system(model, read) as it:
            agent = await it.launch()
            await talk(agent, "Read", "Thanks", "Bye")
            turns = asked_for(model, "turn")
            shown = next(item for item in turns[1].transcript if isinstance(item, ResultItem))
            text = plain_text(shown.content)
            assert text.startswith("BEGIN")
            assert text.endswith("END")
            assert "left out here; the whole text: kept in this thread's history" in text
            assert size_of(turns[1]) <= WINDOW // 4 + 100
            assert list(turns[2].transcript[: len(turns[1].transcript)]) == list(turns[1].transcript)
            (stored,) = [item for item in await agent.history() if isinstance(item, ResultItem)]
            assert len(plain_text(stored.content)) > 60_000
            assert asked_for(model, "summary") == []

    run(scenario)


def test_a18_compaction_succeeds_from_above_the_whole_window() -> None:
    model = model_of(window=0)

    async def scenario() -> None:
        store = MemoryStore()
        async with system(model, store=store) as it:
            agent = await it.launch(thread_id="t")
            await talk(agent, *TALK, *TALK, *TALK)
        small = model_of()
        async with system(small, store=store) as it:
            agent = await it.thread("t")
            await talk(agent, "And now?")
            assert [request.purpose for request in small.requests] == ["summary", "turn"]
            assert all(size_of(request) < WINDOW for request in small.requests)
            assert len(await summaries_of(agent)) == 1

    run(scenario)


def test_an_overflow_of_the_summary_itself_is_tried_again_with_less() -> None:
    def summary(request: ModelRequest) -> Playable:
        return ContextOverflow("too long") if size_of(request) > 1_000 else say("They talked.")

    model = model_of(summaries=summary)

    async def scenario() -> None:
        async with system(model) as it:
            agent = await it.launch()
            await talk(agent, *TALK[:6])
            assert len(await summaries_of(agent)) == 1
            first, second = asked_for(model, "summary")
            assert size_of(second) < 1_000 < size_of(first)

    run(scenario)


# By command


def test_a_command_with_nothing_to_compact_says_so() -> None:
    model = model_of()

    async def scenario() -> None:
        async with system(model) as it:
            agent = await it.launch()
            await agent.compact()
            await it.wait_idle()
            assert await notices_of(agent, "compaction_failed") == ["there is nothing to compact"]
            assert model.requests == []
            await talk(agent, *TALK[:2])
            await agent.compact()
            await it.wait_idle()
            await agent.compact()
            await it.wait_idle()
            assert len(await summaries_of(agent)) == 1
            assert (await notices_of(agent, "compaction_failed"))[1:] == ["there is nothing to compact"]

    run(scenario)


def test_a_command_that_comes_with_a_request_compacts_first() -> None:
    model = model_of()

    async def scenario() -> None:
        store = MemoryStore()
        async with system(model, store=store) as it:
            await talk(await it.launch(thread_id="t"), *TALK[:3])
        async with system(model, store=store, run=False) as it:
            agent = await it.thread("t")
            await agent.send("And now?")
            await agent.compact()
        async with system(model, store=store) as it:
            agent = await it.thread("t")
            await agent.wait_idle()
            assert [request.purpose for request in model.requests[3:]] == ["summary", "turn"]
            assert words_of(model.requests[-1]).count("And now?") == 1

    run(scenario)


def test_a_command_whose_summary_fails_for_now_is_given_up_visibly() -> None:
    model = model_of(summaries=[RateLimited("slow down")])

    async def scenario() -> None:
        async with system(model) as it:
            agent = await it.launch()
            await talk(agent, *TALK[:2])
            await agent.compact()
            await it.wait_idle()
            assert await notices_of(agent, "compaction_failed") == ["rate_limited: slow down"]
            assert (await agent.state()).activity == "idle"
            await talk(agent, "Hello")
            assert len(asked_for(model, "summary")) == 1

    run(scenario)


# What people see


def test_the_summary_is_not_streamed_as_if_it_were_said_and_every_cursor_goes_on() -> None:
    gate = Gate()
    model = model_of(summaries=[turn("They talked ", gate, "at length.", usage=Usage(50, 5))])

    async def scenario() -> None:
        async with system(model) as it:
            agent = await it.launch()
            await talk(agent, *TALK[:5])
            early, back = Watcher(agent), Watcher(agent)
            early.attach()
            back.attach()
            await agent.send(TALK[5])
            await gate.reached()
            await settle()
            assert retell(early.events)[-2:] == [
                f"user: {TALK[5]}",
                next(line for line in retell(early.events) if line.startswith("notice: compacting")),
            ]
            assert "They talked" not in str(early.events)
            await back.detach()
            late = Watcher(agent)
            late.attach()
            await settle()
            assert retell(late.events) == retell(early.events)
            gate.open()
            await agent.wait_idle()
            await settle()
            back.attach()
            await settle()
            stored = [event async for event in agent.events(follow=False)]
            for watcher in (early, back, late):
                assert retell(watcher.events) == retell(stored)
                assert not any(isinstance(event, TurnDiscarded) for event in watcher.events)
                await watcher.detach()
            (made,) = [event for event in stored if isinstance(event, Summarized)]
            assert made.before > made.after > 0
            assert sum(isinstance(event, CompletionStarted) for event in stored) == 6
            assert "They talked" not in "".join(event.text for event in stored if isinstance(event, TextChunk))
            for place, event in enumerate(stored, 1):
                rest = [event async for event in agent.events(event.cursor, follow=False)]
                assert retell([*stored[:place], *rest]) == retell(stored)
            assert (await agent.state()).usage.output == 5

    run(scenario)


@pytest.mark.parametrize("bad", [say(""), InvalidRequest("no")], ids=["bad", "failed"])
def test_a_watcher_of_a_compaction_that_fails_has_nothing_taken_back(bad: Playable) -> None:
    model = model_of(summaries=[bad])

    async def scenario() -> None:
        async with system(model) as it:
            agent = await it.launch()
            watcher = Watcher(agent)
            watcher.attach()
            await talk(agent, *TALK[:6])
            await settle()
            stored = [event async for event in agent.events(follow=False)]
            assert retell(watcher.events) == retell(stored)
            assert not any(isinstance(event, TurnDiscarded) for event in watcher.events)
            assert [event.kind for event in stored if isinstance(event, Notice)] == ["compacting", "compaction_failed"]
            await watcher.detach()

    run(scenario)


def test_who_speaks_during_it_is_heard_at_once_and_nothing_of_it_is_kept() -> None:
    gate = Gate()
    model = model_of(summaries=[turn("They talked ", gate, "at length."), say("They talked at length.")])

    async def scenario() -> None:
        async with system(model) as it:
            agent = await it.launch()
            await talk(agent, *TALK[:5])
            watcher = Watcher(agent)
            watcher.attach()
            await agent.send(TALK[5])
            await gate.reached()
            await agent.send("Never mind")
            await agent.wait_idle()
            await settle()
            receipts = [receipt.turn for receipt in await agent.receipts()][5:]
            assert receipts == [TurnCommit.NOT_SUMMARIZED, TurnCommit.SUMMARIZED, TurnCommit.COMPLETE]
            last = asked_for(model, "turn")[-1]
            assert words_of(last).count(TALK[5]) == 1
            assert plain_text(last.transcript[-1].content) == "Never mind"  # type: ignore[union-attr]
            stored = [event async for event in agent.events(follow=False)]
            assert retell(watcher.events) == retell(stored)
            await watcher.detach()

    run(scenario)


# Crashes


def story_of_a_compaction(store: FaultyStore | MortalStore) -> Callable[[], Any]:
    model = model_of()

    async def scenario() -> None:
        async with system(model, store=store) as it:
            agent = await it.launch(thread_id="t")
            for number, text in enumerate(TALK[:7]):
                await agent.send(text, message_id=f"m{number}")
                await agent.wait_idle()

    return scenario


async def look_at(store: MemoryStore) -> tuple[list[str], int]:
    # Whoever died before is known to be dead by now.
    async with system(model_of(), store=store, clock=ManualClock(START + MINUTE)) as it:
        agent = await it.launch(thread_id="t")
        for number, text in enumerate(TALK[:7]):
            await agent.send(text, message_id=f"m{number}")
            await agent.wait_idle()
        assert await it.verify("t") == (await agent.state()).version
        told = [item for item in await agent.history() if isinstance(item, UserItem | TextItem | SummaryItem)]
        return [f"{type(i).__name__} {getattr(i, 'content', getattr(i, 'text', ''))[:40]}" for i in told], len(
            await summaries_of(agent)
        )


def operations_of_a_compaction() -> list[str]:
    store = FaultyStore(MemoryStore())
    run(story_of_a_compaction(store))
    return store.operations


def test_a_crash_anywhere_leaves_all_of_a_compaction_or_nothing() -> None:
    operations = operations_of_a_compaction()
    plain: list[tuple[list[str], int]] = []

    async def undisturbed() -> None:
        plain.append(await look_at(MemoryStore()))

    run(undisturbed)
    assert plain[0][1] == 1
    for place in range(operations.index("claim"), len(operations) + 1):
        for after in (False, True):
            inner = MemoryStore()
            store = FaultyStore(inner, FaultPlan(crash_at=place, after=after))
            try:
                run(story_of_a_compaction(store))
            except* SimulatedCrash:
                pass
            found: list[tuple[list[str], int]] = []

            async def look(inner: MemoryStore = inner, found: list[tuple[list[str], int]] = found) -> None:
                found.append(await look_at(inner))

            run(look)
            assert found == plain, f"{'after' if after else 'before'} {place} {operations[place - 1]}"


class BusyOnce(FaultyStore):
    """A store in which the operation of one name fails that comes after so many of them, once."""

    def __init__(self, inner: MemoryStore, name: str, after: int) -> None:
        super().__init__(inner)
        self._name, self._left = name, after

    async def _perform(self, name: str, operation: Callable[[], Awaitable[T]]) -> T:
        if name == self._name:
            self._left -= 1
            if self._left == -1:
                raise StoreBusy("the disk is busy")
        return await super()._perform(name, operation)


@pytest.mark.parametrize("name", ["read_log", "commit", "take"])
def test_a_store_that_fails_anywhere_leaves_all_of_a_compaction_or_nothing(name: str) -> None:
    times = operations_of_a_compaction().count(name)
    assert times > 0
    for after in range(times):
        inner, clock = MemoryStore(), ManualClock()
        store = BusyOnce(inner, name, after)
        found: list[tuple[list[str], int]] = []

        async def scenario(
            store: BusyOnce = store,
            inner: MemoryStore = inner,
            clock: ManualClock = clock,
            found: list[tuple[list[str], int]] = found,
        ) -> None:
            async with system(model_of(clock=clock), store=store, clock=clock) as it:
                agent = await it.launch(thread_id="t")
                for number, text in enumerate(TALK[:7]):
                    await agent.send(text, message_id=f"m{number}")
                    while (await agent.state()).activity != "idle":
                        await pass_time(clock, SECOND)
            found.append(await look_at(inner))

        run(scenario)
        told, summaries = found[0]
        assert summaries == 1
        assert [line for line in told if line.startswith("UserItem")] == [f"UserItem {text}" for text in TALK[:7]]
