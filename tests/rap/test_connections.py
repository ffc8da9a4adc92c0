"""Connections to real tool servers: their tools, their moods, and where messages and credentials go."""

import asyncio
import json
import sys
import urllib.request
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from hibernaut.auth import Bearer
from hibernaut.errors import ConfigurationError, MalformedInput
from hibernaut.rap import origins
from hibernaut.rap.connections import Connections
from hibernaut.rap.listening import Receive, Scope, Send, listening
from hibernaut.rap.replies import NoAnswer, Reply
from hibernaut.rap.requests import AskStatus, CancelToolCall, CloseThread, Invocation, Migrate, Selected
from hibernaut.rap.servers import RemoteServer, servers_by_name
from hibernaut.rap.tool_servers import DiscoveryFailed, EndpointRefused, ToolServers, UnknownServer
from hibernaut.testing.clock import ManualClock
from tests.rap.foreign_server import ForeignServer, foreign_server

KEY = {"Content-Type": "application/json", "Idempotency-Key": "call_1", "RAP-Version": "1"}
PROGRAM = (sys.executable, str(Path(__file__).with_name("foreign_server.py")))


@pytest.fixture
def foreign() -> Iterator[ForeignServer]:
    with foreign_server() as server:
        yield server


def connections(*servers: RemoteServer, clock: ManualClock | None = None) -> Connections:
    return Connections(servers_by_name(servers), clock or ManualClock())


def call(operation: str = "echo", callback_url: str = "http://127.0.0.1:9/x", **arguments: Any) -> Invocation:
    return Invocation(operation, arguments or {"text": "hi"}, "call_1", None, callback_url, "t", None)


class Callbacks:
    """Takes what servers deliver."""

    def __init__(self) -> None:
        self.bodies: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self.url = ""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            raise NotImplementedError("it has no lifespan")
        body = b""
        while True:
            message = await receive()
            body += message["body"]
            if not message.get("more_body"):
                break
        self.bodies.put_nowait(json.loads(body))
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"{}"})


@asynccontextmanager
async def callbacks() -> AsyncIterator[Callbacks]:
    taken = Callbacks()
    async with listening(taken) as there:
        taken.url = f"{there.url}/callback"
        yield taken


def a_tool_servers(servers: Connections) -> ToolServers:
    return servers


# What a server has


async def test_a_toolset_is_brought_as_it_was_sent_and_read(foreign: ForeignServer) -> None:
    server = RemoteServer(url=foreign.url, name="ci", headers={"X-Who": "me"})
    async with connections(server) as servers:
        found = await a_tool_servers(servers).discover("ci")
    names = ["echo", "later", "fail", "tick", "choose", "picture", "show"]
    assert [tool.name for tool in found.toolset.tools] == names
    assert found.toolset.endpoint == f"{foreign.url}/invoke"
    assert b'"isNew": true' in found.manifest
    assert [(each.path, each.headers["x-who"]) for each in foreign.received] == [("/.well-known/rap-toolset", "me")]


async def test_everybody_who_asks_at_the_same_time_gets_the_answer_to_one_request(foreign: ForeignServer) -> None:
    async with connections(RemoteServer(url=foreign.url, name="ci")) as servers:
        impatient = asyncio.create_task(servers.discover("ci"))
        others = [asyncio.create_task(servers.discover("ci")) for _ in range(5)]
        await asyncio.sleep(0)
        impatient.cancel()
        found = await asyncio.gather(*others)
        assert len(foreign.received) == 1
        assert all(each is found[0] for each in found)
        assert await servers.discover("ci") is not found[0]
    assert len(foreign.received) == 2


@pytest.mark.parametrize(
    "mode, words, unreachable",
    [
        ("manifest-redirect", "redirects.*not followed", False),
        ("manifest-empty", "not JSON", False),
        ("manifest-huge", "manifest_bytes", False),
        ("manifest-bomb", "compressed", False),
        ("manifest-missing", "status 404", False),
        ("manifest-trouble", "status 503", True),
        ("manifest-break", "no answer", True),
        ("manifest-hang", r"nothing within 0\.3 s", True),
    ],
)
async def test_a_toolset_that_cannot_be_had_is_said_so(
    foreign: ForeignServer, mode: str, words: str, *, unreachable: bool
) -> None:
    wait = 300 if mode == "manifest-hang" else 30_000
    server = RemoteServer(url=f"{foreign.url}/{mode}", name="ci", answer_within=wait)
    async with connections(server) as servers:
        with pytest.raises(DiscoveryFailed, match=f"server 'ci' cannot be had: .*{words}") as caught:
            await servers.discover("ci")
    assert caught.value.unreachable is unreachable


