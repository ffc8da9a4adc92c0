"""Tool servers as a process sees them that dies: the counterpart of `FaultyStore`."""

from collections.abc import Awaitable, Callable, Mapping, Sequence

from hibernaut.errors import StoreError
from hibernaut.rap.answers import Liveness
from hibernaut.rap.replies import NoAnswer, Reply
from hibernaut.rap.requests import AskStatus, CancelToolCall, CloseThread, Invocation, Migrate, Selected
from hibernaut.rap.tool_servers import Discovered, DiscoveryFailed, ToolServers
from hibernaut.testing.faults import FaultyStore

_LOST = "it was not sent"


class FaultyToolServers:
    """Reaches other tool servers, and dies or fails with the store of its process, by the same count and plan.

    Before an operation the message has not left; after it the server has acted, and nobody hears of its answer. An
    error of the plan means that there is no answer, because nothing was sent.
    """

    def __init__(self, inner: ToolServers, store: FaultyStore) -> None:
        self._inner = inner
        self._store = store

    @property
    def names(self) -> Sequence[str]:
        return self._inner.names

    async def discover(self, name: str) -> Discovered:
        try:
            return await self._store.perform("discover", lambda: self._inner.discover(name))
        except StoreError as error:
            raise DiscoveryFailed(name, _LOST, unreachable=True, again_at=0, left=0) from error

    async def invoke(self, name: str, invocation: Invocation, headers: Mapping[str, str], endpoint: str) -> Reply:
        return await self._send("invoke", endpoint, lambda: self._inner.invoke(name, invocation, headers, endpoint))

    async def cancel(self, name: str, notice: CancelToolCall) -> Reply:
        return await self._send("cancel", name, lambda: self._inner.cancel(name, notice))

    async def close_thread(self, name: str, notice: CloseThread) -> Reply:
        return await self._send("close_thread", name, lambda: self._inner.close_thread(name, notice))

    async def status(self, name: str, question: AskStatus) -> Liveness:
        try:
            return await self._store.perform("status", lambda: self._inner.status(name, question))
        except StoreError:
            return "unknown"

    async def select(self, name: str, url: str, answer: Selected) -> Reply:
        return await self._send("select", url, lambda: self._inner.select(name, url, answer))

    async def migrate(self, name: str, order: Migrate) -> Reply:
        return await self._send("migrate", name, lambda: self._inner.migrate(name, order))

    async def _send(self, operation: str, url: str, send: Callable[[], Awaitable[Reply]]) -> Reply:
        try:
            return await self._store.perform(operation, send)
        except StoreError as error:
            raise NoAnswer(url, _LOST, reached=False) from error
