"""A conversation as people read it: events become running text and short lines."""

from typing import TextIO

import msgspec

from hibernaut.cli.terminal import BOLD, DIM, RED, Output
from hibernaut.messages.events import (
    AgentEvent,
    CompletionFinished,
    Notice,
    OutputGiven,
    QuestionAsked,
    QuestionEnded,
    SubscriptionEvent,
    Summarized,
    TextChunk,
    ThinkingChunk,
    ThreadSpawned,
    ToolCall,
    ToolProgress,
    ToolResult,
    TurnDiscarded,
    UserInput,
    ViewChanged,
    to_record,
)
from hibernaut.messages.parts import plain_text
from hibernaut.messages.text import shorten

PROMPT = "> "
"""Stands before what the user says."""


class Narrator:
    """Tells events to an output, in the order in which they come."""

    def __init__(self, output: Output) -> None:
        self._output = output
        self._said: list[str] = []
        """What the user said that is on the screen already."""
        self._taken: list[str] = []
        """What the user said since the last stored event: should the turn break off, it comes again."""
        self._tools: dict[str, str] = {}
        self._thinking = False
        self._unstored = False
        """Whether anything of the agent is on the screen that is not stored yet."""

    def said(self, text: str) -> None:
        """Note that a text of the user is on the screen already."""
        self._said.append(text)

    def knows(self, call_id: str, tool: str) -> None:
        """Note which tool an open call is of."""
        self._tools[call_id] = tool

    def end(self) -> None:
        """End the line that is being written."""
        self._output.end_line()

    def tell(self, event: AgentEvent) -> None:
        """Show one event."""
        if isinstance(event, TextChunk | ThinkingChunk):
            thinking = isinstance(event, ThinkingChunk)
            if thinking != self._thinking:
                self._output.end_line()
                self._thinking = thinking
            self._output.text(event.text, DIM if thinking else "")
            self._unstored = True
        elif isinstance(event, UserInput):
            self._tell_input(event)
        elif isinstance(event, TurnDiscarded):
            self._said[:0] = self._taken
            self._taken.clear()
            if self._unstored:
                self._output.line("[it broke off; what was said since is taken back]", DIM)
        else:
            self._tell_line(event)
        if event.cursor and "~" not in event.cursor:
            self._taken.clear()
            self._unstored = False

    def _tell_input(self, event: UserInput) -> None:
        text = plain_text(event.content)
        self._taken.append(text)
        if text in self._said:
            self._said.remove(text)
        elif not event.origin:
            self._output.end_line()
            who = f"{event.user} " if event.user else ""
            self._output.line(f"{who}{PROMPT}{text}", BOLD)

    def _tell_line(self, event: AgentEvent) -> None:
        self._thinking = False
        if isinstance(event, CompletionFinished):
            self._output.end_line()
        if isinstance(event, ToolCall):
            self._tools[event.call_id] = event.tool
        tool = self._tools.pop(event.call_id, "") if isinstance(event, ToolResult) else ""
        if isinstance(event, ToolProgress):
            tool = self._tools.get(event.call_id, "")
        line = in_a_line(event, self._output.room, tool)
        if line:
            self._unstored = True
            failed = isinstance(event, ToolResult) and event.is_error
            self._output.line(line, RED if failed else DIM)


def in_a_line(event: AgentEvent, room: int, tool: str = "") -> str:
    """Return what an event other than text comes down to, "" if it is worth no line. `tool` is what a result is of."""
    match event:
        case UserInput():
            line = PROMPT + plain_text(event.content)
        case ToolCall():
            line = f"→ {event.display or event.tool + ('' if event.arguments == '{}' else ' ' + event.arguments)}"
        case ViewChanged():
            line = f"▤ {event.view_type}: {event.content}"
        case ToolProgress():
            line = f"· {tool or event.call_id}: {event.text}"
        case ToolResult():
            line = f"{'✗' if event.is_error else '←'} {tool or event.call_id}: {plain_text(event.content)}"
        case SubscriptionEvent():
            what = event.source.replace("_", " ") + (", the last" if event.final else "")
            what += f"; {event.note}" if event.note else ""
            line = f"⇠ {event.tool} ({what}): {plain_text(event.content)}"
        case QuestionAsked() | QuestionEnded():
            line = _of_question(event)
        case ThreadSpawned():
            line = f"+ {event.child_id}{' for an event' if event.event else ''}"
        case Summarized():
            line = f"— compacted: {event.before:,} -> {event.after:,} tokens"
        case Notice() | OutputGiven():
            line = _of_notice(event)
        case CompletionFinished(interrupted=True):
            line = "[interrupted]"
        case _:
            return ""
    return shorten(line, room)


def _of_notice(event: Notice | OutputGiven) -> str:
    if isinstance(event, OutputGiven):
        return f"✗ no answer: {event.problem}" if event.problem else f"= {event.value}"
    return f"— {event.kind.replace('_', ' ')}{': ' if event.text else ''}{event.text}"


def _of_question(event: QuestionAsked | QuestionEnded) -> str:
    if isinstance(event, QuestionAsked):
        choices = ", ".join(f"{number} {choice}" for number, choice in enumerate(event.choices, 1))
        return f"? {event.prompt} [{choices}]"
    if event.outcome == "answered":
        return f"! {event.user or 'somebody'} answers: {event.text}"
    expired = event.outcome == "expired"
    return (
        f"! {'nobody answered in time, so that this counts' if expired else 'the question was dismissed'}: {event.text}"
    )


class JsonLines:
    """Prints events as JSON, one a line."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def tell(self, event: AgentEvent) -> None:
        """Print one event."""
        self._stream.write(msgspec.json.encode(to_record(event)).decode() + "\n")
        self._stream.flush()

    def end(self) -> None:
        """There is nothing to be ended."""
