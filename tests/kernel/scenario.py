"""A thread as a store keeps it, without a store: a head, a log, an inbox and an outbox, in plain values.

`run` makes rounds until the thread waits. Every round is worked out twice from the same bytes, as after a crash, and
must come to the same commit; every commit is checked against the invariants.
"""

import msgspec

from hibernaut.kernel.authority import OPEN, Judge
from hibernaut.kernel.commit import Disposition, Effect, NewThread, SliceCommit
from hibernaut.kernel.compaction import (
    NOTHING,
    Material,
    OwnPage,
    Pressure,
    choose_cut,
    complete,
    facts_of,
    give_up,
    shown_summary,
    take_summary,
    task_of,
)
from hibernaut.kernel.draft import Draft, Found
from hibernaut.kernel.ending import NOT_RUN, STOPPED, WOKEN
from hibernaut.kernel.fold import (
    Failure,
    Judged,
    Refusal,
    Rest,
    Run,
    Settled,
    fold_failure,
    fold_interrupted,
    fold_turn,
)
from hibernaut.kernel.forms import Given, Output, Unfit
from hibernaut.kernel.head import Head, LoadedHead, Summary, decode_head, encode_head
from hibernaut.kernel.limits import ThreadOptions
from hibernaut.kernel.outputs import form_wanted
from hibernaut.kernel.prepare import INTERRUPTED, prepare
from hibernaut.kernel.provenance import call_named_by, provenance_of, read_entry
from hibernaut.kernel.receipt import Receipt, TurnCommit, decode_receipt, next_history
from hibernaut.kernel.seal import Asked, seal
from hibernaut.kernel.transcript import MISSING_RESULT, Transcript, validate
from hibernaut.kernel.turn import Turn, TurnCall, TurnPart, TurnText
from hibernaut.kernel.waiting import STILL_RUNNING
from hibernaut.messages.events import Usage
from hibernaut.messages.inputs import (
    USER,
    Command,
    Delivered,
    Event,
    InputContent,
    InputMessage,
    Timer,
    ToolResult,
    UserText,
    decode_input,
    encode_input,
    urgency,
)
from hibernaut.messages.items import (
    EVENT_TOOL,
    CallItem,
    EventItem,
    Item,
    NoticeItem,
    ReasoningItem,
    ResultItem,
    SummaryItem,
    TextItem,
    UserItem,
    decode_page,
    encode_page,
)
from hibernaut.messages.parts import plain_text
from hibernaut.messages.stream import ReasoningBlock, StopReason
from hibernaut.tools.builtin import BUILT_IN
from tests.kernel.invariants import check

START = 1_700_000_000_000
SECOND = 1_000
MINUTE = 60 * SECOND
HOUR = 60 * MINUTE


NAMES = {
    INTERRUPTED: "INTERRUPTED",
    NOT_RUN: "NOT_RUN",
    STILL_RUNNING: "STILL_RUNNING",
    STOPPED: "STOPPED",
    WOKEN: "WOKEN",
}

FULL = Pressure(1_000, 1_000, 1_000)


Reaction = Turn | Failure


# What the model says


def call(tool: str, arguments: str = "{}", *, complete: bool = True) -> TurnCall:
    return TurnCall(tool, f"toolu_{tool}", [arguments], complete=complete)


def says(*parts: str | TurnPart, reason: StopReason = "end", usage: Usage | None = None) -> Turn:
    """Return a turn; a plain text stands for itself."""
    whole = [TurnText(part) if isinstance(part, str) else part for part in parts]
    return Turn(tuple(whole), reason, usage or Usage(10, 5))


def calls(*tools: str) -> Turn:
    return says(*[call(tool) for tool in tools])


def cut_short(*parts: str | TurnPart) -> Turn:
    """Return a turn that the user interrupted."""
    return msgspec.structs.replace(says(*parts), reason="interrupted", usage=Usage())


REASONING = ReasoningBlock("anthropic", b"signed", "Let me think.")
OVERLOADED = Failure("overloaded", "try later", retryable=True)


TOOLS: dict[str, Refusal | Settled | Rest | Run] = {
    "build": Run("background"),
    "check": Run("background"),
    "publish": Run("background"),
    "order": Run("background", server="forge"),
    "wipe": Run("background"),
    "read": Run("inline"),
    "deploy": Run("background", deadline=MINUTE),
    "watch": Run("subscription"),
    "follow": Run("subscription", deadline=MINUTE),
    "linger": Run("background", passive=True),
    "sleep": Rest(delay=10 * SECOND),
    "sleep_until": Rest(due=START + 10 * SECOND),
    "rest": Rest(),
    "note": Settled("Noted."),
    "broken": Refusal("broken needs a path"),
}


