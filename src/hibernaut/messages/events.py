"""Agent events: everything that a person (or a program that watches) sees of a thread.

Events come from two places. What is stored gives the same events for ever: they are read off the pages of the
history, and each has a cursor at which a reader can go on. What is being said right now gives `TextChunk`s and
`ThinkingChunk`s before they are stored; if that attempt fails, `TurnDiscarded` takes all of it back.

A reader that was cut off passes the cursor of the last event it saw and gets what follows: nothing twice,
nothing left out.
"""

from typing import Any

import msgspec

from hibernaut.errors import MalformedInput
from hibernaut.messages.parts import Content, Excerpt, Part, Text


class Usage(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Tokens that one completion took. `input` includes `cached`."""

    input: int = 0
    output: int = 0
    cached: int = 0


class AgentEvent(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag=True):
    """Something that happened in a thread. `cursor` is where to go on after it."""

    thread_id: str
    cursor: str = ""


class UserInput(AgentEvent, frozen=True, kw_only=True):
    """The user said something."""

    content: Content
    user: str = ""
    origin: str = ""


class CompletionStarted(AgentEvent, frozen=True, kw_only=True):
    """The model was asked."""


class TextChunk(AgentEvent, frozen=True, kw_only=True):
    """The model said this, after what it said before in the same turn."""

    text: str


class ThinkingChunk(AgentEvent, frozen=True, kw_only=True):
    """The model thinks, in words that may be shown."""

    text: str


class ToolCall(AgentEvent, frozen=True, kw_only=True):
    """The model called a tool."""

    call_id: str
    tool: str
    arguments: str
    display: str = ""
    """The call as people read it; "" for its name and arguments."""


class TurnDiscarded(AgentEvent, frozen=True, kw_only=True):
    """The attempt came to nothing: forget every event of its thread since the last one whose cursor has no `~` in it.

    What of it is stored after all (what the user said, and a notice that says why) comes again.
    """


class CompletionFinished(AgentEvent, frozen=True, kw_only=True):
    """The turn is complete and stored. `interrupted`: the user cut it short.

    `estimated`: so many of the tokens are an estimate, since no provider says what such a completion took.
    """

    usage: Usage = Usage()
    interrupted: bool = False
    estimated: int = 0


class ToolProgress(AgentEvent, frozen=True, kw_only=True):
    """A running tool says how far it is. Live only, never stored."""

    call_id: str
    text: str


class ViewChanged(AgentEvent, frozen=True, kw_only=True):
    """What a tool server shows people beside the conversation, of one kind, is now this (`content` is JSON text).

    It has no cursor: it is not part of what happened, but how something stands.
    """

    view_type: str
    content: str


class ToolResult(AgentEvent, frozen=True, kw_only=True):
    """A call was answered."""

    call_id: str
    content: Content
    is_error: bool = False
    display: str = ""


class SubscriptionEvent(AgentEvent, frozen=True, kw_only=True):
    """Something reached the thread about an earlier call: an event, a late result, a report."""

    call_id: str
    tool: str
    content: Content
    source: str
    final: bool = False
    is_error: bool = False
    display: str = ""
    origin: str = ""
    """The thread that it comes from: of a report the child, of a parent's message the parent."""
    note: str = ""
    """What is to be known of it: that others before it have not come, or that it came late."""


class Summarized(AgentEvent, frozen=True, kw_only=True):
    """What the thread inherited and its first `covers` items are now shown to the model as this summary.

    `before` and `after` are the tokens of what the model is shown, as estimated, without and with it.
    """

    text: str
    covers: int
    before: int = 0
    after: int = 0


class ThreadSpawned(AgentEvent, frozen=True, kw_only=True):
    """A child was made: by `spawn_thread`, or (`event`) for one event of a subscription."""

    child_id: str
    call_id: str
    event: bool = False


class QuestionAsked(AgentEvent, frozen=True, kw_only=True):
    """A call waits for a person, who answers with one of the choices (or goes to the `url` to authorize something)."""

    question_id: str
    call_id: str
    prompt: str
    choices: tuple[str, ...]
    default: int = 0
    due: int = 0
    url: str = ""


class QuestionEnded(AgentEvent, frozen=True, kw_only=True):
    """A question is over: "answered", "expired" (its default counts) or "dismissed"."""

    question_id: str
    call_id: str
    outcome: str
    choice: int = -1
    text: str = ""
    user: str = ""


class OutputGiven(AgentEvent, frozen=True, kw_only=True):
    """A program that asked with message `ask_id` has its answer: text, or JSON of the form that it asked for.

    With a `problem` there is no answer, and that is why.
    """

    ask_id: str
    value: str
    problem: str = ""


class Notice(AgentEvent, frozen=True, kw_only=True):
    """Something happened to the thread itself; see `NoticeItem` for the kinds."""

    kind: str
    text: str = ""


class Cursor(msgspec.Struct, frozen=True):
    """A place in a thread's feed.

    `version` and `index`: the stored entries up to entry `index` of the commit that made head `version` were seen.
    Inside a turn that is not stored yet there is more: `attempt` names the completion (unique for the thread), and
    `seen` counts the characters of it that were seen. Written as `12.3` or `12.3~7:120`.
    """

    version: int = 0
    index: int = 0
    attempt: int = 0
    seen: int = 0

    def __str__(self) -> str:
        stored = f"{self.version}.{self.index}"
        return f"{stored}~{self.attempt}:{self.seen}" if self.attempt else stored

    @classmethod
    def parse(cls, text: str) -> "Cursor":
        """Read a cursor; "" is the beginning.

        Raises:
            MalformedInput: it is not a cursor.
        """
        if not text:
            return cls()
        stored, _, partial = text.partition("~")
        try:
            version, _, index = stored.partition(".")
            attempt, _, seen = partial.partition(":")
            numbers = int(version), int(index or 0), int(attempt or 0), int(seen or 0)
        except ValueError:
            numbers = (-1, 0, 0, 0)
        if min(numbers) < 0:
            raise MalformedInput(f"{text!r} is not a cursor; take one from an event")
        return cls(*numbers)


def to_record(event: AgentEvent) -> dict[str, Any]:
    """Return the event as plain values, fit for JSON; images as their type and size."""
    record: dict[str, Any] = msgspec.to_builtins(event)
    for name in ("content", "usage"):
        value = getattr(event, name, None)
        if isinstance(value, Usage):
            record[name] = msgspec.structs.asdict(value)
        elif value is not None:
            record[name] = content_record(value)
    return record


def content_record(content: Content) -> str | list[dict[str, Any]]:
    """Return a content as plain values, fit for JSON; images as their type and size."""
    return content if isinstance(content, str) else [_part_record(part) for part in content]


def _part_record(part: Part) -> dict[str, Any]:
    if isinstance(part, Text):
        return {"type": "text", "text": part.text}
    if isinstance(part, Excerpt):
        return {"type": "excerpt", "text": part.text, "bytes": part.size, "blob": part.blob.hex()}
    record = {"type": "image", "media_type": part.media_type, "bytes": len(part.data), "blob": part.blob.hex()}
    return record | {"url": part.url}
