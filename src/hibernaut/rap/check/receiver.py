"""A callback receiver for one program run: every call has an address of its own, whatever the server writes into it.

It keeps nothing but what it was sent while it lasts. A delivery is judged by the code of the runtime and answered as
the runtime answers it, unless a check tells it to answer otherwise.
"""

import asyncio
import contextlib
import secrets
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

import msgspec

from hibernaut.clock import Clock
from hibernaut.errors import HibernautError, InputRefused, TokenRefused
from hibernaut.messages.text import decode, shorten
from hibernaut.rap.admission import check_content, check_sender, heading, refusal_to
from hibernaut.rap.answers import TAKEN, Answer, answer_to
from hibernaut.rap.arrivals import arrive
from hibernaut.rap.bodies import BODY_WITHIN, Body, Gone
from hibernaut.rap.callbacks import Callback, OAuth, Result, SubscriptionEvent, UserChoice
from hibernaut.rap.invocations import callback_url
from hibernaut.rap.limits import LIMITS
from hibernaut.rap.listening import Receive, Scope, Send
from hibernaut.rap.reading import read_object
from hibernaut.rap.requests import Invocation
from hibernaut.rap.wire import decode_callback
from hibernaut.tools.tokens import KINDS, Grant

MOST_DELIVERIES: Final = 10_000
"""Deliveries to one call that are kept; what is above is answered with 429 and forgotten."""

LONGEST_EXCERPT: Final = 120
"""Characters of a text or a body that are told."""

_SOME: Final = "some"
"""The identity of a delivery that is only judged."""

_FLOODED: Final = Answer(429, b'{"error":"too_many","message":"more than this check looks at"}')


class Delivery(msgspec.Struct, frozen=True):
    """One POST to a call's address. `at` is the moment it arrived, in milliseconds since 1970."""

    at: int
    content_type: str
    body: bytes
    callback: Callback | None
    """What it says, None if a runtime would not take it."""
    problem: str = ""
    """Why a runtime would refuse it, and with which status; "" if it would not."""
    kind: str = ""
    """The `type` that it names, as far as that can be read."""
    written: Callback | None = None
    """What it says, also if it is refused: None if it cannot be read."""
    status: int = 200
    """What it was answered with."""

    @property
    def words(self) -> str:
        """What it says, for people."""
        match self.written:
            case Result() | SubscriptionEvent():
                said = self.written.text
            case UserChoice():
                said = self.written.prompt
            case OAuth():
                said = self.written.auth_url
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

    async def take(self, delivery: Delivery, usual: Answer) -> Answer:
        """Keep a delivery and return what it is answered with: as usual, unless something else was asked for."""
        if len(self.deliveries) >= MOST_DELIVERIES:
            return _FLOODED
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
        self._grants: dict[str, Grant] = {}

    def inbox(self) -> Inbox:
        """Make an address for one call."""
        token = secrets.token_urlsafe(24)
        inbox = self._inboxes[token] = Inbox(callback_url(self.public, token))
        return inbox

    def expect(self, inbox: Inbox, call: Invocation) -> None:
        """Say which call an address is for. What names another is refused, as it is under a callback token."""
        token = inbox.url.rpartition("/")[2]
        self._grants[token] = Grant(call.group_id, call.id, kinds=KINDS)

    @property
    def deliveries(self) -> list[Delivery]:
        """All that has arrived, call by call."""
        return [delivery for inbox in self._inboxes.values() for delivery in inbox.deliveries]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            raise NotImplementedError("it speaks HTTP only")
        body = Body(receive)
        with contextlib.suppress(Gone):
            await body.answer(send, await self._answer(scope, body))

    async def _answer(self, scope: Scope, body: Body) -> Answer:
        at = self._clock.now()
        token = str(scope["path"]).rpartition("/")[2]
        inbox = self._inboxes.get(token)
        if scope["method"] != "POST" or inbox is None:
            return answer_to(TokenRefused("no call has this address"))
        head = heading(scope["headers"])
        refused = check_sender(head, None) or check_content(head, LIMITS)
        came = Delivery(at, ", ".join(head.content_type), b"", None)
        try:
            came = _with_body(came, await body.read(LIMITS.callback_bytes, BODY_WITHIN))
            if refused is None:
                came = _judged(came, self._grants.get(token))
        except HibernautError as error:
            refused = refused or refusal_to(error)
        if refused is None:
            return await inbox.take(came, TAKEN)
        problem = f"refused with {refused.answer.status}: {_message(refused.answer)}"
        return await inbox.take(msgspec.structs.replace(came, callback=None, problem=problem), refused.answer)


def _with_body(came: Delivery, body: bytes) -> Delivery:
    """Take in a body and what it says, as far as that can be read; nothing is judged yet."""
    try:
        written = decode_callback(body)
    except InputRefused:
        return msgspec.structs.replace(came, body=body, kind=_kind_in(body))
    kind = str(type(written).__struct_config__.tag)
    return msgspec.structs.replace(came, body=body, kind=kind, written=written)


def _judged(came: Delivery, grant: Grant | None) -> Delivery:
    """Take a delivery as the runtime does.

    Raises:
        MalformedInput, TooLarge, TokenRefused: the runtime would refuse it.
    """
    callback = came.written or decode_callback(came.body)
    arrive(callback, grant, delivery=_SOME)
    return msgspec.structs.replace(came, callback=callback)


def _kind_in(body: bytes) -> str:
    try:
        fields = read_object(body, what="it", limit=len(body), setting="", depth=LIMITS.depth)
    except InputRefused:
        return ""
    named = fields.get("type")
    return named if isinstance(named, str) else ""


def _message(answer: Answer) -> str:
    message: str = msgspec.json.decode(answer.body)["message"]
    return message
