"""Compaction that cannot succeed, does not help, or is cut off: nothing is lost, and nothing loops."""

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from hibernaut.errors import StoreBusy
from hibernaut.kernel.limits import ThreadOptions
from hibernaut.messages.events import Usage
from hibernaut.messages.items import (
    ResultItem,
    SummaryItem,
    TextItem,
    UserItem,
)
from hibernaut.messages.parts import plain_text
from hibernaut.models.errors import ContextOverflow, InvalidRequest, RateLimited
from hibernaut.models.protocol import ModelRequest
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
from hibernaut.testing.clock import ManualClock
from hibernaut.testing.faults import FaultPlan, FaultyStore, SimulatedCrash
from hibernaut.tools.tool import tool
from tests.engine.long_talks import (
    LONG,
    TALK,
    WINDOW,
    T,
    asked_for,
    model_of,
    notices_of,
    size_of,
    summaries_of,
    talk,
    words_of,
)
from tests.engine.scenario import (
    MINUTE,
    SECOND,
    START,
    MortalStore,
    head_of,
    pass_time,
    run,
    system,
    until_activity,
)

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
