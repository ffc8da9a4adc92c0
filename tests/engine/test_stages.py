"""Slices of many threads that go on stage by stage: together where they can, and nobody waits for another."""

import asyncio
import logging
from collections.abc import Sequence

import pytest

from hibernaut.engine.local import DRAIN
from hibernaut.errors import StoreFull
from hibernaut.handle import ThreadHandle
from hibernaut.messages.inputs import InputMessage, ToolResult, UserText
from hibernaut.models.protocol import ModelRequest
from hibernaut.models.scripted import ScriptedTurn, call, last_user_text, say, turn
from hibernaut.stores.memory import MemoryStore
from hibernaut.stores.protocol import Outcome, Owner, Round
from hibernaut.system import AgentSystem
from hibernaut.testing.clock import ManualClock
from hibernaut.testing.gates import Gate
from hibernaut.tools.tool import tool
from tests.engine.scenario import MINUTE, pass_time, run, settle, story, system, until_told

MANY = 40


class CountingStore(MemoryStore):
    """Counts how many are written together, and refuses what a test wants refused."""

    def __init__(self) -> None:
        super().__init__()
        self.committed: list[int] = []
        self.marked: list[int] = []
        self.answered: list[int] = []
        self.refuses: set[str] = set()
        """Threads whose next commit is refused."""
        self.full = False
        """No result is taken."""

    async def commit_all(self, rounds: Sequence[Round]) -> list[Exception | None]:
        self.committed.append(len(rounds))
        refused = [one for one in rounds if one.claim.thread_id in self.refuses]
        self.refuses -= {one.claim.thread_id for one in refused}
        taken = [one for one in rounds if one not in refused]
        ends = dict(zip(map(id, taken), await super().commit_all(taken), strict=True))
        return [ends.get(id(one), StoreFull("no room")) for one in rounds]

    async def start_effects(self, owner: Owner, request_ids: Sequence[str]) -> list[str]:
        self.marked.append(len(request_ids))
        return await super().start_effects(owner, request_ids)

    async def put(self, messages: Sequence[InputMessage], now: int, **more: object) -> list[Outcome]:
        results = sum(isinstance(message.content, ToolResult) for message in messages)
        if results and self.full:
            raise StoreFull("no room")
        if results:
            self.answered.append(results)
        return await super().put(messages, now, **more)  # type: ignore[arg-type]


def answer(request: ModelRequest) -> ScriptedTurn:
    said = last_user_text(request)
    return call("work") if said == "Work" and len(request.transcript) == 1 else say(f"Heard {said}.")


@tool
async def work() -> str:
    """Work."""
    return "done"


async def all_say(it: AgentSystem, word: str, names: Sequence[str]) -> list[ThreadHandle]:
    agents = [await it.launch(thread_id=name) for name in names]
    await asyncio.gather(*[agent.send(word) for agent in agents])
    return agents


NAMES = [f"t{number:02d}" for number in range(MANY)]


def test_what_many_slices_and_calls_write_at_the_same_time_is_written_together() -> None:
    store = CountingStore()

    async def scenario() -> None:
        async with system(answer, work, store=store) as it:
            agents = await all_say(it, "Work", NAMES)
            await it.wait_idle()
            for agent in agents:
                assert (await story(agent))[1:] == ["calls: work {}", "result: done", "says: Heard Work."]
        assert sum(store.committed) == 2 * MANY
        assert sum(store.marked) == sum(store.answered) == MANY
        assert max(len(store.committed), len(store.marked), len(store.answered)) < MANY / 4

    run(scenario)


def test_a_round_that_is_refused_is_tried_again_and_none_beside_it(caplog: pytest.LogCaptureFixture) -> None:
    store, clock = CountingStore(), ManualClock()
    asked: list[str] = []

    def noted(request: ModelRequest) -> ScriptedTurn:
        asked.append(request.thread_id)
        return answer(request)

    async def scenario() -> None:
        async with system(noted, store=store, clock=clock) as it:
            store.refuses = {"t03", "t17"}
            agents = await all_say(it, "Hello", NAMES)
            await pass_time(clock, MINUTE)
            for agent in agents:
                assert await story(agent) == ["user: Hello", "says: Heard Hello."]
            assert sorted(asked) == sorted([*NAMES, "t03", "t17"])

    with caplog.at_level(logging.CRITICAL, "hibernaut"):
        run(scenario)


def test_a_model_that_takes_its_time_holds_nobody_else_up() -> None:
    gate = Gate()

    def slow(request: ModelRequest) -> ScriptedTurn:
        return turn("Heard ", gate, "it.") if request.thread_id == "t05" else answer(request)

    async def scenario() -> None:
        async with system(slow) as it:
            agents = await all_say(it, "Hello", NAMES)
            await gate.reached()
            for agent in agents:
                if agent.thread_id != "t05":
                    await until_told(agent, "says: Heard Hello.")
            assert (await agents[5].state()).activity == "ready"
            gate.open()
            await until_told(agents[5], "says: Heard it.")

    run(scenario)


