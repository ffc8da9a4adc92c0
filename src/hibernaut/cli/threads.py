"""`hibernaut threads`: see what threads are, and steer them."""

import sys
from collections.abc import AsyncIterator, Coroutine
from itertools import count
from typing import Any

import click
import msgspec

from hibernaut.cli import options
from hibernaut.cli.finding import find_thread, launched_with
from hibernaut.cli.itemising import full_text, item_record, kind_of, text_of
from hibernaut.cli.running import opened, run_async
from hibernaut.cli.starting import Setting
from hibernaut.cli.terminal import columns, cut, safe, table
from hibernaut.cli.times import ago, moment
from hibernaut.codec import pack
from hibernaut.engine.answering import questions_of
from hibernaut.engine.history import inherited_items
from hibernaut.kernel.head import Head, Summary, decode_head
from hibernaut.messages.inputs import Delivered, Timer
from hibernaut.messages.items import Item, SummaryItem, decode_page
from hibernaut.messages.text import shorten
from hibernaut.state import ThreadState
from hibernaut.stores.protocol import EffectRow, LogRow
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


def _run(main: Coroutine[Any, Any, None]) -> None:
    async def coded() -> int:
        await main
        return 0

    run_async(coded())


# list


@threads.command("list")
@options.stores(required=True)
@options.tenants
@click.option(
    "--limit", type=click.IntRange(1), default=50, show_default=True, help="How many, the last updated first."
)
@options.json_lines
def list_threads(store: str, tenant: str, limit: int, *, as_json: bool) -> None:
    """List threads, the last updated first."""
    _run(_list(Setting(store, tenant), limit, as_json=as_json))


async def _list(setting: Setting, limit: int, *, as_json: bool) -> None:
    async with opened(setting, must_exist=True) as system:
        states = await system.threads(limit=limit + 1)
        now = system.clock.now()
    more, states = len(states) > limit, states[:limit]
    if as_json:
        for state in states:
            click.echo(msgspec.json.encode(state))
        return
    if not states:
        click.echo("There are no threads.", err=True)
        return
    heads = ("THREAD", "STATE", "ITEMS", "INBOX", "UPDATED", "WAITS FOR", "TITLE")
    rows = [
        (
            state.thread_id,
            what_it_does(state),
            f"{state.items:,}",
            f"{state.waiting:,}",
            ago(state.updated, now),
            shorten(_waits_for(state), 40),
            shorten(state.title, 100),
        )
        for state in states
    ]
    for line in table(heads, rows, right=(2, 3)):
        click.echo(line)
    if more:
        click.echo(f"There are more; --limit {2 * limit} shows more of them.", err=True)


def what_it_does(state: ThreadState) -> str:
    """Return in a word what a thread is at, as far as a listing knows."""
    if state.status != "open":
        return state.status
    # A listing does not look into inboxes; what lies in that of a thread that waits for nothing is for it to do.
    return "ready" if state.activity == "idle" and state.waiting else state.activity


def _waits_for(state: ThreadState) -> str:
    if state.activity == "resting":
        due = [call.due for call in state.calls if call.due]
        return moment(min(due)) if due else "a word"
    return ", ".join(call.tool for call in state.calls if call.state in ("open", "queued"))


# show


@threads.command(short_help="Show what a thread is and what it waits for.")
@with_thread
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def show(thread: str, store: str, tenant: str, *, as_json: bool) -> None:
    """Show what a thread is, what it waits for and what it holds."""
    _run(_show(Setting(store, tenant), thread, as_json=as_json))


