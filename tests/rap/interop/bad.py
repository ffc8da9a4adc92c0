"""Tool servers on their worst day: what the manifest, a call and a question for a status are answered with is given."""

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

from hibernaut.rap.listening import Address, Receive, Scope, Send, listening

Fields = dict[str, Any]

SCHEMA: Fields = {"type": "object", "properties": {"text": {"type": "string"}}}
ECHO: Fields = {"name": "echo", "description": "Say it again.", "inputSchema": SCHEMA}

Answer = tuple[int, bytes, dict[str, str]]


class BadServer:
    """An ASGI app. By default it takes every call and does nothing about it.

    `manifest` is sent as it is if it is bytes; `{url}` in it is where the server listens. `on_call` answers calls, and
    `alive` is what a question for a status is answered with.
    """

    def __init__(self) -> None:
        self.url = ""
        self.manifest: object = {"name": "bad", "endpoint": "{url}/invoke", "tools": [ECHO]}
        self.manifest_answer: tuple[int, dict[str, str]] = (200, {})
        self.on_call: Callable[[Fields], Awaitable[Answer]] = taken
        self.alive: Answer = (200, b'{"alive": true}', {})
        self.asked: list[str] = []
        """The paths of all requests."""
        self.calls: list[Fields] = []
        self.headers: list[dict[str, str]] = []
        """Those of all calls."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            raise NotImplementedError("it has no lifespan")
        body, more = b"", True
        while more:
            message = await receive()
            body, more = body + message.get("body", b""), message.get("more_body", False)
        self.asked.append(scope["path"])
        status, said, headers = await self._answer(scope, body)
        written = [(name.encode(), value.encode()) for name, value in headers.items()]
        await send({"type": "http.response.start", "status": status, "headers": written})
        await send({"type": "http.response.body", "body": said})

    async def _answer(self, scope: Scope, body: bytes) -> Answer:
        if scope["method"] == "GET":
            status, headers = self.manifest_answer
            given = self.manifest
            written = given if isinstance(given, bytes) else json.dumps(given).replace("{url}", self.url).encode()
            return status, written, headers
        if scope["path"] == "/invoke":
            self.calls.append(json.loads(body))
            self.headers.append({name.decode(): value.decode() for name, value in scope["headers"]})
            return await self.on_call(self.calls[-1])
        return self.alive if scope["path"] == "/tool_call_status" else (200, b"{}", {})

    @asynccontextmanager
    async def running(self) -> AsyncIterator[Address]:
        """Serve for as long as the context lasts."""
        async with listening(self) as there:
            self.url = there.url
            yield there


async def taken(call: Fields) -> Answer:
    """Acknowledge a call."""
    return 200, b"{}", {}


def result(call: Fields, text: str, **more: Any) -> Fields:
    """Return the callback that answers a call."""
    return {"type": "tool_result", "group_id": call["group_id"], "id": call["id"], "text": text, **more}


def event(call: Fields, text: str, **more: Any) -> Fields:
    """Return the callback that tells of an event."""
    named = {"group_id": call["group_id"], "tool_call_id": call["id"]}
    return {"type": "subscription_event", **named, "text": text, "associative": True, **more}
