"""Questions to people: each is asked once and answered once, whatever becomes of the process that asked."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from hibernaut.engine.answering import OpenQuestion
from hibernaut.errors import AlreadyAnswered, MalformedInput, QuestionOver, UnknownQuestion, UnknownThread
from hibernaut.handle import ThreadHandle
from hibernaut.kernel.limits import ThreadOptions
from hibernaut.kernel.waiting import STILL_RUNNING
from hibernaut.messages.events import QuestionAsked, QuestionEnded
from hibernaut.messages.items import CallItem
from hibernaut.models.protocol import ModelRequest
from hibernaut.models.scripted import ScriptedTurn, call, last_result, last_user_text, say, turn
from hibernaut.stores.memory import MemoryStore
from hibernaut.stores.protocol import DEAD_AFTER
from hibernaut.system import AgentSystem
from hibernaut.testing.clock import ManualClock
from hibernaut.tools.context import ToolContext
from hibernaut.tools.tool import AnyTool, tool
from tests.engine.scenario import (
    MINUTE,
    SECOND,
    head_of,
    killed,
    pass_time,
    run,
    settle,
    story,
    system,
    until,
    until_told,
)


class Deployer:
    """A tool that works, asks, and works on; and what it has done."""

    def __init__(self, *, idempotent: bool = False, timeout: float | None = None) -> None:
        self.lines: list[str] = []

        @tool(idempotent=idempotent)
        async def deploy(context: ToolContext, what: str = "it") -> str:
            """Deploy."""
            self.lines.append(f"built {what}")
            words = await context.ask(f"Deploy {what}?", ["yes", "no", "later"], default=1, timeout=timeout)
            self.lines.append(f"{what}: {words}")
            return f"{what}: {words}"

        self.deploy: AnyTool = deploy


async def asked(it: AgentSystem, count: int = 1) -> list[OpenQuestion]:
    """Return the questions that wait once there are so many."""
    while len(found := await it.questions()) < count:
        await settle()
    return found


async def until_over(agent: ThreadHandle) -> None:
    async def is_over() -> bool:
        return not (await head_of(agent)).questions

    await until(agent, is_over)


def test_a_tool_asks_and_goes_on_with_the_answer() -> None:
    async def scenario() -> None:
        deployer = Deployer()
        async with system([call("deploy", what="v2"), say("Done.")], deployer.deploy) as it:
            agent = await it.launch(thread_id="t")
            await agent.send("Deploy v2")
            (question,) = await asked(it)
            assert (question.thread_id, question.root, question.tool) == ("t", "t", "deploy")
            assert (question.prompt, question.choices, question.default) == ("Deploy v2?", ("yes", "no", "later"), 1)
            assert (await agent.state()).activity == "waiting"
            assert await it.answer(question.question_id, "YES", user="anna") == "yes"
            told = await until_told(agent, "says: Done.")
            assert told[2:] == ["asks: Deploy v2? [yes, no, later]", "answered: yes", "result: v2: yes", "says: Done."]
            assert deployer.lines == ["built v2", "v2: yes"]
            assert await it.questions() == []
            events = [event async for event in agent.events(follow=False)]
            (shown,) = [event for event in events if isinstance(event, QuestionAsked)]
            (over,) = [event for event in events if isinstance(event, QuestionEnded)]
            assert shown.question_id == over.question_id == question.question_id
            assert (over.outcome, over.choice, over.user) == ("answered", 0, "anna")
            assert (await head_of(agent)).questions == {}

    run(scenario)


def test_c37_three_calls_ask_and_each_hears_its_own_answer_once() -> None:
    async def scenario() -> None:
        deployer = Deployer()
        three = turn(*[call("deploy", what=name) for name in ("a", "b", "c")])
        options = ThreadOptions(parallel_calls=3)
        async with system([three, say("Done.")], deployer.deploy, options=options) as it:
            agent = await it.launch(thread_id="t")
            await agent.send("Deploy all")
            questions = await asked(it, 3)
            assert len({question.question_id for question in questions}) == 3
            assert [question.prompt for question in questions] == ["Deploy a?", "Deploy b?", "Deploy c?"]
            for question, words in zip(reversed(questions), ("later", "no", "yes"), strict=True):
                await it.answer(question.question_id, words)
                if words == "no":
                    with pytest.raises(AlreadyAnswered):
                        await it.answer(question.question_id, "yes")
            told = await until_told(agent, "says: Done.")
            assert [line for line in told if line.startswith("result")] == [
                "result: a: yes",
                "result: b: no",
                "result: c: later",
            ]
            with pytest.raises(AlreadyAnswered):
                await it.answer(questions[1].question_id, "yes")

    run(scenario)


def test_what_cannot_be_answered_is_an_error() -> None:
    async def scenario() -> None:
        store, deployer = MemoryStore(), Deployer()
        async with system([call("deploy"), say("Done.")], deployer.deploy, store=store) as it:
            agent = await it.launch(thread_id="t")
            await agent.send("Deploy")
            (question,) = await asked(it)
            name = question.question_id
            for choice in (3, -1, "maybe", True, ""):
                with pytest.raises(MalformedInput, match="0 'yes', 1 'no', 2 'later'"):
                    await it.answer(name, choice)
            for unknown in ("q_none.1@t", "q_none.1@nobody", "q_none.1", "", "@t", name.replace(".1@", ".2@")):
                with pytest.raises(UnknownQuestion):
                    await it.answer(unknown, 0)
            async with system([], store=store, tenant="other", run=False) as stranger:
                assert await stranger.questions() == []
                with pytest.raises(UnknownQuestion):
                    await stranger.answer(name, 0)
            async with system([], store=store, run=False) as client:
                assert await client.questions() == [question]
                assert await client.questions("t") == [question]
                with pytest.raises(UnknownThread):
                    await client.questions("another")
                assert await client.answer(name.partition("@")[0], 2) == "later"
            await until_told(agent, "result: it: later")

    run(scenario)


def test_a_question_that_nobody_answers_in_time_is_answered_by_its_default() -> None:
    clock = ManualClock()

    async def scenario() -> None:
        deployer = Deployer(timeout=60)
        async with system([call("deploy"), say("Done.")], deployer.deploy, clock=clock) as it:
            agent = await it.launch(thread_id="t")
            await agent.send("Deploy")
            (question,) = await asked(it)
            assert question.due == clock.now() + MINUTE
            await pass_time(clock, 59 * SECOND)
            assert deployer.lines == ["built it"]
            await pass_time(clock, SECOND)
            told = await until_told(agent, "says: Done.")
            assert told[3:5] == ["expired: no", "result: it: no"]
            with pytest.raises(QuestionOver, match="nobody answered in time, so that this counts: no"):
                await it.answer(question.question_id, 0)

    run(scenario)


# When the process ends


async def left_behind(store: MemoryStore, clock: ManualClock, deployer: Deployer, *, gracefully: bool) -> str:
    """Let a process ask and end; return the question's id."""
    model = [call("deploy")]
    life = system(model, deployer.deploy, store=store, clock=clock)
    if gracefully:
        async with life as it:
            await it.send("t", "Deploy")
            (question,) = await asked(it)
    else:
        async with killed(model, deployer.deploy, store=store, clock=clock) as it:
            await it.send("t", "Deploy")
            (question,) = await asked(it)
        clock.advance(DEAD_AFTER)
    return question.question_id


