"""Calls on tool servers: posted from the outbox, answered through the inbox, and never done twice unseen."""

from contextlib import aclosing
from typing import Any

import pytest

from hibernaut.kernel.limits import ThreadOptions
from hibernaut.messages.events import ToolCall, ViewChanged
from hibernaut.messages.inputs import Command, InputMessage
from hibernaut.models.protocol import ModelRequest
from hibernaut.models.scripted import ScriptedModel, ScriptedTurn, call, say, turn
from hibernaut.rap.manifest import RemoteTool, Toolset
from hibernaut.rap.replies import NoAnswer
from hibernaut.rap.requests import AskStatus, CancelToolCall, CloseThread, Invocation, Selected
from hibernaut.stores.memory import MemoryStore
from hibernaut.stores.protocol import DEAD_AFTER, Outcome
from hibernaut.testing.clock import ManualClock
from hibernaut.testing.tool_servers import Received
from hibernaut.tools.tool import tool
from tests.engine.far import CI, FORGE, PUBLIC, SCHEMA, Far
from tests.engine.scenario import MINUTE, SECOND, head_of, killed, pass_time, run, settle, story, system


def far(*toolsets: Toolset) -> Far:
    return Far(MemoryStore(), ManualClock(), *toolsets)


def agents(far: Far, model: Any, *tools: Any, **more: Any) -> Any:
    return system(model, *tools, store=far.store, clock=far.clock, servers=far.servers, callbacks=PUBLIC, **more)


def test_a_call_is_posted_and_its_answer_wakes_the_thread() -> None:
    there = far()

    async def scenario() -> None:
        async with agents(there, [call("build", commit="abc"), say("It builds.")]) as it:
            agent = await it.launch(user="ann")
            await agent.send("Build abc")
            await it.wait_idle()
            posted = there.call
            assert (posted.operation, posted.arguments) == ("build", {"commit": "abc"})
            assert (posted.group_id, posted.thread_ancestors, posted.user_id) == (agent.thread_id, None, "ann")
            assert posted.call_id is None
            assert posted.callback_url.startswith("http://runtime.test/rap/callback/h2.")
            (received,) = [one for one in there.servers.received if isinstance(one.message, Invocation)]
            assert received.key == posted.id
            assert received.headers["RAP-Version"] == "1"
            (row,) = await there.store.read_effects()
            assert (row.state, row.effect.server) == ("accepted", "ci")
            assert await there.answer("passed") is Outcome.ACCEPTED
            await it.wait_idle()
            assert (await story(agent))[-3:] == ['calls: build {"commit":"abc"}', "result: passed", "says: It builds."]
            assert await there.store.read_effects() == []

    run(scenario)


def test_a30_who_asked_for_a_call_does_not_change_when_another_user_speaks() -> None:
    there = far()

    async def scenario() -> None:
        model = [turn(call("build", commit="a"), call("build", commit="b")), say("One runs."), say("Done.")]
        async with agents(there, model) as it:
            agent = await it.launch(user="ann", options=ThreadOptions(parallel_calls=1))
            await agent.send("Build both", user="ann")
            await it.wait_idle()
            await agent.send("And who are you?", user="bob")
            await there.answer("passed", there.servers.calls[0])
            await it.wait_idle()
            assert {one.user_id for one in there.servers.calls} == {"ann"}

    run(scenario)


# Toolsets


def test_a_tree_is_asked_for_once_and_a_new_root_asks_anew() -> None:
    there = far()

    async def scenario() -> None:
        async with agents(there, [say("a"), say("b"), say("c")]) as it:
            agent = await it.launch()
            for text in ("one", "two"):
                await agent.send(text)
                await it.wait_idle()
            assert there.servers.discoveries == ["ci"]
            there.servers.toolsets["ci"] = Toolset("ci", CI.endpoint, (RemoteTool("deploy", "Deploy.", SCHEMA),))
            other = await it.launch()
            await other.send("three")
            await it.wait_idle()
            assert there.servers.discoveries == ["ci", "ci"]
            shown = [[spec.name for spec in request.tools] for request in model_of(it).requests]
            assert [("build" in names, "deploy" in names) for names in shown] == [(True, False)] * 2 + [(False, True)]

    run(scenario)


