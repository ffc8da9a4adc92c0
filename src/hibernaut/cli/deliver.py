"""`hibernaut deliver`: the result of a call that a tool deferred."""

import click

from hibernaut.cli import options
from hibernaut.cli.failures import ANSWERED
from hibernaut.cli.running import opened, run_async
from hibernaut.cli.starting import Setting


@click.command(
    epilog=options.examples(
        'hibernaut deliver "$TOKEN" "passed in 12 min" --store agents.db',
        'make 2>&1 | hibernaut deliver "$TOKEN" - --store agents.db',
    )
)
@click.argument("token", type=options.WORD)
@click.argument("result")
@options.stores(required=True)
@options.tenants
@click.option("--error", "is_error", is_flag=True, help="The work failed; RESULT says how.")
def deliver(token: str, result: str, store: str, tenant: str, *, is_error: bool) -> None:
    """Bring the result of a deferred call. When this has said "accepted", it is stored and cannot be lost.

    TOKEN is what the tool got from `ctx.defer()`. RESULT is the text that the agent reads, or - to read it from
    standard input. It works whether an engine runs on the store or not.
    """
    run_async(_deliver(Setting(store, tenant), token, options.text_or_stdin(result), is_error=is_error))


async def _deliver(setting: Setting, token: str, result: str, *, is_error: bool) -> int:
    async with opened(setting, must_exist=True) as system:
        await system.deliver(token, result, is_error=is_error)
    click.echo("accepted")
    return ANSWERED
