"""What it costs to load the package, what each extra adds when it is used, and what the command costs.

Every figure is that of a fresh interpreter beyond another one, which does without: nothing at all, or what stands
indented above. They take turns, and what is told is the median of the differences within a turn, in milliseconds:
a neighbour disturbs both alike.

    python benchmarks/bench_import.py [--runs 15]
"""

import argparse
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence

import msgspec

PROGRAM = "from hibernaut import AgentSystem, tool\n"
PROVIDER = PROGRAM + "import hibernaut.models.openai.provider\n"
RUNNING = PROGRAM + "import asyncio\nasync def main(): pass\nasyncio.run(main())\n"

SERVER = """
import asyncio
import hibernaut.rap.kit.app
from hibernaut.rap.listening import listening
async def app(scope, receive, send): pass
async def main():
    async with listening(app): pass
asyncio.run(main())
"""
AWS = """
import os
import httpx2
from hibernaut.auth import SigV4
os.environ |= {"AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "secret"}
next(SigV4("eu-central-1").auth_flow(httpx2.Request("POST", "https://service.example", content=b"{}")))
"""
OTEL = """
from opentelemetry.trace import NoOpTracerProvider
from hibernaut.engine.traces import Traces
Traces(NoOpTracerProvider())
"""
GOOGLE = """
import google.oauth2.service_account
import hibernaut.models.google.provider
"""
FAST = """
import uvloop
async def main(): pass
uvloop.run(main())
"""


class Measured(msgspec.Struct, frozen=True):
    """A command that is measured."""

    beyond: str
    """The one that does without."""
    arguments: Sequence[str]


def program(beyond: str, text: str) -> Measured:
    """Return a program in the interpreter that runs this."""
    return Measured(beyond, (sys.executable, "-c", text))


MEASURED: Mapping[str, Measured] = {
    "nothing": program("", ""),
    "import hibernaut": program("nothing", "import hibernaut"),
    "asyncio and msgspec, as a floor": program("nothing", "import asyncio, msgspec"),
    "from hibernaut import AgentSystem, tool": program("nothing", PROGRAM),
    "  a model of a provider": program("from hibernaut import AgentSystem, tool", PROVIDER),
    "  a loop of events": program("from hibernaut import AgentSystem, tool", RUNNING),
    "    server: a port is listened at": program("  a loop of events", RUNNING + SERVER),
    "    fast: the loop is uvloop's": program("from hibernaut import AgentSystem, tool", PROGRAM + FAST),
    "    aws: a request is signed": program("  a model of a provider", PROVIDER + AWS),
    "    google: a service account is read": program("  a model of a provider", PROVIDER + GOOGLE),
    "    otel: spans are begun": program("from hibernaut import AgentSystem, tool", PROGRAM + OTEL),
    "hibernaut --help": Measured("nothing", (sys.executable, "-m", "hibernaut.cli", "--help")),
}


def spent(arguments: Sequence[str]) -> tuple[float, float]:
    """Run a command, and return its wall and its processor time in milliseconds."""
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run(arguments, check=True, stdout=subprocess.DEVNULL)  # noqa: S603  # our own
    wall, after = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    return wall * 1e3, (after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime) * 1e3


def main() -> None:
    """Measure all of them in turn, and print what they cost."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=15)
    runs = parser.parse_args().runs
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in MEASURED}
    for measured in MEASURED.values():
        spent(measured.arguments)  # whose bytecode is there then
    for _ in range(runs):
        for name, measured in MEASURED.items():
            found[name].append(spent(measured.arguments))
    print(f"{'':42}{'wall ms':>9}{'CPU ms':>9}")
    for name, measured in MEASURED.items():
        without = found.get(measured.beyond, [(0.0, 0.0)] * runs)
        beyond = [(wall - bare[0], cpu - bare[1]) for (wall, cpu), bare in zip(found[name], without, strict=True)]
        wall, cpu = (statistics.median(column) for column in zip(*beyond, strict=True))
        print(f"{name:42}{wall:9.0f}{cpu:9.0f}")


if __name__ == "__main__":
    main()
