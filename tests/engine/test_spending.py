"""What completions took is counted, whatever became of them: as the provider says, or estimated where it does not."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from hibernaut.engine.spending import spent_on
from hibernaut.handle import ThreadHandle
from hibernaut.kernel.authority import Authority
from hibernaut.kernel.fold import Spent
from hibernaut.kernel.sizes import frame_tokens, items_tokens
from hibernaut.messages.events import CompletionFinished, Usage
from hibernaut.messages.stream import (
    CallDelta,
    CallStarted,
    Counted,
    Finish,
    ReasoningBlock,
    StreamPiece,
    TextDelta,
    ThinkingDelta,
)
from hibernaut.models.errors import ConnectionLost
from hibernaut.models.prices import Prices
from hibernaut.models.protocol import ModelInfo
from hibernaut.models.scripted import Part, ScriptedModel, fail, refuse, turn
from hibernaut.testing.clock import ManualClock
from hibernaut.testing.gates import Gate
from tests.engine.long_talks import TALK, model_of, talk
from tests.engine.scenario import MINUTE, head_of, run, settle, system, until_told

PRICES = Prices(input=2.0, output=10.0, cached=1.0, written=4.0)
PRICED = ModelInfo(prices=PRICES)

WORDS = "word " * 80
"""A hundred tokens, by our own estimate."""

TOLD = Counted(Usage(1_000, 1, 400))
"""What a provider says at the beginning of its answer."""


@asynccontextmanager
async def standing(
    *said: Part, info: ModelInfo = PRICED, **more: Any
) -> AsyncIterator[tuple[ThreadHandle, ScriptedModel]]:
    """Run an agent whose model stands still after these words; what it says next is the end."""
    gate = Gate()
    model = ScriptedModel([turn(*said, gate), turn("Yes?", usage=Usage(2_000, 3))], info=info)
    async with system(model, **more) as it:
        agent = await it.launch("Be kind.", message="Tell me a story")
        await gate.reached()
        await settle()
        yield agent, model


def test_what_a_person_cut_short_is_paid_for_as_far_as_it_was_counted_and_estimated_beyond_that() -> None:
    async def scenario() -> None:
        async with standing(TOLD, WORDS) as (agent, _):
            await agent.send("Stop")
            await until_told(agent, "says: Yes?")
            state, receipts = await agent.state(), await agent.receipts()
            ends = [event async for event in agent.events(follow=False) if isinstance(event, CompletionFinished)]
        cut, whole = Usage(1_000, 100, 400), Usage(2_000, 3)
        assert state.usage == Usage(3_000, 103, 400)
        assert state.cost == (600 * 2 + 400 * 1 + 100 * 10) + (2_000 * 2 + 3 * 10)
        assert (state.unpriced, state.estimated, state.estimated_cost) == (0, 99, 990)
        assert [(one.usage, one.estimated) for one in receipts if one.usage] == [(cut, 99), (whole, 0)]
        assert [(end.usage, end.interrupted, end.estimated) for end in ends] == [(cut, True, 99), (whole, False, 0)]

    run(scenario)


def test_a_prompt_that_nobody_has_counted_is_estimated_too() -> None:
    async def scenario() -> None:
        async with standing(WORDS) as (agent, model):
            await agent.stop("enough")
            await until_told(agent, "notice: stopped enough")
            state, asked = await agent.state(), model.requests[0]
        prompt = frame_tokens(asked.instructions, asked.tools) + items_tokens(asked.transcript)
        assert (state.usage, state.estimated) == (Usage(prompt, 100), prompt + 100)
        assert state.cost == state.estimated_cost == prompt * 2 + 1_000

    run(scenario)


def test_a_prompt_is_estimated_from_the_last_one_that_was_counted() -> None:
    async def scenario() -> None:
        gate = Gate()
        model = ScriptedModel([turn("Hello.", usage=Usage(5_000, 10)), turn(WORDS, gate)])
        async with system(model) as it:
            agent = await it.launch()
            await talk(agent, "Hi")
            await agent.send("word " * 8)
            await gate.reached()
            await settle()
            await agent.stop()
            await agent.wait_idle()
            state = await agent.state()
        assert state.usage == Usage(5_000 + 5_010 + 4 + 10, 10 + 100)
        assert state.estimated == state.unpriced - 5_010 == 5_024 + 100

    run(scenario)


def test_nothing_is_counted_before_a_provider_has_begun_to_answer() -> None:
    async def scenario() -> None:
        async with standing() as (agent, _):
            await agent.stop()
            await agent.wait_idle()
            state, receipts = await agent.state(), await agent.receipts()
        assert (state.usage, state.cost, state.estimated) == (Usage(), 0, 0)
        assert not any(receipt.usage for receipt in receipts)

    run(scenario)


def test_a_stream_that_broke_is_paid_for_each_time() -> None:
    clock = ManualClock()
    broken = fail(ConnectionLost("reset"), TOLD, WORDS)
    model = ScriptedModel([broken, broken, turn("Yes?", usage=Usage(2_000, 3))], info=PRICED, clock=clock)

    async def scenario() -> None:
        async with system(model, clock=clock) as it:
            agent = await it.launch(message="Hello")
            for number in (2, 3):
                await until_told(
                    agent, f"notice: retry connection_lost: reset; attempt {number} of 6 in {number - 1} s"
                )
                clock.advance(MINUTE)
            await until_told(agent, "says: Yes?")
            state = await agent.state()
        assert (state.usage, state.estimated) == (Usage(4_000, 203, 800), 198)

    run(scenario)


def test_what_is_estimated_counts_against_what_a_thread_may_cost() -> None:
    async def scenario() -> None:
        async with standing(TOLD, WORDS, authority=Authority(dollars=0.002)) as (agent, model):
            await agent.send("Stop")
            state = await agent.wait_idle()
        assert state.status == "parked"
        assert state.reason.startswith("the budget of $0.0020 is used up (1,100 tokens used in all")
        assert "99 of them are estimated, of completions that were cut short" in state.reason
        assert len(model.requests) == 1

    run(scenario)


def test_a_completion_that_was_refused_is_paid_for_like_any_other() -> None:
    model = ScriptedModel([turn(refuse("I won't."), usage=Usage(1_000, 20, 400))], info=PRICED)

    async def scenario() -> None:
        async with system(model) as it:
            agent = await it.launch(message="Hello")
            state = await agent.wait_idle()
            receipts = await agent.receipts()
            head = await head_of(agent)
        assert state.status == "parked"
        assert (state.usage, state.cost, state.unpriced) == (Usage(1_000, 20, 400), 1_800, 0)
        assert [(receipt.usage, receipt.estimated) for receipt in receipts] == [(Usage(1_000, 20, 400), 0)]
        assert head.measured == 0, "what was refused says nothing of the prompt that comes next"

    run(scenario)


def test_a_summary_that_was_cut_short_is_paid_for() -> None:
    gate = Gate()
    model = model_of(summaries=[turn(Counted(Usage(700, 1)), WORDS, gate)])

    async def scenario() -> None:
        async with system(model) as it:
            agent = await it.launch()
            await talk(agent, *TALK[:5])
            await agent.send(TALK[5])
            await gate.reached()
            await settle()
            await agent.stop()
            await agent.wait_idle()
            state, receipts = await agent.state(), await agent.receipts()
        assert (state.usage, state.estimated) == (Usage(700, 100), 99)
        assert [(one.usage, one.estimated) for one in receipts if one.estimated] == [(Usage(700, 100), 99)]

    run(scenario)


@pytest.mark.parametrize(
    "pieces,spent",
    [
        ([], Spent()),
        ([Finish(usage=Usage(10, 2), written=4)], Spent(Usage(10, 2), 6 * 2 + 4 * 4 + 2 * 10)),
        ([TOLD, Finish("length", Usage(12, 3))], Spent(Usage(12, 3), 12 * 2 + 3 * 10)),
        ([Counted(Usage(10), written=4)], Spent(Usage(10), 6 * 2 + 4 * 4)),
        ([TOLD, Counted(Usage(1_000, 50)), TextDelta("word")], Spent(Usage(1_000, 50), 2_500)),
        ([Counted(Usage(0, 1)), TextDelta("a" * 9)], Spent(Usage(70, 3), 170, 72, 160)),
        ([CallStarted(0, "look"), CallDelta(0, '{"a'), CallDelta(0, '":1}')], Spent(Usage(70, 3), 170, 73, 170)),
        ([TextDelta("日本語の")], Spent(Usage(70, 3), 170, 73, 170)),
        ([ThinkingDelta("word" * 3), ReasoningBlock("p", b"x" * 400, "word")], Spent(Usage(70, 3), 170, 73, 170)),
        ([ReasoningBlock("p", b"x" * 12)], Spent(Usage(70, 3), 170, 73, 170)),
    ],
)
def test_what_was_said_until_then_is_estimated_by_its_size(pieces: list[StreamPiece], spent: Spent) -> None:
    assert spent_on(pieces, lambda: 70, PRICES) == spent