async def test_after_a_failure_a_server_is_left_alone_for_a_pause_that_grows(foreign: ForeignServer) -> None:
    clock = ManualClock()
    foreign.mode = "manifest-trouble"
    async with connections(RemoteServer(url=foreign.url, name="ci"), clock=clock) as servers:
        for asked, pause in enumerate([1, 2, 4, 8, 16, 32, 60, 60], 1):
            with pytest.raises(DiscoveryFailed, match=f"503.*asked again in {pause} s"):
                await servers.discover("ci")
            clock.advance(pause * 1_000 - 1)
            with pytest.raises(DiscoveryFailed, match=r"503.*asked again in 0\.001 s") as caught:
                await servers.discover("ci")
            assert caught.value.again_at == clock.now() + 1
            assert len(foreign.received) == asked
            clock.advance(1)
        foreign.mode = ""
        assert (await servers.discover("ci")).manifest
        foreign.mode = "manifest-trouble"
        with pytest.raises(DiscoveryFailed, match="again in 1 s"):
            await servers.discover("ci")


# What is posted


async def test_everything_is_posted_where_it_belongs(foreign: ForeignServer) -> None:
    invocation = call()
    async with connections(RemoteServer(url=foreign.url, name="ci")) as servers:
        replies = [
            await servers.invoke("ci", invocation, KEY, f"{foreign.url}/invoke"),
            await servers.cancel("ci", CancelToolCall("t", "call_1")),
            await servers.close_thread("ci", CloseThread("t")),
            await servers.migrate("ci", Migrate("s", "https://b.example")),
            await servers.select("ci", f"{foreign.url}/choice/none", Selected("call_1", 2)),
        ]
        assert await servers.status("ci", AskStatus("t", "call_9")) == "dead"
    assert [reply.status for reply in replies] == [200, 200, 200, 200, 404]
    assert [(each.path, each.body) for each in foreign.received] == [
        (
            "/invoke",
            {
                "operation": "echo",
                "arguments": {"text": "hi"},
                "id": "call_1",
                "call_id": None,
                "callback_url": invocation.callback_url,
                "group_id": "t",
                "thread_ancestors": None,
            },
        ),
        ("/cancel_tool_call", {"thread_id": "t", "tool_call_id": "call_1"}),
        ("/close_thread", {"thread_id": "t"}),
        ("/migrate", {"session_id": "s", "destination_url": "https://b.example"}),
        ("/choice/none", {"id": "call_1", "selected": 2}),
        ("/tool_call_status", {"thread_id": "t", "tool_call_id": "call_9"}),
    ]
    first = foreign.received[0].headers
    assert (first["idempotency-key"], first["rap-version"], first["content-type"]) == (
        "call_1",
        "1",
        "application/json",
    )


async def test_a_server_in_a_bad_mood_is_told_from_one_that_is_not_there(foreign: ForeignServer) -> None:
    patient = RemoteServer(url=foreign.url, name="patient")
    hasty = RemoteServer(url=foreign.url, name="hasty", answer_within=300)
    async with connections(patient, hasty) as servers:

        async def post(mode: str, name: str = "patient") -> Reply:
            return await servers.invoke(name, call(), {**KEY, "Idempotency-Key": mode}, f"{foreign.url}/{mode}/invoke")

        assert [(await post("trouble")).status for _ in range(3)] == [500, 500, 200]
        refused = await post("refuse")
        assert (refused.status, refused.body) == (422, b"the moon is not right for this")
        assert (await post("break")).status == 200
        with pytest.raises(NoAnswer) as caught:
            await post("hang", "hasty")
        assert caught.value.reached


