"""A tool server as a program: it says where it listens, and runs until it is told to stop."""

import asyncio
import logging
import os
import signal
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Final

import msgspec

if TYPE_CHECKING:
    from hibernaut.rap.kit.server import ToolServer

EMBEDDED: Final = "RAP_EMBEDDED"
"""Environment variable: set to 1 by a runtime that starts the server as a command, and reads where it listens."""

SECRET: Final = "RAP_SECRET"  # noqa: S105  # the name of a variable
"""Environment variable with the secret that every request must bear."""

LOOK_EVERY: Final = 1_000
"""Milliseconds between two looks whether the runtime is still there: it may be killed, and then stops nothing."""

_STDOUT: Final = 1
_STDERR: Final = 2

Say = Callable[[str], None]


def keep_stdout() -> int | None:
    """Under a runtime, leave stdout to the one line that it reads, whatever is printed; return where that line goes."""
    if os.environ.get(EMBEDDED) != "1":
        return None
    kept = os.dup(_STDOUT)
    os.dup2(_STDERR, _STDOUT)
    return kept


async def serve(
    server: "ToolServer", host: str, port: int, stopping: asyncio.Event, kept: int | None, say: Say
) -> None:
    """Serve until `stopping` is set. `kept` is what `keep_stdout` returned; `say` takes words for people.

    Raises:
        ConfigurationError, StoreError: as `ToolServer.running`.
    """
    parent = os.getppid()
    async with server.running(host, port) as address:
        if kept is not None:
            with suppress(BrokenPipeError):
                os.write(kept, msgspec.json.encode({"port": address.port}) + b"\n")
        names = ", ".join(tool.name for tool in server.tools)
        say(f"{server.name} listens at {address.url} (process {os.getpid()}, tools {names}); Ctrl-C stops")
        if kept is None:
            await stopping.wait()
        else:
            await _stopped_or_left_alone(stopping, parent)
        say("stopping: what is not done is left to the next start")
    say("stopped")


async def _stopped_or_left_alone(stopping: asyncio.Event, parent: int) -> None:
    """Return when the program is told to stop, or when what has started it is gone."""
    while os.getppid() == parent and not stopping.is_set():
        with suppress(TimeoutError):
            async with asyncio.timeout(LOOK_EVERY / 1_000):
                await stopping.wait()


def run(server: "ToolServer", host: str, port: int) -> None:
    """Run a server as this program, until Ctrl-C or SIGTERM."""
    logging.basicConfig()
    kept = keep_stdout()
    if secret := os.environ.get(SECRET):
        server.secret = secret

    async def main() -> None:
        stopping = asyncio.Event()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, stopping.set)
        await serve(server, host, port, stopping, kept, _print)

    asyncio.run(main())


def _print(line: str) -> None:
    print(line, flush=True)  # noqa: T201  # it is for whoever started the program
