"""One request to another server and its answer: bounded in time and bytes, and never led anywhere else."""

import asyncio
import functools
import ssl
from collections.abc import Mapping
from types import TracebackType
from typing import Final, Literal, Self

import httpx2
from msgspec import structs

from hibernaut.errors import TooLarge, said_by
from hibernaut.rap.limits import ANSWER_WITHIN, CONNECT_WITHIN, LIMITS
from hibernaut.rap.replies import NoAnswer, Reply

__all__ = ["MOST_CONNECTIONS", "Exchange", "NoAnswer", "Reply"]

MOST_CONNECTIONS: Final = 64
"""Requests to one server at the same time."""

_PLAIN: Final = {"Accept-Encoding": "identity"}


class Exchange:
    """Connections to one server, kept for the next request. HTTP/2 is spoken where the server offers it.

    Redirects are not followed: credentials and calls go where they were meant to go. Answers are asked for
    uncompressed, and one that is compressed all the same is handed over as it is, so that nothing can swell up.

    Args:
        auth: how requests are authorized.
        headers: sent with every request.
        verify: how the server's certificate is checked, and what ours is.
        connect_within, answer_within: milliseconds.
        transport: what carries requests, instead of the network.
    """

    def __init__(
        self,
        *,
        auth: httpx2.Auth | None = None,
        headers: Mapping[str, str] | None = None,
        verify: ssl.SSLContext | bool = True,
        connect_within: int = CONNECT_WITHIN,
        answer_within: int = ANSWER_WITHIN,
        transport: httpx2.AsyncBaseTransport | None = None,
    ) -> None:
        self._answer_within = answer_within
        self._client = httpx2.AsyncClient(
            auth=auth,
            headers={**(headers or {}), **_PLAIN},
            verify=_checking() if verify is True else verify,
            http2=True,
            timeout=httpx2.Timeout(None, connect=connect_within / 1_000),
            limits=httpx2.Limits(max_connections=MOST_CONNECTIONS, max_keepalive_connections=MOST_CONNECTIONS),
            transport=transport,
            trust_env=False,  # a proxy or a netrc file of this machine is nobody's decision about this server
        )

    async def get(
        self,
        url: str,
        *,
        limit: int = LIMITS.notice_bytes,
        setting: str = "notice_bytes",
        headers: Mapping[str, str] | None = None,
    ) -> Reply:
        """Fetch something.

        Raises:
            NoAnswer. TooLarge: the answer is above `limit`, which is set by `setting`.
        """
        return await self._send("GET", url, None, headers or {}, limit, setting)

    async def post(
        self, url: str, body: bytes, headers: Mapping[str, str] | None = None, *, by_status: bool = False
    ) -> Reply:
        """Send a JSON body. Of the answer as many bytes are kept as a notice may have.

        `by_status`: a status is an answer, whatever becomes of the body after it.

        Raises:
            NoAnswer.
        """
        sent = {"Content-Type": "application/json", **(headers or {})}
        return await self._send("POST", url, body, sent, LIMITS.notice_bytes, "", by_status=by_status)

    async def aclose(self) -> None:
        """Let go of all connections."""
        await self._client.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    async def _send(
        self,
        method: Literal["GET", "POST"],
        url: str,
        content: bytes | None,
        headers: Mapping[str, str],
        limit: int,
        setting: str,
        *,
        by_status: bool = False,
    ) -> Reply:
        known: Reply | None = None
        try:
            async with (
                asyncio.timeout(self._answer_within / 1_000),
                self._client.stream(method, url, content=content, headers=headers) as answer,
            ):
                reply = Reply(answer.status_code, dict(answer.headers), b"")
                known = reply if by_status else None
                return structs.replace(reply, body=await _body(answer, limit, setting))
        except (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.PoolTimeout, httpx2.UnsupportedProtocol) as error:
            raise NoAnswer(url, said_by(error), reached=False) from error
        except (httpx2.HTTPError, httpx2.InvalidURL, httpx2.StreamError) as error:
            if known is not None:
                return known
            raise NoAnswer(url, said_by(error), reached=True) from error
        except TimeoutError:
            if known is not None:
                return known
            raise NoAnswer(url, f"nothing within {self._answer_within / 1_000:g} s", reached=True) from None


async def _body(answer: httpx2.Response, limit: int, setting: str) -> bytes:
    """Read a body; what is above its limit is refused, or (without a setting) left unread."""
    chunks: list[bytes] = []
    size = 0
    async for chunk in answer.aiter_raw():
        chunks.append(chunk)
        size += len(chunk)
        if size > limit:
            if setting:
                raise TooLarge("the answer", size, limit, setting, cut_short=True)
            break
    return b"".join(chunks)[:limit]


@functools.cache
def _checking() -> ssl.SSLContext:
    """Return how certificates are checked where nobody says otherwise: to read all authorities takes a tenth second."""
    return httpx2.create_ssl_context(trust_env=False)
