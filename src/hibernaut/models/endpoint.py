"""The connection to a provider of models: where it is, how it is shown who asks, and how long it may be silent."""

import asyncio
import functools
import ssl
from collections.abc import Mapping
from contextlib import AsyncExitStack
from typing import Final
from urllib.parse import urlsplit

import httpx2

from hibernaut.clock import Clock, SystemClock
from hibernaut.errors import ConfigurationError, said_by
from hibernaut.models.dialect import Refusal, Sent
from hibernaut.models.errors import ConnectionLost
from hibernaut.models.throttle import Throttle

CONNECT_WITHIN: Final = 10_000
"""Milliseconds in which a connection must be there."""

SILENT_FOR: Final = 120_000
"""Milliseconds without a byte of the answer, its first or its next, after which it is given up."""

LARGEST_LIST: Final = 16 * 1024 * 1024
"""Bytes of a list of models."""

MOST_CONNECTIONS: Final = 1_000
"""Connections to one provider. Over HTTP/2 each carries many completions."""


def check_url(what: str, url: str) -> None:
    """Check that something can be asked at a base URL. What may be secret in it is not repeated.

    Raises:
        ConfigurationError: it cannot; the text says why.
    """
    try:
        parts = urlsplit(url)
        leads = bool(parts.hostname) and parts.port != 0 and parts.scheme in ("http", "https")
    except ValueError as error:
        raise ConfigurationError(f"{what} cannot be read: {error}") from error
    if "@" in parts.netloc:
        raise ConfigurationError(
            f"{what} has a user name in it, which is not sent: say `key`, or `headers` with `Authorization`"
        )
    if parts.query or parts.fragment:
        raise ConfigurationError(f"{what} is a base: it has no query and no fragment, and a key stands in `key`")
    if not leads or not url.isprintable() or " " in url or "\\" in url:
        raise ConfigurationError(f"{what}, {url!r}, is not an http or https address")


class Endpoint:
    """Where a provider is and how it is shown who asks; the connections to it are kept for the next request.

    Args:
        name: what the provider is called in errors.
        url: base URL.
        auth: how requests are authorized; None: they are not.
        headers: sent with every request.
        throttle: what is not to be exceeded.
        silent_for: milliseconds without a byte after which an answer is given up.
        transport: what carries requests, instead of the network.

    Raises:
        ConfigurationError: nobody can be asked at that URL.
    """

    def __init__(
        self,
        name: str,
        url: str,
        *,
        auth: httpx2.Auth | None = None,
        headers: Mapping[str, str] | None = None,
        throttle: Throttle | None = None,
        silent_for: int = SILENT_FOR,
        clock: Clock | None = None,
        transport: httpx2.AsyncBaseTransport | None = None,
    ) -> None:
        check_url(f"the url of {name}", url)
        self.name = name
        self.url = url.rstrip("/")
        self.clock = clock or SystemClock()
        self.throttle = throttle or Throttle()
        self._auth = auth or httpx2.Auth()  # one that does nothing: without any, a netrc file would be asked
        self._headers = dict(headers or {})
        self._silent_for = silent_for
        self._transport = transport
        self._client: httpx2.AsyncClient | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    def _connected(self) -> httpx2.AsyncClient:
        loop = asyncio.get_running_loop()
        if self._client is None or self._loop is not loop:
            # Connections belong to the loop that they were made in; those of a loop that has ended are gone with it.
            self._loop = loop
            self._client = httpx2.AsyncClient(
                auth=self._auth,
                headers=self._headers,
                verify=certificate_checks(),
                http2=True,
                timeout=httpx2.Timeout(self._silent_for / 1_000, connect=CONNECT_WITHIN / 1_000, pool=None),
                limits=httpx2.Limits(max_connections=MOST_CONNECTIONS, max_keepalive_connections=MOST_CONNECTIONS),
                transport=self._transport,
            )
        return self._client

    async def answer(self, stack: AsyncExitStack, sent: Sent) -> httpx2.Response:
        """Send something, and return the answer as far as its headers. It lives as long as `stack`.

        Raises:
            ConnectionLost. ConfigurationError: the address or a credential cannot be used.
        """
        headers = {"Content-Type": "application/json", **sent.headers}
        request = self._connected().stream("POST", self.url + sent.path, content=sent.body, headers=headers)
        try:
            return await stack.enter_async_context(request)
        except (httpx2.UnsupportedProtocol, httpx2.InvalidURL) as error:
            raise ConfigurationError(f"{self.name}: {self.url} cannot be asked: {error}") from error
        except httpx2.HTTPError as error:
            raise self.lost(error) from error

    async def fetch(self, path: str) -> Refusal:
        """Fetch something small below the base URL, or at a URL of its own, and return it whatever its status.

        Raises:
            ConnectionLost. InvalidRequest: it is too large. ConfigurationError.
        """
        async with AsyncExitStack() as stack:
            try:
                url = path if "://" in path else self.url + path
                answer = await stack.enter_async_context(self._connected().stream("GET", url))
                return await self.read(answer, LARGEST_LIST)
            except (httpx2.UnsupportedProtocol, httpx2.InvalidURL) as error:
                raise ConfigurationError(f"{self.name}: {self.url} cannot be asked: {error}") from error
            except httpx2.HTTPError as error:
                raise self.lost(error) from error

    async def read(self, answer: httpx2.Response, limit: int) -> Refusal:
        """Read an answer that is no stream, up to a limit."""
        body = bytearray()
        async for chunk in answer.aiter_bytes():
            body += chunk
            if len(body) >= limit:
                break
        return Refusal(answer.status_code, dict(answer.headers), bytes(body[:limit]), self.clock.now())

    def lost(self, error: Exception) -> ConnectionLost:
        """Return what it means that the connection failed."""
        if isinstance(error, httpx2.ReadTimeout):
            return ConnectionLost(f"{self.name} has sent nothing for {self._silent_for / 1_000:g} s")
        what = said_by(error)
        if "CERTIFICATE_VERIFY_FAILED" in what:
            what += "; SSL_CERT_FILE names the authorities to trust, if they are others than this machine's"
        return ConnectionLost(f"{self.name} at {self.url}: {what}")

    async def close(self) -> None:
        """Let go of all connections."""
        if self._client is not None and self._loop is asyncio.get_running_loop():
            await self._client.aclose()
        self._client = None


@functools.cache
def certificate_checks() -> ssl.SSLContext:
    """Return how certificates are checked: to read all authorities takes a tenth of a second."""
    return httpx2.create_ssl_context()
