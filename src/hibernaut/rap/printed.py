"""What a process prints, line by line and bounded, however much it is."""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Final

from hibernaut.messages.text import decode, shorten

LONGEST_LINE: Final = 4_096
"""Bytes of a line that are kept; the rest of it is left out."""

LAST_LINES: Final = 5
"""Lines that the report of a failure tells."""

_LONGEST_TOLD: Final = 500
_STDOUT: Final = 1
_STDERR: Final = 2


class Printed(asyncio.SubprocessProtocol):
    """Takes what a process prints. The first line of its output is a message, all others are told to `log`."""

    def __init__(self, log: Callable[[str], None]) -> None:
        self.first: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        """The first line of the output; empty if there is none and there will be none."""
        self.exited = asyncio.Event()
        """The process has ended; others that it started may still be there."""
        self.silent = asyncio.Event()
        """It has ended, and nobody can print anything any more."""
        self._log = log
        self._lines = {_STDOUT: _Lines(self._printed), _STDERR: _Lines(self._told)}
        self._open = set(self._lines)
        self._last: deque[str] = deque(maxlen=LAST_LINES)

    @property
    def last(self) -> str:
        """The last lines, for the report of a failure; "" if there were none."""
        return shorten(" | ".join(self._last), _LONGEST_TOLD)

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        self._lines[fd].feed(data)

    def pipe_connection_lost(self, fd: int, exc: Exception | None) -> None:  # noqa: ARG002
        if fd in self._open:
            self._open.remove(fd)
            self._lines[fd].end()
            if fd == _STDOUT:
                self._no_message()
            self._look()

    def process_exited(self) -> None:
        self.exited.set()
        self._look()

    def _look(self) -> None:
        if self.exited.is_set() and not self._open:
            self._no_message()
            self.silent.set()

    def _no_message(self) -> None:
        if not self.first.done():
            self.first.set_result(b"")

    def _printed(self, line: bytes) -> None:
        if self.first.done():
            self._told(line)
        else:
            self.first.set_result(line)

    def _told(self, line: bytes) -> None:
        text = readable(line)
        if text:
            self._last.append(text)
            self._log(text)


def readable(line: bytes) -> str:
    """Return a line as text that does nothing to a terminal or a log."""
    return shorten(decode(line), LONGEST_LINE)


class _Lines:
    """Splits bytes into lines. Of a line that is too long the head is kept."""

    def __init__(self, take: Callable[[bytes], None]) -> None:
        self._take = take
        self._head = bytearray()

    def feed(self, data: bytes) -> None:
        *whole, rest = data.split(b"\n")
        for piece in whole:
            self._add(piece)
            self._take(bytes(self._head))
            self._head.clear()
        self._add(rest)

    def end(self) -> None:
        if self._head:
            self._take(bytes(self._head))
            self._head.clear()

    def _add(self, piece: bytes) -> None:
        self._head += piece[: LONGEST_LINE - len(self._head)]
