"""A function on a server: called, acknowledged, answered by a callback, whatever becomes of it."""

import asyncio
import threading
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, Literal

import pytest

from hibernaut import Deferred, Image, Text, ToolContext, ToolError
from hibernaut.errors import AlreadyAnswered, ConfigurationError, StoreFull, TokenRefused
from hibernaut.rap import ToolServer
from hibernaut.rap.exchange import Reply
from hibernaut.rap.kit.calls import STATE_PAUSE
from hibernaut.rap.kit.state import State
from hibernaut.rap.listening import Receive, Scope, Send, listening
from hibernaut.testing.clock import ManualClock
from tests.rap.kit.runtime import HeardClock, Runtime


def a_server() -> ToolServer:  # noqa: C901  # it is a list
    server = ToolServer("desk", description="Odds and ends.")

    @server.tool
    async def greet(name: str, tone: Literal["warm", "cold"] = "warm") -> str:
        """Greet somebody."""
        return f"{tone} {name}"

    @server.tool
    def sync() -> str:
        """Block."""
        return f"in a thread of its own: {threading.current_thread() is not threading.main_thread()}"

    @server.tool(inline=True)
    def inline() -> None:
        """Be quick."""

    @server.tool
    async def fail(how: str) -> str:
        """Fail."""
        if how == "words":
            raise ToolError("no such build")
        if how == "exit":
            raise SystemExit(3)
        if how == "cancelled":
            raise asyncio.CancelledError
        raise ValueError("half of it is missing")

    @server.tool
    async def picture() -> list[Text | Image]:
        """Draw."""
        return [Text("a dot"), Image("image/png", b"dot")]

    @server.tool
    async def large(size: int) -> str:
        """Write much."""
        return "x" * size

    @server.tool
    async def echo(text: str) -> str:
        """Say it back."""
        return text

    @server.tool
    async def whose(context: ToolContext) -> str:
        """Say whose call it is."""
        return f"{context.call_id} {context.thread_id} {context.tool} {context.user}"

    @server.tool(timeout=0.02)
    async def slow() -> None:
        """Take too long."""
        await asyncio.Event().wait()

    return server


WRONG: list[tuple[str, dict[str, object], str]] = [
    ("fail", {"how": "words"}, "Error: no such build"),
    ("fail", {"how": "error"}, "Error: ValueError: half of it is missing"),
    ("fail", {"how": "exit"}, "Error: SystemExit: 3"),
    ("fail", {"how": "cancelled"}, "Error: CancelledError"),
    ("slow", {}, "Error: slow did not answer within 0.02 s."),
    ("gret", {"name": "Ann"}, "Error: Not run: there is no tool named gret. There are: greet,"),
    ("greet", {}, "Error: Not run. The arguments do not fit: Object missing required field `name`"),
    ("greet", {"name": 7}, "Error: Not run. The arguments do not fit: Expected `str`, got `int`"),
    ("greet", {"name": "Ann", "tone": "hot"}, "Error: Not run. The arguments do not fit: Invalid enum value 'hot'"),
    ("greet", {"name": "Ann", "age": 7}, "Error: Not run. The arguments do not fit: Object contains unknown field"),
    ("large", {"size": 9_000_000}, "Error: the call was run, but its result was not sent: it has 9,000,0"),
]


async def test_a_call_is_acknowledged_and_answered_by_a_callback(runtime: Runtime) -> None:
    async with runtime.calling(a_server()):
        reply = await runtime.call("greet", {"name": "Ann"})
        assert (reply.status, reply.body) == (200, b"{}")
        assert await runtime.gets() == [
            {"type": "tool_result", "group_id": "t1", "id": "c1", "call_id": "toolu_c1", "text": "warm Ann"}
        ]
        for name in ("sync", "inline", "whose"):
            await runtime.call(name, name=name, user_id="ann")
        answers = {each["id"]: each["text"] for each in (await runtime.gets(4))[1:]}
    assert answers == {"sync": "in a thread of its own: True", "inline": "Done.", "whose": "whose t1 whose ann"}
    assert runtime.tried[0][0] == "c1"


