"""What a program asks a thread for, and gets: text, or a value of the type that it named."""

from collections.abc import Callable
from enum import Enum
from typing import Annotated, Any, Literal, TypedDict

import msgspec
import pytest

from hibernaut import AgentSystem, ScriptedModel, ThreadHandle, ThreadOptions, tool
from hibernaut.errors import NoAnswer, ToolDefinitionError
from hibernaut.kernel.outputs import BESIDE, CUT, TAKEN, TAKEN_BEFORE
from hibernaut.messages.events import OutputGiven
from hibernaut.messages.items import CallItem, OutputItem, ResultItem, UserItem
from hibernaut.messages.tools import ANSWER_TOOL
from hibernaut.models.protocol import ModelInfo
from hibernaut.models.scripted import Playable, call, call_raw, say, turn
from tests.answering import BUILD, GOOD, Build, answer, run


class Color(Enum):
    RED = "red"
    GREEN = "green"


class Place(TypedDict):
    name: str
    seats: int


class Tree(msgspec.Struct):
    name: str
    below: "list[Tree]" = []


def native(*turns: Playable) -> ScriptedModel:
    """Return a model whose provider can be held to a form."""
    return ScriptedModel(list(turns), info=ModelInfo(structured=True))


def written(values: dict[str, Any]) -> str:
    """Return JSON."""
    return msgspec.json.encode(values).decode()


async def outputs(agent: ThreadHandle) -> list[OutputItem]:
    """Return what programs have been answered."""
    return [item for item in await agent.history() if isinstance(item, OutputItem)]


# Text


def test_without_a_type_the_answer_is_the_text_of_the_last_turn() -> None:
    @tool
    async def look() -> str:
        """Look."""
        return "It is raining."

    async def scenario(system: AgentSystem, agent: ThreadHandle) -> None:
        assert await agent.ask("How is the weather?") == "It rains."
        events = [event async for event in agent.events(follow=False)]
        assert [event.value for event in events if isinstance(event, OutputGiven)] == ["It rains."]

    run(ScriptedModel([turn("Let me look.", call("look")), say("It rains.")]), scenario, tools=[look])


def test_a_text_that_the_output_limit_cut_is_put_together() -> None:
    async def scenario(system: AgentSystem, agent: ThreadHandle) -> None:
        assert await agent.ask("Count.") == "one two three"

    run(ScriptedModel([turn("one ", reason="length"), turn("two ", reason="length"), say("three")]), scenario)


def test_a_text_that_is_cut_more_often_than_it_may_be_continued_is_whole_up_to_there() -> None:
    async def scenario(system: AgentSystem, agent: ThreadHandle) -> None:
        assert await agent.ask("Count.") == "one two three "

    cut = [turn(f"{number} ", reason="length") for number in ("one", "two", "three")]
    run(ScriptedModel(cut), scenario, options=ThreadOptions(max_continuations=2))


def test_an_empty_turn_is_no_answer_and_is_asked_for_once_more() -> None:
    async def scenario(system: AgentSystem, agent: ThreadHandle) -> None:
        assert await agent.ask("Hello?") == "Hello."
        with pytest.raises(NoAnswer, match="nothing was answered"):
            await agent.ask("Hello?")

    run(ScriptedModel([turn(), say("Hello."), turn(), turn()]), scenario)


@pytest.mark.parametrize(
    "turns, text",
    [
        ([turn("Let me look: ", reason="length"), call("look"), say("Final.")], "Final."),
        ([turn("A ", reason="length"), turn("B ", call("look")), say("C")], "C"),
        ([turn("B ", call("look")), turn("A ", reason="length"), say("C")], "A C"),
    ],
)
def test_the_answer_is_the_text_of_the_turn_that_ends_the_work(turns: list[Playable], text: str) -> None:
    @tool
    async def look() -> str:
        """Look."""
        return "Seen."

    async def scenario(system: AgentSystem, agent: ThreadHandle) -> None:
        assert await agent.ask("What is there?") == text

    run(ScriptedModel(turns), scenario, tools=[look])


# Values


@pytest.mark.parametrize("model", [native(say(written(GOOD))), ScriptedModel([answer(GOOD)])], ids=["native", "tool"])
def test_a_value_of_the_type_is_returned(model: ScriptedModel) -> None:
    async def scenario(system: AgentSystem, agent: ThreadHandle) -> None:
        assert await agent.ask("Build abc456", output=Build) == BUILD
        assert [item.value for item in await outputs(agent)] == [written(GOOD)]

    run(model, scenario)


