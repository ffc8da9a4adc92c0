"""How a system reaches tool servers, and how they reach it."""

import asyncio
import logging
from collections.abc import Callable, Iterable
from contextlib import AsyncExitStack, suppress
from typing import TYPE_CHECKING, Final, TypeAlias, cast
from urllib.parse import urlsplit

import msgspec

from hibernaut.clock import Clock
from hibernaut.engine.servers import Remote, address_note
from hibernaut.errors import ConfigurationError, MalformedInput, TooLarge
from hibernaut.metrics import Metrics
from hibernaut.rap.limits import LONGEST_ADDRESS
from hibernaut.rap.servers import RemoteServer, servers_by_name
from hibernaut.rap.wire import check_address
from hibernaut.stores.protocol import Store
from hibernaut.tools.tokens import KeyRing

if TYPE_CHECKING:
    from hibernaut.rap.listening import App
    from hibernaut.rap.tool_servers import ToolServers

Servers: TypeAlias = "Iterable[RemoteServer | str] | ToolServers"
"""Tool servers as a program gives them."""

Configured: TypeAlias = "dict[str, RemoteServer] | ToolServers"
"""The same, looked at."""

logger = logging.getLogger(__name__)

_PORT_NOTE: Final = "callbacks:port"
_PRIVILEGED: Final = 1_024
_LAST_PORT: Final = 65_535
_HEALTH_WITHIN: Final = 2_000
_LOOK_EVERY: Final = 1_000
"""Milliseconds between two looks whether the port that another process has is free."""
ANYWHERE: Final = ("0.0.0.0", "::")  # noqa: S104  # to bind to
"""Hosts to listen at that are no address a server could post to."""
_USUAL_PORT: Final = {"http": ":80", "https": ":443"}


class _Health(msgspec.Struct, frozen=True):
    keys: str = ""


class Callbacks(msgspec.Struct, frozen=True, kw_only=True):
    """Where tool servers post what becomes of calls.

    Args:
        host, port: where this process listens. Port 0 is one that was free when the store was first used with tool
            servers, and the same from then on, so that answers find their way after a restart. Should another process
            listen there for the same store, that one receives the callbacks of this one, too, and this one takes
            its place when it ends.
        public: the base URL that servers are told, where it is another one than `http://host:port`: that of a proxy,
            or of another process that receives callbacks for the same store.
        listen: False where another process does it (`hibernaut serve --inbox-only`); needs `public`.
        secrets: what signs callback tokens, the newest first, before the secret that the store was made with. To change
            one, put the new one in front and leave the old one until what it has signed is over.
        allow_unsigned: take callbacks without a token from servers on this machine.

    Raises:
        ConfigurationError: it cannot be meant like this; the text says why.
    """

    host: str = "127.0.0.1"
    port: int = 0
    public: str = ""
    listen: bool = True
    secrets: tuple[bytes, ...] = ()
    allow_unsigned: bool = False

    def __post_init__(self) -> None:
        if not 0 <= self.port <= _LAST_PORT:
            raise ConfigurationError(f"callbacks: {self.port} is no port; it is a number up to {_LAST_PORT}")
        if not self.listen and not self.public:
            raise ConfigurationError("callbacks: with `listen=False`, `public` must say where servers post them")
        if self.public:
            _check_public(self.public)


def _check_public(public: str) -> None:
    try:
        check_address("the public address of callbacks", public)
    except MalformedInput as error:
        raise ConfigurationError(str(error)) from None
    if len(public) > LONGEST_ADDRESS:
        raise ConfigurationError(
            f"the public address of callbacks has {len(public):,} characters; {LONGEST_ADDRESS:,} are most"
        )
    if "?" in public or "#" in public:
        raise ConfigurationError(
            f"the public address {public!r} of callbacks is a base: it has no query and no fragment"
        )


def configured(servers: Servers) -> Configured:
    """Look at tool servers as a program gives them.

    Raises:
        ConfigurationError: two have one name, or one cannot be meant as it is given.
    """
    if hasattr(servers, "discover"):
        return cast("ToolServers", servers)
    return servers_by_name(servers)


def names_of(servers: Configured) -> tuple[str, ...]:
    """Return the names of tool servers."""
    return tuple(servers if isinstance(servers, dict) else servers.names)


