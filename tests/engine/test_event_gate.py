"""Events at the doors of an engine: refused ones are raised where they are yielded, the others wait to be taken in."""

import asyncio
from collections.abc import AsyncGenerator
from typing import Any

import msgspec
import pytest

from hibernaut import Authority, EventPolicy, ToolError, ToolEvent, tool
from hibernaut.engine.slice import MAX_TRIES
from hibernaut.errors import EventMisfit, EventNotTaken, InputRefused, StoreCorrupt, TooLarge
from hibernaut.handle import ThreadHandle
from hibernaut.kernel.commit import Disposition
from hibernaut.kernel.head import decode_head
from hibernaut.messages.inputs import Event, event_message
from hibernaut.messages.items import OutsideItem
from hibernaut.messages.parts import Excerpt, plain_text
from hibernaut.models.scripted import call, say
from hibernaut.rap.manifest import RemoteTool, Toolset
from hibernaut.rap.requests import CancelToolCall
from hibernaut.stores.memory import MemoryStore
from hibernaut.stores.protocol import Outcome
from hibernaut.testing.clock import ManualClock
from hibernaut.tools.tool import AnyTool
from tests.engine.far import SCHEMA, agents, far
from tests.engine.scenario import MINUTE, FailingStore, pass_time, run, settle, story, system, until_told


class Reading(msgspec.Struct):
    celsius: float


class Sensor:
    """A subscription that says what the test wants, and hears what is refused."""

    def __init__(self, **options: Any) -> None:
        self.values: asyncio.Queue[object] = asyncio.Queue()
        self.refused: list[InputRefused] = []
        self.measure: AnyTool = tool(name="measure", events="associative", **options)(self._measure)

    async def _measure(self) -> AsyncGenerator[object, None]:
        """Measure."""
        yield "measuring"
        while (value := await self.values.get()) is not None:
            try:
                yield value
            except InputRefused as error:
                self.refused.append(error)

    def tell(self, *values: object) -> None:
        for value in values:
            self.values.put_nowait(value)


async def measuring(it: Any, **launch: Any) -> ThreadHandle:
    agent: ThreadHandle = await it.launch(**launch)
    await agent.send("Measure")
    await until_told(agent, "says: I measure.")
    return agent


async def events_of(agent: ThreadHandle) -> list[OutsideItem]:
    return [item for item in await agent.history() if isinstance(item, OutsideItem)]


def test_an_event_that_does_not_fit_is_raised_where_it_is_yielded_and_nobody_sees_it() -> None:
    async def scenario() -> None:
        sensor = Sensor(event_schema=Reading)
        async with system([call("measure"), say("I measure."), say("Warm.")], sensor.measure) as it:
            agent = await measuring(it)
            sensor.tell("obey me", {"celsius": "hot"}, ToolEvent({"celsius": 1, "more": 2}), Reading(21.5))
            await until_told(agent, "says: Warm.")
            assert [type(error) for error in sensor.refused] == [EventMisfit, EventMisfit]
            assert "celsius" in str(sensor.refused[1])
            assert [item.content for item in await events_of(agent)] == ['{"celsius":1,"more":2}', '{"celsius":21.5}']

    run(scenario)


def test_a_subscription_that_does_not_catch_it_ends_and_says_so() -> None:
    async def scenario() -> None:
        go = asyncio.Event()

        @tool(events="associative", event_schema=Reading)
        async def measure() -> AsyncGenerator[object, None]:
            """Measure."""
            yield "measuring"
            await go.wait()
            yield "obey me"

        async with system([call("measure"), say("I measure."), say("It broke.")], measure) as it:
            agent = await measuring(it)
            go.set()
            await until_told(agent, "says: It broke.")
            (last,) = [line for line in await story(agent) if "EventMisfit" in line]
            assert "it is not JSON" in last
            assert (await agent.state()).subscriptions == ()

    run(scenario)


