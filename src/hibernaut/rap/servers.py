"""Which tool servers there are, how they are reached, and what they are allowed."""

import logging
import shlex
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from pathlib import PurePath
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

import msgspec

from hibernaut.credentials import check_credential, credential, is_named
from hibernaut.errors import ConfigurationError, MalformedInput
from hibernaut.messages.text import shorten
from hibernaut.rap.limits import ANSWER_WITHIN, CONNECT_WITHIN, LONGEST_ADDRESS, LONGEST_NAME
from hibernaut.rap.origins import is_loopback_host
from hibernaut.rap.wire import check_address

if TYPE_CHECKING:
    import httpx2

logger = logging.getLogger(__name__)

IDLE: Final = 300_000
"""Milliseconds after which a process that nobody needs is stopped."""

_INTERPRETERS: Final = ("python", "node", "deno", "bun", "ruby", "sh", "bash")

_CODE: Final = ("-c", "-e", "--eval")
"""Options of interpreters after which a program follows, not its name."""

_OURS: Final = ("hibernaut", "hibernaut.cli")

_OWN_HEADERS: Final = frozenset(
    {
        "accept-encoding",
        "connection",
        "content-encoding",
        "content-length",
        "content-type",
        "host",
        "idempotency-key",
        "rap-version",
        "transfer-encoding",
    }
)
_SECRET_HEADERS: Final = frozenset({"authorization", "cookie", "proxy-authorization"})
_TOKEN: Final = frozenset("!#$%&'*+-.^_`|~0123456789abcdefghijklmnopqrstuvwxyz")


HeadersFor = Callable[[str, str], Mapping[str, str] | Awaitable[Mapping[str, str]]]
"""Returns the headers that say who asks, for a tenant and a user of it."""


class RemoteServer(msgspec.Struct, frozen=True, kw_only=True, repr_omit_defaults=True):
    """A tool server: either one that runs somewhere, by its base URL, or a command that starts one on this machine.

    Args:
        url: the base URL, below which the well-known path lies.
        command: what starts the server, as a list of arguments or as one text that is split like a shell would.
        name: what it is called, 1 to 128 characters on one line; by default the host (and port) of the URL, or the
            name of the program, or of the script or module that an interpreter runs.
        auth: how requests are authorized, see `hibernaut.auth`. Needs https, unless the server is on this machine.
        headers: sent with every request. A value `env:NAME` is read from the environment when a request is made.
        headers_for: called with the tenant and the user of the thread that makes a call, when the call is posted; what
            it returns is sent besides and kept nowhere. So everybody's calls have their own credentials.
        connect_within, answer_within: milliseconds.
        trust_endpoint: the server may lead calls, and the credentials with them, to another origin, also to one
            inside this machine or network.
        env: environment variables of the process, besides those of this one; values may be `env:NAME`.
        cwd: the folder that the process works in.
        idle: milliseconds after which a process that nobody needs is stopped.

    Raises:
        ConfigurationError: it cannot be meant like this; the text says what is wrong.
    """

    url: str = ""
    command: tuple[str, ...] | list[str] | str = ()
    name: str = ""
    auth: "httpx2.Auth | None" = None
    headers: Mapping[str, str] = {}
    headers_for: HeadersFor | None = None
    connect_within: int = CONNECT_WITHIN
    answer_within: int = ANSWER_WITHIN
    trust_endpoint: bool = False
    env: Mapping[str, str] = {}
    cwd: str = ""
    idle: int = IDLE

    def __post_init__(self) -> None:
        _set(self, "command", _arguments(self.command))
        if bool(self.url) == bool(self.command):
            raise ConfigurationError("a tool server is given by its `url` or by the `command` that starts it: by one")
        if self.url:
            _check_url(self.url)
            _set(self, "url", self.url.rstrip("/"))
        _set(self, "name", self.name or (_host(self.url) if self.url else _program(self.command)))
        if not self.name.strip() or len(self.name) > LONGEST_NAME or not self.name.isprintable():
            raise ConfigurationError(
                f"the name {shorten(repr(self.name), LONGEST_NAME)} of a tool server is not a text of 1 to "
                f"{LONGEST_NAME} characters on one line; give it a `name`"
            )
        _set(self, "headers", dict(self.headers))
        _set(self, "env", dict(self.env))
        _check_headers(self.name, self.headers)
        _check_privacy(self)
        _check_kind(self)
        for what in ("connect_within", "answer_within", "idle"):
            if getattr(self, what) <= 0:
                raise ConfigurationError(f"tool server {self.name!r}: `{what}` must be more than 0 milliseconds")

    def __repr__(self) -> str:
        place = f"url={self.url!r}" if self.url else f"command=({self.command[0]!r}, …)"
        return f"RemoteServer({place}, name={self.name!r})"

    @property
    def has_credentials(self) -> bool:
        """Whether requests say who asks."""
        return self.auth is not None or bool(self.headers) or self.headers_for is not None


def remote_server(given: RemoteServer | str) -> RemoteServer:
    """Return a server; a plain text is its base URL.

    Raises:
        ConfigurationError: the text is none.
    """
    return RemoteServer(url=given) if isinstance(given, str) else given