async def reach(
    servers: Configured,
    callbacks: Callbacks,
    store: Store,
    clock: Clock,
    stack: AsyncExitStack,
    on_view: Callable[[str, str, str], None],
    *,
    whole: bool,
    metrics: Metrics,
    tenant: str | None = None,
) -> Remote:
    """Connect to tool servers and listen for what they answer, for as long as the stack stands.

    `whole`: this process runs all threads of the tenant (None: of the store), and so looks after the calls that are
    open.

    Raises:
        ConfigurationError: the address cannot be had, or a server cannot be meant like this.
    """
    if callbacks.host in ANYWHERE and not callbacks.public and names_of(servers):
        raise ConfigurationError(
            f"callbacks: no tool server can post to {callbacks.host}; say in `public` where this machine is reached"
        )
    secrets = [*callbacks.secrets, await store.secret(), *await store.old_secrets()]
    keys = KeyRing(list(dict.fromkeys(secrets)))
    address = await _listen(callbacks, keys, store, clock, stack, on_view, metrics) if callbacks.listen else ""
    public = (callbacks.public or address).rstrip("/")
    moved = whole and await _has_moved(store, public, address_note(tenant))
    if not isinstance(servers, dict):
        return Remote(servers, public, keys, moved)
    from hibernaut.rap.connections import Connections  # noqa: PLC0415  # an HTTP client takes long to import

    async def busy(name: str) -> bool:
        return await _has_open_calls(store, name, clock.now())

    connections = await stack.enter_async_context(Connections(servers, clock, busy=busy))
    asking = {name: server.headers_for for name, server in servers.items() if server.headers_for is not None}
    return Remote(connections, public, keys, moved, asking)


async def _listen(
    callbacks: Callbacks,
    keys: KeyRing,
    store: Store,
    clock: Clock,
    stack: AsyncExitStack,
    on_view: Callable[[str, str, str], None],
    metrics: Metrics,
) -> str:
    from hibernaut.rap.admission import LOCAL_HOSTS, is_loopback  # noqa: PLC0415
    from hibernaut.rap.listening import Address, listening  # noqa: PLC0415
    from hibernaut.rap.receiver import CallbackReceiver  # noqa: PLC0415

    local = callbacks.host == "localhost" or is_loopback(callbacks.host)
    hosts = LOCAL_HOSTS | _names(callbacks.public) if local else None
    app = CallbackReceiver(
        store,
        keys,
        clock,
        hosts=hosts,
        allow_unsigned_loopback=callbacks.allow_unsigned,
        on_view=on_view,
        metrics=metrics,
    )
    if callbacks.port:
        return (await stack.enter_async_context(listening(app, callbacks.host, callbacks.port))).url
    noted = _port(await store.read_note(_PORT_NOTE))
    if noted:
        try:
            return (await stack.enter_async_context(listening(app, callbacks.host, noted))).url
        except ConfigurationError as error:
            there = Address(callbacks.host, noted).url
            if await _receives(there, keys):
                standing_by = (await stack.enter_async_context(asyncio.TaskGroup())).create_task(
                    _stand_by(app, callbacks.host, noted, clock)
                )
                stack.callback(standing_by.cancel)
                return there
            logger.warning("callbacks that were to come to port %d will not: %s", noted, error)
    address = await stack.enter_async_context(listening(app, callbacks.host))
    if not noted:
        await store.write_note(_PORT_NOTE, str(address.port).encode())
    return address.url


async def _stand_by(app: "App", host: str, port: int, clock: Clock) -> None:
    """Listen as soon as the process that listens there for the same store does so no more."""
    from hibernaut.rap.listening import listening  # noqa: PLC0415

    while True:
        await clock.sleep(_LOOK_EVERY)
        with suppress(ConfigurationError):  # it does
            async with listening(app, host, port):
                logger.info("callbacks that came to another process at port %d come here now", port)
                await asyncio.Event().wait()


def _names(public: str) -> set[str]:
    """Return the names that requests to an address bear as their host: a port that is the usual one is left out."""
    parts = urlsplit(public)
    named = parts.netloc.lower()
    return {named, named.removesuffix(_USUAL_PORT[parts.scheme])} if named else set()


async def _receives(url: str, keys: KeyRing) -> bool:
    """Tell whether callbacks for the same store are received at an address already."""
    from hibernaut.rap.exchange import Exchange, NoAnswer  # noqa: PLC0415
    from hibernaut.rap.receiver import HEALTH_PATH  # noqa: PLC0415

    try:
        async with Exchange(answer_within=_HEALTH_WITHIN) as exchange:
            reply = await exchange.get(url + HEALTH_PATH)
        return msgspec.json.decode(reply.body, type=_Health).keys == keys.newest
    except (NoAnswer, TooLarge, msgspec.DecodeError, UnicodeDecodeError):
        return False


async def _has_moved(store: Store, public: str, note: str) -> bool:
    """Tell whether open calls may have been told another address. Whoever tells them the new one notes that."""
    known, address = await store.read_note(note), public.encode()
    if known is None:
        await store.write_note(note, address)
    return known not in (None, address)


def _port(note: bytes | None) -> int:
    written = (note or b"").decode("ascii", "replace")
    port = int(written) if written.isdigit() else 0
    return port if _PRIVILEGED <= port <= _LAST_PORT else 0


async def _has_open_calls(store: Store, server: str, now: int) -> bool:
    after = ""
    while rows := await store.accepted_effects(now + 1, after):
        if any(row.effect.server == server for row in rows):
            return True
        after = rows[-1].effect.request_id
    return False
