"""Our runtime and a server of our kit, with nothing but HTTP between them."""

import asyncio
from collections.abc import AsyncIterator
from typing import NamedTuple

import pytest

from hibernaut.messages.items import ResultItem, SpawnItem
from hibernaut.messages.parts import Image, Text
from hibernaut.messages.text import clean
from hibernaut.system import AgentSystem
from tests.engine.scenario import story
from tests.rap.interop.parties import ODD, PICTURE, Desk, agents, asked, once, owed, read, tell, until_owed


class Parties(NamedTuple):
    """A server, and a runtime that uses it."""

    desk: Desk
    system: AgentSystem


@pytest.fixture(scope="module")
async def parties() -> AsyncIterator[Parties]:
    """The same for all tests here: to close a listener takes its time."""
    desk = Desk()
    async with desk.server.running() as there, agents(there.url) as system:
        yield Parties(desk, system)


@pytest.fixture
def desk(parties: Parties) -> Desk:
    """The server, as if it were new."""
    parties.desk.forget()
    return parties.desk


@pytest.fixture
def system(parties: Parties) -> AgentSystem:
    """The runtime."""
    return parties.system


async def test_a_call_is_answered_whatever_is_in_it(desk: Desk, system: AgentSystem) -> None:
    handle = await tell(system, "echo", {"text": ODD})
    await handle.wait_idle()
    assert desk.heard == [ODD]
    assert (await story(handle))[2] == f"result: {clean(ODD)}"
    assert await owed(handle) == []


@pytest.mark.parametrize(
    "tool, arguments, words",
    [
        ("fail", {}, "error: Error: ValueError: it was to fail"),
        ("echo", {"text": 7}, "error: Not run. The arguments do not fit: "),
        ("nothing", {}, "error: Not run: there is no tool named nothing."),
    ],
)
async def test_what_goes_wrong_is_read_as_an_error(
    tool: str, arguments: dict[str, object], words: str, desk: Desk, system: AgentSystem
) -> None:
    handle = await tell(system, tool, arguments)
    await handle.wait_idle()
    assert (await story(handle))[2].startswith(words)
    assert desk.heard == []


async def test_a39_a_large_picture_is_kept_beside_the_thread(system: AgentSystem) -> None:
    handle = await tell(system, "picture")
    await handle.wait_idle()
    (answer,) = [item for item in await handle.history() if isinstance(item, ResultItem)]
    assert isinstance(answer.content, tuple)
    text, image = answer.content
    assert text == Text("look:")
    assert isinstance(image, Image)
    assert (image.media_type, image.data) == ("image/png", b"")
    assert await system.store.read_blob(image.blob) == PICTURE


async def test_a_subscription_brings_events_into_its_thread_until_the_last(system: AgentSystem) -> None:
    handle = await tell(system, "follow", {"count": 3})
    told = await read(handle, "event: follow number 3 [final]", "says: I read: number 3")
    assert [line for line in told if line.startswith(("result", "event"))] == [
        "result: it begins",
        "event: follow number 1",
        "event: follow number 2",
        "event: follow number 3 [final]",
    ]
    assert await owed(handle) == []


async def test_a_subscription_brings_events_to_threads_of_their_own(system: AgentSystem) -> None:
    handle = await tell(system, "watch", {"count": 2})

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
    assert said == [["event: watch number 1"], ["event: watch number 2 [final]"]]


async def test_a_person_chooses_and_the_call_goes_on(system: AgentSystem) -> None:
    handle = await tell(system, "choose")
    question = await asked(handle)
    assert (question.prompt, question.choices, question.default) == ("Which colour?", ("red", "green", "blue"), 1)
    assert await system.answer(question.question_id, "blue", user="ann") == "blue"
    told = await read(handle, "asks: Which colour? [red, green, blue]", "answered: blue", "result: chosen: blue")
    assert told[-1] == "says: I read: chosen: blue"
    await until_owed(handle)


async def test_a_person_logs_in_and_the_call_goes_on(desk: Desk, system: AgentSystem) -> None:
    handle = await tell(system, "login")
    question = await asked(handle)
    assert question.url == f"https://login.example/?state={desk.login}"
    granted = await desk.server.grant(desk.login)
    assert (granted.thread_id, granted.tool) == (handle.thread_id, "login")
    await read(handle, "result: welcome")
    assert await system.questions(handle.thread_id) == []


@pytest.mark.parametrize("how", ["cancel", "close"])
async def test_nobody_works_for_a_call_that_is_not_wanted(how: str, desk: Desk, system: AgentSystem) -> None:
    handle = await tell(system, "hang")
    await desk.hangs.wait()
    (call,) = (await handle.state()).calls
    await (handle.close() if how == "close" else handle.cancel(call.call_id))
    await desk.cancelled.wait()
    await until_owed(handle)


async def test_many_calls_of_many_threads_are_answered_each_with_its_own(system: AgentSystem) -> None:
    handles = await asyncio.gather(*(tell(system, "echo", {"text": f"number {n}"}) for n in range(20)))
    for number, handle in enumerate(handles):
        await handle.wait_idle()
        assert (await story(handle))[-1] == f"says: I read: number {number}"
