"""What a terminal needs: characters that are safe to show, the columns that text takes, styles, and plain output.

Nothing is styled and nothing is cut where the output is not a terminal; nothing is styled where `NO_COLOR` is set.
"""

import os
import shutil
import sys
import unicodedata
from collections.abc import Iterable, Sequence
from typing import Protocol, TextIO

DIM = "2"
BOLD = "1"
RED = "31"

LONGEST_LINE = 500
"""Characters of a line about a call or a result where no terminal says how much room there is."""

_UNSAFE = {code: 0x2400 + code for code in range(0x20) if chr(code) not in "\n\t"}
# What turns the order of the text around it would make a line say something else than it does.
_UNSAFE |= dict.fromkeys((*range(0x202A, 0x202F), *range(0x2066, 0x206A)), 0xFFFD)
_UNSAFE |= {0x7F: 0x2421} | dict.fromkeys(range(0x80, 0xA0), 0xFFFD)


class Output(Protocol):
    """Where a conversation is shown: text that runs on, and lines of their own."""

    @property
    def room(self) -> int:
        """Columns that a line should have at most."""
        ...

    def text(self, text: str, style: str = "") -> None:
        """Go on with the running text."""
        ...

    def line(self, text: str, style: str = "") -> None:
        """Show a line of its own."""
        ...

    def end_line(self) -> None:
        """End the running text's line if there is anything in it."""
        ...


def is_styled(stream: TextIO) -> bool:
    """Tell whether a stream may get escape sequences."""
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def columns() -> int:
    """Return how wide the terminal is."""
    return shutil.get_terminal_size().columns


def styled(text: str, style: str) -> str:
    """Return text in a style."""
    return f"\x1b[{style}m{text}\x1b[0m" if style and text else text


def safe(text: str) -> str:
    """Return text that steers no terminal: control characters become symbols, those that turn its order U+FFFD."""
    return text if text.isascii() and text.isprintable() else text.translate(_UNSAFE)


def fit_for(stream: TextIO, text: str) -> str:
    """Return text as a stream gets it: safe where that is a terminal, as it is where a program reads."""
    return safe(text) if stream.isatty() else text


def width(text: str) -> int:
    """Return the columns that text takes."""
    return len(text) if text.isascii() else sum(map(_cells, text))


def fitting(text: str, room: int) -> int:
    """Return how many characters of a text fit into so many columns, what combines with the last one included."""
    used = 0
    for place, character in enumerate(text):
        used += _cells(character)
        if used > room:
            return place
    return len(text)


def cut(text: str, room: int) -> str:
    """Return text that takes at most so many columns, with an ellipsis where something is missing."""
    if width(text) <= room:
        return text
    return text[: fitting(text, room - 1)].rstrip() + "…" if room > 0 else ""


def _cells(character: str) -> int:
    if character < "\u0300":
        return 1
    if unicodedata.category(character) in ("Mn", "Me", "Cf"):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


class Printed:
    """An `Output` that only ever writes on."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = stream or sys.stdout
        self._terminal = self._stream.isatty()
        self._styled = is_styled(self._stream)
        self._open = False

    @property
    def room(self) -> int:
        return columns() if self._terminal else LONGEST_LINE

    def text(self, text: str, style: str = "") -> None:
        if text:
            self._write(text, style)
            self._open = not text.endswith("\n")

    def line(self, text: str, style: str = "") -> None:
        self.end_line()
        self._write(text, style)
        self._write("\n")

    def end_line(self) -> None:
        if self._open:
            self._write("\n")
            self._open = False

    def _write(self, text: str, style: str = "") -> None:
        shown = safe(text) if self._terminal else text
        self._stream.write(styled(shown, style) if self._styled else shown)
        self._stream.flush()


def table(heads: Sequence[str], rows: Iterable[Sequence[str]], *, right: Sequence[int] = ()) -> list[str]:
    """Return the lines of a table, cut to the terminal's width if there is one.

    Cells are single lines already. `right` are the columns that are aligned there.
    """
    cells = [list(heads), *[[safe(cell) for cell in row] for row in rows]]
    widths = [max(width(row[place]) for row in cells) for place in range(len(heads))]
    lines = ["  ".join(_padded(cell, widths[place], place in right) for place, cell in enumerate(row)) for row in cells]
    room = columns() if sys.stdout.isatty() else 0
    return [cut(line.rstrip(), room) if room else line.rstrip() for line in lines]


def _padded(cell: str, wide: int, right: bool) -> str:  # noqa: FBT001
    padding = " " * (wide - width(cell))
    return padding + cell if right else cell + padding
