"""Input messages: the only thing that wakes a thread."""

import re
from typing import Final, Literal, TypeGuard

import msgspec

from hibernaut.codec import decoder_of, pack, unpack
from hibernaut.messages.items import Item
from hibernaut.messages.parts import Content


class _Input(msgspec.Struct, frozen=True, array_like=True, gc=False):
    pass


class UserText(_Input, frozen=True, tag="user"):
    """A user speaks. `user` is who; it never changes whose work is already under way."""

    content: Content
    user: str = ""


class Ask(UserText, frozen=True, tag="ask"):
    """A user speaks, and a program waits for the answer, which has to fit `form`.

    That is a JSON Schema of an object, as JSON text; "" where any text is an answer. `origin` is as in the history:
    "" for a person, "runtime" for what the runtime says on behalf of the program.
    """

    form: str = ""
    origin: str = ""


class ToolResult(_Input, frozen=True, tag="result"):
    """A call is answered. `subscription`: it stays open and will bring events.

    `unknown`: the runtime answers it, since nobody knows how it ended. Should its own result come all the same, that is
    shown.
    """

    call_id: str
    content: Content
    is_error: bool = False
    subscription: bool = False
    display: str = ""
    unknown: bool = False


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


TimerPurpose = Literal["sleep", "deadline", "retry", "question", "expiry"]


class Timer(_Input, frozen=True, tag="timer"):
    """A moment has come. `call_id` names the call, or of a "question" that; a "retry" has none.

    A "sleep" is over, a "deadline" has passed, it is time for a "retry", nobody has answered a "question", or the time
    of a subscription is up ("expiry").
    """

    purpose: TimerPurpose
    due: int
    call_id: str = ""


class Command(_Input, frozen=True, tag="command"):
    """An operator (or the user's client) steers the thread. "cancel" names a call.

    "retry" lets a parked thread go on, and does not wait before a completion that failed is tried again. "authorize"
    gives the thread another authority, a blob of that digest; without one, that of its launch again.
    """

    action: Literal["stop", "resume", "park", "retry", "cancel", "close", "compact", "authorize"]
    call_id: str = ""
    reason: str = ""
    authority: bytes = b""


class Settlement(_Input, frozen=True, tag="settle"):
    """An operator answers a call by hand, whatever its status. Should its own result come all the same, that is shown.

    With `is_error` nobody knows how the call ended. `user` is who says so.
    """

    call_id: str
    content: Content
    is_error: bool = False
    reason: str = ""
    user: str = ""


class Drop(_Input, frozen=True, tag="drop"):
    """An operator takes back a message that waits, before the thread has read it."""

    message_id: str
    reason: str = ""


class Edit(_Input, frozen=True, tag="edit"):
    """An operator changes what a message says that waits. It keeps its id, its sender and its place."""

    message_id: str
    content: Content
    reason: str = ""


class Forked(_Input, frozen=True, tag="fork"):
    """A root begins as a fork: after what it shares with another thread come these items, which say where it is.

    `owes`: what it shares ends on the user's side.
    """

    items: tuple[Item, ...]
    owes: bool = False
    reason: str = ""


class Seed(_Input, frozen=True, tag="seed"):
    """A child begins: after what it inherits come these items, which say where it is and what it is for."""

    items: tuple[Item, ...]


class Report(_Input, frozen=True, tag="report"):
    """A child tells its parent something. `closed`: it has ended; then the content may be empty."""

    child_id: str
    content: Content = ""
    closed: bool = False


class ParentMessage(_Input, frozen=True, tag="parent"):
    """A parent tells its child something."""

    content: Content


class Question(_Input, frozen=True, tag="question"):
    """A call asks a person; see `hibernaut.messages.items.QuestionItem`.

    With a `reply_url` the call works on a tool server, which wants the answer there.
    """

    question_id: str
    call_id: str
    prompt: str
    choices: tuple[str, ...]
    default: int = 0
    due: int = 0
    url: str = ""
    reply_url: str = ""


class Answer(_Input, frozen=True, tag="answer"):
    """A person answers a question with the choice of this number (the first is 0). `user` is who."""

    question_id: str
    choice: int
    user: str = ""


class Orphaned(_Input, frozen=True, tag="orphaned"):
    """The process that worked on a call has ended while the call waits for a person's answer."""

    call_id: str


InputContent = (
    UserText
    | Ask
    | ToolResult
    | Event
    | Timer
    | Command
    | Settlement
    | Drop
    | Edit
    | Forked
    | Seed
    | Report
    | ParentMessage
    | Question
    | Answer
    | Orphaned
)


Word = UserText | Event | Report | ParentMessage
"""What somebody says to a thread."""


def is_word(content: InputContent) -> TypeGuard[Word]:
    """Tell whether operators may drop or edit a message with this content while it waits: somebody says something.

    What ends a call, a subscription or a child has to be heard: otherwise the thread would wait for it for ever.
    """
    if isinstance(content, Event):
        return not content.final
    return isinstance(content, UserText | ParentMessage) or (isinstance(content, Report) and not content.closed)


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


class Delivered(msgspec.Struct, frozen=True, gc=False):
    """One message as its inbox hands it over. `message` is None when it cannot be read; then `problem` says why."""

    message_id: str
    accepted: int
    """When it was stored, milliseconds since 1970."""
    message: InputMessage | None
    problem: str = ""
    due: int = 0
    """When it wakes the thread; later than now for one that was left to wait."""


USER, RESULT, EVENT, UPKEEP = range(4)
"""Classes of urgency, most urgent first."""

_URGENCIES: Final[dict[type, int]] = {
    **dict.fromkeys((UserText, Ask, Command, Settlement, Drop, Edit), USER),
    **dict.fromkeys((Event, Report, ParentMessage), EVENT),
}
"""Those that always have the same one, and another than `RESULT`."""


def urgency(content: InputContent) -> int:
    """Return how urgent an input is: user text and what operators say, then results, then events, then upkeep.

    What a person did not say must never be of class `USER`: it would wake stopped threads.
    """
    if type(content) is Timer:
        return UPKEEP if content.purpose in ("deadline", "retry", "expiry") else RESULT
    return _URGENCIES.get(type(content), RESULT)


_OF_THE_RUNTIME: Final = re.compile(
    r"retry:\d+|again:[0-9a-f]{32}"
    r"|(result|unknown|sleep|deadline|expiry|cancelled|asked|settled|orphaned|event|report|parent):call_[0-9a-z]{16}(:.*)?"
    r"|(question|ask|answer|unauthorized):q_.*|(report|stopped|parked):thread_[0-9a-z]{24}:\d+|(closed|close|seed):thread_.*",
    re.DOTALL,
)
"""The ids of the messages that the runtime makes, or has made, for a thread that is there."""


def is_of_the_runtime(message_id: str) -> bool:
    """Tell whether a message id is of a form in which the runtime names messages of its own."""
    return ":" in message_id and _OF_THE_RUNTIME.fullmatch(message_id) is not None


def event_message(thread_id: str, event: Event, sender: str, metadata: str = "") -> InputMessage:
    """Return the message that brings an event: one id for one event of a subscription, however often it is sent."""
    return InputMessage(f"event:{event.call_id}:{event.event_id}", thread_id, event, sender, metadata)


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
