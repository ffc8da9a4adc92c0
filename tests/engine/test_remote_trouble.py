"""Servers that do not take a call, or not at once: tried again where that is safe, and told to the model."""

from typing import Any

import pytest

from hibernaut.models.scripted import call, say, turn
from hibernaut.rap.manifest import Toolset
from hibernaut.rap.replies import NoAnswer
from hibernaut.rap.requests import Invocation
from hibernaut.stores.protocol import Outcome
from hibernaut.testing.gates import Gate
from hibernaut.testing.tool_servers import Received
from tests.engine.far import CI, CUT, DOWN, PUBLIC, agents, failing, far
from tests.engine.scenario import MINUTE, SECOND, pass_time, run, settle, story, system


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


def test_a_call_that_was_answered_by_hand_is_not_posted_again_though_its_thread_has_not_heard_of_it_yet() -> None:
    there, gate = far(), Gate()
    there.servers.answering = failing(*[503] * 9)
    model = [call("look"), turn("Well, ", gate, "well."), say("I see.")]

    async def scenario() -> None:
        async with agents(there, model) as it:
            agent = await it.launch(message="Look")
            await settle()
            await agent.send("How far are you?")
            await gate.reached()
            (owed,) = await it.effects()
            await it.settle(owed.effect.request_id, "it looks fine", reason="it takes too long")
            tries = len(there.servers.calls)
            await pass_time(there.clock, MINUTE)
            assert len(there.servers.calls) == tries
            gate.open()
            await it.wait_idle()
            assert (await story(agent))[-1] == "says: I see."
            assert await there.store.read_effects() == []

    run(scenario)
