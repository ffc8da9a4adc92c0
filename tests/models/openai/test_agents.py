"""A whole agent on OpenAI's APIs: it uses tools, sleeps, wakes, is left and found again."""

from pathlib import Path
from typing import Any

import pytest

from hibernaut import tool
from hibernaut.models.dialect import Dialect
from hibernaut.models.endpoint import Endpoint
from hibernaut.models.errors import RateLimited
from hibernaut.models.http_model import HttpModel
from hibernaut.models.openai.chat import ChatDialect
from hibernaut.models.openai.responses import ResponsesDialect
from hibernaut.models.openai.servers import server_of
from hibernaut.models.protocol import About
from hibernaut.models.scripted import call, think, turn
from hibernaut.system import AgentSystem
from hibernaut.testing.clock import ManualClock
from hibernaut.testing.providers.openai_chat import ChatWire
from hibernaut.testing.providers.openai_responses import ResponsesWire
from hibernaut.testing.providers.server import FakeProvider, Played
from hibernaut.testing.providers.wire import FakeWire
from tests.engine.scenario import MINUTE, run, until_activity, until_told

CASES: list[Any] = [
    pytest.param(ResponsesWire(), ResponsesDialect(), id="responses"),
    *[
        pytest.param(ChatWire(name), ChatDialect(server_of(name)), id=name)
        for name in ("openai", "mistral", "deepseek", "openrouter", "vllm")
    ],
]


ASKED = "Look at a.txt, sleep, then at b.txt."


@tool(inline=True)
async def look(path: str) -> str:
    """Look at a file."""
    return f"{path} says hello"


@pytest.mark.parametrize("wire,dialect", CASES)
def test_an_agent_works_sleeps_and_is_found_again(wire: FakeWire, dialect: Dialect, tmp_path: Path) -> None:
    script: list[Played] = [
        turn(think("I look.", data=b"block"), "I look. ", call("look", path="a.txt")),
        RateLimited("slow down", 2_000),
        turn(think("Now I wait.", data=b"block"), call("sleep", seconds=3_600)),
        turn("Good morning. ", call("look", path="b.txt")),
        "Both say hello.",
    ]

    async def scenario() -> None:
        clock = ManualClock()
        async with FakeProvider(wire, script) as fake:
            for half in (1, 2):
                endpoint = Endpoint("fake", fake.url, clock=clock)
                model = HttpModel(endpoint, dialect, About("gpt-5-mistral"))
                store = str(tmp_path / "agents.db")
                async with AgentSystem(model=model, tools=[look], store=store, clock=clock) as system:
                    if half == 1:
                        agent = await system.launch(instructions="Be kind.", thread_id="t1")
                        await agent.send(ASKED)
                        await until_activity(agent, "retrying")
                        clock.advance(3_000)
                        await until_activity(agent, "resting")
                    else:
                        agent = await system.thread("t1")
                        clock.advance(61 * MINUTE)
                        told = await until_told(agent, "says: Good morning. ", "says: Both say hello.")
                        assert [line for line in told if line.startswith("user")] == [f"user: {ASKED}"]
                await endpoint.close()
            assert not fake.refused
            assert len(fake.asked) == 5

    run(scenario)
