"""What a new process does with what the last one left: nothing that was acknowledged is lost, nothing is done twice."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import apsw
import pytest

from hibernaut import Deferred, ToolContext, ToolEvent
from hibernaut.errors import StoreBusy, StoreError, StoreFormatTooNew
from hibernaut.rap import ToolServer
from hibernaut.rap.kit.state import KEPT
from tests.rap.kit.runtime import HeardClock, Runtime


class Program:
    """A program that is started again and again on one state file."""

    def __init__(self, folder: Path) -> None:
        self.state = folder / "state.db"
        self.clock = HeardClock()
        self.runs: list[str] = []
        self.begun = asyncio.Event()
        self.go = asyncio.Event()
        self.token = ""

    def start(self, *, without: str = "") -> ToolServer:
        """Make its server."""

        async def once() -> str:
            """Do what must not be done twice."""
            return await self._work("once")

        async def often() -> str:
            """Do what may be done twice."""
            return await self._work("often")

        async def deferred(context: ToolContext) -> Deferred:
            """Leave it to somebody else."""
            one = context.defer()
            self.token = one.token
            return one

        async def watch() -> AsyncIterator[str]:
            """Watch."""
            yield "watching"
            await self._work("watch")
            yield "seen"

        async def follow(context: ToolContext) -> AsyncIterator[object]:
            """Follow."""
            yield f"following after {context.last_event_id!r}, {context.last_sequence}"
            number = int(context.last_event_id or 0)
            while True:
                number += 1
                yield ToolEvent(f"line {number}", str(number))
                if number % 3 == 0:
                    await self._work("follow")

        server = ToolServer("desk", state=self.state, clock=self.clock)
        server.tool(once)
        server.tool(idempotent=True)(often)
        server.tool(deferred)
        server.tool(watch)
        server.tool(resumable=True)(follow)
        return ToolServer(
            "desk", state=self.state, clock=self.clock, tools=[tool for tool in server.tools if tool.name != without]
        )

    async def _work(self, name: str) -> str:
        self.runs.append(name)
        self.begun.set()
        await self.go.wait()
        return f"{name} was done, run {self.runs.count(name)}"


@pytest.fixture
def program(tmp_path: Path) -> Program:
    return Program(tmp_path)


async def test_what_a_dead_process_left_is_answered_repeated_or_gone_on_with(
    runtime: Runtime, program: Program
) -> None:
    async with runtime.calling(program.start()), asyncio.timeout(10):
        for name in ("once", "often", "watch"):
            await runtime.call(name, name=name)
        await runtime.gets(1)
        while len(program.runs) < 3:
            await runtime.alive()
    assert [each["text"] for each in runtime.taken] == ["watching"]
    program.go.set()
    async with runtime.calling(program.start()):
        await runtime.gets(4)
        said = {each.get("id") or each["tool_call_id"]: each for each in runtime.taken[1:]}
        assert said["once"]["is_error"] is True
        assert said["once"]["text"] == (
            "Error: The server of once was stopped before it answered. It is unknown whether it happened; "
            "check before repeating it."
        )
        assert said["often"]["text"] == "often was done, run 2"
        assert (said["watch"]["type"], said["watch"]["final"], said["watch"]["sequence"]) == (
            "subscription_event",
            True,
            1,
        )
        assert "was stopped" in said["watch"]["text"]
        assert program.runs.count("once") == 1


async def test_a_resumable_subscription_goes_on_after_its_last_event(runtime: Runtime, program: Program) -> None:
    async with runtime.calling(program.start()):
        await runtime.call("follow")
        await runtime.gets(4)
    async with runtime.calling(program.start()):
        await runtime.gets(7)
        assert await runtime.alive()
        await runtime.cancel()
    assert runtime.taken[0]["text"] == "following after '', 0"
    events = [(each["event_id"], each["sequence"], each["text"]) for each in runtime.taken[1:]]
    assert events == [(str(number), number, f"line {number}") for number in range(1, 7)]
    async with runtime.calling(program.start()):
        assert not await runtime.alive()


async def test_a_deferred_call_is_answered_after_a_restart(runtime: Runtime, program: Program) -> None:
    async with runtime.calling(program.start()):
        await runtime.call("deferred")
        while not program.token:
            await runtime.alive()
    server = program.start()
    async with runtime.calling(server):
        assert await runtime.alive()
        await server.deliver(program.token, "granted")
        assert (await runtime.gets())[0]["text"] == "granted"


async def test_callbacks_that_were_owed_are_brought_and_results_are_remembered(
    runtime: Runtime, program: Program
) -> None:
    program.go.set()
    async with runtime.calling(program.start()):
        runtime.answers = [503]
        await runtime.call("once")
        await program.clock.nap()
    async with runtime.calling(program.start()):
        assert (await runtime.gets())[0]["text"] == "once was done, run 1"
        while await runtime.alive():
            pass
    async with runtime.calling(program.start()):
        await runtime.call("once")
        assert (await runtime.gets(2))[1] == runtime.taken[0]
        while await runtime.alive():
            pass
    program.clock.advance(KEPT + 1)
    async with runtime.calling(program.start()):
        while not (forgotten := program.runs.count("once") > 1):
            await runtime.call("once")
        assert forgotten


async def test_a_call_of_a_tool_that_is_gone_says_so(runtime: Runtime, program: Program) -> None:
    async with runtime.calling(program.start()):
        await runtime.call("often")
        await program.begun.wait()
    async with runtime.calling(program.start(without="often")):
        assert (await runtime.gets())[0]["text"] == "Error: there is no tool often any more."


async def test_a_state_file_belongs_to_one_server_and_to_this_program(program: Program, tmp_path: Path) -> None:
    async with program.start().lifespan():
        with pytest.raises(StoreBusy, match="held by another process"):
            async with program.start().lifespan():
                pass
    newer = apsw.Connection(str(program.state))
    newer.pragma("user_version", 2)
    newer.close()
    with pytest.raises(StoreFormatTooNew):
        async with program.start().lifespan():
            pass
    foreign = apsw.Connection(str(tmp_path / "foreign.db"))
    foreign.execute("CREATE TABLE cats (name)")
    foreign.close()
    with pytest.raises(StoreError, match="another program"):
        async with ToolServer("desk", tools=program.start().tools, state=tmp_path / "foreign.db").lifespan():
            pass
