"""What a tool server does not take: from web pages, from strangers, under a foreign name, or unreadable."""

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from hibernaut.errors import ConfigurationError
from hibernaut.rap import ToolServer
from hibernaut.rap.exchange import Exchange
from hibernaut.rap.limits import WireLimits
from hibernaut.rap.listening import Receive, Scope, Send, listening
from hibernaut.rap.manifest import ToolsetRefused, read_manifest
from tests.rap.kit.runtime import Runtime

SECRET = "correct horse"
BEARER = {"Authorization": f"Bearer {SECRET}"}
NOTICE = json.dumps({"thread_id": "t1", "tool_call_id": "c1"}).encode()
POSTS = ("/rap/call", "/cancel_tool_call", "/close_thread", "/tool_call_status", "/migrate")


async def moved(session: str, destination: str) -> None:
    """Move a session, or not."""
    if session == "stuck":
        raise OSError("no room there")


def a_server(**options: Any) -> ToolServer:
    server = ToolServer("desk", description="Odds and ends.", migrate=moved, **options)

    @server.tool(
        name="deploy-it",
        read_only=True,
        destructive=True,
        idempotent=True,
        requires_auth="github",
        display_script='"deploy " + args.commit',
    )
    async def deploy(commit: str) -> str:
        """Deploy a commit."""
        return commit

    return server


def a_call(runtime: Runtime, **changed: object) -> bytes:
    call = {"operation": "deploy-it", "arguments": {"commit": "abc"}, "id": "c1", "group_id": "t1"}
    return json.dumps(call | {"callback_url": f"{runtime.url}/c1"} | changed).encode()


async def test_a_manifest_says_what_the_tools_are(runtime: Runtime) -> None:
    async with runtime.calling(a_server()):
        manifest = await runtime.toolset()
        assert read_manifest(json.dumps(manifest).encode()).tools[0].display_script == '"deploy " + args.commit'
    assert manifest == {
        "name": "desk",
        "endpoint": f"{runtime.server}/rap/call",
        "description": "Odds and ends.",
        "needsMigration": True,
        "idempotencyKeys": True,
        "tools": [
            {
                "name": "deploy-it",
                "description": "Deploy a commit.",
                "inputSchema": {
                    "type": "object",
                    "properties": {"commit": {"type": "string"}},
                    "required": ["commit"],
                    "additionalProperties": False,
                },
                "annotations": {
                    "readOnly": True,
                    "destructive": True,
                    "idempotent": True,
                    "requiresAuth": "github",
                },
                "displayScript": '"deploy " + args.commit',
            }
        ],
    }


async def test_what_cannot_be_read_is_refused_in_words(runtime: Runtime) -> None:
    limits = WireLimits(invocation_bytes=2_000, notice_bytes=500)
    async with runtime.calling(a_server(limits=limits, callback_hosts=["127.0.0.1"])):
        refused: list[tuple[str, bytes, dict[str, str], int, str]] = [
            ("/rap/call", b"{", {}, 400, "is not JSON"),
            ("/rap/call", b"\xff{}", {}, 400, "is not UTF-8"),
            ("/rap/call", b"[]", {}, 400, "must be a JSON object"),
            ("/rap/call", a_call(runtime, callback_url="file:///etc/passwd"), {}, 400, "not an http or https address"),
            ("/rap/call", a_call(runtime, callback_url="http://elsewhere.example/"), {}, 403, "elsewhere.example"),
            ("/rap/call", a_call(runtime, id=""), {}, 400, "does not fit"),
            ("/rap/call", a_call(runtime), {"Idempotency-Key": "k" * 600}, 400, "Idempotency-Key"),
            ("/rap/call", a_call(runtime), {"Content-Type": "text/plain"}, 415, "application/json"),
            ("/rap/call", a_call(runtime), {"Origin": "https://evil.example"}, 403, "Origin"),
            ("/rap/call", a_call(runtime), {"Host": "evil.example"}, 403, "Host"),
            ("/rap/call", a_call(runtime, arguments={"commit": "x" * 2_000}), {}, 413, "2,000"),
            ("/cancel_tool_call", NOTICE + b" " * 500, {}, 413, "500"),
            ("/close_thread", NOTICE, {"Content-Encoding": "gzip"}, 415, "compressed"),
            ("/close_thread", b"no", {}, 400, "is not JSON"),
            ("/tool_call_status", b"{}", {}, 400, "missing required field"),
            ("/rap/response/guessed", b'{"id": "c1", "selected": 0}', {"Origin": "null"}, 403, "Origin"),
            ("/rap/response/guessed", b'{"id": "c1", "selected": 0}', {}, 404, "waits"),
        ]
        for path, body, headers, status, words in refused:
            reply = await runtime.post(path, body, headers)
            assert (reply.status, words in json.loads(reply.body)["message"]) == (status, True), (path, reply)
        half = a_call(runtime, arguments={"commit": "half"}).replace(b"half", b"half \\ud83d")
        assert (
            await runtime.post("/rap/call", half, {"Content-Type": "application/json; charset=utf-8"})
        ).status == 200
        assert [each["text"] for each in await runtime.gets()] == ["half \ufffd"]
        for path, status in (("/rap/call", 405), ("/nowhere", 404)):
            reply = await runtime.exchange.get(runtime.server + path)
            assert (reply.status, json.loads(reply.body)["error"]) == (status, "request_refused")
        address = urlsplit(runtime.server)
        reader, writer = await asyncio.open_connection(address.hostname, address.port)
        writer.write(b"GET /.well-known/rap-toolset HTTP/1.1\r\nHost: localhost\r\nHost: localhost\r\n\r\n")
        assert (await reader.readline()).startswith(b"HTTP/1.1 400 ")
        writer.close()
        await writer.wait_closed()


