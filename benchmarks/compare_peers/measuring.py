"""Drives a peer through the density workload and measures it, as `hibernaut bench scale` does with ours.

It needs nothing but Python, and so runs in a peer's own virtual environment.
"""

import argparse
import asyncio
import ctypes
import gc
import importlib.util
import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

WARM = 50
"""Agents that run before anything is measured."""

TEXTS = Path(__file__).resolve().parents[2] / "src/hibernaut/bench/texts.py"


class Peer:
    """A runtime with its agents. What it keeps of them between two turns is what an idle agent costs."""

    def __init__(self, texts: Any, path: str) -> None:
        self.texts = texts
        self.path = path
        """The SQLite file that it stores in; "" for memory."""
        self.completions = 0

    def completion(self) -> str:
        """Return what the scripted model says, whole: a peer is spared the putting together of chunks."""
        self.completions += 1
        return "".join(self.texts.chunks())

    async def open(self) -> None:
        """Begin."""
        return

    async def turn(self, agent: str) -> None:
        """Let an agent do one turn: a user text, a completion with a call, the tool, a completion."""
        raise NotImplementedError

    async def close(self) -> None:
        """End."""
        return


def main(make: Callable[..., Peer]) -> None:
    """Measure the peer that `make(texts, path, **variant)` returns, as the command line says; print JSON."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--store", choices=["memory", "sqlite"], default="memory")
    parser.add_argument("--agents", type=int, default=200)
    parser.add_argument("--turns", type=int, default=10)
    parser.add_argument("--wave", type=int, default=100)
    parser.add_argument("--variant", default="{}", help="JSON: what the peer is made with")
    print(json.dumps(asyncio.run(measure(make, parser.parse_args()))))


async def measure(make: Callable[..., Peer], given: argparse.Namespace) -> dict[str, float]:
    """Run the workload."""
    specification = importlib.util.spec_from_file_location("texts", TEXTS)
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    texts = module.Texts()
    with TemporaryDirectory() as folder:
        path = str(Path(folder) / "agents.db") if given.store == "sqlite" else ""
        peer = make(texts, path, **json.loads(given.variant))
        await peer.open()
        await drive(peer, [f"warm-{number}" for number in range(WARM)], 2)
        resident, stored = resident_bytes(), stored_bytes(folder)
        peer.completions = texts.text_bytes = 0
        began, used = time.perf_counter(), time.process_time()
        for first in range(0, given.agents, given.wave):
            names = [f"agent-{number:07d}" for number in range(first, min(first + given.wave, given.agents))]
            await drive(peer, names, given.turns)
        seconds, used = time.perf_counter() - began, time.process_time() - used
        resident, stored = resident_bytes() - resident, stored_bytes(folder) - stored
        await peer.close()
    if peer.completions != given.agents * given.turns * 2:
        raise AssertionError(f"{peer.completions} completions were made of {given.agents * given.turns * 2}")
    return {
        "completions_per_s": peer.completions / seconds,
        "processor_us_per_completion": used / peer.completions * 1e6,
        "resident_bytes_per_agent": resident / given.agents,
        "text_bytes_per_agent": texts.text_bytes / given.agents,
        "stored_bytes_per_agent": stored / given.agents,
    }


async def drive(peer: Peer, names: list[str], turns: int) -> None:
    """Have agents do their turns at the same time, turn by turn."""
    for _ in range(turns):
        await asyncio.gather(*[peer.turn(name) for name in names])


def resident_bytes() -> int:
    """Return the resident memory of this process, after giving back what is not in use."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * os.sysconf("SC_PAGE_SIZE")


def stored_bytes(folder: str) -> int:
    """Return the size of all files of a store."""
    return sum(one.stat().st_size for one in Path(folder).iterdir())
