"""`hibernaut threads`: the group, and what its commands share."""

import sys
from collections.abc import AsyncIterator, Coroutine
from typing import Any

import click

from hibernaut.cli import options
from hibernaut.cli.running import run_async
from hibernaut.cli.terminal import columns, cut, safe
from hibernaut.stores.protocol import LogRow
from hibernaut.system import AgentSystem

LOG_PAGE = 256
"""Commits that are read at a time."""

LONGEST_EXCERPT = 200
"""Characters that are shown of a text in a table where no terminal says how much room there is."""


@click.group()
def threads() -> None:
    """See threads, stop them and let them go on.

    THREAD is the id of a thread, or enough of its beginning to tell it from the others (`thread_` may be left out).
    """


def with_thread(command: Any) -> Any:
    """Let a command be about one thread of a store."""
    for decorate in (
        options.tenants,
        options.stores(required=True),
        click.argument("thread", type=options.WORD),
    ):
        command = decorate(command)
    return command


def run(main: Coroutine[Any, Any, None]) -> None:
    """Run a command to its end."""

    async def coded() -> int:
        await main
        return 0

    run_async(coded())


def say(line: str) -> None:
    """Print a line, cut to the terminal's width if there is one."""
    click.echo(cut(safe(line), columns()) if sys.stdout.isatty() else line)


async def log_of(system: AgentSystem, thread_id: str, after: int = 0) -> AsyncIterator[LogRow]:
    """Yield the commits of a thread after a head version, a few in memory at a time."""
    while rows := await system.store.read_log(thread_id, after, LOG_PAGE):
        for row in rows:
            yield row
        after = rows[-1].version
