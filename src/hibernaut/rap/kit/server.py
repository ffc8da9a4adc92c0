"""`ToolServer`: functions as tools on a server of their own."""

import os
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Any, Final, ParamSpec, Protocol, TypedDict, TypeVar, Unpack, overload

import msgspec

from hibernaut.clock import Clock, SystemClock
from hibernaut.errors import ConfigurationError, ToolDefinitionError
from hibernaut.rap.kit.paths import CALL_PATH
from hibernaut.rap.kit.program import run
from hibernaut.rap.kit.questions import Granted
from hibernaut.rap.kit.service import Service, serving
from hibernaut.rap.limits import LIMITS, WireLimits
from hibernaut.rap.listening import LOOPBACK, Address, App, Receive, Scope, Send, listening
from hibernaut.rap.manifest import RemoteTool, Toolset, read_manifest, write_manifest
from hibernaut.tools.context import ToolContext
from hibernaut.tools.tool import AnyTool, Events, Tool
from hibernaut.tools.tool import tool as make_tool

if TYPE_CHECKING:
    from starlette.routing import BaseRoute

P = ParamSpec("P")
R_co = TypeVar("R_co", covariant=True)

MEMORY: Final = ":memory:"

DELIVER_WITHIN: Final = 3 * 86_400
"""Seconds after which a callback that no runtime took is given up."""

_ANYWHERE: Final = ("0.0.0.0", "::")  # noqa: S104  # what is no address that anybody could be sent to


class ToolOptions(TypedDict, total=False):
    """The options of `hibernaut.tool`."""

    name: str | None
    description: str | None
    inline: bool
    passive: bool
    idempotent: bool
    destructive: bool
    timeout: float | None
    deadline: float | None
    events: Events | None
    resumable: bool
    event_schema: object


class Decorator(Protocol):
    """What `server.tool(...)` decorates with."""

    def __call__(self, function: Callable[P, R_co], /) -> Tool[P, R_co]: ...


