"""`hibernaut threads history`: what was said and done."""

import sys
from collections.abc import AsyncIterator
from itertools import count

import click
import msgspec

from hibernaut.cli import options
from hibernaut.cli.finding import find_thread
from hibernaut.cli.itemising import full_text, kind_of, text_of
from hibernaut.cli.running import opened
from hibernaut.cli.starting import Setting
from hibernaut.cli.terminal import columns, cut, safe
from hibernaut.cli.threads.group import LONGEST_EXCERPT, log_of, run, threads, with_thread
from hibernaut.codec import pack
from hibernaut.engine.history import inherited_items
from hibernaut.kernel.head import Head, Summary, decode_head
from hibernaut.messages.item_records import item_record
from hibernaut.messages.items import Item, SummaryItem, decode_page
from hibernaut.messages.text import shorten
from hibernaut.system import AgentSystem


@threads.command(short_help="Show what a thread's history holds.")
@with_thread
@click.option("--last", type=click.IntRange(1), metavar="N", help="Only the last N items.")
@click.option(
    "--full",
    is_flag=True,
    help="All of it: what was inherited, what a summary stands for, and whole texts, each below its line.",
)
@options.json_lines
def history(thread: str, store: str, tenant: str, last: int | None, *, full: bool, as_json: bool) -> None:
    """Show what a thread's history holds, oldest first, with the bytes that each item takes.

    Of a history that has been compacted this is the last summary and what comes after what that stands for.
    """
    run(_history(Setting(store, tenant), thread, last or 0, full=full, as_json=as_json))


async def _history(setting: Setting, given: str, last: int, *, full: bool, as_json: bool) -> None:
    async with opened(setting, must_exist=True) as system:
        handle = await find_thread(system, given)
        head = decode_head((await system.row(handle.thread_id)).head).head
        summary = None if full else head.summary
        skipped = max(head.items - last, 0) if last else 0
        terminal = sys.stdout.isatty()
        tools: dict[str, str] = {}
        async for entry in _entries(system, head, summary, inherited=full and not last):
            kind = kind_of(entry.item, tools)
            if entry.number <= skipped and last:
                continue
            size = len(pack(entry.item))
            if as_json:
                record = {"number": entry.number, "version": entry.version, "bytes": size}
                record |= {} if entry.number else {"inherited": True}
                click.echo(msgspec.json.encode(record | item_record(entry.item)))
                continue
            line = f"{entry.number or '↑':>5}  {kind:<22}  {size:>9,}"
            if full:
                text = await full_text(system.store, entry.item)
                click.echo(f"{line}\n{safe(text) if terminal else text}\n")
            else:
                line = f"{line}  {shorten(text_of(entry.item), LONGEST_EXCERPT)}"
                click.echo(cut(safe(line), columns()) if terminal else line)


class _Entry(msgspec.Struct, frozen=True):
    """An item with its place; what was inherited has none."""

    number: int
    version: int
    item: Item


async def _entries(
    system: AgentSystem, head: Head, summary: Summary | None, *, inherited: bool
) -> AsyncIterator[_Entry]:
    """Yield a history: from a summary on (that comes first), or all of it."""
    if inherited:
        for item in await inherited_items(system.store, head.base, whole=True):
            yield _Entry(0, 0, item)
    if summary is None:
        async for entry in _own(system, head.thread_id, 0, 0):
            yield entry
        return
    after, skipped = summary.kept - 1, summary.covers - summary.skip
    async for entry in _own(system, head.thread_id, after, skipped):
        if entry.version == summary.version and isinstance(entry.item, SummaryItem):
            yield entry
            break
    async for entry in _own(system, head.thread_id, after, skipped):
        if entry.number > summary.covers and not isinstance(entry.item, SummaryItem):
            yield entry


async def _own(system: AgentSystem, thread_id: str, after: int, skipped: int) -> AsyncIterator[_Entry]:
    """Yield the thread's own items after a head version; before them there are `skipped`."""
    numbers = count(skipped + 1)
    async for row in log_of(system, thread_id, after):
        for item in decode_page(row.page):
            yield _Entry(next(numbers), row.version, item)
