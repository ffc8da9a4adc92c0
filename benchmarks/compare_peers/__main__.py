"""Other Python runtimes for agents beside ours: the same workload, on the same machine, in turn.

    python benchmarks/compare_peers CACHE [--agents 200] [--turns 10] [--wave 100] [--rounds 3]

Makes a virtual environment for each peer in the folder CACHE, which lies outside of this repository, with the versions
that `requirements/` pins, and runs all contestants once a round, one after the other. Each peer's program says how it
is set up, and why. Its scripted model answers with whole texts; ours is streamed, chunk by chunk, as providers do.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
from pathlib import Path

import msgspec

from hibernaut.bench.machine import Build, Machine, this_build, this_machine
from hibernaut.bench.report import shown
from hibernaut.errors import ConfigurationError

HERE = Path(__file__).resolve().parent

OURS = "hibernaut"

PROCESSOR = "processor_us_per_completion"
"""What no neighbour disturbs."""

FIGURES = ("completions_per_s", PROCESSOR, "resident_bytes_per_agent", "stored_bytes_per_agent")


class Contestant(msgspec.Struct, frozen=True):
    """One runtime with one store in one setting."""

    peer: str
    store: str
    said: str = ""
    """What is durable when, or how it is set."""
    variant: dict[str, object] = {}


CONTESTANTS = (
    Contestant(OURS, "memory"),
    Contestant("autogen_core", "memory"),
    Contestant("langgraph", "memory", "durability exit", {"durability": "exit"}),
    Contestant("langgraph", "memory", "exit, delta channel", {"durability": "exit", "delta": True}),
    Contestant("pydantic_ai", "memory", "lists of messages"),
    Contestant("openai_agents", "memory", "a session each"),
    Contestant(OURS, "sqlite", "each message, call and step"),
    Contestant("langgraph", "sqlite", "each step", {"durability": "sync"}),
    Contestant("langgraph", "sqlite", "each step, delta channel", {"durability": "sync", "delta": True}),
    Contestant("langgraph", "sqlite", "each turn, delta channel", {"durability": "exit", "delta": True}),
    Contestant("pydantic_ai", "sqlite", "each turn"),
    Contestant("openai_agents", "sqlite", "each step"),
)


class Standing(msgspec.Struct, frozen=True):
    """What a contestant did in all rounds."""

    contestant: Contestant
    version: str
    runs: list[dict[str, float]]


class Comparison(msgspec.Struct, frozen=True):
    """All of them."""

    machine: Machine
    build: Build
    agents: int
    turns: int
    wave: int
    standings: list[Standing]


def python_of(peer: str, cache: Path) -> Path:
    """Return the Python of a peer's virtual environment, which is made if it is not there.

    Raises:
        ConfigurationError: the folder lies in this repository.
    """
    cache = cache.resolve()
    if cache.is_relative_to(HERE.parents[1]):
        raise ConfigurationError(f"{cache} lies in this repository; name a folder outside of it")
    folder = cache / peer
    wanted, held = HERE / "requirements" / f"{peer}.txt", folder / "requirements.txt"
    python = folder / "bin/python"
    if not held.exists() or held.read_bytes() != wanted.read_bytes():
        print(f"making the virtual environment of {peer}", file=sys.stderr)
        for words in (
            [sys.executable, "-m", "venv", "--clear", str(folder)],
            [str(python), "-m", "pip", "--quiet", "--disable-pip-version-check", "install", "-r", str(wanted)],
        ):
            subprocess.run(words, check=True)  # noqa: S603  # ours
        held.write_bytes(wanted.read_bytes())
    return python


def version_of(peer: str) -> str:
    """Return the version that is pinned."""
    if peer == OURS:
        return this_build().hibernaut
    (line, *_) = (HERE / "requirements" / f"{peer}.txt").read_text(encoding="utf-8").splitlines()
    return line.partition("==")[2]


def run(one: Contestant, cache: Path, agents: int, turns: int, wave: int) -> dict[str, float]:
    """Run a contestant once."""
    size = ["--agents", str(agents), "--turns", str(turns), "--wave", str(wave), "--store", one.store]
    if one.peer == OURS:
        words = [sys.executable, "-m", "hibernaut.cli", "bench", "scale", "--json", *size]
    else:
        program = HERE / f"peer_{one.peer}.py"
        variant = msgspec.json.encode(one.variant).decode()
        words = [str(python_of(one.peer, cache)), str(program), "--variant", variant, *size]
    # What a peer would send to its maker's servers, or look for there, is none of the workload.
    quiet = {**os.environ, "LANGSMITH_TRACING": "false", "OPENAI_AGENTS_DISABLE_TRACING": "1"}
    told = subprocess.run(words, env=quiet, check=True, stdout=subprocess.PIPE)  # noqa: S603  # ours
    measured = json.loads(told.stdout)
    return {name: measured[name] for name in FIGURES}


def table(found: Comparison) -> None:
    """Print medians as a Markdown table, and beside ours how much of the processor each takes on the same store."""
    build, machine = found.build, found.machine
    rounds = len(found.standings[0].runs)
    print(f"{found.agents:,} agents, {found.turns} turns, waves of {found.wave}; medians of {rounds}")
    print(f"{machine.processor}, {machine.cores} cores; {build.python}; hibernaut {build.commit[:10]}\n")
    columns = (
        "completions/s",
        "processor, µs each",
        "beside ours",
        "resident bytes per agent",
        "stored bytes per agent",
    )
    print(f"| | durable | {' | '.join(columns)} |")
    print(f"|---|---|{'---|' * len(columns)}")
    mine = {one.contestant.store: one for one in found.standings if one.contestant.peer == OURS}
    for one in found.standings:
        speed, spent, resident, stored = (statistics.median([run[name] for run in one.runs]) for name in FIGURES)
        pairs = zip(one.runs, mine[one.contestant.store].runs, strict=True)
        ratio = statistics.median([theirs[PROCESSOR] / ours[PROCESSOR] for theirs, ours in pairs])
        figures = (
            shown(round(speed)),
            shown(round(spent)),
            f"{ratio:.1f} ×" if one.contestant.peer != OURS else "",
            shown(round(resident)),
            shown(round(stored)) if stored else "",
        )
        name = f"{one.contestant.peer} {one.version}, {one.contestant.store}"
        print(f"| {name} | {one.contestant.said} | {' | '.join(figures)} |")


def main() -> None:
    """Run all in turn, and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cache", type=Path, help="a folder outside of this repository")
    parser.add_argument("--agents", type=int, default=200)
    parser.add_argument("--turns", type=int, default=10)
    parser.add_argument("--wave", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", action="append", help="peers that take part beside ours")
    parser.add_argument("--store", choices=["memory", "sqlite"], help="only those that keep agents there")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    taking_part = [
        one
        for one in CONTESTANTS
        if (not given.only or one.peer in (OURS, *given.only)) and given.store in (None, one.store)
    ]
    for peer in {one.peer for one in taking_part} - {OURS}:
        python_of(peer, given.cache)
    runs: list[list[dict[str, float]]] = [[] for _ in taking_part]
    for number in range(given.rounds):
        print(f"round {number + 1} of {given.rounds}", file=sys.stderr)
        for one, taken in zip(taking_part, runs, strict=True):
            taken.append(run(one, given.cache, given.agents, given.turns, given.wave))
    standings = [Standing(one, version_of(one.peer), taken) for one, taken in zip(taking_part, runs, strict=True)]
    found = Comparison(this_machine(), this_build(), given.agents, given.turns, given.wave, standings)
    if given.json:
        print(msgspec.json.encode(found).decode())
    else:
        table(found)


if __name__ == "__main__":
    main()
