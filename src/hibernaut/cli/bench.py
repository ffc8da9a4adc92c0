"""`hibernaut bench`: measure this machine."""

import asyncio

import click
import msgspec


@click.group()
def bench() -> None:
    """Measure how many agents this machine holds and how fast they go."""


@bench.command()
@click.option("--agents", default=10_000, show_default=True, type=click.IntRange(1), help="How many agents.")
@click.option("--turns", default=20, show_default=True, type=click.IntRange(1), help="Turns of each agent.")
@click.option("--store", default="memory", show_default=True, type=click.Choice(["memory", "sqlite"]))
@click.option("--wave", default=500, show_default=True, type=click.IntRange(1), help="Agents driven at the same time.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of a table.")
def scale(agents: int, turns: int, store: str, wave: int, *, as_json: bool) -> None:
    """Run the density workload: agents that talk, call a tool, and then wait as data.

    Completions per second count from the first message to the last answer, on one process. Resident bytes are what the
    process grew by, once all agents are idle; text bytes are the user, assistant and result texts alone.
    """
    from hibernaut.bench.scale import scale as run

    result = asyncio.run(run(agents, turns, store, wave=wave))
    if as_json:
        click.echo(msgspec.json.encode(result))
        return
    for name, value in msgspec.structs.asdict(result).items():
        shown = value if isinstance(value, str) else f"{value:,.2f}" if isinstance(value, float) else f"{value:,}"
        click.echo(f"{name:<26}{shown:>16}")
