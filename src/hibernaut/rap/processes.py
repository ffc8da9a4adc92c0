"""Tool servers that a command starts on this machine.

A process is started when it is first needed, in a session of its own. The first line of its output is `{"port": n}`;
whatever else it prints goes to the log. It is stopped when nobody needs it, and at the end: SIGTERM to it and all that
it started, SIGKILL to what is left after `STOP_WITHIN`. One that dies is not started again before a pause is over.
"""

import asyncio
import logging
import os
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from typing import Annotated, Any, Final

import msgspec

from hibernaut.clock import Clock
from hibernaut.credentials import credential
from hibernaut.errors import ConfigurationError
from hibernaut.rap.pauses import LONGEST_PAUSE, Pause
from hibernaut.rap.printed import Printed, readable
from hibernaut.rap.reading import shown
from hibernaut.rap.replies import NoAnswer
from hibernaut.rap.servers import RemoteServer

START_WITHIN: Final = 20_000
"""Milliseconds until a process has said its port."""

STOP_WITHIN: Final = 5_000
"""Milliseconds that a process has to end after SIGTERM."""

Busy = Callable[[str], Awaitable[bool]]
"""Whether a server of this name has open calls or subscriptions."""

logger = logging.getLogger(__name__)


class _Ready(msgspec.Struct):
    port: Annotated[int, msgspec.Meta(ge=1, le=65_535)]


class _NotStarted(Exception):
    """A process ended, or was given up, before it had said its port."""


class _Life:
    """One process, from its start to its end."""

    def __init__(self) -> None:
        self.base: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self.base.add_done_callback(_look_at)
        self.over = asyncio.Event()
        self.stopping = False
        self.started_at = 0


