"""`hibernaut effects`: what threads owe to the outside, and how a call is looked after by hand."""

import getpass
from typing import Any

import click
import msgspec

from hibernaut.cli import options
from hibernaut.cli.failures import ANSWERED
from hibernaut.cli.finding import find_thread
from hibernaut.cli.running import opened, run_async
from hibernaut.cli.servers import load_servers
from hibernaut.cli.starting import Setting
from hibernaut.cli.terminal import safe, table
from hibernaut.cli.times import ago, moment
from hibernaut.effects import OwedEffect
from hibernaut.kernel.head import decode_head
from hibernaut.messages.text import shorten
from hibernaut.system import AgentSystem

LONGEST_ARGUMENTS = 500
"""Characters that are shown of the arguments of a call."""


@click.group()
def effects() -> None:
    """See what threads owe to the outside, and settle it by hand.

    A call that was begun by an engine that has died is uncertain: nobody knows whether it happened. It is never
    repeated unless its tool or its server says that this is safe. REQUEST is the id of an effect; `call_` may be left
    out.
    """


@effects.command("list")
@click.argument("thread", type=options.WORD, required=False)
@options.stores(required=True)
@options.tenants
@options.json_lines
def list_effects(thread: str | None, store: str, tenant: str, *, as_json: bool) -> None:
    """List what is under way, oldest first: of one THREAD, or of all."""
    run_async(_list(Setting(store, tenant), thread, as_json=as_json))


async def _list(setting: Setting, given: str | None, *, as_json: bool) -> int:
    async with opened(setting, must_exist=True) as system:
        thread_id = (await find_thread(system, given)).thread_id if given is not None else None
        found = await system.effects(thread_id)
        now = system.clock.now()
    if as_json:
        for owed in found:
            click.echo(msgspec.json.encode(_record(owed)))
        return ANSWERED
    if not found:
        click.echo("Nothing is owed to the outside.", err=True)
        return ANSWERED
    heads = ("REQUEST", "STATE", "SINCE", "THREAD", "TOOL", "SERVER", "OWNER")
    rows = [
        (
            owed.effect.request_id,
            _state(owed),
            ago(owed.created, now),
            owed.thread_id,
            owed.effect.tool,
            owed.effect.server,
            _owner(owed),
        )
        for owed in found
    ]
    for line in table(heads, rows):
        click.echo(line)
    return ANSWERED


@effects.command()
@click.argument("request", type=options.WORD)
@options.stores(required=True)
@options.tenants
@options.json_lines
def show(request: str, store: str, tenant: str, *, as_json: bool) -> None:
    """Show one effect: its call, what the receipts say of it, and what becomes of it."""
    run_async(_show(Setting(store, tenant), request, as_json=as_json))


async def _show(setting: Setting, request: str, *, as_json: bool) -> int:
    async with opened(setting, must_exist=True) as system:
        owed = await system.effect(request)
        now = system.clock.now()
        rounds = await _rounds(system, owed)
        call = decode_head((await system.row(owed.thread_id)).head).head.calls.get(owed.effect.call_id)
    state = call.state if call is not None else ""
    if as_json:
        click.echo(msgspec.json.encode(_record(owed) | {"call_state": state, "receipts": rounds}))
        return ANSWERED
    effect = owed.effect
    lines = [
        f"{effect.request_id} ({effect.kind}) of thread {owed.thread_id}",
        f"  tool:     {effect.tool}{f' on {effect.server}' if effect.server else ''}",
        f"  call:     {effect.call_id}{f', {state}' if state else ''}",
        f"  given:    {shorten(effect.arguments, LONGEST_ARGUMENTS)}",
        f"  state:    {_state(owed)}, {ago(owed.created, now)} ({moment(owed.created)})",
        f"  owner:    {_owner(owed) or 'none'}",
        f"  next:     {owed.outlook}",
        *[f"  receipt:  version {one['version']}, {moment(one['started'])}: {one['what']}" for one in rounds],
    ]
    for line in lines:
        click.echo(safe(line))
    return ANSWERED


