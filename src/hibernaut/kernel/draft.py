"""What a round has decided so far: the value that the rules of this package write into.

The rules are pure: they get a draft, what came in and the time, and write down what should happen. Nothing of a
draft is real before it is sealed into a `SliceCommit` and a store has taken that.
"""

import hashlib
from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

from hibernaut.codec import sha256, to_json
from hibernaut.ids import call_id
from hibernaut.kernel.authority import OPEN, Judge
from hibernaut.kernel.commit import Blob, Chosen, Disposition, Effect, NewThread, Outgoing
from hibernaut.kernel.forms import Output
from hibernaut.kernel.head import Call, CallState, Head, metadata_of
from hibernaut.kernel.limits import REMEMBERED_ARGUMENTS, REMEMBERED_CALLS, ThreadOptions
from hibernaut.kernel.provenance import UNREADABLE, Entry, call_named_by, entry_of
from hibernaut.messages.inputs import Delivered, InputContent, InputMessage, Report, Timer, TimerPurpose, ToolResult
from hibernaut.messages.items import EventItem, Item, NoticeItem, OutsideItem, ResultItem
from hibernaut.messages.parts import Content, plain_text
from hibernaut.messages.text import excerpt

EVENT_POSITIONS = 10_000
"""Events get call ids from positions that no call of a turn reaches."""


WAITS_FOR_LEAVE = (
    "[It waits for a person to allow it. Once that is given it runs, and its result arrives as an event, "
    "as a refusal would.]"
)
NEVER_BEGUN = "Not run: it was called off before a person had allowed it."


class Outside(msgspec.Struct, frozen=True):
    """What is known of where an event comes from: the number it has, and the highest one before it. 0: none."""

    sequence: int = 0
    before: int = 0


def outside_item(name: str, call: Call, content: Content, outside: Outside, *, final: bool) -> OutsideItem:
    """Return an event of a subscription as an item of that id."""
    return OutsideItem(
        name,
        call.id,
        call.tool,
        call.arguments,
        content,
        final=final,
        server=call.server,
        sequence=outside.sequence,
        before=outside.before,
    )


def word_of(call: Call) -> str:
    """Return the id of the message that says that a call was cancelled."""
    return f"cancelled:{call.id}"


class Found(msgspec.Struct, frozen=True):
    """What was looked up for the inputs of a round, since the rules look up nothing."""

    authorities: Mapping[bytes, Judge] = {}
    """What inputs may change the thread's authority to, by digest ("": its launch's)."""
    misfits: Mapping[str, str] = {}
    """What is wrong with events that do not fit the schemas of their subscriptions, by message id."""
    queued: Mapping[str, Delivered] = {}
    """Messages that operators want dropped or edited and that are not among the inputs, by their ids."""


NOTHING_FOUND: Final = Found()


