"""A clock: it tells the time, rings at a moment, and ticks.

    hibernaut rap serve examples/rap/clock.py:server --state clock.db

An alarm outlives the server: it is given the moment and not a duration, so whoever starts the server again waits for
the rest. `idempotent` says that this is allowed. A tick goes on counting where it was, since it is `resumable`.
"""

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from zoneinfo import ZoneInfo

from hibernaut import ToolContext, ToolError
from hibernaut.rap import ToolServer

server = ToolServer("clock", description="Tells the time, rings and ticks.")


@server.tool(inline=True, read_only=True, idempotent=True)
def now(zone: str = "UTC") -> str:
    """Tell the time.

    Args:
        zone: The time zone, such as Europe/Berlin.
    """
    try:
        return datetime.now(ZoneInfo(zone)).isoformat(timespec="seconds")
    except (KeyError, ValueError, OSError) as error:
        raise ToolError(f"there is no time zone {zone!r}") from error


@server.tool(idempotent=True, long_running=True, display_script='"rings at " + args.at')
async def alarm(at: datetime, label: str = "The alarm rings.") -> str:
    """Ring at a moment.

    Args:
        at: The moment, with its time zone, as in 2026-03-01T09:30:00+01:00.
        label: What is said then.
    """
    if at.tzinfo is None:
        raise ToolError("say the time zone, too, as in 2026-03-01T09:30:00+01:00")
    await asyncio.sleep((at - datetime.now(UTC)).total_seconds())
    return label


@server.tool(events="associative", resumable=True)
async def tick(context: ToolContext, seconds: float = 1.0, count: int = 10) -> AsyncIterator[str]:
    """Tick.

    Args:
        context: Which tick was the last one.
        seconds: The time between two ticks.
        count: How often.
    """
    yield f"ticking {count} times, every {seconds:g} s"
    for number in range(context.last_sequence + 1, count + 1):
        await asyncio.sleep(seconds)
        yield f"tick {number} of {count}"
