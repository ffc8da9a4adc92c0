"""Authority at work: in the engine, over restarts, for tools here and on servers, and for those who look at it."""

from typing import Any

import pytest

from hibernaut import Authority, Condition, Rule, ThreadOptions
from hibernaut.errors import AlreadyAnswered, ConfigurationError, QuestionOver
from hibernaut.models.scripted import ScriptedModel, call, say, turn
from hibernaut.rap.manifest import RemoteTool, Toolset
from hibernaut.stores.memory import MemoryStore
from hibernaut.system import AgentSystem
from hibernaut.testing.clock import ManualClock
from hibernaut.tools.tool import tool
from tests.engine.far import CI, PUBLIC, SCHEMA, Far
from tests.engine.scenario import run, story, system, until_told

ASKS = Authority(rules=(Rule(decision="ask", annotations=("destructive",), reason="It cannot be undone."),))


class Disk:
    def __init__(self) -> None:
        self.wiped: list[str] = []

    def tool(self) -> Any:
        @tool(destructive=True)
        async def wipe(disk: str) -> str:
            """Wipe a disk."""
            self.wiped.append(disk)
            return f"{disk} is empty"

        return wipe


def test_leave_is_asked_for_durably_and_given_from_anywhere() -> None:
    disk, store, clock = Disk(), MemoryStore(), ManualClock()

    async def scenario() -> None:
        async with system([call("wipe", disk="a")], disk.tool(), store=store, clock=clock, authority=ASKS) as it:
            agent = await it.launch()
            await agent.send("Wipe a")
            await it.wait_idle()
            assert disk.wiped == []
        async with system([say("It is empty.")], disk.tool(), store=store, clock=clock) as it:
            (question,) = await it.questions()
            assert question.tool == "wipe"
            assert question.prompt == 'May wipe run with {"disk":"a"}?\nIt cannot be undone.'
            await it.answer(question.question_id, "Allow", user="ann")
            again = await it.thread(agent.thread_id)
            await until_told(again, "result: a is empty", "says: It is empty.")
            assert disk.wiped == ["a"]

    run(scenario)


def test_c11_a_restart_neither_runs_nor_forgets_what_waits_for_leave_beside_a_call_that_was_answered() -> None:
    disk, store, clock = Disk(), MemoryStore(), ManualClock()
    options, looked = ThreadOptions(parallel_calls=2), list[str]()

    @tool
    async def look() -> str:
        """Look at the disks."""
        looked.append("looked")
        return "two disks"

    async def scenario() -> None:
        tools = [look, disk.tool()]
        both = turn(call("look"), call("wipe", disk="a"))
        async with system([both], *tools, store=store, clock=clock, authority=ASKS, options=options) as it:
            agent = await it.launch(message="Look, and wipe a")
            await it.wait_idle()
        for _ in range(2):
            async with system([], *tools, store=store, clock=clock) as it:
                await it.wait_idle()
                (question,) = await it.questions()
                state = await (await it.thread(agent.thread_id)).state()
                assert (question.tool, state.status, state.activity) == ("wipe", "open", "waiting")
        async with system([say("It is left as it was.")], *tools, store=store, clock=clock) as it:
            (question,) = await it.questions()
            await it.answer(question.question_id, "Deny")
            await until_told(await it.thread(agent.thread_id), "result: two disks", "says: It is left as it was.")
        assert (looked, disk.wiped) == (["looked"], [])

    run(scenario)


def test_what_is_denied_never_runs() -> None:
    disk = Disk()

    async def scenario() -> None:
        async with system([call("wipe", disk="a"), say("I see.")], disk.tool(), authority=ASKS) as it:
            agent = await it.launch()
            await agent.send("Wipe a")
            await it.wait_idle()
            (question,) = await it.questions()
            await it.answer(question.question_id, "Deny", user="ann")
            await agent.wait_idle()
            assert "error: Not run: ann did not allow it." in await story(agent)
            assert disk.wiped == []

    run(scenario)


def test_tools_of_servers_are_bound_by_what_their_server_says_of_them() -> None:
    wipe = RemoteTool("wipe", "Wipe.", SCHEMA, '{"destructive":true}', destructive=True)
    there = Far(MemoryStore(), ManualClock(), Toolset("ci", CI.endpoint, (wipe,)))

    async def scenario() -> None:
        model = [call("wipe", commit="a"), say("Done.")]
        given: dict[str, Any] = {"store": there.store, "clock": there.clock, "servers": there.servers}
        async with system(model, authority=ASKS, callbacks=PUBLIC, **given) as it:
            agent = await it.launch()
            await agent.send("Wipe")
            await it.wait_idle()
            assert there.servers.calls == []
            assert (await agent.explain("wipe", {"commit": "a"})).decision == "ask"
            (question,) = await it.questions()
            assert "wipe on ci" in question.prompt
            await it.answer(question.question_id, "Allow")
            await it.wait_idle()
            await there.answer("wiped")
            await agent.wait_idle()
            assert (await story(agent))[-2:] == ["result: wiped", "says: Done."]

    run(scenario)


