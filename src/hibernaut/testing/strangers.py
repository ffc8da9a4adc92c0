"""Callbacks that must change nothing: forged, expired, truncated, meant for another call, or late.

They go to a receiver as those of tool servers do, beside the process under test. One that is taken is a divergence.
"""

import random
from collections.abc import MutableMapping
from typing import Any

from hibernaut.clock import Clock
from hibernaut.kernel.head import registry_of
from hibernaut.rap.callbacks import Result, SubscriptionEvent
from hibernaut.rap.receiver import CallbackReceiver
from hibernaut.rap.wire import CALLBACK_PATH, encode
from hibernaut.stores.protocol import Store
from hibernaut.testing.seen import THREAD
from hibernaut.testing.world import World
from hibernaut.tools.tokens import KINDS, Grant, KeyRing, sign

FOREIGN = KeyRing([b"the secret of somebody else"])

HOUR = 3_600_000

OVER = ("answered", "cancelled", "expired")
"""States of a call that brings no events any more."""

Called = tuple[str, str]
"""A thread and a call of it."""


class Strangers:
    """Whoever posts what must be refused, to the calls of one store."""

    def __init__(self, store: Store, secret: bytes, world: World, clock: Clock, chance: random.Random) -> None:
        self._store = store
        self._keys = KeyRing([secret])
        self._world = world
        self._clock = clock
        self._chance = chance
        self._receiver = CallbackReceiver(store, self._keys, clock, hosts=None)

    async def forge(self) -> None:
        """Post something forged to one of the calls that were made so far."""
        calls = await self._open_calls() or await self._calls()
        if not calls:
            return
        thread, call = self._chance.choice(calls)
        body = encode(Result(group_id=thread, id=call, text="forged"))
        soon = self._clock.now() + HOUR
        genuine = Grant(thread, call, soon, KINDS)
        token = sign(self._keys, genuine)
        posts = {
            "signed by somebody else": (sign(FOREIGN, genuine), body),
            "with a letter changed": (f"{token[:-1]}{'A' if token[-1] != 'A' else 'B'}", body),
            "expired": (sign(self._keys, Grant(thread, call, self._clock.now() - 1, KINDS)), body),
            "for another call": (sign(self._keys, Grant(thread, "call_of_somebody_else", soon, KINDS)), body),
            "for another thread": (sign(self._keys, Grant("thread_of_somebody_else", call, soon, KINDS)), body),
            "of another kind": (sign(self._keys, Grant(thread, call, soon, ("view_update",))), body),
            "truncated": (token, body[: self._chance.randrange(len(body))]),
            "no JSON": (token, b"\x00" + body),
        }
        what = self._chance.choice(list(posts))
        await self._expect_refusal("refused", f"a callback {what} for {call}", *posts[what])

    async def come_late(self) -> None:
        """Post events and results, genuine but late, to all calls that are over."""
        for thread, call in await self._calls():
            row = await self._store.read_head(thread)
            standing = registry_of(row.head).calls.get(call) if row is not None else None
            if standing is not None and standing.state not in OVER:
                continue
            token = sign(self._keys, Grant(thread, call, self._clock.now() + HOUR, KINDS))
            event = SubscriptionEvent(group_id=thread, tool_call_id=call, text="late", event_id="late")
            await self._expect_refusal("late", f"an event for {call}, which is over", token, encode(event))
            if await self._store.knows(thread, f"result:{call}"):
                result = Result(group_id=thread, id=call, text="another result")
                await self._expect_refusal("late", f"a second result for {call}", token, encode(result))

    async def _calls(self) -> list[Called]:
        """Return the calls of the tree: those in its registries, and those that its receipts name."""
        found = dict.fromkeys(await self._open_calls())
        for row in await self._store.read_tree(THREAD):
            for call in registry_of(row.head).calls:
                found[row.thread_id, call] = None
        found |= dict.fromkeys((thread, name.removeprefix("result:")) for thread, name in self._results())
        return list(found)

    async def _open_calls(self) -> list[Called]:
        owed = await self._store.read_effects()
        return [(row.thread_id, row.effect.call_id) for row in owed if row.effect.kind == "invoke"]

    def _results(self) -> list[Called]:
        accepted = [(str(thread), str(name)) for thread, name in self._world.of("accepted")]
        return [(thread, name) for thread, name in accepted if name.startswith("result:")]

    async def _expect_refusal(self, kind: str, what: str, token: str, body: bytes) -> None:
        status = await post(self._receiver, CALLBACK_PATH + token, body)
        if status < 400:  # noqa: PLR2004  # a status of HTTP
            self._world.note("divergence", "refusal", f"{what} was taken ({status})")
        else:
            self._world.note(kind, what, str(status))


async def post(app: CallbackReceiver, path: str, body: bytes) -> int:
    """Post a body to an ASGI app, and return the status of its answer."""
    statuses: list[int] = []
    scope: MutableMapping[str, Any] = {
        "type": "http",
        "method": "POST",
        "path": path,
        "headers": [(b"content-type", b"application/json"), (b"host", b"localhost")],
        "client": ("127.0.0.1", 1),
    }

    async def receive() -> MutableMapping[str, Any]:
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(message: MutableMapping[str, Any]) -> None:
        if message["type"] == "http.response.start":
            statuses.append(message["status"])

    await app(scope, receive, send)
    return statuses[0]
