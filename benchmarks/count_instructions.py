"""Machine instructions of a completion, by valgrind: `python benchmarks/count_instructions.py [--store sqlite]`.

The density workload runs twice, with more turns the second time; what is told is the difference by completion, so the
start of the process is in neither. No neighbour disturbs this figure: of a hundred instructions one more can be seen,
where timings of the same work differ by a tenth. It takes a minute. Valgrind has no instructions for SHA-256, so
hashing counts for ten times what it takes.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

AGENTS, WAVE = 200, 100
TURNS = (4, 12)

PROGRAM = f"""
import asyncio, sys
from hibernaut import AgentSystem
from hibernaut.bench.workload import Workload, drive, waves
from hibernaut.garbage import collect_seldom
from hibernaut.stores.memory import MemoryStore

async def main(path, turns):
    workload = Workload()
    store = path or MemoryStore()
    async with AgentSystem(model=workload, tools=[workload.tool()], store=store) as system:
        for names in waves({AGENTS}, {WAVE}):
            await drive(system, workload, names, turns)

collect_seldom()
asyncio.run(main(sys.argv[1], int(sys.argv[2])))
"""

_LINE = re.compile(r"\s*([\d,]+) \(\s*[\d.]+%\)\s+(.*)")


def count(store: str, turns: int, folder: Path) -> Counter[str]:
    """Return how many instructions each function of the process ran, by its name; all of them under ""."""
    out, path = folder / f"{turns}.out", str(folder / f"{turns}.db") if store == "sqlite" else ""
    command = ["valgrind", "--tool=callgrind", f"--callgrind-out-file={out}", sys.executable, "-c", PROGRAM, path]
    environment = {**os.environ, "PYTHONHASHSEED": "0"}
    run = subprocess.run([*command, str(turns)], capture_output=True, env=environment, check=False, text=True)  # noqa: S603
    if run.returncode:
        raise SystemExit(f"the workload failed under valgrind:\n{run.stderr[-2000:]}")
    annotate = ["callgrind_annotate", "--threshold=100", str(out)]
    told = subprocess.run(annotate, capture_output=True, check=True, text=True)  # noqa: S603
    counted: Counter[str] = Counter()
    for line in told.stdout.splitlines():
        if found := _LINE.match(line):
            name = found[2].split(" [")[0].removeprefix("???:")
            counted["" if name == "PROGRAM TOTALS" else name] += int(found[1].replace(",", ""))
    return counted


def main() -> None:
    """Count, and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--store", choices=("memory", "sqlite"), default="memory", help="where the agents are kept")
    parser.add_argument("--top", type=int, default=20, help="functions that are told, the interpreter's own among them")
    arguments = parser.parse_args()
    if shutil.which("valgrind") is None:
        raise SystemExit("valgrind is not installed")
    with tempfile.TemporaryDirectory() as folder:
        few, many = [count(arguments.store, turns, Path(folder)) for turns in TURNS]
    completions = AGENTS * 2 * (TURNS[1] - TURNS[0])
    many.subtract(few)
    print(f"{many.pop('') / completions:,.0f} instructions per completion, {arguments.store}")
    for name, instructions in many.most_common(arguments.top):
        print(f"{instructions / completions:12,.0f}  {name}")


if __name__ == "__main__":
    main()
