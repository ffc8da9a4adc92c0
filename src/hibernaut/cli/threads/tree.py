"""`hibernaut threads tree`: a thread and all threads below it."""

import sys

import click
import msgspec

from hibernaut.cli.finding import find_thread
from hibernaut.cli.running import opened, run_async
from hibernaut.cli.starting import Setting
from hibernaut.cli.terminal import columns, cut, safe, table
from hibernaut.cli.threads.group import threads, with_thread
from hibernaut.cli.threads.listing import what_it_does
from hibernaut.cli.times import ago
from hibernaut.messages.text import shorten
from hibernaut.state import ThreadState, TreeState

LONGEST_WORDS = 60
"""Characters of what a thread is about."""


@threads.command(short_help="Show a thread and the threads below it.")
@with_thread
@click.option("--all", "show_all", is_flag=True, help="Also those that have ended.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object, with the children inside their parents.")
def tree(thread: str, store: str, tenant: str, *, show_all: bool, as_json: bool) -> None:
    """Show a thread and the threads below it: those that it spawned, and those that its events got."""
    run_async(_tree(Setting(store, tenant), thread, show_all=show_all, as_json=as_json))


async def _tree(setting: Setting, given: str, *, show_all: bool, as_json: bool) -> int:
    async with opened(setting, must_exist=True) as system:
        handle = await find_thread(system, given)
        grown = await handle.tree()
        now = system.clock.now()
    if as_json:
        click.echo(msgspec.json.encode(_record(grown, show_all=show_all)))
        return 0
    rows = [
        (
            f"{lines}{state.thread_id}",
            what_it_does(state),
            f"{state.items:,}",
            ago(state.updated, now),
            shorten(_about(state), LONGEST_WORDS),
        )
        for lines, state in _drawn(grown, show_all=show_all)
    ]
    terminal = sys.stdout.isatty()
    for line in table(("THREAD", "STATE", "ITEMS", "UPDATED", "IS THERE FOR"), rows, right=(2,)):
        click.echo(cut(safe(line), columns()) if terminal else line)
    ended = sum(state.status == "closed" for state in grown if state is not grown.thread)
    if ended and not show_all:
        click.echo(f"{ended:,} more {'has' if ended == 1 else 'have'} ended; --all shows them.", err=True)
    return 0


def _shown(tree: TreeState, *, show_all: bool) -> list[TreeState]:
    return [child for child in tree.children if show_all or child.thread.status != "closed"]


def _drawn(tree: TreeState, above: str = "", mark: str = "", *, show_all: bool) -> list[tuple[str, ThreadState]]:
    drawn = [(f"{above}{mark}", tree.thread)]
    if mark:
        above += "   " if mark.startswith("└") else "│  "
    children = _shown(tree, show_all=show_all)
    for child in children:
        drawn += _drawn(child, above, "└─ " if child is children[-1] else "├─ ", show_all=show_all)
    return drawn


def _about(state: ThreadState) -> str:
    words = [state.title or state.purpose]
    if state.questions:
        words.append(f"{state.questions} to answer")
    words += [f"listens to {one.tool}" for one in state.subscriptions]
    if state.reason:
        words.append(state.reason)
    return "; ".join(word for word in words if word)


def _record(tree: TreeState, *, show_all: bool) -> dict[str, object]:
    children = [_record(child, show_all=show_all) for child in _shown(tree, show_all=show_all)]
    record: dict[str, object] = msgspec.to_builtins(tree.thread)
    return record | {
        "usage": msgspec.structs.asdict(tree.thread.usage),
        "children": children,
        "living_children": tree.thread.children,
    }
