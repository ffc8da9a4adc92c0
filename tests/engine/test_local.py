"""The resident engine: what wakes a thread, what stops it, and what becomes of what goes wrong."""

import asyncio
import logging
from collections.abc import AsyncGenerator
from typing import Any

import pytest

from hibernaut.engine.images import PLACEHOLDER
from hibernaut.engine.local import DRAIN
from hibernaut.engine.slice import MAX_TRIES, STALLED_AFTER
from hibernaut.errors import StoreBusy, StoreCorrupt, StoreFull
from hibernaut.kernel.commit import SliceCommit
from hibernaut.kernel.limits import ThreadOptions
from hibernaut.messages.events import Usage
from hibernaut.messages.inputs import Command, Delivered
from hibernaut.messages.items import ReasoningItem, UserItem
from hibernaut.messages.parts import Image, Text
from hibernaut.messages.stream import CallDelta, CallEnded, CallStarted, Finish, StreamPiece, TextDelta
from hibernaut.models.errors import (
    AuthenticationFailed,
    ConnectionLost,
    InvalidRequest,
    Overloaded,
    RateLimited,
)
from hibernaut.models.protocol import ModelInfo, ModelRequest
from hibernaut.models.scripted import (
    ScriptedModel,
    ScriptedTurn,
    call,
    call_raw,
    cut,
    drop,
    fail,
    last_user_text,
    pieces,
    refuse,
    say,
    stall,
    think,
    turn,
)
from hibernaut.stores.memory import MemoryStore
from hibernaut.stores.protocol import DEAD_AFTER, Claim, Store
from hibernaut.testing.clock import ManualClock
from hibernaut.testing.faults import FaultyStore
from hibernaut.testing.gates import Gate
from hibernaut.tools.tool import tool
from tests.engine.scenario import (
    MINUTE,
    SECOND,
    START,
    FailingStore,
    head_of,
    killed,
    pass_time,
    run,
    settle,
    story,
    system,
    until_activity,
    until_told,
)

HOUR = 60 * MINUTE
DAY = 24 * HOUR


# The model fails


def test_a10_c52_a_rate_limit_becomes_a_timer_and_the_thread_is_free_meanwhile() -> None:
    clock = ManualClock()
    model = ScriptedModel([RateLimited("slow down", HOUR), say("Here I am.")], clock=clock)

    async def scenario() -> None:
        async with system(model, clock=clock) as it:
            agent = await it.launch()
            await agent.send("Hello")
            await until_activity(agent, "retrying")
            assert model.streaming == 0
            await pass_time(clock, HOUR - MINUTE, MINUTE)
            assert len(model.requests) == 1
            clock.advance(MINUTE)
            await agent.wait_idle()
            assert await story(agent) == [
                "user: Hello",
                "notice: retry rate_limited: slow down; attempt 2 of 6 in 3600 s",
                "says: Here I am.",
            ]

    run(scenario)


@pytest.mark.parametrize("error", [Overloaded("529"), ConnectionLost("gone"), RateLimited("429")], ids=lambda e: e.code)
def test_c52_what_may_pass_is_tried_a_bounded_number_of_times_and_visibly(error: Exception) -> None:
    clock = ManualClock()
    model = ScriptedModel(lambda _: error, clock=clock)

    async def scenario() -> None:
        async with system(model, clock=clock) as it:
            agent = await it.launch()
            await agent.send("Hello")
            await pass_time(clock, 20 * MINUTE, 10 * SECOND)
            state = await agent.wait_idle()
            assert state.status == "parked"
            assert "gave up after 6 attempts" in state.reason
            assert len(model.requests) == 6
            assert [line.split(" in ")[0] for line in await story(agent) if "retry" in line] == [
                f"notice: retry {error.code}: {error}; attempt {number} of 6"  # type: ignore[attr-defined]
                for number in range(2, 7)
            ]

    run(scenario)


@pytest.mark.parametrize(
    "error",
    [InvalidRequest("no such field"), AuthenticationFailed("no key"), refuse("I won't.")],
    ids=["invalid", "key", "refused"],
)
def test_c52_c53_what_will_never_work_parks_the_thread_at_once_and_the_user_can_try_again(
    error: Exception | ScriptedTurn,
) -> None:
    clock = ManualClock()
    model = ScriptedModel([error, say("Better.")], clock=clock)

    async def scenario() -> None:
        async with system(model, clock=clock) as it:
            agent = await it.launch()
            await agent.send("Hello")
            state = await agent.wait_idle()
            assert state.status == "parked"
            assert state.reason
            await pass_time(clock, HOUR, MINUTE)
            assert len(model.requests) == 1
            await agent.send("And now?")
            await until_told(agent, "notice: resumed was parked", "user: And now?", "says: Better.")

    run(scenario)


