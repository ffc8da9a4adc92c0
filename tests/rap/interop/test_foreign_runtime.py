"""A runtime that has never heard of us, and a server of our kit."""

import asyncio
from base64 import b64decode
from collections.abc import AsyncIterator, Awaitable, Iterator
from typing import NamedTuple, TypeVar

import pytest

from tests.rap.foreign_runtime import ForeignCall, ForeignRuntime
from tests.rap.interop.parties import ODD, PICTURE, WITHIN, Desk

T = TypeVar("T")


class Parties(NamedTuple):
    """A server, and where it is."""

    desk: Desk
    base: str


@pytest.fixture(scope="module")
async def parties() -> AsyncIterator[Parties]:
    """The same for all tests here: to close a listener takes its time."""
    desk = Desk()
    async with desk.server.running() as there:
        yield Parties(desk, there.url)


@pytest.fixture
def desk(parties: Parties) -> Desk:
    """The server, as if it were new."""
    parties.desk.forget()
    return parties.desk


@pytest.fixture
def base(parties: Parties) -> str:
    """Where it is."""
    return parties.base


@pytest.fixture(scope="module")
def runtime() -> Iterator[ForeignRuntime]:
    """The runtime."""
    with ForeignRuntime() as runtime:
        yield runtime


async def soon(happens: Awaitable[T]) -> T:
    async with asyncio.timeout(WITHIN):
        return await happens


async def test_it_finds_the_tools(runtime: ForeignRuntime, base: str) -> None:
    found = await asyncio.to_thread(runtime.manifest, base)
    assert [tool["name"] for tool in found["tools"]] == [
        *("echo", "fail", "picture", "follow", "watch", "choose", "login", "hang", "wait", "hold")
    ]


async def test_a_call_is_answered_whatever_is_in_it(desk: Desk, runtime: ForeignRuntime, base: str) -> None:
    (answer,) = await asyncio.to_thread(runtime.call, base, "echo", {"text": ODD})
    assert desk.heard == [ODD]
    assert answer["text"] == ODD
    assert "is_error" not in answer


@pytest.mark.parametrize(
    "tool, arguments, words",
    [
        ("fail", {}, "Error: ValueError: it was to fail"),
        ("echo", {"text": 7}, "Error: "),
        ("nothing", {}, "Error: "),
    ],
)
async def test_what_goes_wrong_comes_as_an_error(
    tool: str, arguments: dict[str, object], words: str, desk: Desk, runtime: ForeignRuntime, base: str
) -> None:
    (answer,) = await asyncio.to_thread(runtime.call, base, tool, arguments)
    assert (answer["text"].startswith(words), answer["is_error"]) == (True, True)
    assert desk.heard == []


async def test_a_picture_comes_whole(runtime: ForeignRuntime, base: str) -> None:
    (answer,) = await asyncio.to_thread(runtime.call, base, "picture", {})
    text, image = answer["content"]
    assert text == {"type": "text", "text": "look:"}
    assert (image["type"], image["mediaType"], b64decode(image["data"])) == ("image", "image/png", PICTURE)


@pytest.mark.parametrize("tool, associative", [("follow", True), ("watch", False)])
async def test_a_subscription_brings_its_events_in_order_until_the_last(
    tool: str, associative: bool, runtime: ForeignRuntime, base: str
) -> None:
    said = await asyncio.to_thread(runtime.call, base, tool, {"count": 3})
    assert (said[0]["type"], said[0]["text"], said[0]["subscription"]) == ("tool_result", "it begins", True)
    assert [(one["text"], one["event_id"], one["sequence"], one.get("final", False)) for one in said[1:]] == [
        ("number 1", "n1", 1, False),
        ("number 2", "n2", 2, False),
        ("number 3", "n3", 3, True),
    ]
    assert {one.get("associative", False) for one in said[1:]} == {associative}


async def test_a_person_chooses_and_the_call_goes_on(runtime: ForeignRuntime, base: str) -> None:
    def use() -> list[int | str]:
        call = runtime.start(base, "choose", {})
        asked = call.next()
        assert (asked["type"], asked["choices"], asked["default"]) == ("user_choice", ["red", "green", "blue"], 1)
        statuses = [runtime.answer(asked, selected) for selected in (7, 2, 2, 0)]
        return [*statuses, call.next()["text"]]

    assert await asyncio.to_thread(use) == [400, 200, 200, 409, "chosen: blue"]


async def test_a_person_logs_in_and_the_call_goes_on(desk: Desk, runtime: ForeignRuntime, base: str) -> None:
    call = await asyncio.to_thread(runtime.start, base, "login", {})
    asked = await asyncio.to_thread(call.next)
    assert (asked["type"], asked["auth_url"]) == ("oauth", f"https://login.example/?state={desk.login}")
    granted = await desk.server.grant(desk.login)
    assert (granted.call_id, granted.thread_id) == (call.id, call.thread_id)
    assert (await asyncio.to_thread(call.next))["text"] == "welcome"


@pytest.mark.parametrize("how", ["cancel", "close"])
async def test_nobody_works_for_a_call_that_is_not_wanted(
    how: str, desk: Desk, runtime: ForeignRuntime, base: str
) -> None:
    call = await asyncio.to_thread(runtime.start, base, "hang", {})
    await soon(desk.hangs.wait())

    def end(call: ForeignCall) -> tuple[bool, int, bool]:
        is_alive = runtime.is_alive(call)
        status = runtime.cancel(call) if how == "cancel" else runtime.close_thread(base, call.thread_id)
        return is_alive, status, runtime.is_alive(call)

    assert await asyncio.to_thread(end, call) == (True, 200, False)
    await soon(desk.cancelled.wait())
    assert call.tries == 0


async def test_a_callback_that_is_not_taken_comes_again_and_a_repeat_is_one_call(
    desk: Desk, runtime: ForeignRuntime, base: str
) -> None:
    def use() -> str:
        call = runtime.prepare(base, "echo", {"text": "once"})
        call.answers = [(503, 0), (429, 0)]
        assert [runtime.post(call, "one"), runtime.post(call, "one")] == [200, 200]
        return str(call.next()["text"])

    assert await asyncio.to_thread(use) == "once"
    assert desk.heard == ["once"]