class Draft(msgspec.Struct, eq=False, gc=False):
    """A round being worked out. `head` is the draft's own and is changed in place.

    Of most things a round has none or one: those are tuples, and what is added makes another one.

    `now` is the moment from which timers are counted: whoever asks the model sets it anew before folding the answer.
    """

    head: Head
    options: ThreadOptions
    now: int
    family: int = 0
    """Threads that live below the root of this one's tree."""
    authority: Judge = OPEN
    """What the thread may do."""
    found: Found = NOTHING_FOUND
    """What was looked up for the inputs."""
    items: list[Item] = []
    dispositions: list[tuple[str, Disposition]] = []
    provenance: dict[str, Entry] = {}
    """Where inputs came from, by message id, as far as their ids do not say so."""
    notes: dict[str, str] = {}
    """What there is to say of events, by message id: why one is refused, or that others are missing before it."""
    warned: set[str] = set()
    """Subscriptions of which people are told that an event was refused."""
    deferred: tuple[tuple[str, int], ...] = ()
    dropped: tuple[str, ...] = ()
    edited: dict[str, InputMessage] = {}
    """What operators have changed in messages that wait: what these are now, by their ids,"""
    edits: tuple[tuple[str, bytes, bytes], ...] = ()
    """and for each change the id, and the digests of what it said before and of what it says now."""
    resumed_by: str = ""
    """The input that lets a stopped or parked thread go on."""
    effects: tuple[Effect, ...] = ()
    blobs: tuple[Blob, ...] = ()
    outgoing: tuple[Outgoing, ...] = ()
    settled: tuple[str, ...] = ()
    spawned: tuple[NewThread, ...] = ()
    calls: tuple[str, ...] = ()
    events: int = 0
    queueing: bool = False
    """An input before the present one waits for an open call."""
    retrying: bool = False
    """It is time to try again after a failure."""
    reauthorized: bool = False
    """An operator has given it another authority."""
    compacting: bool = False
    """An operator wants the history compacted."""
    open_before: tuple[str, ...] = ()
    """Calls that the stored history leaves open."""
    turn_end: int = 0
    """How many items there are up to the end of the turn that the model has just made."""
    output: Output | None = None
    """What is wanted of the answer that a program waits for, where it is to have a form."""
    closing: tuple[str, str] | None = None
    """The model ends the thread with this turn: why, and its report."""
    blocked: dict[str, int] = {}
    """Subscriptions and children of which an event or a report waits: those behind it wait too, and until when.

    0: for an open call."""
    patience: dict[str, int] = {}
    """Messages that wait for something else than an open call, and until when."""

    def __post_init__(self) -> None:
        self.open_before = self.head.turn

    def dispose(self, arrived: Delivered, disposition: Disposition, tool: str = "") -> None:
        """Give an input its final disposition. `tool` is that of the call that it names."""
        message = arrived.message
        note = self.notes.get(arrived.message_id, "")
        entry = entry_of(message, tool, self.head, note) if message is not None else UNREADABLE
        if entry:
            self.provenance[arrived.message_id] = entry
        self.dispositions.append((arrived.message_id, disposition))

    def dispose_all(self, arrived: Iterable[Delivered], disposition: Disposition) -> None:
        """Give inputs the same final disposition."""
        for one in arrived:
            call = self.head.calls.get(call_named_by(one.message_id))
            self.dispose(one, disposition, call.tool if call is not None else "")

    def notice(self, kind: str, text: str = "") -> None:
        """Tell people what happened to the thread."""
        self.items.append(NoticeItem(kind, text))

    def timer(self, purpose: TimerPurpose, due: int, call: str = "", *, name: str = "") -> str:
        """Set a timer and return its message id, the `name`. Timers are messages with a due time."""
        head = self.head
        message_id = name or f"{purpose}:{call or head.version + 1}"
        content = Timer(purpose, due, call)
        self.outgoing += (Outgoing(InputMessage(message_id, head.thread_id, content, "engine"), due),)
        return message_id

    def withdraw(self, timer: str) -> None:
        """Take a timer back, whether it is set already or was to be set by this round."""
        kept = tuple([out for out in self.outgoing if out.message.message_id != timer])
        if len(kept) == len(self.outgoing):
            self.dropped += (timer,)
        self.outgoing = kept

    def take_metadata(self, metadata: str) -> None:
        """Give the thread other metadata: for what is asked for from now on, not for the calls that there are."""
        if metadata == self.head.metadata:
            return
        for call in self.head.calls.values():
            call.metadata = metadata_of(self.head, call)
        self.head.metadata = metadata

    def send(self, message_id: str, content: InputContent, thread_id: str = "") -> None:
        """Put a message into the inbox of a thread; this one's by default."""
        to = thread_id or self.head.thread_id
        self.outgoing += (Outgoing(InputMessage(message_id, to, content, f"thread:{self.head.thread_id}")),)

    def report(self, message_id: str, content: Content) -> None:
        """Tell the parent something."""
        if self.head.link is not None:
            self.head.reported = True
            self.send(message_id, Report(self.head.thread_id, content), self.head.link.parent)

    def keep(self, data: bytes) -> bytes:
        """Store bytes beside the thread, and return the digest that they are found by."""
        blob = Blob(sha256(data), data)
        if blob not in self.blobs:
            self.blobs += (blob,)
        return blob.digest

    # What the model owes

    @property
    def wants_completion(self) -> bool:
        """Tell whether the model must be asked now."""
        head = self.head
        return head.owes and head.status == "open" and not head.turn and (self.retrying or not head.attempts)

    def forget_failures(self) -> None:
        """Begin to count failed completions anew; the timer that would try again is taken back."""
        self.head.attempts = 0
        if self.head.retry:
            self.withdraw(self.head.retry)
            self.head.retry = ""

    # The calls of the last turn

    def turn_calls(self) -> list[Call]:
        """Return the calls of the turn that have no result in history yet, in order."""
        calls = self.head.calls
        return [calls[name] for name in self.head.turn]

    def answer(self, call: Call, content: Content, *, is_error: bool = False, display: str = "") -> None:
        """Give a call of the turn its result."""
        call.state = "answered"
        self.hold(call, content, is_error=is_error, display=display)

    def hold(self, call: Call, content: Content, *, is_error: bool = False, display: str = "") -> None:
        """Keep the result of a call until those before it in the turn have theirs; the call's state stays."""
        call.held = ResultItem(call.id, content, is_error, display)
        self.drop_timer(call)

    def detach(self, call: Call, placeholder: str) -> None:
        """Let a working call go on beside the conversation: its result will come as an event. Its deadline stays."""
        call.state = "detached"
        call.held = ResultItem(call.id, WAITS_FOR_LEAVE if call.approval else placeholder)

    def drop_timer(self, call: Call) -> None:
        """Take back the timer of a call."""
        if call.timer:
            self.withdraw(call.timer)
            call.timer = ""

    def end_work(self, call: Call, state: CallState, content: str) -> None:
        """End a working call from our side. Should its result come all the same, it is shown."""
        self.hold(call, NEVER_BEGUN if call.approval else content, is_error=True)
        self.forget_work(call, state)

    def forget_work(self, call: Call, state: CallState) -> None:
        """Cancel what works for a call, if anything does, and remember it for a late result."""
        if call.approval:
            call.approval = ""
            self.remember(call, state)
            return
        request = f"{call.id}:cancel"
        self.effects += (Effect(request, "cancel", call.id, call.tool, local=not call.server, server=call.server),)
        self.remember(call, state)

    def tell_choice(self, call: Call, question_id: str, url: str, selected: int) -> None:
        """Owe a tool server the answer to a question that it asked."""
        chosen = to_json(msgspec.to_builtins(Chosen(url, selected)))
        effect = Effect(f"answer:{question_id}", "answer", call.id, call.tool, chosen, local=False, server=call.server)
        self.effects += (effect,)

    def tell_closed(self, servers: Iterable[str]) -> None:
        """Owe tool servers the word that the thread has ended."""
        for server in dict.fromkeys(servers):
            request = f"close:{self.head.thread_id}:{server}"
            self.effects += (Effect(request, "close", "", "", local=False, server=server),)

    def remember(self, call: Call, state: CallState) -> None:
        """Keep a call that is over for us, for a late result."""
        call.state = state
        call.event_schema, call.since = b"", 0
        call.arguments = excerpt(call.arguments, REMEMBERED_ARGUMENTS)
        self.drop_timer(call)
        over = [name for name, other in self.head.calls.items() if other.state in ("cancelled", "expired")]
        for name in over[: max(0, len(over) - REMEMBERED_CALLS)]:
            if name not in self.head.turn:
                del self.head.calls[name]

    def release_results(self) -> None:
        """Append the results that may be appended: in the order of the calls, up to the first that is missing."""
        head = self.head
        done = 0
        for name in head.turn:
            call = head.calls[name]
            if call.held is None:
                break
            self.items.append(call.held)
            call.held = None
            if call.state == "answered":
                del head.calls[name]
            done += 1
        if done:
            head.turn = head.turn[done:]
            head.owes = True

    # Events

    def inject(
        self,
        call: Call,
        content: Content,
        source: str,
        *,
        final: bool = False,
        is_error: bool = False,
        display: str = "",
        thread_id: str = "",
        outside: Outside | None = None,
    ) -> None:
        """Put an event about a call into the history."""
        head = self.head
        name = call_id(head.salt, head.version + 1, EVENT_POSITIONS + self.events)
        self.events += 1
        self.items.append(
            EventItem(name, call.id, call.tool, call.arguments, content, source, final, is_error, display, thread_id)
            if outside is None
            else outside_item(name, call, content, outside, final=final)
        )
        head.owes = True

    def tell_later(self, call: Call, content: str) -> None:
        """Send the thread word of a call that is cancelled beside the conversation; it arrives as an event."""
        content = NEVER_BEGUN if call.approval else content
        self.send(word_of(call), ToolResult(call.id, content, is_error=True))

    # Bounds

    def park(self, reason: str) -> None:
        """Give the thread up for now, visibly; user text or an operator tries again. A parent hears of it."""
        head = self.head
        head.status = "parked"
        head.reason = reason
        self.notice("parked", reason)
        self.report(f"parked:{head.thread_id}:{head.version + 1}", f"It cannot go on, and waits for people: {reason}")

    def watch_repeats(self, call: Call, content: Content, *, is_error: bool) -> None:
        """Count calls that fail the same way in a row, and park the thread when there are too many."""
        head = self.head
        if not is_error:
            head.repeats, head.repeated = 0, b""
            return
        failure = f"{call.tool}\0{call.arguments}\0{plain_text(content)}".encode()
        digest = hashlib.blake2b(failure, digest_size=8).digest()
        head.repeats = head.repeats + 1 if digest == head.repeated else 1
        head.repeated = digest
        if head.repeats >= self.options.max_repeats and head.status == "open":
            self.park(f"{call.tool} failed the same way {head.repeats} times in a row: {plain_text(content)[:200]}")