async def _show(setting: Setting, given: str, *, as_json: bool) -> None:
    async with opened(setting, must_exist=True) as system:
        handle = await find_thread(system, given)
        state = await handle.state()
        launch = await launched_with(system, handle.thread_id)
        asked = questions_of(decode_head((await system.row(handle.thread_id)).head).head)
        effects = await system.store.read_effects(handle.thread_id)
        inbox = await system.store.read_inbox(handle.thread_id)
        pages, receipts = 0, 0
        async for row in _log(system, handle.thread_id):
            pages += len(row.page)
            receipts += len(row.receipt)
        now = system.clock.now()
    sizes = {"head": state.head_bytes, "history": pages, "receipts": receipts}
    timers = [one for one in inbox if one.message is not None and isinstance(one.message.content, Timer)]
    if as_json:
        record = msgspec.to_builtins(state) | {
            "usage": msgspec.structs.asdict(state.usage),
            "model": launch.model,
            "tools": launch.tools,
            "user": launch.user,
            "instructions": launch.instructions,
            "bytes": sizes,
            "timers": [_timer_record(one) for one in timers],
            "asks": asked,
            "effects": [
                {"call_id": row.effect.call_id, "kind": row.effect.kind, "state": row.state} for row in effects
            ],
        }
        click.echo(msgspec.json.encode(record))
        return
    doing = "" if state.status != "open" else f", {state.activity}"
    facts = [
        ("Thread", state.thread_id),
        ("Title", state.title),
        ("State", f"{state.status}{doing}"),
        ("Reason", state.reason),
        ("Tenant", state.tenant),
        ("User", launch.user),
        ("Model", launch.model or "whatever the engine's default is"),
        ("Tools", "whatever the engine has" if launch.tools is None else ", ".join(launch.tools)),
        ("Told", shorten(launch.instructions, LONGEST_EXCERPT)),
        ("Made", f"{moment(state.created)} ({ago(state.created, now)})"),
        ("Updated", f"{moment(state.updated)} ({ago(state.updated, now)})"),
        ("Holds", f"{state.items:,} items from {state.version:,} commits; {state.waiting:,} messages in its inbox"),
        ("Bytes", ", ".join(f"{what} {size:,}" for what, size in sizes.items())),
        ("Tokens", f"{state.usage.input:,} in ({state.usage.cached:,} cached), {state.usage.output:,} out"),
    ]
    for name, value in facts:
        if value:
            _say(f"{name:<9}{value}")
    for call in state.calls:
        _say(
            f"{'Call':<9}{call.call_id}  {_call_state(call.state, call.call_id, effects)}  {call.tool} {call.arguments}"
        )
    for question in asked:
        choices = ", ".join(f"{number} {choice}" for number, choice in enumerate(question.choices, 1))
        _say(f"{'Asks':<9}{question.question_id}  {shorten(question.prompt, LONGEST_EXCERPT)} [{choices}]")
    for one in timers:
        timer = _timer_record(one)
        _say(f"{'Timer':<9}{timer['purpose']} at {moment(timer['due'])} ({ago(timer['due'], now)}) {timer['call_id']}")


def _call_state(state: str, call_id: str, effects: list[EffectRow]) -> str:
    """Return the state of a call, and who works on it."""
    found = [row for row in effects if row.effect.call_id == call_id and row.effect.kind == "invoke"]
    if not found or state not in ("open", "detached", "subscribed"):
        return state
    works = {"pending": "not begun", "sent": "at work", "accepted": "deferred"}[found[0].state]
    return f"{state}, {works}"


def _timer_record(one: Delivered) -> dict[str, Any]:
    content = one.message.content if one.message is not None else None
    if not isinstance(content, Timer):
        return {}
    return {"purpose": content.purpose, "due": content.due, "call_id": content.call_id}


def _say(line: str) -> None:
    click.echo(cut(safe(line), columns()) if sys.stdout.isatty() else line)


# history


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
    _run(_history(Setting(store, tenant), thread, last or 0, full=full, as_json=as_json))


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
        for item in await inherited_items(system.store, head.link, whole=True):
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
    async for row in _log(system, thread_id, after):
        for item in decode_page(row.page):
            yield _Entry(next(numbers), row.version, item)


async def _log(system: AgentSystem, thread_id: str, after: int = 0) -> AsyncIterator[LogRow]:
    """Yield the commits of a thread after a head version, a few in memory at a time."""
    while rows := await system.store.read_log(thread_id, after, LOG_PAGE):
        for row in rows:
            yield row
        after = rows[-1].version


# stop, resume, compact


@threads.command(short_help="Stop a thread, until it is resumed.")
@with_thread
@click.option("--reason", default="", metavar="TEXT", help="Why; whoever looks at the thread reads it.")
def stop(thread: str, store: str, tenant: str, reason: str) -> None:
    """Stop a thread: it says no more, its open calls are cancelled, and what comes is held.

    It goes on when it is resumed, or when somebody says something to it.
    """
    _run(_steer(Setting(store, tenant), thread, "stop", options.decoded(reason)))


@threads.command()
@with_thread
def resume(thread: str, store: str, tenant: str) -> None:
    """Let a stopped or parked thread go on."""
    _run(_steer(Setting(store, tenant), thread, "resume", ""))


@threads.command()
@with_thread
def compact(thread: str, store: str, tenant: str) -> None:
    """Have a summary made of the beginning of a thread's history.

    The model is shown that instead; the history itself stays as it is, and `threads history --full` shows it.
    """
    _run(_steer(Setting(store, tenant), thread, "compact", ""))


async def _steer(setting: Setting, given: str, action: str, reason: str) -> None:
    async with opened(setting, must_exist=True) as system:
        handle = await find_thread(system, given)
        if action == "stop":
            await handle.stop(reason)
        elif action == "compact":
            await handle.compact()
        else:
            await handle.resume()
    click.echo(f"accepted: {action} {handle.thread_id}. An engine on this store carries it out.")