def test_an_operator_changes_what_a_thread_may_do_and_takes_it_back() -> None:
    disk = Disk()
    strict = Authority(rules=(Rule(decision="deny", tools=("wipe",), reason="audit"),))

    async def scenario() -> None:
        model = [call("wipe", disk="a"), say("No."), call("wipe", disk="b"), say("Yes.")]
        async with system(model, disk.tool()) as it:
            agent = await it.launch()
            await agent.authorize(strict, "an audit")
            await agent.send("Wipe a")
            await agent.wait_idle()
            assert "error: Not run: this thread's authority does not allow it: audit." in await story(agent)
            assert await agent.authority() == strict
            judgement = await agent.explain("wipe", {"disk": "a"})
            assert (judgement.decision, judgement.rule) == ("deny", strict.rules[0])
            await agent.authorize(None)
            await agent.send("Wipe b")
            await agent.wait_idle()
            assert disk.wiped == ["b"]
            assert await agent.authority() == Authority()
            assert await it.verify(agent.thread_id) > 0

    run(scenario)


def test_a_tool_that_an_operator_takes_away_is_not_shown_any_more() -> None:
    disk = Disk()

    async def scenario() -> None:
        model = ScriptedModel([say("a"), say("b")])
        async with system(model, disk.tool()) as it:
            agent = await it.launch()
            await agent.send("one")
            await agent.wait_idle()
            await agent.authorize(Authority(tools=("read_*",)))
            await agent.send("two")
            await agent.wait_idle()
            shown = ["wipe" in {spec.name for spec in request.tools} for request in model.requests]
            assert shown == [True, False]

    run(scenario)


def test_an_authority_that_cannot_be_meant_is_refused_wherever_it_is_given() -> None:
    wrong = Authority(rules=(Rule(decision="deny", arguments=(Condition(path="amount", above=1),)),))

    async def scenario() -> None:
        with pytest.raises(ConfigurationError, match="rule 1: 'amount' is no path"):
            system([], authority=wrong)
        async with system([say("a")]) as it:
            agent = await it.launch()
            for refused in (agent.authorize(wrong), it.launch(authority=wrong)):
                with pytest.raises(ConfigurationError, match="rule 1"):
                    await refused
            assert await agent.authority() == Authority()

    run(scenario)


def test_children_are_bound_by_what_is_meant_for_them() -> None:
    disk = Disk()
    authority = Authority(children=Authority(rules=(Rule(decision="deny", tools=("wipe",)),)))

    async def scenario() -> None:
        model = [
            call("spawn_thread", instructions="Wipe a.", child_of=[]),
            say("It works."),
            call("wipe", disk="a"),
            say("I may not."),
            say("I see."),
        ]
        async with system(model, disk.tool(), authority=authority) as it:
            agent = await it.launch()
            await agent.send("Let a child wipe a")
            await it.wait_idle()
            assert disk.wiped == []
            (child,) = [state.thread_id for state in await agent.tree() if state.thread_id != agent.thread_id]
            handle = await it.thread(child)
            assert (await handle.explain("wipe", {})).decision == "deny"
            assert (await agent.explain("wipe", {})).decision == "allow"
            assert await it.verify(child) > 0

    run(scenario)


def test_c11_what_waits_for_leave_is_not_run_by_a_restart_a_resume_or_another_word_of_the_user() -> None:
    disk, store, clock = Disk(), MemoryStore(), ManualClock()

    @tool
    async def build(commit: str) -> str:
        """Build."""
        return f"{commit} is built"

    def program(model: Any, **more: Any) -> AgentSystem:
        return system(model, build, disk.tool(), store=store, clock=clock, **more)

    async def scenario() -> None:
        both = turn(call("build", commit="abc"), call("wipe", disk="a"))
        async with program([both], authority=ASKS, options=ThreadOptions(parallel_calls=2)) as it:
            await it.launch(thread_id="t", message="Build, then wipe")
            await it.wait_idle()
        for _ in range(2):
            async with program([]) as it:
                agent = await it.thread("t")
                await agent.resume()
                await it.wait_idle()
                state = await agent.state()
                assert (state.status, state.activity, state.questions) == ("open", "waiting", 1)
                assert [one.state for one in state.calls if one.tool == "wipe"] == ["open"]
        async with program([say("It waits for leave."), say("Denied.")]) as it:
            agent = await it.thread("t")
            await agent.send("And?")
            await until_told(agent, "result: abc is built", "says: It waits for leave.")
            (question,) = await it.questions()
            assert disk.wiped == []
            await it.answer(question.question_id, "Deny", user="ann")
            await until_told(agent, "says: Denied.")
            assert disk.wiped == []

    run(scenario)


def test_c37_leave_for_three_calls_is_given_in_any_order_and_each_hears_its_own() -> None:
    disk, store, clock = Disk(), MemoryStore(), ManualClock()
    three = turn(*[call("wipe", disk=name) for name in "abc"])

    async def scenario() -> None:
        more: dict[str, Any] = {"authority": ASKS, "options": ThreadOptions(parallel_calls=3)}
        async with system([three], disk.tool(), store=store, clock=clock, **more) as it:
            await it.launch(thread_id="t", message="Wipe three")
            await it.wait_idle()
        async with system([say("Two are empty.")], disk.tool(), store=store, clock=clock) as it:
            asked = {one.prompt.partition('"disk":"')[2][0]: one.question_id for one in await it.questions()}
            assert len(set(asked.values())) == 3
            for name, choice in (("c", "Allow"), ("b", "Deny"), ("a", "Allow")):
                await it.answer(asked[name], choice, user="ann")
                with pytest.raises((AlreadyAnswered, QuestionOver)):
                    await it.answer(asked[name], "Allow" if choice == "Deny" else "Deny", user="bob")
            told = await until_told(await it.thread("t"), "says: Two are empty.")
            assert sorted(disk.wiped) == ["a", "c"]
            results = [line for line in told if line.startswith(("result:", "error:"))]
            assert results == ["result: a is empty", "error: Not run: ann did not allow it.", "result: c is empty"]

    run(scenario)
