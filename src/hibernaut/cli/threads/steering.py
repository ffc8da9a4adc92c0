"""`hibernaut threads stop`, `resume`, `close`, `compact`, `delete`, `prune`: what an operator does to threads."""

import re
import sys
from collections.abc import Awaitable, Callable

import click

from hibernaut.cli import options
from hibernaut.cli.finding import find_thread
from hibernaut.cli.running import opened
from hibernaut.cli.starting import Setting
from hibernaut.cli.threads.group import run, threads, with_thread
from hibernaut.handle import ThreadHandle

UNITS = {"h": 3_600_000, "d": 86_400_000, "w": 604_800_000}
"""Milliseconds of what an age is given in."""

_AGE = re.compile(r"([0-9]{1,6})([hdw])")

whole_tree = click.option("--tree", is_flag=True, help="Also all threads below it.")


class Age(click.ParamType[int]):
    """A length of time, as 12h, 30d or 8w; in milliseconds."""

    name = "age"

    def convert(self, value: str | int, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if isinstance(value, int):
            return value
        found = _AGE.fullmatch(value)
        if found is None:
            self.fail(f"{value!r} is no age; write one as 12h, 30d or 8w", param, ctx)
        return int(found[1]) * UNITS[found[2]]


@threads.command(short_help="Stop a thread, until it is resumed.")
@with_thread
@click.option("--reason", default="", metavar="TEXT", help="Why; whoever looks at the thread reads it.")
@whole_tree
def stop(thread: str, store: str, tenant: str, reason: str, *, tree: bool) -> None:
    """Stop a thread: it says no more, its open calls are cancelled, and what comes is held.

    It goes on when it is resumed, or when somebody says something to it.
    """

    async def steer(handle: ThreadHandle) -> None:
        await handle.stop(options.decoded(reason), tree=tree)

    run(_steer(Setting(store, tenant), thread, "stop", steer))


@threads.command(short_help="Let a stopped or parked thread go on.")
@with_thread
@whole_tree
def resume(thread: str, store: str, tenant: str, *, tree: bool) -> None:
    """Let a stopped or parked thread go on."""

    async def steer(handle: ThreadHandle) -> None:
        await handle.resume(tree=tree)

    run(_steer(Setting(store, tenant), thread, "resume", steer))


@threads.command(short_help="End a thread, and all threads below it, for good.")
@with_thread
@click.option("--reason", default="", metavar="TEXT", help="Why; whoever looks at the thread reads it.")
def close(thread: str, store: str, tenant: str, reason: str) -> None:
    """End a thread, and all threads below it, for good: nothing wakes them any more. What was said stays."""

    async def steer(handle: ThreadHandle) -> None:
        await handle.close(options.decoded(reason))

    run(_steer(Setting(store, tenant), thread, "close", steer))


@threads.command(short_help="Have the beginning of a history summarized.")
@with_thread
def compact(thread: str, store: str, tenant: str) -> None:
    """Have a summary made of the beginning of a thread's history.

    The model is shown that instead; the history itself stays as it is, and `threads history --full` shows it.
    """

    async def steer(handle: ThreadHandle) -> None:
        await handle.compact()

    run(_steer(Setting(store, tenant), thread, "compact", steer))


async def _steer(setting: Setting, given: str, action: str, steer: Callable[[ThreadHandle], Awaitable[None]]) -> None:
    async with opened(setting, must_exist=True) as system:
        handle = await find_thread(system, given)
        await steer(handle)
    click.echo(f"accepted: {action} {handle.thread_id}. An engine on this store carries it out.")


@threads.command(short_help="Remove a thread, all threads below it, and all they have.")
@with_thread
@click.option("--yes", is_flag=True, help="Do not ask.")
def delete(thread: str, store: str, tenant: str, *, yes: bool) -> None:
    """Remove a thread that has no parent, all threads below it, and everything that only they have.

    Nothing of it can be brought back. What still works for them is not told: close the thread before.
    """
    run(_delete(Setting(store, tenant), thread, yes=yes))


async def _delete(setting: Setting, given: str, *, yes: bool) -> None:
    async with opened(setting, must_exist=True) as system:
        handle = await find_thread(system, given)
        count = sum(1 for _ in await handle.tree())
        what = handle.thread_id if count == 1 else f"{handle.thread_id} and {count - 1:,} below it"
        if not yes:
            if not sys.stdin.isatty():
                raise click.UsageError(f"{what} would be removed for good; say --yes if that is meant")
            click.confirm(f"Remove {what} for good?", abort=True)
        count = await handle.delete()
    click.echo(f"removed: {count:,} {'thread' if count == 1 else 'threads'}")


@threads.command(short_help="Remove threads that ended long ago.")
@options.stores(required=True)
@options.tenants
@click.option(
    "--older-than", type=Age(), default="30d", show_default=True, metavar="AGE", help="Ended so long ago: 12h, 30d, 8w."
)
def prune(store: str, tenant: str, older_than: int) -> None:
    """Remove threads that are closed and have been left alone for a while.

    A tree in which anything is open stays whole, but for children in it that have ended and from which no living one
    inherits.
    """
    run(_prune(Setting(store, tenant), older_than))


async def _prune(setting: Setting, older_than: int) -> None:
    async with opened(setting, must_exist=True) as system:
        count = await system.prune(system.clock.now() - older_than)
    click.echo(f"removed: {count:,} {'thread' if count == 1 else 'threads'}")
