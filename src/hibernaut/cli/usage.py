"""`hibernaut usage`: the tokens that threads have used, and what they have cost."""

import click
import msgspec

from hibernaut.cli import options
from hibernaut.cli.finding import find_thread
from hibernaut.cli.money import about
from hibernaut.cli.running import opened, run_async
from hibernaut.cli.starting import Setting
from hibernaut.cli.terminal import table
from hibernaut.messages.text import dollars, shorten
from hibernaut.state import ThreadState
from hibernaut.system import AgentSystem

PAGE = 500
"""Threads that are read from the store at a time."""

LONGEST_WORDS = 40

WHY_ESTIMATED = "no provider says what a completion took that was cut short"

HEADS = ("THREAD", "INPUT", "CACHED", "OUTPUT", "COST", "IS THERE FOR")


class Used(msgspec.Struct):
    """What a thread, or a tree of threads, has used: tokens, and millionths of a US dollar."""

    thread_id: str
    what: str = ""
    threads: int = 0
    input: int = 0
    cached: int = 0
    output: int = 0
    cost: int = 0
    unpriced: int = 0
    """Tokens whose price is not known: the cost is without them."""
    estimated: int = 0
    """Tokens that are an estimate: no provider says what a completion took that was cut short."""
    estimated_cost: int = 0

    def add(self, state: ThreadState) -> None:
        """Add what a thread has used."""
        self.threads += 1
        self.input += state.usage.input
        self.cached += state.usage.cached
        self.output += state.usage.output
        self.cost += state.cost
        self.unpriced += state.unpriced
        self.estimated += state.estimated
        self.estimated_cost += state.estimated_cost


@click.command(
    epilog=options.examples(
        "hibernaut usage --store agents.db",
        "hibernaut usage builds --store agents.db",
        "hibernaut usage --store agents.db --json | jq -s 'map(.cost) | add / 1e6'",
    )
)
@click.argument("thread", type=options.WORD, required=False)
@options.stores(required=True)
@options.tenants
@click.option("--limit", type=click.IntRange(min=1), default=50, show_default=True, help="Trees, the dearest first.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object for each line; cost in millionths of a $.")
def usage(thread: str | None, store: str, tenant: str, *, limit: int, as_json: bool) -> None:
    """Show the tokens that threads have used, and what they have cost.

    Without THREAD: each tree of threads in one line, the dearest first. With THREAD (an id or enough of its beginning):
    that thread and each one below it. Every completion counts once, for the thread that made it. What was cut short,
    by a person, a stop or a connection that broke, is estimated (~) where the provider had begun to answer.
    """
    run_async(_usage(Setting(store, tenant), thread, limit=limit, as_json=as_json))


async def _usage(setting: Setting, given: str | None, *, limit: int, as_json: bool) -> int:
    async with opened(setting, must_exist=True) as system:
        if given is None:
            lines, total = await _by_tree(system)
        else:
            lines, total = _by_thread(list(await (await find_thread(system, given)).tree()))
    shown = lines if given is not None else lines[:limit]
    if as_json:
        for one in shown:
            click.echo(msgspec.json.encode(one))
        return 0
    rows = [_row(one) for one in shown]
    if len(lines) != 1:
        rows.append(_row(total))
    for line in table(HEADS, rows, right=(1, 2, 3, 4)):
        click.echo(line)
    if total.estimated:
        worth = f" ({dollars(total.estimated_cost)})" if total.estimated_cost else ""
        click.echo(f"{total.estimated:,} tokens{worth} are estimated: {WHY_ESTIMATED}.", err=True)
    if total.unpriced:
        click.echo(f"{total.unpriced:,} tokens have no known price and are not in the cost.", err=True)
    if len(shown) < len(lines):
        click.echo(f"{len(lines) - len(shown):,} more trees; --limit shows them.", err=True)
    return 0


def _by_thread(states: list[ThreadState]) -> tuple[list[Used], Used]:
    lines, total = [], Used("all")
    for state in states:
        line = Used(state.thread_id, _about(state))
        line.add(state)
        total.add(state)
        lines.append(line)
    return lines, total


async def _by_tree(system: AgentSystem) -> tuple[list[Used], Used]:
    """Add up the threads of each tree; the dearest comes first."""
    trees: dict[str, Used] = {}
    total, before = Used("all"), None
    while states := await system.threads(limit=PAGE, before=before):
        before = (states[-1].updated, states[-1].thread_id)
        for state in states:
            root = state.root or state.thread_id
            tree = trees.setdefault(root, Used(root))
            tree.add(state)
            total.add(state)
            if root == state.thread_id:
                tree.what = _about(state)
    return sorted(trees.values(), key=lambda one: (one.cost, one.input + one.output), reverse=True), total


def _about(state: ThreadState) -> str:
    return shorten(state.title or state.purpose, LONGEST_WORDS)


def _row(one: Used) -> tuple[str, ...]:
    cost = about(one.cost, one.estimated) if one.cost or not one.unpriced else "?"
    return one.thread_id, f"{one.input:,}", f"{one.cached:,}", f"{one.output:,}", cost, one.what
