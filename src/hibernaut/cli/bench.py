"""`hibernaut bench`: measure this machine."""

import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from hibernaut.cli import options

if TYPE_CHECKING:
    from hibernaut.bench.report import Measure

F = TypeVar("F", bound=Callable[..., Any])

FILE = click.Path(dir_okay=False, path_type=Path)


@click.group(
    epilog=options.examples(
        "hibernaut bench scale --agents 10000 --turns 20 --runs 3 --json > before.json",
        "hibernaut bench scale --agents 10000 --turns 20 --runs 3 --compare before.json",
        "hibernaut bench wake --agents 1000000 --store million.db",
    )
)
def bench() -> None:
    """Measure how many agents this machine holds, and how fast they go."""


def _reported(command: F) -> F:
    """Add the options that every benchmark has."""
    for option in (
        click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of a table."),
        click.option(
            "--compare",
            metavar="FILE",
            type=FILE,
            help="An earlier --json: show how many times larger each figure is, and what else has changed.",
        ),
        click.option(
            "--runs",
            default=1,
            show_default=True,
            type=click.IntRange(1),
            help="Runs, each in a process of its own: shows median, least and most.",
        ),
    ):
        command = option(command)
    return command


def _number(_context: click.Context, _parameter: click.Parameter, value: float) -> float:
    if math.isnan(value):
        raise click.BadParameter("nan is no number")
    return value


_agents = click.option("--agents", default=10_000, show_default=True, type=click.IntRange(1), help="How many agents.")
_wave = click.option(
    "--wave", default=500, show_default=True, type=click.IntRange(1), help="Agents driven at the same time."
)
_directory = click.option(
    "--directory",
    metavar="FOLDER",
    type=click.Path(exists=True, file_okay=False, writable=True),
    help="Folder for the file: its disk is what is measured.  [default: the system's for temporary files]",
)
_kept = click.option(
    "--store",
    metavar="FILE",
    type=click.Path(dir_okay=False),
    help="Keep the agents in this file, and use those that are there.",
)
_kind = click.option("--store", default="memory", show_default=True, type=click.Choice(["memory", "sqlite"]))
_plot = click.option(
    "--plot",
    metavar="FILE",
    type=FILE,
    help="Draw memory over agents and throughput over time (.png or .svg); needs the extra `plot`.",
)


@bench.command()
@_agents
@click.option("--turns", default=20, show_default=True, type=click.IntRange(1), help="Turns of each agent.")
@_kind
@_wave
@click.option(
    "--text",
    default="unique",
    show_default=True,
    type=click.Choice(["unique", "corpus"]),
    help="Made-up texts of which none is like another, or real prose, code and logs.",
)
@click.option(
    "--compress/--no-compress",
    default=None,
    help="Whether the store packs what it keeps.  [default: on SQLite, not in memory]",
)
@_plot
@_reported
def scale(agents: int, turns: int, store: str, wave: int, text: str, *, compress: bool | None, **report: Any) -> None:
    """Run the density workload: agents that talk, call a tool, and then wait as data.

    Completions per second count from the first message to the last answer, on one process. Resident bytes are what the
    process grew by, once all agents are idle; text bytes are the user, assistant and result texts alone. The floor is a
    bare Python loop that makes, encodes, stores and decodes the same items, measured after every wave.
    """
    from hibernaut.bench.scale import scale as function

    parameters = {"agents": agents, "turns": turns, "store": store, "wave": wave, "text": text, "compress": compress}
    _run("scale", function, parameters, **report)


@bench.command()
@click.option("--agents", default=2_000, show_default=True, type=click.IntRange(1), help="How many agents.")
@click.option("--turns", default=5, show_default=True, type=click.IntRange(1), help="Turns of each agent.")
@_wave
@_directory
@_plot
@_reported
def durable(agents: int, turns: int, wave: int, directory: str | None, **report: Any) -> None:
    """Run the density workload on an SQLite file, every commit synced to the disk before it counts.

    As many agents as --wave says are in flight at the same time.
    """
    from hibernaut.bench.durable import durable as function

    parameters = {"agents": agents, "turns": turns, "wave": wave, "directory": directory}
    _run("durable", function, parameters, **report)


