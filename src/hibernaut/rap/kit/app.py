"""The face of a tool server: its routes, and what they answer."""

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Final
from urllib.parse import urlsplit

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Match, Route, Router

from hibernaut.errors import HibernautError, MalformedInput
from hibernaut.messages.text import shorten
from hibernaut.rap.answers import TAKEN, Unavailable
from hibernaut.rap.kit.guard import Guard, RequestRefused, read_body, response_to
from hibernaut.rap.kit.paths import CALL_PATH, RESPONSE_PATH
from hibernaut.rap.kit.service import Service
from hibernaut.rap.limits import LONGEST_ID, WireLimits
from hibernaut.rap.listening import App, Receive, Scope, Send
from hibernaut.rap.requests import Alive, AskStatus, CancelToolCall, CloseThread, Invocation, Migrate, Selected
from hibernaut.rap.wire import (
    CANCEL_PATH,
    CLOSE_PATH,
    MIGRATE_PATH,
    STATUS_PATH,
    TOOLSET_PATH,
    R,
    decode,
    encode,
)

Migration = Callable[[str, str], Awaitable[object]]
"""Moves the state of a session (its id, and the URL it goes to); it returns when that has moved."""

_LONGEST_EXCERPT: Final = 500


class Acknowledged(Response):
    """A 200 after which something begins: never before, and even if the runtime did not stay to read it."""

    def __init__(self, then: Callable[[], None]) -> None:
        super().__init__(TAKEN.body, TAKEN.status, dict(TAKEN.headers))
        self._then = then

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._then()


class Face:
    """Answers what comes over HTTP.

    Args:
        service: the running parts, None while there are none.
        manifest: what is answered at the well-known path, by the URL that the server was called under.
        limits: how large a body may be.
        secret: what a request must bear, if anything.
        url: the server's own public URL, "" for the one that a request was sent to.
        callback_hosts: the hosts that results may go to, None for any.
        migrate: what moves sessions, if anything does.
    """

    def __init__(
        self,
        service: Callable[[], Service | None],
        manifest: Callable[[str], bytes],
        *,
        limits: WireLimits,
        secret: str | None,
        url: str,
        callback_hosts: frozenset[str] | None,
        migrate: Migration | None,
    ) -> None:
        self._service = service
        self._manifest = manifest
        self.guard = Guard(secret, url)
        self._limits = limits
        self._url = url
        self._callback_hosts = callback_hosts
        self._migrate = migrate

    def routes(self) -> list[BaseRoute]:
        """Return the routes of the protocol."""
        posts: list[tuple[str, Callable[[Request], Awaitable[Response]]]] = [
            (CALL_PATH, self._call),
            (CANCEL_PATH, self._cancel),
            (CLOSE_PATH, self._close),
            (STATUS_PATH, self._status),
        ]
        if self._migrate is not None:
            posts.append((MIGRATE_PATH, partial(self._move, self._migrate)))
        return [
            self._route(TOOLSET_PATH, self._toolset, "GET"),
            *(self._route(path, answer, "POST") for path, answer in posts),
            # Its path is a secret of its own, which foreign runtimes post to without any other.
            self._route(RESPONSE_PATH + "{secret}", self._response, "POST", guarded=False),
        ]

    def _route(
        self, path: str, answer: Callable[[Request], Awaitable[Response]], method: str, *, guarded: bool = True
    ) -> Route:
        async def endpoint(request: Request) -> Response:
            try:
                self.guard.check_caller(request, secret=guarded)
                return await answer(request)
            except HibernautError as error:
                return response_to(error)

        return Route(path, endpoint, methods=[method])

    async def _toolset(self, request: Request) -> Response:
        return Response(self._manifest(self._base(request)), media_type="application/json")

    async def _call(self, request: Request) -> Response:
        invocation = await self._read(request, Invocation)
        key = request.headers.get("idempotency-key", "")
        if len(key) > LONGEST_ID:
            raise MalformedInput(f"the Idempotency-Key has {len(key):,} characters; at most {LONGEST_ID} are taken")
        self._check_callback(invocation.callback_url)
        return Acknowledged(await self._running.calls.accept(invocation, key, self._base(request)))

    async def _cancel(self, request: Request) -> Response:
        order = await self._read(request, CancelToolCall)
        await self._running.calls.cancel(order.thread_id, order.tool_call_id)
        return _taken()

    async def _close(self, request: Request) -> Response:
        order = await self._read(request, CloseThread)
        await self._running.calls.cancel(order.thread_id)
        return _taken()

    async def _status(self, request: Request) -> Response:
        asked = await self._read(request, AskStatus)
        alive = await self._running.calls.is_alive(asked.thread_id, asked.tool_call_id)
        return Response(encode(Alive(alive)), media_type="application/json")

    async def _move(self, migrate: Migration, request: Request) -> Response:
        order = await self._read(request, Migrate)
        try:
            await migrate(order.session_id, order.destination_url)
        except Exception as error:  # noqa: BLE001  # the program's own code: whatever it was, nothing has moved
            words = shorten(f"the session was not moved: {type(error).__name__}: {error}", _LONGEST_EXCERPT)
            body = msgspec.json.encode({"error": "not_moved", "message": words})
            return Response(body, 500, media_type="application/json")
        return _taken()

    async def _response(self, request: Request) -> Response:
        selected = await self._read(request, Selected)
        await self._running.questions.answer(request.path_params["secret"], selected)
        return _taken()

    # What they share

    @property
    def _running(self) -> Service:
        service = self._service()
        if service is None:
            raise Unavailable("the server does not run; come again")
        return service

    async def _read(self, request: Request, kind: type[R]) -> R:
        setting = "invocation_bytes" if kind is Invocation else "notice_bytes"
        body = await read_body(request, getattr(self._limits, setting), setting)
        return decode(kind, body, self._limits)

    def _base(self, request: Request) -> str:
        return self._url or str(request.base_url).rstrip("/")

    def _check_callback(self, url: str) -> None:
        if self._callback_hosts is None:
            return
        host = urlsplit(url).hostname or ""
        if host not in self._callback_hosts:
            raise RequestRefused(f"this server sends no results to {shorten(host, LONGEST_ID)}", 403)


def guarded(face: Face, routes: Sequence[BaseRoute]) -> App:
    """Return an ASGI app of the protocol's routes and the author's own, none of which is there for a foreign Host."""
    router = Router([*face.routes(), *routes], redirect_slashes=False)

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        try:
            face.guard.check_place(scope)
            _check_path(router.routes, scope)
        except RequestRefused as error:
            await response_to(error)(scope, receive, send)
            return
        await router(scope, receive, send)

    return app


def _check_path(routes: Sequence[BaseRoute], scope: Scope) -> None:
    found = {route.matches(scope)[0] for route in routes}
    if Match.FULL in found:
        return
    if Match.PARTIAL in found:
        raise RequestRefused("this path takes another method", 405)
    raise RequestRefused("there is nothing at this path", 404)


def _taken() -> Response:
    return Response(TAKEN.body, TAKEN.status, dict(TAKEN.headers))