def test_c53_a_call_that_the_output_limit_cut_off_is_answered_and_not_run() -> None:
    ran: list[str] = []

    @tool
    async def write(text: str) -> str:
        """Write."""
        ran.append(text)
        return "written"

    async def scenario() -> None:
        async with system([cut(call_raw("write", '{"text": "half', ended=False)), say("Shorter, then.")], write) as it:
            agent = await it.launch()
            await agent.send("Write")
            told = await until_told(agent, "says: Shorter, then.")
            assert told[1] == "calls: write {}"
            assert told[2].startswith("error: Not run: the output limit cut this call off")
            assert ran == []

    run(scenario)


def test_c51_a_stream_that_dies_half_way_leaves_nothing_behind() -> None:
    clock, ran = ManualClock(), []

    @tool
    async def execute(code: str) -> str:
        """Execute."""
        ran.append(code)
        return "ok"

    broken = [
        fail(ConnectionLost("reset"), say("a", "b", "c", "d", "e"), call_raw("execute", '{"code":"pri', ended=False)),
        drop(say("a", "b"), call_raw("execute", '{"code":"pri', ended=False)),
    ]

    async def scenario() -> None:
        whole = turn("Now. ", call("execute", code="print(1)"))
        async with system([*broken, whole, say("Done.")], execute, clock=clock) as it:
            agent = await it.launch()
            await agent.send("Run it")
            await pass_time(clock, MINUTE)
            told = await until_told(agent, "says: Done.")
            assert [line for line in told if not line.startswith("notice")] == [
                "user: Run it",
                "says: Now. ",
                'calls: execute {"code":"print(1)"}',
                "result: ok",
                "says: Done.",
            ]
            assert ran == ["print(1)"]

    run(scenario)


def test_a_stream_that_falls_silent_is_broken_off_and_tried_again() -> None:
    clock = ManualClock()
    model = ScriptedModel([stall("I was about"), say("I am back.")], clock=clock)

    async def scenario() -> None:
        async with system(model, clock=clock) as it:
            agent = await it.launch()
            await agent.send("Speak")
            await pass_time(clock, STALLED_AFTER - SECOND)
            assert model.streaming == 1
            await pass_time(clock, 5 * SECOND)
            told = await until_told(agent, "says: I am back.")
            assert told[1].startswith("notice: retry connection_lost: no answer for 120 s")
            assert "says: I was about" not in told
            assert model.streaming == 0

    run(scenario)


def test_a_slow_stream_is_not_taken_for_a_silent_one() -> None:
    clock = ManualClock()
    model = ScriptedModel([turn(*["word "] * 5, delay=STALLED_AFTER - 10 * SECOND)], clock=clock)

    async def scenario() -> None:
        async with system(model, clock=clock) as it:
            agent = await it.launch()
            await agent.send("Speak slowly")
            await pass_time(clock, 10 * MINUTE, 5 * SECOND)
            assert await story(agent) == ["user: Speak slowly", "says: word word word word word "]

    run(scenario)


@pytest.mark.parametrize(
    "error", [ValueError("bad"), TimeoutError("bad"), RecursionError("bad")], ids=["value", "timeout", "depth"]
)
def test_a_model_with_a_defect_hurts_no_other_thread_and_parks_its_own(error: Exception) -> None:
    clock = ManualClock()

    def answer(request: ModelRequest) -> ScriptedTurn:
        if request.thread_id == "bad":
            raise error
        return say("Fine.")

    async def scenario() -> None:
        async with system(answer, clock=clock) as it:
            bad, good = await it.launch(thread_id="bad"), await it.launch(thread_id="good")
            await bad.send("Hello")
            await good.send("Hello")
            await until_told(good, "says: Fine.")
            await pass_time(clock, 10 * MINUTE, 10 * SECOND)
            state = await bad.wait_idle()
            assert state.status == "parked"
            await good.send("And again")
            await until_told(good, "user: And again", "says: Fine.")

    run(scenario)


