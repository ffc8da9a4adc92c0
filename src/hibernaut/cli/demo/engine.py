"""An engine, in a process of its own: `python -m hibernaut.cli.demo.engine STORE MODULE`.

MODULE has the tools of its agents, and the scripted model that decides for them. It says "ready" and runs the agents
of the store until its input ends: as soon as whoever started it lets go of it, or dies.
"""

import asyncio
import sys
from importlib import import_module

from hibernaut.models.scripted import ScriptedModel
from hibernaut.system import AgentSystem

READY = "ready"


async def run(store: str, module: str) -> None:
    """Run agents until standard input ends."""
    agent = import_module(module)
    model = ScriptedModel(agent.decide, record=False)
    async with AgentSystem(model=model, tools=agent.TOOLS, store=store):
        print(READY, flush=True)
        await asyncio.to_thread(sys.stdin.read)


if __name__ == "__main__":
    asyncio.run(run(*sys.argv[1:]))