def model_of(it: Any) -> ScriptedModel:
    model = it._models.resolve("default")
    assert isinstance(model, ScriptedModel)
    return model


def test_a36_a_server_that_is_down_takes_no_other_servers_tools_along_and_comes_back() -> None:
    there = far(CI, FORGE)
    there.servers.unreachable.add("ci")

    async def scenario() -> None:
        async with agents(there, [say("a"), say("b")]) as it:
            agent = await it.launch()
            await agent.send("one")
            await it.wait_idle()
            there.servers.unreachable.clear()
            await agent.send("two")
            await it.wait_idle()
            shown = [{spec.name for spec in request.tools} & {"build", "search"} for request in model_of(it).requests]
            assert shown == [{"search"}, {"build", "search"}]
            assert "notice: server_down ci: it is switched off; its tools come when it can be reached" in await story(
                agent
            )

    run(scenario)


def test_what_a_server_had_serves_a_new_root_while_it_is_down_even_after_a_restart() -> None:
    there = far()

    async def scenario() -> None:
        async with agents(there, [say("a")]) as it:
            agent = await it.launch()
            await agent.send("one")
            await it.wait_idle()
        there.servers.unreachable.add("ci")
        async with agents(there, [say("b")]) as it:
            other = await it.launch()
            await other.send("two")
            await it.wait_idle()
            assert "build" in {spec.name for spec in model_of(it).requests[0].tools}
            assert "notice: server_down ci: it is switched off; what it had before serves" in await story(other)

    run(scenario)


def test_a26_a_name_that_two_servers_or_the_program_have_is_refused_and_reported() -> None:
    twin = Toolset(
        "twin", "http://twin.test/", (RemoteTool("build", "Another.", SCHEMA), RemoteTool("note", "N.", SCHEMA))
    )
    there = far(CI, twin)

    @tool
    async def note(text: str) -> str:
        """Note something."""
        return text

    async def scenario() -> None:
        async with agents(there, [say("a")], note) as it:
            agent = await it.launch()
            await agent.send("one")
            await it.wait_idle()
            shown = [spec.name for spec in model_of(it).requests[0].tools]
            assert ("build" in shown, shown.count("note")) == (False, 1)
            told = "\n".join(await story(agent))
            assert "notice: tool_refused the tool 'build' is refused for all of them: ci and twin each have one" in told
            assert "notice: tool_refused the tool 'note' of twin is refused: there is one of that name already" in told

    run(scenario)


def test_a26_arguments_that_do_not_fit_never_reach_a_server() -> None:
    there = far()

    async def scenario() -> None:
        async with agents(there, [call("build", commit=7), say("I see.")]) as it:
            agent = await it.launch()
            await agent.send("Build 7")
            await it.wait_idle()
            assert there.servers.calls == []
            assert any(line.startswith("error: Not run. The arguments do not fit:") for line in await story(agent))

    run(scenario)


# When a server does not take a call


def failing(*answers: int | NoAnswer) -> Any:
    """Answer calls one after another; everything else, and what comes later, is taken."""
    left = list(answers)

    def answering(received: Received) -> int | NoAnswer:
        return left.pop(0) if left and isinstance(received.message, Invocation) else 200

    return answering


DOWN = NoAnswer("http://ci.test/", "connection refused", reached=False)
CUT = NoAnswer("http://ci.test/", "nothing within 30 s", reached=True)


@pytest.mark.parametrize("answers", [(500, 500), (503,), (DOWN, DOWN, 502), (CUT,)])
def test_a36_trouble_is_tried_again_under_the_same_key(answers: tuple[int | NoAnswer, ...]) -> None:
    there = far()
    there.servers.answering = failing(*answers)

    async def scenario() -> None:
        async with agents(there, [call("build"), say("Done.")]) as it:
            agent = await it.launch()
            await agent.send("Build")
            await settle()
            await pass_time(there.clock, MINUTE)
            await it.wait_idle()
            keys = [one.key for one in there.servers.received if isinstance(one.message, Invocation)]
            assert len(set(keys)) == 1
            assert len(there.servers.work) == 1
            await there.answer("passed")
            await it.wait_idle()
            assert (await story(agent))[-2:] == ["result: passed", "says: Done."]

    run(scenario)


