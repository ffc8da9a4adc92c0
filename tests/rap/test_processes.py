"""Tool servers that are processes of this machine: how they start, die, rest and end. The clock stands still."""

import asyncio
import itertools
import logging
import os
import signal
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing, asynccontextmanager, contextmanager, suppress
from pathlib import Path

import pytest

from hibernaut.clock import SystemClock
from hibernaut.errors import ConfigurationError
from hibernaut.rap.processes import START_WITHIN, STOP_WITHIN, ServerProcess
from hibernaut.rap.replies import NoAnswer
from hibernaut.rap.servers import RemoteServer
from hibernaut.testing.clock import ManualClock

READY = """
import json, os, signal, socket, subprocess, sys, time
def ready(port=4711):
    print(json.dumps({"port": port}), flush=True)
def tell(*words):
    print(*words, file=sys.stderr, flush=True)
def hold(port, then=lambda: None):
    held = socket.create_connection(("127.0.0.1", port))
    then()
    held.recv(1)
"""
"""What the programs begin with."""

WAIT = READY + "ready(); tell('pid', os.getpid()); signal.pause()"


class Log(logging.Handler):
    """What processes print, as it comes."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []
        self._come = asyncio.Event()

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())
        self._come.set()

    async def until(self, start: str, number: int = 1) -> str:
        """Wait for the so-manyth line that starts like this, and return the rest of it."""
        while len(found := [line for line in self.lines if line.startswith(start)]) < number:
            self._come.clear()
            await self._come.wait()
        return found[number - 1].removeprefix(start).strip()


@contextmanager
def logged() -> Iterator[Log]:
    log = Log()
    logger = logging.getLogger("hibernaut.rap.processes")
    logger.addHandler(log)
    logger.setLevel(logging.INFO)
    try:
        yield log
    finally:
        logger.removeHandler(log)
        logger.setLevel(logging.NOTSET)


@asynccontextmanager
async def holding() -> AsyncIterator[tuple[int, asyncio.Queue[asyncio.StreamReader]]]:
    """Listen for processes that hold a connection for as long as they live."""
    held: asyncio.Queue[asyncio.StreamReader] = asyncio.Queue()

    async def take(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        held.put_nowait(reader)
        with suppress(ConnectionError):
            await reader.read()
        held.task_done()
        writer.close()

    server = await asyncio.start_server(take, "127.0.0.1", 0)
    async with server:
        yield server.sockets[0].getsockname()[1], held


def server(program: str, **more: object) -> RemoteServer:
    return RemoteServer(command=(sys.executable, "-c", program), name="x", **more)  # type: ignore[arg-type]


async def needed(_name: str) -> bool:
    return True


async def unneeded(_name: str) -> bool:
    return False


async def use(process: ServerProcess) -> str:
    async with process.in_use() as base:
        return base


async def test_two_first_uses_start_one_process_that_knows_what_it_is() -> None:
    program = READY + (
        "tell('is', os.environ['RAP_EMBEDDED'], os.environ['MINE'], os.getsid(0) == os.getpid(), "
        "repr(sys.stdin.read()), os.getcwd()); ready(); signal.pause()"
    )
    with logged() as log:
        async with aclosing(ServerProcess(server(program, env={"MINE": "m"}, cwd="/"), ManualClock())) as process:
            assert set(await asyncio.gather(use(process), use(process))) == {"http://127.0.0.1:4711"}
        assert log.lines == ["x: is 1 m True '' /"]


@pytest.mark.parametrize(
    "program, words",
    [
        ("print('hello')", "printed 'hello' where"),
        ("print('{\"port\": true}')", "where"),
        ("print('{\"port\": 65536}')", "where"),
        ("import sys; sys.exit('no disk')", r"before it printed .* \(status 1\); it printed: no disk"),
        ("print('y' * 100_000)", r"printed 'yyyy.* where"),
    ],
)
async def test_a_process_that_says_no_port_is_given_up_with_its_words(program: str, words: str) -> None:
    async with aclosing(ServerProcess(server(program), ManualClock())) as process:
        with pytest.raises(NoAnswer, match=words) as caught:
            await use(process)
        assert not caught.value.reached
        assert len(str(caught.value)) < 1_000


async def test_a_process_that_says_nothing_is_given_up_in_time() -> None:
    clock = ManualClock()
    with logged() as log:
        async with aclosing(ServerProcess(server(READY + "tell('here'); signal.pause()"), clock)) as process:
            using = asyncio.create_task(use(process))
            await log.until("x: here")
            clock.advance(START_WITHIN)
            with pytest.raises(NoAnswer, match="within 20 s"):
                await using


async def test_a_program_that_is_not_there_is_said_so() -> None:
    async with aclosing(ServerProcess(RemoteServer(command="/no/such/program"), ManualClock())) as process:
        with pytest.raises(NoAnswer, match=r"cannot be started.*No such file"):
            await use(process)


async def test_an_environment_that_cannot_be_read_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NOT_THERE", raising=False)
    async with aclosing(ServerProcess(server(WAIT, env={"KEY": "env:NOT_THERE"}), ManualClock())) as process:
        with pytest.raises(ConfigurationError, match=r"'x'.*NOT_THERE"):
            await use(process)


async def test_one_that_dies_is_started_again_after_a_pause_that_grows() -> None:
    clock = ManualClock()
    with logged() as log:
        async with aclosing(ServerProcess(server(WAIT), clock)) as process:
            for number, pause in [(1, 1_000), (2, 2_000), (3, 4_000)]:
                await use(process)
                os.kill(int(await log.until("x: pid", number)), signal.SIGKILL)
                await log.until("x: it ended (status -9)", number)
                clock.advance(pause - 1)
                with pytest.raises(NoAnswer, match=r"status -9.*again in 0\.001 s"):
                    await use(process)
                clock.advance(1)


async def test_one_that_lived_for_long_pauses_shortly() -> None:
    clock = ManualClock()
    with logged() as log:
        async with aclosing(ServerProcess(server(WAIT), clock)) as process:
            for number in (1, 2):
                await use(process)
                clock.advance(60_000)
                os.kill(int(await log.until("x: pid", number)), signal.SIGKILL)
                await log.until("x: it ended", number)
                clock.advance(1_000)
            assert await use(process)


async def test_a35_one_that_dies_with_open_calls_is_started_again_by_itself() -> None:
    clock = ManualClock()
    with logged() as log:
        async with aclosing(ServerProcess(server(WAIT), clock, busy=needed)) as process:
            await use(process)
            first = await log.until("x: pid")
            os.kill(int(first), signal.SIGKILL)
            await log.until("x: it ended")
            clock.advance(1_000)
            assert await log.until("x: pid", 2) != first


async def test_one_that_nobody_needs_is_stopped_and_started_again_without_a_pause() -> None:
    clock = ManualClock()
    program = READY + "signal.signal(15, lambda *_: (tell('bye'), os._exit(0))); ready(); tell('up'); signal.pause()"
    with logged() as log:
        process = ServerProcess(server(program, idle=1_000), clock, busy=unneeded)
        async with aclosing(process), process.in_use():
            await log.until("x: up")
            clock.advance(1_000)  # in use
        async with aclosing(ServerProcess(server(program, idle=1_000), clock, busy=unneeded)) as other:
            await use(other)
            await log.until("x: up", 2)
            clock.advance(1_000)
            await log.until("x: bye", 2)
            await use(other)
            await log.until("x: up", 3)
        assert [line for line in log.lines if "bye" in line] == ["x: bye"] * 3


async def test_one_with_open_calls_is_not_stopped_however_idle_it_is() -> None:
    clock = ManualClock()
    asked: asyncio.Queue[int] = asyncio.Queue()

    count = itertools.count(1)

    async def busy(_name: str) -> bool:
        number = next(count)
        asked.put_nowait(number)
        if number == 1:
            raise RuntimeError("nobody can tell")
        return True

    with logged() as log:
        async with aclosing(ServerProcess(server(WAIT, idle=1_000), clock, busy=busy)) as process:
            await use(process)
            await log.until("x: pid")
            for number in (1, 2, 3):
                clock.advance(1_000)
                assert await asked.get() == number
            await use(process)
        assert len([line for line in log.lines if line.startswith("x: pid")]) == 1
        assert [line for line in log.lines if "nobody can tell" in line] == [
            "nobody can tell whether x is needed; it goes on"
        ]


async def test_one_that_ignores_the_request_to_end_is_killed() -> None:
    clock = ManualClock()
    async with holding() as (port, held):
        program = READY + f"signal.signal(15, lambda *_: tell('no')); ready(); tell('up'); hold({port})"
        with logged() as log:
            process = ServerProcess(server(program), clock)
            await use(process)
            await log.until("x: up")
            await held.get()
            closing = asyncio.create_task(process.aclose())
            await log.until("x: no")
            assert not closing.done()
            clock.advance(STOP_WITHIN)
            await closing
            await held.join()


async def test_what_a_process_has_started_ends_with_it() -> None:
    async with holding() as (port, held):
        child = READY + f"signal.signal(15, signal.SIG_IGN); hold({port})"
        streams = "stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL"
        program = READY + f"subprocess.Popen([sys.executable, '-c', {child!r}], {streams}); ready(); signal.pause()"
        async with aclosing(ServerProcess(server(program), ManualClock())) as process:
            await use(process)
            await held.get()
        await held.join()


async def test_a_process_that_dies_leaves_nothing_behind() -> None:
    async with holding() as (port, held):
        child = READY + f"hold({port})"
        program = (
            READY
            + f"subprocess.Popen([sys.executable, '-c', {child!r}]); ready(); tell('pid', os.getpid()); signal.pause()"
        )
        with logged() as log:
            async with aclosing(ServerProcess(server(program), ManualClock())) as process:
                await use(process)
                await held.get()
                os.kill(int(await log.until("x: pid")), signal.SIGKILL)
                await held.join()


async def test_an_event_loop_that_is_cancelled_leaves_no_process() -> None:
    async with holding() as (port, held):
        process_server = server(READY + f"hold({port}, ready)")

        async def main() -> None:
            await use(ServerProcess(process_server, SystemClock()))

        await asyncio.to_thread(asyncio.run, main())
        await held.get()
        await held.join()


async def test_whatever_it_prints_is_logged_line_by_line_and_bounded() -> None:
    program = READY + (
        "ready(); print('one'); print('z' * 9_000); print('\\x1b[31mred'); print(); print('last', end='', flush=True); "
        "os.close(1); tell('e\\u0301'); signal.pause()"
    )
    with logged() as log:
        async with aclosing(ServerProcess(server(program), ManualClock())) as process:
            await use(process)
            await log.until("x: last")
            await log.until("x: e\u0301")
        assert [len(line) for line in log.lines if "zz" in line] == [3 + 4_096]
        assert "x: one" in log.lines
        assert "x: [31mred" in log.lines


async def test_after_the_end_nothing_is_started(tmp_path: Path) -> None:
    process = ServerProcess(server(WAIT, cwd=str(tmp_path)), ManualClock())
    await process.aclose()
    with pytest.raises(NoAnswer, match="it was stopped"):
        await use(process)
