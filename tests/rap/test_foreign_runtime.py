"""The runtime of the tests that shares no line with ours, held against a server that is as it must be."""

import asyncio

import pytest

from tests.rap.check.tool_server import ToolServer
from tests.rap.foreign_runtime import ForeignRuntime


def use(runtime: ForeignRuntime, base: str) -> None:
    assert [tool["name"] for tool in runtime.manifest(base)["tools"]][:2] == ["add", "deploy"]
    assert [one["text"] for one in runtime.call(base, "add", {"a": 1, "b": 2})] == ["3"]
    events = runtime.call(base, "watch", {"count": 2})
    assert [(one["type"], one["text"]) for one in events] == [
        ("tool_result", "watching"),
        ("subscription_event", "event 1"),
        ("subscription_event", "event 2"),
    ]
    slow = runtime.start(base, "slow", {})
    assert runtime.is_alive(slow)
    assert runtime.cancel(slow) == 200
    assert slow.is_quiet(0.1)
    confirm = runtime.start(base, "confirm", {})
    asked = confirm.next()
    assert runtime.answer(asked, 1) == 200
    assert confirm.next()["text"] == "shipped"
    assert runtime.close_thread(base, confirm.thread_id) == 200
    again = runtime.prepare(base, "add", {"a": 2, "b": 2})
    again.answers = [(503, 0)]
    assert [runtime.post(again, "one"), runtime.post(again, "one")] == [200, 200]
    assert again.next()["text"] == "4"
    assert again.tries == 2


async def test_it_speaks_to_a_server_that_is_as_it_must_be() -> None:
    async with ToolServer().running() as server:
        with ForeignRuntime() as runtime:
            await asyncio.to_thread(use, runtime, server.url)


async def test_it_believes_nothing() -> None:
    async with ToolServer("other ids").running() as server:
        with ForeignRuntime() as runtime, pytest.raises(AssertionError):
            await asyncio.to_thread(runtime.call, server.url, "add", {"a": 1, "b": 2})