class ServerProcess:
    """The process of one server: at most one at a time.

    Args:
        server: one that has a command.
        clock: what pauses, deadlines and idleness go by.
        busy: whether the server has open calls. If it has, it is not stopped for being idle, and started again when it
            dies. Without this, it is never stopped for being idle, and started again when somebody asks it something.
    """

    def __init__(self, server: RemoteServer, clock: Clock, *, busy: Busy | None = None) -> None:
        self._server = server
        self._clock = clock
        self._busy = busy
        self._pause = Pause(clock)
        self._failure = ""
        self._life: _Life | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._users = 0
        self._used_at = 0
        self._closed = False

    @asynccontextmanager
    async def in_use(self) -> AsyncIterator[str]:
        """Yield the base URL of the process, which is started if it does not run, and not stopped meanwhile.

        Raises:
            NoAnswer: it does not start, or has died a moment ago and the pause after that is not over.
            ConfigurationError: a variable of its environment cannot be read.
        """
        self._users += 1
        try:
            yield await self._running()
        finally:
            self._users -= 1
            self._used_at = self._clock.now()

    async def aclose(self) -> None:
        """Stop the process, for good."""
        self._closed = True
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)

    async def _running(self) -> str:
        while self._life is not None and self._life.stopping:
            await self._life.over.wait()
        if self._closed:
            raise self._no_answer("it was stopped")
        if self._life is None:
            if self._pause.left:
                raise self._no_answer(f"{self._failure}; it is started again in {self._pause.left / 1_000:g} s")
            environment = self._environment()
            self._life = _Life()
            self._do(self._live(self._life, environment))
        return await asyncio.shield(self._life.base)

    async def _live(self, life: _Life, environment: dict[str, str]) -> None:
        failure = ""
        try:
            failure = await self._run(life, environment)
        finally:
            if failure and not self._closed:
                self._failed(life, failure)
            if not life.base.done():
                life.base.set_exception(self._no_answer(failure or "it was stopped"))
            self._life = None
            life.over.set()
        if failure and not self._closed:
            self._do(self._revive())

    async def _run(self, life: _Life, environment: dict[str, str]) -> str:
        """Run a process until its end. Return how it ended, "" if it was stopped because nobody needed it."""
        printed = Printed(lambda line: logger.info("%s: %s", self._server.name, line))
        try:
            transport, _ = await asyncio.get_running_loop().subprocess_exec(
                lambda: printed,
                *self._server.command,
                stdin=asyncio.subprocess.DEVNULL,
                env=environment,
                cwd=self._server.cwd or None,
                start_new_session=True,
            )
        except (OSError, ValueError) as error:
            return f"it cannot be started: {error}"
        failure = "it ended"
        try:
            port = await self._port(printed)
            life.started_at = self._used_at = self._clock.now()
            life.base.set_result(f"http://127.0.0.1:{port}")
            await _first_of(printed.exited.wait(), self._unneeded(life))
        except _NotStarted as error:
            failure = str(error)
        finally:
            unneeded, life.stopping = life.stopping, True
            await self._stop(transport, printed)
        if unneeded:
            return ""
        return f"{failure} (status {transport.get_returncode()}); it printed: {printed.last or 'nothing'}"

    async def _port(self, printed: Printed) -> int:
        await _first_of(asyncio.shield(printed.first), self._clock.sleep(START_WITHIN))
        if not printed.first.done():
            raise _NotStarted(f'it printed no {{"port": n}} within {START_WITHIN / 1_000:g} s')
        line = printed.first.result()
        if not line:
            raise _NotStarted('it ended, or closed its output, before it printed {"port": n}')
        try:
            return msgspec.json.decode(line, type=_Ready).port
        except msgspec.DecodeError:
            raise _NotStarted(f'it printed {shown(readable(line))} where {{"port": n}} was to be') from None

    async def _unneeded(self, life: _Life) -> None:
        """Return when nobody has asked it anything for a while, and nobody waits for it."""
        if self._busy is None:
            await asyncio.Event().wait()
        while True:
            if left := self._idle_in():
                await self._clock.sleep(left)
            elif await self._is_needed():
                self._used_at = self._clock.now()
            elif not self._idle_in():  # nobody came while that was asked
                life.stopping = True
                return

    def _idle_in(self) -> int:
        """Return the milliseconds until it will have been idle for long enough, if nobody comes."""
        idle = self._server.idle
        return idle if self._users else max(self._used_at + idle - self._clock.now(), 0)

    async def _is_needed(self) -> bool:
        if self._busy is None:
            return False
        try:
            return await self._busy(self._server.name)
        except Exception:
            logger.exception("nobody can tell whether %s is needed; it goes on", self._server.name)
            return True

    async def _stop(self, transport: asyncio.SubprocessTransport, printed: Printed) -> None:
        group = transport.get_pid()
        try:
            _signal(group, signal.SIGTERM)
            await _first_of(printed.silent.wait(), self._clock.sleep(STOP_WITHIN))
        finally:
            _signal(group, signal.SIGKILL)
            try:
                await printed.exited.wait()
            finally:
                transport.close()

    def _failed(self, life: _Life, failure: str) -> None:
        if life.started_at and self._clock.now() - life.started_at >= LONGEST_PAUSE:
            self._pause.end()
        self._pause.begin()
        self._failure = failure
        # Whoever asks while it starts hears why it did not.
        level = logging.INFO if self._users and not life.started_at else logging.WARNING
        logger.log(level, "%s: %s", self._server.name, failure)

    async def _revive(self) -> None:
        """Start it again after the pause if somebody waits for it; should that fail, it will be tried again."""
        await self._clock.sleep(self._pause.left)
        if self._life is None and not self._pause.left and await self._is_needed():
            with suppress(NoAnswer):  # it is in the log
                await self._running()

    def _environment(self) -> dict[str, str]:
        try:
            own = {
                name: credential(f"the environment variable {name} of its process", value)
                for name, value in self._server.env.items()
            }
        except ConfigurationError as error:
            raise ConfigurationError(f"tool server {self._server.name!r}: {error}") from None
        return {**os.environ, **own, "RAP_EMBEDDED": "1"}

    def _no_answer(self, why: str) -> NoAnswer:
        return NoAnswer(f"the process of tool server {self._server.name!r}", why, reached=False)

    def _do(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


async def _first_of(*work: Awaitable[object]) -> None:
    """Wait for one of several things; the others are cancelled."""
    tasks = [asyncio.ensure_future(each) for each in work]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _signal(group: int, number: signal.Signals) -> None:
    # On some systems a group that holds nothing but a zombie may not be signalled.
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)


def _look_at(base: "asyncio.Future[str]") -> None:
    """Take notice of an error that nobody waits for."""
    if not base.cancelled():
        base.exception()
