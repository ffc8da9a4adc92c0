"""Our runtime and a server that has never heard of us."""

from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import NamedTuple

import pytest

from hibernaut.messages.events import ToolResult, ViewChanged
from hibernaut.messages.items import ResultItem, SpawnItem
from hibernaut.messages.parts import Image, Text
from hibernaut.messages.text import clean
from hibernaut.system import AgentSystem
from tests.engine.scenario import story
from tests.rap.foreign_server import ForeignServer, foreign_server
from tests.rap.interop.parties import ODD, agents, asked, once, owed, read, tell, until_owed


class Parties(NamedTuple):
    """A server, and a runtime that uses it."""

    server: ForeignServer
    system: AgentSystem


@pytest.fixture(scope="module")
async def parties() -> AsyncIterator[Parties]:
    """The same for all tests here: to close a listener takes its time."""
    with foreign_server() as server:
        async with agents(server.url) as system:
            yield Parties(server, system)


@pytest.fixture
def server(parties: Parties) -> ForeignServer:
    """The server, as if nobody had called it yet."""
    parties.server.received.clear()
    return parties.server


@pytest.fixture
def system(parties: Parties) -> AgentSystem:
    """The runtime."""
    return parties.system


async def test_a_call_is_answered_whatever_is_in_it(server: ForeignServer, system: AgentSystem) -> None:
    handle = await tell(system, "echo", {"text": ODD})
    await handle.wait_idle()
    (called,) = server.bodies("/invoke")
    assert (called["operation"], called["arguments"]) == ("echo", {"text": ODD})
    assert (called["group_id"], called["thread_ancestors"]) == (handle.thread_id, None)
    assert (await story(handle))[2] == f"result: {clean(ODD)}"
    assert await owed(handle) == []


async def test_an_error_is_read_as_one(system: AgentSystem, server: ForeignServer) -> None:
    handle = await tell(system, "fail")
    await handle.wait_idle()
    assert (await story(handle))[2] == "error: Error: it was to fail"
    assert len(server.bodies("/invoke")) == 1


async def test_a_picture_is_seen(system: AgentSystem) -> None:
    handle = await tell(system, "picture")
    await handle.wait_idle()
    (answer,) = [item for item in await handle.history() if isinstance(item, ResultItem)]
    assert answer.content == (Text("look:"), Image("image/png", b"\x89PNG\r\n\x1a\n not much of a picture"))


async def test_a_subscription_brings_events_into_its_thread_until_the_last(system: AgentSystem) -> None:
    handle = await tell(system, "tick", {"count": 2, "associative": True})
    told = await read(handle, "event: tick tick 2 [final]", "says: I read: tick 2")
    assert [line for line in told if line.startswith(("result", "event"))] == [
        "result: ticking",
        "event: tick tick 1",
        "event: tick tick 2 [final]",
    ]
    assert await owed(handle) == []


async def test_a_subscription_brings_events_to_threads_of_their_own(system: AgentSystem) -> None:
    handle = await tell(system, "tick", {"count": 2})

    async def has_children() -> bool:
        return len(list(await handle.tree())) == 3

    await once(handle, has_children)
    await until_owed(handle)
    said = []
    for item in await handle.history():
        if isinstance(item, SpawnItem):
            child = await system.thread(item.thread_id)
            await child.wait_idle()
            said.append([line for line in await story(child) if line.startswith("event")])
    assert said == [["event: tick tick 1"], ["event: tick tick 2 [final]"]]


async def test_a_person_chooses_and_the_call_goes_on(system: AgentSystem, server: ForeignServer) -> None:
    handle = await tell(system, "choose")
    question = await asked(handle)
    assert (question.prompt, question.choices, question.default) == ("Which colour?", ("red", "green", "blue"), 1)
    assert await system.answer(question.question_id, 2) == "blue"
    await read(handle, "answered: blue", "result: chosen: blue")
    (call,) = server.bodies("/invoke")
    assert server.bodies(f"/choice/{call['id']}") == [{"id": call["id"], "selected": 2}]
    await until_owed(handle)


async def test_people_see_a_view_and_segments_and_the_model_neither(system: AgentSystem) -> None:
    handle = await system.launch()
    async with aclosing(handle.events()) as events:
        await handle.send("show {}")
        seen = []
        async for event in events:
            seen.append(event)
            if isinstance(event, ToolResult):
                break
    (view,) = [event for event in seen if isinstance(event, ViewChanged)]
    assert (view.view_type, view.content) == ("plan", '{"steps":2}')
    assert seen.index(view) < len(seen) - 1
    result = seen[-1]
    assert isinstance(result, ToolResult)
    assert (result.content, result.display) == (
        "shown",
        '[{"type":"hologram","content":{}},{"type":"diff","content":{"path":"a","patch":"+b"}}]',
    )
    assert [(row.view_type, row.content) for row in await handle.views()] == [("plan", '{"steps":2}')]
    await handle.wait_idle()
    assert (await story(handle))[1:] == ["calls: show {}", "result: shown", "says: I read: shown"]


@pytest.mark.parametrize("how", ["cancel", "close"])
async def test_a_server_hears_that_a_call_is_not_wanted(how: str, server: ForeignServer, system: AgentSystem) -> None:
    handle = await tell(system, "later", {"seconds": 30})
    await until_owed(handle, "invoke: accepted")
    (call,) = (await handle.state()).calls
    await (handle.close() if how == "close" else handle.cancel(call.call_id))
    await until_owed(handle)
    assert server.bodies("/cancel_tool_call") == [{"thread_id": handle.thread_id, "tool_call_id": call.call_id}]
    assert server.bodies("/close_thread") == ([{"thread_id": handle.thread_id}] if how == "close" else [])
    assert call.call_id not in server.calls
