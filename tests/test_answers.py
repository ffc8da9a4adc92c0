"""What a program asks a thread for, and gets: text, or a value of the type that it named."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Annotated, Any, Literal, TypedDict

import msgspec
import pytest

from hibernaut import AgentSystem, Deferred, ScriptedModel, ThreadHandle, ThreadOptions, ToolContext, tool
from hibernaut.errors import NoAnswer, ThreadClosed, ToolDefinitionError, UnknownMessage, UnknownThread
from hibernaut.kernel.head import decode_head
from hibernaut.kernel.outputs import BESIDE, CUT, MOST_ASKS, TAKEN, TAKEN_BEFORE, WAITS
from hibernaut.messages.events import OutputGiven
from hibernaut.messages.items import CallItem, OutputItem, ResultItem, TextItem, UserItem
from hibernaut.messages.tools import ANSWER_TOOL
from hibernaut.models.errors import InvalidRequest
from hibernaut.models.protocol import ModelInfo, ModelRequest
from hibernaut.models.scripted import Playable, ScriptedTurn, call, call_raw, say, turn


@dataclass
class Build:
    commit: str
    passed: bool
    failures: list[str]


class Color(Enum):
    RED = "red"
    GREEN = "green"


class Place(TypedDict):
    name: str
    seats: int


class Tree(msgspec.Struct):
    name: str
    below: "list[Tree]" = []


GOOD = {"commit": "abc456", "passed": False, "failures": ["test_a"]}
BUILD = Build("abc456", passed=False, failures=["test_a"])


def answer(values: dict[str, Any]) -> ScriptedTurn:
    """Answer by the tool that takes answers."""
    return call(ANSWER_TOOL, values)


def waits(question: str) -> str:
    """Return the note that says which question is to be answered."""
    return WAITS.format(question=msgspec.json.encode(question).decode())


def native(*turns: Playable) -> ScriptedModel:
    """Return a model whose provider can be held to a form."""
    return ScriptedModel(list(turns), info=ModelInfo(structured=True))


def written(values: dict[str, Any]) -> str:
    """Return JSON."""
    return msgspec.json.encode(values).decode()


def run(model: ScriptedModel, scenario: Callable[[AgentSystem, ThreadHandle], Awaitable[None]], **more: Any) -> None:
    """Run a scenario with one agent."""

    async def play() -> None:
        async with AgentSystem(model=model, **more) as system:
            agent = await system.launch(thread_id="t")
            async with asyncio.timeout(20):
                await scenario(system, agent)
            await agent.wait_idle()
            assert decode_head((await system.row("t")).head).head.asks == ()

    asyncio.run(play())


async def stored(system: AgentSystem, count: int) -> None:
    """Return when so many messages wait for the thread."""
    while len(await system.store.read_inbox("t")) < count:  # noqa: ASYNC110  # there is no event
        await asyncio.sleep(0)


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


# Waiting


def test_the_same_question_asked_again_has_the_same_answer() -> None:
    model = ScriptedModel([answer(GOOD), say("Hello.")])

    async def scenario(system: AgentSystem, agent: ThreadHandle) -> None:
        assert await agent.ask("Build abc456", output=Build, message_id="build") == BUILD
        await agent.send("Hi")
        await agent.wait_idle()
        assert await (await system.thread("t")).ask("Build abc456", output=Build, message_id="build") == BUILD

    run(model, scenario)
    assert len(model.requests) == 2


def test_an_answer_outlives_the_process_that_asked(tmp_path: Path) -> None:
    store = tmp_path / "agents.db"

    async def ask_and_die() -> None:
        async with AgentSystem(model=ScriptedModel([]), store=store, run=False) as system:
            agent = await system.launch(thread_id="t")
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.05):
                    await agent.ask("Build abc456", output=Build, message_id="build")

    async def work() -> None:
        async with AgentSystem(model=ScriptedModel([answer(GOOD)]), store=store) as system:
            assert await (await system.thread("t")).ask("Build abc456", output=Build, message_id="build") == BUILD

    async def read() -> None:
        async with AgentSystem(model=ScriptedModel([]), store=store, run=False) as system:
            assert await (await system.thread("t")).ask("Build abc456", output=Build, message_id="build") == BUILD

    asyncio.run(ask_and_die())
    asyncio.run(work())
    asyncio.run(read())


def test_two_programs_that_ask_at_once_are_answered_one_after_the_other() -> None:
    def play(request: ModelRequest) -> ScriptedTurn:
        return answer({"value": True if "boolean" in request.tools[-1].parameters else 4})

    async def scenario() -> None:
        async with AgentSystem(model=ScriptedModel(play), run=False) as system:
            agent = await system.launch(thread_id="t")
            questions = asyncio.gather(agent.ask("Even?", output=bool), agent.ask("Which?", output=int))
            await stored(system, 2)
            await system.step([])
            assert [*await questions] == [True, 4]
            texts = [item.content for item in await agent.history() if isinstance(item, UserItem)]
            assert texts == ["Even?", "Which?", waits("Even?"), waits("Which?")]

    asyncio.run(scenario())


def test_who_speaks_meanwhile_is_answered_first_and_the_question_after_that() -> None:
    asked, told = asyncio.Event(), asyncio.Event()

    async def play(request: ModelRequest) -> ScriptedTurn:
        asked.set()
        await told.wait()
        texts = [item.content for item in request.transcript if isinstance(item, UserItem)]
        offered = ANSWER_TOOL in [spec.name for spec in request.tools]
        assert offered is (texts[-1] != "Hello, bot.")
        return answer({"value": 7}) if offered else say("Hello, Bob.")

    async def scenario(system: AgentSystem, agent: ThreadHandle) -> None:
        question = asyncio.create_task(agent.ask("How many?", output=int))
        await asked.wait()
        await agent.send("Hello, bot.")
        told.set()
        assert await question == 7
        texts = [item.content for item in await agent.history() if isinstance(item, UserItem)]
        assert texts == ["How many?", "Hello, bot.", waits("How many?")]

    run(ScriptedModel(play), scenario)


@pytest.mark.parametrize("kind", [str, int])
def test_work_for_the_answer_that_goes_on_beside_the_conversation_is_waited_for(kind: Any) -> None:
    released, working = asyncio.Event(), asyncio.Event()

    @tool
    async def count() -> str:
        """Count."""
        working.set()
        await released.wait()
        return "There are 7."

    def play(request: ModelRequest) -> ScriptedTurn:
        last = str(getattr(request.transcript[-1], "content", ""))
        if last == "How many?":
            return call("count")
        if "There are 7." in last:
            return say("7") if kind is str else answer({"value": 7})
        return say("I am counting.")

    async def scenario(system: AgentSystem, agent: ThreadHandle) -> None:
        question = asyncio.create_task(agent.ask("How many?", output=kind))
        await working.wait()
        await agent.send("What are you doing?")
        with system.feed.watch("t") as moved:
            while TextItem("I am counting.") not in await agent.history():
                moved.clear()
                await moved.wait()
        released.set()
        assert await question == kind(7)

    run(ScriptedModel(play), scenario, tools=[count])


def test_old_work_that_goes_on_beside_the_conversation_does_not_hold_up_an_answer() -> None:
    @tool
    async def sign(ctx: ToolContext) -> Deferred:
        """Have it signed."""
        return ctx.defer()

    async def scenario(system: AgentSystem, agent: ThreadHandle) -> None:
        await agent.send("Have it signed.")
        with system.feed.watch("t") as moved:
            while (await agent.state()).activity != "waiting":
                moved.clear()
                await moved.wait()
        assert await agent.ask("How is it going?") == "It waits for the signature."

    script = [call("sign"), say("It waits for the signature.")]
    run(ScriptedModel(script), scenario, tools=[sign])


def test_a_thread_that_is_parked_gives_no_answer_until_it_goes_on() -> None:
    async def scenario(system: AgentSystem, agent: ThreadHandle) -> None:
        with pytest.raises(NoAnswer, match=r"parked .*no.*ask with this message id again") as caught:
            await agent.ask("Build abc456", output=Build)
        assert (await agent.state()).awaited == (caught.value.message_id,)
        await agent.resume()
        assert await agent.ask("Build abc456", output=Build, message_id=caught.value.message_id) == BUILD

    run(ScriptedModel([InvalidRequest("no"), answer(GOOD)]), scenario)


def test_a_thread_stopped_in_the_middle_of_its_answer_goes_on_with_it() -> None:
    gate, speaking = asyncio.Event(), asyncio.Event()

    class Gate:
        async def pause(self, clock: object) -> None:
            speaking.set()
            await gate.wait()

    model = ScriptedModel([turn("The number ", Gate(), "is"), say("5")])

    async def scenario(system: AgentSystem, agent: ThreadHandle) -> None:
        question = asyncio.create_task(agent.ask("Which?", message_id="ask"))
        await speaking.wait()
        await agent.stop()
        with pytest.raises(NoAnswer, match="stopped"):
            await question
        await agent.resume()
        assert await agent.ask("Which?", message_id="ask") == "5"
        assert UserItem(waits("Which?"), origin="runtime") in await agent.history()

    run(model, scenario)


def test_a_thread_that_is_closed_gives_no_answer() -> None:
    asked = asyncio.Event()

    async def play(request: ModelRequest) -> ScriptedTurn:
        asked.set()
        await asyncio.Event().wait()
        raise AssertionError

    async def scenario(system: AgentSystem, agent: ThreadHandle) -> None:
        question = asyncio.create_task(agent.ask("Build abc456", output=Build))
        await asked.wait()
        await agent.close("enough")
        with pytest.raises(NoAnswer, match="closed: enough"):
            await question
        with pytest.raises(ThreadClosed):
            await agent.ask("And now?")

    run(ScriptedModel(play), scenario)


@pytest.mark.parametrize("word", ["leave", "delete", "freeze"])
def test_whoever_waits_is_told_when_the_thread_goes_away_under_them(word: str) -> None:
    async def scenario() -> None:
        async with AgentSystem(model=ScriptedModel([]), run=False) as system:
            agent = await system.launch(thread_id="t")
            question = asyncio.create_task(agent.ask("Which?", message_id="ask"))
            await stored(system, 1)
            if word == "delete":
                await agent.delete()
            elif word == "freeze":
                await agent.freeze()
            if word != "leave":
                async with asyncio.timeout(10):
                    with pytest.raises(UnknownThread if word == "delete" else NoAnswer):
                        await question
        if word == "leave":
            async with asyncio.timeout(10):
                with pytest.raises(NoAnswer, match="closed"):
                    await question

    asyncio.run(scenario())


def test_a_question_that_is_dropped_while_the_thread_works_on_it_has_no_answer_and_takes_nobody_s_turn() -> None:
    gate, asked = asyncio.Event(), asyncio.Event()

    async def play(request: ModelRequest) -> ScriptedTurn:
        if request.tools[-1].name == ANSWER_TOOL:
            asked.set()
            await gate.wait()
        return say("Hello, Bob.")

    async def scenario(system: AgentSystem, agent: ThreadHandle) -> None:
        question = asyncio.create_task(agent.ask("Which?", output=int, message_id="ask"))
        await asked.wait()
        await agent.drop("ask", "never mind")
        await agent.send("Hello.")
        gate.set()
        with pytest.raises(NoAnswer, match="never mind"):
            await question
        await agent.wait_idle()
        assert TextItem("Hello, Bob.") in await agent.history()
        with pytest.raises(UnknownMessage):
            await agent.drop("ask")

    run(ScriptedModel(play), scenario)


@pytest.mark.parametrize("first, then", [(str, int), (int, Build)])
def test_a_question_that_was_asked_in_another_form_has_no_answer_of_this_one(first: Any, then: Any) -> None:
    async def scenario(system: AgentSystem, agent: ThreadHandle) -> None:
        await agent.ask("Which?", output=first, message_id="ask")
        with pytest.raises(NoAnswer, match="another form"):
            await agent.ask("Which?", output=then, message_id="ask")

    run(ScriptedModel([say("hello") if first is str else answer({"value": 2})]), scenario)


def test_a_long_message_id_may_be_sent_back_as_well() -> None:
    pydantic = pytest.importorskip("pydantic")

    def never(value: int) -> int:
        raise ValueError("no number will do")

    model = pydantic.create_model("Never", number=(Annotated[int, pydantic.AfterValidator(never)], ...))

    async def scenario(system: AgentSystem, agent: ThreadHandle) -> None:
        with pytest.raises(NoAnswer, match="no number will do") as caught:
            await agent.ask("A number?", output=model, message_id="m" * 200)
        assert caught.value.message_id == "m" * 200
        origins = [item.origin for item in await agent.history() if isinstance(item, UserItem)]
        assert origins == ["", "runtime"]

    run(ScriptedModel([answer({"number": 3}), answer({"number": 4})]), scenario)


def test_a_question_that_an_operator_drops_has_no_answer() -> None:
    async def scenario() -> None:
        async with AgentSystem(model=ScriptedModel([]), run=False) as system:
            agent = await system.launch(thread_id="t")
            question = asyncio.create_task(agent.ask("Which?", message_id="ask"))
            await stored(system, 1)
            await agent.drop("ask")
            await system.step([])
            with pytest.raises(NoAnswer, match="dropped"):
                await question

    asyncio.run(scenario())


def test_an_edited_question_is_still_one() -> None:
    async def scenario() -> None:
        async with AgentSystem(model=ScriptedModel([answer({"value": 7})]), run=False) as system:
            agent = await system.launch(thread_id="t")
            question = asyncio.create_task(agent.ask("Wich?", output=int, message_id="ask"))
            await stored(system, 1)
            await agent.edit("ask", "Which?")
            await system.step([])
            assert await question == 7

    asyncio.run(scenario())


def test_what_was_only_said_has_no_answer_to_wait_for() -> None:
    async def scenario(system: AgentSystem, agent: ThreadHandle) -> None:
        await agent.send("Hi", message_id="hi")
        await agent.wait_idle()
        with pytest.raises(NoAnswer, match="only said"):
            await agent.ask("Hi", message_id="hi")

    run(ScriptedModel([say("Hello.")]), scenario)


def test_so_many_questions_at_once_and_no_more() -> None:
    async def scenario() -> None:
        async with AgentSystem(
            model=ScriptedModel([say(str(number)) for number in range(MOST_ASKS)]), run=False
        ) as system:
            agent = await system.launch(thread_id="t", options=ThreadOptions(max_rounds=MOST_ASKS + 5))
            questions = [asyncio.create_task(agent.ask(f"{number}?")) for number in range(MOST_ASKS + 1)]
            await stored(system, len(questions))
            await system.step([])
            answers = await asyncio.gather(*questions, return_exceptions=True)
            assert sorted(each for each in answers if isinstance(each, str)) == sorted(map(str, range(MOST_ASKS)))
            (turned_away,) = [each for each in answers if not isinstance(each, str)]
            assert isinstance(turned_away, NoAnswer)
            assert f"{MOST_ASKS} programs wait" in turned_away.problem

    asyncio.run(scenario())
