"""`hibernaut chaos`: run an agent again and again, kill and disturb it, and see that nothing is other in the end."""

import asyncio
import shlex
import sys
import time

import click

from hibernaut.cli import options
from hibernaut.cli.failures import ANSWERED, REFUSED
from hibernaut.testing.chaos_runs import chaos as run_chaos
from hibernaut.testing.life import PATIENCE
from hibernaut.testing.report import Report

BUILT_IN = "hibernaut.testing.chores:chores"
"""An agent with tools, children, timers, questions and a tool server."""

TELL_EVERY = 10.0
"""Seconds between two lines of progress."""


@click.command(
    epilog=options.examples(
        "hibernaut chaos --minutes 10 --seed 7",
        "hibernaut chaos --minutes 1 --agent tests/agent.py:scenario",
        "hibernaut chaos --seed 7 --run 41                      the same run again",
    )
)
@click.option(
    "--minutes",
    type=click.FloatRange(0, min_open=True),
    default=1.0,
    show_default=True,
    metavar="N",
    help="No further run begins after so many.",
)
@click.option("--seed", type=options.WORD, default="0", show_default=True, help="The same seed does the same.")
@click.option("--run", "only", type=click.IntRange(1), metavar="N", help="Do one run alone, by its number.")
@click.option(
    "--agent",
    type=options.WORD,
    default=BUILT_IN,
    metavar="MODULE:NAME",
    help="A scenario (docs/testing.md): module:name or path/to/file.py:name. By default one of our own.",
)
def chaos(minutes: float, seed: str, only: int | None, agent: str) -> None:
    """Kill and disturb an agent for some minutes, and check after each run that nothing is other.

    Its processes are real, are ended by SIGKILL or stand still until another has taken over, and work on a store in a
    file. Inputs are delayed, reordered and repeated; callbacks that are forged, expired, truncated, meant for another
    call or late come between. Each run is compared with one that nobody disturbed: history, effects, receipts.

    The last line is the verdict. Exit code 1 if there is a divergence; then it says how to repeat the run. Linux only.
    """
    progress = _Progress()
    report = asyncio.run(
        run_chaos(agent, minutes=minutes, seed=seed, run=only, processes=True, patience=PATIENCE, on_run=progress.tell)
    )
    click.echo(report.table())
    if report.divergences:
        again = ["hibernaut", "chaos", "--seed", seed, *([] if agent == BUILT_IN else ["--agent", agent])]
        click.echo(f"repeat a run with: {shlex.join(again)} --run N")
    click.echo(report.verdict)
    click.get_current_context().exit(REFUSED if report.divergences else ANSWERED)


class _Progress:
    """Says every now and then how far it is, and every divergence at once."""

    def __init__(self) -> None:
        self._began = time.monotonic()
        self._told = self._began
        self._divergences = 0

    def tell(self, report: Report) -> None:
        """Hear of the report after a run."""
        for one in report.divergences[self._divergences :]:
            click.echo(f"divergence: {one}", err=True)
        self._divergences = len(report.divergences)
        now = time.monotonic()
        if now - self._told >= TELL_EVERY:
            self._told = now
            seconds = now - self._began
            click.echo(f"{seconds:>6.0f} s  {report.verdict}", err=True)
            sys.stderr.flush()
