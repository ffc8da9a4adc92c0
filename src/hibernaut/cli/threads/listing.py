"""`hibernaut threads list`: which threads there are."""

import click
import msgspec

from hibernaut.cli import options
from hibernaut.cli.running import opened
from hibernaut.cli.starting import Setting
from hibernaut.cli.terminal import table
from hibernaut.cli.threads.group import run, threads
from hibernaut.cli.times import ago, moment
from hibernaut.messages.text import shorten
from hibernaut.state import ThreadState


@threads.command("list")
@options.stores(required=True)
@options.tenants
@click.option(
    "--limit", type=click.IntRange(1), default=50, show_default=True, help="How many, the last updated first."
)
@click.option("--all", "show_all", is_flag=True, help="Also those that another thread has made.")
@options.json_lines
def list_threads(store: str, tenant: str, limit: int, *, show_all: bool, as_json: bool) -> None:
    """List threads, the last updated first. `threads tree` shows what is below one."""
    run(_list(Setting(store, tenant), limit, show_all=show_all, as_json=as_json))


async def _list(setting: Setting, limit: int, *, show_all: bool, as_json: bool) -> None:
    async with opened(setting, must_exist=True) as system:
        states = await system.threads(limit=limit + 1, roots=not show_all)
        now = system.clock.now()
    more, states = len(states) > limit, states[:limit]
    if as_json:
        for state in states:
            click.echo(msgspec.json.encode(state))
        return
    if not states:
        click.echo("There are no threads.", err=True)
        return
    heads = ("THREAD", "STATE", "ITEMS", "INBOX", "BELOW", "UPDATED", "WAITS FOR", "TITLE")
    rows = [
        (
            state.thread_id,
            what_it_does(state),
            f"{state.items:,}",
            f"{state.waiting:,}",
            f"{state.children:,}",
            ago(state.updated, now),
            shorten(_waits_for(state), 40),
            shorten(state.title, 100),
        )
        for state in states
    ]
    for line in table(heads, rows, right=(2, 3, 4)):
        click.echo(line)
    if more:
        click.echo(f"There are more; --limit {2 * limit} shows more of them.", err=True)


def what_it_does(state: ThreadState) -> str:
    """Return in a word what a thread is at, as far as a listing knows."""
    if state.frozen:
        return "frozen"
    if state.status != "open":
        return state.status
    # A listing does not look into inboxes; what lies in that of a thread that waits for nothing is for it to do.
    return "ready" if state.activity == "idle" and state.waiting else state.activity


def _waits_for(state: ThreadState) -> str:
    if state.activity == "resting":
        due = [call.due for call in state.calls if call.due]
        return moment(min(due)) if due else "a word"
    waits = [call.tool for call in state.calls if call.state in ("open", "queued")]
    return ", ".join(["a person", *waits] if state.questions else waits)