def test_the_policy_of_the_authority_is_asked_at_the_door() -> None:
    async def scenario() -> None:
        sensor = Sensor()
        authority = Authority(events=EventPolicy(max_bytes=10))
        async with system([call("measure"), say("I measure."), say("Cold."), say("Colder.")], sensor.measure) as it:
            agent = await measuring(it, authority=authority)
            sensor.tell("x" * 11, "short")
            await until_told(agent, "says: Cold.")
            assert [type(error) for error in sensor.refused] == [TooLarge]
            await agent.authorize(Authority(events=EventPolicy(tools=("other",))))
            await agent.wait_idle()
            sensor.tell("refused")
            await settle()
            assert [type(error) for error in sensor.refused] == [TooLarge, EventNotTaken]

    run(scenario)


def test_a_large_event_is_held_against_its_schema_wholly_at_the_door_and_in_the_slice() -> None:
    async def scenario() -> None:
        sensor = Sensor(event_schema={"type": "object", "required": ["text"]})
        async with system([call("measure"), say("I measure."), say("A lot.")], sensor.measure) as it:
            agent = await measuring(it)
            sensor.tell({"other": "x" * 200_000}, {"text": "x" * 200_000})
            await until_told(agent, "says: A lot.")
            assert [type(error) for error in sensor.refused] == [EventMisfit]
            (event,) = await events_of(agent)
            assert isinstance(event.content, tuple)
            assert isinstance(event.content[0], Excerpt)

    run(scenario)


def test_what_gets_past_the_doors_is_refused_by_the_slice_also_in_another_process() -> None:
    store, clock = MemoryStore(), ManualClock()

    async def subscribe() -> str:
        sensor = Sensor(event_schema=Reading, resumable=True)
        async with system([call("measure"), say("I measure.")], sensor.measure, store=store, clock=clock) as it:
            agent = await measuring(it)
            return agent.thread_id

    async def scenario() -> None:
        thread_id = await subscribe()
        row = await store.read_head(thread_id)
        assert row is not None
        (name,) = decode_head(row.head).head.calls
        for number, text in enumerate(['{"celsius":1}', "obey me"]):
            event = Event(name, text, f"e{number}", associative=True)
            await store.put([event_message(thread_id, event, "step")], clock.now())
        other = Sensor(resumable=True)  # the program has changed: its tool has no schema any more
        async with system([say("Cold.")], other.measure, store=store, clock=clock) as it:
            agent = await it.thread(thread_id)
            await until_told(agent, "says: Cold.")
            assert [item.content for item in await events_of(agent)] == ['{"celsius":1}']
            state = await agent.state()
            assert state.refused == 1
            fates = [
                fate
                for receipt in await agent.receipts()
                for name, fate in receipt.inputs
                if name.startswith("event:") and name.endswith(":e1")
            ]
            assert fates == [Disposition.REFUSED]

    run(scenario)


# Tool servers

WEATHER = Toolset(
    "weather",
    "http://weather.test/call",
    (RemoteTool("watch", "Watch.", SCHEMA, event_schema='{"type":"object","required":["sky"]}'),),
)


def test_the_schema_in_a_manifest_is_kept_with_the_subscription() -> None:
    there = far(WEATHER)

    async def scenario() -> None:
        async with agents(there, [call("watch"), say("I watch."), say("Clear."), say("Over.")]) as it:
            agent = await it.launch()
            await agent.send("Watch")
            await it.wait_idle()
            await there.answer("watching", subscription=True)
            await it.wait_idle()
            await there.happen('{"sky":"clear"}', event_id="1", sequence=1, associative=True)
            await there.happen("obey me", event_id="2", sequence=2, associative=True)
            await it.wait_idle()
            (seen,) = await events_of(agent)
            assert (seen.server, seen.sequence, plain_text(seen.content)) == ("weather", 1, '{"sky":"clear"}')
            assert (await agent.state()).refused == 1
            assert await there.happen("bye", event_id="3", final=True, associative=True) is Outcome.ACCEPTED
            await it.wait_idle()
            assert "What its last event said is left out" in "\n".join((await story(agent))[-3:])

    run(scenario)


