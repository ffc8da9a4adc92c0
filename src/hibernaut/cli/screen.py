"""The lower end of a terminal: text that runs on above, and one row below in which the user writes meanwhile.

Only the last, unfinished row of the running text and the row of the input are ever drawn again; what is above has
scrolled into the terminal's own memory and is left alone.
"""

from collections.abc import Callable

from hibernaut.cli.terminal import columns, fitting, safe, styled, width

_ERASE_BELOW = "\x1b[J"

_LONGEST_ROW = 4
"""Characters per column of a row at most: beyond it, what takes no room of its own is no written language."""


class Screen:
    """An `Output` with an input row."""

    def __init__(self, write: Callable[[str], None], prompt: str, wide: Callable[[], int] = columns) -> None:
        self._write = write
        self._prompt = prompt
        self._wide = wide
        self._row = ""
        """The unfinished row of the running text."""
        self._style = ""
        self._input = ""
        self._cursor = 0
        self._rows = 0
        """Rows that are drawn now: the unfinished one, if there is one, and the input's."""

    @property
    def room(self) -> int:
        return self._wide()

    def text(self, text: str, style: str = "") -> None:
        if not text:
            return
        erased = self._erased()
        if self._row and style != self._style:
            erased += styled(self._row, self._style) + "\n"
            self._row = ""
        self._style = style
        *lines, last = (self._row + safe(text).expandtabs(4)).split("\n")
        done, self._row = self._wrapped(last)
        body = "".join(styled(line, style) + "\n" for line in lines)
        self._write(erased + body + styled(done, style) + self._drawn())

    def line(self, text: str, style: str = "") -> None:
        erased = self._erased()
        if self._row:
            erased += styled(self._row, self._style) + "\n"
            self._row = ""
        lines = safe(text).expandtabs(4).split("\n")
        self._write(erased + "".join(styled(line, style) + "\n" for line in lines) + self._drawn())

    def end_line(self) -> None:
        if self._row:
            self.text("\n", self._style)

    def edit(self, text: str, cursor: int) -> None:
        """Show what the user writes."""
        self._input, self._cursor = text, cursor
        self._write(self._erased() + self._drawn())

    def clear(self) -> None:
        """Begin with an empty screen."""
        self._rows = 0
        self._write("\x1b[H\x1b[2J" + self._drawn())

    def close(self) -> None:
        """Take the input row away, for good."""
        self.end_line()
        self._write(self._erased())

    def _wrapped(self, text: str) -> tuple[str, str]:
        """Split running text into the rows that are full and the one that is not: the terminal wraps it there."""
        wide, start = max(self._wide(), 2), 0
        while True:
            row = fitting(text[start : start + _LONGEST_ROW * wide], wide)
            if start + row >= len(text):
                return text[:start], text[start:]
            start += row

    def _erased(self) -> str:
        """Return what takes away the rows that are drawn; the cursor is then where the unfinished one began."""
        up = f"\x1b[{self._rows - 1}A" if self._rows > 1 else ""
        self._rows = 0
        return "\r" + up + _ERASE_BELOW

    def _drawn(self) -> str:
        above = styled(self._row, self._style) + "\n" if self._row else ""
        self._rows = 2 if above else 1
        shown, place = self._window()
        back = width(shown) - place
        return f"{above}{self._prompt}{shown}" + (f"\x1b[{back}D" if back else "")

    def _window(self) -> tuple[str, int]:
        """Return the part of the input that fits into its row, and the column of the cursor in it."""
        room = max(self._wide() - width(self._prompt) - 1, 1)
        before = safe(self._input[: self._cursor].replace("\n", "⏎").replace("\t", " "))
        after = safe(self._input[self._cursor :].replace("\n", "⏎").replace("\t", " "))
        if width(before) > room:
            kept = before[-room:]
            while width(kept) > room - 1:
                kept = kept[1:]
            before = "…" + kept
        after = after[: fitting(after, room - width(before))]
        return before + after, width(before)
