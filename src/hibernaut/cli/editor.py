"""Editing one input: what a terminal sends goes in, what the user wants comes out. No terminal is touched here."""

import re
import unicodedata
from enum import Enum

import msgspec

MOST_REMEMBERED = 500
"""Inputs that the arrow keys can bring back."""

_SEQUENCE = re.compile(r"\x1b(?:\[[0-9;]*[~A-Za-z]|O[A-Za-z]|[^\[O])")
_PASTE, _PASTED = "\x1b[200~", "\x1b[201~"


class Key(Enum):
    """What a key asks of whoever owns the editor."""

    INTERRUPT = "interrupt"
    LEAVE = "leave"
    SUSPEND = "suspend"
    REDRAW = "redraw"


class Submitted(msgspec.Struct, frozen=True):
    """An input that the user has sent off."""

    text: str


class LineEditor:
    """The text being written. The keys are those of readline's Emacs mode; Alt-Enter or Ctrl-J begins a new line."""

    def __init__(self) -> None:
        self.text = ""
        self.cursor = 0
        self._history: list[str] = []
        self._place = 0
        self._draft = ""
        self._killed = ""
        self._rest = ""
        self._pasting = False

    def feed(self, data: str) -> list[Submitted | Key]:
        """Take what the terminal sent, in pieces of any size; return what the user wants, in order."""
        wanted: list[Submitted | Key] = []
        data, self._rest = self._rest + data, ""
        while data:
            if self._pasting:
                data = self._paste(data)
            elif data[0] != "\x1b":
                found = self._press(data[0])
                data = data[1:]
                wanted += [found] if found is not None else []
            elif sequence := _SEQUENCE.match(data):
                self._command(sequence[0])
                data = data[sequence.end() :]
            else:
                self._rest, data = data, ""
        return wanted

    def clear(self) -> None:
        """Throw the input away."""
        self.text, self.cursor, self._place = "", 0, len(self._history)

    def _paste(self, data: str) -> str:
        pasted, end, rest = data.partition(_PASTED)
        if not end:
            held = next((size for size in range(len(_PASTED) - 1, 0, -1) if data.endswith(_PASTED[:size])), 0)
            pasted, self._rest = data[: len(data) - held], data[len(data) - held :]
            rest = ""
        self._pasting = not end
        self._insert(pasted.replace("\r\n", "\n").replace("\r", "\n"))
        return rest

    def _press(self, key: str) -> Submitted | Key | None:
        if key == "\r":
            return self._submit()
        if key == "\x03":
            return Key.INTERRUPT
        if key == "\x04" and not self.text:
            return Key.LEAVE
        if key == "\x1a":
            return Key.SUSPEND
        if key == "\x0c":
            return Key.REDRAW
        action = _KEYS.get(key)
        if action is not None:
            getattr(self, action)()
        elif key >= " " or key in "\n\t":
            self._insert(key)
        return None

    def _command(self, sequence: str) -> None:
        if sequence == _PASTE:
            self._pasting = True
        elif sequence == "\x1b\r":
            self._insert("\n")
        elif action := _SEQUENCES.get(sequence):
            getattr(self, action)()

    def _submit(self) -> Submitted | None:
        text = self.text
        if text.strip() and (not self._history or self._history[-1] != text):
            self._history = [*self._history, text][-MOST_REMEMBERED:]
        self.clear()
        return Submitted(text) if text.strip() else None

    def _insert(self, text: str) -> None:
        self.text = self.text[: self.cursor] + text + self.text[self.cursor :]
        self.cursor += len(text)

    def _cut(self, start: int, end: int) -> None:
        self.text = self.text[:start] + self.text[end:]
        self.cursor = start

    def _kill(self, start: int, end: int) -> None:
        self._killed = self.text[start:end] or self._killed
        self._cut(start, end)

    # Places

    def _before(self) -> int:
        place = self.cursor - 1
        while place > 0 and _joins(self.text[place]):
            place -= 1
        return max(place, 0)

    def _after(self) -> int:
        place = min(self.cursor + 1, len(self.text))
        while place < len(self.text) and _joins(self.text[place]):
            place += 1
        return place

    def _word_before(self) -> int:
        before = self.text[: self.cursor].rstrip()
        return max(before.rfind(" "), before.rfind("\n")) + 1

    def _word_after(self) -> int:
        rest = self.text[self.cursor :]
        word = re.match(r"\s*\S*", rest)
        return self.cursor + (word.end() if word else 0)

    # What keys do

    def left(self) -> None:
        """Go back by a character."""
        self.cursor = self._before()

    def right(self) -> None:
        """Go on by a character."""
        self.cursor = self._after()

    def home(self) -> None:
        """Go to the beginning."""
        self.cursor = 0

    def end(self) -> None:
        """Go to the end."""
        self.cursor = len(self.text)

    def word_left(self) -> None:
        """Go back by a word."""
        self.cursor = self._word_before()

    def word_right(self) -> None:
        """Go on by a word."""
        self.cursor = self._word_after()

    def backspace(self) -> None:
        """Delete the character before the cursor."""
        self._cut(self._before(), self.cursor)

    def delete(self) -> None:
        """Delete the character at the cursor."""
        place = self.cursor
        self._cut(place, self._after())

    def kill_to_end(self) -> None:
        """Cut from the cursor on."""
        self._kill(self.cursor, len(self.text))

    def kill_to_start(self) -> None:
        """Cut up to the cursor."""
        self._kill(0, self.cursor)

    def kill_word(self) -> None:
        """Cut the word before the cursor."""
        self._kill(self._word_before(), self.cursor)

    def yank(self) -> None:
        """Put back what was cut last."""
        self._insert(self._killed)

    def older(self) -> None:
        """Bring back the input before."""
        if self._place > 0:
            if self._place == len(self._history):
                self._draft = self.text
            self._recall(self._place - 1)

    def newer(self) -> None:
        """Bring back the input after."""
        if self._place < len(self._history):
            self._recall(self._place + 1)

    def _recall(self, place: int) -> None:
        self._place = place
        self.text = self._history[place] if place < len(self._history) else self._draft
        self.cursor = len(self.text)


_KEYS = {
    "\x01": "home",
    "\x02": "left",
    "\x04": "delete",
    "\x05": "end",
    "\x06": "right",
    "\x08": "backspace",
    "\x0b": "kill_to_end",
    "\x0e": "newer",
    "\x10": "older",
    "\x15": "kill_to_start",
    "\x17": "kill_word",
    "\x19": "yank",
    "\x7f": "backspace",
}

_SEQUENCES = {
    **dict.fromkeys(("\x1b[A", "\x1bOA"), "older"),
    **dict.fromkeys(("\x1b[B", "\x1bOB"), "newer"),
    **dict.fromkeys(("\x1b[C", "\x1bOC"), "right"),
    **dict.fromkeys(("\x1b[D", "\x1bOD"), "left"),
    **dict.fromkeys(("\x1b[H", "\x1bOH", "\x1b[1~", "\x1b[7~"), "home"),
    **dict.fromkeys(("\x1b[F", "\x1bOF", "\x1b[4~", "\x1b[8~"), "end"),
    **dict.fromkeys(("\x1bb", "\x1b[1;5D", "\x1b[1;3D"), "word_left"),
    **dict.fromkeys(("\x1bf", "\x1b[1;5C", "\x1b[1;3C"), "word_right"),
    "\x1b[3~": "delete",
    "\x1b\x7f": "kill_word",
}


def _joins(character: str) -> bool:
    """Tell whether a character belongs to the one before it."""
    return character >= "\u0300" and unicodedata.category(character) in ("Mn", "Me", "Cf")