def test_a_provider_that_cancels_its_own_stream_has_failed_and_holds_no_thread() -> None:
    clock = ManualClock()

    class Provider:
        info = ModelInfo()
        asked = 0

        async def stream(self, request: ModelRequest) -> AsyncGenerator[StreamPiece, None]:
            self.asked += 1
            yield TextDelta("Well, ")
            if self.asked == 1:
                inner = asyncio.create_task(asyncio.sleep(3_600))
                inner.cancel()
                await inner
            yield TextDelta("hello.")
            yield Finish()

    async def scenario() -> None:
        async with system(Provider(), clock=clock) as it:
            agent = await it.launch()
            await agent.send("Hello")
            await until_activity(agent, "retrying")
            clock.advance(MINUTE)
            await until_told(agent, "says: Well, hello.")

    run(scenario)


def test_a22_c17_whatever_characters_a_model_writes_can_be_stored() -> None:
    wild = pieces(
        [
            TextDelta("a\ud800b\x00c"),
            TextDelta("\ud83d"),
            TextDelta("\ude00"),
            CallStarted(0, "no\ud800pe", "id\ud800"),
            CallDelta(0, '{"text": "\ud800"}'),
            CallEnded(0),
            Finish(),
        ]
    )

    async def scenario() -> None:
        async with system([wild, say("Fine.")]) as it:
            agent = await it.launch()
            await agent.send("Speak")
            told = await until_told(agent, "says: Fine.")
            assert told[1] == "says: a\ufffdb\u2400c\U0001f600"
            assert await it.verify(agent.thread_id) > 0

    run(scenario)


def test_a_turn_without_anything_in_it_ends_the_turn_visibly() -> None:
    async def scenario() -> None:
        async with system([turn(), say("Hello.")]) as it:
            agent = await it.launch()
            await agent.send("Hello")
            await agent.wait_idle()
            assert await story(agent) == ["user: Hello", "notice: empty_turn the model answered with nothing"]
            await agent.send("Hello?")
            await until_told(agent, "user: Hello?", "says: Hello.")

    run(scenario)


@pytest.mark.parametrize(
    "arguments",
    [
        '{"path": "a',
        "[]",
        "null",
        '"str"',
        '{"n": NaN}',
        '{"n": %s}' % ("9" * 5_000),
        "[" * 100_000,
        '{"n": 1, "n": 2}',
        '{"n": "one"}',
        "{}",
        '{"n": 1, "more": 2}',
    ],
    ids=["cut", "array", "null", "text", "nan", "huge", "deep", "twice", "type", "missing", "unknown"],
)
def test_a22_c16_bad_arguments_are_answered_with_the_reason_and_nothing_is_run(arguments: str) -> None:
    ran: list[int] = []

    @tool
    async def count(n: int) -> str:
        """Count."""
        ran.append(n)
        return "counted"

    async def scenario() -> None:
        async with system([call_raw("count", arguments), say("I see.")], count) as it:
            agent = await it.launch()
            await agent.send("Count")
            told = await until_told(agent, "says: I see.")
            assert told[2].startswith("error: Not run. ")
            assert ran == []
            assert await it.verify(agent.thread_id) > 0

    run(scenario)


def test_c15_an_unknown_tool_is_answered_with_those_there_are() -> None:
    @tool
    async def real() -> str:
        """Be real."""
        return "real"

    async def scenario() -> None:
        async with system([call("reel"), call("real"), say("Found.")], real) as it:
            agent = await it.launch()
            await agent.send("Find it")
            told = await until_told(agent, "result: real", "says: Found.")
            assert told[2].startswith("error: Not run: there is no tool named reel. There are: real, ")

    run(scenario)


@pytest.mark.parametrize("name", ["receive_event__injected", "anything__injected", "__harness_stop"])
def test_a_model_cannot_speak_for_the_runtime(name: str) -> None:
    async def scenario() -> None:
        async with system([call(name), say("I see.")]) as it:
            agent = await it.launch()
            await agent.send("Try")
            told = await until_told(agent, "says: I see.")
            assert told[2] == f"error: Not run: {name} is a name of the runtime, which nobody can call."

    run(scenario)


