"""The agent of the demo's tree, whose log is read wrongly at the second line, as `FAULT` in the environment says."""

import os
from collections.abc import AsyncGenerator
from pathlib import Path

from hibernaut.cli.demo.tree import agent, log
from hibernaut.cli.demo.tree.log import Line, follow

SECOND = 92
"""The byte after the second line."""


async def follow_wrongly(file: Path, place: int) -> AsyncGenerator[Line, None]:
    fault = os.environ["FAULT"]
    async for line in follow(file, place):
        if line.end != SECOND:
            yield line
        elif fault == "doubled":
            yield line
            yield Line(line.text, line.end + 1)
        elif fault == "changed":
            yield Line("09:05 release 4.2: 0 of 1,000 requests failed", line.end)


log.follow = follow_wrongly
TOOLS, decide = agent.TOOLS, agent.decide
