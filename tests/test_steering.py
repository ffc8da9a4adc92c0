"""What operators decide about a thread and about what waits for it: stored at once, carried out, and in a receipt."""

import hashlib
from typing import Any

import pytest

from hibernaut.errors import MalformedInput, ThreadClosed, TooLarge, UnknownMessage, UnknownThread
from hibernaut.kernel.published_receipts import OperatorDecision
from hibernaut.messages.inputs import Command
from hibernaut.messages.parts import Image, Text
from hibernaut.models.errors import AuthenticationFailed
from hibernaut.models.scripted import call, fail, last_user_text, say
from hibernaut.stores.memory import MemoryStore
from hibernaut.system import AgentSystem
from hibernaut.tools.context import Deferred, ToolContext
from hibernaut.tools.tool import tool
from tests.engine.scenario import run, story, system


@tool
async def ask(context: ToolContext) -> Deferred:
    """Leave the answer to somebody else."""
    return context.defer()


def client(store: MemoryStore, **more: Any) -> AgentSystem:
    return system([], store=store, run=False, **more)


async def decisions(it: AgentSystem, thread_id: str = "t") -> list[OperatorDecision]:
    return [one async for receipt in it.receipts_of(thread_id) for one in receipt.operator_decision]


def test_what_was_said_while_nobody_was_there_to_read_it_can_be_dropped_and_edited() -> None:
    store = MemoryStore()

    async def scenario() -> None:
        async with client(store) as it:
            await it.launch(thread_id="t")
            agent = await it.thread("t")
            dropped = await agent.send("Wipe it all", user="ann")
            edited = await agent.send("Build abc", user="ann")
            await agent.drop(dropped, "said in error")
            await agent.edit(edited, "Build def", "a slip")
            assert [one.message_id for one in await agent.inbox()][:2] == [dropped, edited]
        async with system(lambda request: f"I heard: {last_user_text(request)}", store=store) as it:
            agent = await it.thread("t")
            await agent.wait_idle()
            assert (await story(agent))[-2:] == ["user: Build def", "says: I heard: Build def"]
            (receipt,) = [one async for one in it.receipts_of("t")]
            fates = {one.id: one.disposition for one in receipt.inputs}
            assert (fates[dropped], fates[edited]) == ("dropped", "accepted")
            drop, edit = receipt.operator_decision
            assert (drop.action, drop.message, drop.reason) == ("drop", dropped, "said in error")
            assert (edit.action, edit.message, edit.reason) == ("edit", edited, "a slip")
            before, after = (hashlib.sha256(text).hexdigest() for text in (b"Build abc", b"Build def"))
            assert (edit.before, edit.after) == (f"sha256:{before}", f"sha256:{after}")
            assert await it.verify("t") == 1

    run(scenario)


def test_what_a_frozen_tree_holds_can_be_dropped_and_edited_before_it_is_thawed() -> None:
    async def scenario() -> None:
        async with system(lambda request: f"I heard: {last_user_text(request)}") as it:
            agent = await it.launch(thread_id="t")
            await agent.freeze()
            dropped, edited = await agent.send("One"), await agent.send("Two")
            await agent.drop(dropped)
            await agent.edit(edited, (Text("Three"), Image("image/png", b"x")))
            await agent.thaw()
            await agent.wait_idle()
            assert not [line for line in await story(agent) if "One" in line or "Two" in line]
            assert await it.verify("t") == 1

    run(scenario)


def test_only_what_waits_and_what_somebody_says_can_be_changed() -> None:
    async def scenario() -> None:
        async with system([call("sleep", seconds=60)]) as it:
            agent = await it.launch(thread_id="t")
            message = await agent.send("Rest")
            await agent.wait_idle()
            with pytest.raises(UnknownMessage, match="it was read, or never came"):
                await agent.drop(message)
            (timer,) = await agent.inbox()
            for attempt in (agent.drop(timer.message_id), agent.edit(timer.message_id, "now")):
                with pytest.raises(MalformedInput, match="cancel or settle its call"):
                    await attempt
            await agent.freeze()
            message = await agent.send("Hello")
            for content in ("", " ", ()):
                with pytest.raises(MalformedInput):
                    await agent.edit(message, content)
            assert len(await agent.inbox()) == 2

    run(scenario)


def test_no_tenant_sees_or_changes_what_waits_for_the_thread_of_another() -> None:
    store = MemoryStore()

    async def scenario() -> None:
        async with client(store, tenant="a") as it:
            agent = await it.launch(thread_id="t")
            message = await agent.send("Hello")
            async with client(store, tenant="b") as other:
                agent._system = other
                for attempt in (agent.inbox(), agent.drop(message), agent.edit(message, "x"), agent.fork()):
                    with pytest.raises(UnknownThread):
                        await attempt

    run(scenario)