async def test_a_server_that_is_not_there_has_no_say(foreign: ForeignServer) -> None:
    foreign.stop()
    async with connections(RemoteServer(url=foreign.url, name="ci")) as servers:
        assert await servers.status("ci", AskStatus("t", "call_1")) == "unknown"
        with pytest.raises(NoAnswer) as caught:
            await servers.cancel("ci", CancelToolCall("t", "call_1"))
        assert not caught.value.reached
        with pytest.raises(UnknownServer, match="'other'; configured: 'ci'"):
            await servers.cancel("other", CancelToolCall("t", "call_1"))


async def test_a_message_that_cannot_be_written_goes_nowhere(foreign: ForeignServer) -> None:
    async with connections(RemoteServer(url=foreign.url, name="ci")) as servers:
        with pytest.raises(MalformedInput):
            await servers.invoke("ci", call(number=float("nan")), KEY, f"{foreign.url}/invoke")
    assert foreign.received == []


async def test_calls_that_hang_do_not_hold_up_notices(foreign: ForeignServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hibernaut.rap.connection.MOST_CALLS", 2)
    foreign.mode = "hang"
    async with connections(RemoteServer(url=foreign.url, name="ci")) as servers, asyncio.TaskGroup() as group:
        calls = [group.create_task(servers.invoke("ci", call(), KEY, f"{foreign.url}/invoke")) for _ in range(3)]
        assert (await servers.cancel("ci", CancelToolCall("t", "call_1"))).status == 200
        while len(foreign.bodies("/invoke")) < 2:
            await servers.status("ci", AskStatus("t", "call_1"))
        for each in calls:
            each.cancel()
    assert len(foreign.bodies("/invoke")) == 2


async def test_a_call_goes_to_the_newest_endpoint_that_is_known(foreign: ForeignServer) -> None:
    async with connections(RemoteServer(url=foreign.url, name="ci")) as servers:
        await servers.invoke("ci", call(), KEY, f"{foreign.url}/refuse/invoke")
        await servers.discover("ci")
        await servers.invoke("ci", call(), KEY, f"{foreign.url}/refuse/invoke")
    assert [each.path for each in foreign.received if each.path.endswith("/invoke")] == ["/refuse/invoke", "/invoke"]


# What a foreign server makes of it


async def test_answers_events_and_choices_come_back() -> None:
    with foreign_server() as foreign:
        async with callbacks() as taken, connections(RemoteServer(url=foreign.url, name="ci")) as servers:
            endpoint = (await servers.discover("ci")).toolset.endpoint

            async def answer(operation: str, **arguments: Any) -> dict[str, Any]:
                invocation = Invocation(operation, arguments, operation, "p1", taken.url, "t", None)
                assert (await servers.invoke("ci", invocation, KEY, endpoint)).status == 200
                return await taken.bodies.get()

            assert await answer("echo", text="hi") == {
                "type": "tool_result",
                "group_id": "t",
                "id": "echo",
                "call_id": "p1",
                "text": "hi",
            }
            assert (await answer("later"))["text"] == "this took a while"
            assert (await answer("fail"))["is_error"] is True
            assert [part["type"] for part in (await answer("picture"))["content"]] == ["text", "image"]
            question = await answer("choose")
            assert question["choices"] == ["red", "green", "blue"]
            assert await servers.status("ci", AskStatus("t", "choose")) == "alive"
            assert (await servers.select("ci", question["response_url"], Selected("choose", 2))).status == 200
            assert (await taken.bodies.get())["text"] == "chosen: blue"
            assert (await answer("tick", count=2))["subscription"] is True
            events = [await taken.bodies.get() for _ in range(2)]
            assert [event.get("final", False) for event in events] == [False, True]


async def test_an_answer_may_come_before_the_acknowledgement_and_a_repeat_brings_no_second_one() -> None:
    with foreign_server(mode="early") as foreign:
        async with callbacks() as taken, connections(RemoteServer(url=foreign.url, name="ci")) as servers:
            for _ in range(2):
                assert (
                    await servers.invoke("ci", call(callback_url=taken.url), KEY, f"{foreign.url}/invoke")
                ).status == 200
                assert taken.bodies.qsize() == 1
    assert foreign.done == ["call_1"]
    assert [(delivered["text"], status) for delivered, status in foreign.delivered] == [("hi", 200)]


async def test_a_cancelled_call_and_a_closed_thread_bring_nothing_more() -> None:
    with foreign_server() as foreign:
        async with callbacks() as taken, connections(RemoteServer(url=foreign.url, name="ci")) as servers:
            for name, thread in [("a", "t"), ("b", "u"), ("c", "v")]:
                invocation = Invocation("later", {"seconds": 60}, name, None, taken.url, thread, None)
                await servers.invoke("ci", invocation, {**KEY, "Idempotency-Key": name}, f"{foreign.url}/invoke")
            await servers.cancel("ci", CancelToolCall("t", "a"))
            await servers.close_thread("ci", CloseThread("u"))
            alive = [
                await servers.status("ci", AskStatus(thread, name))
                for name, thread in [("a", "t"), ("b", "u"), ("c", "v")]
            ]
            assert alive == ["dead", "dead", "alive"]


# Where a server may lead


PUBLIC = "https://tools.example.com/base"


@pytest.mark.parametrize(
    "endpoint",
    [
        "http://127.0.0.1:6379/",
        "http://2130706433/",
        "http://localhost/x",
        "http://169.254.169.254/latest/meta-data",
        "http://[::1]/",
        "http://[::ffff:10.0.0.1]/",
        "http://10.0.0.1/",
    ],
)
async def test_a_server_elsewhere_cannot_lead_into_this_machine_or_network(
    endpoint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    resolve = origins.zones

    async def zones(name: str) -> frozenset[origins.Zone]:
        return frozenset({"public"}) if name == "tools.example.com" else await resolve(name)

    monkeypatch.setattr("hibernaut.rap.leading.zones", zones)
    async with connections(RemoteServer(url=PUBLIC, name="ci")) as servers:
        with pytest.raises(EndpointRefused, match=r"'ci'.*inside this machine or network than"):
            await servers.invoke("ci", call(), KEY, endpoint)
        with pytest.raises(EndpointRefused, match="further inside this machine or network than"):
            await servers.select("ci", endpoint, Selected("call_1", 0))


@pytest.mark.parametrize("url", ["file:///etc/passwd", "http://a@127.0.0.1/", "http://127.0.0.1:x/", ""])
async def test_what_is_no_address_is_posted_nothing(foreign: ForeignServer, url: str) -> None:
    async with connections(RemoteServer(url=foreign.url, name="ci")) as servers:
        with pytest.raises(EndpointRefused, match="'ci'"):
            await servers.select("ci", url, Selected("call_1", 0))
    assert foreign.received == []


async def test_an_endpoint_that_a_server_may_not_lead_to_refuses_its_toolset(foreign: ForeignServer) -> None:
    foreign.endpoint = "http://169.254.169.254/latest"
    async with connections(RemoteServer(url=foreign.url, name="ci")) as servers:
        with pytest.raises(DiscoveryFailed, match=r"169\.254\.169\.254") as caught:
            await servers.discover("ci")
    assert not caught.value.unreachable


async def test_a_host_that_cannot_be_found_is_no_answer() -> None:
    async with connections(RemoteServer(url="http://127.0.0.1:9", name="ci")) as servers:
        with pytest.raises(NoAnswer, match="host cannot be found") as caught:
            await servers.invoke("ci", call(), KEY, "http://nowhere.invalid/")
    assert not caught.value.reached


async def test_credentials_go_to_the_servers_own_origin_and_nowhere_else(foreign: ForeignServer) -> None:
    with foreign_server() as other:
        server = RemoteServer(url=foreign.url, name="ci", auth=Bearer("s3cret"), headers={"X-Key": "k"})
        async with connections(server) as servers:
            with pytest.raises(EndpointRefused, match=r"another origin.*trust_endpoint"):
                await servers.invoke("ci", call(), KEY, f"{other.url}/invoke")
            assert other.received == []
            await servers.invoke("ci", call(), KEY, f"{foreign.url}/invoke")
            await servers.select("ci", f"{foreign.url}/choice/x", Selected("call_1", 0))
            await servers.select("ci", f"{other.url}/choice/x", Selected("call_1", 0))
        assert [(each.headers["authorization"], each.headers["x-key"]) for each in foreign.received] == [
            ("Bearer s3cret", "k")
        ] * 2
        assert [(each.headers.get("authorization"), each.headers.get("x-key")) for each in other.received] == [
            (None, None)
        ]


async def test_without_credentials_an_endpoint_may_be_at_another_origin(foreign: ForeignServer) -> None:
    with foreign_server() as other:
        foreign.endpoint = f"{other.url}/invoke"
        async with connections(RemoteServer(url=foreign.url, name="ci")) as servers:
            endpoint = (await servers.discover("ci")).toolset.endpoint
            assert (await servers.invoke("ci", call(), KEY, endpoint)).status == 200
        assert len(other.bodies("/invoke")) == 1


async def test_a_trusted_server_may_lead_elsewhere_with_credentials_but_not_in_the_clear(
    foreign: ForeignServer,
) -> None:
    with foreign_server() as other:
        foreign.endpoint = f"{other.url}/invoke"
        server = RemoteServer(url=foreign.url, name="ci", auth=Bearer("s3cret"), trust_endpoint=True)
        async with connections(server) as servers:
            endpoint = (await servers.discover("ci")).toolset.endpoint
            await servers.invoke("ci", call(), KEY, endpoint)
            await servers.select("ci", f"{other.url}/choice/x", Selected("call_1", 0))
            foreign.endpoint = "http://93.184.216.34/invoke"
            with pytest.raises(DiscoveryFailed, match="in the clear"):
                await servers.discover("ci")
        assert [each.headers.get("authorization") for each in other.received] == ["Bearer s3cret"] * 2


async def test_a_credential_that_cannot_be_read_names_the_variable_and_the_server(
    foreign: ForeignServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CI_TOKEN", raising=False)
    async with connections(RemoteServer(url=foreign.url, name="ci", auth=Bearer("env:CI_TOKEN"))) as servers:
        for _ in range(2):
            with pytest.raises(ConfigurationError, match=r"'ci'.*CI_TOKEN"):
                await servers.discover("ci")
        with pytest.raises(ConfigurationError, match=r"'ci'.*CI_TOKEN"):
            await servers.invoke("ci", call(), KEY, f"{foreign.url}/invoke")
        monkeypatch.setenv("CI_TOKEN", "s3cret\n")
        await servers.discover("ci")
    assert [each.headers["authorization"] for each in foreign.received] == ["Bearer s3cret"]


# Servers that a command starts


async def test_a_command_is_a_server_whose_calls_follow_it_to_every_port() -> None:
    clock = ManualClock()
    server = RemoteServer(command=PROGRAM, name="ci", idle=1_000)
    stop = asyncio.Event()

    async def busy(_name: str) -> bool:
        stop.set()
        return False

    async with callbacks() as taken, Connections({"ci": server}, clock, busy=busy) as servers:
        first = (await servers.discover("ci")).toolset.endpoint
        clock.advance(1_000)
        await stop.wait()
        invocation = Invocation("choose", {}, "choose", None, taken.url, "t", None)
        assert (await servers.invoke("ci", invocation, KEY, first)).status == 200
        question = await taken.bodies.get()
        assert not question["response_url"].startswith(first.removesuffix("/invoke"))
        moved = first.replace("/invoke", "/choice/choose")
        assert (await servers.select("ci", moved, Selected("choose", 0))).status == 200
        assert (await taken.bodies.get())["text"] == "chosen: red"
        second = (await servers.discover("ci")).toolset.endpoint
    with pytest.raises(OSError, match="refused"):
        await asyncio.to_thread(urllib.request.urlopen, second, timeout=5)


async def test_a_command_that_does_not_start_is_no_answer_and_no_tools() -> None:
    async with connections(RemoteServer(command=("/no/such/program",), name="ci")) as servers:
        with pytest.raises(DiscoveryFailed, match="cannot be started") as caught:
            await servers.discover("ci")
        assert caught.value.unreachable
        with pytest.raises(NoAnswer, match="started again in") as failed:
            await servers.invoke("ci", call(), KEY, "http://127.0.0.1:9/invoke")
        assert not failed.value.reached


async def test_a_command_whose_manifest_is_refused_takes_no_calls() -> None:
    async with connections(RemoteServer(command=(*PROGRAM, "--mode", "manifest-empty"), name="ci")) as servers:
        with pytest.raises(NoAnswer, match="not JSON") as caught:
            await servers.invoke("ci", call(), KEY, "http://127.0.0.1:9/invoke")
    assert not caught.value.reached
