"""Tool servers that a command starts on this machine."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from hibernaut.clock import Clock
from hibernaut.rap.replies import NoAnswer
from hibernaut.rap.servers import RemoteServer


class ServerProcess:
    """The process of a server."""

    def __init__(
        self, server: RemoteServer, clock: Clock, *, busy: Callable[[str], Awaitable[bool]] | None = None
    ) -> None:
        self._server = server
        self._clock = clock
        self._busy = busy

    @asynccontextmanager
    async def in_use(self) -> AsyncIterator[str]:
        """Yield the base URL of the process, which is started if it does not run."""
        yield await self._start()

    async def aclose(self) -> None:
        """Stop the process."""

    async def _start(self) -> str:
        raise NoAnswer(self._server.name, "commands are not run yet", reached=False)
