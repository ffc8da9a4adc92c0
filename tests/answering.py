"""Programs that ask a thread, and the build that most of them ask for."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from hibernaut import AgentSystem, ScriptedModel, ThreadHandle
from hibernaut.kernel.head import decode_head
from hibernaut.messages.tools import ANSWER_TOOL
from hibernaut.models.scripted import ScriptedTurn, call


@dataclass
class Build:
    commit: str
    passed: bool
    failures: list[str]


GOOD = {"commit": "abc456", "passed": False, "failures": ["test_a"]}
BUILD = Build("abc456", passed=False, failures=["test_a"])


def answer(values: dict[str, Any]) -> ScriptedTurn:
    """Answer by the tool that takes answers."""
    return call(ANSWER_TOOL, values)


def run(model: ScriptedModel, scenario: Callable[[AgentSystem, ThreadHandle], Awaitable[None]], **more: Any) -> None:
    """Run a scenario with one agent."""

    async def play() -> None:
        async with AgentSystem(model=model, **more) as system:
            agent = await system.launch(thread_id="t")
            async with asyncio.timeout(20):
                await scenario(system, agent)
            await agent.wait_idle()
            assert decode_head((await system.row("t")).head).head.asks == ()

    asyncio.run(play())
