"""A callback receiver for one program run: every call has an address of its own, whatever the server writes into it.

It keeps nothing but what it was sent while it lasts, and answers each delivery as it is told to.
"""

import asyncio
import secrets
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

import msgspec

from hibernaut.clock import Clock
from hibernaut.errors import InputRefused, MalformedInput, TokenRefused, TooLarge
from hibernaut.messages.text import decode, shorten
from hibernaut.rap.answers import TAKEN, Answer, answer_to
from hibernaut.rap.callbacks import Callback, OAuth, Result, SubscriptionEvent, UserChoice
from hibernaut.rap.invocations import callback_url
from hibernaut.rap.limits import LIMITS
from hibernaut.rap.listening import Receive, Scope, Send
from hibernaut.rap.wire import decode_callback

MOST_DELIVERIES: Final = 10_000
"""Deliveries to one call that are kept; what is above is answered with 429 and forgotten."""

LONGEST_EXCERPT: Final = 120
"""Characters of a text or a body that are told."""

_FLOODED: Final = Answer(429, b'{"error":"too_many","message":"more than this check looks at"}')


class Delivery(msgspec.Struct, frozen=True):
    """One POST to a call's address. `at` is the moment it arrived, in milliseconds since 1970."""

    at: int
    content_type: str
    body: bytes
    callback: Callback | None
    problem: str = ""
    """Why it is no callback, "" if it is one."""
    kind: str = ""
    """The `type` that it names, as far as that can be read."""
    status: int = 200
    """What it was answered with."""

    @property
    def words(self) -> str:
        """What it says, for people."""
        match self.callback:
            case Result() | SubscriptionEvent():
                said = self.callback.text
            case UserChoice():
                said = self.callback.prompt
            case OAuth():
                said = self.callback.auth_url
            case _:
                said = decode(self.body[: 8 * LONGEST_EXCERPT])
        words = f"{self.kind or 'a callback'}: {shorten(said, LONGEST_EXCERPT)}"
        return f"{words} ({self.problem})" if self.problem else words


class Inbox:
    """What arrives for one call. Answers are taken from `answers`, then everything well-formed is taken."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.deliveries: list[Delivery] = []
        self.answers: deque[Answer] = deque()
        self._arrived = asyncio.Event()
        self._open = asyncio.Event()
        self._open.set()

    async def next(
        self, within: int | None, wanted: Callable[[Delivery], bool] = lambda _: True, after: int = 0
    ) -> Delivery | None:
        """Return the first delivery that is wanted, leaving out the first `after` of all; None if the time is up.

        `within` is in milliseconds, None for as long as it takes.
        """
        try:
            async with asyncio.timeout(None if within is None else within / 1_000):
                while True:
                    arrived = self._arrived
                    for delivery in self.deliveries[after:]:
                        if wanted(delivery):
                            return delivery
                    after = max(after, len(self.deliveries))
                    await arrived.wait()
        except TimeoutError:
            return None

    @contextmanager
    def held(self) -> Iterator[None]:
        """Leave whoever delivers without an answer as long as this lasts."""
        self._open.clear()
        try:
            yield
        finally:
            self._open.set()

    async def take(self, delivery: Delivery) -> Answer:
        """Keep a delivery and return what it is answered with."""
        if len(self.deliveries) >= MOST_DELIVERIES:
            return _FLOODED
        usual = answer_to(MalformedInput(delivery.problem)) if delivery.problem else TAKEN
        answer = self.answers.popleft() if self.answers else usual
        self.deliveries.append(msgspec.structs.replace(delivery, status=answer.status))
        self._arrived.set()
        self._arrived = asyncio.Event()
        await self._open.wait()
        return answer


class Receiver:
    """An ASGI app that takes callbacks. `public` must be set before a call is made: where servers reach it."""

    def __init__(self, clock: Clock) -> None:
        self.public = ""
        self._clock = clock
        self._inboxes: dict[str, Inbox] = {}

    def inbox(self) -> Inbox:
        """Make an address for one call."""
        token = secrets.token_urlsafe(24)
        inbox = self._inboxes[token] = Inbox(callback_url(self.public, token))
        return inbox

    @property
    def deliveries(self) -> list[Delivery]:
        """All that has arrived, call by call."""
        return [delivery for inbox in self._inboxes.values() for delivery in inbox.deliveries]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            raise NotImplementedError("it speaks HTTP only")
        answer = await self._answer(scope, receive)
        headers = [(name.lower().encode(), value.encode()) for name, value in answer.headers]
        await send({"type": "http.response.start", "status": answer.status, "headers": headers})
        await send({"type": "http.response.body", "body": answer.body})

    async def _answer(self, scope: Scope, receive: Receive) -> Answer:
        at = self._clock.now()
        inbox = self._inboxes.get(str(scope["path"]).rpartition("/")[2])
        if scope["method"] != "POST" or inbox is None:
            return answer_to(TokenRefused("no call has this address"))
        try:
            body = await _body(receive)
        except InputRefused as error:
            return answer_to(error)
        content_type = dict(scope["headers"]).get(b"content-type", b"").decode("latin-1")
        return await inbox.take(_read(at, content_type, body))


async def _body(receive: Receive) -> bytes:
    chunks: list[bytes] = []
    size, more = 0, True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise MalformedInput("the sender hung up before it had sent all")
        chunks.append(message.get("body", b""))
        size += len(chunks[-1])
        more = message.get("more_body", False)
        if size > LIMITS.callback_bytes:
            raise TooLarge("the callback", size, LIMITS.callback_bytes, "callback_bytes")
    return b"".join(chunks)


def _read(at: int, content_type: str, body: bytes) -> Delivery:
    try:
        return Delivery(at, content_type, body, callback := decode_callback(body), kind=_kind(callback))
    except InputRefused as error:
        return Delivery(at, content_type, body, None, str(error), _kind_in(body))


def _kind(callback: Callback) -> str:
    return str(type(callback).__struct_config__.tag)


def _kind_in(body: bytes) -> str:
    try:
        fields: Any = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return ""
    return str(fields.get("type", "")) if isinstance(fields, dict) else ""
