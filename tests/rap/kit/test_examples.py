"""Every example server runs as a program, and does what it says over plain HTTP."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

from tests.rap.kit.programs import program
from tests.rap.kit.runtime import Runtime


async def test_the_clock_rings_and_ticks_although_it_is_killed(runtime: Runtime, tmp_path: Path) -> None:
    state = ("--state", "clock.db")
    async with program(runtime, "clock", tmp_path, *state, kill=True):
        assert [tool["name"] for tool in (await runtime.toolset())["tools"]] == ["now", "alarm", "tick"]
        await runtime.call("now", {"zone": "Europe/Berlin"}, name="now")
        told = datetime.fromisoformat((await runtime.gets())[0]["text"])
        assert abs(told - datetime.now(UTC)) < timedelta(minutes=1)
        rings = datetime.now(UTC) + timedelta(seconds=1)
        await runtime.call("alarm", {"at": rings.isoformat(), "label": "Tea."}, name="alarm")
        await runtime.call("tick", {"seconds": 0.01, "count": 60}, name="tick")
        await runtime.gets(4)
    async with program(runtime, "clock", tmp_path, *state):
        events = await runtime.ends("tick")
        while "alarm" not in (said := {each["id"]: each["text"] for each in runtime.taken if "id" in each}):
            await runtime.gets(len(runtime.taken) + 1)
    assert said["alarm"] == "Tea."
    assert said["tick"] == "ticking 60 times, every 0.01 s"
    assert [each["text"] for each in events] == [
        *(f"tick {number} of 60" for number in range(1, 61)),
        "The subscription has ended.",
    ]
    assert all(each["associative"] for each in events)
