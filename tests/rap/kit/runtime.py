"""The other side of a tool server, for its tests: it posts calls and records what is called back."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from hibernaut.rap import ToolServer
from hibernaut.rap.exchange import Exchange, Reply
from hibernaut.rap.kit.service import UPKEEP_EVERY
from hibernaut.rap.listening import Receive, Scope, Send, listening
from hibernaut.rap.wire import CANCEL_PATH, CLOSE_PATH, STATUS_PATH, TOOLSET_PATH
from hibernaut.testing.clock import ManualClock

Said = dict[str, Any]


class Runtime:
    """Takes callbacks. `answers` says how the next ones are answered: a status, or a status and `Retry-After`."""

    def __init__(self, exchange: Exchange, url: str) -> None:
        self.exchange = exchange
        self.url = url
        self.server = ""
        self.taken: list[Said] = []
        self.tried: list[tuple[str, Said]] = []
        self.answers: list[int | tuple[int, str]] = []
        self.closed = asyncio.Event()
        self.closed.set()
        self._moved = asyncio.Event()

    async def take(self, path: str, receive: Receive, send: Send) -> None:
        """Take a callback, or not."""
        body = b""
        while True:
            message = await receive()
            body += message.get("body", b"")
            if not message.get("more_body"):
                break
        said = json.loads(body)
        self.tried.append((path, said))
        self._moved.set()
        await self.closed.wait()
        answer = self.answers.pop(0) if self.answers else 200
        status, wait = answer if isinstance(answer, tuple) else (answer, "")
        if status == 200:
            self.taken.append(said)
            self._moved.set()
        headers = [(b"content-type", b"application/json"), *([(b"retry-after", wait.encode())] if wait else [])]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": b"{}"})

    @asynccontextmanager
    async def calling(self, server: ToolServer) -> AsyncIterator[None]:
        """Run a server, and call that one from now on."""
        async with server.running() as address:
            self.server = address.url
            yield

    async def tries(self, count: int) -> list[tuple[str, Said]]:
        """Wait until so many callbacks were brought, taken or not."""
        async with asyncio.timeout(10):
            while len(self.tried) < count:
                self._moved.clear()
                await self._moved.wait()
        return self.tried

    async def gets(self, count: int = 1) -> list[Said]:
        """Wait for callbacks that are taken; all so far."""
        async with asyncio.timeout(10):
            while len(self.taken) < count:
                self._moved.clear()
                await self._moved.wait()
        return self.taken

    async def ends(self, name: str) -> list[Said]:
        """Wait for the last event of a subscription; all its events so far, each once."""
        async with asyncio.timeout(30):
            while not any(each.get("final") and each["tool_call_id"] == name for each in self.taken):
                self._moved.clear()
                await self._moved.wait()
        events = [each for each in self.taken if each.get("tool_call_id") == name]
        return list({each["event_id"]: each for each in events}.values())

    async def post(self, path: str, body: object, headers: dict[str, str] | None = None) -> Reply:
        """Post to the server; bytes go as they are."""
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        return await self.exchange.post(path if "://" in path else self.server + path, data, headers)

    async def call(self, operation: str, arguments: Said | None = None, *, name: str = "c1", **more: Any) -> Reply:
        """Call a tool."""
        key = more.pop("key", None)
        body = {
            "operation": operation,
            "arguments": arguments or {},
            "id": name,
            "call_id": f"toolu_{name}",
            "callback_url": f"{self.url}/{name}",
            "group_id": "t1",
            "thread_ancestors": None,
            **more,
        }
        return await self.post("/rap/call", body, {"Idempotency-Key": key} if key else None)

    async def cancel(self, name: str = "c1", thread: str = "t1") -> Reply:
        """Cancel a call."""
        return await self.post(CANCEL_PATH, {"thread_id": thread, "tool_call_id": name})

    async def close(self, thread: str = "t1") -> Reply:
        """Close a thread."""
        return await self.post(CLOSE_PATH, {"thread_id": thread})

    async def alive(self, name: str = "c1") -> bool:
        """Ask for the status of a call."""
        reply = await self.post(STATUS_PATH, {"thread_id": "t1", "tool_call_id": name})
        assert reply.status == 200
        alive: bool = json.loads(reply.body)["alive"]
        return alive

    async def toolset(self) -> Said:
        """Fetch the manifest."""
        reply = await self.exchange.get(self.server + TOOLSET_PATH)
        assert reply.status == 200
        manifest: Said = json.loads(reply.body)
        return manifest


class HeardClock(ManualClock):
    """A clock that says who sleeps."""

    def __init__(self) -> None:
        super().__init__()
        self._naps: asyncio.Queue[int] = asyncio.Queue()

    async def sleep(self, milliseconds: int) -> None:
        self._naps.put_nowait(milliseconds)
        await super().sleep(milliseconds)

    async def nap(self) -> int:
        """Wait until somebody goes to sleep, upkeep aside, and return for how many milliseconds."""
        async with asyncio.timeout(10):
            while (milliseconds := await self._naps.get()) >= UPKEEP_EVERY:
                pass
            return milliseconds


class Receiver:
    """One listener for the callbacks of all tests: a runtime of its own for each."""

    def __init__(self, exchange: Exchange, url: str = "") -> None:
        self.exchange = exchange
        self.url = url
        self.runtimes: list[Runtime] = []

    def runtime(self) -> Runtime:
        """Return a new one."""
        self.runtimes.append(Runtime(self.exchange, f"{self.url}/{len(self.runtimes)}"))
        return self.runtimes[-1]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            raise NotImplementedError("it has no lifespan")
        _, number, path = scope["path"].split("/", 2)
        await self.runtimes[int(number)].take(path, receive, send)


@asynccontextmanager
async def receiving() -> AsyncIterator[Receiver]:
    """Listen for callbacks."""
    async with Exchange() as exchange:
        receiver = Receiver(exchange)
        async with listening(receiver) as address:
            receiver.url = address.url
            yield receiver
