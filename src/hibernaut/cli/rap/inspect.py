"""`hibernaut rap inspect`: a server's manifest, as people read it."""

import textwrap
from collections.abc import Iterator
from typing import Any

import click
import msgspec

from hibernaut.cli import options
from hibernaut.cli.failures import ANSWERED, REFUSED
from hibernaut.cli.rap.reaching import as_json, authorized, headers_of, run, server
from hibernaut.cli.rap.signatures import signature
from hibernaut.cli.terminal import columns, safe
from hibernaut.errors import InputRefused
from hibernaut.rap.check.peer import Peer, is_same_origin
from hibernaut.rap.check.session import is_taken
from hibernaut.rap.manifest import RemoteTool, Toolset, ToolsetRefused, read_manifest
from hibernaut.rap.wire import TOOLSET_PATH

FORMAT = 1
"""The version of the JSON form."""

WIDEST = 120
"""Columns that a description has at most."""

_CODES = """\
\b
Exit codes:
    0  the toolset can be used
    1  it is refused
    2  the command line is not right
    3  the server cannot be reached
"""


@click.command(epilog=f"{options.examples('hibernaut rap inspect http://127.0.0.1:8800 --schemas')}\n\n{_CODES}")
@server
@authorized
@click.option("--schemas", is_flag=True, help="Show the whole schema of each tool.")
@click.option("--json", "json", is_flag=True, help="Print one JSON object, and nothing else.")
def inspect(url: str, bearer: str | None, header: tuple[tuple[str, str], ...], *, schemas: bool, json: bool) -> None:
    """Show what the server at URL says of itself and its tools, or why it cannot be used."""
    run(_inspect(url, headers_of(bearer, header), schemas=schemas, json=json))


async def _inspect(url: str, headers: dict[str, str], *, schemas: bool, json: bool) -> int:
    async with Peer(url, headers) as peer:
        toolset, problems = await _toolset(peer)
    if json:
        click.echo(as_json(_record(url, toolset, problems)))
    elif toolset is None:
        click.echo(f"The toolset at {safe(url)} is refused:")
        for problem in problems:
            click.echo(f"  {safe(problem)}")
    else:
        for line in _lines(url, toolset, schemas=schemas):
            click.echo(safe(line))
    return REFUSED if toolset is None else ANSWERED


async def _toolset(peer: Peer) -> tuple[Toolset | None, tuple[str, ...]]:
    """Fetch the toolset and return it, or why a runtime would refuse it."""
    answered = await peer.manifest()
    if answered.status is None:
        return None, (answered.words,)
    if not is_taken(answered):
        return None, (f"it has no manifest at {TOOLSET_PATH}: {answered.words}",)
    try:
        toolset = read_manifest(answered.body)
    except ToolsetRefused as error:
        return None, error.problems
    except InputRefused as error:
        return None, (str(error),)
    problem = await peer.check_endpoint(toolset.endpoint)
    return (None, (problem,)) if problem else (toolset, ())


def _lines(url: str, toolset: Toolset, *, schemas: bool) -> Iterator[str]:
    wide = min(columns(), WIDEST)
    count = len(toolset.tools)
    yield f"{toolset.name}: {count} {'tool' if count == 1 else 'tools'}"
    yield from _wrapped(toolset.description, wide, "  ")
    elsewhere = (
        "" if is_same_origin(toolset.endpoint, url) else "  (at another origin: refused if there are credentials)"
    )
    yield f"  calls go to {toolset.endpoint}{elsewhere}"
    if toolset.needs_migration:
        yield "  it keeps state of its own, which has to be migrated with a thread"
    for tool in toolset.tools:
        yield ""
        yield signature(tool)
        yield from _wrapped(tool.description, wide, "    ")
        if notes := _notes(tool):
            yield f"    {notes}"
        if schemas:
            schema = msgspec.json.format(tool.parameters.encode(), indent=2).decode()
            yield from textwrap.indent(schema, "    ").splitlines()
        if schemas and tool.event_schema:
            yield "    its events:"
            schema = msgspec.json.format(tool.event_schema.encode(), indent=2).decode()
            yield from textwrap.indent(schema, "    ").splitlines()


def _notes(tool: RemoteTool) -> str:
    annotations: dict[str, Any] = msgspec.json.decode(tool.annotations)
    written = [
        name if value is True else f"{name}: {msgspec.json.encode(value).decode()}"
        for name, value in annotations.items()
        if value is not False and value is not None
    ]
    return f"[{', '.join(written)}]" if written else ""


def _wrapped(text: str, wide: int, indent: str) -> list[str]:
    lines = text.strip().splitlines()
    return [
        part for line in lines for part in textwrap.wrap(line, wide, initial_indent=indent, subsequent_indent=indent)
    ]


def _record(url: str, toolset: Toolset | None, problems: tuple[str, ...]) -> dict[str, Any]:
    record: dict[str, Any] = {"rap_inspect": FORMAT, "server": url, "problems": problems, "toolset": None}
    if toolset is not None:
        record["toolset"] = {
            "name": toolset.name,
            "description": toolset.description,
            "endpoint": toolset.endpoint,
            "elsewhere": not is_same_origin(toolset.endpoint, url),
            "needs_migration": toolset.needs_migration,
            "tools": [
                {
                    "name": tool.name,
                    "description": tool.description,
                    "signature": signature(tool),
                    "annotations": msgspec.json.decode(tool.annotations),
                    "input_schema": msgspec.json.decode(tool.parameters),
                    "display_script": tool.display_script,
                    "event_schema": msgspec.json.decode(tool.event_schema) if tool.event_schema else None,
                }
                for tool in toolset.tools
            ],
        }
    return record