ANNOTATIONS: dict[str, tuple[str, ...]] = {"wipe": ("destructive",), "order": ("idempotent",)}

GOOD = '{"good":1}'
"""An answer in the form that is asked for."""

FAMILY = {function.__name__: function for function in BUILT_IN[:5]}
"""The built-in tools for children and subscriptions."""


class FakeTools:
    """Knows a few tools of each kind."""

    def judge(self, tool: str, arguments: str, now: int) -> Judged:
        if tool in FAMILY:
            return Judged(FAMILY[tool](**msgspec.json.decode(arguments)), arguments)
        if tool == EVENT_TOOL or tool.startswith("__harness_"):
            return Judged(Refusal(f"{tool} is a reserved name"))
        if tool == "title":
            return Judged(Settled("Renamed.", title=arguments), arguments)
        if tool not in TOOLS:
            return Judged(Refusal(f"there is no tool {tool}"))
        return Judged(TOOLS[tool], arguments, annotations=ANNOTATIONS.get(tool, ()))


class FakeForm:
    """Takes what is good."""

    def judge(self, text: str) -> Given | Unfit:
        return Given(GOOD) if text == GOOD else Unfit("it is not good")


# The thread


class Letter(msgspec.Struct):
    data: bytes
    accepted: int
    due: int
    deferred: bool = False

    @property
    def message(self) -> InputMessage | None:
        return decode_input(self.data) if self.data else None

    @property
    def is_ours(self) -> bool:
        return self.message is not None and self.message.sender == "engine"

    @property
    def content(self) -> InputContent | None:
        return self.message.content if self.message else None


