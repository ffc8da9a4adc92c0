"""The resident engine: what wakes a thread, what stops it, and what becomes of what goes wrong."""

import asyncio
from collections.abc import AsyncGenerator

import pytest

from hibernaut.engine.images import PLACEHOLDER
from hibernaut.engine.streams import STALLED_AFTER
from hibernaut.errors import ConfigurationError
from hibernaut.kernel.limits import ThreadOptions
from hibernaut.messages.events import Usage
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
    pieces,
    refuse,
    say,
    stall,
    think,
    turn,
)
from hibernaut.stores.memory import MemoryStore
from hibernaut.testing.clock import ManualClock
from hibernaut.testing.gates import Gate
from hibernaut.tools.tool import tool
from tests.engine.scenario import (
    MINUTE,
    SECOND,
    head_of,
    pass_time,
    run,
    settle,
    story,
    system,
    until_activity,
    until_told,
)

HOUR = 60 * MINUTE


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


def test_a_model_that_lacks_its_key_parks_its_thread_with_what_to_do_and_is_called_no_defect() -> None:
    def answer(request: ModelRequest) -> ScriptedTurn:
        raise ConfigurationError("there is no key; set SOME_KEY")

    async def scenario() -> None:
        async with system(answer) as it:
            agent = await it.launch()
            await agent.send("Hello")
            state = await agent.wait_idle()
            assert state.status == "parked"
            assert "there is no key; set SOME_KEY" in state.reason
            assert "defect" not in state.reason

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