async def test_without_the_secret_nothing_is_taken(runtime: Runtime) -> None:
    async with runtime.calling(a_server(secret=SECRET)):
        for headers in ({}, {"Authorization": "Bearer guessed"}, {"Authorization": f"Basic {SECRET}"}):
            for path in POSTS:
                reply = await runtime.post(path, b"{}", headers)
                assert (reply.status, reply.headers["www-authenticate"]) == (401, "Bearer")
        assert (await runtime.exchange.get(f"{runtime.server}/.well-known/rap-toolset")).status == 401
        assert (await runtime.post("/rap/call", a_call(runtime), BEARER)).status == 200
        assert [each["text"] for each in await runtime.gets()] == ["abc"]
        async with Exchange(headers=BEARER) as exchange:
            assert (await exchange.get(f"{runtime.server}/.well-known/rap-toolset")).status == 200


async def test_a_session_is_moved_before_that_is_said(runtime: Runtime) -> None:
    async with runtime.calling(a_server()):
        order = {"session_id": "s1", "destination_url": "https://other.example"}
        assert (await runtime.post("/migrate", order)).status == 200
        stuck = await runtime.post("/migrate", order | {"session_id": "stuck"})
        assert (stuck.status, b"OSError: no room there" in stuck.body) == (500, True)


async def test_a_server_behind_a_proxy_answers_to_its_public_name(runtime: Runtime) -> None:
    async with runtime.calling(a_server(url="https://tools.example/desk/")):
        manifest = await runtime.toolset()
        assert manifest["endpoint"] == "https://tools.example/desk/rap/call"
        named = {"Host": "tools.example"}
        assert (await runtime.post("/tool_call_status", NOTICE, named)).status == 200


async def sleep() -> None:
    """Have a name that is the runtime's own."""


async def test_what_no_runtime_would_take_is_told_to_the_author() -> None:
    unusable: list[tuple[Callable[[], ToolServer], type[Exception], str]] = [
        (lambda: ToolServer("desk"), ToolsetRefused, "no tools"),
        (lambda: ToolServer("desk", tools=[*a_server().tools, *a_server().tools]), ConfigurationError, "two tools"),
    ]
    for make, kind, words in unusable:
        with pytest.raises(kind, match=words):
            async with make().lifespan():
                pass
    reserved = ToolServer("desk")
    reserved.tool(sleep)
    with pytest.raises(ToolsetRefused, match="sleep"):
        async with reserved.lifespan():
            pass
    server = a_server()
    with pytest.raises(ConfigurationError, match="give it a secret"):
        async with server.running(host="0.0.0.0"):
            pass
    async with server.lifespan():
        with pytest.raises(ConfigurationError, match="runs already"):
            server.tool(sleep)


async def test_any_asgi_server_runs_it_with_its_lifespan(runtime: Runtime, tmp_path: Path) -> None:
    server = a_server(state=tmp_path / "desk.db")
    async with listening(server) as address:
        runtime.server = address.url
        assert (await runtime.toolset())["endpoint"] == f"{address.url}/rap/call"
        await runtime.call("deploy-it", {"commit": "abc"})
        assert [each["text"] for each in await runtime.gets()] == ["abc"]
    with pytest.raises(ConfigurationError, match="could not be started"):
        async with listening(a_server(state=tmp_path / "no" / "desk.db")):
            pass


async def test_a_server_without_its_lifespan_says_that_it_does_not_run(runtime: Runtime) -> None:
    server = a_server()

    async def mounted(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            raise NotImplementedError("nobody passes it on")
        await server(scope, receive, send)

    async with listening(mounted) as address:
        runtime.server = address.url
        reply = await runtime.call("deploy-it", {"commit": "abc"})
        assert (reply.status, reply.headers["retry-after"]) == (503, "5")