class Thread:
    def __init__(self, options: ThreadOptions | None = None, name: str = "t") -> None:
        self.options = options or ThreadOptions()
        self.authority = OPEN
        """What it may do."""
        self.authorities: dict[bytes, Judge] = {}
        """What it may be given, by digest."""
        self.name = name
        self.now = START
        self.inherited: list[Item] = []
        """What its model is shown before its own items."""
        self.others: dict[str, Thread] = {name: self}
        """The threads of its tree, itself among them."""
        self.start = b""
        """The history digest that its chain starts from."""
        self.thinking = 0
        """Milliseconds that the model takes for an answer."""
        self.stored = encode_head(Head(name, b"saltsalt", bytes(32)))
        self.log: list[tuple[bytes, bytes]] = []
        self.items: list[Item] = []
        self.inbox: dict[str, Letter] = {}
        self.fates: dict[str, Disposition] = {}
        self.received: dict[str, InputContent] = {}
        """What other threads of its tree have sent it."""
        self.outbox: dict[str, Effect] = {}
        self.owed: list[str] = []
        self.told: list[Effect] = []
        """What tool servers were told besides calls and cancellations."""
        self.continues = False
        self.asked = 0
        self.prompt: list[Item] = []
        """What the model was shown last."""
        self.misfits: dict[str, str] = {}
        """What is wrong with events that do not fit their schemas, by message id."""
        self._count = 0

    # Reading it

    @property
    def head(self) -> Head:
        return decode_head(self.stored).head

    @property
    def receipt(self) -> Receipt:
        return decode_receipt(self.log[-1][1])

    @property
    def calls(self) -> list[str]:
        """Ids of all calls, in the order they were made."""
        return [item.id for item in self.items if isinstance(item, CallItem)]

    def story(self, *, notices: bool = False) -> list[str]:
        """Return the history, an entry a line; calls are numbered in the order they were made."""
        numbers = {name: number for number, name in enumerate(self.calls, 1)}
        lines = [_line(item, numbers) for item in self.items]
        return [line for line in lines if notices or not line.startswith("(")]

    def notices(self) -> list[str]:
        return [item.text for item in self.items if isinstance(item, NoticeItem)]

    def state(self, number: int) -> str:
        """Return the state of a call, "gone" when the registry has forgotten it."""
        found = self.head.calls.get(self.calls[number - 1])
        return found.state if found else "gone"

    def running(self) -> list[int]:
        """Return the calls whose invocation is neither over nor cancelled."""
        return [self.calls.index(effect.call_id) + 1 for effect in self.outbox.values()]

    def alarms(self) -> list[str]:
        """Return the timers in the inbox: purpose and seconds from now."""
        timers = [letter.content for letter in self.inbox.values()]
        return [f"{timer.purpose} {(timer.due - self.now) // SECOND}" for timer in timers if isinstance(timer, Timer)]

    # What arrives

    def put(self, content: InputContent, message_id: str = "", *, metadata: str = "", due: int = 0) -> str:
        """Hand an input in, as at the door of a store, and return its message id."""
        self._count += 1
        message_id = message_id or f"m{self._count}"
        if message_id in self.fates or message_id in self.inbox or self.head.status == "closed":
            return message_id
        message = InputMessage(message_id, self.name, content, "test", metadata)
        self.inbox[message_id] = Letter(encode_input(message), self.now, due)
        return message_id

    def put_unreadable(self) -> str:
        self._count += 1
        self.inbox[f"m{self._count}"] = Letter(b"", self.now, 0)
        return f"m{self._count}"

    def user(self, text: str) -> str:
        return self.put(UserText(text))

    def result(self, number: int, text: str = "done", *, is_error: bool = False, subscription: bool = False) -> str:
        return self.put(ToolResult(self.calls[number - 1], text, is_error, subscription))

    def event(self, number: int, text: str, *, final: bool = False) -> str:
        return self.put(Event(self.calls[number - 1], text, associative=True, final=final))

    def stop(self) -> str:
        return self.put(Command("stop"))

    def cancel(self, number: int) -> str:
        return self.put(Command("cancel", self.calls[number - 1]))

    def wait(self, milliseconds: int) -> None:
        """Let time pass, for the whole tree."""
        now = self.now + milliseconds
        for thread in self.others.values():
            thread.now = now

    # Rounds

    def due(self) -> list[Delivered]:
        letters = [(name, letter) for name, letter in self.inbox.items() if letter.due <= self.now or letter.deferred]
        return [Delivered(name, letter.accepted, letter.message, "torn", letter.due) for name, letter in letters]

    def ready(self) -> bool:
        status = self.head.status
        wakes = [
            letter
            for letter in self.inbox.values()
            if letter.due <= self.now
            and (status == "open" or (letter.content is not None and urgency(letter.content) == USER))
        ]
        return status != "closed" and (self.continues or bool(wakes))

    def run(self, *reactions: Reaction) -> "Thread":
        """Make rounds until nothing is to be done; the model reacts in this order, and exactly so often."""
        before = self.asked
        while self.ready():
            answered = self.asked - before
            self.round(reactions[answered] if answered < len(reactions) else None)
        assert self.asked - before == len(reactions), f"the model was asked {self.asked - before} times"
        return self

    def round(self, reaction: Reaction | None = None, *, summary: str = "") -> SliceCommit:
        """Make one round; the model, if it is asked, reacts like this.

        With a `summary` it is asked for that first, and says it, if there is anything to compact.
        """
        inputs = self.due()
        commit = self._work_out(inputs, reaction, summary)
        assert self._work_out(inputs, reaction, summary) == commit, "the same round comes to two commits"
        if decode_receipt(commit.receipt).turn is not TurnCommit.NONE:
            self.asked += 1
            self.wait(self.thinking)
        self._apply(commit)
        named = [name for name, _ in self.receipt.inputs]
        waited = {arrived.message_id for arrived in inputs if arrived.due > self.receipt.started}
        assert {arrived.message_id for arrived in inputs} - waited <= set(named)
        assert set(named) <= {arrived.message_id for arrived in inputs}
        assert len(named) == len(set(named))
        self._check_provenance({arrived.message_id: arrived for arrived in inputs})
        check(self)
        return commit

    def _check_provenance(self, inputs: dict[str, Delivered]) -> None:
        """Check that the receipt says of every input that is done with where it came from."""
        tools = {item.id: item.name for item in self.items if isinstance(item, CallItem)}
        parent = self.head.link.parent if self.head.link else ""
        for (name, fate), entry in zip(self.receipt.inputs, self.receipt.origins, strict=True):
            if Disposition(fate) in (Disposition.DEFERRED, Disposition.HELD):
                continue
            message = inputs[name].message
            told = read_entry(entry, name, tools.get(call_named_by(name), ""), self.name, parent)
            expected = provenance_of(message) if message is not None else None
            if message is not None and expected is not None and told is not None and isinstance(message.content, Event):
                expected = msgspec.structs.replace(expected, reason=told.reason)
            assert told == expected

    def loaded(self) -> LoadedHead:
        return decode_head(self.stored)

    def draft(self) -> Draft:
        """Return the draft of the next round; nothing comes of it."""
        return prepare(
            self.loaded().head,
            self.due(),
            self.options,
            self.now,
            self.family(),
            self.authority,
            Found(self.authorities, self.misfits),
        )

    def family(self) -> int:
        """Return how many threads live below the root."""
        return sum(other.head.link is not None and other.head.status != "closed" for other in self.others.values())

    def _work_out(self, inputs: list[Delivered], reaction: Reaction | None, summary: str) -> SliceCommit:
        loaded = self.loaded()
        family = self.family()
        found = Found(self.authorities, self.misfits)
        draft = prepare(loaded.head, inputs, self.options, self.now, family, self.authority, found)
        asked = Asked()
        if (draft.compacting or (summary and draft.wants_completion)) and self._compact(draft, summary):
            draft.now = self.now + self.thinking
            asked = Asked(TurnCommit.SUMMARIZED)
        elif draft.wants_completion:
            assert reaction is not None, "the model is asked, and nothing says how it reacts"
            self._check_prompt(draft)
            draft.now = self.now + self.thinking
            asked = _react(draft, reaction)
        return seal(draft, asked, started=self.now, now=draft.now, build="test", extra=loaded.extra)

    def _compact(self, draft: Draft, summary: str) -> bool:
        """Let a summary stand for the beginning of the history, if there is one and it has anything to stand for."""
        cut = choose_cut(draft, self.material(), FULL)
        if cut is None or not summary:
            give_up(draft, NOTHING, 0)
            return False
        first = decode_page(self.log[0][0]) if self.log else draft.items
        facts = facts_of(draft.head, task_of(draft.head, first), cut.request)
        take_summary(draft, cut, complete(summary, facts), FULL, 0)
        return True

    def material(self) -> Material:
        """Return what the model is shown of what is stored."""
        return self._material(len(self.log), 0, self.head.summary)

    def _material(self, version: int, more: int, summary: Summary | None) -> Material:
        """Return what it was shown of the pages up to a version, and of so many items of the page after that."""
        pages = [decode_page(page) for page, _ in self.log]
        read = [*pages[:version], pages[version][:more]] if more else pages[:version]
        if summary is None:
            return Material(self.inherited, [OwnPage(number, page) for number, page in enumerate(read, 1)])
        (text,) = [item.text for item in pages[summary.version - 1] if isinstance(item, SummaryItem)]
        kept = [
            OwnPage(number, page[summary.skip :] if number == summary.kept else page)
            for number, page in enumerate(read, 1)
            if number >= summary.kept
        ]
        return Material([shown_summary(text)], kept, summary.covers, summarized=True)

    def _check_prompt(self, draft: Draft) -> None:
        transcript, material = Transcript(), self.material()
        transcript.extend(material.before)
        for page in material.pages:
            transcript.extend(page.items)
        transcript.extend(draft.items)
        self.prompt = transcript.ready()
        assert self.prompt is transcript.items, "a call has no result, and the model is asked"
        assert not any(isinstance(item, ResultItem) and item.content == MISSING_RESULT for item in self.prompt)
        validate(self.prompt)

    def _apply(self, commit: SliceCommit) -> None:
        assert commit.version == len(self.log) + 1
        self.stored, self.continues = commit.head, commit.continues
        self.log.append((commit.page, commit.receipt))
        self.items += decode_page(commit.page)
        for name, fate in self.receipt.inputs:
            if Disposition(fate) not in (Disposition.DEFERRED, Disposition.HELD):
                assert name not in self.fates, f"input {name} has two final dispositions"
                self.fates[name] = Disposition(fate)
        for name in commit.consumed:
            del self.inbox[name]
        for message in commit.rewritten:
            self.inbox[message.message_id].data = encode_input(message)
        for name in commit.dropped:
            letter = self.inbox.pop(name, None)
            assert letter is None or isinstance(letter.content, Timer)
        for name, moment in commit.deferred:
            assert moment > self.receipt.started, "a deferred input would wake the thread at once"
            self.inbox[name].due, self.inbox[name].deferred = moment, True
        for new in commit.spawned:
            self._make(new)
        for out in commit.outgoing:
            name = out.message.message_id
            if out.message.thread_id != self.name:
                self.others[out.message.thread_id].receive(out.message, commit.at)
                continue
            assert name not in self.inbox
            assert name not in self.fates
            self.inbox[name] = Letter(encode_input(out.message), commit.at, out.due)
        for effect in commit.effects:
            self._owe(effect)
        for request_id in commit.settled:
            self.outbox.pop(request_id, None)

    def receive(self, message: InputMessage, now: int) -> None:
        """Take a message of another thread in, as a store does."""
        assert message.message_id not in self.received, "a message is sent twice"
        self.received[message.message_id] = message.content
        if self.head.status != "closed":
            self.inbox[message.message_id] = Letter(encode_input(message), now, 0)

    def _make(self, new: NewThread) -> None:
        assert new.thread_id not in self.others
        assert new.parent == self.name
        child = self.others[new.thread_id] = Thread(self.options, new.thread_id)
        child.stored, child.others, child.now = new.head, self.others, self.now
        link = child.head.link
        assert link is not None
        if not link.fresh:
            shown = self._material(link.version, link.items, link.summary)
            child.inherited = [*shown.before, *[item for page in shown.pages for item in page.items]]
            before = decode_receipt(self.log[link.version - 1][1]).history if link.version else self.start
            begun = decode_page(self.log[link.version][0])[: link.items]
            child.start = next_history(before, encode_page(begun))

    def _owe(self, effect: Effect) -> None:
        if effect.kind in ("answer", "close"):
            assert effect.server, "a server is told something, and nobody knows which"
            self.told.append(effect)
            return
        assert effect.request_id not in self.owed, "an effect is issued twice"
        self.owed.append(effect.request_id)
        if effect.kind == "invoke":
            self.outbox[effect.request_id] = effect
        else:
            assert effect.call_id in self.owed, "what was never begun is cancelled"
            self.outbox.pop(effect.call_id, None)


