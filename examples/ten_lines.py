"""An agent in ten lines: it calls a tool, sleeps, and is woken by the result."""

import asyncio

from hibernaut import AgentSystem, ScriptedModel, tool
from hibernaut.models.scripted import call, say


@tool
async def start_build(commit: str) -> str:
    """Build a commit and say whether it passed."""
    return f"build of {commit} passed"


async def main() -> None:
    """Launch an agent, speak to it, and print what happened."""
    model = ScriptedModel([call("start_build", commit="abc456"), say("abc456 builds.")])
    async with AgentSystem(model=model, tools=[start_build], store="agents.db") as system:
        agent = await system.launch("You watch our builds.")
        await agent.send("Build abc456")
        await agent.wait_idle()
        async for event in agent.events(follow=False):
            print(event)


asyncio.run(main())
