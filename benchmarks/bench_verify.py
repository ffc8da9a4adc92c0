"""How fast the threads of a SQLite store are checked: `python benchmarks/bench_verify.py [THREADS] [--jobs N …]`.

Every thread has had two turns with a call each, which is four rounds. Checked is all that `hibernaut verify --all`
checks; with several jobs, in as many processes. Run it on a machine that does nothing else.
"""

import argparse
import asyncio
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

from hibernaut import AgentSystem, tool
from hibernaut.bench.memory import resident_bytes
from hibernaut.engine.audit_all import Tally, audit_batch, batches
from hibernaut.messages.events import Usage
from hibernaut.messages.items import ResultItem
from hibernaut.models.protocol import ModelRequest
from hibernaut.models.scripted import ScriptedModel, ScriptedTurn, call, turn
from hibernaut.stores.sqlite import SqliteStore

WAVE = 500


@tool
async def run_command(command: str) -> str:
    """Run a command and return what it printed."""
    return f"{command}: " + "running 148 tests; 147 passed; 1 failed; finished in 2.31 s; " * 5


def model() -> ScriptedModel:
    """Return a model that calls the tool once a turn."""

    def react(request: ModelRequest) -> ScriptedTurn:
        if isinstance(request.transcript[-1], ResultItem):
            return turn("One assertion compares a stale snapshot with a fresh one. " * 20, usage=Usage(1_000, 300))
        return turn("Looking at the failing module first. " * 20, call("run_command", command="cargo test"))

    return ScriptedModel(react)


async def fill(path: str, threads: int) -> None:
    """Make the threads."""
    async with AgentSystem(model=model(), tools=[run_command], store=path) as system:
        for first in range(0, threads, WAVE):
            names = [f"agent-{number:07d}" for number in range(first, min(first + WAVE, threads))]
            for text in ("Look into the nightly build.", "Once more."):
                await asyncio.gather(*[system.send(name, text) for name in names])
                await system.wait_idle()


async def check_here(path: str) -> Tally:
    """Check all threads in this process."""
    store, total = await SqliteStore.open(path), Tally()
    try:
        async for rows in batches(store, None):
            total += await audit_batch(store, rows)
    finally:
        await store.close()
    return total


def main() -> None:
    """Measure, and print what was found."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("threads", nargs="?", type=int, default=10_000)
    parser.add_argument("--jobs", type=int, nargs="*", default=[2])
    given = parser.parse_args()
    with TemporaryDirectory() as folder:
        path = str(Path(folder) / "agents.db")
        asyncio.run(fill(path, given.threads))
        before, began, spent = resident_bytes(), time.perf_counter(), time.process_time()
        total = asyncio.run(check_here(path))
        seconds, cpu = time.perf_counter() - began, time.process_time() - spent
        grown = (resident_bytes() - before) / 2**20
        assert total.threads == given.threads
        assert not total.broken
        print(
            f"in one process: {total.threads / seconds:,.0f} threads/s ({total.receipts / seconds:,.0f} receipts/s), "
            f"{cpu / total.threads * 1e6:,.0f} µs of CPU a thread, {grown:,.1f} MiB more than before"
        )
        for jobs in given.jobs:
            began = time.perf_counter()
            words = ["verify", "--all-tenants", "--store", path, "--jobs", str(jobs)]
            command = [sys.executable, "-m", "hibernaut.cli", *words]
            subprocess.run(command, check=True, capture_output=True)  # noqa: S603  # it is this project's own
            seconds = time.perf_counter() - began
            print(f"`hibernaut verify --jobs {jobs}`, its start included: {given.threads / seconds:,.0f} threads/s")


if __name__ == "__main__":
    main()