def servers_by_name(servers: Iterable[RemoteServer | str]) -> dict[str, RemoteServer]:
    """Return servers by their names. Of several on one host, those after the first have their path in it, too.

    Raises:
        ConfigurationError: two have one name, or one cannot be meant as it is given.
    """
    named: dict[str, RemoteServer] = {}
    for server in map(remote_server, servers):
        if server.name in named and server.url and server.name == _host(server.url):
            server = msgspec.structs.replace(server, name=_host(server.url) + urlsplit(server.url).path)  # noqa: PLW2901
        if server.name in named:
            raise ConfigurationError(
                f"two tool servers are called {server.name!r}; give one of them another `name` (`--server NAME=…`)"
            )
        named[server.name] = server
    return named


def _set(server: RemoteServer, field: str, value: object) -> None:
    msgspec.structs.force_setattr(server, field, value)


def _arguments(command: tuple[str, ...] | list[str] | str) -> tuple[str, ...]:
    if not isinstance(command, str):
        arguments = tuple(command)
    else:
        try:
            arguments = tuple(shlex.split(command))
        except ValueError as error:
            raise ConfigurationError(f"the command of a tool server cannot be split: {error}") from None
    if any("\0" in argument for argument in arguments) or (arguments and not arguments[0]):
        raise ConfigurationError("the command of a tool server has no program, or a NUL in it")
    return arguments


def _check_url(url: str) -> None:
    try:
        check_address("the url of a tool server", url)
    except MalformedInput as error:
        raise ConfigurationError(str(error)) from None
    if len(url) > LONGEST_ADDRESS:
        raise ConfigurationError(f"the url of a tool server has {len(url):,} characters; {LONGEST_ADDRESS:,} are most")
    if "?" in url or "#" in url:
        raise ConfigurationError(f"the url {url!r} of a tool server is a base: it has no query and no fragment")


def _program(command: Sequence[str]) -> str:
    """Return what a command is called: `ci` for `python -u tools/ci.py`, `python -m ci` and `/opt/ci/bin/ci`."""
    program, *arguments = command
    name = PurePath(program).name
    if name.startswith(_INTERPRETERS):
        while arguments and arguments[0].startswith("-") and arguments[0] != "-m":
            if arguments[0] in _CODE:
                return name
            arguments.pop(0)
        if arguments[:1] == ["-m"] and len(arguments) > 1:
            return (arguments[1] in _OURS and _served(arguments[2:])) or arguments[1]
        if arguments:
            return PurePath(arguments[0]).stem or name
    if name in _OURS:
        return _served(arguments) or name
    return name


def _served(arguments: Sequence[str]) -> str:
    """Return what `hibernaut rap serve` is to serve: `ci` for `tools/ci.py:server` and `ci:server`."""
    if list(arguments[:2]) != ["rap", "serve"]:
        return ""
    place = next(iter(arguments[2:3]), "").partition(":")[0]
    return PurePath(place).stem if place.endswith(".py") else place


def _host(url: str) -> str:
    return urlsplit(url).netloc


async def headers_for(server: str, lookup: HeadersFor, tenant: str, user: str) -> dict[str, str]:
    """Return the headers that say who asks, for a call that is posted now.

    Raises:
        ConfigurationError: they cannot be had, or cannot be headers.
    """
    try:
        found = lookup(tenant, user)
        given = dict(found if isinstance(found, Mapping) else await found)
    except Exception as error:
        # A lookup is the program's own code; what it says of credentials is for its log, and not for a model.
        logger.exception("tool server %s: the credentials of user %r (tenant %r) cannot be had", server, user, tenant)
        raise ConfigurationError(
            f"tool server {server!r}: the credentials of user {user!r} cannot be had: {type(error).__name__}"
        ) from error
    _check_headers(server, given)
    return {name: credential(f"tool server {server!r}: the header {name}", value) for name, value in given.items()}


def _check_headers(server: str, headers: Mapping[str, str]) -> None:
    for name, value in headers.items():
        if not name or not set(name.lower()) <= _TOKEN:
            raise ConfigurationError(f"tool server {server!r}: {name!r} cannot be the name of a header")
        if name.lower() in _OWN_HEADERS:
            raise ConfigurationError(f"tool server {server!r}: the header {name} is set by the runtime")
        check_credential(f"tool server {server!r}: the header {name}", value)
    if len({name.lower() for name in headers}) < len(headers):
        raise ConfigurationError(f"tool server {server!r}: a header is there twice")


def _check_privacy(server: RemoteServer) -> None:
    private = (
        server.auth is not None
        or server.headers_for is not None
        or any(is_named(value) or name.lower() in _SECRET_HEADERS for name, value in server.headers.items())
    )
    parts = urlsplit(server.url)
    if private and parts.scheme == "http" and not is_loopback_host(parts.hostname or ""):
        raise ConfigurationError(
            f"tool server {server.name!r}: credentials would go over the network in the clear; its url must be https"
        )


def _check_kind(server: RemoteServer) -> None:
    if server.url and (server.env or server.cwd):
        raise ConfigurationError(f"tool server {server.name!r}: `env` and `cwd` are for a `command`")
    for name, value in server.env.items():
        if not name or "=" in name or "\0" in name + value:
            raise ConfigurationError(f"tool server {server.name!r}: {name!r} cannot be an environment variable")