@pytest.mark.parametrize("status", [400, 401, 404, 422, 307])
def test_a36_a_refusal_is_the_answer_and_nothing_is_tried_again(status: int) -> None:
    there = far()
    there.servers.answering = failing(status, 500)

    async def scenario() -> None:
        async with agents(there, [call("build"), say("Refused.")]) as it:
            agent = await it.launch()
            await agent.send("Build")
            await it.wait_idle()
            assert len(there.servers.calls) == 1
            told = (await story(agent))[-2]
            assert told.startswith(
                f"error: Error: build was not run: its server at {CI.endpoint} answered with status {status}"
            )

    run(scenario)


@pytest.mark.parametrize(
    "answer, words",
    [(DOWN, "look was not run: its server ci cannot be reached"), (CUT, "it is unknown whether look was run")],
)
def test_a36_after_five_tries_over_a_minute_the_model_reads_what_is_known(answer: NoAnswer, words: str) -> None:
    there = far()
    there.servers.answering = failing(*[answer] * 9)

    async def scenario() -> None:
        async with agents(there, [call("look"), say("Pity.")]) as it:
            agent = await it.launch()
            await agent.send("Build")
            await settle()
            await pass_time(there.clock, MINUTE)
            await it.wait_idle()
            assert words in (await story(agent))[-2]
            assert await there.store.read_effects() == []

    run(scenario)


def test_an_answer_that_comes_before_the_acknowledgement_ends_the_tries() -> None:
    there = far()
    there.servers.answering = failing(CUT, CUT, CUT)

    async def scenario() -> None:
        async with agents(there, [call("build"), say("Done.")]) as it:
            agent = await it.launch()
            await agent.send("Build")
            await settle()
            await there.answer("passed")
            await settle()
            tries = len(there.servers.calls)
            await pass_time(there.clock, MINUTE)
            await it.wait_idle()
            assert (await story(agent))[-2:] == ["result: passed", "says: Done."]
            assert len(there.servers.calls) == tries
            assert await there.store.read_effects() == []

    run(scenario)


@pytest.mark.parametrize("alive, words", [(True, "result: passed"), (False, "it is unknown whether build was run")])
def test_a_call_that_may_have_begun_is_not_posted_again_to_a_server_that_would_not_know_it(
    alive: bool, words: str
) -> None:
    there = far()

    def answering(received: Received) -> int | NoAnswer:
        if isinstance(received.message, Invocation):
            return CUT
        if not alive and there.servers.calls:
            there.servers.finish(there.call.id)
        return 200

    there.servers.answering = answering

    async def scenario() -> None:
        async with agents(there, [call("build"), say("I see.")]) as it:
            agent = await it.launch()
            await agent.send("Build")
            await it.wait_idle()
            if alive:
                await there.answer("passed")
                await it.wait_idle()
            assert len(there.servers.calls) == 1
            assert words in (await story(agent))[-2]
            assert await there.store.read_effects() == []

    run(scenario)


def test_a_result_that_comes_after_all_is_shown() -> None:
    there = far()
    there.servers.answering = failing(*[CUT] * 9)

    async def scenario() -> None:
        async with agents(there, [call("look"), say("Pity."), say("After all.")]) as it:
            agent = await it.launch()
            await agent.send("Build")
            await settle()
            await pass_time(there.clock, MINUTE)
            await it.wait_idle()
            assert await there.answer("passed") is Outcome.ACCEPTED
            await it.wait_idle()
            assert (await story(agent))[-2:] == ["late_result: look passed", "says: After all."]

    run(scenario)


# Cancelling and closing


def test_a_cancellation_is_told_to_the_owner_and_nobody_else() -> None:
    there = far(CI, FORGE)

    async def scenario() -> None:
        async with agents(there, [call("build"), say("Stopped.")]) as it:
            agent = await it.launch()
            await agent.send("Build")
            await it.wait_idle()
            await agent.cancel(there.call.id)
            await it.wait_idle()
            assert there.told(CancelToolCall) == [CancelToolCall(agent.thread_id, there.call.id)]
            assert {one.server for one in there.servers.received} == {"ci"}
            assert await there.store.read_effects() == []

    run(scenario)


