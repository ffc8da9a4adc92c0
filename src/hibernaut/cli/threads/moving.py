"""`hibernaut threads freeze`, `thaw`, `export`, `import`: how a conversation gets from one store to another."""

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

import click

from hibernaut.cli import options
from hibernaut.cli.finding import find_thread
from hibernaut.cli.running import opened
from hibernaut.cli.starting import Setting
from hibernaut.cli.threads.group import run, threads, with_thread
from hibernaut.stores.archive_file import Archive, read_archive

SHOWN_FROM = 1_000
"""Records from which on a terminal is shown how far it is."""


@threads.command(short_help="Let nothing run in a tree, without ending anything.")
@with_thread
def freeze(thread: str, store: str, tenant: str) -> None:
    """Let nothing run in a thread's whole tree until it is thawed.

    Nothing ends by it: calls, sleeps, questions and subscriptions stay as they are. What comes is held, what people say
    too. It is done at once, whether an engine runs or not.
    """
    run(_freeze(Setting(store, tenant), thread))


async def _freeze(setting: Setting, given: str) -> None:
    async with opened(setting, must_exist=True) as system:
        handle = await find_thread(system, given)
        count = await handle.freeze()
    click.echo(f"frozen: {_threads(count)}" if count else f"{handle.thread_id} was frozen already")


@threads.command(short_help="Let a frozen tree go on where it was.")
@with_thread
def thaw(thread: str, store: str, tenant: str) -> None:
    """Let a thread's frozen tree go on where it was. Threads in it that are stopped or parked stay so."""
    run(_thaw(Setting(store, tenant), thread))


async def _thaw(setting: Setting, given: str) -> None:
    async with opened(setting, must_exist=True) as system:
        handle = await find_thread(system, given)
        count = await handle.thaw()
    click.echo(f"thawed: {_threads(count)}" if count else f"{handle.thread_id} was not frozen")


@threads.command(
    "export",
    short_help="Write a frozen tree into a file.",
    epilog=options.examples(
        "hibernaut threads freeze notes --store agents.db",
        "hibernaut threads export notes notes.hibernaut --store agents.db",
        "hibernaut threads import notes.hibernaut --store elsewhere.db",
        "hibernaut threads thaw notes --store elsewhere.db",
        "hibernaut threads delete notes --store agents.db",
    ),
)
@with_thread
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False))
def export_tree(thread: str, file: Path, store: str, tenant: str) -> None:
    """Write a thread that has no parent, and all that is below it, into a new FILE.

    The tree must be frozen, and stays so: delete it once it goes on elsewhere, or thaw it to go on here. Never let both
    go on. The file holds all that was said; only its owner may read it.
    """
    run(_export(Setting(store, tenant), thread, file))


async def _export(setting: Setting, given: str, file: Path) -> None:
    async with opened(setting, must_exist=True) as system:
        handle = await find_thread(system, given)
        with _told(file, "written"), _new_file(file) as stream:
            header = await system.export(handle.thread_id, stream, _progress("exported"))
            size = stream.tell()
    click.echo(
        f"exported: {_threads(header.counts['thread'])} ({header.records:,} records, {size:,} bytes) to {file}. "
        "They are still here, and frozen."
    )


@threads.command("import", short_help="Make the tree that a file holds.")
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False))
@options.stores(required=True)
@options.tenants
def import_tree(file: Path, store: str, tenant: str) -> None:
    """Make the threads of a FILE that `threads export` wrote; a store that is not there is made.

    They are frozen. A file that is not whole to its last byte, or that holds a thread which is there, changes nothing.
    """
    # Read before the store is opened: for a file that cannot be used, none is made.
    with _told(file, "read"), file.open("rb") as stream:
        archive = read_archive(stream, _progress("read"))
    run(_import(Setting(store, tenant), archive))


async def _import(setting: Setting, archive: Archive) -> None:
    async with opened(setting) as system:
        done = await system.import_(archive)
    go_on = setting.command("threads", "thaw", done.thread_id)
    click.echo(f"imported: {_threads(done.threads)} as {done.thread_id}, frozen. `{go_on}` lets them go on.")
    if done.unheard:
        unheard = "1 call waits" if len(done.unheard) == 1 else f"{len(done.unheard):,} calls wait"
        click.echo(
            f"warning: {unheard} for callbacks that this store refuses, since the one they come "
            f"from has signed their tokens: {', '.join(done.unheard)}",
            err=True,
        )


@contextmanager
def _new_file(file: Path) -> Iterator[BinaryIO]:
    """Make a file that was not there; if it does not come to its end, it is not there again."""
    descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0), 0o600)
    try:
        with open(descriptor, "wb") as stream:  # noqa: PTH123 - a path has no way to be opened by its descriptor
            yield stream
            stream.flush()
            os.fsync(descriptor)
    except BaseException:
        file.unlink(missing_ok=True)
        raise


@contextmanager
def _told(file: Path, what: str) -> Iterator[None]:
    """Say in a line what kept a file from being written or read."""
    try:
        yield
    except FileExistsError as error:
        raise click.UsageError(f"{file} is there already; name a file that is not") from error
    except OSError as error:
        raise click.ClickException(f"{file} cannot be {what}: {error.strerror or error}") from error


def _progress(what: str) -> Callable[[int, int], None]:
    """Return what tells a terminal how far it is, if that takes a while."""
    terminal = sys.stderr.isatty()

    def tell(done: int, total: int) -> None:
        if terminal and total >= SHOWN_FROM and (done % SHOWN_FROM == 0 or done == total):
            end = "\n" if done == total else ""
            click.echo(f"\r{what} {done:,} of {total:,} records{end}", nl=False, err=True)

    return tell


def _threads(count: int) -> str:
    return f"{count:,} {'thread' if count == 1 else 'threads'}"
