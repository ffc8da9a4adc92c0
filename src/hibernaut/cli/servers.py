"""The tool servers that the command is given, and where they reach it."""

import os
import re
import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from hibernaut.errors import ConfigurationError
from hibernaut.rap.servers import RemoteServer
from hibernaut.reach import Callbacks

_ENVIRONMENT = "env:"
_NAMED = re.compile(r"([A-Za-z0-9_.-]+)=(?=\S)(.*)", re.DOTALL)
_URL = ("http://", "https://")
_GREATEST_PORT = 65_535


class _Basic(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    user: str
    password: str


class _SigV4(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    region: str
    service: str = "lambda"
    profile: str | None = None


class _Tls(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    certificate: str
    key: str
    ca: str | None = None
    password: str | None = None


class _Server(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A `[[server]]` of a file: what `RemoteServer` takes, and at most one way to be authorized."""

    url: str = ""
    command: str | list[str] = ""
    name: str = ""
    bearer: str = ""
    basic: _Basic | None = None
    sigv4: _SigV4 | None = None
    tls: _Tls | None = None
    headers: dict[str, str] = {}
    env: dict[str, str] = {}
    cwd: str = ""
    trust_endpoint: bool = False
    connect_within: int | None = None
    answer_within: int | None = None
    idle: int | None = None


class _Callbacks(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The `[callbacks]` of a file."""

    listen: str = ""
    public: str = ""
    secrets: list[str] = []
    allow_unsigned: bool = False


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    server: list[_Server] = []
    callbacks: _Callbacks | None = None


_TABLES: Mapping[str, type[msgspec.Struct]] = {"server[": _Server, "callbacks": _Callbacks}


class Servers(msgspec.Struct, frozen=True):
    """Tool servers, and where they reach this process; None: nobody said."""

    servers: tuple[RemoteServer, ...] = ()
    callbacks: Callbacks | None = None


def load_servers(given: Iterable[str], listen: str = "", public: str = "") -> Servers:
    """Return the servers that are named: [NAME=]URL, [NAME=]COMMAND, or a file that ends in .toml.

    Raises:
        ConfigurationError: one of them cannot be meant; the text says which and why.
    """
    servers: list[RemoteServer] = []
    settings: list[_Callbacks] = []
    for one in given:
        named = _NAMED.fullmatch(one)
        if named or not one.endswith(".toml"):
            servers.append(_meant(*named.groups()) if named else _meant("", one))
        else:
            file = _read(Path(one))
            servers += [_of_file(each, number, Path(one)) for number, each in enumerate(file.server, 1)]
            settings += [file.callbacks] if file.callbacks else []
    if len(settings) > 1:
        raise ConfigurationError("two files say where callbacks come in; one must")
    written = settings[0] if settings else _Callbacks()
    written = msgspec.structs.replace(written, listen=listen or written.listen, public=public or written.public)
    return Servers(tuple(servers), _callbacks(written) if written != _Callbacks() else None)


def _meant(name: str, written: str) -> RemoteServer:
    if written.startswith(_URL):
        return RemoteServer(url=written, name=name)
    if "://" in (*written.split(), "")[0]:
        raise ConfigurationError(f"{written!r} is no address of a tool server: a URL begins with http:// or https://")
    server = RemoteServer(command=written, name=name)
    _check_program(server)
    return server


def _check_program(server: RemoteServer) -> None:
    """Refuse a command whose program is not there, which may be an address that was meant as a URL."""
    program = server.command[0]
    place = str(Path(server.cwd) / program) if "/" in program else program
    if shutil.which(place, path=server.env.get("PATH")) is None:
        raise ConfigurationError(
            f"tool server {server.name!r}: there is no program {program!r} that could be started; "
            "if it is an address, a URL begins with http:// or https://"
        )


def _of_file(written: _Server, number: int, path: Path) -> RemoteServer:
    try:
        server = _server(written)
        if server.command:
            _check_program(server)
    except ConfigurationError as error:
        raise ConfigurationError(f"{path}: server {number}: {error}") from error
    return server


def _read(path: Path) -> _File:
    try:
        written = path.read_bytes()
        found = msgspec.toml.decode(written, type=_File)
    except OSError as error:
        raise ConfigurationError(f"{path} cannot be read: {error.strerror}") from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"{path} cannot be used: {_explained(str(error))}") from error
    if found == _File():
        raise ConfigurationError(f"{path} names no tool server; write a [[server]] with a `url` or a `command`")
    return found


def _explained(error: str) -> str:
    """Name the entry instead of a path that counts from 0, and for an unknown key the keys there are."""
    kind: type[msgspec.Struct] = _File
    for field, known in _TABLES.items():
        kind = known if f"`$.{field}" in error and error.endswith("`") else kind
    said = re.sub(r"\$\.server\[(\d+)\]", lambda found: f"server {int(found[1]) + 1}", error)
    return f"{said}; it has the keys {', '.join(kind.__struct_fields__)}" if "unknown field" in error else said


def _server(written: _Server) -> RemoteServer:
    from hibernaut.auth import Basic, Bearer, MutualTls, SigV4

    ways: Mapping[str, Any] = {
        "bearer": Bearer(written.bearer) if written.bearer else None,
        "basic": Basic(written.basic.user, written.basic.password) if written.basic else None,
        "sigv4": SigV4(**msgspec.structs.asdict(written.sigv4)) if written.sigv4 else None,
        "tls": MutualTls(**msgspec.structs.asdict(written.tls)) if written.tls else None,
    }
    chosen = [name for name, way in ways.items() if way is not None]
    if len(chosen) > 1:
        raise ConfigurationError(f"a server is authorized in one way, not by {' and '.join(chosen)}")
    times = {name: getattr(written, name) for name in ("connect_within", "answer_within", "idle")}
    return RemoteServer(
        url=written.url,
        command=written.command or (),
        name=written.name,
        auth=ways[chosen[0]] if chosen else None,
        headers=written.headers,
        env=written.env,
        cwd=written.cwd,
        trust_endpoint=written.trust_endpoint,
        **{name: value for name, value in times.items() if value is not None},
    )


def _callbacks(written: _Callbacks) -> Callbacks:
    host, port = address(written.listen) if written.listen else ("127.0.0.1", 0)
    secrets = tuple(_secret(one) for one in written.secrets)
    return Callbacks(
        host=host, port=port, public=written.public, secrets=secrets, allow_unsigned=written.allow_unsigned
    )


def address(written: str) -> tuple[str, int]:
    """Return host and port of `HOST:PORT`, `:PORT` (this machine only) or `PORT`.

    Raises:
        ConfigurationError: it is none of them.
    """
    host, _, port = written.rpartition(":")
    if not port.isascii() or not port.isdigit():
        raise ConfigurationError(f"{written!r} is no address to listen at; give HOST:PORT, such as 127.0.0.1:7411")
    if int(port) > _GREATEST_PORT:
        raise ConfigurationError(f"{written!r} is no address to listen at: {port} is no port")
    return host.strip("[]") or "127.0.0.1", int(port)


def _secret(written: str) -> bytes:
    if not written.startswith(_ENVIRONMENT):
        raise ConfigurationError("a secret for callbacks is not written into a file; write env:NAME")
    name = written.removeprefix(_ENVIRONMENT)
    value = os.environ.get(name)
    if not value:
        raise ConfigurationError(f"the environment has no {name}, which should be a secret for callbacks")
    return value.encode()