NOT_DONE = "what was to follow has not been done"


@pytest.mark.parametrize("gracefully", [True, False])
def test_c11_c38_c39_an_answer_reaches_the_call_though_its_process_is_gone(gracefully: bool) -> None:
    store, clock, deployer = MemoryStore(), ManualClock(), Deployer()

    async def scenario() -> None:
        name = await left_behind(store, clock, deployer, gracefully=gracefully)
        async with system([say("I see.")], deployer.deploy, store=store, clock=clock) as it:
            agent = await it.thread("t")
            await it.wait_idle()
            (question,) = await it.questions()
            assert question.question_id == name
            state = await agent.state()
            assert (state.activity, state.status, [one.state for one in state.calls]) == ("waiting", "open", ["open"])
            (effect,) = await store.read_effects()
            assert effect.state == "accepted"
            seen = [event async for event in agent.events(follow=False) if isinstance(event, QuestionAsked)]
            assert [event.question_id for event in seen] == [name]
        async with system([say("I see.")], deployer.deploy, store=store, clock=clock) as it:
            agent = await it.thread("t")
            await it.wait_idle()
            await it.answer(name, "yes")
            told = await until_told(agent, "says: I see.")
            (result,) = [line for line in told if line.startswith("result")]
            assert result.startswith("result: A person was asked: Deploy it?\nThe answer: yes\n")
            assert NOT_DONE in result
            assert deployer.lines == ["built it"]
            await it.wait_idle()
            assert await store.read_effects() == []
            assert (await head_of(agent)).questions == {}

    run(scenario)