def test_c55_the_same_call_that_fails_the_same_way_again_and_again_parks_the_thread() -> None:
    @tool
    async def flaky() -> str:
        """Fail."""
        raise ValueError("as always")

    model = ScriptedModel(lambda _: call("flaky"))

    async def scenario() -> None:
        async with system(model, flaky) as it:
            agent = await it.launch()
            await agent.send("Try")
            state = await agent.wait_idle()
            assert state.status == "parked"
            assert state.reason.startswith("flaky failed the same way 5 times in a row: Error: ValueError: as always")
            assert len(model.requests) == 5
            await agent.resume()
            await agent.wait_idle()
            assert len(model.requests) == 10

    run(scenario)


def test_c55_a_token_budget_parks_the_thread() -> None:
    model = ScriptedModel(lambda _: turn(call("set_title", title="On and on"), usage=Usage(900, 100)))

    async def scenario() -> None:
        async with system(model, options=ThreadOptions(token_budget=5_000)) as it:
            agent = await it.launch()
            await agent.send("Go")
            state = await agent.wait_idle()
            assert state.status == "parked"
            assert state.reason.startswith("the token budget of 5,000 is used up")
            assert len(model.requests) == 5

    run(scenario)


# What a model is shown


def test_a20_whatever_happens_the_model_is_only_ever_asked_what_a_provider_takes() -> None:
    """The scripted model refuses everything else."""
    clock = ManualClock()

    @tool
    async def slow() -> str:
        """Be slow."""
        await asyncio.Event().wait()
        return "never"

    @tool
    async def quick() -> str:
        """Be quick."""
        return ""

    gate = Gate()
    script = [
        turn(think("hm", data=b"sig"), "Let me. ", call("slow"), call("quick"), call("nope")),
        turn(call("quick"), call("sleep", seconds=600)),
        turn(think("hm", data=b"sig"), gate, "never seen"),
        turn(think("only thoughts", data=b"sig")),
        fail(ConnectionLost("reset"), "half"),
        turn(call("slow")),
        say("   "),
        say("The end."),
    ]
    model = ScriptedModel(script, clock=clock)

    async def scenario() -> None:
        async with system(model, slow, quick, clock=clock) as it:
            agent = await it.launch()
            await agent.send("One")
            await settle()
            await agent.send("Two")
            await settle()
            await agent.send("Three")
            await gate.reached()
            await agent.send("Four")
            await settle()
            await agent.send("Five")
            await settle()
            clock.advance(MINUTE)
            await settle()
            await agent.stop("pause")
            await settle()
            await agent.send("Six")
            await settle()
            await agent.send("Seven")
            await until_told(agent, "says: The end.")
            assert model.left == 0
            assert await it.verify(agent.thread_id) > 0

    run(scenario)


def test_a23_reasoning_goes_back_to_its_provider_byte_for_byte() -> None:
    signature = bytes(range(256)) * 100
    store, clock = MemoryStore(), ManualClock()
    model = ScriptedModel([turn(think("Let me see.", data=signature), call("set_title", title="T")), say("Done.")])

    async def scenario() -> None:
        async with system(model, store=store, clock=clock) as it:
            agent = await it.launch(thread_id="t")
            await agent.send("Think")
            await agent.wait_idle()
        later = ScriptedModel("Yes.")
        async with system(later, store=store, clock=clock) as it:
            agent = await it.thread("t")
            await agent.send("Still there?")
            await agent.wait_idle()
        for request in (model.requests[1], later.requests[0]):
            (block,) = [item for item in request.transcript if isinstance(item, ReasoningItem)]
            assert (block.provider, block.data) == ("scripted", signature)

    run(scenario)


@pytest.mark.parametrize("sees", [True, False])
def test_an_image_reaches_a_model_that_sees_and_a_word_one_that_does_not(sees: bool) -> None:
    small, large = b"\x89PNG small", b"\x89PNG" * 40_000
    model = ScriptedModel(["I see.", "I see."], info=ModelInfo(images=sees))

    async def scenario() -> None:
        async with system(model) as it:
            agent = await it.launch()
            await agent.send((Text("Look"), Image("image/png", small), Image("image/png", large)))
            await agent.wait_idle()
            (item,) = [item for item in model.requests[0].transcript if isinstance(item, UserItem)]
            if sees:
                shown = [part.data for part in item.content if isinstance(part, Image)]
                assert shown == [small, large]
            else:
                word = Text(PLACEHOLDER.format(media_type="image/png"))
                assert item.content == (Text("Look"), word, word)
            assert (await head_of(agent)).items == 2
            assert max(len(row.page) for row in await it.store.read_log(agent.thread_id)) < 1_000

    run(scenario)