def test_a_thread_that_closes_tells_the_servers_that_work_for_it() -> None:
    there = far(CI, FORGE)

    async def scenario() -> None:
        async with agents(there, [call("build")]) as it:
            agent = await it.launch()
            await agent.send("Build")
            await it.wait_idle()
            await agent.close()
            await it.wait_idle()
            assert there.told(CancelToolCall) == [CancelToolCall(agent.thread_id, there.call.id)]
            assert there.told(CloseThread) == [CloseThread(agent.thread_id)]
            assert {one.server for one in there.servers.received} == {"ci"}
            assert await there.store.read_effects() == []

    run(scenario)


def test_a_notice_that_nobody_takes_is_given_up_and_holds_nothing_up() -> None:
    there = far()

    async def scenario() -> None:
        async with agents(there, [call("build"), say("Fine.")]) as it:
            agent = await it.launch()
            await agent.send("Build")
            await it.wait_idle()
            there.servers.unreachable.add("ci")
            await agent.cancel(there.call.id)
            await settle()
            assert (await story(agent))[-1] == "says: Fine."
            await pass_time(there.clock, 10 * SECOND)
            await it.wait_idle()
            assert await there.store.read_effects() == []

    run(scenario)


# Subscriptions


def test_a_subscription_brings_events_until_its_last() -> None:
    there = far()

    async def scenario() -> None:
        model = [call("build"), say("I watch."), say("One."), say("Last.")]
        async with agents(there, model) as it:
            agent = await it.launch()
            await agent.send("Watch")
            await it.wait_idle()
            await there.answer("watching", subscription=True)
            await it.wait_idle()
            (row,) = await there.store.read_effects()
            assert row.state == "accepted"
            await there.happen("one", associative=True, event_id="1")
            await it.wait_idle()
            assert await there.happen("one", associative=True, event_id="1") is Outcome.DUPLICATE
            await there.happen("two", associative=True, event_id="2", final=True)
            await it.wait_idle()
            assert [line for line in await story(agent) if line.startswith("event: ")] == [
                "event: build one",
                "event: build two [final]",
            ]
            assert await there.store.read_effects() == []
            await there.happen("three", associative=True, event_id="3")
            await it.wait_idle()
            assert (await agent.state()).refused == 1

    run(scenario)


def test_a13_a_subscription_whose_confirmation_is_lost_can_still_be_cancelled() -> None:
    there = far()

    async def scenario() -> None:
        def unsubscribes(request: ModelRequest) -> ScriptedTurn:
            if not there.servers.calls:
                return turn(call("build"))
            if there.told(CancelToolCall) or "cancel_subscription" in repr(request.transcript):
                return turn(say("Gone."))
            return turn(call("cancel_subscription", tool_call_id=there.call.id))

        model = ScriptedModel(unsubscribes, clock=there.clock)
        async with agents(there, model) as it:
            agent = await it.launch()
            await agent.send("Watch")
            await it.wait_idle()
            await there.happen("before the confirmation", associative=True, event_id="1")
            await pass_time(there.clock, MINUTE)
            await it.wait_idle()
            assert there.told(CancelToolCall) == [CancelToolCall(agent.thread_id, there.call.id)]
            refused = (await agent.state()).refused
            await there.happen("too late", associative=True, event_id="2")
            await it.wait_idle()
            assert (await agent.state()).refused == refused + 1

    run(scenario)


# Questions


def test_c39_c40_the_answer_to_a_choice_is_posted_once_whoever_gives_it_and_whenever() -> None:
    there = far()

    async def scenario() -> None:
        async with agents(there, [call("build"), say("Deployed.")]) as it:
            agent = await it.launch()
            await agent.send("Build")
            await it.wait_idle()
            await there.choose("Deploy?", "yes", "no", default=1)
            await it.wait_idle()
        async with agents(there, [say("Deployed.")]) as it:
            (question,) = await it.questions()
            assert (question.prompt, question.choices) == ("Deploy?", ("yes", "no"))
            await it.answer(question.question_id, "yes")
            await it.wait_idle()
            assert there.told(Selected) == [Selected(there.call.id, 0)]
            (received,) = [one for one in there.servers.received if isinstance(one.message, Selected)]
            assert received.url == "http://ci.test/choices/1"
            await there.answer("deployed")
            await it.wait_idle()
            assert (await story(await it.thread(agent.thread_id)))[-1] == "says: Deployed."
            assert len(there.told(Selected)) == 1

    run(scenario)