def test_c38_the_default_of_a_question_counts_though_its_process_is_gone() -> None:
    store, clock, deployer = MemoryStore(), ManualClock(), Deployer(timeout=3600)

    async def scenario() -> None:
        await left_behind(store, clock, deployer, gracefully=False)
        clock.advance(60 * MINUTE)
        async with system([say("I see.")], deployer.deploy, store=store, clock=clock) as it:
            told = await until_told(await it.thread("t"), "expired: no", "says: I see.")
            assert "Nobody answered in time, so that this counts: no" in told[4]
            assert NOT_DONE in told[4]

    run(scenario)


def test_an_answer_in_time_counts_though_nobody_read_it_until_later() -> None:
    store, clock, deployer = MemoryStore(), ManualClock(), Deployer(timeout=3600)

    async def scenario() -> None:
        name = await left_behind(store, clock, deployer, gracefully=True)
        async with system([], store=store, clock=clock, run=False) as client:
            await client.answer(name, "later")
        clock.advance(61 * MINUTE)
        async with system([say("I see.")], deployer.deploy, store=store, clock=clock) as it:
            told = await until_told(await it.thread("t"), "says: I see.")
            assert told[3] == "answered: later"

    run(scenario)


def test_an_answer_that_comes_too_late_is_refused_though_nobody_runs_the_thread() -> None:
    store, clock, deployer = MemoryStore(), ManualClock(), Deployer(timeout=3600)

    async def scenario() -> None:
        name = await left_behind(store, clock, deployer, gracefully=True)
        clock.advance(61 * MINUTE)
        async with system([], store=store, clock=clock, run=False) as client:
            with pytest.raises(QuestionOver, match="in time"):
                await client.answer(name, "yes")

    run(scenario)


@pytest.mark.parametrize("gracefully", [True, False])
def test_c38_a_tool_that_may_be_repeated_is_run_again_and_asks_nothing_twice(gracefully: bool) -> None:
    store, clock, lines = MemoryStore(), ManualClock(), list[str]()

    @tool(idempotent=True)
    async def deploy(context: ToolContext) -> str:
        """Deploy."""
        lines.append("begun")
        first = await context.ask("Where?", ["here", "there"])
        second = await context.ask("When?", ["now", "then"])
        return f"{first} and {second}"

    async def scenario() -> None:
        async def first_life(it: AgentSystem) -> None:
            await it.send("t", "Deploy")
            (question,) = await asked(it)
            await it.answer(question.question_id, "there")
            while [one.prompt for one in await it.questions()] != ["When?"]:
                await settle()

        if gracefully:
            async with system([call("deploy")], deploy, store=store, clock=clock) as it:
                await first_life(it)
        else:
            async with killed([call("deploy")], deploy, store=store, clock=clock) as it:
                await first_life(it)
            clock.advance(DEAD_AFTER)
        async with system([say("Done.")], deploy, store=store, clock=clock) as it:
            agent = await it.thread("t")
            while len(lines) < 2:
                await settle()
            (question,) = await it.questions()
            await it.answer(question.question_id, "now")
            told = await until_told(agent, "result: there and now", "says: Done.")
            assert [line for line in told if line.startswith("asks")] == [
                "asks: Where? [here, there]",
                "asks: When? [now, then]",
            ]
            assert lines == ["begun", "begun"]

    run(scenario)


def test_an_answer_is_never_taken_for_one_to_another_question() -> None:
    store, clock, prompts = MemoryStore(), ManualClock(), ["Really?", "Delete everything?"]

    @tool(idempotent=True)
    async def deploy(context: ToolContext) -> str:
        """Deploy."""
        return await context.ask(prompts.pop(0), ["yes", "no"])

    async def scenario() -> None:
        async with killed([call("deploy")], deploy, store=store, clock=clock) as it:
            await it.send("t", "Deploy")
            await asked(it)
        clock.advance(DEAD_AFTER)
        async with system([say("Oh.")], deploy, store=store, clock=clock) as it:
            told = await until_told(await it.thread("t"), "says: Oh.")
            assert any(line.startswith("error: When this call ran before, it asked something else") for line in told)

    run(scenario)


def test_all_answers_of_a_call_are_told_when_its_process_is_gone() -> None:
    store, clock = MemoryStore(), ManualClock()

    @tool
    async def deploy(context: ToolContext) -> str:
        """Deploy."""
        first = await context.ask("Where?", ["here", "there"])
        return first + await context.ask("When?", ["now", "then"])

    async def scenario() -> None:
        async with killed([call("deploy")], deploy, store=store, clock=clock) as it:
            await it.send("t", "Deploy")
            (question,) = await asked(it)
            await it.answer(question.question_id, "there")
            while [one.prompt for one in await it.questions()] != ["When?"]:
                await settle()
        clock.advance(DEAD_AFTER)
        async with system([say("I see.")], deploy, store=store, clock=clock) as it:
            (question,) = await it.questions()
            await it.answer(question.question_id, "then")
            told = await until_told(await it.thread("t"), "says: I see.")
            (result,) = [line for line in told if line.startswith("result")]
            assert "asked: Where?\nThe answer: there\nA person was asked: When?\nThe answer: then\n" in result

    run(scenario)


