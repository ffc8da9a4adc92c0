"""What every story of the demo needs: engines that are started and ended, an agent to follow, and patience.

The process that tells a story runs no agent. It starts and ends processes, says something to the agent, and otherwise
only reads the store.
"""

import asyncio
import shlex
import shutil
import signal
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

from hibernaut.cli.demo.failure import GLANCE, PATIENCE, DemoFailed, DemoInterrupted, check
from hibernaut.cli.demo.processes import EngineProcess, OwnProcess, Resident, end_all, residents
from hibernaut.cli.demo.voice import Dots, Voice
from hibernaut.handle import ThreadHandle
from hibernaut.messages.events import AgentEvent, Notice, ToolCall
from hibernaut.system import AgentSystem
from hibernaut.tools.tool import AnyTool

DOT_EVERY = 0.1
"""Seconds that one dot stands for."""

HARMLESS = ("compacting",)
"""Notices after which the agent goes on as before."""


class Found(Protocol):
    """What a story has found."""

    seconds: float
    store: str
    """Where the store is, if it was kept."""


E = TypeVar("E", bound=AgentEvent)
F = TypeVar("F", bound=Found)


def perform(story: "Callable[[Voice, Path, Path], Play[F]]", voice: Voice, *, store: Path | None, keep: bool) -> F:
    """Tell a story, in a temporary folder, and leave nothing behind but what is to be kept.

    Raises:
        DemoFailed: something is off.
        DemoInterrupted: a signal came.
        HibernautError: the store cannot be used, or its receipts do not match what is stored.
    """
    folder = Path(tempfile.mkdtemp(prefix="hibernaut-demo-")).resolve()
    place = (store or folder / "agents.db").resolve()
    play = story(voice, place, folder)
    try:
        facts = asyncio.run(play.tell())
    except asyncio.CancelledError:
        raise DemoInterrupted(play.signal) from None
    finally:
        end_all(place)
        if keep:
            voice.path("folder", str(folder))
        else:
            shutil.rmtree(folder, ignore_errors=True)
    if keep or store is not None:
        facts.store = str(place)
        voice.path("look", f"hibernaut threads list --store {shlex.quote(facts.store)}")
    return facts


class Play(ABC, Generic[F]):
    """A story that is told once, on a store and in a folder of its own."""

    agent: str
    """The module with the agent's tools and its scripted model."""
    tools: Sequence[AnyTool]

    def __init__(self, voice: Voice, store: Path, folder: Path) -> None:
        self._voice = voice
        self._path = store
        self._folder = folder
        self.signal = 0
        """The signal that ended it."""
        self._engine: EngineProcess | None = None
        self._processes: list[OwnProcess] = []
        """What was started here and has not been seen to end."""
        self._heard: list[AgentEvent] = []
        self._system: AgentSystem
        self._thread: ThreadHandle

    @abstractmethod
    def _begin(self) -> None:
        """Prepare the folder, and say what the story is about."""

    @abstractmethod
    async def _tell(self) -> F:
        """Tell it, from the first stage to the last."""

    async def tell(self) -> F:
        """Tell the story and end what it has started, however it goes."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            loop.add_signal_handler(number, self._interrupt, number, asyncio.current_task())
        start = loop.time()
        self._begin()
        try:
            async with AgentSystem(tools=self.tools, store=self._path, run=False) as system:
                self._system = system
                facts = await self._tell()
        finally:
            for process in self._processes:
                process.end()
        facts.seconds = round(loop.time() - start, 1)
        self._voice.gap()
        self._voice.good("all true", f"in {facts.seconds:.1f} s")
        return facts

    def _interrupt(self, number: int, task: asyncio.Task[Any] | None) -> None:
        self.signal = number
        if task is not None:
            task.cancel()

    # Processes

    async def _start_engine(self) -> EngineProcess:
        engine = self._engine = EngineProcess(self._path, self._folder, self.agent)
        self._processes.append(engine)

        async def ready() -> bool:
            return engine.ready

        await self._until("the engine to start", ready)
        self._voice.say("engine", f"process {engine.pid} runs the agents of the store")
        return engine

    async def _end_engine(self, how: Callable[[OwnProcess], None], code: int) -> EngineProcess:
        engine, self._engine = self._engine, None
        if engine is None:
            raise AssertionError("no engine was started")
        await self._end_process("engine", engine, how, code)
        return engine

    async def _end_process(self, name: str, process: OwnProcess, how: Callable[[OwnProcess], None], code: int) -> None:
        check(process.ended is None, f"the {name} ended by itself")
        how(process)

        async def ended() -> bool:
            return process.ended is not None

        await self._until(f"the {name} to end", ended)
        check(process.ended == code, f"the {name} ended with code {process.ended}, not {code}{process.last_words()}")
        process.end()
        self._processes.remove(process)

    async def _settled(self, *roles: str) -> list[Resident]:
        """Return what runs, once it is just these processes, and say it."""

        async def settled() -> bool:
            self._check_processes(roles)
            return [one.role for one in residents(self._path)] == list(roles)

        await self._until(f"{' and '.join(roles) or 'nothing'} to be all that runs", settled)
        processes = residents(self._path)
        self._voice.resident(processes)
        return processes

    def _check_processes(self, roles: Sequence[str]) -> None:
        """Stop at once if one of these can no longer come to run."""

    # The conversation

    async def _listen(self) -> None:
        """Show what has been added to the conversation."""
        cursor = self._heard[-1].cursor if self._heard else ""
        async for event in self._thread.events(cursor, follow=False):
            self._heard.append(event)
            self._voice.event(event)
            if isinstance(event, Notice) and event.kind not in HARMLESS:
                raise DemoFailed(f"the agent did not go on: {event.kind}: {event.text}")

    def _calls(self, tool: str) -> list[ToolCall]:
        return [event for event in self._heard if isinstance(event, ToolCall) and event.tool == tool]

    def _heard_last(self, kind: type[E]) -> E | None:
        return next((event for event in reversed(self._heard) if isinstance(event, kind)), None)

    async def _until(self, what: str, done: Callable[[], Awaitable[bool]], dots: Dots | None = None) -> None:
        clock = asyncio.get_running_loop().time
        start = clock()
        while not await done():
            engine = self._engine
            if engine is not None and engine.ended is not None:
                raise DemoFailed(f"the engine, process {engine.pid}, ended by itself{engine.last_words()}")
            check(clock() - start < PATIENCE, f"waited {PATIENCE:.0f} s in vain for {what}")
            if dots is not None:
                dots.draw(int((clock() - start) / DOT_EVERY))
            await asyncio.sleep(GLANCE)
