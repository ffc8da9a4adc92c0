"""`hibernaut threads stop`, `resume`, `cancel`, `fork`, `delete` and so on: what an operator does to threads."""

import re
import sys
from collections.abc import Awaitable, Callable

import click

from hibernaut.cli import options
from hibernaut.cli.finding import find_thread
from hibernaut.cli.running import opened
from hibernaut.cli.starting import Setting
from hibernaut.cli.threads.group import run, threads, with_thread
from hibernaut.errors import MOST_NAMED, MalformedInput
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
@options.reason
@whole_tree
def stop(thread: str, store: str, tenant: str, reason: str, *, tree: bool) -> None:
    """Stop a thread: it says no more, its open calls are cancelled, and what comes is held.

    It goes on when it is resumed, or when somebody says something to it.
    """

    async def steer(handle: ThreadHandle) -> None:
        await handle.stop(reason, tree=tree)

    run(_steer(Setting(store, tenant), thread, "stop", steer))


@threads.command(short_help="Let a stopped or parked thread go on.")
@with_thread
@options.reason
@whole_tree
def resume(thread: str, store: str, tenant: str, reason: str, *, tree: bool) -> None:
    """Let a stopped or parked thread go on."""

    async def steer(handle: ThreadHandle) -> None:
        await handle.resume(reason, tree=tree)

    run(_steer(Setting(store, tenant), thread, "resume", steer))


@threads.command(short_help="Put a thread aside.")
@with_thread
@options.reason
def park(thread: str, store: str, tenant: str, reason: str) -> None:
    """Put a thread aside until it is resumed, or somebody says something to it.

    What it says is cut short. Its open calls go on, and their results wait.
    """

    async def steer(handle: ThreadHandle) -> None:
        await handle.park(reason)

    run(_steer(Setting(store, tenant), thread, "park", steer))


@threads.command(short_help="Let a parked thread try again.")
@with_thread
@options.reason
def retry(thread: str, store: str, tenant: str, reason: str) -> None:
    """Let a parked thread try again what it was parked for. One that waits to try again does so at once."""

    async def steer(handle: ThreadHandle) -> None:
        await handle.retry(reason)

    run(_steer(Setting(store, tenant), thread, "retry", steer))


@threads.command(
    short_help="Cancel a call, or a subscription.",
    epilog=options.examples("hibernaut threads cancel notes call_4h8k2m9xw0a1b2c3 --store agents.db"),
)
@with_thread
@click.argument("call", type=options.WORD)
@options.reason
def cancel(thread: str, call: str, store: str, tenant: str, reason: str) -> None:
    """Cancel a CALL that is open, or a subscription; `threads show` names them.

    The thread goes on with the word that it was cancelled, and that it is unknown how far it got. Whoever works on it
    is told. Should its result come all the same, that is shown.
    """

    async def steer(handle: ThreadHandle) -> None:
        calls = [one.call_id for one in (await handle.state()).calls]
        if call not in calls:
            named = ", ".join(calls[-MOST_NAMED:]) or "none"
            raise MalformedInput(f"thread {handle.thread_id} has no call {call!r}; there is: {named}")
        await handle.cancel(call, reason)

    run(_steer(Setting(store, tenant), thread, "cancel", steer))


@threads.command(short_help="End a thread, and all threads below it, for good.")
@with_thread
@options.reason
def close(thread: str, store: str, tenant: str, reason: str) -> None:
    """End a thread, and all threads below it, for good: nothing wakes them any more. What was said stays."""

    async def steer(handle: ThreadHandle) -> None:
        await handle.close(reason)

    run(_steer(Setting(store, tenant), thread, "close", steer))


@threads.command(short_help="Have the beginning of a history summarized.")
@with_thread
@options.reason
def compact(thread: str, store: str, tenant: str, reason: str) -> None:
    """Have a summary made of the beginning of a thread's history.

    The model is shown that instead; the history itself stays as it is, and `threads history --full` shows it.
    """

    async def steer(handle: ThreadHandle) -> None:
        await handle.compact(reason)

    run(_steer(Setting(store, tenant), thread, "compact", steer))


async def _steer(setting: Setting, given: str, action: str, steer: Callable[[ThreadHandle], Awaitable[None]]) -> None:
    async with opened(setting, must_exist=True) as system:
        handle = await find_thread(system, given)
        await steer(handle)
    click.echo(f"accepted: {action} {handle.thread_id}. An engine on this store carries it out.")


@threads.command(
    short_help="Make a new thread that shares the history of another.",
    epilog=options.examples(
        "hibernaut threads history notes --store agents.db",
        "hibernaut threads fork notes --at 12 --message 'Do it the other way' --store agents.db",
    ),
)
@with_thread
@click.option("--at", type=click.IntRange(0), metavar="N", help="Share the first N items; by default all that can be.")
@click.option("--as", "name", type=options.WORD, metavar="ID", help="The id of the new thread.")
@click.option("--message", type=options.WORD, metavar="TEXT", help="Say this to it at once.")
@options.reason
def fork(
    thread: str, store: str, tenant: str, at: int | None, name: str | None, message: str | None, reason: str
) -> None:
    """Make a new thread that shares the history of THREAD up to some item, by reference. THREAD is not touched.

    The place must be between two turns, with no call open; otherwise the nearest places are named. The new thread has
    the same instructions, model, tools, tenant and authority. Nothing that is under way goes along. If the history up
    to there ends with something that waits for an answer, the new thread answers it. A thread stays as long as it has
    forks.
    """
    run(_fork(Setting(store, tenant), thread, at, name, message, reason))


async def _fork(
    setting: Setting, given: str, at: int | None, name: str | None, message: str | None, reason: str
) -> None:
    async with opened(setting, must_exist=True) as system:
        origin = await find_thread(system, given)
        made = await origin.fork(at, thread_id=name, message=message, reason=reason)
    click.echo(f"forked: {made.thread_id}, from {origin.thread_id}. An engine on this store runs it.")


@threads.command(short_help="Remove a thread, all threads below it, and all they have.")
@with_thread
@options.reason
@click.option("--yes", is_flag=True, help="Do not ask.")
def delete(thread: str, store: str, tenant: str, reason: str, *, yes: bool) -> None:
    """Remove a thread that has no parent, all threads below it, and everything that only they have.

    Nothing of it can be brought back. What still works for them is not told: close the thread before. Whoever asks for
    the thread later is told when and why it was deleted.
    """
    run(_delete(Setting(store, tenant), thread, reason, yes=yes))


async def _delete(setting: Setting, given: str, reason: str, *, yes: bool) -> None:
    async with opened(setting, must_exist=True) as system:
        handle = await find_thread(system, given)
        count = sum(1 for _ in await handle.tree())
        what = handle.thread_id if count == 1 else f"{handle.thread_id} and {count - 1:,} below it"
        if not yes:
            if not sys.stdin.isatty():
                raise click.UsageError(f"{what} would be removed for good; say --yes if that is meant")
            click.confirm(f"Remove {what} for good?", abort=True)
        count = await handle.delete(reason)
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
