"""What our runtime makes of servers that do not do what they should: what the model reads, and what is owed."""

import asyncio
import gzip
import json
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from hibernaut.engine.dispatcher import SUBSCRIPTION_DIED
from hibernaut.engine.remote import LOST
from hibernaut.rap.exchange import Exchange
from hibernaut.rap.listening import Receive, Scope, Send, listening
from hibernaut.rap.servers import RemoteServer
from hibernaut.stores.memory import MemoryStore
from tests.engine.scenario import story
from tests.rap.foreign_server import ForeignServer, foreign_server
from tests.rap.interop.bad import ECHO, BadServer, Fields, event, result
from tests.rap.interop.parties import HurriedClock, agents, owed, read, tell, until_owed

DAY = 86_400_000


@pytest.fixture(scope="module")
def foreign() -> Iterator[ForeignServer]:
    """One server; its mode is the path of a base URL."""
    with foreign_server() as server:
        yield server


# Acknowledgements


@pytest.mark.parametrize(
    "mode, answer_within, tries, last",
    [
        (
            "hang",
            100,
            5,
            "error: Error: it is unknown whether echo was run: its server bad did not acknowledge the call",
        ),
        ("early", 5_000, 1, "result: x"),
        ("trouble", 5_000, 3, "result: x"),
        ("break", 5_000, 1, "result: x"),
        (
            "refuse",
            5_000,
            1,
            "error: Error: echo was not run: its server at {url}/refuse/invoke answered with status 422",
        ),
    ],
)
async def test_a36_a_call_is_posted_until_it_is_taken_or_hope_is_lost(
    mode: str, answer_within: int, tries: int, last: str, foreign: ForeignServer
) -> None:
    server = RemoteServer(url=f"{foreign.url}/{mode}", name="bad", answer_within=answer_within)
    async with agents(server, clock=HurriedClock()) as system:
        handle = await tell(system, "echo", {"text": "x"})
        await handle.wait_idle()
        await until_owed(handle)
        posted = [one for one in foreign.received if one.path == f"/{mode}/invoke"]
        assert (await story(handle))[2].startswith(last.format(url=foreign.url))
    assert len(posted) == tries
    assert len({one.headers["idempotency-key"] for one in posted}) == 1
    assert foreign.done.count(posted[0].body["id"]) == (0 if mode in ("hang", "refuse") else 1)


async def test_an_acknowledgement_that_is_late_is_one() -> None:
    bad, called, may_answer = BadServer(), asyncio.Event(), asyncio.Event()

    async def late(call: Fields) -> Any:
        called.set()
        await may_answer.wait()
        return 200, b"<html>not JSON at all</html>", {"Content-Type": "text/html"}

    bad.on_call = late
    async with bad.running() as there, agents(there.url) as system, Exchange() as server:
        handle = await tell(system, "echo", {"text": "x"})
        await called.wait()
        assert await owed(handle) == ["invoke: sent"]
        may_answer.set()
        await until_owed(handle, "invoke: accepted")
        (call,) = bad.calls
        assert (await server.post(call["callback_url"], json.dumps(result(call, "there")).encode())).status == 200
        await read(handle, "result: there", "says: I read: there")
        assert await owed(handle) == []


async def test_a_call_that_is_led_elsewhere_goes_nowhere() -> None:
    bad = BadServer()

    async def away(call: Fields) -> Any:
        return 307, b"over there", {"Location": f"{bad.url}/elsewhere"}

    bad.on_call = away
    async with bad.running() as there, agents(there.url) as system:
        handle = await tell(system, "echo", {"text": "x"})
        await handle.wait_idle()
        assert (await story(handle))[2].endswith("answered with status 307:\nover there")
        assert bad.asked == ["/.well-known/rap-toolset", "/invoke"]


# Manifests


def with_tools(*tools: Fields) -> Fields:
    return {"name": "bad", "endpoint": "{url}/invoke", "tools": list(tools)}


MANIFESTS: dict[str, tuple[object, dict[str, str], str]] = {
    "redirect": (b"", {"Location": "/elsewhere"}, "it redirects (status 302) to '/elsewhere', which is not followed"),
    "bomb": (gzip.compress(b" " * 10_000_000), {"Content-Encoding": "gzip"}, "its manifest is compressed"),
    "huge": (b'{"name": "' + b"x" * 10_000_000 + b'"}', {}, "at most 4,194,304 are taken (setting `manifest_bytes`"),
    "empty": (b"", {}, "is not JSON"),
    "array": (b"[]", {}, "object"),
    "types": ({"name": 7, "endpoint": "{url}/invoke", "tools": [ECHO]}, {}, "$.name"),
    "endpoint": ({"name": "bad", "endpoint": "nowhere", "tools": [ECHO]}, {}, "endpoint"),
    "none": (with_tools(), {}, "it has no tools"),
    "twice": (with_tools(ECHO, ECHO), {}, "2 tools are called 'echo'"),
    "schema": (with_tools(ECHO, {**ECHO, "name": "odd", "inputSchema": {"type": "no type"}}), {}, "tool 2 (odd): "),
    "number": (with_tools(ECHO, {**ECHO, "name": "odd", "inputSchema": 7}), {}, "inputSchema"),
}
"""Manifests with the headers that they come with, and what is said of them."""


