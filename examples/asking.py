"""A program asks an agent for a value of a type. The first answer does not fit and is sent back with the reason."""

import asyncio
from dataclasses import dataclass

from hibernaut import AgentSystem, ScriptedModel, tool
from hibernaut.models.scripted import call


@dataclass
class Build:
    """How a build went."""

    commit: str
    passed: bool
    failures: list[str]


@tool
async def start_build(commit: str) -> str:
    """Build a commit and say how it went."""
    return f"build of {commit} failed: test_a, test_b"


async def main() -> None:
    """Ask, and print what comes of it."""
    script = [
        call("start_build", commit="abc456"),
        call("give_answer", commit="abc456", passed=False, failures="test_a, test_b"),
        call("give_answer", commit="abc456", passed=False, failures=["test_a", "test_b"]),
    ]
    async with AgentSystem(model=ScriptedModel(script), tools=[start_build]) as system:
        agent = await system.launch("You watch our builds.")
        build = await agent.ask("Build abc456", output=Build)
        print(build)


asyncio.run(main())
