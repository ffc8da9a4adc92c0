"""How soon a process that does not exist yet asks an agent's model, with many agents in one SQLite file.

The clock starts before the process is made and stops when its model is asked: Python's start, imports, the store, the
engine, the durable acceptance of the message and the slice are all in it.
"""

import asyncio
import random
import sys
import time
from pathlib import Path

import msgspec

from hibernaut.bench.caches import forget, forget_all
from hibernaut.bench.cold_process import Start
from hibernaut.bench.places import temporary_folder
from hibernaut.bench.population import name_of, populate
from hibernaut.errors import ConfigurationError

CHILD = (
    "import time; began = time.monotonic(); from hibernaut.bench.cold_process import wake_one; "
    "import sys; wake_one(began, *sys.argv[1:])"
)
"""The program of the new process."""


class ColdStartResult(msgspec.Struct, frozen=True):
    """Two starts: with the files in the system's cache, and with the store's out of it (or all, when asked for)."""

    warm_s: float
    cold_s: float
    warm_python_s: float
    warm_imports_s: float
    warm_open_s: float
    warm_message_s: float
    cold_open_s: float
    cold_message_s: float
    resident_bytes: int


async def cold_start(agents: int, store: str | None = None, *, drop_caches: bool = False) -> ColdStartResult:
    """Start two processes, each of which wakes another agent.

    Args:
        agents: how many there are.
        store: the file; it is made or filled up when it has fewer agents, and kept. By default a temporary one.
        drop_caches: whether the system is to forget all files before the second start, Python's too, and those of
            everything else that runs here; else it forgets the store only.

    Raises:
        ConfigurationError: the system does not let this user drop its caches.
    """
    with temporary_folder() as folder:
        path = Path(store) if store else folder / "agents.db"
        await populate(path, agents)
        first, second = random.sample(range(agents), 2)
        await _start(path, first)  # Python's own files come into the cache
        warm = await _start(path, first)
        forget(path)
        if drop_caches:
            forget_all()
        cold = await _start(path, second)
    return ColdStartResult(
        warm_s=warm.asked,
        cold_s=cold.asked,
        warm_python_s=warm.python,
        warm_imports_s=warm.imports - warm.python,
        warm_open_s=warm.opened - warm.imports,
        warm_message_s=warm.asked - warm.opened,
        cold_open_s=cold.opened - cold.imports,
        cold_message_s=cold.asked - cold.opened,
        resident_bytes=warm.resident_bytes,
    )


async def _start(path: Path, number: int) -> Start:
    began = time.monotonic()
    words = (sys.executable, "-c", CHILD, str(path), name_of(number))
    process = await asyncio.create_subprocess_exec(*words, stdout=asyncio.subprocess.PIPE)
    said, _ = await process.communicate()
    if process.returncode:
        raise ConfigurationError(f"the new process ended with {process.returncode}; what it said stands above")
    times = msgspec.json.decode(said, type=Start)
    return msgspec.structs.replace(
        times,
        python=times.python - began,
        imports=times.imports - began,
        opened=times.opened - began,
        asked=times.asked - began,
    )
