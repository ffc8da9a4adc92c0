"""Whole agents that Claude drives: with tools, over sleep and restarts, and from one provider to another."""

from functools import partial
from pathlib import Path
from typing import cast

import pytest

from hibernaut import AgentSystem, ScriptedModel, tool
from hibernaut.handle import ThreadHandle
from hibernaut.messages.events import Usage
from hibernaut.messages.items import ReasoningItem
from hibernaut.messages.stream import Counted
from hibernaut.models.errors import ConnectionLost, Overloaded, RateLimited
from hibernaut.models.protocol import Model
from hibernaut.models.scripted import call, drop, fail, say, stall, think, turn
from hibernaut.testing.clock import ManualClock
from hibernaut.testing.providers.anthropic import AnthropicWire
from hibernaut.testing.providers.server import FakeProvider, Played
from tests.engine.scenario import MINUTE, run, story, until, until_activity, until_told
from tests.models.anthropic.setting import BOUND, BUDGET, about, model_at, talking


@tool
async def look(path: str) -> str:
    """Look at a file."""
    return f"{path} says hello"


@tool
async def smell(thing: str) -> str:
    """Smell at something."""
    return f"{thing} smells"


def wire_of(fake: FakeProvider) -> AnthropicWire:
    return cast("AnthropicWire", fake.wire)


def thoughts(fake: FakeProvider) -> list[int]:
    """How many blocks of thinking each request brought back."""
    return [asked.raw.count(b'"signature":"') for asked in fake.asked]


async def notices(agent: ThreadHandle, number: int) -> bool:
    """Tell whether so many attempts have failed."""
    return sum(line.startswith("notice: retry") for line in await story(agent)) == number


SCRIPT = (
    turn(think("I should look. 🦉", data=b"x"), "I look. ", call("look", path="ä.txt"), call("look", path="b.txt")),
    turn(think("Both.", data=b"x"), think(data=b"hidden"), "They say hello."),
    turn(think("Until tomorrow.", data=b"x"), call("sleep", seconds=3_600)),
    turn(think("Awake.", data=b"x"), "I am awake."),
)


@pytest.mark.parametrize("model,effort", [(BUDGET, "high"), (BOUND, "")])
def test_a23_an_agent_looks_sleeps_and_goes_on_after_a_restart(model: str, effort: str, tmp_path: Path) -> None:
    async def scenario() -> None:
        clock = ManualClock()
        async with talking(SCRIPT, about(model, effort=effort)) as (claude, fake):
            store = tmp_path / "agents.db"
            async with AgentSystem(model=claude, tools=[look], store=store, clock=clock) as system:
                agent = await system.launch("Be kind.", thread_id="t", message="look")
                await agent.wait_idle()
                await agent.send("sleep an hour")
                await until_activity(agent, "resting")
            again = model_at(fake.url, about(model, effort=effort))
            async with AgentSystem(model=again, tools=[look], store=store, clock=clock) as system:
                agent = await system.thread("t")
                await until_activity(agent, "resting")
                clock.advance(60 * MINUTE)
                await until_told(agent, "says: I am awake.")
                blocks = [item.provider for item in await agent.history() if isinstance(item, ReasoningItem)]
            await again._endpoint.close()
        assert blocks == ["anthropic"] * 5
        assert fake.refused == []
        assert thoughts(fake) == [0, 1, 2, 3]
        assert wire_of(fake).displaced == [0, 0, 0, 0], (
            "what was thought stands where it was thought, after a restart too"
        )

    run(scenario)


def test_c36_other_tools_after_a_restart_poison_no_thread_of_a_model_that_checks_its_thinking(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with talking([SCRIPT[0], SCRIPT[1], "Hello again."], about(BOUND)) as (claude, fake):
            store = tmp_path / "agents.db"
            async with AgentSystem(model=claude, tools=[look, smell], store=store) as system:
                agent = await system.launch("Be kind.", thread_id="t", message="look")
                await agent.wait_idle()
            again = model_at(fake.url, about(BOUND))
            async with AgentSystem(model=again, tools=[look], store=store) as system:
                agent = await system.thread("t")
                await agent.send("hello?")
                await until_told(agent, "says: Hello again.")
            await again._endpoint.close()
        assert fake.refused == []
        assert wire_of(fake).displaced == [0, 0, 2]

    run(scenario)


@pytest.mark.parametrize("effort", ["", "high"])
def test_another_provider_may_begin_a_turn_and_claude_goes_on_with_it(effort: str, tmp_path: Path) -> None:
    async def scenario() -> None:
        store = tmp_path / "agents.db"
        first: Model = ScriptedModel([turn(think("Foreign.", data=b"\xff"), call("sleep", seconds=60))])
        clock = ManualClock()
        async with AgentSystem(model=first, tools=[look], store=store, clock=clock) as system:
            agent = await system.launch("Be kind.", thread_id="t", message="look")
            await until_activity(agent, "resting")
        async with talking([SCRIPT[0], SCRIPT[1]], about(BUDGET, effort=effort)) as (claude, fake):
            async with AgentSystem(model=claude, tools=[look], store=store, clock=clock) as system:
                agent = await system.thread("t")
                clock.advance(MINUTE)
                await until_told(agent, "says: They say hello.")
            assert fake.refused == []
            assert ["thinking" in asked.body for asked in fake.asked] == [False, False], "not in the middle of a turn"
        back: Model = ScriptedModel(["Back again."])
        async with AgentSystem(model=back, tools=[look], store=store, clock=clock) as system:
            agent = await system.thread("t")
            await agent.send("and?")
            await until_told(agent, "says: Back again.")

    run(scenario)


def test_c51_what_broke_off_is_tried_again_and_leaves_nothing_behind() -> None:
    async def scenario() -> None:
        clock = ManualClock()
        script = (
            RateLimited("slow down", 2_000),
            Overloaded("busy"),
            fail(Overloaded("broke"), "half ", call("look", path="a"), after=3),
            fail(ConnectionLost("reset"), "half ", after=1),
            drop("half "),
            say("whole"),
        )
        async with talking(script) as (claude, _), AgentSystem(model=claude, tools=[look], clock=clock) as system:
            agent = await system.launch("Be kind.", message="hello")
            for number in range(1, len(script)):
                await until(agent, partial(notices, agent, number))
                clock.advance(MINUTE)
            told = await until_told(agent, "says: whole")
        assert [line for line in told if not line.startswith("notice")] == ["user: hello", "says: whole"]

    run(scenario)


def test_a_user_who_speaks_in_between_is_heard_and_the_provider_stops() -> None:
    async def scenario() -> None:
        begins = turn(Counted(Usage(1_000, 1, 400)), stall("I was about "))
        script: list[Played] = [begins, turn("Yes?", usage=Usage(1_010, 2))]
        async with talking(script) as (claude, fake), AgentSystem(model=claude) as system:
            agent = await system.launch("Be kind.", message="tell me a story")
            async for event in agent.events():
                if "I was about" in str(event):
                    break
            await agent.send("stop")
            await until_told(agent, "says: Yes?")
            await fake.left.wait()
            told, state = await story(agent), await agent.state()
        assert (state.usage, state.estimated) == (Usage(2_010, 3 + 2, 400), 2), "three tokens, one of which was told"
        assert told == ["user: tell me a story", "says: I was about  [interrupted]", "user: stop", "says: Yes?"]
        assert fake.refused == []

    run(scenario)