class ToolServer:
    """A tool server: an ASGI 3 application with a lifespan of its own.

    Args:
        name: What the server is called in its manifest.
        description: What it is for.
        tools: Functions that `@tool` was put on before.
        state: The SQLite file of what must outlive the process. ":memory:" outlives nothing.
        secret: What every request must bear (`Authorization: Bearer …`); None: nothing.
        url: The server's own public URL, such as that of a proxy in front of it. Without it, it is where the server
            listens (`running`), or else where a request was sent to.
        callback_hosts: The only hosts that results may go to; None: any.
        migrate: Moves the state of a session, given its id and the URL it goes to.
        routes: The author's own routes, such as where an OAuth provider sends people back to.
        limits: How large a body may be.
        deliver_within: Seconds after which a callback that no runtime took is given up.
        clock: The time.
    """

    def __init__(
        self,
        name: str,
        *,
        description: str = "",
        tools: Iterable[AnyTool] = (),
        state: str | os.PathLike[str] = MEMORY,
        secret: str | None = None,
        url: str = "",
        callback_hosts: Collection[str] | None = None,
        migrate: Callable[[str, str], Awaitable[object]] | None = None,
        routes: "Sequence[BaseRoute]" = (),
        limits: WireLimits = LIMITS,
        deliver_within: float = DELIVER_WITHIN,
        clock: Clock | None = None,
    ) -> None:
        self.name = name
        self.description = description
        self.state = os.fspath(state)
        self.secret = secret
        self.url = url.rstrip("/")
        self._callback_hosts = None if callback_hosts is None else frozenset(callback_hosts)
        self._migrate = migrate
        self._routes = routes
        self._limits = limits
        self._deliver_within = round(deliver_within * 1_000)
        self._clock = clock or SystemClock()
        self._tools: dict[str, AnyTool] = {}
        self._offers: dict[str, RemoteTool] = {}
        self._service: Service | None = None
        self._app: App | None = None
        for each in tools:
            self.add(each)

    @property
    def tools(self) -> tuple[AnyTool, ...]:
        """The tools, in the order that they were added."""
        return tuple(self._tools.values())

    # Tools

    def add(
        self,
        tool: AnyTool,
        *,
        read_only: bool = False,
        long_running: bool = False,
        requires_auth: str = "",
        display_script: str = "",
    ) -> None:
        """Add a function that `@tool` was put on before; `tool` says what the options mean.

        Raises:
            ToolDefinitionError: there is a tool of that name, or no runtime would take this one.
            ConfigurationError: the server runs already.
        """
        if self._service is not None:
            raise ConfigurationError(f"the server {self.name} runs already; add {tool.name} before it is started")
        if tool.name in self._tools:
            raise ToolDefinitionError(
                f"two tools are called {tool.name!r}, {self._tools[tool.name].where} and {tool.where}: "
                "give one of them another name with name="
            )
        self._offers[tool.name] = _offer(
            tool,
            read_only=read_only,
            long_running=long_running or tool.mode == "subscription",
            requires_auth=requires_auth,
            display_script=display_script,
        )
        self._tools[tool.name] = tool

    @overload
    def tool(
        self,
        function: Callable[P, R_co],
        /,
        *,
        read_only: bool = False,
        long_running: bool = False,
        requires_auth: str = "",
        display_script: str = "",
        **options: Unpack[ToolOptions],
    ) -> Tool[P, R_co]: ...

    @overload
    def tool(
        self,
        function: None = None,
        /,
        *,
        read_only: bool = False,
        long_running: bool = False,
        requires_auth: str = "",
        display_script: str = "",
        **options: Unpack[ToolOptions],
    ) -> Decorator: ...

    def tool(
        self,
        function: Callable[..., Any] | None = None,
        /,
        *,
        read_only: bool = False,
        long_running: bool = False,
        requires_auth: str = "",
        display_script: str = "",
        **options: Unpack[ToolOptions],
    ) -> Any:
        """Make a function a tool of this server.

        Args:
            function: The function; leave it out when you decorate with options.
            read_only: It changes nothing.
            long_running: It takes its time. A subscription always does.
            requires_auth: The provider at which a person has to authorize something, "" if none.
            display_script: How clients show a call to people: an expression in Rhai over `args` that yields a text.
            options: Those of `hibernaut.tool`.

        Raises:
            ToolDefinitionError: the function cannot be a tool as it is, or there is a tool of that name.
            ConfigurationError: the server runs already.
        """

        def decorate(function: Callable[..., Any]) -> AnyTool:
            made: AnyTool = make_tool(function, **options)
            self.add(
                made,
                read_only=read_only,
                long_running=long_running,
                requires_auth=requires_auth,
                display_script=display_script,
            )
            return made

        return decorate if function is None else decorate(function)

    def manifest(self, base: str) -> bytes:
        """Return the manifest of the server at this URL."""
        return write_manifest(
            Toolset(
                self.name,
                f"{base}{CALL_PATH}",
                tuple(self._offers.values()),
                self.description,
                needs_migration=self._migrate is not None,
                idempotency_keys=True,
            )
        )

    # While it runs

    @asynccontextmanager
    async def running(self, host: str = LOOPBACK, port: int = 0) -> AsyncIterator[Address]:
        """Serve over HTTP for as long as the context lasts; port 0 is any that is free.

        Raises:
            ConfigurationError: the address cannot be had, or anybody could call the server there.
            ToolsetRefused: no runtime would take the server's manifest; the text says why.
            StoreError: the state file cannot be had.
        """
        if not self.secret and host not in (LOOPBACK, "::1", "localhost"):
            raise ConfigurationError(
                f"anybody could call the server at {host}: give it a secret, or listen at {LOOPBACK}"
            )
        configured = self.url
        async with self.lifespan(), listening(self, host, port) as address:
            if not configured and address.host not in _ANYWHERE:
                self.url = address.url
            try:
                yield address
            finally:
                self.url, self._app = configured, None

    def run(self, host: str = LOOPBACK, port: int = 0) -> None:
        """Be a program: serve until Ctrl-C or SIGTERM, as `hibernaut rap serve` does, with the secret in RAP_SECRET.

        Raises:
            ConfigurationError, StoreError: as `running`.
        """
        run(self, host, port)

    @asynccontextmanager
    async def lifespan(self) -> AsyncIterator[None]:
        """Run what works behind the routes: for apps that mount this one, which ASGI servers tell of no lifespan.

        Raises:
            ToolsetRefused: no runtime would take the server's manifest; the text says why.
            StoreError: the state file cannot be had.
        """
        if self._service is not None:
            yield
            return
        read_manifest(self.manifest(self.url or "http://localhost"), self._limits)
        async with serving(self._tools, self.state, self._clock, self._deliver_within) as service:
            self._service = service
            try:
                yield
            finally:
                self._service = None

    async def deliver(self, token: str, value: object) -> None:
        """Answer a call that was deferred (`ToolContext.defer`). An exception as the value is an error result.

        Raises:
            TokenRefused: no call has this token.
            AlreadyAnswered: the call is over.
            ConfigurationError: the server does not run.
        """
        await self._running.calls.deliver(token, value)

    def oauth_state(self, context: ToolContext) -> str:
        """Return the `state` for the address that a call is authorized at: nobody can guess it, and it names the call.

        Raises:
            ConfigurationError: the server does not run.
        """
        return self._running.questions.oauth_state(context.thread_id, context.call_id)

    async def grant(self, state: str) -> Granted:
        """Say that what a call waits for in `ToolContext.authorize` was authorized.

        Args:
            state: what `oauth_state` returned, as the provider sent it back.

        Raises:
            UnknownCall: no call waits for it.
            AlreadyAnswered: it was denied before.
            ConfigurationError: the server does not run.
        """
        return await self._running.questions.grant(state, granted=True)

    async def deny(self, state: str) -> Granted:
        """Say that it was not authorized; see `grant`."""
        return await self._running.questions.grant(state, granted=False)

    @property
    def _running(self) -> Service:
        if self._service is None:
            raise ConfigurationError(f"the server {self.name} does not run")
        return self._service

    # As an application

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Be an ASGI application."""
        if scope["type"] == "lifespan":
            await self._live(receive, send)
            return
        if self._app is None:
            self._app = self._made()
        await self._app(scope, receive, send)

    def _made(self) -> App:
        try:
            from hibernaut.rap.kit.app import Face, guarded  # noqa: PLC0415  # an extra
        except ImportError as error:
            raise ConfigurationError(
                f"a tool server needs the extra `server` (pip install 'hibernaut[server]'): {error}"
            ) from error
        face = Face(
            lambda: self._service,
            self.manifest,
            limits=self._limits,
            secret=self.secret,
            url=self.url,
            callback_hosts=self._callback_hosts,
            migrate=self._migrate,
        )
        return guarded(face, self._routes)

    async def _live(self, receive: Receive, send: Send) -> None:
        await receive()
        async with AsyncExitStack() as stack:
            try:
                await stack.enter_async_context(self.lifespan())
            except Exception as error:
                await send({"type": "lifespan.startup.failed", "message": str(error)})
                raise
            await send({"type": "lifespan.startup.complete"})
            await receive()
        await send({"type": "lifespan.shutdown.complete"})


def _offer(
    tool: AnyTool,
    *,
    read_only: bool,
    long_running: bool,
    requires_auth: str,
    display_script: str,
) -> RemoteTool:
    """Return a tool as the manifest has it."""
    notes: dict[str, object] = {
        "readOnly": read_only,
        "destructive": tool.destructive,
        "idempotent": tool.idempotent,
        "longRunning": long_running,
        "requiresAuth": requires_auth,
    }
    return RemoteTool(
        tool.name,
        tool.description,
        tool.parameters,
        msgspec.json.encode({name: value for name, value in notes.items() if value}).decode(),
        read_only=read_only,
        destructive=tool.destructive,
        idempotent=tool.idempotent,
        long_running=long_running,
        requires_auth=requires_auth,
        display_script=display_script,
        event_schema=tool.event_schema,
    )