@pytest.mark.parametrize(
    "kind, values, value",
    [
        (int, {"value": 5}, 5),
        (float, {"value": 5}, 5.0),
        (int, {"value": 5.0}, 5),
        (list[int], {"value": [1, 2]}, [1, 2]),
        (Color, {"value": "green"}, Color.GREEN),
        (Literal["a", "b"], {"value": "b"}, "b"),
        (Build | None, {"value": None}, None),
        (Place, {"name": "Hall", "seats": 3}, {"name": "Hall", "seats": 3}),
        (dict[str, int], {"value": {"a": 1}}, {"a": 1}),
        (Tree, {"name": "a", "below": [{"name": "b"}]}, Tree("a", [Tree("b")])),
        (bytes, {"value": "aGk="}, b"hi"),
        (Annotated[int, msgspec.Meta(ge=3)], {"value": 3}, 3),
    ],
)
def test_a_type_may_be_whatever_a_tool_takes(kind: Any, values: dict[str, Any], value: Any) -> None:
    async def scenario(system: AgentSystem, agent: ThreadHandle) -> None:
        assert await agent.ask("Which?", output=kind) == value

    run(ScriptedModel([answer(values)]), scenario)


def test_an_answer_in_a_fence_is_taken() -> None:
    async def scenario(system: AgentSystem, agent: ThreadHandle) -> None:
        assert await agent.ask("Which?", output=Build) == BUILD

    run(native(say(f"```json\n{written(GOOD)}\n```")), scenario)


def test_a_pydantic_model_is_asked_again_with_what_its_own_rules_say() -> None:
    pydantic = pytest.importorskip("pydantic")

    def is_even(value: int) -> int:
        if value % 2:
            raise ValueError("it has to be even")
        return value

    model = pydantic.create_model("Even", number=(Annotated[int, pydantic.AfterValidator(is_even)], ...))

    async def scenario(system: AgentSystem, agent: ThreadHandle) -> None:
        even = await agent.ask("A number?", output=model, message_id="ask")
        assert even.number == 4
        (told,) = [
            item for item in await agent.history() if isinstance(item, UserItem) and "has to be even" in str(item)
        ]
        assert told.origin == "runtime"

    run(ScriptedModel([answer({"number": 3}), answer({"number": 4})]), scenario)


def test_a_type_that_json_cannot_write_is_refused_and_nothing_is_said() -> None:
    async def scenario(system: AgentSystem, agent: ThreadHandle) -> None:
        with pytest.raises(ToolDefinitionError):
            await agent.ask("Which?", output=Callable[[], int])
        assert await agent.history() == []

    run(ScriptedModel([]), scenario)


# Answers that do not fit


def test_an_answer_that_does_not_fit_is_sent_back_once_by_the_provider_s_own_way() -> None:
    model = native(say('{"commit": "abc456", "passed": "no", "failures": []}'), say(written(GOOD)))

    async def scenario(system: AgentSystem, agent: ThreadHandle) -> None:
        assert await agent.ask("Build abc456", output=Build) == BUILD
        told = [str(item.content) for item in await agent.history() if isinstance(item, UserItem) and item.origin]
        assert len(told) == 1
        assert "$.passed" in told[0]
        assert "boolean" in told[0]

    run(model, scenario)
    assert all(request.output is not None for request in model.requests)
    assert all(ANSWER_TOOL not in [spec.name for spec in request.tools] for request in model.requests)


def test_an_answer_that_does_not_fit_is_sent_back_once_as_a_failed_call() -> None:
    bad = {**GOOD, "passed": "no"}
    model = ScriptedModel([answer(bad), answer(GOOD)])

    async def scenario(system: AgentSystem, agent: ThreadHandle) -> None:
        assert await agent.ask("Build abc456", output=Build) == BUILD
        history = await agent.history()
        results = [item for item in history if isinstance(item, ResultItem)]
        assert [(item.is_error, "$.passed" in str(item.content)) for item in results] == [(True, True), (False, False)]
        assert results[1].content == TAKEN
        assert [item.arguments for item in history if isinstance(item, CallItem)] == [written(bad), written(GOOD)]

    run(model, scenario)
    assert [[spec.name for spec in request.tools][-1] for request in model.requests] == [ANSWER_TOOL, ANSWER_TOOL]