def test_an_answer_waits_for_its_server() -> None:
    there = far()

    async def scenario() -> None:
        async with agents(there, [call("build")]) as it:
            agent = await it.launch()
            await agent.send("Build")
            await it.wait_idle()
            await there.choose("Deploy?", "yes", "no")
            await it.wait_idle()
            there.servers.unreachable.add("ci")
            (question,) = await it.questions()
            await it.answer(question.question_id, "no")
            await settle()
            await pass_time(there.clock, 10 * MINUTE)
            there.servers.unreachable.clear()
            await pass_time(there.clock, 10 * MINUTE)
            await it.wait_idle()
            assert there.told(Selected) == [Selected(there.call.id, 1)]

    run(scenario)


def test_a_question_that_is_dismissed_sends_its_default() -> None:
    there = far()

    async def scenario() -> None:
        async with agents(there, [call("build"), say("Never mind.")]) as it:
            agent = await it.launch()
            await agent.send("Build")
            await it.wait_idle()
            await there.choose("Deploy?", "yes", "no", default=1)
            await it.wait_idle()
            await agent.cancel(there.call.id)
            await it.wait_idle()
            assert there.told(Selected) == [Selected(there.call.id, 1)]
            assert await it.questions() == []

    run(scenario)


def test_a_server_that_answers_its_call_needs_no_choice_any_more() -> None:
    there = far()

    async def scenario() -> None:
        async with agents(there, [call("build"), say("Done.")]) as it:
            agent = await it.launch()
            await agent.send("Build")
            await it.wait_idle()
            await there.choose("Deploy?", "yes", "no")
            await it.wait_idle()
            await there.answer("nobody was asked in the end")
            await it.wait_idle()
            assert there.told(Selected) == []
            assert await it.questions() == []

    run(scenario)


def test_who_cancels_an_authorization_cancels_the_call() -> None:
    there = far()

    async def scenario() -> None:
        async with agents(there, [call("build"), say("Not allowed.")]) as it:
            agent = await it.launch()
            await agent.send("Build")
            await it.wait_idle()
            await there.authorize("https://login.test/o?state=1")
            await it.wait_idle()
            (question,) = await it.questions()
            assert question.url == "https://login.test/o?state=1"
            await it.answer(question.question_id, "Cancel")
            await it.wait_idle()
            assert there.told(CancelToolCall) == [CancelToolCall(agent.thread_id, there.call.id)]
            assert "it was not authorized" in "\n".join(await story(agent))

    run(scenario)


# After a death


def test_a_call_that_was_certainly_not_posted_is_posted_by_the_next_engine() -> None:
    there = far()
    there.servers.answering = failing(*[DOWN] * 9)

    async def scenario() -> None:
        async with agents(there, [call("build")]) as it:
            agent = await it.launch()
            await agent.send("Build")
            await settle()
        there.servers.answering = failing()
        async with agents(there, [say("Done.")]) as it:
            await settle()
            await pass_time(there.clock, MINUTE)
            await it.wait_idle()
            assert [one.message for one in there.servers.received if isinstance(one.message, AskStatus)]

    run(scenario)


