"""An ASGI app on a port of this machine, inside a program that has other things to do."""

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, MutableMapping
from contextlib import asynccontextmanager, contextmanager
from typing import Any, Final

import msgspec

from hibernaut.errors import ConfigurationError

LOOPBACK: Final = "127.0.0.1"

BACKLOG: Final = 1_024
"""Connections that wait to be taken."""

LAST_ANSWERS: Final = 5
"""Seconds that requests under way have when the listener closes."""

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]
"""An ASGI 3 application."""


class Address(msgspec.Struct, frozen=True):
    """Where an app listens."""

    host: str
    port: int

    @property
    def url(self) -> str:
        """The address as a URL without a path."""
        return f"http://[{self.host}]:{self.port}" if ":" in self.host else f"http://{self.host}:{self.port}"


@asynccontextmanager
async def listening(app: App, host: str = LOOPBACK, port: int = 0) -> AsyncIterator[Address]:
    """Serve an app for as long as the context lasts; port 0 is any that is free.

    Signals are left to the program. At the end, requests under way have `LAST_ANSWERS` to be answered.

    Raises:
        ConfigurationError: the address cannot be had, or the extra `server` is not installed.
    """
    try:
        import uvicorn  # noqa: PLC0415  # an extra
    except ImportError as error:
        raise ConfigurationError(
            f"listening needs the extra `server` (pip install 'hibernaut[server]'): {error}"
        ) from error

    class Server(uvicorn.Server):
        @contextmanager
        def capture_signals(self) -> Iterator[None]:
            yield

    config = uvicorn.Config(
        app,
        log_config=None,
        access_log=False,
        lifespan="auto",
        ws="none",
        server_header=False,
        proxy_headers=False,
        timeout_graceful_shutdown=LAST_ANSWERS,
    )
    bound = _bind(host, port)
    try:
        server = Server(config)
        serving = asyncio.create_task(_serve(server, bound))
        try:
            await _until_started(server, serving)
            yield Address(*bound.getsockname()[:2])
        finally:
            server.should_exit = True
            await serving
    finally:
        bound.close()


def _bind(host: str, port: int) -> socket.socket:
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        bound = socket.socket(family, kind, protocol)
    except (OSError, OverflowError) as error:
        raise ConfigurationError(f"nobody can listen at {host!r}, port {port}: {error}") from error
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind(address)
        bound.listen(BACKLOG)
    except OSError as error:
        bound.close()
        raise ConfigurationError(f"nobody can listen at {host!r}, port {port}: {error}") from error
    return bound


async def _serve(server: Any, bound: socket.socket) -> None:
    try:
        await server.serve([bound])
    except SystemExit as error:  # uvicorn would have the program end when an app cannot be started
        raise ConfigurationError("the app could not be started; the log says why") from error


async def _until_started(server: Any, serving: "asyncio.Task[None]") -> None:
    while not server.started:
        if serving.done():
            serving.result()
            raise ConfigurationError("the app could not be started; the log says why")
        await asyncio.sleep(0.001)  # uvicorn says it nowhere else
