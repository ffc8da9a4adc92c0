"""How the demo speaks: plain lines of at most 79 characters, with a little colour where somebody looks at them."""

import os
import textwrap
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TextIO

import msgspec

from hibernaut.cli.demo.processes import Resident
from hibernaut.cli.terminal import cut
from hibernaut.messages.events import (
    AgentEvent,
    Notice,
    QuestionAsked,
    QuestionEnded,
    SubscriptionEvent,
    Summarized,
    TextChunk,
    ToolCall,
    ToolResult,
    UserInput,
)
from hibernaut.messages.parts import plain_text

WIDTH = 79
"""Characters of the longest line: the last column of an 80-column terminal stays free."""

LABEL = 13
"""Columns that the word at the beginning of a line has, its indent included."""

_INDENT = 3

MOST_DOTS = WIDTH - LABEL

_BOLD, _DIM, _GREEN, _RED, _CYAN = "1", "2", "32", "31", "36"
_TELLING = ("FAIL:", "ERROR:", "AssertionError:")


class Voice:
    """Speaks on a stream."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._color = stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"

    def title(self, text: str, *lines: str) -> None:
        """Begin."""
        self._line(text, _BOLD)
        self._line("")
        for line in lines:
            self._line(line)

    def stage(self, number: int, text: str) -> None:
        """Begin a stage."""
        self._line("")
        self._line(f"{number}. {text}", _BOLD)

    def say(self, label: str, text: str, color: str = "") -> None:
        """Say something, wrapped, behind a word that says what it is about."""
        first = f"   {label}".ljust(LABEL)
        lines = textwrap.wrap(text, WIDTH - LABEL, break_on_hyphens=False) or [""]
        for number, line in enumerate(lines):
            start = self._painted(first, _DIM) if number == 0 else " " * LABEL
            self._write(f"{start}{self._painted(line, color)}\n")

    def gap(self) -> None:
        """Leave a line free."""
        self._line("")

    def good(self, label: str, text: str) -> None:
        """Say what was checked and found right."""
        self.say(label, text, _GREEN)

    def event(self, event: AgentEvent) -> None:
        """Show what happened in the conversation."""
        for label, text, color in described(event):
            self.say(label, text, color)

    def brief(self, event: AgentEvent) -> None:
        """Show what happened in the conversation, in one line."""
        for label, text, color in described(event)[:1]:
            self.say(label, textwrap.shorten(text, WIDTH - LABEL, placeholder=" ..."), color)

    def rule(self, text: str) -> None:
        """Draw a line that says something."""
        self._line(f"   {f' {text} '.center(WIDTH - 3, '-')}", _DIM)

    def resident(self, processes: Sequence[Resident]) -> None:
        """Say which processes there are."""
        named = [f"{one.role} {one.pid} ({one.memory / 1e6:.0f} MB)" for one in processes]
        self.say("processes", ", ".join(named) or "none", _CYAN)

    def path(self, label: str, path: str) -> None:
        """Say a path, which is never broken into lines, however long it is."""
        self._write(f"{self._painted(f'   {label}'.ljust(LABEL), _DIM)}{path}\n")

    def typed(self, command: str) -> None:
        """Show a command that is given in another terminal."""
        lines = textwrap.wrap(command, WIDTH - _INDENT - 2, break_on_hyphens=False)
        self._line(f"   $ {lines[0]}", _BOLD)
        for line in lines[1:]:
            self._line(f"     {line}", _BOLD)

    def printed(self, line: str) -> None:
        """Show a line that a command has printed, wrapped with its indent."""
        indent = " " * (_INDENT + len(line) - len(line.lstrip()))
        for part in textwrap.wrap(line.strip(), WIDTH - len(indent), break_on_hyphens=False) or [""]:
            self._line(f"{indent}{part}".rstrip())

    def row(self, line: str) -> None:
        """Show a row of a table, cut to fit."""
        self._line(f"   {cut(line, WIDTH - _INDENT)}")

    @contextmanager
    def dots(self, label: str) -> Iterator["Dots"]:
        """Give what shows that time passes."""
        dots = Dots(self._stream, self._painted(f"   {label}".ljust(LABEL), _DIM))
        try:
            yield dots
        finally:
            dots.end()

    def _line(self, text: str, color: str = "") -> None:
        self._write(f"{self._painted(text, color)}\n")

    def _write(self, text: str) -> None:
        self._stream.write(text)
        self._stream.flush()

    def _painted(self, text: str, color: str) -> str:
        return f"\x1b[{color}m{text}\x1b[0m" if self._color and color and text else text


class Dots:
    """A line of dots; it begins with the first dot."""

    def __init__(self, stream: TextIO, label: str) -> None:
        self._stream = stream
        self._label = label
        self._drawn = 0

    def draw(self, number: int) -> None:
        """Draw dots until there are so many; no more than fit on the line."""
        more = min(number, MOST_DOTS) - self._drawn
        if more > 0:
            self._stream.write(("" if self._drawn else self._label) + "." * more)
            self._stream.flush()
            self._drawn += more

    def end(self) -> None:
        """End the line."""
        if self._drawn:
            self._stream.write("\n")
            self._stream.flush()


def described(event: AgentEvent) -> list[tuple[str, str, str]]:
    """Return what people see of an event: lines of who, what, and a colour."""
    match event:
        case UserInput():
            return [("you", plain_text(event.content), "")]
        case TextChunk():
            return [("agent", event.text, "")]
        case ToolCall():
            arguments = ", ".join(f"{name}={value}" for name, value in msgspec.json.decode(event.arguments).items())
            return [("calls", f"{event.tool}({arguments})", _CYAN)]
        case SubscriptionEvent(source="report"):
            return [("report", " ".join(plain_text(event.content).split()), "")]
        case ToolResult() | SubscriptionEvent():
            return _described_result(plain_text(event.content))
        case QuestionAsked():
            return [("asks", f"{event.prompt} {' / '.join(event.choices)}", _CYAN)]
        case QuestionEnded():
            return [("answer", f"{event.text} ({event.user or event.outcome})", "")]
        case Summarized():
            return [
                ("compacted", f"what the model is shown: {event.before:,} -> {event.after:,} tokens, as estimated", "")
            ]
        case Notice(kind="compacting"):
            return []
        case Notice():
            return [("runtime", f"{event.kind}: {event.text}", _RED)]
        case _:
            return []


def _described_result(text: str) -> list[tuple[str, str, str]]:
    """Return the first line of a result, and what of the others tells why something failed."""
    first, *others = text.splitlines() or [""]
    color = _RED if first.startswith("FAILED") else _GREEN if first.startswith("PASSED") else ""
    return [
        ("result", first, color),
        *(("", line.partition(" (")[0], "") for line in others if line.startswith(_TELLING)),
    ]
