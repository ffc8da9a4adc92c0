"""Finding the thread that a user means."""

import click

from hibernaut.cli.times import ago
from hibernaut.errors import MOST_NAMED, MalformedInput, UnknownThread
from hibernaut.handle import ThreadHandle
from hibernaut.kernel.config import LaunchConfig, decode_config
from hibernaut.kernel.head import decode_head
from hibernaut.system import AgentSystem

PAGE = 500
"""Threads that are looked at in one transaction."""

_PREFIX = "thread_"


async def find_thread(system: AgentSystem, given: str) -> ThreadHandle:
    """Return the thread that has this id, or the only one whose id begins so (`thread_` may be left out).

    Raises:
        UnknownThread: there is none.
        MalformedInput: there are several.
    """
    try:
        return await system.thread(given)
    except UnknownThread:
        found = await _beginning_with(system, given)
    if not found:
        await _tell_if_deleted(system, given)
        raise UnknownThread(given)
    if len(found) > 1:
        named = ", ".join(sorted(found)[:MOST_NAMED])
        more = f" and {len(found) - MOST_NAMED} more" if len(found) > MOST_NAMED else ""
        raise MalformedInput(f"several threads begin with {given!r}: {named}{more}; write more of the one you mean")
    return await system.thread(found[0])


async def _tell_if_deleted(system: AgentSystem, given: str) -> None:
    if (gone := await system.deletion(given)) is not None:
        why = f": {gone.reason}" if gone.reason else ""
        click.echo(f"Thread {given} was deleted {ago(gone.deleted, system.clock.now())}{why}.", err=True)


async def _beginning_with(system: AgentSystem, given: str) -> list[str]:
    found: list[str] = []
    before: tuple[int, str] | None = None
    while rows := await system.threads(limit=PAGE, before=before):
        names = [row.thread_id for row in rows]
        found += [name for name in names if name.startswith((given, _PREFIX + given))]
        before = (rows[-1].updated, rows[-1].thread_id)
    return found


async def launched_with(system: AgentSystem, thread_id: str) -> LaunchConfig:
    """Return what a thread was launched with.

    Raises:
        UnknownThread: there is no such thread.
    """
    row = await system.row(thread_id)
    data = await system.store.read_config(decode_head(row.head).head.config)
    return decode_config(data) if data is not None else LaunchConfig()
