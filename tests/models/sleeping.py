"""An agent that works, sleeps and goes on in another process, whoever its model is."""

from pathlib import Path
from typing import Final

from hibernaut import AgentSystem, tool
from hibernaut.messages.items import TextItem
from hibernaut.models.protocol import Model
from hibernaut.models.scripted import call, think, turn

SCRIPT: Final = (
    turn(think("I look.", data=b"1"), "Let me look. ", call("look", path="a"), call("look", path="b")),
    turn(think("Now I rest.", data=b"2"), call("sleep_until_event_or_input")),
    "I slept well.",
)
"""What the provider says."""


@tool
async def look(path: str) -> str:
    """Look at a file."""
    return f"{path} says hello"


async def sleeps_and_goes_on(model: Model, folder: Path) -> None:
    """Have an agent work and sleep in one process, and go on in another."""
    store = folder / "agents.db"
    async with AgentSystem(model=model, tools=[look], store=store) as system:
        agent = await system.launch(instructions="Be kind.")
        await agent.send("Look, then sleep.")
        assert (await agent.wait_idle()).activity == "resting"
    async with AgentSystem(model=model, tools=[look], store=store) as system:
        agent = await system.thread(agent.thread_id)
        await agent.send("Wake up!")
        assert (await agent.wait_idle()).activity == "idle"
        assert (await agent.history())[-1] == TextItem("I slept well.")
