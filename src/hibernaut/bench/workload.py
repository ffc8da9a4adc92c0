"""The published density workload: many agents that talk, call a tool, and then wait as data.

Per turn and agent: a user text; a completion of 12 chunks that ends in one call of `run_command`; its result, which
comes back through the inbox; a completion of 12 more chunks. `hibernaut.bench.texts` has the texts.
"""

import asyncio
from collections.abc import AsyncGenerator, Iterator, Sequence

from hibernaut.bench.readings import Readings
from hibernaut.bench.texts import COMMAND, Texts
from hibernaut.errors import StoreError
from hibernaut.messages.events import Usage
from hibernaut.messages.items import ResultItem
from hibernaut.messages.stream import CallDelta, CallEnded, CallStarted, Finish, StreamPiece, TextDelta
from hibernaut.models.protocol import ModelInfo, ModelRequest
from hibernaut.system import AgentSystem
from hibernaut.tools.context import ToolContext
from hibernaut.tools.tool import AnyTool, tool

WAVE = 500
"""Agents that are driven at the same time."""

COMPLETIONS = 2
"""Completions of a turn."""

LOOK_EVERY = 2.0
"""Seconds between two looks whether the store fails."""

NOTHING = "there is nothing to measure; is it full?"

FAILURES = "hibernaut_store_failures_total"


class Workload:
    """A scripted model with its tool and its users, who say made-up texts, or real ones."""

    info = ModelInfo()

    def __init__(self, texts: Texts | Readings | None = None) -> None:
        self.texts = texts or Texts()

    def tool(self) -> AnyTool:
        """Return the tool that the model calls."""

        @tool
        async def run_command(command: str, context: ToolContext) -> str:
            """Run a command and return what it printed."""
            del command
            return self.texts.result(context.thread_id)

        return run_command

    async def stream(self, request: ModelRequest) -> AsyncGenerator[StreamPiece, None]:
        """Play the two completions of a turn: one that calls the tool, one that ends it."""
        for text in self.texts.chunks(request.thread_id):
            yield TextDelta(text)
        if type(request.transcript[-1]) is not ResultItem:
            yield CallStarted(0, "run_command", "toolu_1")
            yield CallDelta(0, COMMAND)
            yield CallEnded(0)
        yield Finish(usage=Usage(1_000, 300))


async def drive(system: AgentSystem, workload: Workload, names: Sequence[str], turns: int) -> None:
    """Make the agents of one wave, and have them do their turns at the same time, turn by turn.

    Raises:
        StoreError: the store refused some of it, so there is nothing to measure.
    """
    workload.texts.begin()
    before, wanted = system.completions, len(names) * turns * COMPLETIONS
    handles = await asyncio.gather(*[system.launch(thread_id=name) for name in names])
    for _ in range(turns):
        await asyncio.gather(*[handle.send(workload.texts.user_text(handle.thread_id)) for handle in handles])
        await _wait_idle(system)
    if (stored := system.completions - before) != wanted:
        raise StoreError(f"{stored} of {wanted} completions were stored, so {NOTHING}")


async def _wait_idle(system: AgentSystem) -> None:
    """Wait until nobody has anything to do.

    Raises:
        StoreError: the store fails, so that slices are tried again and again: what would be measured is no work.
    """
    idle = asyncio.ensure_future(system.wait_idle())
    try:
        while not (await asyncio.wait([idle], timeout=LOOK_EVERY))[0]:
            failures = [row for row in (await system.metrics()).splitlines() if row.startswith(FAILURES)]
            if any(float(row.split()[-1]) for row in failures):
                raise StoreError(f"the store refuses what agents have done, so {NOTHING}")
        idle.result()
    finally:
        idle.cancel()


def waves(agents: int, wave: int) -> Iterator[list[str]]:
    """Return the names of the agents, wave by wave."""
    for first in range(0, agents, wave):
        yield [f"agent-{number:07d}" for number in range(first, min(first + wave, agents))]