@pytest.mark.parametrize(
    "operation, keys, alive, posts, words",
    [
        ("build", False, True, 1, ""),
        ("build", False, False, 1, "does not know this call any more"),
        ("look", False, False, 2, ""),
        ("build", True, False, 2, ""),
    ],
)
def test_an_engine_that_dies_between_post_and_acknowledgement_does_nothing_twice_unseen(
    operation: str, keys: bool, alive: bool, posts: int, words: str
) -> None:
    toolset = Toolset("ci", CI.endpoint, CI.tools, idempotency_keys=keys)
    there = far(toolset)
    there.servers.answering = failing(*[CUT] * 9)

    async def scenario() -> None:
        async with agents(there, [call(operation)]) as it:
            agent = await it.launch()
            await agent.send("Build")
            await settle()
            assert len(there.servers.calls) == 1
        there.servers.answering = failing()
        if not alive:
            there.servers.finish(there.call.id)
        async with agents(there, [say("I see."), say("Late.")]) as it:
            await it.wait_idle()
            assert len(there.servers.calls) == posts
            told = "\n".join(await story(await it.thread(agent.thread_id)))
            assert words in told
            assert ("error:" in told) == bool(words)

    run(scenario)


@pytest.mark.parametrize("operation, keys", [("look", False), ("build", True)])
def test_of_a_call_that_was_perhaps_posted_to_a_server_that_is_not_configured_any_more_nobody_knows(
    operation: str, keys: bool
) -> None:
    there = far(Toolset("ci", CI.endpoint, CI.tools, idempotency_keys=keys), FORGE)
    there.servers.answering = failing(*[CUT] * 9)

    async def scenario() -> None:
        async with agents(there, [call(operation)]) as it:
            agent = await it.launch()
            await agent.send("Build")
            await settle()
            assert len(there.servers.calls) == 1
        del there.servers.toolsets["ci"]
        async with agents(there, [say("I see."), say("And there?")]) as it:
            await it.wait_idle()
            (told,) = [line for line in await story(await it.thread(agent.thread_id)) if line.startswith("error: ")]
            assert told.startswith(
                f"error: Error: it is unknown whether {operation} was run: its server ci did not ack"
            )
            assert "no tool server is called 'ci'" in told
            assert await there.store.read_effects() == []
            other = await it.launch()
            await other.send("Hello")
            await it.wait_idle()
            assert (await story(other))[-1] == "says: And there?"

    run(scenario)


def test_at_start_the_calls_that_a_server_has_lost_are_answered_and_the_others_wait() -> None:
    there = far()

    async def scenario() -> None:
        async with agents(there, [call("build", commit="a"), call("build", commit="b")]) as it:
            lost, alive = await it.launch(), await it.launch()
            for agent in (lost, alive):
                await agent.send("Build")
                await it.wait_idle()
        there.servers.finish(there.servers.calls[0].id)
        async with agents(there, [say("I see.")]) as it:
            await settle()
            await it.wait_idle()
            assert "does not know this call any more" in "\n".join(await story(await it.thread(lost.thread_id)))
            assert (await head_of(await it.thread(alive.thread_id))).turn == (there.servers.calls[1].id,)

    run(scenario)


@pytest.mark.parametrize(
    "operation, keys, heard",
    [("build", False, True), ("build", False, False), ("look", False, False), ("build", True, False)],
)
def test_a_call_whose_answer_waits_for_its_thread_is_neither_lost_nor_posted_again(
    operation: str, keys: bool, heard: bool
) -> None:
    there = far(Toolset("ci", CI.endpoint, CI.tools, idempotency_keys=keys))
    there.servers.answering = failing(*([] if heard else [CUT]))

    async def scenario() -> None:
        async with agents(there, [call(operation)]) as it:
            agent = await it.launch()
            await agent.send("Build")
            await settle()
            await park(there, agent.thread_id)
            await there.answer("passed")
            there.servers.finish(there.call.id)
        async with agents(there, [say("Done.")]) as it:
            await settle()
            waiting = [one.message_id for one in await there.store.read_inbox(agent.thread_id)]
            assert waiting == [f"result:{there.call.id}"]
            assert len(there.servers.calls) == 1
            agent = await it.thread(agent.thread_id)
            await agent.resume()
            await it.wait_idle()
            assert (await story(agent))[-2:] == ["result: passed", "says: Done."]
            assert await there.store.read_effects() == []

    run(scenario)


