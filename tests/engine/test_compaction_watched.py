"""Compaction that people ask for, and what they see of it."""

import pytest

from hibernaut.kernel.receipt import TurnCommit
from hibernaut.messages.events import CompletionStarted, Notice, Summarized, TextChunk, TurnDiscarded, Usage
from hibernaut.messages.parts import plain_text
from hibernaut.models.errors import InvalidRequest, RateLimited
from hibernaut.models.scripted import (
    Playable,
    say,
    turn,
)
from hibernaut.stores.memory import MemoryStore
from hibernaut.testing.gates import Gate
from tests.engine.long_talks import (
    TALK,
    asked_for,
    model_of,
    notices_of,
    summaries_of,
    talk,
    words_of,
)
from tests.engine.scenario import (
    Watcher,
    retell,
    run,
    settle,
    system,
)

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
