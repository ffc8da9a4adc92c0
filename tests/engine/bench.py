"""A tool whose calls end when a test says how."""

import asyncio

from hibernaut.errors import ToolError
from hibernaut.models.scripted import ScriptedTurn, call, turn
from hibernaut.tools.tool import tool


class Bench:
    """A tool `work(name)` whose calls end when the test says how."""

    def __init__(self) -> None:
        self.begun: list[str] = []
        self.cancelled: list[str] = []
        self._ends: dict[str, asyncio.Future[str]] = {}

        @tool
        async def work(name: str) -> str:
            """Work."""
            self.begun.append(name)
            try:
                return await self._end(name)
            except asyncio.CancelledError:
                self.cancelled.append(name)
                raise

        self.work = work

    def _end(self, name: str) -> asyncio.Future[str]:
        if name not in self._ends:
            self._ends[name] = asyncio.get_running_loop().create_future()
        return self._ends[name]

    def finish(self, name: str) -> None:
        self._end(name).set_result(f"{name} is done")

    def break_off(self, name: str) -> None:
        self._end(name).set_exception(ToolError(f"{name} is broken"))


def works(*names: str) -> ScriptedTurn:
    return turn(*[call("work", name=name) for name in names])