async def test_what_goes_wrong_is_an_error_result_and_never_a_refusal(runtime: Runtime) -> None:
    async with runtime.calling(a_server()):
        for number, (operation, arguments, _) in enumerate(WRONG):
            assert (await runtime.call(operation, arguments, name=str(number))).status == 200
        answers = {each["id"]: each for each in await runtime.gets(len(WRONG))}
    for number, (_, _, text) in enumerate(WRONG):
        answer = answers[str(number)]
        assert (answer["is_error"], answer["text"][: len(text)]) == (True, text)


async def test_a_function_that_does_not_heed_its_time_out_is_answered_all_the_same(runtime: Runtime) -> None:
    server, released = ToolServer("desk"), asyncio.Event()

    @server.tool(timeout=0.02)
    async def deaf() -> None:
        """Take too long, and go on."""
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            await released.wait()

    async with runtime.calling(server):
        await runtime.call("deaf")
        (answer,) = await runtime.gets()
        released.set()
    assert answer["text"] == "Error: deaf did not answer within 0.02 s."


async def test_a_call_that_breaks_off_by_a_defect_is_answered(
    runtime: Runtime, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def broken(*_: object) -> None:
        raise LookupError("a defect")

    monkeypatch.setattr("hibernaut.tools.running.Functions.run", broken)
    async with runtime.calling(a_server()):
        await runtime.call("greet", {"name": "Ann"})
        (answer,) = await runtime.gets()
        assert not await runtime.alive()
    assert answer["is_error"]
    assert answer["text"].startswith("Error: greet broke off inside the server. It is unknown whether it happened")


async def test_a_result_is_sent_whole_and_as_it_was(runtime: Runtime) -> None:
    strange = "a\x00b\u2400c \u241b"
    async with runtime.calling(a_server()):
        await runtime.call("picture", name="picture")
        await runtime.call("large", {"size": 300_000}, name="large")
        await runtime.call("echo", {"text": strange}, name="echo")
        await runtime.call("echo", {"text": "half \ud83d"}, name="half")
        answers = {each["id"]: each for each in await runtime.gets(4)}
    assert answers["picture"]["content"] == [
        {"type": "text", "text": "a dot"},
        {"type": "image", "data": "ZG90", "mediaType": "image/png"},
    ]
    assert answers["large"]["text"] == "x" * 300_000
    assert answers["echo"]["text"] == strange
    assert answers["half"]["text"] == "half \ufffd"


async def test_nothing_is_done_before_the_call_is_acknowledged(runtime: Runtime) -> None:
    server, order = ToolServer("desk"), []

    @server.tool
    async def work() -> None:
        """Work."""
        order.append("begun")

    async def watched(scope: Scope, receive: Receive, send: Send) -> None:
        async def sending(message: MutableMapping[str, Any]) -> None:
            order.append(message["type"])
            await send(message)

        await server(scope, receive, sending)

    async with server.lifespan(), listening(watched) as address:
        runtime.server = address.url
        order.clear()
        await runtime.call("work")
        await runtime.gets()
        assert order == ["http.response.start", "http.response.body", "begun"]


async def test_a_call_that_is_cancelled_is_heard_of_no_more(runtime: Runtime) -> None:
    server, begun, cancelled = ToolServer("desk"), asyncio.Event(), asyncio.Event()

    @server.tool
    async def work(*, stubborn: bool) -> str:
        """Work on."""
        begun.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.set()
            if not stubborn:
                raise
        return "all the same"

    @server.tool
    async def done() -> None:
        """Be done."""

    ends: list[Callable[[], Awaitable[Reply]]] = [runtime.cancel, runtime.close, runtime.cancel]
    async with runtime.calling(server), asyncio.timeout(10):
        for number, end in enumerate(ends):
            begun.clear()
            cancelled.clear()
            await runtime.call("work", {"stubborn": number == 2}, key=f"k{number}")
            await begun.wait()
            assert await runtime.alive()
            assert (await end()).status == 200
            await cancelled.wait()
            assert not await runtime.alive()
            assert (
                await runtime.call("work", {"stubborn": False}, key=f"k{number}")
            ).status == 200  # it stays cancelled
        assert (await runtime.cancel("nobody", "nowhere")).status == 200
        assert (await runtime.close("nowhere")).status == 200
        await runtime.call("done", name="c2")
        assert [each["id"] for each in await runtime.gets()] == ["c2"]


async def test_a_repeat_is_one_call_and_answers_to_the_newer_address(runtime: Runtime) -> None:
    server, go, runs = ToolServer("desk"), asyncio.Event(), []

    @server.tool
    async def work() -> str:
        """Work."""
        runs.append("work")
        await go.wait()
        return f"done {len(runs)}"

    async with runtime.calling(server):
        moved = f"{runtime.url}/moved"
        for key in ("k1", None):
            runtime.taken.clear()
            runtime.tried.clear()
            runs.clear()
            go.clear()
            name = f"c-{key}"
            assert (await runtime.call("work", name=name, key=key)).status == 200
            assert (await runtime.call("work", name=name, key=key, callback_url=moved)).status == 200
            go.set()
            await runtime.gets()
            assert runtime.tried == [("moved", {**runtime.taken[0], "id": name, "text": "done 1"})]
            assert (await runtime.call("work", name=name, key=key)).status == 200  # it is over: its result comes again
            first, again = await runtime.gets(2)
            assert (first, runtime.tried[1][0], runs) == (again, name, ["work"])
        other = await runtime.call("work", name="another", key="k1")
        assert (other.status, b"each has its own" in other.body or b"used for another call" in other.body) == (
            400,
            True,
        )


async def test_a_deferred_call_stays_open_until_its_result_is_delivered(runtime: Runtime) -> None:
    server, tokens = ToolServer("desk"), list[str]()

    @server.tool
    async def ask_the_board(context: ToolContext) -> Deferred:
        """Ask the board."""
        deferred = context.defer()
        tokens.append(deferred.token)
        return deferred

    @server.tool(deadline=60)
    async def in_time(context: ToolContext) -> Deferred:
        """Ask the board, for a minute."""
        return context.defer()

    clock = ManualClock()
    server = ToolServer("desk", tools=server.tools, clock=clock)
    async with runtime.calling(server):
        await runtime.call("ask_the_board")
        await runtime.call("in_time", name="c2")
        while not tokens:
            await runtime.alive()
        await server.deliver(tokens[0], {"granted": True})
        assert [each["text"] for each in await runtime.gets()] == ['{"granted":true}']
        assert not await runtime.alive()
        with pytest.raises(AlreadyAnswered):
            await server.deliver(tokens[0], "once more")
        with pytest.raises(TokenRefused):
            await server.deliver("made up", "anything")
        assert await runtime.alive("c2")
        clock.advance(60_000)
        assert (await runtime.gets(2))[1]["text"] == "Error: in_time did not answer before its deadline."
    with pytest.raises(ConfigurationError, match="does not run"):
        await server.deliver(tokens[0], "too late")


async def test_a_call_that_is_cancelled_before_it_begins_does_not_begin(runtime: Runtime) -> None:
    server, runs = ToolServer("desk"), list[str]()

    @server.tool(idempotent=True)
    async def work() -> None:
        """Work."""
        runs.append("work")

    async def holding(scope: Scope, receive: Receive, send: Send) -> None:
        async def sending(message: MutableMapping[str, Any]) -> None:
            if scope.get("path") == "/rap/call" and message["type"] == "http.response.start":
                assert (await runtime.cancel()).status == 200
            await send(message)

        await server(scope, receive, sending)

    async with server.lifespan(), listening(holding) as address:
        runtime.server = address.url
        assert (await runtime.call("work")).status == 200
        assert not await runtime.alive()
    assert (runs, runtime.tried) == ([], [])


async def test_a_full_disk_delays_a_result_and_loses_none(runtime: Runtime, monkeypatch: pytest.MonkeyPatch) -> None:
    failures, clock = [1, 1], HeardClock()
    server = ToolServer("desk", clock=clock)
    owe = State.owe

    @server.tool
    async def work() -> str:
        """Work."""
        return "done"

    async def failing(*arguments: Any, **options: Any) -> str | None:
        if failures:
            failures.pop()
            raise StoreFull("there is no room")
        return await owe(*arguments, **options)

    monkeypatch.setattr(State, "owe", failing)
    async with runtime.calling(server):
        await runtime.call("work")
        for _ in range(2):
            assert await clock.nap() == STATE_PAUSE
            clock.advance(STATE_PAUSE)
        assert [each["text"] for each in await runtime.gets()] == ["done"]
