"""What is handed in at the front door, and what strangers' code may do behind it."""

import asyncio
from typing import Any, cast

import pytest

from hibernaut import AgentSystem, Deferred, ScriptedModel, ThreadOptions, ToolContext, tool
from hibernaut.errors import ConfigurationError, MalformedInput
from hibernaut.models.scripted import call, say


async def _stubborn() -> str:
    """Never end, whatever is asked."""
    while True:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            if stop_being_stubborn.is_set():
                raise


stop_being_stubborn = asyncio.Event()


@pytest.mark.parametrize("name", ["", "a\nb", "a\0b", "\ud800", "x" * 201, cast("str", 5)])
def test_a_name_that_cannot_be_shown_is_refused_and_makes_nothing(name: str) -> None:
    async def scenario() -> None:
        async with AgentSystem(model=ScriptedModel([])) as system:
            with pytest.raises(MalformedInput):
                await system.send(name, "hi")
            assert await system.threads() == []

    asyncio.run(scenario())


@pytest.mark.parametrize("content", [5, None, ["a"], ("a",), {"text": "a"}])
def test_what_is_no_content_is_refused(content: Any) -> None:
    async def scenario() -> None:
        async with AgentSystem(model=ScriptedModel([])) as system:
            agent = await system.launch()
            with pytest.raises(MalformedInput):
                await agent.send(content)

    asyncio.run(scenario())


def test_launch_values_of_another_type_are_refused_and_store_nothing() -> None:
    async def scenario() -> None:
        async with AgentSystem(model=ScriptedModel([])) as system:
            for values in (
                {"instructions": 5},
                {"user": 5},
                {"options": ThreadOptions(max_attempts=cast("int", "1"))},
                {"options": ThreadOptions(parallel_calls=0)},
            ):
                with pytest.raises(ConfigurationError):
                    await system.launch(**cast("Any", values))
            assert await system.threads() == []

    asyncio.run(scenario())


def test_a_system_that_could_not_run_is_refused_when_it_is_made() -> None:
    @tool
    async def sleep(seconds: int) -> None:
        """Sleep."""

    with pytest.raises(ConfigurationError, match="every thread has"):
        AgentSystem(model=ScriptedModel([]), tools=[sleep])
    with pytest.raises(ConfigurationError, match="max_slices"):
        AgentSystem(model=ScriptedModel([]), max_slices=0)


def test_a_step_refuses_a_blank_text_and_makes_no_thread() -> None:
    async def scenario() -> None:
        async with AgentSystem(model=ScriptedModel([]), run=False) as system:
            with pytest.raises(MalformedInput, match="blank"):
                await system.step(['{"content": {"type": "text", "text": "  "}, "group_id": "t"}'])
            assert await system.threads() == []

    asyncio.run(scenario())


def test_a_tool_that_swallows_its_cancellation_is_answered_in_time() -> None:
    stubborn = tool(name="stubborn", timeout=0.05)(_stubborn)

    async def scenario() -> None:
        model = ScriptedModel([call("stubborn"), say("Well.")])
        async with AgentSystem(model=model, tools=[stubborn]) as system, asyncio.timeout(10):
            agent = await system.launch(message="Go")
            await agent.wait_idle()
            answer = [item for item in await agent.history() if type(item).__name__ == "ResultItem"]
            assert "did not answer within 0.05 s" in str(answer)
        stop_being_stubborn.set()

    asyncio.run(scenario())


@pytest.mark.parametrize("inline", [False, True])
@pytest.mark.parametrize("timeout", [None, 5])
@pytest.mark.parametrize("kind", [BaseException, SystemExit])
def test_whatever_a_tool_raises_is_its_answer(kind: type[BaseException], timeout: float | None, inline: bool) -> None:
    @tool(inline=inline, timeout=timeout)
    async def give_up() -> str:
        """Give up."""
        raise kind("enough")

    async def scenario() -> None:
        model = ScriptedModel([call("give_up"), say("Well.")])
        async with AgentSystem(model=model, tools=[give_up]) as system, asyncio.timeout(10):
            agent = await system.launch(message="Go")
            state = await agent.wait_idle()
            assert (state.status, state.activity) == ("open", "idle")
            assert f"{kind.__name__}: enough" in str(await agent.history())

    asyncio.run(scenario())


def test_a_defect_of_a_model_parks_its_thread_with_the_words_of_the_error() -> None:
    async def scenario() -> None:
        async with AgentSystem(model=ScriptedModel([])) as system, asyncio.timeout(10):
            agent = await system.launch(message="Go")
            state = await agent.wait_idle()
            assert state.status == "parked"
            assert state.reason.startswith("model_defect: ScriptExhausted: ")

    asyncio.run(scenario())


def test_whoever_waits_for_a_thread_to_be_idle_is_told_when_the_system_is_closed() -> None:
    called = asyncio.Event()

    @tool
    async def later(context: ToolContext) -> Deferred:
        """Be answered later."""
        called.set()
        return context.defer()

    async def scenario() -> None:
        async with AgentSystem(model=ScriptedModel([call("later")]), tools=[later]) as system:
            agent = await system.launch(thread_id="t")
            await agent.send("Hello.")
            waiting = asyncio.create_task(agent.wait_idle())
            await called.wait()
        with pytest.raises(ConfigurationError, match="closed before thread t was idle"):
            await asyncio.wait_for(waiting, 20)

    asyncio.run(scenario())
