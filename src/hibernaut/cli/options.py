"""Options that several commands share."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

F = TypeVar("F", bound=Callable[..., Any])


def decoded(value: str) -> str:
    """Return an argument with U+FFFD where its bytes are not UTF-8."""
    return value.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


class Word(click.ParamType[str]):
    """An argument that names something."""

    name = "text"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        text = decoded(value)
        if not text.strip():
            self.fail("it is empty", param, ctx)
        return text


WORD = Word()


class Instructions(click.ParamType[str]):
    """A text, or `@` and the file that holds it."""

    name = "text"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        if not value.startswith("@"):
            return decoded(value)
        try:
            return Path(value[1:]).read_bytes().decode("utf-8", "replace")
        except OSError as error:
            self.fail(f"{value[1:]} cannot be read: {error.strerror}", param, ctx)


def stores(*, required: bool) -> Callable[[F], F]:
    """Add `--store`."""
    where = (
        "File that holds the threads."
        if required
        else "File that holds the threads; left out, they end with this command."
    )
    return click.option(
        "--store", envvar="HIBERNAUT_STORE", show_envvar=True, required=required, metavar="FILE", type=WORD, help=where
    )


tenants = click.option(
    "--tenant", envvar="HIBERNAUT_TENANT", show_envvar=True, default="", metavar="NAME", help="Whose threads."
)

models = click.option(
    "--model",
    envvar="HIBERNAUT_MODEL",
    show_envvar=True,
    default="",
    metavar="NAME",
    help="The model: provider:model, `echo`, recorded:FILE, module:attribute or path/to/file.py:attribute.",
)

tools = click.option(
    "--tools",
    multiple=True,
    metavar="MODULE[:NAME]",
    help="Tools: module:name or path/to/file.py:name is one or a list of them, a module alone all it has. Repeatable.",
)

servers = click.option(
    "--server",
    "servers",
    multiple=True,
    type=WORD,
    metavar="[NAME=]URL|FILE|COMMAND",
    help="A tool server: its URL, the command that starts one, or a .toml file that says more about several "
    "(docs/rap.md). A name before `=` tells two apart. Repeatable.",
)

authority = click.option(
    "--authority", type=WORD, metavar="FILE", help="What a new agent may do, from a TOML file; by default everything."
)

listen = click.option(
    "--listen",
    type=WORD,
    metavar="HOST:PORT",
    help="Where callbacks come in; by default a port of this machine that the store remembers.",
)

public = click.option(
    "--public", type=WORD, metavar="URL", help="The base URL that tool servers are told, if it is another."
)

metrics = click.option(
    "--metrics",
    type=WORD,
    metavar="[HOST:]PORT",
    help="Where Prometheus finds /metrics; on this machine only, unless a HOST is named.",
)

traces = click.option(
    "--traces/--no-traces",
    default=None,
    help="Send OpenTelemetry spans where OTEL_* says; by default only if OTEL_TRACES_EXPORTER or an endpoint is set.",
)

instructions = click.option(
    "--instructions", type=Instructions(), default="", metavar="TEXT|@FILE", help="What a new agent is told to be."
)


def _decoded(_ctx: click.Context, _param: click.Parameter, value: str) -> str:
    return decoded(value)


reason = click.option(
    "--reason",
    default="",
    metavar="TEXT",
    callback=_decoded,
    help="Why; the receipt keeps it, and whoever looks at the thread reads it.",
)

json_lines = click.option("--json", "as_json", is_flag=True, help="Print one JSON object a line, and nothing else.")


def examples(*lines: str) -> str:
    """Return the end of a help text that shows how a command is used."""
    return "\b\nExamples:\n" + "\n".join(f"  {line}" for line in lines)


def text_or_stdin(value: str) -> str:
    """Return a text from the command line; `-` reads it from standard input, whatever bytes that holds."""
    if value != "-":
        return decoded(value)
    text = sys.stdin.buffer.read().decode("utf-8", "replace")
    return text.removesuffix("\n").removesuffix("\r")
