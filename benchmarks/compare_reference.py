"""The published Rust runtime beside ours: the same workload, on the same core, in turn.

    python benchmarks/compare_reference.py CACHE [--agents 2000] [--turns 20] [--wave 500] [--pairs 3] [--json]

Fetches the crate `infinity-agent-core` from crates.io with cargo into the folder CACHE, which lies outside of this
repository, builds the benchmark that it ships as `examples/agent_scale.rs` in release mode, and runs it in turn with
`hibernaut bench scale`, each bound to one core. Nothing of it is changed.

Both drive agents in waves, turn by turn: a user text, a completion of 12 chunks that calls a tool, its result through
the inbox, a completion of 12 more. Both keep everything in memory. What differs is told by the table's last lines.
"""

import argparse
import csv
import json
import os
import re
import resource
import shutil
import statistics
import subprocess
import sys
from pathlib import Path

import msgspec

from hibernaut.bench.machine import Build, Machine, this_build, this_machine
from hibernaut.bench.report import shown
from hibernaut.errors import ConfigurationError

CRATE, VERSION, EXAMPLE = "infinity-agent-core", "0.2.0", "agent_scale"

HOLDER = f"""\
[package]
name = "holder"
version = "0.0.0"

[lib]
path = "lib.rs"

[dependencies]
{CRATE} = "={VERSION}"
"""
"""A package that needs the crate, so that cargo fetches its sources: only those hold its examples."""

TOLD = re.compile(r"\((?P<completions>\d+) completions\) in (?P<seconds>[\d.]+)s")

PAUSE = 0.1
"""Seconds for which the reference rests after each wave before it looks at its memory; they are not work."""

NOTES = (
    "bytes are what a process has grown by, trimmed, when all agents are idle; ours with receipts chained by SHA-256",
    "ours makes each text anew, the reference copies one; both have 2.7 KB of text in a turn",
    "the reference's seconds are told in tenths and here without the 0.1 s that it rests after each wave",
    "the processor's time is no neighbour's: the reference's is that of its whole process, ours that of the waves",
)


class Run(msgspec.Struct, frozen=True):
    """One run of either."""

    completions_per_s: float
    processor_us_per_completion: float
    resident_bytes_per_agent: float


class Comparison(msgspec.Struct, frozen=True):
    """All runs, taken in turn."""

    machine: Machine
    build: Build
    rust: str
    crate: str
    agents: int
    turns: int
    wave: int
    core: int
    ours: list[Run]
    reference: list[Run]


def cargo() -> str:
    """Find cargo.

    Raises:
        ConfigurationError: there is none.
    """
    found = shutil.which("cargo") or shutil.which("cargo", path=Path.home() / ".cargo/bin")
    if found is None:
        raise ConfigurationError("cargo was found neither in PATH nor in ~/.cargo/bin; install Rust to build the crate")
    return found


def built(cache: Path) -> Path:
    """Return the reference's benchmark, fetched and built if it is not there.

    Raises:
        ConfigurationError: the folder lies in this repository, or there is no cargo.
    """
    cache = cache.resolve()
    if cache.is_relative_to(Path(__file__).resolve().parents[1]):
        raise ConfigurationError(f"{cache} lies in this repository; name a folder outside of it")
    program = cache / "target/release/examples" / EXAMPLE
    if program.exists():
        return program
    holder = cache / "holder"
    holder.mkdir(parents=True, exist_ok=True)
    (holder / "Cargo.toml").write_text(HOLDER, encoding="utf-8")
    (holder / "lib.rs").touch()
    words = [cargo(), "metadata", "--format-version", "1"]
    known = subprocess.run(words, cwd=holder, check=True, stdout=subprocess.PIPE)  # noqa: S603  # it is cargo
    packages = json.loads(known.stdout)["packages"]
    (manifest,) = [Path(one["manifest_path"]) for one in packages if one["name"] == CRATE]
    crate = cache / CRATE
    shutil.copytree(manifest.parent, crate, dirs_exist_ok=True)
    words = [cargo(), "build", "--release", "--locked", "--example", EXAMPLE, "--target-dir", str(cache / "target")]
    subprocess.run(words, cwd=crate, check=True)  # noqa: S603  # it is cargo
    return program


