"""The published density workload: many agents that talk, call a tool, and then wait as data.

Per turn and agent: a user text of about 130 characters; a completion of 12 chunks of about 98 characters that ends in
one call of `run_command`; its result of about 340 characters, which comes back through the inbox; a completion of 12
more chunks. Every text differs from every other, so nothing is won by repetition.
"""

import asyncio
from collections.abc import AsyncGenerator, Iterator, Sequence
from itertools import count

from hibernaut.messages.events import Usage
from hibernaut.messages.items import ResultItem
from hibernaut.messages.stream import CallDelta, CallEnded, CallStarted, Finish, StreamPiece, TextDelta
from hibernaut.models.protocol import ModelInfo, ModelRequest
from hibernaut.system import AgentSystem
from hibernaut.tools.tool import AnyTool, tool

WAVE = 500
"""Agents that are driven at the same time."""

COMPLETIONS = 2
"""Completions of a turn."""

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


class Workload:
    """A scripted model with its tool and its users: makes the texts, and counts their bytes."""

    info = ModelInfo()

    def __init__(self) -> None:
        self._number = count(1)
        self.text_bytes = 0

    def _unique(self) -> str:
        # A multiplicative hash: neighbouring texts have nothing in common that an allocator or a cache could use.
        return f"{next(self._number) * 0x9E3779B97F4A7C15 & 0xFFFFFFFFFFFFFFFF:016x}"

    def user_text(self) -> str:
        """Return what a user says."""
        text = _USER + self._unique()
        self.text_bytes += len(text)
        return text

    def result(self) -> str:
        """Return what the tool has printed."""
        text = _OUTPUT + self._unique()
        self.text_bytes += len(text)
        return text

    def chunks(self) -> Iterator[str]:
        """Return the texts of one completion."""
        for sentence in _SENTENCES:
            text = f"{sentence} ({self._unique()}, as before). "
            self.text_bytes += len(text)
            yield text

    def tool(self) -> AnyTool:
        """Return the tool that the model calls."""

        @tool
        async def run_command(command: str) -> str:
            """Run a command and return what it printed."""
            del command
            return self.result()

        return run_command

    async def stream(self, request: ModelRequest) -> AsyncGenerator[StreamPiece, None]:
        """Play the two completions of a turn: one that calls the tool, one that ends it."""
        for text in self.chunks():
            yield TextDelta(text)
        if not isinstance(request.transcript[-1], ResultItem):
            yield CallStarted(0, "run_command", "toolu_1")
            yield CallDelta(0, COMMAND)
            yield CallEnded(0)
        yield Finish(usage=Usage(1_000, 300))


async def drive(system: AgentSystem, workload: Workload, names: Sequence[str], turns: int) -> None:
    """Make the agents of one wave, and have them do their turns at the same time, turn by turn."""
    handles = await asyncio.gather(*[system.launch(thread_id=name) for name in names])
    for _ in range(turns):
        await asyncio.gather(*[handle.send(workload.user_text()) for handle in handles])
        await system.wait_idle()


def waves(agents: int, wave: int) -> Iterator[list[str]]:
    """Return the names of the agents, wave by wave."""
    for first in range(0, agents, wave):
        yield [f"agent-{number:07d}" for number in range(first, min(first + wave, agents))]