@bench.command()
@click.option("--agents", default=10_000, show_default=True, type=click.IntRange(2_000), help="Stored agents.")
@click.option("--messages", default=1_000, show_default=True, type=click.IntRange(1), help="Agents that are woken.")
@_kept
@_reported
def wake(agents: int, messages: int, store: str | None, **report: Any) -> None:
    """Wake idle agents that are stored in one SQLite file, one after the other.

    From before a message is handed in, through its durable acceptance, to the call of its agent's model; and what an
    engine's process holds for each agent that waits.
    """
    from hibernaut.bench.wake import wake as function

    parameters = {"agents": agents, "messages": min(messages, agents), "store": store}
    _run("wake", function, parameters, **report)


@bench.command("cold-start")
@click.option("--agents", default=10_000, show_default=True, type=click.IntRange(2), help="Stored agents.")
@_kept
@click.option(
    "--drop-caches",
    is_flag=True,
    help="Have the system forget all files before the cold start, not just the store: needs root, and slows whatever "
    "else runs here.",
)
@_reported
def cold_start(agents: int, store: str | None, *, drop_caches: bool, **report: Any) -> None:
    """Start a process and give one of many stored agents a message, until its model is called.

    Python's start and its imports are in it. `warm`: the files are in the system's cache; `cold`: the store is not.
    """
    from hibernaut.bench.cold_start import cold_start as function

    parameters = {"agents": agents, "store": store, "drop_caches": drop_caches}
    _run("cold-start", function, parameters, **report)


@bench.command()
@click.option("--items", default=10_000, show_default=True, type=click.IntRange(10), help="Items of the long thread.")
@click.option("--pairs", default=200, show_default=True, type=click.IntRange(1), help="Slices of each thread.")
@_kind
@_reported
def history(items: int, pairs: int, store: str, **report: Any) -> None:
    """Compare slices of a thread with 10 items and of one with many, in turn."""
    from hibernaut.bench.history import history as function

    _run("history", function, {"items": items, "pairs": pairs, "store": store}, **report)


@bench.command()
@click.option("--threads", default=500, show_default=True, type=click.IntRange(1), help="Threads that are called back.")
@click.option("--connections", default=64, show_default=True, type=click.IntRange(1), help="Connections of the client.")
@click.option(
    "--seconds",
    default=5.0,
    show_default=True,
    type=click.FloatRange(0.1, 86_400),
    callback=_number,
    help="How long it posts.",
)
@_directory
@_reported
def callbacks(threads: int, connections: int, seconds: float, directory: str | None, **report: Any) -> None:
    """Post callbacks to a receiver, each checked and stored durably before it is answered.

    `bare` is a listener that reads the same bodies and answers at once: what HTTP costs here by itself.
    """
    from hibernaut.bench.callbacks import callbacks as function

    parameters = {"threads": threads, "connections": connections, "seconds": seconds, "directory": directory}
    _run("callbacks", function, parameters, **report)


def _run(
    name: str,
    function: "Measure",
    parameters: Mapping[str, Any],
    *,
    runs: int,
    compare: Path | None,
    as_json: bool,
    plot: Path | None = None,
) -> None:
    from hibernaut.bench.plot import check, draw
    from hibernaut.bench.report import encode, measure, read, table

    earlier = read(compare) if compare is not None else None
    if plot is not None:
        check(plot)
    report = measure(name, runs, function, parameters)
    if plot is not None:
        draw(report, plot)
    if as_json:
        click.echo(encode(report, earlier))
        return
    for line in table(report, earlier):
        click.echo(line)
