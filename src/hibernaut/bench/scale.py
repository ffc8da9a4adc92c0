"""The published density workload: many agents that talk, call a tool, and then wait as data.

Per turn and agent: a user text of about 130 characters; a completion of 12 chunks of about 98 characters that ends in
one call of `run_command`; its result of about 340 characters, which comes back through the inbox; a completion of 12
more chunks. Every text differs from every other, so nothing is won by repetition. What runs is what always runs: the
front door, the resident engine, the store, the receipts.
"""

import asyncio
import time
from collections.abc import AsyncGenerator
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec

from hibernaut.bench.memory import resident_bytes
from hibernaut.engine.interruptions import LOOK_EVERY
from hibernaut.engine.local import REST_AFTER
from hibernaut.messages.events import Usage
from hibernaut.messages.items import ResultItem
from hibernaut.messages.stream import CallDelta, CallEnded, CallStarted, Finish, StreamPiece, TextDelta
from hibernaut.models.protocol import ModelInfo, ModelRequest
from hibernaut.system import AgentSystem
from hibernaut.tools.tool import tool

WAVE = 500
"""Agents that are driven at the same time."""

SETTLED = (REST_AFTER + 5 * LOOK_EVERY) / 1000
"""Seconds after which a resting engine has dropped what it had decoded."""

COMMAND = '{"command":"cargo test --workspace"}'

_SENTENCES = (
    "Looking at the failing module first, since the trace points into it",
    "The second assertion compares a stale snapshot with a fresh one",
    "I will run the whole suite again to see what else is affected",
    "That change moved the border between the parser and the planner",
    "Nothing in the lock file explains this, so the code must have",
    "A smaller reproduction would help, but the log is long enough",
    "The retry is fine; what it retries was never allowed to fail",
    "Here is what I know so far, and what I would like to try next",
    "Two of the three warnings are old, and the third one is ours",
    "The cache was warm on this machine, which hid it for a while",
    "With that in place the planner no longer asks for it twice",
    "I will leave the other crates alone until this one is green",
)
_OUTPUT = (
    "running 148 tests; test planner::moves_borders ... ok; test parser::keeps_spans ... ok; "
    "test cache::is_cold_at_start ... FAILED; failures: cache::is_cold_at_start panicked at "
    "crates/cache/src/lib.rs:211; "
    "test result: FAILED. 147 passed; 1 failed; 0 ignored; finished in 2.31s; seed "
)
_USER = "Please look into the nightly build once more and tell me what to change before we cut the candidate; ticket "


class ScaleResult(msgspec.Struct, frozen=True):
    """What a run of the workload measured."""

    store: str
    agents: int
    turns: int
    wave: int
    completions: int
    seconds: float
    completions_per_s: float
    resident_bytes_per_agent: float
    text_bytes_per_agent: float
    resident_per_text: float
    stored_bytes_per_agent: float


class _Workload:
    """A scripted model and its users: makes the texts, and counts their bytes."""

    info = ModelInfo()

    def __init__(self) -> None:
        self._number = count(1)
        self.text_bytes = 0

    def _unique(self) -> str:
        # A multiplicative hash: neighbouring texts have nothing in common that an allocator or a cache could use.
        return f"{next(self._number) * 0x9E3779B97F4A7C15 & 0xFFFFFFFFFFFFFFFF:016x}"

    def user_text(self) -> str:
        text = _USER + self._unique()
        self.text_bytes += len(text)
        return text

    def result(self) -> str:
        text = _OUTPUT + self._unique()
        self.text_bytes += len(text)
        return text

    async def stream(self, request: ModelRequest) -> AsyncGenerator[StreamPiece, None]:
        """Play the two completions of a turn: one that calls the tool, one that ends it."""
        for sentence in _SENTENCES:
            text = f"{sentence} ({self._unique()}, as before). "
            self.text_bytes += len(text)
            yield TextDelta(text)
        if not isinstance(request.transcript[-1], ResultItem):
            yield CallStarted(0, "run_command", "toolu_1")
            yield CallDelta(0, COMMAND)
            yield CallEnded(0)
        yield Finish(usage=Usage(1_000, 300))


async def scale(agents: int, turns: int, store: str = "memory", *, wave: int = WAVE) -> ScaleResult:
    """Run the workload.

    Args:
        agents: how many agents.
        turns: turns of each.
        store: "memory" or "sqlite" (a file in a temporary folder, `synchronous=FULL`).
        wave: agents that are driven at the same time.
    """
    workload = _Workload()

    @tool
    async def run_command(command: str) -> str:
        """Run a command and return what it printed."""
        del command
        return workload.result()

    with TemporaryDirectory() as folder:
        where = ":memory:" if store == "memory" else str(Path(folder) / "agents.db")
        async with AgentSystem(model=workload, tools=[run_command], store=where) as system:
            await _drive(system, workload, [f"warm-{number}" for number in range(50)], 2)
            await asyncio.sleep(SETTLED)
            resident, stored = resident_bytes(), await system.store.stored_bytes()
            completions, workload.text_bytes = system.completions, 0
            began = time.perf_counter()
            for first in range(0, agents, wave):
                names = [f"agent-{number:07d}" for number in range(first, min(first + wave, agents))]
                await _drive(system, workload, names, turns)
            seconds = time.perf_counter() - began
            completions = system.completions - completions
            await asyncio.sleep(SETTLED)
            resident, stored = resident_bytes() - resident, await system.store.stored_bytes() - stored
    return ScaleResult(
        store=store,
        agents=agents,
        turns=turns,
        wave=wave,
        completions=completions,
        seconds=seconds,
        completions_per_s=completions / seconds,
        resident_bytes_per_agent=resident / agents,
        text_bytes_per_agent=workload.text_bytes / agents,
        resident_per_text=resident / workload.text_bytes,
        stored_bytes_per_agent=stored / agents,
    )


async def _drive(system: AgentSystem, workload: _Workload, names: list[str], turns: int) -> None:
    handles = await asyncio.gather(*[system.launch(thread_id=name) for name in names])
    for _ in range(turns):
        await asyncio.gather(*[handle.send(workload.user_text()) for handle in handles])
        await system.wait_idle()