def reference(program: Path, agents: int, turns: int, wave: int) -> Run:
    """Run the reference's benchmark."""
    asked = {"AGENTS": str(agents), "TURNS": str(turns), "WAVE": str(wave)}
    place = {**os.environ, **asked}
    before = _processor_s()
    told = subprocess.run([program], env=place, check=True, capture_output=True, text=True)  # noqa: S603  # it was asked for
    spent = _processor_s() - before
    rows = list(csv.DictReader(told.stdout.splitlines()))
    found = TOLD.search(told.stderr)
    if found is None:
        raise AssertionError(f"the reference has said {told.stderr!r}, which is not what its version {VERSION} says")
    seconds = float(found["seconds"]) - PAUSE * -(-agents // wave)
    if seconds <= 0:
        raise ConfigurationError("the reference was done in a tenth of a second, which is all that it tells: take more")
    resident = int(rows[-1]["rss_bytes"]) - int(rows[0]["rss_bytes"])
    completions = int(found["completions"])
    return Run(completions / seconds, spent / completions * 1e6, resident / agents)


def _processor_s() -> float:
    """Return the processor's seconds of all processes that this one has waited for."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def ours(agents: int, turns: int, wave: int) -> Run:
    """Run our benchmark in a process of its own."""
    words = ["bench", "scale", "--agents", str(agents), "--turns", str(turns), "--wave", str(wave), "--json"]
    command = [sys.executable, "-m", "hibernaut.cli", *words]
    told = subprocess.run(command, check=True, capture_output=True, text=True)  # noqa: S603  # it is ours
    measured = json.loads(told.stdout)
    return Run(*[measured[name] for name in Run.__struct_fields__])


def table(found: Comparison) -> None:
    """Print medians and ranges."""
    build, machine = found.build, found.machine
    size = f"{found.agents:,} agents, {found.turns} turns, waves of {found.wave}"
    print(f"{size}; {len(found.ours)} pairs on core {found.core}")
    print(f"{machine.processor}, {machine.cores} cores, {machine.memory_bytes / 2**30:.0f} GiB")
    print(f"hibernaut {build.hibernaut} {build.commit[:10]}, {build.python}; {found.crate}, {found.rust}")
    print(f"{'median (min – max)':<28}{'hibernaut':>28}{'reference':>28}{'ratio':>8}")
    for name in Run.__struct_fields__:
        mine = [getattr(one, name) for one in found.ours]
        theirs = [getattr(one, name) for one in found.reference]
        ratio = statistics.median([one / other for one, other in zip(mine, theirs, strict=True)])
        print(f"{name:<28}{_range(mine):>28}{_range(theirs):>28}{ratio:>8.3f}")
    for note in NOTES:
        print(f"- {note}")


def _range(values: list[float]) -> str:
    return f"{shown(statistics.median(values))} ({shown(min(values))} – {shown(max(values))})"


def main() -> None:
    """Build, run in turn, and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cache", type=Path, help="a folder outside of this repository")
    parser.add_argument("--agents", type=int, default=2_000)
    parser.add_argument("--turns", type=int, default=20)
    parser.add_argument("--wave", type=int, default=500)
    parser.add_argument("--pairs", type=int, default=3)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    program = built(given.cache)
    core = max(os.sched_getaffinity(0))
    machine = this_machine()
    os.sched_setaffinity(0, {core})
    pairs = []
    for number in range(given.pairs):
        first = reference(program, given.agents, given.turns, given.wave) if number % 2 else None
        mine = ours(given.agents, given.turns, given.wave)
        pairs.append((mine, first or reference(program, given.agents, given.turns, given.wave)))
    words = [str(Path(cargo()).with_name("rustc")), "-V"]
    rust = subprocess.run(words, check=True, capture_output=True, text=True)  # noqa: S603  # it is Rust's compiler
    found = Comparison(
        machine,
        this_build(),
        rust.stdout.strip(),
        f"{CRATE} {VERSION}",
        given.agents,
        given.turns,
        given.wave,
        core,
        [mine for mine, _ in pairs],
        [theirs for _, theirs in pairs],
    )
    if given.json:
        print(msgspec.json.encode(found).decode())
    else:
        table(found)


if __name__ == "__main__":
    main()