# What the user does meanwhile


def test_a_user_who_speaks_stops_the_stream_and_what_was_said_stays() -> None:
    gate = Gate()
    model = ScriptedModel([turn("I was about to ", gate, call("nothing")), say("Yes?")])

    async def scenario() -> None:
        async with system(model) as it:
            agent = await it.launch()
            await agent.send("Tell me")
            await gate.reached()
            await agent.send("Wait")
            await agent.wait_idle()
            assert await story(agent) == [
                "user: Tell me",
                "says: I was about to  [interrupted]",
                "user: Wait",
                "says: Yes?",
            ]
            assert model.streaming == 0

    run(scenario)


def test_a_stop_ends_the_stream_and_holds_what_comes_until_the_thread_is_resumed() -> None:
    gate = Gate()
    model = ScriptedModel([turn("I was ", gate, "never"), say("Yes.")])

    async def scenario() -> None:
        async with system(model) as it:
            agent = await it.launch()
            await agent.send("Tell me")
            await gate.reached()
            await agent.stop("enough")
            state = await agent.wait_idle()
            assert (state.status, state.reason) == ("stopped", "enough")
            assert model.streaming == 0
            await agent.resume()
            await agent.send("Go on")
            await until_told(agent, "says: I was  [interrupted]", "notice: stopped enough", "says: Yes.")

    run(scenario)


@pytest.mark.parametrize(
    "orders, status",
    [(["stop", "resume"], "open"), (["stop", "resume", "stop"], "stopped"), (["park", "resume"], "open")],
)
def test_orders_that_arrive_together_are_carried_out_in_their_order(orders: list[Any], status: str) -> None:
    store, clock = MemoryStore(), ManualClock()

    async def scenario() -> None:
        async with system([], store=store, clock=clock, run=False) as client:
            agent = await client.launch(thread_id="t")
            for order in orders:
                await client.command("t", Command(order))
        async with system([], store=store, clock=clock) as it:
            agent = await it.thread("t")
            assert (await agent.wait_idle()).status == status

    run(scenario)


class SlowStore(FaultyStore):
    """A store whose answers about an inbox may be long on their way, and its commits too."""

    def __init__(self, inner: Store) -> None:
        super().__init__(inner)
        self.inbox_read, self.answers = asyncio.Event(), asyncio.Event()
        self.committing, self.commits = asyncio.Event(), asyncio.Event()

    async def read_inbox(self, thread_id: str) -> tuple[Delivered, ...]:
        inbox = await super().read_inbox(thread_id)
        self.inbox_read.set()
        await self.answers.wait()
        return inbox

    async def commit(self, claim: Claim, commit: SliceCommit, *, keep: bool = False) -> None:
        self.committing.set()
        await self.commits.wait()
        await super().commit(claim, commit, keep=keep)


@pytest.mark.parametrize("answered", ["while it is stored", "while the next is said"])
def test_a_user_who_speaks_as_a_turn_ends_interrupts_neither_its_commit_nor_the_answer(answered: str) -> None:
    store, first, second = SlowStore(MemoryStore()), Gate(), Gate()

    async def scenario() -> None:
        async with system([turn("One", first, "."), turn("Two", second, ".")], store=store) as it:
            await it.send("t", "First")
            await first.reached()
            await it.send("t", "Second")
            await store.inbox_read.wait()
            first.open()
            await store.committing.wait()
            if answered == "while it is stored":
                store.answers.set()
                await settle()
            store.commits.set()
            await second.reached()
            store.answers.set()
            await settle()
            second.open()
            agent = await it.thread("t")
            await until_told(agent, "says: Two.")
            assert await story(agent) == ["user: First", "says: One.", "user: Second", "says: Two."]

    run(scenario)


def test_what_several_people_say_at_once_is_answered_at_once() -> None:
    model = ScriptedModel(["To all three."])

    async def scenario() -> None:
        store = MemoryStore()
        async with system(model, store=store, run=False) as client:
            agent = await client.launch(thread_id="t")
            for text in ("one", "two", "three"):
                await agent.send(text)
        async with system(model, store=store) as it:
            agent = await it.thread("t")
            await agent.wait_idle()
            assert await story(agent) == ["user: one", "user: two", "user: three", "says: To all three."]

    run(scenario)


# Time


