"""Who waits for an answer, for how long, and what the wait outlives."""

import asyncio
from pathlib import Path
from typing import Annotated, Any

import msgspec
import pytest

from hibernaut import AgentSystem, Deferred, ScriptedModel, ThreadHandle, ThreadOptions, ToolContext, tool
from hibernaut.errors import NoAnswer, ThreadClosed, UnknownMessage, UnknownThread
from hibernaut.kernel.outputs import MOST_ASKS, WAITS
from hibernaut.messages.items import TextItem, UserItem
from hibernaut.messages.tools import ANSWER_TOOL
from hibernaut.models.errors import InvalidRequest
from hibernaut.models.protocol import ModelRequest
from hibernaut.models.scripted import ScriptedTurn, call, say, turn
from tests.answering import BUILD, GOOD, Build, answer, run


def waits(question: str) -> str:
    """Return the note that says which question is to be answered."""
    return WAITS.format(question=msgspec.json.encode(question).decode())


async def stored(system: AgentSystem, count: int) -> None:
    """Return when so many messages wait for the thread."""
    while len(await system.store.read_inbox("t")) < count:  # noqa: ASYNC110  # there is no event
        await asyncio.sleep(0)


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
        contents = [str(getattr(item, "content", "")) for item in request.transcript]
        if contents[-1] == "How many?":
            return call("count")
        if contents[-1] == waits("How many?") and "There are 7." in contents[-2]:
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