def test_a_process_that_was_taken_for_dead_while_it_asked_does_nothing_more() -> None:
    store, clock, deployer = MemoryStore(), ManualClock(), Deployer()

    async def scenario() -> None:
        async with system([call("deploy"), say("I see.")], deployer.deploy, store=store, clock=clock) as it:
            agent = await it.launch(thread_id="t")
            await agent.send("Deploy")
            (question,) = await asked(it)
            async with system([say("I see.")], deployer.deploy, store=store, clock=clock) as other:
                agent = await other.thread("t")
                assert it._engine is not None
                assert other._engine is not None
                await store.leave(it._engine.engine.owner)
                await other._engine.engine.adopt()
                while not await _is_orphaned(agent):
                    await settle()
                it.feed.moved_elsewhere()  # as the file of a store would show
                await settle()
                await other.answer(question.question_id, "yes")
                while (told := await story(agent))[-1] != "says: I see.":
                    await settle()
                assert NOT_DONE in told[4]
                it.feed.moved_elsewhere()
                await settle()
                assert deployer.lines == ["built it"]
                assert await store.read_effects() == []
            assert deployer.lines == ["built it"]
            assert len(await story(agent)) == 6

    run(scenario)


async def _is_orphaned(agent: ThreadHandle) -> bool:
    return any(one.orphaned for one in (await head_of(agent)).questions.values())


def test_where_nothing_is_kept_the_answer_is_the_result() -> None:
    deployer = Deployer()

    async def scenario() -> None:
        async with system([call("deploy"), say("I see.")], deployer.deploy, run=False) as it:
            await it.step(['{"content": {"type": "text", "text": "Deploy"}, "group_id": "t"}'])
            (question,) = await it.questions()
            await it.answer(question.question_id, "yes")
            await it.step([])
            told = await story(await it.thread("t"))
            assert told[-1] == "says: I see."
            assert NOT_DONE in told[-2]
            assert deployer.lines == ["built it"]
            assert await it.store.read_effects() == []

    run(scenario)


# When the conversation goes on


def answers(request: ModelRequest) -> ScriptedTurn:
    if not any(isinstance(item, CallItem) for item in request.transcript):
        return call("deploy")
    return say(f"You said: {last_user_text(request)}")


def test_c40_a_question_stays_open_while_the_user_talks_about_something_else() -> None:
    async def scenario() -> None:
        deployer = Deployer()
        async with system(answers, deployer.deploy) as it:
            agent = await it.launch(thread_id="t")
            await agent.send("Deploy")
            (question,) = await asked(it)
            await agent.send("What is the time?")
            await until_told(agent, f"result: {STILL_RUNNING}", "says: You said: What is the time?")
            assert await it.questions() == [question]
            await it.answer(question.question_id, "no")
            await until_told(agent, "answered: no", "late_result: deploy it: no")

    run(scenario)


def test_c40_a_question_is_dismissed_with_the_call_that_the_user_interrupts() -> None:
    async def scenario() -> None:
        deployer = Deployer()
        options = ThreadOptions(on_user_text="cancel")
        async with system(answers, deployer.deploy, options=options) as it:
            agent = await it.launch(thread_id="t")
            await agent.send("Deploy")
            (question,) = await asked(it)
            await agent.send("Stop that")
            await until_told(agent, "dismissed: the call was cancelled", "says: You said: Stop that")
            assert await it.questions() == []
            with pytest.raises(QuestionOver, match="the call was cancelled"):
                await it.answer(question.question_id, "yes")
            await it.wait_idle()
            assert deployer.lines == ["built it"]

    run(scenario)


End = Callable[[ThreadHandle, OpenQuestion], Any]


@pytest.mark.parametrize(
    "end, why",
    [
        (lambda agent, _: agent.stop(), "the thread was stopped"),
        (lambda agent, _: agent.close(), "the thread was closed"),
        (lambda agent, question: agent.cancel(question.call_id), "the call was cancelled"),
    ],
    ids=["stop", "close", "cancel"],
)
def test_a_question_is_dismissed_with_its_call_and_the_tool_ends(end: End, why: str) -> None:
    async def scenario() -> None:
        deployer = Deployer()
        async with system(answers, deployer.deploy) as it:
            agent = await it.launch(thread_id="t")
            await agent.send("Deploy")
            (question,) = await asked(it)
            await end(agent, question)
            await until_told(agent, f"dismissed: {why}")
            await it.wait_idle()
            assert await it.store.read_effects() == []
            assert deployer.lines == ["built it"]
            with pytest.raises(QuestionOver, match=why):
                await it.answer(question.question_id, "yes")

    run(scenario)