def test_a_subscription_whose_last_event_waits_for_its_thread_is_not_lost() -> None:
    there = far()

    async def scenario() -> None:
        async with agents(there, [call("build"), say("I watch.")]) as it:
            agent = await it.launch()
            await agent.send("Watch")
            await it.wait_idle()
            await there.answer("watching", subscription=True)
            await it.wait_idle()
            await park(there, agent.thread_id)
            await there.happen("over", associative=True, event_id="1", final=True)
            there.servers.finish(there.call.id)
        async with agents(there, [say("It ended.")]) as it:
            await settle()
            assert len(await there.store.read_inbox(agent.thread_id)) == 1
            agent = await it.thread(agent.thread_id)
            await agent.resume()
            await it.wait_idle()
            assert (await story(agent))[-2:] == ["event: build over [final]", "says: It ended."]
            assert (await agent.state()).refused == 0

    run(scenario)


def test_a_subscription_that_is_lost_while_its_confirmation_waits_for_its_thread_ends() -> None:
    there = far()

    async def scenario() -> None:
        async with agents(there, [call("build")]) as it:
            agent = await it.launch()
            await agent.send("Watch")
            await it.wait_idle()
            await park(there, agent.thread_id)
            await there.answer("watching", subscription=True)
            there.servers.finish(there.call.id)
        async with agents(there, [say("It ended.")]) as it:
            await settle()
            agent = await it.thread(agent.thread_id)
            await agent.resume()
            await it.wait_idle()
            assert (await story(agent))[-3] == "result: watching"
            assert (await story(agent))[-2].endswith("[final]")
            assert (await head_of(agent)).calls == {}
            assert await there.store.read_effects() == []

    run(scenario)


def test_a_call_that_is_cancelled_is_not_lost_while_its_server_has_still_to_be_told() -> None:
    there = far()

    async def scenario() -> None:
        model = ScriptedModel([call("build"), say("Stopped.")], clock=there.clock)
        more: Any = {"servers": there.servers, "callbacks": PUBLIC}
        async with killed(model, store=there.store, clock=there.clock, **more) as it:
            agent = await it.launch()
            await agent.send("Build")
            await it.wait_idle()
            there.servers.answering = lambda one: 503 if isinstance(one.message, CancelToolCall) else 200
            await agent.cancel(there.call.id)
            await settle()
        there.servers.finish(there.call.id)
        there.clock.advance(DEAD_AFTER)
        async with agents(there, []) as it:
            await settle()
            assert [one for one in there.servers.received if isinstance(one.message, AskStatus)]
            assert not await there.store.knows(agent.thread_id, f"unknown:{there.call.id}")
            there.servers.answering = failing()
            await pass_time(there.clock, 10 * SECOND)
            await it.wait_idle()
            assert await there.store.read_effects() == []

    run(scenario)


async def park(there: Far, thread_id: str) -> None:
    """Let a thread take in nothing but commands."""
    await there.store.put([InputMessage("park", thread_id, Command("park"), "operator")], there.clock.now())
    await settle()


def test_old_calls_are_asked_after_every_hour_and_young_ones_are_not() -> None:
    there = far()

    async def scenario() -> None:
        async with agents(there, [call("build")]) as it:
            agent = await it.launch()
            await agent.send("Build")
            await it.wait_idle()

            def asked() -> list[Received]:
                return [one for one in there.servers.received if isinstance(one.message, AskStatus)]

            await pass_time(there.clock, 50 * MINUTE, step=MINUTE)
            assert asked() == []
            await pass_time(there.clock, 15 * MINUTE, step=MINUTE)
            assert len(asked()) == 1

    run(scenario)


def test_a_subscription_that_its_server_has_lost_ends_with_a_last_event() -> None:
    there = far()

    async def scenario() -> None:
        async with agents(there, [call("build"), say("I watch.")]) as it:
            agent = await it.launch()
            await agent.send("Watch")
            await it.wait_idle()
            await there.answer("watching", subscription=True)
            await it.wait_idle()
        there.servers.finish(there.call.id)
        async with agents(there, [say("It ended.")]) as it:
            await settle()
            await it.wait_idle()
            assert (await story(await it.thread(agent.thread_id)))[-2].endswith("[final]")
            assert await there.store.read_effects() == []

    run(scenario)