def test_a_parked_thread_is_tried_again_with_a_reason() -> None:
    async def scenario() -> None:
        async with system([fail(AuthenticationFailed("no key")), say("Done.")]) as it:
            agent = await it.launch(thread_id="t")
            await agent.send("Go")
            assert (await agent.wait_idle()).status == "parked"
            await agent.retry("the key is there now")
            assert (await agent.wait_idle()).status == "open"
            assert (await story(agent))[-2:] == ["notice: resumed was parked: the key is there now", "says: Done."]
            (decision,) = await decisions(it)
            assert (decision.action, decision.reason) == ("retry", "the key is there now")

    run(scenario)


def test_every_decision_about_a_thread_is_in_its_receipts_with_its_reason() -> None:
    async def scenario() -> None:
        async with system([call("ask"), say("It is off."), say("So."), say("Yes.")], ask) as it:
            agent = await it.launch(thread_id="t")
            await agent.send("Ask them")
            await it.wait_idle()
            (open_call,) = (await agent.state()).calls
            await agent.cancel(open_call.call_id, "too slow")
            await agent.wait_idle()
            for decide in (agent.park, agent.resume, agent.stop, agent.resume, agent.compact, agent.close):
                await decide(f"to {decide.__name__}")
                await agent.wait_idle()
            told = [(one.action, one.call, one.reason) for one in await decisions(it)]
            steps = ["park", "resume", "stop", "resume", "compact", "close"]
            assert told == [("cancel", open_call.call_id, "too slow"), *[(step, "", f"to {step}") for step in steps]]
            assert all(one.sender == "operator" for one in await decisions(it))
            assert await it.verify("t") == (await agent.state()).version
            with pytest.raises(ThreadClosed):
                await agent.retry()

    run(scenario)


def test_a_decision_that_came_to_nothing_is_in_the_receipts_with_its_reason() -> None:
    async def scenario() -> None:
        async with system([say("Hello.")]) as it:
            agent = await it.launch(thread_id="t", message="Hi")
            await agent.wait_idle()
            await agent.cancel("call_over", "it took too long")
            await agent.wait_idle()
            last = [one async for one in it.receipts_of("t")][-1]
            assert [(one.disposition, one.note) for one in last.inputs] == [
                ("stale", "cancel call_over: it took too long")
            ]
            assert last.operator_decision == []

    run(scenario)


def test_a_decision_is_stored_when_it_is_accepted_though_nobody_runs_the_thread() -> None:
    store = MemoryStore()

    async def scenario() -> None:
        async with client(store) as it:
            agent = await it.launch(thread_id="t")
            await agent.park("for now")
            (stored,) = await store.read_inbox("t")
            assert stored.message is not None
            assert stored.message.content == Command("park", reason="for now")
        async with system([], store=store) as it:
            assert (await (await it.thread("t")).wait_idle()).reason == "for now"

    run(scenario)


def test_c66_of_a_tree_that_was_deleted_is_left_when_and_why_and_what_its_last_receipt_was() -> None:
    store = MemoryStore()

    async def scenario() -> None:
        async with system(["Hello."], store=store, tenant="a") as it:
            agent = await it.launch(thread_id="t")
            await agent.send("Hello")
            await agent.wait_idle()
            last = [one async for one in it.receipts_of("t")][-1].receipt
            assert await it.deletion("t") is None
            assert await agent.delete("they asked for it") == 1
            gone = await it.deletion("t")
            assert gone is not None
            assert (gone.reason, gone.deleted) == ("they asked for it", it.clock.now())
            assert f"sha256:{gone.receipt.hex()}" == last
        async with client(store, tenant="b") as other:
            assert await other.deletion("t") is None

    run(scenario)


def test_a_reason_that_is_too_long_to_be_kept_is_refused_and_changes_nothing() -> None:
    async def scenario() -> None:
        async with system([]) as it:
            agent = await it.launch(thread_id="t")
            for decide in (agent.stop, agent.retry, agent.delete):
                with pytest.raises(TooLarge, match="LONGEST_REASON"):
                    await decide("x" * 5_000)
            with pytest.raises(TooLarge, match="LONGEST_REASON"):
                await agent.fork(reason="é" * 3_000)
            assert (await agent.state()).version == len(await agent.inbox()) == 0
            assert len(await it.threads()) == 1

    run(scenario)
