"""As much of a terminal as the screen uses, to see what a person would see."""

import re
import unicodedata

_SEQUENCE = re.compile(r"\x1b\[(\??[0-9;]*)([A-Za-z])")


class Emulator:
    """Takes what is written to a terminal; `lines` are what stands on it, scrolled-off ones included."""

    def __init__(self, columns: int) -> None:
        self.columns = columns
        self.rows: list[list[str]] = [[]]
        self.row = self.column = 0

    @property
    def lines(self) -> list[str]:
        """The rows, without the blanks at their ends."""
        return ["".join(row).rstrip() for row in self.rows]

    def write(self, text: str) -> None:
        """Take some output."""
        place = 0
        while place < len(text):
            sequence = _SEQUENCE.match(text, place)
            if sequence:
                if not sequence[1].startswith("?"):  # modes change nothing that is seen
                    self._steer(sequence[2], int(sequence[1] or 1))
                place = sequence.end()
            else:
                self._put(text[place])
                place += 1

    def _steer(self, command: str, number: int) -> None:
        if command == "A":
            self.row = max(self.row - number, 0)
        elif command == "D":
            self.column = max(min(self.column, self.columns) - number, 0)
        elif command == "J":
            del self.rows[self.row + 1 :]
            del self.rows[self.row][self.column :]
        elif command != "m":
            raise AssertionError(f"the screen uses {command!r}, which is not emulated")

    def _put(self, character: str) -> None:
        if character == "\r":
            self.column = 0
        elif character == "\n":
            self._next_row()
        elif character < " " or character == "\x7f":
            raise AssertionError(f"{character!r} steers the terminal")
        elif unicodedata.category(character) in ("Mn", "Me", "Cf"):
            if self.column:  # else there is nothing it could combine with
                self.rows[self.row][self.column - 1] += character
        else:
            cells = 2 if unicodedata.east_asian_width(character) in "WF" else 1
            if self.column + cells > self.columns:
                self._next_row()
            row = self.rows[self.row]
            row += [" "] * (self.column - len(row))
            row[self.column : self.column + cells] = [character, ""][:cells]
            self.column += cells

    def _next_row(self) -> None:
        self.row += 1
        self.column = 0
        if self.row == len(self.rows):
            self.rows.append([])
