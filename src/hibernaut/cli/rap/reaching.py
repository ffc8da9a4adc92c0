"""How a server is reached, and how it reaches us: the arguments and options that these commands share."""

import json
import os
import re
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, TypeVar

import click

from hibernaut.cli.failures import PARKED
from hibernaut.cli.options import decoded, text_or_stdin
from hibernaut.cli.running import run_async
from hibernaut.cli.terminal import safe
from hibernaut.errors import InputRefused
from hibernaut.rap.exchange import NoAnswer
from hibernaut.rap.wire import TOOLSET_PATH
from hibernaut.tools.arguments import JSON, parse_arguments

NO_ANSWER = PARKED
"""The exit code when a server cannot be reached, or does not answer in time."""

F = TypeVar("F", bound=Callable[..., Any])

_HIGHEST_PORT = 65_535
_STEERING = re.compile("[\x7f-\x9f]")


class Server(click.ParamType[str]):
    """The address of a server; that of its manifest means the same."""

    name = "url"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        url = decoded(value).strip()
        if not url.startswith(("http://", "https://")):
            self.fail(f"{value!r} is no address; it starts with http:// or https://", param, ctx)
        return url.removesuffix(TOOLSET_PATH).rstrip("/")


class Bearer(click.ParamType[str]):
    """A secret in an environment variable, so that it is in no list of processes."""

    name = "secret"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        kind, _, variable = value.partition(":")
        if kind != "env" or not variable:
            self.fail("name an environment variable, as in env:TOKEN", param, ctx)
        secret = os.environ.get(variable, "").strip()
        if not secret or not secret.isascii() or not secret.isprintable():
            self.fail(f"the environment variable {variable} holds no secret", param, ctx)
        return secret


class Header(click.ParamType[tuple[str, str]]):
    """A header, as NAME=VALUE."""

    name = "header"

    def convert(
        self, value: str | tuple[str, str], param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, str]:
        if isinstance(value, tuple):
            return value
        name, sign, content = value.partition("=")
        if not sign or not name.strip() or not value.isascii() or not value.isprintable():
            self.fail(f"{value!r} is no header; write NAME=VALUE", param, ctx)
        return name.strip(), content.strip()


class ListenAt(click.ParamType[tuple[str, int]]):
    """Where callbacks are taken, as HOST:PORT."""

    name = "address"

    def convert(
        self, value: str | tuple[str, int], param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, int]:
        if isinstance(value, tuple):
            return value
        host, sign, port = value.rpartition(":")
        if not sign or not host or not port.isascii() or not port.isdigit() or int(port) > _HIGHEST_PORT:
            self.fail(f"{value!r} is no address; write HOST:PORT, as in 0.0.0.0:8900", param, ctx)
        return host.strip("[]"), int(port)


class NamedCall(click.ParamType[tuple[str, dict[str, JSON]]]):
    """A tool and its arguments, as NAME or NAME=JSON."""

    name = "call"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, dict[str, JSON]]:
        if isinstance(value, tuple):
            return value
        name, _, written = decoded(value).partition("=")
        try:
            return name.strip(), parse_arguments(written)
        except InputRefused as error:
            self.fail(f"{name}: {error}", param, ctx)


def arguments_of(written: str) -> dict[str, JSON]:
    """Read the arguments of a call: JSON, `@` and a file that holds it, or `-` for standard input.

    Raises:
        UsageError: the file cannot be read, or it is no JSON object.
    """
    try:
        text = Path(written[1:]).read_bytes() if written.startswith("@") else text_or_stdin(written)
        return parse_arguments(text)
    except OSError as error:
        raise click.UsageError(f"{written[1:]} cannot be read: {error.strerror}") from error
    except InputRefused as error:
        raise click.UsageError(str(error)) from error


server = click.argument("url", type=Server(), metavar="URL")


def authorized(command: F) -> F:
    """Add the options that say who we are."""
    command = click.option(
        "--header", "header", type=Header(), multiple=True, metavar="NAME=VALUE", help="A header to send. Repeatable."
    )(command)
    return click.option(
        "--bearer", type=Bearer(), metavar="env:NAME", help="Send the secret in this environment variable."
    )(command)


def called_back(command: F) -> F:
    """Add the options that say where callbacks are taken."""
    command = click.option(
        "--public-url", default="", metavar="URL", help="Where the server reaches what listens at --listen."
    )(command)
    return click.option(
        "--listen",
        type=ListenAt(),
        default=("127.0.0.1", 0),
        metavar="HOST:PORT",
        help="Where callbacks are taken; left out, any free port of this machine, for itself only.",
    )(command)


def headers_of(bearer: str | None, header: tuple[tuple[str, str], ...]) -> dict[str, str]:
    """Return the headers that are sent to the server's own origin."""
    return dict(header) | ({"Authorization": f"Bearer {bearer}"} if bearer else {})


def run(main: Coroutine[Any, Any, int]) -> None:
    """Run a command to its end, and exit as it says. A server that is not there has a code of its own."""

    async def coded() -> int:
        try:
            return await main
        except NoAnswer as error:
            click.echo(f"Error: {safe(str(error))}", err=True)
            return NO_ANSWER

    click.get_current_context().exit(run_async(coded()))


def as_json(value: Any) -> str:
    """Write a value as one line of JSON with nothing in it that steers a terminal."""
    return _STEERING.sub(_escaped, json.dumps(value, ensure_ascii=False, separators=(",", ":")))


def _escaped(found: re.Match[str]) -> str:
    return f"\\u{ord(found[0]):04x}"
