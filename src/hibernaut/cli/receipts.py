"""`hibernaut receipts` and `hibernaut verify`: the runtime's own record, and whether it holds."""

from typing import Any

import click
import msgspec

from hibernaut.cli import options
from hibernaut.cli.failures import ANSWERED, UNVERIFIED
from hibernaut.cli.finding import PAGE, find_thread
from hibernaut.cli.running import opened, run_async
from hibernaut.cli.starting import Setting
from hibernaut.cli.terminal import table
from hibernaut.cli.times import moment
from hibernaut.errors import VerificationFailed
from hibernaut.kernel.commit import Disposition
from hibernaut.kernel.receipt import Receipt
from hibernaut.system import AgentSystem


@click.command()
@click.argument("thread", type=options.WORD)
@options.stores(required=True)
@options.tenants
@options.json_lines
@click.option("--verify", "verifies", is_flag=True, help="Recompute the chain from what is stored, too.")
def receipts(thread: str, store: str, tenant: str, *, as_json: bool, verifies: bool) -> None:
    """Show what the runtime recorded of each round of a thread, oldest first.

    THREAD is an id or enough of its beginning. A receipt says what came in and what became of it, whether the model was
    asked, which calls were made, and the digest of the history after it; each names the one before.
    """
    run_async(_receipts(Setting(store, tenant), thread, as_json=as_json, verifies=verifies))


async def _receipts(setting: Setting, given: str, *, as_json: bool, verifies: bool) -> int:
    async with opened(setting, must_exist=True) as system:
        handle = await find_thread(system, given)
        found = await handle.receipts()
        if as_json:
            for receipt in found:
                click.echo(msgspec.json.encode(_record(receipt)))
        elif found:
            heads = ("NO", "TIME", "MS", "TURN", "TOKENS", "HISTORY", "CALLS", "INPUTS")
            for line in table(heads, [_row(receipt) for receipt in found], right=(0, 2, 4)):
                click.echo(line)
        if verifies:
            number = await system.verify(handle.thread_id)
            click.echo(f"verified: {number} receipts of {handle.thread_id}", err=as_json)
    return ANSWERED


def _row(receipt: Receipt) -> tuple[str, ...]:
    usage = receipt.usage
    return (
        str(receipt.version),
        moment(receipt.started),
        f"{receipt.took:,}",
        receipt.turn.name.lower(),
        f"{usage.input + usage.output:,}" if usage else "",
        receipt.history.hex()[:12],
        ", ".join(receipt.calls),
        ", ".join(f"{name} {Disposition(number).name.lower()}" for name, number in receipt.inputs),
    )


def _record(receipt: Receipt) -> dict[str, Any]:
    record: dict[str, Any] = msgspec.structs.asdict(receipt)
    for name, value in record.items():
        if isinstance(value, bytes):
            record[name] = value.hex()
    record["inputs"] = [
        {"message_id": name, "disposition": Disposition(number).name.lower()} for name, number in receipt.inputs
    ]
    record["turn"] = receipt.turn.name.lower()
    record["dispatched"] = receipt.dispatched
    del record["owes"]
    record["usage"] = msgspec.structs.asdict(receipt.usage) if receipt.usage else None
    return record


@click.command()
@click.argument("thread", type=options.WORD, required=False)
@click.option("--all", "everything", is_flag=True, help="Check every thread of this tenant.")
@options.stores(required=True)
@options.tenants
def verify(thread: str | None, store: str, tenant: str, *, everything: bool) -> None:
    """Recompute a thread's chain of receipts from its stored history, and fail on any difference.

    THREAD is an id or enough of its beginning; --all checks all threads.
    """
    if (thread is None) != everything:
        raise click.UsageError("name a THREAD, or give --all")
    click.get_current_context().exit(run_async(_verify(Setting(store, tenant), thread)))


async def _verify(setting: Setting, given: str | None) -> int:
    async with opened(setting, must_exist=True) as system:
        if given is not None:
            handle = await find_thread(system, given)
            number = await system.verify(handle.thread_id)
            click.echo(f"verified: {number} receipts of {handle.thread_id}")
            return ANSWERED
        return await _verify_all(system)


async def _verify_all(system: AgentSystem) -> int:
    checked, receipts_checked, failed = 0, 0, 0
    before: tuple[int, str] | None = None
    while states := await system.threads(limit=PAGE, before=before):
        for state in states:
            checked += 1
            try:
                receipts_checked += await system.verify(state.thread_id)
            except VerificationFailed as error:
                failed += 1
                click.echo(f"Error: {state.thread_id}: {error}", err=True)
        before = (states[-1].updated, states[-1].thread_id)
    click.echo(f"verified: {receipts_checked} receipts of {checked - failed} threads; {failed} threads failed")
    return UNVERIFIED if failed else ANSWERED