async def _rounds(system: AgentSystem, owed: OwedEffect) -> list[dict[str, Any]]:
    """Return what the receipts say of an effect."""
    found: list[dict[str, Any]] = []
    async for receipt in system.receipts_of(owed.thread_id):
        said = [f"{one.kind} {one.dispatch}" for one in receipt.tool_requests if _is_about(one.request_id, owed)]
        said += [f"settled by {one.input}" for one in receipt.settled if one.request_id == owed.effect.request_id]
        if said:
            found.append({"version": receipt.thread_version, "started": receipt.started, "what": ", ".join(said)})
    return found


def _is_about(request_id: str, owed: OwedEffect) -> bool:
    return request_id.removesuffix(":cancel") == owed.effect.request_id.removesuffix(":cancel")


@effects.command(
    epilog=options.examples(
        "hibernaut effects reconcile --store agents.db",
        "hibernaut effects reconcile --store agents.db --server https://ci.example",
    )
)
@options.stores(required=True)
@options.tenants
@options.servers
def reconcile(store: str, tenant: str, servers: tuple[str, ...]) -> None:
    """Have tool servers asked now after the calls that they have taken.

    An engine does so when it starts and then every hour. Where one runs, this is stored as a wish that it carries out;
    where none does, this command asks the servers given with --server itself. A call that its server does not know any
    more is answered: it is unknown how far it got.
    """
    setting = Setting(store, tenant, servers=servers)
    run_async(_reconcile(setting))


async def _reconcile(setting: Setting) -> int:
    async with opened(setting, must_exist=True, servers=load_servers(setting.servers)) as system:
        done = await system.reconcile()
        left = [owed for owed in await system.effects() if owed.is_uncertain]
    click.echo("the servers were asked" if done else "stored: a running engine will ask the servers it knows")
    for owed in left:
        click.echo(f"{owed.effect.request_id} of thread {owed.thread_id}: {owed.outlook}")
    return ANSWERED


@effects.command(
    epilog=options.examples(
        'hibernaut effects settle 4h8k2m9xw0a1b2c3 --result "Booked." --reason "saw it there" --store agents.db',
        'hibernaut effects settle 4h8k2m9xw0a1b2c3 --unknown --reason "their log is gone" --store agents.db',
    )
)
@click.argument("request", type=options.WORD)
@options.stores(required=True)
@options.tenants
@click.option("--result", metavar="TEXT|-", help="What the call came to; - reads it from standard input.")
@click.option("--unknown", is_flag=True, help="Nobody knows whether it happened.")
@click.option("--reason", required=True, metavar="TEXT", help="Why you say so; receipts keep it.")
@click.option("--user", type=options.WORD, metavar="NAME", help="Who says so; by default whoever is logged in.")
def settle(
    request: str, store: str, tenant: str, result: str | None, reason: str, user: str | None, *, unknown: bool
) -> None:
    """Answer a call by hand. When this has said "accepted", the answer is stored and cannot be lost.

    The call is over with it and is not repeated. Should its own result come all the same, the thread is shown that.
    """
    if (result is None) == (not unknown):
        raise click.UsageError("give --result TEXT, or --unknown")
    text = options.text_or_stdin(result) if result is not None else None
    run_async(_settle(Setting(store, tenant), request, text, options.decoded(reason), user or _login()))


async def _settle(setting: Setting, request: str, result: str | None, reason: str, user: str) -> int:
    async with opened(setting, must_exist=True) as system:
        message_id = await system.settle(request, result, reason=reason, user=user)
    click.echo(f"accepted: {message_id}")
    return ANSWERED


def _login() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # this machine knows no name for the user
        return ""


def _state(owed: OwedEffect) -> str:
    return "uncertain" if owed.is_uncertain else owed.state


def _owner(owed: OwedEffect) -> str:
    return f"{owed.owner} ({'living' if owed.owner_lives else 'dead'})" if owed.owner else ""


def _record(owed: OwedEffect) -> dict[str, Any]:
    effect = owed.effect
    return {
        "request_id": effect.request_id,
        "kind": effect.kind,
        "state": owed.state,
        "uncertain": owed.is_uncertain,
        "created": owed.created,
        "thread_id": owed.thread_id,
        "call_id": effect.call_id,
        "tool": effect.tool,
        "arguments": effect.arguments,
        "server": effect.server,
        "owner": owed.owner,
        "owner_lives": owed.owner_lives,
        "outlook": owed.outlook,
    }