async def test_manifests_that_cannot_be_used_are_refused_whole_and_their_servers_named() -> None:
    street: dict[str, BadServer] = {}
    for name, (manifest, headers, _) in MANIFESTS.items():
        bad = street[name] = BadServer()
        bad.manifest, bad.manifest_answer = manifest, (302 if "Location" in headers else 200, headers)

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        _, name, path = scope["path"].split("/", 2)
        await street[name]({**scope, "path": f"/{path}"}, receive, send)

    async with listening(app) as there:
        for name, bad in street.items():
            bad.url = f"{there.url}/{name}"
        servers = [RemoteServer(url=bad.url, name=name) for name, bad in street.items()]
        async with agents(*servers) as system:
            handle = await tell(system, "echo", {"text": "x"})
            await handle.wait_idle()
            told = await story(handle)
    notices = {line.split()[2].rstrip(":"): line for line in told if line.startswith("notice: server_down ")}
    assert {name: (words in notices.get(name, ""), notices.get(name)) for name, (_, _, words) in MANIFESTS.items()} == {
        name: (True, notices.get(name)) for name in MANIFESTS
    }
    assert any(line.startswith("error: Not run: there is no tool named echo.") for line in told)
    assert {name: bad.asked for name, bad in street.items()} == {name: ["/.well-known/rap-toolset"] for name in street}


# Where a server leads


async def test_calls_go_to_another_host_only_where_that_is_allowed() -> None:
    here, elsewhere = BadServer(), BadServer()
    here.manifest = {"name": "bad", "endpoint": "{url}/invoke", "tools": [ECHO]}
    async with here.running() as base, elsewhere.running() as other:
        here.url = other.url
        secret = {"X-Secret": "s"}
        careful = RemoteServer(url=base.url, name="careful", headers=secret)
        async with agents(RemoteServer(url=base.url, name="plain"), careful) as system:
            handle = await tell(system, "echo", {"text": "x"})
            await until_owed(handle, "invoke: accepted")
            (notice,) = [line for line in await story(handle) if line.startswith("notice")]
        assert notice.startswith("notice: server_down careful: ")
        assert "is at another origin than its url; credentials are not sent there" in notice
        assert "`RemoteServer(trust_endpoint=True)` allows it, or `trust_endpoint = true` in a .toml file" in notice
        trusting = RemoteServer(url=base.url, name="trusting", headers=secret, trust_endpoint=True)
        async with agents(trusting) as system:
            await until_owed(await tell(system, "echo", {"text": "x"}), "invoke: accepted")
    assert elsewhere.asked == ["/invoke"] * 2
    assert [headers.get("x-secret") for headers in elsewhere.headers] == [None, "s"]
    assert here.asked == ["/.well-known/rap-toolset"] * 3


# Servers that die, and servers that take their time


async def test_a35_calls_that_a_server_has_lost_are_answered_at_the_next_start() -> None:
    bad, store = BadServer(), MemoryStore()
    async with bad.running() as there:
        async with agents(there.url, store=store) as system:
            handle = await tell(system, "echo", {"text": "x"})
            await until_owed(handle, "invoke: accepted")
        bad.alive = (404, b"who?", {})
        async with agents(there.url, store=store) as system:
            handle = await system.thread(handle.thread_id)
            told = await read(handle, "says: I read: " + (lost := LOST.format(tool="echo", server=there.url[7:])))
            assert f"error: {lost}" in told
            assert await owed(handle) == []
    assert Counter(bad.asked)["/invoke"] == 1
    assert Counter(bad.asked)["/tool_call_status"] == 1


async def test_an_answer_after_a_week_is_refused_and_an_event_of_a_subscription_is_not() -> None:
    bad, store, clock = BadServer(), MemoryStore(), HurriedClock()
    async with bad.running() as there, Exchange() as server:
        async with agents(there.url, store=store, clock=clock) as system:
            plain, watching = await tell(system, "echo"), await tell(system, "echo")
            for handle in (plain, watching):
                await until_owed(handle, "invoke: accepted")
            calls = {call["group_id"]: call for call in bad.calls}

            async def post(callback: Fields) -> int:
                url = calls[callback["group_id"]]["callback_url"]
                return (await server.post(url, json.dumps(callback).encode())).status

            assert await post(result(calls[watching.thread_id], "watching", subscription=True)) == 200
            await read(watching, "result: watching")
            clock.leap(7 * DAY + 1)
            assert await post(result(calls[plain.thread_id], "late")) == 401
            assert await post(event(calls[watching.thread_id], "still here", event_id="1")) == 200
            await read(watching, "event: echo still here")
            assert await owed(plain) == ["invoke: accepted"]
            bad.alive = (200, b'{"alive": false}', {})
        async with agents(there.url, store=store, clock=clock) as system:
            plain = await system.thread(plain.thread_id)
            await read(plain, "error: " + LOST.format(tool="echo", server=there.url[7:]))
            watching = await system.thread(watching.thread_id)
            await read(watching, f"event: echo {SUBSCRIPTION_DIED.format(tool='echo')} [final]")
            assert await system.store.read_effects() == []
    assert Counter(bad.asked)["/invoke"] == 2
