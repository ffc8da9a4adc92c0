"""Where the inputs of a conversation come from: a terminal whose keys we read one by one, or plain lines."""

import asyncio
import codecs
import os
import signal
import sys
import termios
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from hibernaut.cli.editor import Key, LineEditor, Submitted
from hibernaut.cli.screen import Screen

_PASTES_ON, _PASTES_OFF = "\x1b[?2004h", "\x1b[?2004l"


class Keyboard:
    """Reads the terminal's keys, while the event loop does other things."""

    def __init__(self, screen: Screen, write: Callable[[str], None], wants: Callable[[Submitted | Key], None]) -> None:
        self._screen = screen
        self._write = write
        self._wants = wants
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._fd = sys.stdin.fileno()
        self._before = termios.tcgetattr(self._fd)
        self.editor = LineEditor()

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Hand over what the user wants as long as this lasts; then the terminal is as it was."""
        loop = asyncio.get_running_loop()
        self._take_over()
        loop.add_reader(self._fd, self._read)
        loop.add_signal_handler(signal.SIGWINCH, self.show)
        try:
            yield
        finally:
            loop.remove_signal_handler(signal.SIGWINCH)
            loop.remove_reader(self._fd)
            self._screen.close()
            self._give_back()

    def show(self) -> None:
        """Draw the input anew."""
        self._screen.edit(self.editor.text, self.editor.cursor)

    def _read(self) -> None:
        try:
            data = os.read(self._fd, 65_536)
        except OSError:  # the terminal is gone
            data = b""
        if not data:
            asyncio.get_running_loop().remove_reader(self._fd)
            self._wants(Key.LEAVE)
            return
        for wanted in self.editor.feed(self._decoder.decode(data)):
            if wanted is Key.SUSPEND:
                self._suspend()
            elif wanted is Key.REDRAW:
                self._screen.clear()
            else:
                self._wants(wanted)
        self.show()

    def _suspend(self) -> None:
        self._screen.close()
        self._give_back()
        os.kill(0, signal.SIGTSTP)
        self._take_over()

    def _take_over(self) -> None:
        changed = termios.tcgetattr(self._fd)
        changed[0] &= ~(termios.ICRNL | termios.INLCR | termios.IXON)
        changed[3] &= ~(termios.ECHO | termios.ICANON | termios.ISIG | termios.IEXTEN)
        termios.tcsetattr(self._fd, termios.TCSADRAIN, changed)
        self._write(_PASTES_ON)

    def _give_back(self) -> None:
        with suppress(OSError, termios.error):  # the terminal may be gone
            self._write(_PASTES_OFF)
            termios.tcsetattr(self._fd, termios.TCSADRAIN, self._before)


@contextmanager
def reading_lines(wants: Callable[[Submitted | Key], None]) -> Iterator[None]:
    """Hand over the lines of standard input, whatever bytes they are, and its end."""
    loop = asyncio.get_running_loop()

    def tell(wanted: Submitted | Key) -> None:
        try:
            loop.call_soon_threadsafe(wants, wanted)
        except RuntimeError:  # the loop is closed: nobody listens any more
            return

    def read() -> None:
        # Not through `sys.stdin`: its lock would be held by this thread when the interpreter ends.
        rest = b""
        while data := os.read(sys.stdin.fileno(), 65_536):
            *lines, rest = (rest + data).split(b"\n")
            for line in lines:
                submit(line)
        submit(rest)
        tell(Key.LEAVE)

    def submit(line: bytes) -> None:
        text = line.decode("utf-8", "replace").rstrip("\r")
        if text.strip():
            tell(Submitted(text))

    # A daemon, since nothing can take a thread out of a read.
    threading.Thread(target=read, name="standard input", daemon=True).start()
    yield
