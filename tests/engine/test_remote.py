"""Calls on tool servers: posted from the outbox, answered through the inbox, told to their owners."""

from contextlib import aclosing

from hibernaut.kernel.limits import ThreadOptions
from hibernaut.messages.events import ToolCall, ViewChanged
from hibernaut.models.protocol import ModelRequest
from hibernaut.models.scripted import ScriptedModel, ScriptedTurn, call, say, turn
from hibernaut.rap.limits import LONGEST_NAME
from hibernaut.rap.manifest import RemoteTool, Toolset
from hibernaut.rap.requests import CancelToolCall, CloseThread, Invocation, Selected
from hibernaut.stores.protocol import Outcome
from tests.engine.far import CI, FORGE, SCHEMA, agents, far
from tests.engine.scenario import MINUTE, SECOND, pass_time, run, settle, story


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


def test_a_tool_is_called_by_its_whole_name_however_long_that_may_be() -> None:
    long = "a" * LONGEST_NAME
    there = far(Toolset("ci", "http://ci.test/rap/call", (RemoteTool(long, "Build.", SCHEMA),)))

    async def scenario() -> None:
        async with agents(there, [call(long), say("It builds.")]) as it:
            agent = await it.launch(message="Build")
            await it.wait_idle()
            assert there.call.operation == long
            await there.answer("passed")
            await it.wait_idle()
            assert (await story(agent))[-3:] == [f"calls: {long} {{}}", "result: passed", "says: It builds."]

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


def test_a_stop_tells_the_servers_whose_calls_it_cancels() -> None:
    there = far(CI, FORGE)

    async def scenario() -> None:
        async with agents(there, [call("build")]) as it:
            agent = await it.launch()
            await agent.send("Build")
            await it.wait_idle()
            await agent.stop("enough")
            await it.wait_idle()
            assert there.told(CancelToolCall) == [CancelToolCall(agent.thread_id, there.call.id)]
            assert (await agent.state()).status == "stopped"
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