def test_results_that_no_store_takes_when_their_engine_ends_are_left_to_the_next(
    caplog: pytest.LogCaptureFixture,
) -> None:
    store, clock = CountingStore(), ManualClock()

    async def scenario() -> None:
        async with system(answer, work, store=store, clock=clock) as it:
            store.full = True
            (agent,) = await all_say(it, "Work", ["t"])
            await settle()
            assert (await agent.state()).activity == "waiting"
        assert "the next engine finds it" in caplog.text
        store.full = False
        async with system(answer, work, store=store, clock=clock) as it:
            agent = await it.thread("t")
            await until_told(agent, "says: Heard Work.")
            assert (await story(agent))[2].startswith("error: The process that ran work died")

    with caplog.at_level(logging.ERROR, "hibernaut"):
        run(scenario)


def test_an_engine_that_ends_while_its_store_fails_ends(caplog: pytest.LogCaptureFixture) -> None:
    """What tools have returned meanwhile is brought once more, and not for ever."""
    store = CountingStore()
    begun, ends = asyncio.Event(), asyncio.Event()

    @tool
    async def stubborn() -> str:
        """Work."""
        begun.set()
        while True:
            try:
                await ends.wait()
            except asyncio.CancelledError:
                continue
            return "done"

    async def scenario() -> None:
        async with system(lambda _: call("stubborn"), stubborn, store=store) as it:
            store.full = True
            await all_say(it, "Work", ["t"])
            await begun.wait()
            asyncio.get_running_loop().call_later(0.05, ends.set)
        assert [row.state for row in await store.read_effects()] == ["sent"]

    with caplog.at_level(logging.CRITICAL, "hibernaut"):
        run(scenario)


def test_a_store_that_hangs_holds_no_engine_up_beyond_its_drain() -> None:
    clock = ManualClock()

    class Hanging(MemoryStore):
        async def commit_all(self, rounds: Sequence[Round]) -> list[Exception | None]:
            begun.set()
            await asyncio.Event().wait()
            return await super().commit_all(rounds)

    begun = asyncio.Event()

    async def scenario() -> None:
        async with asyncio.TaskGroup() as beside:
            async with system(answer, store=Hanging(), clock=clock) as it:
                await all_say(it, "Hello", NAMES)
                await begun.wait()
                passing = beside.create_task(pass_time(clock, 3 * DRAIN))
            assert not passing.done(), "the engine has waited for longer than its drain"
            passing.cancel()

    run(scenario)


def test_a_slice_whose_thread_is_claimed_anew_before_it_hears_of_its_commit_begins_what_it_owes() -> None:
    class Slow(MemoryStore):
        async def commit_all(self, rounds: Sequence[Round]) -> list[Exception | None]:
            ends: list[Exception | None] = []
            for one in rounds:
                ends += await super().commit_all([one])
                await asyncio.sleep(0)
                if len(ends) == MANY // 2:  # what has been said to somebody else lets the engine claim what is ready
                    await self.put([InputMessage("m", "bystander", UserText("Hello"), "api")], 0)
            return ends

    store, ran, gate = Slow(), [], Gate()

    @tool
    async def work() -> str:
        """Work."""
        ran.append(1)
        return "done"

    def calling(request: ModelRequest) -> ScriptedTurn:
        if request.thread_id == "bystander" or len(request.transcript) > 1:
            return say("Done.")
        return turn(gate, call("work"))

    async def scenario() -> None:
        async with system(calling, work, store=store) as it:
            await it.launch(thread_id="bystander")
            agents = await all_say(it, "Work", NAMES)
            await settle()
            for agent in agents:  # so that each is ready again as soon as its claim is over
                await agent.compact()
            gate.open()
            await it.wait_idle()
            assert len(ran) == MANY
            assert await store.read_effects() == []
            for agent in agents:
                assert (await story(agent))[-1] == "says: Done."
            assert it.completions == 2 * MANY + 1

    run(scenario)


def test_a_result_that_the_store_refuses_holds_up_none_beside_it(caplog: pytest.LogCaptureFixture) -> None:
    class Choosy(CountingStore):
        async def put(self, messages: Sequence[InputMessage], now: int, **more: object) -> list[Outcome]:
            if any(isinstance(one.content, ToolResult) and one.thread_id == "t07" for one in messages) and self.full:
                raise StoreFull("no room")
            return await MemoryStore.put(self, messages, now, **more)  # type: ignore[arg-type]

    store, clock = Choosy(), ManualClock()

    async def scenario() -> None:
        async with system(answer, work, store=store, clock=clock) as it:
            store.full = True
            agents = await all_say(it, "Work", NAMES)
            for agent in agents:
                if agent.thread_id != "t07":
                    await until_told(agent, "says: Heard Work.")
            assert (await agents[7].state()).activity == "waiting"
            store.full = False
            await pass_time(clock, MINUTE)
            await until_told(agents[7], "says: Heard Work.")

    with caplog.at_level(logging.CRITICAL, "hibernaut"):
        run(scenario)


def test_an_engine_that_is_cancelled_ends_so_whatever_tools_and_models_make_of_it() -> None:
    store, begun = MemoryStore(), asyncio.Event()

    @tool
    async def polite() -> str:
        """Work."""
        begun.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            return "stopped early"
        return ""

    async def live() -> None:
        async with system(lambda _: call("polite"), polite, store=store) as it:
            await all_say(it, "Work", ["t"])
            await asyncio.Event().wait()

    async def scenario() -> None:
        task = asyncio.create_task(live())
        await begun.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert task.cancelled()

    run(scenario)