@pytest.mark.parametrize(
    "turns",
    [
        [say("It failed."), say("I said: it failed.")],
        [answer({}), answer({"commit": 1})],
        [answer({}), say("Sorry.")],
        [say("{"), answer({})],
        [turn(), turn()],
        [call_raw(ANSWER_TOOL, "{"), call_raw(ANSWER_TOOL, '{"a": NaN}')],
        [turn(call_raw(ANSWER_TOOL, '{"commit": "a', ended=False), reason="length"), turn("{", reason="length")],
    ],
)
def test_an_answer_that_never_fits_is_no_answer_and_the_thread_goes_on(turns: list[Playable]) -> None:
    async def scenario(system: AgentSystem, agent: ThreadHandle) -> None:
        with pytest.raises(NoAnswer) as caught:
            await agent.ask("Build abc456", output=Build)
        assert caught.value.problem
        assert await agent.ask("Never mind.") == "Good."

    model = ScriptedModel([*turns, say("Good.")])
    run(model, scenario)
    assert len(model.requests) == 3
    assert ANSWER_TOOL not in [spec.name for spec in model.requests[2].tools]


def test_c51_an_answer_that_the_output_limit_cut_is_asked_for_again_and_not_continued() -> None:
    async def scenario(system: AgentSystem, agent: ThreadHandle) -> None:
        assert await agent.ask("Build abc456", output=Build) == BUILD
        assert any(isinstance(item, UserItem) and CUT in str(item.content) for item in await agent.history())

    run(native(turn('{"commit": "abc', reason="length"), say(written(GOOD))), scenario)


def test_a_second_answer_in_one_turn_is_not_taken_and_stays_what_it_was() -> None:
    async def scenario(system: AgentSystem, agent: ThreadHandle) -> None:
        assert await agent.ask("A number?", output=int) == 1
        history = await agent.history()
        assert [item.value for item in await outputs(agent)] == ['{"value":1}']
        assert [item.arguments for item in history if isinstance(item, CallItem)] == [
            f'{{"value":{number}}}' for number in range(1, 8)
        ]
        results = [item.content for item in history if isinstance(item, ResultItem)]
        assert results == [TAKEN, *[TAKEN_BEFORE] * 6]
        assert (await agent.state()).status == "open"

    run(ScriptedModel([turn(*[answer({"value": number}) for number in range(1, 8)])]), scenario)


@pytest.mark.parametrize("first", [True, False])
def test_an_answer_beside_other_calls_is_a_guess_and_is_sent_back(first: bool) -> None:
    @tool
    async def work() -> str:
        """Work."""
        return "It is 2."

    guess = [answer({"value": 1}), call("work")]

    async def scenario(system: AgentSystem, agent: ThreadHandle) -> None:
        assert await agent.ask("A number?", output=int) == 2
        results = [str(item.content) for item in await agent.history() if isinstance(item, ResultItem)]
        assert sum(BESIDE in result for result in results) == 1

    script = [turn(*(guess if first else reversed(guess))), answer({"value": 2})]
    run(ScriptedModel(script), scenario, tools=[work])


def test_after_two_misfits_the_model_is_not_told_to_try_again() -> None:
    async def scenario(system: AgentSystem, agent: ThreadHandle) -> None:
        with pytest.raises(NoAnswer, match="valu"):
            await agent.ask("A number?", output=int)
        results = [str(item.content) for item in await agent.history() if isinstance(item, ResultItem)]
        assert ["Give it again" in result for result in results] == [True, False]

    run(ScriptedModel([answer({"value": "x"}), answer({"value": "y"})]), scenario)


def test_a_call_of_the_tool_when_nobody_asked_is_refused() -> None:
    async def scenario(system: AgentSystem, agent: ThreadHandle) -> None:
        await agent.send("Hi")
        await agent.wait_idle()
        (result,) = [item for item in await agent.history() if isinstance(item, ResultItem)]
        assert result.is_error
        assert await outputs(agent) == []

    run(ScriptedModel([answer({"value": 1}), say("Hi.")]), scenario)


def test_no_tool_may_be_called_as_the_one_that_takes_answers() -> None:
    with pytest.raises(ToolDefinitionError, match="the runtime's own"):

        @tool
        async def give_answer() -> None:
            """Give."""
