"""`hibernaut receipts`: the runtime's own record of a thread, for people and for programs."""

from importlib.resources import files

import click
import msgspec

from hibernaut.cli import options
from hibernaut.cli.failures import ANSWERED
from hibernaut.cli.finding import find_thread
from hibernaut.cli.running import opened, run_async
from hibernaut.cli.starting import Setting
from hibernaut.cli.terminal import cut, safe
from hibernaut.cli.times import moment
from hibernaut.kernel.published_receipts import PublishedInput, PublishedReceipt

WIDTH = 80
"""Columns of the table."""

SCHEMA = "resume_contract_v1.json"

HEADS = f"{'NO':>5}  {'TIME':<19}  {'TURN':<8}  {'TOKENS':>7}  {'HISTORY':<8}  WHAT"


def _print_schema(ctx: click.Context, _: click.Parameter, wanted: bool) -> None:  # noqa: FBT001  # click calls it so
    if wanted and not ctx.resilient_parsing:
        click.echo(files("hibernaut.kernel").joinpath(SCHEMA).read_text(encoding="utf-8"), nl=False)
        ctx.exit()


@click.command(
    epilog=options.examples(
        "hibernaut receipts builds --store agents.db",
        "hibernaut receipts builds --store agents.db --json --with-payloads > builds.jsonl",
        "hibernaut receipts --schema > resume_contract_v1.json",
    )
)
@click.argument("thread", type=options.WORD)
@options.stores(required=True)
@options.tenants
@click.option("--table/--json", "as_table", default=True, help="A table for people, or one JSON object a line.")
@click.option("--with-payloads", "payloads", is_flag=True, help="With --json: what was said, too, not only its digest.")
@click.option("--verify", "verifies", is_flag=True, help="Check what is stored against it, too.")
@click.option(
    "--schema",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_print_schema,
    help="Print the JSON Schema of what --json prints.",
)
def receipts(thread: str, store: str, tenant: str, *, as_table: bool, payloads: bool, verifies: bool) -> None:
    """Show what the runtime recorded of each round of a thread, oldest first.

    THREAD is an id or enough of its beginning. A receipt says what came in, from whom and what became of it, whether
    the model was asked, what was owed to the outside, and the digest of the history after it; each names the one
    before. With --json it is the published form, version 1 of the resume contract.
    """
    if payloads and as_table:
        raise click.UsageError("--with-payloads goes with --json")
    main = _receipts(Setting(store, tenant), thread, as_table=as_table, payloads=payloads, verifies=verifies)
    run_async(main)


async def _receipts(setting: Setting, given: str, *, as_table: bool, payloads: bool, verifies: bool) -> int:
    async with opened(setting, must_exist=True) as system:
        handle = await find_thread(system, given)
        if as_table:
            click.echo(HEADS)
        async for receipt in system.receipts_of(handle.thread_id, payloads=payloads):
            click.echo(_row(receipt) if as_table else msgspec.json.encode(receipt))
        if verifies:
            number = await system.verify(handle.thread_id)
            click.echo(f"verified: {number} receipts of {handle.thread_id}", err=not as_table)
    return ANSWERED


def _row(receipt: PublishedReceipt) -> str:
    usage, history = receipt.usage, receipt.history_after or ""
    tokens = f"{'~' if usage.estimated else ''}{usage.input + usage.output:,}" if usage else ""
    cells = (
        f"{receipt.thread_version:>5}",
        f"{moment(receipt.started):<19}",
        f"{receipt.turn_commit[:8]:<8}",
        f"{tokens:>7}",
        f"{history.removeprefix('sha256:')[:8]:<8}",
        safe("; ".join(_what(receipt))),
    )
    return cut("  ".join(cells).rstrip(), WIDTH)


def _what(receipt: PublishedReceipt) -> list[str]:
    """Return in few words what a round was about: what it decided and called, then what came in."""
    said = [f"{one.action} {one.call}".rstrip() for one in receipt.operator_decision]
    said += [one.tool or one.request_id for one in receipt.tool_requests if one.dispatch == "dispatched"]
    came = [_told(one) for one in receipt.inputs]
    return [*said, *[f"<- {one}" for one in came]]


def _told(one: PublishedInput) -> str:
    note = f" ({one.note})" if one.note else ""
    return f"{one.provenance.sender if one.provenance else one.id} {one.disposition}{note}"