def test_a37_a_sleep_ends_on_time_whether_it_is_short_or_long() -> None:
    lengths = [0.5, 900, 901, 400 * 86_400]

    def answer(request: ModelRequest) -> ScriptedTurn:
        return say("Awake.") if len(request.transcript) > 1 else call("sleep", seconds=float(request.thread_id))

    async def scenario() -> None:
        clock = ManualClock()
        async with system(answer, clock=clock) as it:
            agents = [await it.launch(thread_id=str(length)) for length in lengths]
            for agent in agents:
                await agent.send("Sleep")
                await until_activity(agent, "resting")
            for agent in agents:
                (resting,) = (await agent.state()).calls
                assert resting.due == START + float(agent.thread_id) * SECOND
                while resting.due - clock.now() > 1:
                    clock.advance((resting.due - clock.now()) // 2)
                    await settle()
                assert (await story(agent))[-1].startswith("calls: sleep")
                clock.advance(1)
                await until_told(agent, "result: Slept until the time set.", "says: Awake.")

    run(scenario)


def test_a16_a37_a_sleep_goes_on_over_restarts_and_ends_late_if_nobody_ran() -> None:
    store, clock = MemoryStore(), ManualClock()

    def answer(request: ModelRequest) -> ScriptedTurn:
        return say("Awake.") if len(request.transcript) > 1 else call("sleep", seconds=DAY / SECOND)

    async def scenario() -> None:
        async with system(answer, store=store, clock=clock) as it:
            agent = await it.launch(thread_id="t")
            await agent.send("Sleep")
            await until_activity(agent, "resting")
        for _ in range(3):
            clock.advance(6 * HOUR)
            async with system(answer, store=store, clock=clock) as it:
                await it.wait_idle()
                assert (await (await it.thread("t")).state()).activity == "resting"
        clock.advance(9 * HOUR)
        async with system(answer, store=store, clock=clock) as it:
            agent = await it.thread("t")
            await agent.wait_idle()
            told = ["result: Slept until the time set. It was noticed 3 h late.", "says: Awake."]
            assert (await story(agent))[-2:] == told

    run(scenario)


def test_c29_a_timer_fires_once_however_the_clock_jumps() -> None:
    clock = ManualClock()
    model = ScriptedModel([call("sleep", seconds=60), say("Awake.")], clock=clock)

    async def scenario() -> None:
        async with system(model, clock=clock) as it:
            agent = await it.launch()
            await agent.send("Sleep")
            await until_activity(agent, "resting")
            clock.advance(8 * HOUR)
            await until_told(agent, "says: Awake.")
            clock.advance(8 * HOUR)
            await it.wait_idle()
            assert len([line for line in await story(agent) if line.startswith("result")]) == 1

    run(scenario)


def test_a16_what_waits_at_a_restart_is_all_still_there() -> None:
    """A deferred event, queued texts and a sleeping thread."""
    store, clock, gate = MemoryStore(), ManualClock(), asyncio.Event()

    @tool(events="associative")
    async def watch() -> AsyncGenerator[str, None]:
        """Watch."""
        yield "subscribed"
        await gate.wait()
        yield "news"
        await asyncio.Event().wait()

    @tool(idempotent=True)
    async def work() -> str:
        """Work."""
        await asyncio.Event().wait()
        return "never"

    model = [call("watch"), call("work")]

    async def scenario() -> None:
        async with killed(model, watch, work, store=store, clock=clock) as it:
            agent = await it.launch(thread_id="t")
            await agent.send("Watch, then work")
            await until_told(agent, "calls: work {}")
            gate.set()
            await settle()
        async with system([], store=store, clock=clock, run=False) as client:
            await client.send("t", "one")
            await client.send("t", "two")
        clock.advance(DEAD_AFTER)
        async with system(["Caught up.", "And more.", "And more."], watch, work, store=store, clock=clock) as it:
            agent = await it.thread("t")
            await until_told(agent, "user: one", "user: two", "says: Caught up.")
            assert "event: watch news" in await story(agent)

    run(scenario)


# The store fails, the process ends


@pytest.mark.parametrize(
    "operation, times",
    [("claim", 3), ("read_log", 3), ("commit", 3), ("start_effects", 3), ("take", 1), ("release", 1), ("next_due", 1)],
)
def test_a11_a12_a_store_that_fails_for_a_while_costs_time_and_nothing_else(operation: str, times: int) -> None:
    store, clock, ran = FailingStore(MemoryStore()), ManualClock(), []

    @tool(inline=True)
    async def work() -> str:
        """Work."""
        ran.append(1)
        return "done"

    def answer(request: ModelRequest) -> ScriptedTurn:
        last = request.transcript[-1]
        return call("work") if isinstance(last, UserItem) and last.content == "Work" else say("Done.")

    async def scenario() -> None:
        async with system(answer, work, store=store, clock=clock) as it:
            agent = await it.launch()
            await agent.send("Hello")
            await agent.wait_idle()
            await pass_time(clock, MINUTE)
            store.failures = {"commit": [StoreFull("no room")], operation: [StoreFull("no room")] * times}
            await agent.send("Work")
            await pass_time(clock, 2 * MINUTE)
            assert (await story(agent))[2:] == ["user: Work", "calls: work {}", "result: done", "says: Done."]
            assert len(ran) == 1
            assert store.failures == {}

    run(scenario)


def test_a11_a_thread_that_cannot_be_read_is_parked_and_hurts_nobody_else(caplog: pytest.LogCaptureFixture) -> None:
    """What is missing is never taken for empty."""
    store, clock = FailingStore(MemoryStore()), ManualClock()
    model = ScriptedModel(lambda request: say(f"Hello {len(request.transcript)}."), clock=clock)

    async def scenario() -> None:
        async with system(model, store=store, clock=clock) as it:
            bad, good = await it.launch(thread_id="bad"), await it.launch(thread_id="good")
            for agent in (bad, good):
                await agent.send("Hello")
                await agent.wait_idle()
            await pass_time(clock, MINUTE)
            store.failures["read_log"] = [StoreCorrupt("the page cannot be read")] * MAX_TRIES
            await bad.send("Hello")
            await pass_time(clock, MINUTE)
            state = await bad.state()
            assert state.status == "parked"
            assert state.reason.startswith("5 slices in a row came to nothing")
            assert "the page cannot be read" in caplog.text
            await good.send("Hello")
            await until_told(good, "says: Hello 3.")
            await bad.send("Again")
            await until_told(bad, "user: Hello", "user: Again", "says: Hello 4.")

    with caplog.at_level(logging.ERROR):
        run(scenario)


def test_c30_an_event_whose_slice_fails_after_the_model_has_answered_is_handled_once() -> None:
    store, clock = FailingStore(MemoryStore()), ManualClock()
    model = ScriptedModel(lambda request: say(f"I read {last_user_text(request)}."), clock=clock)

    async def scenario() -> None:
        async with system(model, store=store, clock=clock) as it:
            agent = await it.launch()
            store.failures["commit"] = [StoreFull("no room")] * 3
            await agent.send("the news", message_id="m1")
            await pass_time(clock, MINUTE)
            await agent.send("the news", message_id="m1")
            await it.wait_idle()
            assert await story(agent) == ["user: the news", "says: I read the news."]
            assert len(model.requests) == 4

    run(scenario)


def test_c13_a_thread_whose_model_owes_an_answer_is_run_at_boot_without_any_input() -> None:
    store, clock = MemoryStore(), ManualClock()
    options = ThreadOptions(max_rounds=1)

    async def scenario() -> None:
        gate = Gate()
        async with killed([call("nope"), turn(gate, "x")], store=store, clock=clock, options=options) as it:
            agent = await it.launch(thread_id="t")
            await agent.send("Hello")
            await gate.reached()
            assert (await story(agent))[-1].startswith("error: Not run: there is no tool named nope")
            assert await store.read_inbox("t") == ()
        clock.advance(DEAD_AFTER)
        async with system([say("Here is your answer.")], store=store, clock=clock) as it:
            await until_told(await it.thread("t"), "says: Here is your answer.")

    run(scenario)


def test_c67_what_was_accepted_is_there_after_the_process_died_in_the_next_instant() -> None:
    store, clock = MemoryStore(), ManualClock()

    async def scenario() -> None:
        async with killed("never", store=store, clock=clock) as it:
            agent = await it.launch(thread_id="t")
            await agent.send("Hello", message_id="m1")
        clock.advance(DEAD_AFTER)
        async with system("Hello.", store=store, clock=clock) as it:
            agent = await it.thread("t")
            await agent.send("Hello", message_id="m1")
            await agent.wait_idle()
            assert await story(agent) == ["user: Hello", "says: Hello."]

    run(scenario)


def test_a_graceful_stop_lets_a_slice_end_and_begins_no_new_one() -> None:
    store, clock, gate = MemoryStore(), ManualClock(), Gate()
    model = ScriptedModel([turn("I will ", gate, "finish.")], clock=clock)

    async def scenario() -> None:
        it = system(model, store=store, clock=clock, max_slices=1)
        async with it:
            first, second = await it.launch(thread_id="first"), await it.launch(thread_id="second")
            await first.send("Hello")
            await gate.reached()
            await second.send("Hello")
            asyncio.get_running_loop().call_soon(gate.open)
        assert await story(first) == ["user: Hello", "says: I will finish."]
        assert await story(second) == []
        assert len(await store.read_inbox("second")) == 1

    run(scenario)


def test_a_graceful_stop_does_not_wait_for_ever_and_the_slice_is_run_again() -> None:
    store, clock, gate = MemoryStore(), ManualClock(), Gate()

    async def scenario() -> None:
        async with system(turn("I will ", gate, "never"), store=store, clock=clock) as it:
            agent = await it.launch(thread_id="t")
            await agent.send("Hello")
            await gate.reached()
            drain = asyncio.create_task(pass_time(clock, 2 * DRAIN))
        await drain
        assert await story(agent) == []
        async with system(say("Hello."), store=store, clock=clock) as it:
            await until_told(await it.thread("t"), "user: Hello", "says: Hello.")

    run(scenario)


def test_a_graceful_stop_answers_running_tools_and_leaves_idempotent_ones_to_the_next_start() -> None:
    store, clock, begun = MemoryStore(), ManualClock(), []

    @tool
    async def pay() -> str:
        """Pay."""
        begun.append("pay")
        await asyncio.Event().wait()
        return "never"

    @tool(idempotent=True)
    async def look() -> str:
        """Look."""
        begun.append("look")
        if begun.count("look") == 1:
            await asyncio.Event().wait()
        return "seen"

    options = ThreadOptions(parallel_calls=2)

    async def scenario() -> None:
        script = [turn(call("pay"), call("look"))]
        async with system(script, pay, look, store=store, clock=clock, options=options) as it:
            agent = await it.launch(thread_id="t")
            await agent.send("Pay and look")
            await settle()
        assert begun == ["pay", "look"]
        async with system([say("I see.")], pay, look, store=store, clock=clock, options=options) as it:
            agent = await it.thread("t")
            told = await until_told(agent, "result: seen", "says: I see.")
            assert told[3].startswith("error: The process that ran pay was shut down before it was done.")
            assert begun == ["pay", "look", "look"]
            await it.wait_idle()
            assert await store.read_effects() == []

    run(scenario)


def test_a_graceful_stop_keeps_a_result_that_was_on_its_way() -> None:
    """The tool is done, but the store did not take its result yet."""
    store, clock, done = FailingStore(MemoryStore()), ManualClock(), asyncio.Event()

    @tool
    async def pay() -> str:
        """Pay."""
        store.failures["put"] = StoreBusy("busy")
        done.set()
        return "paid"

    async def scenario() -> None:
        async with system([call("pay")], pay, store=store, clock=clock) as it:
            agent = await it.launch(thread_id="t")
            await agent.send("Pay")
            await done.wait()
            await settle()
        async with system([say("It is paid.")], pay, store=store, clock=clock) as it:
            await until_told(await it.thread("t"), "result: paid", "says: It is paid.")

    run(scenario)


def test_a_graceful_stop_on_a_store_that_fails_leaves_the_rest_to_the_next_start() -> None:
    store, clock, begun = FailingStore(MemoryStore()), ManualClock(), asyncio.Event()

    @tool
    async def pay() -> str:
        """Pay."""
        begun.set()
        await asyncio.Event().wait()
        return "never"

    async def scenario() -> None:
        async with system([call("pay")], pay, store=store, clock=clock) as it:
            agent = await it.launch(thread_id="t")
            await agent.send("Pay")
            await begun.wait()
            store.failures = {"put": StoreBusy("busy"), "leave": StoreBusy("busy")}
        clock.advance(DEAD_AFTER)
        async with system([say("Who knows.")], pay, store=store, clock=clock) as it:
            told = await until_told(await it.thread("t"), "says: Who knows.")
            assert told[2].startswith("error: The process that ran pay died before it answered.")

    run(scenario)