# Threads to begin with


def idle() -> Thread:
    """Return a thread that has answered its user."""
    thread = Thread()
    thread.user("Hello")
    return thread.run(says("Hi."))


def waiting(*tools: str, options: ThreadOptions | None = None) -> Thread:
    """Return a thread whose model has called these tools."""
    thread = Thread(options)
    thread.user("Go")
    return thread.run(calls(*(tools or ("build",))))


def watching() -> Thread:
    """Return an idle thread with one active subscription."""
    thread = waiting("watch")
    thread.result(1, "watching", subscription=True)
    return thread.run(says("I watch."))


def detached() -> Thread:
    """Return an idle thread whose first call goes on beside the conversation."""
    thread = waiting("build")
    thread.user("Still there?")
    return thread.run(says("Yes."))


def ended(*, by_stop: bool) -> Thread:
    """Return an idle thread whose first call was cancelled while it ran."""
    thread = waiting("build", options=ThreadOptions(on_user_text="cancel"))
    if by_stop:
        thread.stop()
        thread.run()
    thread.user("hi")
    return thread.run(says("Hello."))


def _react(draft: Draft, reaction: Reaction) -> Asked:
    if isinstance(reaction, Failure):
        fold_failure(draft, reaction)
        return Asked(TurnCommit.FAILED, attempt=1)
    if reaction.reason == "interrupted":
        fold_interrupted(draft, reaction)
        return Asked(TurnCommit.INTERRUPTED, attempt=1)
    if form_wanted(draft.head):
        draft.output = Output(FakeForm())
    fold_turn(draft, reaction, FakeTools())
    return Asked(TurnCommit.COMPLETE, attempt=1, usage=reaction.usage)


def _line(item: Item, numbers: dict[str, int]) -> str:
    match item:
        case UserItem():
            return f"{'note' if item.origin else 'U'}: {plain_text(item.content)}"
        case TextItem():
            return f"A: {item.text}{'|' if item.interrupted else ''}"
        case ReasoningItem():
            return "reasoning"
        case CallItem():
            return f"#{numbers[item.id]} {item.name}"
        case ResultItem():
            text = plain_text(item.content)
            return f"#{numbers.get(item.call_id, 0)} {'!' if item.is_error else '='} {NAMES.get(text, text)}"
        case EventItem():
            text = plain_text(item.content)
            kind = "late" if item.source == "late_result" else "last" if item.final else item.source
            return f"{kind} #{numbers.get(item.call_id, 0)}: {NAMES.get(text, text)}"
        case NoticeItem():
            return f"({item.kind})"
        case _:
            return repr(item)
