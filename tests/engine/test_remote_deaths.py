"""Calls on tool servers whose engine died, and calls that a server has lost: nothing is done twice unseen."""

from typing import Any

import pytest

from hibernaut.messages.inputs import Command, InputMessage
from hibernaut.models.scripted import ScriptedModel, call, say
from hibernaut.rap.manifest import Toolset
from hibernaut.rap.requests import AskStatus, CancelToolCall
from hibernaut.stores.protocol import DEAD_AFTER
from hibernaut.testing.tool_servers import Received
from tests.engine.far import CI, CUT, DOWN, FORGE, PUBLIC, Far, agents, failing, far
from tests.engine.scenario import MINUTE, SECOND, head_of, killed, pass_time, run, settle, story, system


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
            waiting = await there.store.read_inbox(agent.thread_id)
            assert [one.message_id.partition(":")[0] for one in waiting] == ["expiry", "event"]
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
