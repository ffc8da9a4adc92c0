"""The tool servers of a runtime, by name: the real `ToolServers`."""

import asyncio
import ssl
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Self

import httpx2

from hibernaut.clock import Clock
from hibernaut.rap.answers import Liveness, liveness
from hibernaut.rap.connection import Connection
from hibernaut.rap.limits import LIMITS, WireLimits
from hibernaut.rap.processes import Busy, ServerProcess
from hibernaut.rap.replies import NoAnswer, Reply
from hibernaut.rap.requests import AskStatus, CancelToolCall, CloseThread, Invocation, Migrate, Selected
from hibernaut.rap.servers import RemoteServer
from hibernaut.rap.tool_servers import Discovered, UnknownServer
from hibernaut.rap.wire import CANCEL_PATH, CLOSE_PATH, MIGRATE_PATH, STATUS_PATH


class Connections:
    """Connections to servers, for as long as the context lasts. Processes are started when they are first needed.

    Args:
        servers: by name, see `servers_by_name`.
        clock: what pauses, and the times of processes, go by.
        limits: what a manifest may be.
        busy: whether a server has open calls. A process that has is not stopped when it is idle, and is started again
            when it dies. Without this, no process is ever stopped for being idle.
    """

    def __init__(
        self,
        servers: Mapping[str, RemoteServer],
        clock: Clock,
        limits: WireLimits = LIMITS,
        *,
        busy: Busy | None = None,
    ) -> None:
        self._limits = limits
        self._is_secure = any(server.url.startswith("https:") for server in servers.values())
        self._trusted: ssl.SSLContext | None = None
        self._connections = {
            name: Connection(
                server,
                clock,
                limits,
                self._trust,
                ServerProcess(server, clock, busy=busy) if server.command else None,
            )
            for name, server in servers.items()
        }

    @property
    def names(self) -> Sequence[str]:
        return tuple(self._connections)

    async def discover(self, name: str) -> Discovered:
        return await self._of(name).discover()

    async def invoke(self, name: str, invocation: Invocation, headers: Mapping[str, str], endpoint: str) -> Reply:
        return await self._of(name).invoke(invocation, headers, endpoint)

    async def cancel(self, name: str, notice: CancelToolCall) -> Reply:
        return await self._of(name).tell(CANCEL_PATH, notice)

    async def close_thread(self, name: str, notice: CloseThread) -> Reply:
        return await self._of(name).tell(CLOSE_PATH, notice)

    async def status(self, name: str, question: AskStatus) -> Liveness:
        try:
            reply = await self._of(name).tell(STATUS_PATH, question)
        except NoAnswer:
            return liveness(None, b"", self._limits)
        return liveness(reply.status, reply.body, self._limits)

    async def select(self, name: str, url: str, answer: Selected) -> Reply:
        return await self._of(name).answer(url, answer)

    async def migrate(self, name: str, order: Migrate) -> Reply:
        return await self._of(name).tell(MIGRATE_PATH, order)

    async def aclose(self) -> None:
        """Let go of all connections and stop all processes, all at the same time."""
        async with asyncio.TaskGroup() as group:
            for connection in self._connections.values():
                group.create_task(connection.aclose())

    async def __aenter__(self) -> Self:
        if self._is_secure:
            await asyncio.to_thread(self._trust)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    def _trust(self) -> ssl.SSLContext:
        """Return the authorities that this machine trusts: the same for all servers, and slow to load."""
        if self._trusted is None:
            self._trusted = httpx2.create_ssl_context(trust_env=False)
        return self._trusted

    def _of(self, name: str) -> Connection:
        if name not in self._connections:
            known = ", ".join(map(repr, sorted(self._connections))) or "none at all"
            raise UnknownServer(f"no tool server is called {name!r}; configured: {known}")
        return self._connections[name]
