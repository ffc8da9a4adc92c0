"""What the tests of the receiver are written with: a store with an open call, a receiver that listens, and posts."""

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from hibernaut.kernel.authority import Authority
from hibernaut.kernel.commit import NewThread
from hibernaut.kernel.config import LaunchConfig, encode_config
from hibernaut.kernel.head import Call, Head, encode_head
from hibernaut.rap.exchange import Exchange, Reply
from hibernaut.rap.invocations import callback_url
from hibernaut.rap.listening import Address, listening
from hibernaut.rap.receiver import CallbackReceiver
from hibernaut.stores.protocol import Store
from hibernaut.stores.sqlite import SqliteStore
from hibernaut.testing.clock import ManualClock
from hibernaut.tools.tokens import KINDS, Grant, KeyRing, sign

START = 1_700_000_000_000
KEYS = KeyRing([b"a secret of the tests"])
CALLS = {
    "call_a": Call("call_a", "build", state="open"),
    "call_s": Call("call_s", "watch", mode="subscription", state="subscribed"),
    "call_h": Call("call_h", "build", state="answered"),
    "call_x": Call("call_x", "watch", mode="subscription", state="cancelled"),
}


def thread(name: str = "t", calls: dict[str, Call] = CALLS, authority: Authority | None = None) -> NewThread:
    digest, body = encode_config(LaunchConfig(authority=authority or Authority()))
    return NewThread(name, "", encode_head(Head(name, b"", digest, calls=calls)), digest, body, START)


def grant(call: str = "call_a", name: str = "t", expires: int = START + 1_000) -> Grant:
    return Grant(name, call, expires, KINDS)


def token(call: str = "call_a", name: str = "t", expires: int = START + 1_000) -> str:
    return sign(KEYS, grant(call, name, expires))


def result(call: str = "call_a", name: str = "t", **fields: Any) -> dict[str, Any]:
    return {"type": "tool_result", "group_id": name, "id": call, "text": "built", **fields}


def event(call: str = "call_s", name: str = "t", **fields: Any) -> dict[str, Any]:
    return {"type": "subscription_event", "group_id": name, "tool_call_id": call, "text": "it rained", **fields}


def view(name: str = "t", **fields: Any) -> dict[str, Any]:
    return {"type": "view_update", "group_id": name, "view_type": "plan", "content": {"steps": 2}, **fields}


class Receiving:
    """A receiver that listens."""

    def __init__(self, receiver: CallbackReceiver, store: Store, there: Address, exchange: Exchange) -> None:
        self.receiver = receiver
        self.store = store
        self.there = there
        self._exchange = exchange

    async def post(self, body: object, token: str = "", headers: dict[str, str] | None = None) -> Reply:
        """Post a callback, under the token of the call that it names unless told otherwise."""
        written = body if isinstance(body, bytes) else json.dumps(body).encode()
        if not token and isinstance(body, dict):
            token = sign(KEYS, grant(body.get("id") or body.get("tool_call_id") or "call_a", body["group_id"]))
        return await self._exchange.post(callback_url(self.there.url, token), written, headers)

    async def status(self, body: object, token: str = "", headers: dict[str, str] | None = None) -> tuple[int, str]:
        """Post; return the status and the code of the error."""
        reply = await self.post(body, token, headers)
        return reply.status, json.loads(reply.body).get("error", "")

    async def raw(self, data: bytes, *, then: bytes = b"") -> bytes:
        """Send bytes, and more once something was answered; return all that came until the end of the connection."""
        reader, writer = await asyncio.open_connection(self.there.host, self.there.port)
        try:
            writer.write(data)
            await writer.drain()
            answered = await reader.read(1) if then else b""
            writer.write(then)
            return answered + await reader.read()
        finally:
            writer.close()
            await writer.wait_closed()

    async def inbox(self, name: str = "t") -> list[str]:
        return [message.message_id for message in await self.store.read_inbox(name)]


@asynccontextmanager
async def receiving(store: Store, clock: ManualClock | None = None, **options: Any) -> AsyncIterator[Receiving]:
    """Let a receiver listen for a store that has the thread "t"."""
    await store.create([thread()], [], START)
    receiver = CallbackReceiver(store, KEYS, clock or ManualClock(START), **options)
    async with listening(receiver) as there, Exchange() as exchange:
        yield Receiving(receiver, store, there, exchange)


async def serve(path: str) -> None:
    """Take callbacks until killed; say where."""
    store = await SqliteStore.open(path)
    async with receiving(store) as served:
        os.write(1, f"{served.there.port}\n".encode())
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(serve(sys.argv[1]))