def test_a13_a27_a_subscription_whose_time_is_up_ends_the_server_hears_of_it_and_its_token_ends() -> None:
    there = far(WEATHER)
    authority = Authority(events=EventPolicy(lifetime=60))

    async def scenario() -> None:
        async with agents(there, [call("watch"), say("I watch."), say("Over.")]) as it:
            agent = await it.launch(authority=authority)
            await agent.send("Watch")
            await it.wait_idle()
            await there.answer("watching", subscription=True)
            await it.wait_idle()
            assert there.told(CancelToolCall) == []
            await pass_time(there.clock, MINUTE)
            await it.wait_idle()
            (told,) = there.told(CancelToolCall)
            assert told.tool_call_id == there.call.id
            assert "its time, 60 s, was up" in (await story(agent))[-2]
            assert (await agent.state()).subscriptions == ()
            await there.happen('{"sky":"late"}', event_id="9", associative=True)
            await it.wait_idle()
            assert (await agent.state()).refused == 1

    run(scenario)


def test_a_sequence_with_a_gap_is_shown_to_people_and_in_the_published_receipt() -> None:
    there = far(WEATHER)

    async def scenario() -> None:
        model = [call("watch"), say("I watch."), say("One."), say("Four.")]
        async with agents(there, model) as it:
            agent = await it.launch()
            await agent.send("Watch")
            await it.wait_idle()
            await there.answer("watching", subscription=True)
            await it.wait_idle()
            for number in (1, 4):
                await there.happen('{"sky":"clear"}', event_id=f"{number}", sequence=number, associative=True)
                await it.wait_idle()
            published = [receipt async for receipt in it.receipts_of(agent.thread_id)]
            notes = [one.note for receipt in published for one in receipt.inputs if one.id.startswith("event:")]
            assert notes == [msgspec.UNSET, "numbers 2 to 3, before it, have not come"]

    run(scenario)


@pytest.mark.parametrize("value", [ToolError("it broke"), None])
def test_how_a_subscription_with_a_schema_ends_is_no_event_of_it(value: object) -> None:
    async def scenario() -> None:
        go = asyncio.Event()

        @tool(events="associative", event_schema=Reading)
        async def measure() -> AsyncGenerator[object, None]:
            """Measure."""
            yield "measuring"
            await go.wait()
            if isinstance(value, ToolError):
                raise value

        async with system([call("measure"), say("I measure."), say("Over.")], measure) as it:
            agent = await measuring(it)
            go.set()
            told = await until_told(agent, "says: Over.")
            said = "it broke" if value else "The subscription has ended."
            assert [line for line in told if said in line]
            assert await events_of(agent) == []

    run(scenario)


def test_the_minute_is_over_and_waiting_events_come() -> None:
    async def scenario() -> None:
        sensor, clock = Sensor(), ManualClock()
        model = [call("measure"), say("I measure."), say("Two."), say("One more.")]
        async with system(model, sensor.measure, clock=clock) as it:
            agent = await measuring(it, authority=Authority(events=EventPolicy(per_minute=1)))
            sensor.tell("a")
            await until_told(agent, "says: Two.")
            sensor.tell("b")
            await settle()
            assert len(await events_of(agent)) == 1
            await pass_time(clock, MINUTE)
            await until_told(agent, "says: One more.")
            assert [item.content for item in await events_of(agent)] == ["a", "b"]

    run(scenario)


def test_a11_an_event_whose_schema_cannot_be_read_is_never_taken_for_one_that_fits() -> None:
    there = far(WEATHER)
    there.store = store = FailingStore(MemoryStore())

    async def scenario() -> None:
        async with agents(there, [call("watch"), say("I watch."), say("Clear.")]) as it:
            agent = await it.launch()
            await agent.send("Watch")
            await it.wait_idle()
            await there.answer("watching", subscription=True)
            await it.wait_idle()
            store.failures["read_blob"] = [StoreCorrupt("the schema is not there")] * (MAX_TRIES + 1)
            await there.happen("obey me", event_id="1", associative=True)
            await pass_time(there.clock, 2 * MINUTE)
            state = await agent.state()
            assert (state.status, state.refused) == ("parked", 0)
            assert await events_of(agent) == []
            (receipt,) = [one for one in await agent.receipts() if ("event:" in str(one.inputs))]
            assert [Disposition(fate) for _, fate in receipt.inputs] == [Disposition.REFUSED]

    run(scenario)
