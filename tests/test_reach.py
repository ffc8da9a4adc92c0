"""Where a system listens for callbacks, what it tells servers about that, and what it refuses."""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest

from hibernaut.errors import ConfigurationError
from hibernaut.rap.exchange import Exchange, NoAnswer
from hibernaut.reach import Callbacks
from hibernaut.stores.memory import MemoryStore
from hibernaut.stores.protocol import Store
from hibernaut.system import AgentSystem
from tests.rap.interop.bad import BadServer
from tests.rap.interop.parties import HurriedClock, agents, tell, until_owed


@asynccontextmanager
async def front_door(store: Store | Path, callbacks: Callbacks | None = None) -> AsyncIterator[AgentSystem]:
    """Take callbacks for a store, and run nothing."""
    async with AgentSystem(store=store, callbacks=callbacks or Callbacks(), run=False) as system:
        yield system


@pytest.mark.parametrize(
    "given, words",
    [
        ({"port": -1}, "-1 is no port"),
        ({"port": 65_536}, "65536 is no port"),
        ({"listen": False}, "`public` must say where"),
        ({"public": "tools.example.com"}, "not an http or https address"),
        ({"public": "ftp://tools.example.com"}, "not an http or https address"),
        ({"public": "https://ann:secret@tools.example.com"}, "user name"),
        ({"public": "https://tools.example.com/base?a=1"}, "no query"),
        ({"public": "https://tools.example.com/base#a"}, "no query"),
        ({"public": "https://tools.example.com/" + "x" * 2_000}, "characters"),
    ],
)
def test_what_cannot_be_meant_is_refused(given: dict[str, object], words: str) -> None:
    with pytest.raises(ConfigurationError, match=words):
        Callbacks(**given)  # type: ignore[arg-type]


async def test_a_short_secret_is_refused_when_it_is_used() -> None:
    with pytest.raises(ConfigurationError, match="16 bytes"):
        async with front_door(MemoryStore(), Callbacks(secrets=(b"short",))):
            pass


@pytest.mark.parametrize("host", ["0.0.0.0", "::"])
async def test_servers_are_not_told_an_address_that_is_none(host: str) -> None:
    with pytest.raises(ConfigurationError, match="`public`"):
        async with agents("http://127.0.0.1:9", callbacks=Callbacks(host=host)):
            pass


async def test_the_port_is_the_same_after_every_start() -> None:
    store = MemoryStore()
    async with front_door(store) as system:
        first = system.callbacks
    async with front_door(store) as system:
        assert system.callbacks == first


async def test_a_port_that_is_named_is_had_or_refused_and_not_remembered() -> None:
    store = MemoryStore()
    async with front_door(store) as one:
        port = int(one.callbacks.rpartition(":")[2])
        with pytest.raises(ConfigurationError, match=str(port)):
            async with front_door(MemoryStore(), Callbacks(port=port)):
                pass
    async with front_door(other := MemoryStore(), Callbacks(port=port)) as two:
        assert two.callbacks == f"http://127.0.0.1:{port}"
    assert await other.read_note("callbacks:port") is None


async def test_two_processes_on_one_store_share_the_address(tmp_path: Path) -> None:
    file = tmp_path / "agents.db"
    bad = BadServer()
    async with bad.running() as there, front_door(file) as door, agents(there.url, store=file) as system:
        assert system.callbacks == door.callbacks
        await until_owed(await tell(system, "echo"), "invoke: accepted")
        (call,) = bad.calls
        assert call["callback_url"].startswith(f"{door.callbacks}/rap/callback/")


async def test_the_second_of_two_processes_takes_the_place_of_the_first_when_that_ends(tmp_path: Path) -> None:
    file = tmp_path / "agents.db"
    async with AsyncExitStack() as first, Exchange() as exchange:
        await first.enter_async_context(front_door(file))
        async with AgentSystem(store=file, callbacks=Callbacks(), run=False, clock=HurriedClock()) as second:
            health = f"{second.callbacks}/rap/health"
            assert (await exchange.get(health)).status == 200
            await first.aclose()
            async with asyncio.timeout(10):
                while not await is_answered(exchange, health):
                    pass
            async with front_door(file) as third:
                assert third.callbacks == second.callbacks


async def is_answered(exchange: Exchange, url: str) -> bool:
    try:
        return (await exchange.get(url)).status == 200
    except NoAnswer:
        return False


STRANGERS = {
    "says nothing": b"",
    "speaks no HTTP": b"220 mail.example.com ESMTP\r\n",
    "has a large page": b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n" + b"x" * 1_000_000,
    "has a page in Latin-1": b'HTTP/1.1 200 OK\r\nContent-Length: 12\r\n\r\n{"keys":"\xe9"}',
    "receives for another store": b'HTTP/1.1 200 OK\r\nContent-Length: 17\r\n\r\n{"keys":"000000"}',
}


@pytest.mark.parametrize("says", STRANGERS.values(), ids=STRANGERS)
async def test_a_port_that_a_stranger_has_is_left_to_it(
    says: bytes, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hibernaut.reach._HEALTH_WITHIN", 200)
    store = MemoryStore()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(says)
        if not says:
            await reader.read()
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as stranger:
        port = stranger.sockets[0].getsockname()[1]
        await store.write_note("callbacks:port", str(port).encode())
        with caplog.at_level(logging.WARNING):
            async with front_door(store) as system:
                assert system.callbacks.rpartition(":")[2] != str(port)
        assert f"callbacks that were to come to port {port} will not" in caplog.text
    async with front_door(store) as system:
        assert system.callbacks == f"http://127.0.0.1:{port}"


@pytest.mark.parametrize("note", [b"nonsense", b"80", b"70000"])
async def test_a_note_of_a_port_that_is_none_is_not_heeded(note: bytes) -> None:
    store = MemoryStore()
    await store.write_note("callbacks:port", note)
    async with front_door(store) as system:
        assert int(system.callbacks.rpartition(":")[2]) > 1_024


@pytest.mark.parametrize(
    "public, host, status",
    [
        ("https://agents.example.com/base/", "agents.example.com", 200),
        ("https://AGENTS.example.com:443", "agents.example.com", 200),
        ("https://agents.example.com:8443", "agents.example.com:8443", 200),
        ("https://agents.example.com", "evil.example.com", 421),
    ],
)
async def test_requests_are_taken_under_the_public_name_and_those_of_this_machine(
    public: str, host: str, status: int
) -> None:
    async with Exchange() as exchange, front_door(store := MemoryStore(), Callbacks(public=public)) as system:
        assert system.callbacks == public.rstrip("/")
        port = int((await store.read_note("callbacks:port") or b"").decode())
        reply = await exchange.get(f"http://127.0.0.1:{port}/rap/health", headers={"Host": host})
    assert reply.status == status


async def test_one_that_does_not_listen_tells_servers_where_somebody_else_does() -> None:
    bad = BadServer()
    elsewhere = Callbacks(listen=False, public="https://agents.example.com/")
    async with bad.running() as there, agents(there.url, callbacks=elsewhere) as system:
        assert await system.store.read_note("callbacks:port") is None
        await until_owed(await tell(system, "echo"), "invoke: accepted")
    assert bad.calls[0]["callback_url"].startswith("https://agents.example.com/rap/callback/h2.")
