"""Requests and answers over real connections: what is bounded, what is refused, and what is known after a failure."""

import asyncio
import gzip
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from hibernaut.errors import ConfigurationError, TooLarge
from hibernaut.rap.exchange import Exchange, NoAnswer
from hibernaut.rap.listening import Receive, Scope, Send, listening


async def app(scope: Scope, receive: Receive, send: Send) -> None:
    path = scope.get("path")
    if path is None:
        raise NotImplementedError("it has no lifespan")
    message = await receive()
    headers = [(b"content-type", b"application/json")]
    status, body = 200, b"{}"
    if path == "/echo":
        body = message.get("body", b"")
        headers += [(b"x-had", dict(scope["headers"]).get(b"idempotency-key", b""))]
    elif path == "/away":
        status, headers = 307, [*headers, (b"location", b"/echo")]
    elif path == "/big":
        body = b"x" * 200_000
    elif path == "/bomb":
        body, headers = gzip.compress(bytes(10_000_000)), [*headers, (b"content-encoding", b"gzip")]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


@asynccontextmanager
async def rude(answer: bytes) -> AsyncIterator[str]:
    """A server that says so much and hangs up, or says nothing at all."""

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        if answer:
            writer.write(answer)
        else:
            await reader.read()
        writer.close()

    server = await asyncio.start_server(handle, "127.0.0.1", 0)
    async with server:
        host, port = server.sockets[0].getsockname()
        yield f"http://{host}:{port}/"


async def test_an_answer_is_brought_as_it_is() -> None:
    async with listening(app) as there, Exchange() as exchange:
        reply = await exchange.post(f"{there.url}/echo", b'{"a":1}', {"Idempotency-Key": "k1"})
    assert (reply.status, reply.body, reply.headers["x-had"]) == (200, b'{"a":1}', "k1")


async def test_a_redirect_is_an_answer_and_not_followed() -> None:
    async with listening(app) as there, Exchange() as exchange:
        assert (await exchange.post(f"{there.url}/away", b"{}")).status == 307


async def test_an_answer_above_its_limit_is_refused_where_it_matters_and_cut_where_not() -> None:
    async with listening(app) as there, Exchange() as exchange:
        with pytest.raises(TooLarge, match="manifest_bytes"):
            await exchange.get(f"{there.url}/big", limit=100_000, setting="manifest_bytes")
        assert len((await exchange.post(f"{there.url}/big", b"{}")).body) == 65_536


async def test_a_gzip_bomb_stays_packed() -> None:
    async with listening(app) as there, Exchange() as exchange:
        assert len((await exchange.get(f"{there.url}/bomb")).body) < 20_000


async def test_a_server_that_is_not_there_was_not_reached() -> None:
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        async with Exchange() as exchange:
            with pytest.raises(NoAnswer) as caught:
                await exchange.post(f"http://127.0.0.1:{held.getsockname()[1]}/", b"{}")
    assert not caught.value.reached


@pytest.mark.parametrize("answer", [b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf", b"nonsense\r\n\r\n", b""])
async def test_one_that_breaks_off_or_hangs_may_have_been_reached(answer: bytes) -> None:
    async with rude(answer) as url, Exchange(answer_within=200) as exchange:
        with pytest.raises(NoAnswer) as caught:
            await exchange.post(url, b"{}")
    assert caught.value.reached


@pytest.mark.parametrize("sent", [b"half", b""])
async def test_a_status_is_an_answer_where_the_body_does_not_matter(sent: bytes) -> None:
    async with rude(b"HTTP/1.1 202 Accepted\r\nContent-Length: 100\r\n\r\n" + sent) as url, Exchange() as exchange:
        reply = await exchange.post(url, b"{}", by_status=True)
    assert (reply.status, reply.body) == (202, b"")


async def test_a_status_is_waited_for_where_the_body_does_not_matter() -> None:
    async with rude(b"") as url, Exchange(answer_within=50) as exchange:
        with pytest.raises(NoAnswer):
            await exchange.post(url, b"{}", by_status=True)


async def test_a_port_that_is_taken_is_named() -> None:
    async with listening(app) as there:
        with pytest.raises(ConfigurationError, match=str(there.port)):
            async with listening(app, port=there.port):
                pass
