"""Takes callbacks: checks them, stores them, and says so only then.

Everything about a request that can be judged without its body is judged before the body is read, its token included.
A callback that was answered with 200 is stored and synced: no crash loses it. One that was answered with anything else
changed nothing.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Final, TypeVar

import msgspec

from hibernaut.clock import Clock
from hibernaut.errors import (
    AlreadyAnswered,
    ConfigurationError,
    HibernautError,
    InputRefused,
    StoreError,
    ThreadClosed,
    TokenRefused,
    UnknownThread,
)
from hibernaut.ids import Ids, RandomIds
from hibernaut.kernel.head import Registry, Standing, registry_of
from hibernaut.messages.inputs import Event, InputMessage
from hibernaut.messages.text import clean
from hibernaut.metrics import Metrics
from hibernaut.rap.admission import (
    LOCAL_HOSTS,
    Heading,
    Refusal,
    check_content,
    check_sender,
    heading,
    is_loopback,
    refusal_to,
    unknown_path,
    wrong_method,
)
from hibernaut.rap.answers import TAKEN, Answer, TooMany, Unavailable, UnknownCall
from hibernaut.rap.arrivals import Arrival, View, arrive, scope_of
from hibernaut.rap.bodies import BODY_WITHIN, LINGER, Body, Gone, start
from hibernaut.rap.callbacks import Callback, Result, SubscriptionEvent, ViewUpdate
from hibernaut.rap.deliveries import Deliveries, Delivery
from hibernaut.rap.gathering import Gathering
from hibernaut.rap.limits import LIMITS, WireLimits
from hibernaut.rap.listening import Receive, Scope, Send
from hibernaut.rap.refusals import Tally
from hibernaut.rap.wire import CALLBACK_PATH, decode_callback
from hibernaut.stores.protocol import Outcome, Store
from hibernaut.tools.event_gate import EventGate
from hibernaut.tools.tokens import EXPIRED, Grant, KeyRing, read_expired

logger = logging.getLogger(__name__)

T = TypeVar("T")

LARGE_BODY: Final = 256 * 1024
"""Bytes above which a body is read in a thread, so that the others need not wait for it."""

HEALTH_PATH: Final = "/rap/health"
"""Where the receiver says that it is there, and what it has counted."""

OnView = Callable[[str, str, str], None]
"""Called with thread, kind and content (JSON text) of a view that was stored."""

_EXPECTED: Final = (InputRefused, StoreError, TooMany, Unavailable)
"""Whatever else goes wrong is a defect."""

_OVER: Final = ("answered", "cancelled", "expired")
"""States of a call in which it brings no events any more."""


class _Post(msgspec.Struct):
    """One POST while it is dealt with."""

    body: Body
    head: Heading
    peer: str
    grant: Grant | None = None


class CallbackReceiver:
    """An ASGI app for `POST …/rap/callback/{token}` and `GET …/rap/health`.

    Args:
        store: where threads are.
        keys: what callback tokens are signed with.
        clock: tells when a token has expired.
        limits: what a body may be.
        hosts: names that requests may be sent to, with a port or for any port; None for any name, which is for a
            receiver behind a public URL. IPv6 addresses stand in brackets.
        allow_unsigned_loopback: take callbacks without a token at `…/rap/callback` from servers on this machine. Not
            for a machine on which a proxy passes on what others send.
        body_within: milliseconds in which a whole body must have come.
        on_view: told of views once they are stored.
        ids: names deliveries.
        metrics: where what became of callbacks is counted.

    Raises:
        ConfigurationError: unsigned callbacks would be taken under any name.
    """

    def __init__(
        self,
        store: Store,
        keys: KeyRing,
        clock: Clock,
        *,
        limits: WireLimits = LIMITS,
        hosts: Collection[str] | None = LOCAL_HOSTS,
        allow_unsigned_loopback: bool = False,
        body_within: int = BODY_WITHIN,
        on_view: OnView | None = None,
        ids: Ids | None = None,
        metrics: Metrics | None = None,
    ) -> None:
        if allow_unsigned_loopback and hosts is None:
            raise ConfigurationError(
                "callbacks without a token are taken only under names that are known: set `hosts`, or turn "
                "`allow_unsigned_loopback` off"
            )
        self._store = store
        self._keys = keys
        self._clock = clock
        self._limits = limits
        self._hosts = None if hosts is None else frozenset(host.lower() for host in hosts)
        self._unsigned = allow_unsigned_loopback
        self._body_within = body_within
        self._on_view = on_view
        self._deliveries = Deliveries(ids or RandomIds())
        self._tally = Tally()
        self._gate = EventGate(store)
        self._metrics = metrics or Metrics()
        self._metrics.callbacks = self._tally.counts
        self._heads = Gathering(self._read_heads)
        self._inputs = Gathering(self._put)

    @property
    def counts(self) -> Mapping[str, int]:
        """How many callbacks were taken ("taken"), and refused, by code."""
        return self._tally.counts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] == "lifespan":
            await _live(receive, send)
        elif scope["type"] == "http":
            head, path = heading(scope["headers"]), scope["path"]
            if path.endswith(HEALTH_PATH):
                await self._tell_health(scope["method"], head, send)
            else:
                peer = scope.get("client")
                await self._serve(scope["method"], path, _Post(Body(receive), head, peer[0] if peer else ""), send)

    async def _tell_health(self, method: str, head: Heading, send: Send) -> None:
        refusal = wrong_method("GET") if method != "GET" else check_sender(head, self._hosts)
        health = Answer(200, msgspec.json.encode({"ok": True, "keys": self._keys.newest, **self.counts}))
        await _answer(send, health if refusal is None else refusal.answer)

    async def _serve(self, method: str, path: str, post: _Post, send: Send) -> None:
        try:
            refusal = self._admit(method, path, post)
            if refusal is None:
                await self._take(post)
        except Gone:
            self._tally.refuse("broken_off", 0, post.peer, post.grant, self._clock.now())
            return
        except HibernautError as error:
            if not isinstance(error, _EXPECTED):
                logger.exception("a callback could not be taken: this is a defect")
            refusal = refusal_to(error)
        except Exception:
            logger.exception("a callback could not be taken: this is a defect")
            refusal = msgspec.structs.replace(refusal_to(HibernautError()), code="defect")
        if refusal is None:
            self._tally.take()
            await send(_TAKEN_START)
            await send(_TAKEN_BODY)
            return
        self._tally.refuse(refusal.code, refusal.answer.status, post.peer, post.grant, self._clock.now())
        await post.body.answer(send, refusal.answer, min(self._body_within, LINGER))

    def _admit(self, method: str, path: str, post: _Post) -> Refusal | None:
        """Judge what can be judged without the body.

        Raises:
            TokenRefused.
        """
        if method != "POST":
            return wrong_method("POST")
        _, found, rest = f"{path}/".rpartition(CALLBACK_PATH)
        token = rest.removesuffix("/")
        if not found or "/" in token:
            return unknown_path()
        refusal = check_sender(post.head, self._hosts) or check_content(post.head, self._limits)
        if refusal is None and token:
            post.grant = read_expired(self._keys, token)
        elif refusal is None and not (self._unsigned and is_loopback(post.peer) and not post.head.forwarded):
            raise TokenRefused("there is no callback token in the path")
        return refusal

    async def _take(self, post: _Post) -> None:
        """Read a callback and store it.

        Raises:
            Gone: its sender hung up. HibernautError: it was not stored.
        """
        if post.grant is not None and post.grant.is_over(self._clock.now()):
            await self._check_lasts(post.grant)
        body = await post.body.read(self._limits.callback_bytes, self._body_within)
        callback = await _work(len(body), partial(decode_callback, body, self._limits))
        if post.grant is not None:
            post.grant.check(*scope_of(callback))
        if isinstance(callback, ViewUpdate):
            await self._show(callback, post.grant)
        elif isinstance(callback, SubscriptionEvent) and not callback.event_id:
            async with self._delivered(callback, body, post) as delivery:
                await self._store_input(callback, body, post.grant, delivery.identity)
        else:
            await self._store_input(callback, body, post.grant)

    async def _check_lasts(self, grant: Grant) -> None:
        """Let a token whose time is up go on for a subscription: it is good for as long as that is active.

        Raises:
            TokenRefused: the call is none.
        """
        status, head = await self._heads.join(clean(grant.thread_id))
        call = registry_of(head).calls.get(clean(grant.call_id)) if status and status != "closed" else None
        if call is None or call.state != "subscribed":
            raise TokenRefused(EXPIRED)

    async def _show(self, callback: ViewUpdate, grant: Grant | None) -> None:
        view = arrive(callback, grant)
        if isinstance(view, View):
            if grant is not None:
                await self._check_made(view.thread_id, clean(grant.call_id))
            outcome = await self._store.put_view(view.thread_id, view.view_type, view.content, self._clock.now())
            _check(outcome, view.thread_id, "the thread has as many kinds of views as it may")
            self._tell(view)

    async def _check_made(self, thread_id: str, call_id: str) -> None:
        """Check that a thread has made a call: it is not another one, under the id of one that was deleted.

        Raises:
            UnknownThread, UnknownCall.
        """
        status, head = await self._heads.join(thread_id)
        if not status:
            raise UnknownThread(thread_id)
        if status == "closed" or call_id in registry_of(head).calls:
            return
        if not await self._store.knows(thread_id, f"result:{call_id}"):
            raise UnknownCall(thread_id, call_id)

    def _tell(self, view: View) -> None:
        if self._on_view is None:
            return
        try:
            self._on_view(view.thread_id, view.view_type, view.content)
        except Exception:
            logger.exception("a view is stored, but whoever is told of views has failed")

    async def _store_input(self, callback: Callback, body: bytes, grant: Grant | None, delivery: str = "") -> None:
        _, thread, named = scope_of(callback)
        thread_id, call_id = clean(thread), clean(named or "")
        status, head = await self._heads.join(thread_id)
        if not status:
            raise UnknownThread(thread_id)
        known = None if status == "closed" else registry_of(head)
        call = known.calls.get(call_id) if known is not None else None
        tool = call.tool if call else "the tool"
        arrival = await _work(len(body), partial(arrive, callback, grant, tool, delivery))
        if not isinstance(arrival, Arrival):
            return
        if known is None or _is_open(call, callback):
            outcome = await self._put_checked(known, arrival, len(body))
        elif await self._store.knows(thread_id, arrival.message.message_id):
            outcome = await self._put_one(arrival, len(body))  # a duplicate, which is counted
        else:
            self._note_late(callback)
            raise UnknownCall(thread_id, call_id)
        if isinstance(callback, Result):
            self._note_result(f"{thread_id}\0{call_id}", body, outcome, call_id)
        if outcome is Outcome.CLOSED:
            self._note_late(callback)
        _check(outcome, thread_id, "as many events wait for the thread as may")

    async def _put_checked(self, thread: Registry | None, arrival: Arrival, size: int) -> Outcome:
        """Store an input; an event only if its thread (None: a closed one) takes it, or has taken it before."""
        message = arrival.message
        if thread is not None and isinstance(message.content, Event):
            try:
                await self._gate.check(thread, message.content, self._clock.now(), arrival.blobs)
            except InputRefused:
                if not await self._store.knows(message.thread_id, message.message_id):
                    raise
                return Outcome.DUPLICATE
        return await self._put_one(arrival, size)

    async def _put_one(self, arrival: Arrival, size: int) -> Outcome:
        """Store an input, together with others unless it is large: what there is no room for fails alone."""
        if size <= LARGE_BODY and not arrival.blobs:
            return await self._inputs.join(arrival.message)
        return (await self._store.put([arrival.message], self._clock.now(), blobs=arrival.blobs))[0]

    async def _put(self, messages: Sequence[InputMessage]) -> list[Outcome]:
        return await self._store.put(messages, self._clock.now())

    async def _read_heads(self, thread_ids: Sequence[str]) -> list[tuple[str, bytes]]:
        found = await self._store.read_heads(thread_ids)
        return [found.get(thread_id, ("", b"")) for thread_id in thread_ids]

    def _note_late(self, callback: Callback) -> None:
        if isinstance(callback, SubscriptionEvent):
            self._metrics.late_events += 1

    def _note_result(self, scope: str, body: bytes, outcome: Outcome, call_id: str) -> None:
        """Tell a result that is sent again, because its sender did not hear of the 200, from a second one."""
        if outcome in (Outcome.ACCEPTED, Outcome.HELD):
            self._deliveries.note_result(scope, body)
        elif outcome is Outcome.DUPLICATE and not self._deliveries.is_repeat(scope, body):
            raise AlreadyAnswered(f"call {call_id!r} has its result")

    @asynccontextmanager
    async def _delivered(self, event: SubscriptionEvent, body: bytes, post: _Post) -> AsyncIterator[Delivery]:
        """Give an event without an id an identity, and find out meanwhile whether its sender still listens."""
        scope, key = f"{event.group_id}\0{event.tool_call_id}", "\0".join(post.head.idempotency_key)
        delivery = self._deliveries.begin(scope, body, self._clock.now(), key)
        watching = asyncio.create_task(self._doubt_when_gone(delivery, post.body.receive))
        try:
            yield delivery
        except BaseException:
            self._deliveries.doubt(delivery, self._clock.now())
            raise
        finally:
            watching.cancel()
            await asyncio.wait([watching])

    async def _doubt_when_gone(self, delivery: Delivery, receive: Receive) -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        self._deliveries.doubt(delivery, self._clock.now())


async def _work(size: int, work: Callable[[], T]) -> T:
    return work() if size <= LARGE_BODY else await asyncio.to_thread(work)


def _is_open(call: Standing | None, callback: Callback) -> bool:
    if call is None or (isinstance(callback, Result) and call.state == "answered"):
        return False
    return not (isinstance(callback, SubscriptionEvent) and call.state in _OVER)


def _check(outcome: Outcome, thread_id: str, full: str) -> None:
    if outcome is Outcome.UNKNOWN:
        raise UnknownThread(thread_id)
    if outcome is Outcome.CLOSED:
        raise ThreadClosed(thread_id)
    if outcome is Outcome.FULL:
        raise TooMany(full)


# ASGI


async def _live(receive: Receive, send: Send) -> None:
    while True:
        kind = (await receive())["type"]
        await send({"type": f"{kind}.complete"})
        if kind == "lifespan.shutdown":
            return


_TAKEN_START: Final = start(TAKEN)
_TAKEN_BODY: Final = {"type": "http.response.body", "body": TAKEN.body}


async def _answer(send: Send, answer: Answer) -> None:
    await send(start(answer))
    await send({"type": "http.response.body", "body": answer.body})
