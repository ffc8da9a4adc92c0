"""What a store grows by: bytes of an agent that was never spoken to, of a turn, of a receipt, of an item.

    python benchmarks/bench_growth.py [AGENTS] [--packed]

Agents do the density workload on SQLite. After some turns their records are read through the store's API and summed,
and the size of the file is taken once its log has been written back: what it has beyond the records are keys, indexes,
digests of consumed messages, and SQLite's pages. With --packed, pages are packed, as a store does by itself, and texts
are real ones; without, both are as they come.
"""

import argparse
import asyncio
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec

from hibernaut.bench.readings import Readings
from hibernaut.bench.texts import Texts
from hibernaut.bench.workload import WAVE, Workload, drive, waves
from hibernaut.messages.items import CallItem, ResultItem, TextItem, UserItem, decode_page
from hibernaut.messages.parts import plain_text
from hibernaut.stores.sqlite import SqliteStore
from hibernaut.stores.sqlite.pages import Pages
from hibernaut.system import AgentSystem

TURNS = (0, 1, 2, 4, 8)
"""Turns after which it is looked."""


class Grown(msgspec.Struct):
    """Bytes and numbers of all agents together."""

    turns: int
    file: int = 0
    heads: int = 0
    pages: int = 0
    receipts: int = 0
    commits: int = 0
    items: int = 0
    text: int = 0
    """What was said, called with and returned, in UTF-8."""


async def look(path: Path, names: list[str], grown: Grown, *, packed: bool) -> None:
    """Sum up what is stored."""
    pages = Pages(compress=packed)
    async with AgentSystem(store=path, run=False) as system:
        for name in names:
            row = await system.store.read_head(name)
            grown.heads += len(row.head) if row is not None else 0
            for commit in await system.store.read_log(name):
                grown.pages += len(pages.written(commit.page)[0])
                grown.receipts += len(commit.receipt)
                grown.commits += 1
                for item in decode_page(commit.page):
                    grown.items += 1
                    if isinstance(item, UserItem | ResultItem):
                        grown.text += len(plain_text(item.content).encode())
                    elif isinstance(item, TextItem):
                        grown.text += len(item.text.encode())
                    elif isinstance(item, CallItem):
                        grown.text += len(item.arguments.encode())


async def work(path: Path, workload: Workload, agents: int, turns: int, *, packed: bool) -> None:
    """Let agents do turns, and close the store, which writes SQLite's log back into the file."""
    store = await SqliteStore.open(path, compress=packed)
    async with AgentSystem(model=workload, tools=[workload.tool()], store=store) as system:
        for wave in waves(agents, WAVE):
            await drive(system, workload, wave, turns)
    await store.close()


def measure(agents: int, *, packed: bool) -> list[Grown]:
    """Let agents do turns, and look at what is stored in between."""
    found: list[Grown] = []
    with TemporaryDirectory() as folder:
        path, workload = Path(folder) / "agents.db", Workload(Readings() if packed else Texts())
        names = [name for wave in waves(agents, WAVE) for name in wave]
        for turns in TURNS:
            before = found[-1].turns if found else 0
            asyncio.run(work(path, workload, agents, turns - before, packed=packed))
            found.append(Grown(turns, path.stat().st_size))
            asyncio.run(look(path, names, found[-1], packed=packed))
    return found


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{number} agents cannot be measured")
    return number


def main() -> None:
    """Measure, and print what each adds."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("agents", nargs="?", type=_positive, default=1_000)
    parser.add_argument("--packed", action="store_true")
    given = parser.parse_args()
    agents = given.agents
    found = measure(agents, packed=given.packed)
    widths = {"file": 9, "head": 8, "pages": 9, "receipts": 10, "text": 9, "commits": 9, "items": 8}
    print(f"{'bytes per agent':<16}" + "".join(f"{name:>{width}}" for name, width in widths.items()))
    for one in found:
        columns = (one.file, one.heads, one.pages, one.receipts, one.text, one.commits, one.items)
        shown = [f"{value / agents:>{width},.0f}" for value, width in zip(columns, widths.values(), strict=True)]
        print(f"{f'{one.turns} turns':<16}{''.join(shown)}")
    first, last = found[1], found[-1]
    turns, commits = (last.turns - first.turns) * agents, last.commits - first.commits
    items, text = last.items - first.items, last.text - first.text
    overhead = last.file - first.file - (last.pages - first.pages) - (last.receipts - first.receipts)
    beside = [] if given.packed else [("an item beside its text", (last.pages - first.pages - text) / items)]
    for name, value in (
        ("an agent that was never spoken to", found[0].file / agents),
        ("a turn (two commits), in the file", (last.file - first.file) / turns),
        ("its text", text / turns),
        *beside,
        ("a page", (last.pages - first.pages) / commits),
        ("a receipt", (last.receipts - first.receipts) / commits),
        ("a commit beside page and receipt", overhead / commits),
        ("stored per byte of text", (last.file - first.file) / text),
    ):
        print(f"{name:<36}{value:>10,.2f}" if value < TURNS[-1] else f"{name:<36}{value:>10,.0f}")


if __name__ == "__main__":
    main()
