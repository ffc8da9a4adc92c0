"""The connection to one tool server: its tools, its endpoint, and whatever is posted to it."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from typing import Final
from urllib.parse import urlsplit

import msgspec

from hibernaut.auth import Headers, MutualTls
from hibernaut.clock import Clock
from hibernaut.errors import ConfigurationError, HibernautError, MalformedInput, TooLarge
from hibernaut.rap.exchange import Exchange
from hibernaut.rap.leading import check_lead
from hibernaut.rap.limits import WireLimits
from hibernaut.rap.manifest import ToolsetRefused, read_manifest
from hibernaut.rap.origins import host, is_loopback_host
from hibernaut.rap.pauses import Pause
from hibernaut.rap.processes import ServerProcess
from hibernaut.rap.reading import shown
from hibernaut.rap.replies import NoAnswer, Reply
from hibernaut.rap.requests import Invocation, Request
from hibernaut.rap.servers import RemoteServer
from hibernaut.rap.tool_servers import Discovered, DiscoveryFailed, EndpointRefused
from hibernaut.rap.wire import TOOLSET_PATH, encode

MOST_CALLS: Final = 48
"""Calls that are being posted to one server at the same time. The others wait."""

MOST_NOTICES: Final = 16
"""The same for everything else, so that a notice never waits behind calls that hang."""

_OK: Final = 200
_REDIRECTS: Final = range(300, 400)
_TOO_MANY: Final = 429
_TROUBLE: Final = 500


class _Failure(msgspec.Struct, frozen=True):
    why: str
    unreachable: bool


class _Known(msgspec.Struct, frozen=True):
    """The tools of a server, and at which base they were found: a process that starts again has another one."""

    base: str
    found: Discovered


class Connection:
    """Talks to one server. Credentials go to its own origin only, unless it is trusted to lead elsewhere.

    Raises:
        ConfigurationError: the server is to see a certificate, and is not spoken to over https.
    """

    def __init__(
        self,
        server: RemoteServer,
        clock: Clock,
        limits: WireLimits,
        trust: Callable[[], ssl.SSLContext],
        process: ServerProcess | None,
    ) -> None:
        if isinstance(server.auth, MutualTls) and not server.url.startswith("https:"):
            raise ConfigurationError(f"tool server {server.name!r}: a certificate is shown over https only")
        self._server = server
        self._limits = limits
        self._process = process
        self._pause = Pause(clock)
        self._failure: _Failure | None = None
        self._known: _Known | None = None
        self._discovery: asyncio.Task[Discovered] | None = None
        self._calls = asyncio.Semaphore(MOST_CALLS)
        self._notices = asyncio.Semaphore(MOST_NOTICES)
        self._headers = Headers(server.headers)
        self._trust = trust
        self._exchanges: dict[bool, Exchange] = {}

    async def discover(self) -> Discovered:
        """Ask for the server's tools, once for everybody who asks meanwhile."""
        if self._discovery is None or self._discovery.done():
            if self._failure is not None and self._pause.left:
                raise self._failed(self._failure)
            self._discovery = asyncio.create_task(self._discover())
            self._discovery.add_done_callback(_look_at)
        return await asyncio.shield(self._discovery)

    async def invoke(self, invocation: Invocation, headers: Mapping[str, str], endpoint: str) -> Reply:
        """Post a call to where the server takes calls now. Its status is the answer."""
        async with self._calls, self._at() as base:
            return await self._post(base, await self._endpoint(base, endpoint), invocation, headers, by_status=True)

    async def tell(self, path: str, notice: Request) -> Reply:
        """Post something below the base."""
        async with self._notices, self._at() as base:
            return await self._post(base, base + path, notice)

    async def answer(self, url: str, answer: Request) -> Reply:
        """Post something to an address that the server has named. Its status is the answer."""
        async with self._notices, self._at() as base:
            return await self._post(base, self._moved(base, url), answer, bare=True, by_status=True)

    async def aclose(self) -> None:
        """Let go of everything, the process included."""
        if self._discovery is not None:
            self._discovery.cancel()
            await asyncio.wait([self._discovery])
        for exchange in self._exchanges.values():
            await exchange.aclose()
        if self._process is not None:
            await self._process.aclose()

    @asynccontextmanager
    async def _at(self) -> AsyncIterator[str]:
        """Say what the base is; a process runs at least as long as the context."""
        if self._process is None:
            yield self._server.url
        else:
            async with self._process.in_use() as base:
                yield base

    async def _discover(self) -> Discovered:
        try:
            async with self._notices, self._at() as base:
                found = await self._ask(base)
        except NoAnswer as error:
            failure = _Failure(str(error), unreachable=True)
        except (EndpointRefused, MalformedInput, TooLarge, ToolsetRefused) as error:
            failure = _Failure(str(error), unreachable=False)
        except _Unfit as error:
            failure = _Failure(str(error), error.unreachable)
        else:
            self._pause.end()
            self._failure = None
            self._known = _Known(base, found)
            return found
        self._pause.begin()
        self._failure = failure
        raise self._failed(failure)

    async def _ask(self, base: str) -> Discovered:
        with self._naming():
            reply = await self._exchange(credentials=True).get(
                base + TOOLSET_PATH,
                limit=self._limits.manifest_bytes,
                setting="manifest_bytes",
                headers=self._headers.read(),
            )
        _check_reply(reply)
        found = Discovered(reply.body, read_manifest(reply.body, self._limits))
        await self._check(base, found.toolset.endpoint, "its endpoint")
        return found

    def _failed(self, failure: _Failure) -> DiscoveryFailed:
        return DiscoveryFailed(
            self._server.name,
            failure.why,
            unreachable=failure.unreachable,
            again_at=self._pause.until,
            left=self._pause.left,
        )

    async def _endpoint(self, base: str, given: str) -> str:
        if self._known is not None and (self._process is None or self._known.base == base):
            return self._known.found.toolset.endpoint
        if self._process is None:
            return given
        try:
            return (await self.discover()).toolset.endpoint
        except DiscoveryFailed as error:
            raise NoAnswer(base, str(error), reached=False) from error

    async def _post(
        self,
        base: str,
        url: str,
        message: Request,
        headers: Mapping[str, str] | None = None,
        *,
        bare: bool = False,
        by_status: bool = False,
    ) -> Reply:
        """Post a message. `bare`: rather without credentials than not at all."""
        body = encode(message)
        if not await self._check(base, url, "an address", bare=bare):
            return await self._exchange(credentials=False).post(url, body, headers, by_status=by_status)
        with self._naming():
            sent = {**self._headers.read(), **(headers or {})}
            return await self._exchange(credentials=True).post(url, body, sent, by_status=by_status)

    def _exchange(self, *, credentials: bool) -> Exchange:
        """Return what requests are made with. It is made when it is needed: certificates take a while to load."""
        if credentials not in self._exchanges:
            self._exchanges[credentials] = Exchange(
                auth=self._server.auth if credentials else None,
                verify=self._tls() if credentials else self._trust(),
                connect_within=self._server.connect_within,
                answer_within=self._server.answer_within,
            )
        return self._exchanges[credentials]

    def _tls(self) -> ssl.SSLContext:
        if isinstance(self._server.auth, MutualTls):
            return self._server.auth.context()
        plain = not self._server.url.startswith("https:") and not self._server.trust_endpoint
        # One that trusts nobody is quickly made; nothing but http is spoken over it.
        return ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT) if plain else self._trust()

    async def _check(self, base: str, url: str, what: str, *, bare: bool = False) -> bool:
        """Check that the server may lead to an address, and return whether credentials go there."""
        endpoint = self._known.found.toolset.endpoint if self._known is not None else None
        return await check_lead(self._server, base, url, what, bare=bare, endpoint=endpoint)

    @contextmanager
    def _naming(self) -> Iterator[None]:
        """Name the server in errors of what reads credentials, which knows nothing of servers."""
        try:
            yield
        except ConfigurationError as error:
            raise ConfigurationError(f"tool server {self._server.name!r}: {error}") from error

    def _moved(self, base: str, url: str) -> str:
        """Return where an address of a process is now: its port is another one after every start."""
        if self._process is None or not is_loopback_host(host(url)):
            return url
        parts = urlsplit(url)
        return parts._replace(scheme="http", netloc=urlsplit(base).netloc).geturl()


class _Unfit(HibernautError):
    """An answer that has no manifest."""

    def __init__(self, why: str, *, unreachable: bool = False) -> None:
        super().__init__(why)
        self.unreachable = unreachable


def _check_reply(reply: Reply) -> None:
    if reply.status in _REDIRECTS:
        where = shown(reply.headers.get("location", "nowhere"))
        raise _Unfit(f"it redirects (status {reply.status}) to {where}, which is not followed; configure where it is")
    if reply.status != _OK:
        trouble = reply.status >= _TROUBLE or reply.status == _TOO_MANY
        raise _Unfit(f"it answered with status {reply.status} instead of a manifest", unreachable=trouble)
    if reply.headers.get("content-encoding", "identity") != "identity":
        raise _Unfit("its manifest is compressed, which was not asked for")


def _look_at(task: "asyncio.Task[Discovered]") -> None:
    """Take notice of an error that nobody waits for any more."""
    if not task.cancelled():
        task.exception()
