"""Callbacks reach a runtime that is away, slow or moved, in their order; what it does not want is not brought again."""

import asyncio
import logging
from collections.abc import AsyncIterator
from typing import Any

import pytest

from hibernaut.rap import ToolServer
from hibernaut.rap.kit.delivery import MOST_WAITING
from tests.rap.kit.runtime import HeardClock, Runtime


def greeting(clock: HeardClock, **options: Any) -> ToolServer:
    server = ToolServer("desk", clock=clock, **options)

    @server.tool
    async def greet() -> str:
        """Greet."""
        return "hello"

    return server


async def test_a_runtime_that_asks_for_patience_is_given_it(runtime: Runtime) -> None:
    clock = HeardClock()
    async with runtime.calling(greeting(clock)):
        runtime.answers = [(503, "7"), (429, "20"), 200]
        await runtime.call("greet")
        for tries, pause in ((1, 7_000), (2, 20_000)):
            assert await clock.nap() == pause
            clock.advance(pause - 1)
            assert await runtime.alive()
            assert len(runtime.tried) == tries
            clock.advance(1)
        assert [each["text"] for each in await runtime.gets()] == ["hello"]
        assert len(runtime.tried) == 3


async def test_a_runtime_in_trouble_is_asked_again_ever_more_seldom_and_given_up_in_the_end(
    runtime: Runtime, caplog: pytest.LogCaptureFixture
) -> None:
    clock = HeardClock()
    async with runtime.calling(greeting(clock, deliver_within=3_600)):
        runtime.answers = [500] * 1_000
        await runtime.call("greet")
        naps = []
        for _ in range(9):
            naps.append(await clock.nap())
            clock.advance(naps[-1])
        bounds = [(250 * 2**n, 500 * 2**n) for n in range(6)]
        assert all(least <= nap <= most for (least, most), nap in zip(bounds, naps, strict=False))
        await clock.nap()
        assert await runtime.alive()
        clock.advance(3_600_000)
        while await runtime.alive():
            pass
        assert "is given up: it was answered with status 500" in caplog.text


async def test_what_a_runtime_refuses_is_not_brought_again(runtime: Runtime, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    async with runtime.calling(greeting(HeardClock())):
        for name, status in (("c1", 400), ("c2", 401), ("c3", 404), ("c4", 409), ("c5", 307)):
            runtime.answers = [status]
            await runtime.call("greet", name=name)
            await runtime.tries(1)
            while await runtime.alive(name):
                pass
            assert f"is given up: it was answered with status {status}" in caplog.text
            assert len(runtime.tried) == 1
            runtime.tried.clear()


async def test_a_runtime_that_moved_gets_what_waits_at_its_new_address_at_once(runtime: Runtime) -> None:
    clock = HeardClock()
    async with runtime.calling(greeting(clock)):
        runtime.answers = [503]
        await runtime.call("greet", key="k")
        await clock.nap()
        await runtime.call("greet", key="k", callback_url=f"{runtime.url}/moved")
        await runtime.gets()
        assert [path for path, _ in runtime.tried] == ["c1", "moved"]


def a_ticker(pulled: list[int], closed: asyncio.Event) -> ToolServer:
    server = ToolServer("desk")

    @server.tool(events="associative")
    async def tick(most: int = 1_000_000) -> AsyncIterator[str]:
        """Tick."""
        try:
            yield "ticking"
            for number in range(1, most + 1):
                pulled.append(number)
                yield f"tick {number}"
        finally:
            closed.set()

    return server


async def test_a_subscription_waits_while_its_events_are_not_taken_and_they_come_in_order(runtime: Runtime) -> None:
    pulled, closed = list[int](), asyncio.Event()
    async with runtime.calling(a_ticker(pulled, closed)):
        runtime.closed.clear()
        await runtime.call("tick", {"most": 100})
        while len(pulled) < MOST_WAITING - 1:
            await runtime.alive()
        for _ in range(5):
            await runtime.alive()
        assert len(pulled) <= MOST_WAITING
        runtime.closed.set()
        said = await runtime.gets(102)
    assert said[0]["subscription"] is True
    assert [each["text"] for each in said[1:-1]] == [f"tick {number}" for number in range(1, 101)]
    assert [each["sequence"] for each in said[1:]] == list(range(1, 102))
    assert (said[-1]["text"], said[-1]["final"]) == ("The subscription has ended.", True)


async def test_the_address_of_a_runtime_is_a_secret_that_no_log_tells(
    runtime: Runtime, caplog: pytest.LogCaptureFixture
) -> None:
    clock = HeardClock()
    async with runtime.calling(greeting(clock, deliver_within=60)):
        runtime.answers = [404]
        await runtime.call("greet", callback_url=f"{runtime.url}/s3cret")
        await runtime.tries(1)
        await runtime.call("greet", name="c2", callback_url="http://127.0.0.1:1/s3cret")
        await clock.nap()
        clock.advance(60_000)
        while await runtime.alive() or await runtime.alive("c2"):
            pass
        assert "is given up: no answer from http://127.0.0.1:1:" in caplog.text
        assert "s3cret" not in caplog.text


@pytest.mark.parametrize("status", [401, 404, 409])
async def test_a_subscription_whose_event_nobody_wants_ends(runtime: Runtime, status: int) -> None:
    pulled, closed = list[int](), asyncio.Event()
    async with runtime.calling(a_ticker(pulled, closed)), asyncio.timeout(10):
        runtime.answers = [200, 200, status]
        await runtime.call("tick")
        await closed.wait()
        assert not await runtime.alive()
        assert [each.get("text") for each in runtime.taken] == ["ticking", "tick 1"]
        assert len(runtime.tried) == 3


async def test_a_runtime_that_has_the_confirmation_already_gets_the_events(runtime: Runtime) -> None:
    server = ToolServer("desk")

    @server.tool(events="associative")
    async def watch() -> AsyncIterator[str]:
        """Watch."""
        yield "watching"
        yield "one"

    async with runtime.calling(server):
        runtime.answers = [409]
        await runtime.call("watch")
        assert [each["text"] for each in await runtime.gets(2)] == ["one", "The subscription has ended."]
        assert runtime.tried[0][1]["text"] == "watching"