def test_a_thread_has_room_for_so_many_questions() -> None:
    @tool
    async def ask(context: ToolContext, name: str) -> str:
        """Ask."""
        return await context.ask(f"{name}?", ["yes", "no"])

    async def scenario() -> None:
        two = turn(call("ask", name="a"), call("ask", name="b"))
        options = ThreadOptions(parallel_calls=2, max_questions=1)
        async with system([two, say("Done.")], ask, options=options) as it:
            agent = await it.launch(thread_id="t")
            await agent.send("Ask")
            (question,) = await asked(it)
            await it.answer(question.question_id, "yes")
            told = await until_told(agent, "says: Done.")
            (error,) = [line for line in told if line.startswith("error")]
            assert "option max_questions" in error

    run(scenario)


def test_two_questions_of_one_call_at_a_time_have_an_answer_each() -> None:
    @tool
    async def ask(context: ToolContext) -> str:
        """Ask."""
        return " ".join(await asyncio.gather(*[context.ask(f"{name}?", ["yes", "no"]) for name in "ab"]))

    async def scenario() -> None:
        async with system([call("ask"), say("Done.")], ask) as it:
            agent = await it.launch(thread_id="t")
            await agent.send("Ask")
            first, second = await asked(it, 2)
            await it.answer(second.question_id, "no")
            await it.answer(first.question_id, "yes")
            await until_told(agent, "result: yes no")

    run(scenario)


@pytest.mark.parametrize("words, result", [("Done", "result: true"), ("Cancel", "result: false")])
def test_a_person_is_asked_to_authorize_something_elsewhere(words: str, result: str) -> None:
    @tool
    async def connect(context: ToolContext) -> bool:
        """Connect."""
        return await context.authorize("https://example.org/oauth?x=1", "To read your mail")

    async def scenario() -> None:
        async with system([call("connect"), say("Well.")], connect) as it:
            agent = await it.launch(thread_id="t")
            await agent.send("Connect")
            (question,) = await asked(it)
            assert (question.url, question.prompt) == ("https://example.org/oauth?x=1", "To read your mail")
            await it.answer(question.question_id, words)
            await until_told(agent, result)

    run(scenario)


# Whole trees


def test_c43_questions_of_a_whole_tree_are_listed_and_one_is_dismissed_with_its_thread() -> None:
    def answer(request: ModelRequest) -> ScriptedTurn:
        said = str(request.transcript)
        if request.thread_id == "root":
            if last_result(request):
                return say("They work.")
            spawn = [
                call("spawn_thread", instructions=f"Deploy {name}", child_of=["root"], fresh_context=True)
                for name in ("a", "b")
            ]
            return turn(call("set_title", title="All of it"), *spawn, call("deploy", what="root"))
        if last_result(request):
            return say("It is done.")
        return call("deploy", what="a" if "Deploy a" in said else "b")

    async def scenario() -> None:
        deployer = Deployer()
        async with system(answer, deployer.deploy) as it:
            agent = await it.launch(thread_id="root")
            await agent.send("Deploy everything")
            questions = await asked(it, 3)
            assert {question.root for question in questions} == {"root"}
            assert sorted(question.prompt for question in questions) == ["Deploy a?", "Deploy b?", "Deploy root?"]
            assert max(one.asked for one in questions) - min(one.asked for one in questions) <= 10
            assert await it.questions("root") == questions
            by_prompt = {question.prompt: question for question in questions}
            assert by_prompt["Deploy root?"].title == "All of it"
            child = await it.thread(by_prompt["Deploy a?"].thread_id)
            await child.close()
            await until_over(child)
            left = await it.questions("root")
            assert sorted(question.prompt for question in left) == ["Deploy b?", "Deploy root?"]
            with pytest.raises(QuestionOver, match="closed"):
                await it.answer(by_prompt["Deploy a?"].question_id, "yes")
            await it.answer(by_prompt["Deploy b?"].question_id, "yes")
            await it.answer(by_prompt["Deploy root?"].question_id, "no")
            await until_told(agent, "result: root: no")
            await it.wait_idle()
            assert sorted(deployer.lines) == ["b: yes", "built a", "built b", "built root", "root: no"]
            assert await it.questions() == []

    run(scenario)
