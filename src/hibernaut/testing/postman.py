"""A bad network between a tool server and the processes that it answers.

Callbacks are passed on late, twice, or in another order; acknowledgements get lost; forged and truncated ones come
first. Nothing is acknowledged to the server that the process behind has not acknowledged.
"""

import asyncio
import random
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Final

from hibernaut.rap.answers import Answer
from hibernaut.rap.bodies import Body, start
from hibernaut.rap.exchange import Exchange, NoAnswer
from hibernaut.rap.limits import LIMITS
from hibernaut.rap.listening import LOOPBACK, Receive, Scope, Send, listening
from hibernaut.testing.world import World

PAUSE: Final = 0.02
"""Seconds between two tries to reach a process that is dead, or has not begun."""

PATIENCE: Final = 10.0
"""Seconds for which that is tried; then the server hears that nobody is there."""

BODY_WITHIN: Final = 5_000
"""Milliseconds."""

ANSWER_WITHIN: Final = 1_000
"""Milliseconds that a process may take; one that stands still takes longer."""

LONGEST_DELAY: Final = 0.03
"""Seconds."""

OFTEN, SELDOM = 0.3, 0.05

_NOBODY: Final = Answer(503, b"{}")
_REFUSED: Final = 400
_KEPT: Final = (b"idempotency-key", b"rap-version")


class Postman:
    """An ASGI app that passes callbacks on to the first of some ports of this machine that answers."""

    def __init__(self, ports: Sequence[int], exchange: Exchange) -> None:
        self.world = World()
        """Where it notes what was taken that had to be refused."""
        self.chance = random.Random(0)  # noqa: S311  # what is drawn is to be drawn again
        self.disturbs = False
        self._bases = [f"http://{LOOPBACK}:{port}" for port in ports]
        self._exchange = exchange

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass one callback on."""
        if scope["type"] != "http":
            return
        letter = await Body(receive).read(LIMITS.callback_bytes, BODY_WITHIN)
        kept = {name.decode(): value.decode() for name, value in scope["headers"] if name in _KEPT}
        answer = await self._deliver(scope["path"], letter, kept)
        await send(start(answer))
        await send({"type": "http.response.body", "body": answer.body})

    async def _deliver(self, path: str, body: bytes, headers: Mapping[str, str]) -> Answer:
        if not self.disturbs:
            return await self._pass_on(path, body, headers)
        if self.chance.random() < OFTEN:
            await asyncio.sleep(self.chance.uniform(0, LONGEST_DELAY))
        if self.chance.random() < OFTEN:
            await self._forge(path, body, headers)
        answer = await self._pass_on(path, body, headers)
        if self.chance.random() < OFTEN:
            await self._pass_on(path, body, headers)
        # The acknowledgement is lost: the server comes again.
        return _NOBODY if self.chance.random() < SELDOM else answer

    async def _forge(self, path: str, body: bytes, headers: Mapping[str, str]) -> None:
        if self.chance.random() < 0.5:  # noqa: PLR2004  # a coin
            what, forged = "truncated", (path, body[: self.chance.randrange(len(body) or 1)])
        else:
            what, forged = "forged", (f"{path[:-1]}{'A' if path[-1] != 'A' else 'B'}", body)
        status = (await self._pass_on(*forged, headers)).status
        if status < _REFUSED:
            self.world.note("divergence", "refusal", f"a callback that was {what} was taken")
        elif status != _NOBODY.status:
            self.world.note("refused", f"a callback that was {what}", str(status))

    async def _pass_on(self, path: str, body: bytes, headers: Mapping[str, str]) -> Answer:
        deadline = asyncio.get_running_loop().time() + PATIENCE
        while True:
            for base in self._bases:
                with suppress(NoAnswer):
                    reply = await self._exchange.post(base + path, body, headers)
                    return Answer(reply.status, reply.body)
            if asyncio.get_running_loop().time() > deadline:
                return _NOBODY
            await asyncio.sleep(PAUSE)


@asynccontextmanager
async def postman(*ports: int) -> AsyncIterator[tuple[Postman, str]]:
    """Let a postman work for the processes that take callbacks at some ports; yields it and its base URL."""
    async with Exchange(answer_within=ANSWER_WITHIN) as exchange:
        made = Postman(ports, exchange)
        async with listening(made) as address:
            yield made, address.url
