"""Which of several questions the model is asked to answer, and whose the answer is then."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from hibernaut import AgentSystem, ScriptedModel, ThreadHandle, ThreadOptions, tool
from hibernaut.errors import MalformedInput, NoAnswer
from hibernaut.kernel.outputs import WAITS
from hibernaut.messages.inputs import InputMessage, ToolResult
from hibernaut.messages.items import UserItem
from hibernaut.messages.parts import plain_text
from hibernaut.models.errors import InvalidRequest
from hibernaut.models.protocol import ModelRequest
from hibernaut.models.scripted import Answer, ScriptedTurn, call, say, turn
from tests.answering import answer, run

NOTE, _, _ = WAITS.partition("{")


def meant(request: ModelRequest) -> str:
    """Return the question that a model has to answer, as it reads it."""
    for item in reversed(request.transcript):
        if isinstance(item, UserItem):
            text = plain_text(item.content)
            if item.origin != "runtime":
                return text
            if text.startswith(NOTE):
                return text.split('"')[1]
    return ""


def to(request: ModelRequest) -> ScriptedTurn:
    """Answer the question that is meant."""
    return say(f"to {meant(request)}")


def steps(
    play: Callable[[ModelRequest], Answer], scenario: Callable[[AgentSystem, ThreadHandle], Awaitable[None]]
) -> None:
    """Run a scenario in which nothing goes on but in steps."""

    async def whole() -> None:
        async with AgentSystem(model=ScriptedModel(play), run=False) as system, asyncio.timeout(20):
            await scenario(system, await system.launch(thread_id="t"))

    asyncio.run(whole())


async def arrived(agent: ThreadHandle, count: int) -> None:
    """Return when so many messages wait."""
    while len(await agent.inbox()) < count:  # noqa: ASYNC110  # there is no event
        await asyncio.sleep(0)


def test_the_next_question_is_named_when_the_one_before_it_is_dropped_in_a_parked_thread() -> None:
    tries = 0

    def play(request: ModelRequest) -> Answer:
        nonlocal tries
        tries += 1
        return InvalidRequest("no") if tries == 1 else to(request)

    async def scenario(system: AgentSystem, agent: ThreadHandle) -> None:
        asked = [asyncio.create_task(agent.ask(name, message_id=name)) for name in "AB"]
        await arrived(agent, 2)
        await system.step([])
        for waiting in asked:
            with pytest.raises(NoAnswer, match="parked"):
                await waiting
        await agent.drop("A")
        await agent.resume()
        await system.step([])
        assert await agent.ask("B", message_id="B") == "to B"

    steps(play, scenario)


def test_the_next_question_is_named_when_the_one_before_it_failed_beside_other_calls() -> None:
    @tool(inline=True)
    async def look() -> str:
        """Look."""
        return "Nothing."

    def play(request: ModelRequest) -> Answer:
        if meant(request) == "1":
            return turn(answer({"value": "x"}), call("look"))
        return answer({"value": int(meant(request))})

    async def scenario(system: AgentSystem, agent: ThreadHandle) -> None:
        answers = await asyncio.gather(agent.ask("1", output=int), agent.ask("2", output=int), return_exceptions=True)
        assert isinstance(answers[0], NoAnswer)
        assert answers[1] == 2

    run(ScriptedModel(play), scenario, tools=[look])


def test_the_question_is_named_when_what_was_begun_for_it_brings_its_result_after_others_were_answered() -> None:
    working, released = asyncio.Event(), asyncio.Event()

    @tool
    async def count() -> str:
        """Count."""
        working.set()
        await released.wait()
        return "done"

    def play(request: ModelRequest) -> Answer:
        if meant(request) == "99":
            return say("99, then.")
        return answer({"value": int(meant(request))}) if released.is_set() else call("count")

    async def scenario(system: AgentSystem, agent: ThreadHandle) -> None:
        asked = asyncio.create_task(agent.ask("1", output=int))
        await working.wait()
        await agent.send("99")
        async for event in agent.events():
            if getattr(event, "text", "") == "99, then.":
                break
        released.set()
        assert await asked == 1

    run(ScriptedModel(play), scenario, tools=[count])


@pytest.mark.parametrize(
    "after_the_interruption",
    [
        [turn("hello ", reason="length"), say("Bob"), turn("A1 ", reason="length"), say("A2")],
        [say("Hello"), turn("A1 ", reason="length"), say("A2")],
        [turn("hello ", reason="length"), turn(), turn("A1 ", reason="length"), say("A2")],
    ],
)
def test_an_answer_that_was_cut_begins_with_nothing_that_was_said_to_others(
    after_the_interruption: list[ScriptedTurn],
) -> None:
    begun, going = asyncio.Event(), asyncio.Event()
    turns = iter(after_the_interruption)

    async def play(request: ModelRequest) -> Answer:
        if not begun.is_set():
            begun.set()
            await going.wait()
        return next(turns)

    async def scenario(system: AgentSystem, agent: ThreadHandle) -> None:
        asked = asyncio.create_task(agent.ask("A"))
        await begun.wait()
        await agent.send("U")
        assert await asked == "A1 A2"

    run(ScriptedModel(play), scenario)


def test_an_answer_that_was_cut_and_interrupted_begins_anew() -> None:
    begun = asyncio.Event()
    turns = iter([turn("old ", reason="length"), None, say("Hello."), turn("A1 ", reason="length"), say("A2")])

    async def play(request: ModelRequest) -> Answer:
        following = next(turns)
        if following is None:
            begun.set()
            await asyncio.Event().wait()
        return following or say("")

    async def scenario(system: AgentSystem, agent: ThreadHandle) -> None:
        asked = asyncio.create_task(agent.ask("A"))
        await begun.wait()
        await agent.send("U")
        assert await asked == "A1 A2"

    run(ScriptedModel(play), scenario)


def test_an_answer_that_was_cut_keeps_its_beginning_in_a_thread_that_was_parked_meanwhile() -> None:
    turns = iter([turn("A1 ", reason="length"), None, say("A2")])

    def play(request: ModelRequest) -> Answer:
        return next(turns) or InvalidRequest("no")

    async def scenario(system: AgentSystem, agent: ThreadHandle) -> None:
        with pytest.raises(NoAnswer, match="parked"):
            await agent.ask("A", message_id="A")
        await agent.resume()
        assert await agent.ask("A", message_id="A") == "A1 A2"

    run(ScriptedModel(play), scenario)


def test_a_summary_leaves_no_doubt_which_question_is_to_be_answered() -> None:
    looks = 0

    @tool(inline=True)
    async def look() -> str:
        """Look."""
        return "z" * 9_000

    def play(request: ModelRequest) -> Answer:
        nonlocal looks
        if request.purpose == "summary":
            return say("Things happened.")
        looks += 1
        return call("look") if looks <= 3 else to(request)

    async def scenario() -> None:
        options = ThreadOptions(context_window=8_000)
        model = ScriptedModel(play)
        async with AgentSystem(model=model, tools=[look], run=False, options=options) as system, asyncio.timeout(20):
            agent = await system.launch(thread_id="t")
            asked = [asyncio.create_task(agent.ask(name)) for name in "AB"]
            await arrived(agent, 2)
            await system.step([])
            assert [await one for one in asked] == ["to A", "to B"]
        summarized = next(one for one in model.requests if "Things happened." in str(one.transcript[0]))
        assert 'A program waits for the answer to "A"' in str(summarized.transcript[0])

    asyncio.run(scenario())


def test_whoever_spoke_before_a_second_question_is_answered_before_the_first() -> None:
    meanings: list[str] = []

    def play(request: ModelRequest) -> Answer:
        meanings.append(meant(request))
        return to(request)

    async def scenario(system: AgentSystem, agent: ThreadHandle) -> None:
        first = asyncio.create_task(agent.ask("A"))
        await arrived(agent, 1)
        await agent.send("U")
        second = asyncio.create_task(agent.ask("B"))
        await arrived(agent, 3)
        await system.step([])
        assert [await first, await second] == ["to A", "to B"]
        texts = [plain_text(item.content) for item in await agent.history() if isinstance(item, UserItem)]
        assert texts == ["A", "U", "B", f'{NOTE}"A"]', f'{NOTE}"B"]']

    steps(play, scenario)
    assert meanings == ["B", "A", "B"]


@dataclass
class Even:
    number: int

    def __post_init__(self) -> None:
        if self.number % 2:
            raise ValueError("must be even: " + "y" * 100_000)


def test_an_answer_that_its_type_refuses_is_sent_back_by_its_question_and_bounded() -> None:
    def play(request: ModelRequest) -> Answer:
        question = meant(request)
        return answer({"number": 4 if "cannot be taken" in str(request.transcript[-1]) else 3}) if question else say("")

    async def scenario(system: AgentSystem, agent: ThreadHandle) -> None:
        assert await agent.ask("Which?", output=Even) == Even(4)
        told = [item for item in await agent.history() if isinstance(item, UserItem)][-1]
        text = plain_text(told.content)
        assert text.startswith('[The answer to "Which?" is read by a program and cannot be taken: ')
        assert len(text) < 6_000

    run(ScriptedModel(play), scenario)


def test_a_text_is_returned_as_the_model_wrote_it() -> None:
    async def scenario(system: AgentSystem, agent: ThreadHandle) -> None:
        assert await agent.ask("Which?") == "a\u2400b\0c"

    run(ScriptedModel([say("a\u2400b\0c")]), scenario)


CALL = "call_0123456789abcdef"


@pytest.mark.parametrize(
    "name", ["retry:1", f"again:{'a' * 32}", f"sleep:{CALL}", f"result:{CALL}", "question:q_1.0@t"]
)
def test_no_message_can_take_the_name_of_one_of_the_runtime_s(name: str) -> None:
    async def scenario(system: AgentSystem, agent: ThreadHandle) -> None:
        for say_it in (agent.ask, agent.send):
            with pytest.raises(MalformedInput, match="one of the runtime's own"):
                await say_it("Hello?", message_id=name)
        assert await agent.inbox() == ()
        assert await agent.ask("Hello?", message_id=f"my-{name}") == "to Hello?"

    run(ScriptedModel(to), scenario)


@pytest.mark.parametrize("name", ["ask:1", "event:abc", "question:17", "close:ticket-4", "retry:now", "result:2026"])
def test_names_that_only_look_like_those_of_the_runtime_are_anybody_s(name: str) -> None:
    async def scenario(system: AgentSystem, agent: ThreadHandle) -> None:
        assert await agent.ask("Hello?", message_id=name) == "to Hello?"

    run(ScriptedModel(to), scenario)


def test_no_result_can_take_the_name_of_another_call_s() -> None:
    async def scenario(system: AgentSystem, agent: ThreadHandle) -> None:
        for message_id, call_id in ((f"result:{CALL}", "call_other"), (f"result:{CALL}", CALL)):
            message = InputMessage(message_id, "t", ToolResult(call_id, "x"))
            if call_id == CALL:
                await system.step([message])  # it is stale: there is no such call
            else:
                with pytest.raises(MalformedInput, match="one of the runtime's own"):
                    await system.step([message])
                assert await agent.inbox() == ()

    steps(to, scenario)


def test_whoever_waits_while_a_file_is_closed_is_told_so(tmp_path: Path) -> None:
    async def scenario(number: int) -> None:
        async with AgentSystem(model=ScriptedModel([]), store=tmp_path / f"{number}.db", run=False) as system:
            agent = await system.launch(thread_id="t")
            asked = asyncio.create_task(agent.ask("A", message_id="A"))
            await arrived(agent, 1)
            for _ in range(number):
                await asyncio.sleep(0)
        with pytest.raises(NoAnswer, match="the system was closed"):
            await asked

    for number in range(12):
        asyncio.run(asyncio.wait_for(scenario(number), 20))