def test_servers_that_know_keys_are_told_a_new_callback_address() -> None:
    there = far(Toolset("ci", CI.endpoint, CI.tools, idempotency_keys=True))

    async def scenario() -> None:
        async with agents(there, [call("build")]) as it:
            agent = await it.launch()
            await agent.send("Build")
            await it.wait_idle()
        moved = type(PUBLIC)(public="http://elsewhere.test", listen=False)
        async with system(
            [say("Done.")], store=there.store, clock=there.clock, servers=there.servers, callbacks=moved
        ) as it:
            await settle()
            await it.wait_idle()
            assert [one.callback_url.split("/rap/")[0] for one in there.servers.calls] == [
                "http://runtime.test",
                "http://elsewhere.test",
            ]
            assert len({one.id for one in there.servers.calls}) == 1

    run(scenario)


# For people


def test_a29_a_call_is_shown_as_its_server_wants_it_and_a_script_that_loops_holds_nobody_up() -> None:
    build = RemoteTool("build", "Build.", SCHEMA, display_script='"build of " + args.commit')
    loops = RemoteTool("loop", "Loop.", SCHEMA, display_script="loop { }")
    there = far(Toolset("ci", CI.endpoint, (build, loops)))

    async def scenario() -> None:
        model = [turn(call("build", commit="abc"), call("loop", commit="x"))]
        async with agents(there, model) as it:
            agent = await it.launch()
            await agent.send("Build")
            await it.wait_idle()
            shown = [event.display async for event in agent.events(follow=False) if isinstance(event, ToolCall)]
            assert shown == ["build of abc", 'loop({"commit":"x"})']

    run(scenario)


def test_whoever_follows_a_thread_sees_what_is_shown_beside_it_and_every_change() -> None:
    there = far()

    async def scenario() -> None:
        async with agents(there, [say("Hello.")]) as it:
            agent = await it.launch()
            await agent.send("Hi")
            await it.wait_idle()
            await there.store.put_view(agent.thread_id, "plan", '{"step":1}', there.clock.now())
            async with aclosing(agent.events()) as events:
                first = await anext(event async for event in events if isinstance(event, ViewChanged))
                it.feed.view(agent.thread_id, "plan", '{"step":2}')
                second = await anext(event async for event in events if isinstance(event, ViewChanged))
            assert [first.content, second.content] == ['{"step":1}', '{"step":2}']
            assert [(one.view_type, one.content) for one in await agent.views()] == [("plan", '{"step":1}')]
            stored = [event async for event in agent.events(follow=False)]
            assert not any(isinstance(event, ViewChanged) for event in stored)

    run(scenario)


def test_a_server_that_is_down_when_the_address_changes_hears_of_it_later_and_its_call_goes_on() -> None:
    there = far(Toolset("ci", CI.endpoint, CI.tools, idempotency_keys=True))
    moved = type(PUBLIC)(public="http://elsewhere.test", listen=False)

    def moves(model: Any) -> Any:
        return system(model, store=there.store, clock=there.clock, servers=there.servers, callbacks=moved)

    async def scenario() -> None:
        async with agents(there, [call("build")]) as it:
            agent = await it.launch()
            await agent.send("Build")
            await it.wait_idle()
        there.servers.unreachable.add("ci")
        async with moves([say("Nothing.")]) as it:
            await settle()
            await it.wait_idle()
            (row,) = await there.store.read_effects()
            assert row.state == "accepted"
        there.servers.unreachable.clear()
        async with moves([say("Done.")]) as it:
            await settle()
            await it.wait_idle()
            assert there.call.callback_url.startswith("http://elsewhere.test/")
            await there.answer("passed")
            await it.wait_idle()
            assert (await story(await it.thread(agent.thread_id)))[-2:] == ["result: passed", "says: Done."]

    run(scenario)


def test_a_call_that_may_have_arrived_before_it_was_refused_is_not_said_to_be_not_run() -> None:
    there = far()
    there.servers.answering = failing(CUT, 400)

    async def scenario() -> None:
        async with agents(there, [call("look"), say("I see.")]) as it:
            agent = await it.launch()
            await agent.send("Build")
            await settle()
            await pass_time(there.clock, 10 * SECOND)
            await it.wait_idle()
            told = (await story(agent))[-2]
            assert "it is unknown whether look was run" in told
            assert "an earlier try was not answered, and now: status 400" in told

    run(scenario)
