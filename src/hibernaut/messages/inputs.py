"""Input messages: the only thing that wakes a thread."""

from typing import Literal

import msgspec

from hibernaut.codec import decoder_of, pack, unpack
from hibernaut.messages.parts import Content


class _Input(msgspec.Struct, frozen=True, array_like=True, gc=False):
    pass


class UserText(_Input, frozen=True, tag="user"):
    """A user speaks. `user` is who; it never changes whose work is already under way."""

    content: Content
    user: str = ""


class ToolResult(_Input, frozen=True, tag="result"):
    """A call is answered. `subscription`: it stays open and will bring events."""

    call_id: str
    content: Content
    is_error: bool = False
    subscription: bool = False
    display: str = ""


class Event(_Input, frozen=True, tag="event"):
    """Something happened that a subscription watches for.

    `associative` events are put into the thread itself; the others get a thread of their own. `final` ends the
    subscription. `event_id` makes a repeated delivery one event; `sequence` shows gaps (0: not given).
    """

    call_id: str
    content: Content
    event_id: str = ""
    associative: bool = False
    final: bool = False
    sequence: int = 0


TimerPurpose = Literal["sleep", "deadline", "retry"]


class Timer(_Input, frozen=True, tag="timer"):
    """A moment has come. For a "sleep" and a "deadline" `call_id` names the call; a "retry" is the thread's own."""

    purpose: TimerPurpose
    due: int
    call_id: str = ""


class Command(_Input, frozen=True, tag="command"):
    """An operator (or the user's client) steers the thread. "cancel" names a call."""

    action: Literal["stop", "resume", "park", "cancel", "close"]
    call_id: str = ""
    reason: str = ""


InputContent = UserText | ToolResult | Event | Timer | Command


class InputMessage(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One input on its way into a thread.

    `message_id` is the sender's and stable: the same id twice is the same input. `sender` is provenance: who handed
    it in ("api", "cli", "tool:NAME", "engine", …). `metadata` is JSON text that replaces the thread's own, or "".
    """

    message_id: str
    thread_id: str
    content: InputContent
    sender: str = ""
    metadata: str = ""


class Delivered(msgspec.Struct, frozen=True):
    """One message as its inbox hands it over. `message` is None when it cannot be read; then `problem` says why."""

    message_id: str
    accepted: int
    """When it was stored, milliseconds since 1970."""
    message: InputMessage | None
    problem: str = ""


USER, RESULT, EVENT, UPKEEP = range(4)
"""Classes of urgency, most urgent first."""


def urgency(content: InputContent) -> int:
    """Return how urgent an input is: user text and commands, then results, then events, then upkeep."""
    if isinstance(content, UserText | Command):
        return USER
    if isinstance(content, ToolResult):
        return RESULT
    if isinstance(content, Event):
        return EVENT
    return RESULT if content.purpose == "sleep" else UPKEEP


_decoder = decoder_of(InputMessage)


def encode_input(message: InputMessage) -> bytes:
    """Write an input for the inbox."""
    return pack(message)


def decode_input(data: bytes) -> InputMessage:
    """Read an input from the inbox.

    Raises:
        StoreCorrupt: it cannot be read (or a newer version wrote a kind that this one does not know).
    """
    return unpack(data, _decoder, "an input message")
