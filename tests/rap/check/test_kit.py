"""What is written with our own kit keeps every rule, without its author doing anything for it."""

import asyncio
from collections.abc import AsyncIterator

from hibernaut import ToolContext
from hibernaut.rap import ToolServer
from hibernaut.rap.check.checking import check
from hibernaut.rap.check.rules import RULES
from hibernaut.rap.check.session import Settings


def a_server() -> ToolServer:
    server = ToolServer("desk")

    @server.tool(read_only=True)
    async def add(a: int, b: int) -> int:
        """Add two numbers."""
        return a + b

    @server.tool(long_running=True)
    async def rest() -> str:
        """Take a rest that only a cancellation ends."""
        await asyncio.Event().wait()
        return "rested"

    @server.tool(events="associative", event_schema=str)
    async def tick(count: int = 10) -> AsyncIterator[str]:
        """Tick ten times a second."""
        yield "ticking"
        for number in range(count):
            await asyncio.sleep(0.1)
            yield f"tick {number}"

    @server.tool
    async def approve(context: ToolContext) -> str:
        """Have something approved, twice."""
        first = await context.ask("Deploy?", ["yes", "no"], default=1, timeout=60)
        return f"{first}, {await context.ask('Sure?', ['yes', 'no'], default=0)}"

    return server


async def test_a_server_of_the_kit_keeps_every_rule() -> None:
    settings = Settings(
        slow=(("rest", {}),), subscribe=(("tick", {}),), choose=(("approve", {}),), called_back_within=5_000, quiet=500
    )
    async with a_server().running() as address:
        report = await check(address.url, settings)
    assert [(one.rule.id, one.outcome, one.seen) for one in report.findings if one.outcome != "kept"] == []
    assert len(report.findings) == len(RULES)
    assert report.findings[-1].seen == "tool_result: no, yes"
