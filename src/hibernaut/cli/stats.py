"""`hibernaut stats`: what there is in a store, and what was counted of it."""

from collections.abc import Iterator, Mapping

import click
import msgspec

from hibernaut.cli import options
from hibernaut.cli.failures import ANSWERED
from hibernaut.cli.running import opened, run_async
from hibernaut.cli.starting import Setting
from hibernaut.cli.times import span
from hibernaut.observing import Latency, Stats

LABEL = 34
"""Columns of what a figure is called."""

IN_SECONDS = 10_000
"""Milliseconds from which on a time is told in seconds."""


@click.command(
    epilog=options.examples(
        "hibernaut stats --store agents.db",
        "hibernaut stats --store agents.db --deep --json",
    )
)
@options.stores(required=True)
@click.option("--deep", is_flag=True, help="Read all receipts and histories, too: what they prove.")
@options.json_lines
def stats(store: str, *, deep: bool, as_json: bool) -> None:
    """Show what a store has and what was ever counted of it, whether anybody runs it or not.

    It is about all tenants together, and names no thread. What engines count they write down every few seconds and when
    they end. Without --deep no history is read: how long they are is that of the threads that were updated last. Stop
    violations and approval misbindings must be 0.
    """
    run_async(_stats(Setting(store), deep=deep, as_json=as_json))


async def _stats(setting: Setting, *, deep: bool, as_json: bool) -> int:
    async with opened(setting, must_exist=True) as system:
        found = await system.stats(deep=deep)
    if as_json:
        click.echo(msgspec.json.encode(found))
    else:
        for name, figure in _figures(found):
            click.echo(f"{name:<{LABEL}}{figure}".rstrip())
    return ANSWERED


def _figures(found: Stats) -> Iterator[tuple[str, str]]:
    history, proven = found.history_bytes, found.proven
    which = "all" if proven else "updated last"
    yield "threads", _by(found.threads)
    yield "ready now", f"{found.ready:,}" + (f", the first for {_time(found.overdue_ms)}" if found.ready else "")
    yield "run by engines now", f"{found.claimed:,}"
    yield "inputs waiting", f"{found.waiting_inputs:,}"
    yield "effects owed", _by(found.effects)
    yield "stored", f"{found.stored_bytes:,} bytes"
    yield "history per thread", f"mean {history.mean:,.0f}, max {history.max:,} bytes ({history.threads:,} {which})"
    yield "", ""
    yield "duplicate inputs suppressed", f"{found.duplicates:,}"
    yield "uncertain effects reconciled", _counted(found, "reconciled")
    yield "calls answered as unknown", _counted(found, "unknown")
    yield "late events refused", _counted(found, "late_events")
    yield "resume latency", _latency(found.resume_latency)
    yield "until the model's first word", _latency(found.first_piece)
    yield "recovery", _latency(found.recovery)
    yield "completions", _counted(found, "completions")
    yield "completions put back to retry", _counted(found, "retries")
    yield "threads parked, by what gave up", _counted(found, "parked")
    yield "compaction failures", _counted(found, "compaction_failures")
    yield "store conflicts", _counted(found, "conflicts")
    yield "stop violations", _counted(found, "stop_violations")
    yield "approval misbindings", _counted(found, "approval_misbindings")
    if proven is not None:
        yield "", ""
        yield "proven by receipts", f"{proven.receipts:,} receipts"
        yield "  inputs", _by(proven.inputs)
        yield "  completions", _by(proven.completions)
        yield "  tokens", _by(proven.tokens)
        yield "  calls answered as unknown", f"{proven.unknown:,}"
        yield "  late events refused", f"{proven.late_events:,}"
        yield "  compaction failures", f"{proven.compaction_failures:,}"
        yield "  stop violations", f"{proven.stop_violations:,}"


def _counted(found: Stats, field: str) -> str:
    count = found.counted[field]
    return f"{count:,}" if isinstance(count, int) else _by(count)


def _by(counts: Mapping[str, int]) -> str:
    parts = ", ".join(f"{number:,} {name.replace('_', ' ')}" for name, number in counts.items() if number)
    return f"{sum(counts.values()):,}" + (f" ({parts})" if parts else "")


def _latency(latency: Latency) -> str:
    if not latency.count:
        return "not measured yet"
    return f"mean {_time(latency.mean_ms)}, max {_time(latency.max_ms)} ({latency.count:,} times)"


def _time(milliseconds: float) -> str:
    return f"{milliseconds:,.0f} ms" if milliseconds < IN_SECONDS else span(round(milliseconds))
