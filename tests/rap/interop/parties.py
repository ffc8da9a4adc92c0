"""Who takes part: a runtime of ours with its real receiver, and a tool server of our kit."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from typing import Any

from hibernaut import AgentSystem
from hibernaut.clock import Clock
from hibernaut.engine.answering import OpenQuestion
from hibernaut.handle import ThreadHandle
from hibernaut.kernel.outside import unfenced
from hibernaut.messages.items import UserItem
from hibernaut.messages.parts import Image, Text, plain_text
from hibernaut.models.protocol import ModelRequest
from hibernaut.models.scripted import ScriptedModel, ScriptedTurn, call, say
from hibernaut.rap import ToolServer
from hibernaut.rap.servers import RemoteServer
from hibernaut.reach import Callbacks
from hibernaut.tools.context import ToolContext, ToolEvent
from tests.engine.scenario import until, until_told

PICTURE = b"\x89PNG\r\n\x1a\n" + bytes(range(256)) * 400
"""Too large for a thread to carry along."""

ODD = 'NUL \0 and ESC \x1b, e\u0301, \u2400, \U0001f998, "\\", \u2028 and a long s: ſ'
"""A text that has something of everything."""

WITHIN = 30
"""Seconds after which what has not come does not come."""


class HurriedClock:
    """Time that passes a hundred times as fast as everybody else's, so that nobody waits long for a second try."""

    def __init__(self) -> None:
        self._offset = 1_700_000_000_000
        self._start = asyncio.get_running_loop().time()

    def now(self) -> int:
        """Return the present moment in milliseconds since 1970."""
        return self._offset + round((asyncio.get_running_loop().time() - self._start) * 100_000)

    async def sleep(self, milliseconds: int) -> None:
        """Return when that much time has passed."""
        await asyncio.sleep(milliseconds / 100_000)

    def leap(self, milliseconds: int) -> None:
        """Let time pass at once. Whoever sleeps sleeps on."""
        self._offset += milliseconds


def obedient(request: ModelRequest) -> ScriptedTurn:
    """Do as the user says, `TOOL ARGUMENTS`, and repeat whatever comes of it."""
    last = request.transcript[-1]
    said = plain_text(getattr(last, "content", ""))
    if isinstance(last, UserItem) and not last.origin:
        name, _, arguments = said.partition(" ")
        return call(name, json.loads(arguments or "{}"))
    return say("I read: ", unfenced(said))


@asynccontextmanager
async def agents(
    *servers: RemoteServer | str, callbacks: Callbacks | None = None, **more: Any
) -> AsyncIterator[AgentSystem]:
    """Run agents that use tool servers."""
    given: dict[str, Any] = {"model": ScriptedModel(obedient), "callbacks": callbacks or Callbacks(), **more}
    async with AgentSystem(servers=servers, **given) as system:
        yield system


async def tell(system: AgentSystem, tool: str, arguments: dict[str, Any] | None = None) -> ThreadHandle:
    """Have a new thread call a tool."""
    handle = await system.launch()
    await handle.send(f"{tool} {json.dumps(arguments or {})}")
    return handle


async def read(handle: ThreadHandle, *lines: str) -> list[str]:
    """Return what a thread has come to once it holds these lines, in this order."""
    async with asyncio.timeout(WITHIN):
        return await until_told(handle, *lines)


async def once(handle: ThreadHandle, condition: Callable[[], Awaitable[bool]]) -> None:
    """Return when a condition holds that only changes when the thread moves."""
    async with asyncio.timeout(WITHIN):
        await until(handle, condition)


async def asked(handle: ThreadHandle) -> OpenQuestion:
    """Return the question that a thread asks, as soon as there is one."""

    async def is_asked() -> bool:
        return bool((await handle.state()).questions)

    await once(handle, is_asked)
    (question,) = await handle._system.questions(handle.thread_id)
    return question


async def owed(handle: ThreadHandle) -> list[str]:
    """Return what the outbox holds for a thread."""
    return [f"{row.effect.kind}: {row.state}" for row in await handle._system.store.read_effects(handle.thread_id)]


async def until_owed(handle: ThreadHandle, *rows: str) -> None:
    """Return when the outbox holds just this for a thread; nobody is told of what changes there."""
    async with asyncio.timeout(WITHIN):
        while await owed(handle) != [*rows]:  # noqa: ASYNC110  # there is no event
            await asyncio.sleep(0.002)


class Desk:
    """A server of our kit that has a tool for every kind of thing that a tool can do."""

    def __init__(self, clock: Clock | None = None) -> None:
        self.server = server = ToolServer("desk", clock=clock)
        self.forget()

        @server.tool(read_only=True)
        async def echo(text: str) -> str:
            """Say it again."""
            self.heard.append(text)
            return text

        @server.tool
        async def fail() -> str:
            """Fail."""
            raise ValueError("it was to fail")

        @server.tool
        async def picture() -> object:
            """Show a picture."""
            return (Text("look:"), Image("image/png", PICTURE))

        @server.tool(events="associative")
        async def follow(count: int) -> AsyncIterator[object]:
            """Follow something."""
            for each in _numbered(count):
                yield each

        @server.tool(events="threaded")
        async def watch(count: int) -> AsyncIterator[object]:
            """Watch for something."""
            for each in _numbered(count):
                yield each

        @server.tool
        async def choose(context: ToolContext) -> str:
            """Ask a person."""
            return f"chosen: {await context.ask('Which colour?', ['red', 'green', 'blue'], default=1)}"

        @server.tool(requires_auth="login.example")
        async def login(context: ToolContext) -> str:
            """Ask for a login."""
            self.login = server.oauth_state(context)
            return "welcome" if await context.authorize(f"https://login.example/?state={self.login}") else "go away"

        @server.tool(long_running=True)
        async def hang() -> str:
            """Never answer."""
            self.hangs.set()
            try:
                await asyncio.Event().wait()
            finally:
                self.cancelled.set()
            return ""

        self._add_what_waits(server)

    def _add_what_waits(self, server: ToolServer) -> None:
        @server.tool
        async def wait() -> str:
            """Answer when it is time."""
            self.waited += 1
            self.waits.set()
            await self.may_answer.wait()
            return "at last"

        @server.tool(events="associative")
        async def hold() -> AsyncIterator[object]:
            """Tell when it is time."""
            yield "it begins"
            await self.may_answer.wait()
            yield ToolEvent("at last", final=True)

    def forget(self) -> None:
        """Know nothing of what was called."""
        self.heard: list[str] = []
        self.hangs = asyncio.Event()
        self.cancelled = asyncio.Event()
        self.waits = asyncio.Event()
        self.may_answer = asyncio.Event()
        self.waited = 0
        self.login = ""
        """The state that the provider sends people back with."""


def _numbered(count: int) -> Iterable[object]:
    yield "it begins"
    for number in range(1, count + 1):
        yield ToolEvent(f"number {number}", event_id=f"n{number}", final=number == count)
