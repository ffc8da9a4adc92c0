"""The body of a callback off ASGI, and the answer to it."""

import asyncio
from contextlib import suppress
from typing import Final

import msgspec

from hibernaut.errors import TooLarge
from hibernaut.rap.answers import Answer, Unavailable
from hibernaut.rap.listening import Receive, Send

BODY_WITHIN: Final = 30_000
"""Milliseconds in which a whole body must have come."""

LINGER: Final = 1_000
"""Milliseconds for which the rest of a body is thrown away that was refused before it was read: a connection that is
closed under a sender takes the answer along."""


class Gone(Exception):  # a signal, not an error: nobody is there to hear of it
    """The sender hung up before its body was there."""


class Body(msgspec.Struct):
    """A body while it comes. `whole`: it was read to the end."""

    receive: Receive
    whole: bool = False

    async def read(self, limit: int, within: int) -> bytes:
        """Read it, no further than its bound. `within` is in milliseconds.

        Raises:
            TooLarge. Unavailable: it took too long. Gone: its sender hung up.
        """
        try:
            async with asyncio.timeout(within / 1_000):
                body, more = await _piece(self.receive)
                if more:
                    pieces, size = [body], len(body)
                    while more and size <= limit:
                        piece, more = await _piece(self.receive)
                        pieces.append(piece)
                        size += len(piece)
                    body = b"".join(pieces)
        except TimeoutError:
            raise Unavailable(f"the body had not come within {within / 1_000:g} s") from None
        self.whole = not more
        if len(body) > limit:
            raise TooLarge("the callback", len(body), limit, "callback_bytes", cut_short=not self.whole)
        return body

    async def answer(self, send: Send, answer: Answer, linger: int = LINGER) -> None:
        """Answer, and throw away what was not read, for so many milliseconds at most."""
        if self.whole:
            await send(start(answer))
            await send({"type": "http.response.body", "body": answer.body})
            return
        await send(start(answer, (b"connection", b"close")))
        await send({"type": "http.response.body", "body": answer.body, "more_body": True})
        with suppress(Gone, TimeoutError):
            async with asyncio.timeout(linger / 1_000):
                while (await _piece(self.receive))[1]:
                    pass
        await send({"type": "http.response.body", "body": b""})


async def _piece(receive: Receive) -> tuple[bytes, bool]:
    message = await receive()
    if message["type"] == "http.disconnect":
        raise Gone
    return message.get("body", b""), message.get("more_body", False)


def start(answer: Answer, *more: tuple[bytes, bytes]) -> dict[str, object]:
    """Return the beginning of an answer as ASGI has it."""
    headers = [(name.lower().encode(), value.encode()) for name, value in answer.headers]
    length = (b"content-length", b"%d" % len(answer.body))
    return {"type": "http.response.start", "status": answer.status, "headers": [*headers, length, *more]}
