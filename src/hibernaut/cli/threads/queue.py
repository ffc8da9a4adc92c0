"""`hibernaut threads inbox`, `drop`, `edit`: what waits for a thread, and what an operator does to it."""

import sys

import click
import msgspec

from hibernaut.cli import options
from hibernaut.cli.finding import find_thread
from hibernaut.cli.running import opened
from hibernaut.cli.starting import Setting
from hibernaut.cli.terminal import columns, cut, safe, table
from hibernaut.cli.threads.group import LONGEST_EXCERPT, run, threads, with_thread
from hibernaut.cli.times import ago
from hibernaut.messages.inputs import Delivered, InputContent, is_word
from hibernaut.messages.parts import plain_text
from hibernaut.messages.text import shorten


@threads.command(short_help="Show the messages that wait for a thread.")
@with_thread
@options.json_lines
def inbox(thread: str, store: str, tenant: str, *, as_json: bool) -> None:
    """Show the messages that wait for a thread, in the order they came: what nobody has read yet, and its timers.

    What people, events and other threads say (marked *) can be dropped and edited; the rest has to be heard.
    """
    run(_inbox(Setting(store, tenant), thread, as_json=as_json))


async def _inbox(setting: Setting, given: str, *, as_json: bool) -> None:
    async with opened(setting, must_exist=True) as system:
        handle = await find_thread(system, given)
        waiting = await handle.inbox()
        now = system.clock.now()
    if as_json:
        for one in waiting:
            click.echo(msgspec.json.encode(_record(one)))
        return
    if not waiting:
        click.echo(f"Nothing waits for {handle.thread_id}.", err=True)
        return
    rows = [_row(one, now) for one in waiting]
    terminal = sys.stdout.isatty()
    for line in table(("MESSAGE", "KIND", "FROM", "CAME", "DUE", "SAYS"), rows):
        click.echo(cut(safe(line), columns()) if terminal else line)


def _row(one: Delivered, now: int) -> tuple[str, ...]:
    record = _record(one)
    mark = " *" if record["changeable"] else ""
    due = ago(one.due, now) if one.due > now else ""
    said = shorten(str(record["text"]), LONGEST_EXCERPT)
    return one.message_id, f"{record['kind']}{mark}", str(record["sender"]), ago(one.accepted, now), due, said


def _record(one: Delivered) -> dict[str, object]:
    message = one.message
    content = message.content if message is not None else None
    return {
        "message_id": one.message_id,
        "kind": str(content.__struct_config__.tag) if content is not None else "?",
        "sender": message.sender if message is not None else "",
        "accepted": one.accepted,
        "due": one.due,
        "changeable": content is not None and is_word(content),
        "text": _text(content) if content is not None else one.problem,
    }


def _text(content: InputContent) -> str:
    """Return what a message says, or else what it is about."""
    said = getattr(content, "content", None)
    if said is not None:
        return plain_text(said)
    about = [getattr(content, name, "") for name in ("action", "purpose", "call_id", "question_id", "message_id")]
    return " ".join(word for word in about if word)


@threads.command(
    short_help="Take back a message that waits.",
    epilog=options.examples("hibernaut threads drop notes msg_1 --reason 'said in error' --store agents.db"),
)
@with_thread
@click.argument("message", type=options.WORD)
@options.reason
def drop(thread: str, message: str, store: str, tenant: str, reason: str) -> None:
    """Take back a MESSAGE that waits for a thread, before it is read. `threads inbox` shows which there are.

    What has been read by then is history, and stays.
    """
    run(_drop(Setting(store, tenant), thread, message, reason))


async def _drop(setting: Setting, given: str, message_id: str, reason: str) -> None:
    async with opened(setting, must_exist=True) as system:
        handle = await find_thread(system, given)
        await handle.drop(message_id, reason)
    click.echo(f"accepted: drop {message_id}. An engine on this store carries it out before it reads anything else.")


@threads.command(
    short_help="Change what a message says that waits.",
    epilog=options.examples("hibernaut threads edit notes msg_1 'Build def789' --reason 'a slip' --store agents.db"),
)
@with_thread
@click.argument("message", type=options.WORD)
@click.argument("text")
@options.reason
def edit(thread: str, message: str, text: str, store: str, tenant: str, reason: str) -> None:
    """Change what a MESSAGE says that waits for a thread: to TEXT, or to what comes on standard input if that is `-`.

    The message keeps its id and its place. The receipt has the digests of what it said before and of what it says now.
    """
    run(_edit(Setting(store, tenant), thread, message, options.text_or_stdin(text), reason))


async def _edit(setting: Setting, given: str, message_id: str, text: str, reason: str) -> None:
    async with opened(setting, must_exist=True) as system:
        handle = await find_thread(system, given)
        await handle.edit(message_id, text, reason)
    click.echo(f"accepted: edit {message_id}. An engine on this store carries it out before it reads anything else.")
