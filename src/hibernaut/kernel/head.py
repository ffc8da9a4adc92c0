"""The head: the small mutable record of a thread, loaded on every slice.

What must outlive every page of the conversation stands here: open calls and subscriptions with their tool and
arguments, timers, usage, the digests. It is a msgpack map; what a newer version added to it, at whatever depth, is
written back as it was.
"""

from typing import Any, ClassVar, Literal

import msgspec

from hibernaut.codec import decoder_of, pack, unpack
from hibernaut.errors import StoreCorrupt, StoreFormatTooNew
from hibernaut.messages.events import Usage
from hibernaut.messages.items import ResultItem

FORMAT = 1
"""The format of heads that this version writes."""

Status = Literal["open", "stopped", "parked", "closed"]

CallState = Literal["queued", "open", "answered", "detached", "cancelled", "expired", "subscribed"]

CallMode = Literal["background", "inline", "subscription", "rest"]
"""How a call works: `rest` is passive (the sleep family), the others run somewhere."""


class Call(msgspec.Struct, omit_defaults=True, gc=False):
    """One call in the registry.

    States: `queued` (stored, not dispatched), `open` (dispatched, the turn waits for it), `answered` (its result is
    `held` until those before it in the turn have theirs), `detached` (goes on; its result will come as an event),
    `cancelled` and `expired` (over for us; should a result come all the same, it is shown), `subscribed` (brings
    events).
    """

    id: str
    tool: str
    arguments: str = "{}"
    mode: CallMode = "background"
    state: CallState = "queued"
    passive: bool = False
    """It stands for waiting: an event does not wait for it. A `rest` is always passive."""
    deadline: int = 0
    """Milliseconds a dispatched call may take before it is answered as timed out; 0: no bound."""
    held: ResultItem | None = None
    """The result item of an `answered` call."""
    timer: str = ""
    """Message id of the timer that will end a `rest`, or of the deadline of a working call."""
    delay: int = 0
    """Milliseconds that a `rest` lasts from its dispatch on, unless it has a `due`."""
    due: int = 0
    """When a `rest` ends; with neither, only input ends it."""
    version: int = 0
    """Head version whose commit made the call."""
    last_event: str = ""
    """Id of the last event of a subscription that was taken in."""
    sequence: int = 0
    """Its sequence number."""
    minute: int = 0
    """The minute (since 1970) in which its last event was taken in,"""
    taken: int = 0
    """and how many were in that minute."""
    server: str = ""
    """The tool server that works on it; "" when an engine's process does."""
    provider_id: str = ""
    """Its id on the model's wire, for a tool server."""
    annotations: tuple[str, ...] = ()
    """What its tool says of itself."""
    approval: str = ""
    """The question by which a person is to allow it; until then it is not begun."""
    event_schema: bytes = b""
    """SHA-256 of the JSON Schema of its events, a blob; b"" for any."""
    since: int = 0
    """When it was confirmed as a subscription, milliseconds since 1970."""
    metadata: str | None = None
    """The thread's metadata when it was made, where they have changed since; see `metadata_of`."""


class Summary(msgspec.Struct, frozen=True, omit_defaults=True):
    """Where the summary stands that the model is shown, and what comes after it.

    It is in the page of head version `version`; what follows it begins with the page of version `kept`, without the
    first `skip` items of that. It covers all that was inherited and the first `covers` items of the thread's own.
    """

    version: int
    kept: int
    covers: int
    skip: int = 0
    asked: int = 0
    """Version of the page with the last request, where that is covered too: the summary has it word for word."""


class Link(msgspec.Struct, frozen=True, omit_defaults=True):
    """Where a child hangs: above it, the call that made it, and how much of its parent's history it inherits."""

    stack: tuple[str, ...]
    """Thread ids from the root to the parent."""
    call_id: str
    tool: str
    """Of that call; a message of the parent is shown as an event of it."""
    arguments: str = "{}"
    event: bool = False
    """It is a temporary thread for one event of a subscription."""
    fresh: bool = False
    """It inherits nothing."""
    below_event: bool = False
    """It was made below a temporary thread, and is one itself: it ends with its turn."""
    version: int = 0
    """It inherits the pages of its parent up to this head version,"""
    items: int = 0
    """and so many items of the page after that."""
    summary: Summary | None = None
    """What stood for the beginning of its parent's history at that moment."""

    @property
    def parent(self) -> str:
        """The thread that made it."""
        return self.stack[-1]

    @property
    def origin(self) -> str:
        """The thread whose history it inherits: its parent."""
        return self.stack[-1]

    @property
    def root(self) -> str:
        """The thread at the top of the tree."""
        return self.stack[0]


class Fork(msgspec.Struct, frozen=True, omit_defaults=True):
    """With which thread a root shares the beginning of its history, and how much of that."""

    origin: str
    version: int = 0
    """It shares the pages up to this head version,"""
    items: int = 0
    """and so many items of the page after that."""
    summary: Summary | None = None
    """What stands for the beginning of that."""
    fresh: ClassVar[bool] = False


class Child(msgspec.Struct, frozen=True, omit_defaults=True):
    """A child that lives, and the call that made it: its reports are shown as events of that call."""

    call_id: str
    tool: str
    arguments: str = "{}"
    event: bool = False
    ending: bool = False
    """Its parent has closed it, and has not heard yet that it has ended: what it reported before is still shown."""


class Pending(msgspec.Struct, omit_defaults=True):
    """A question of a call to a person. Once it has its `answer`, it stays until its call ends, for the call to read.

    `orphaned`: the process that asked has ended, so that the answer is what the call is answered with.
    """

    call_id: str
    prompt: str
    choices: tuple[str, ...]
    default: int = 0
    due: int = 0
    url: str = ""
    asked: int = 0
    """When, milliseconds since 1970."""
    answer: int = -1
    orphaned: bool = False
    expired: bool = False
    """Nobody answered in time: the answer is the default."""
    reply_url: str = ""
    """Where a tool server wants the answer; "" for a call that works in an engine's process."""
    approves: bytes = b""
    """Whether the call may be begun is what it asks: SHA-256 of the tool's name and the arguments."""


class OpenAsk(msgspec.Struct, frozen=True, omit_defaults=True):
    """A program waits for an answer; see `hibernaut.messages.inputs.Ask`."""

    id: str
    """The message that asked."""
    form: str = ""
    question: str = ""
    """What was asked, or its beginning."""
    since: int = 0
    """Head version whose commit took it in: the calls that are made from then on may be for it."""
    tried: bool = False
    """An answer that does not fit was given, and sent back."""
    aside: bool = False
    """Somebody else has spoken since: the next turn is the answer to that."""
    said: str = ""
    """The beginning of the answer, where the output limit has cut it."""
    told: bool = False
    """The model knows that this is what it has to answer: nobody has asked anything else since."""


class Head(msgspec.Struct, omit_defaults=True, gc=False):
    """The record of one thread. See the module's text."""

    thread_id: str
    salt: bytes
    config: bytes
    """SHA-256 of the launch configuration."""
    format: int = FORMAT
    version: int = 0
    """Commits so far."""
    status: Status = "open"
    reason: str = ""
    """Why it is parked, stopped or closed."""
    link: Link | None = None
    children: dict[str, Child] = {}
    """Children that live, by thread id."""
    questions: dict[str, Pending] = {}
    """What waits for a person, by question id."""
    reported: bool = False
    """A child has told its parent something since it was last woken."""
    refused: int = 0
    """Inputs so far that were about nothing this thread has."""
    calls: dict[str, Call] = {}
    """The registry: every call that still matters, in the order they were made."""
    turn: tuple[str, ...] = ()
    """Ids of the calls of the last turn that have no result in history yet, in order."""
    owes: bool = False
    """History ends on the user's side: the model owes an answer."""
    attempts: int = 0
    """Completions that failed since the last one that did not."""
    retry: str = ""
    """Message id of the timer that will try again; "" when nothing failed."""
    continuations: int = 0
    repeats: int = 0
    """Times the last failing call has failed the same way in a row."""
    repeated: bytes = b""
    """Digest of that call and its failure."""
    title: str = ""
    metadata: str = ""
    model: str = ""
    """Model chosen after the launch; "": the one of the launch configuration."""
    usage: Usage = Usage()
    """Tokens used so far."""
    granted: int = 0
    """Tokens that had been used when somebody last let the thread go on: its budget counts from there."""
    items: int = 0
    """Items of its own history so far."""
    summary: Summary | None = None
    """What stands for the beginning of its history."""
    measured: int = 0
    """Tokens of the last completion, prompt and answer, as the provider counted them; 0: unknown,"""
    measured_items: int = 0
    """and how many items of its own the thread had after it."""
    fruitless: int = 0
    """Tokens of the transcript when compacting it last came to too little, or was done for `overflowed`; 0: neither."""
    overflowed: bool = False
    """The model's window was too small for the last completion."""
    history: bytes = b""
    """SHA-256 chain over the pages: each is SHA-256(the one before, the page)."""
    receipts: bytes = b""
    """SHA-256 of the last receipt."""
    build: str = ""
    """Version of Hibernaut that made the last commit."""
    tools: bytes = b""
    """Digest of the tool definitions that the model was last shown."""
    authority: bytes = b""
    """SHA-256 of its authority, a blob, where that is not the one of the launch configuration."""
    begun: dict[str, int] = {}
    """Calls begun so far, by tool, where the authority bounds what is spent."""
    worked: int = 0
    """Milliseconds that its rounds have taken so far, where the authority bounds that."""
    toolsets: dict[str, bytes] = {}
    """What each tool server has for this tree: SHA-256 of its manifest, a blob, by the server's name."""
    fork: Fork | None = None
    """With whose history that of a root begins."""
    size: int = 0
    """Bytes of its own history, as far as this was counted."""
    trace: bytes = b""
    """Where the last slice that was traced stands in the traces of whoever ran it: trace id, span id, flags. In a child
    that has had no slice yet, it is the slice that made it."""
    cost: int = 0
    """Millionths of a US dollar that its completions have cost whose prices are known,"""
    priced: int = 0
    """and how many of the tokens used are theirs."""
    granted_cost: tuple[int, int] = (0, 0)
    """Both of them when somebody last let the thread go on."""
    estimated: int = 0
    """How many of the tokens used are an estimate, of completions that were cut short,"""
    estimated_cost: int = 0
    """and how much of the cost."""
    asks: tuple[OpenAsk, ...] = ()
    """Programs that wait for an answer, the one that asked first before the others."""

    @property
    def used(self) -> int:
        """Tokens used so far, prompts and answers together."""
        return self.usage.input + self.usage.output

    @property
    def unpriced(self) -> int:
        """Tokens used so far whose price is not known."""
        return self.used - self.priced

    @property
    def base(self) -> Link | Fork | None:
        """What its history begins with that is another thread's."""
        return self.link or self.fork


def metadata_of(head: Head, call: Call | None) -> str:
    """Return the metadata that a call works with: those of when it was made, whoever has spoken since."""
    return head.metadata if call is None or call.metadata is None else call.metadata


def living(head: Head) -> dict[str, Child]:
    """Return the children that live, without those that are being closed."""
    return {name: child for name, child in head.children.items() if not child.ending}


def works(head: Head) -> bool:
    """Tell whether a thread's turn waits for a call that works on something (and does not only stand for waiting).

    Calls that have their result and those that were not begun yet do not count while another one is under way.
    """
    waiting = [call for name in head.turn if (call := head.calls[name]).held is None]
    under_way = [call for call in waiting if call.state == "open"] or waiting[:1]
    return any(not call.passive for call in under_way)


class Standing(msgspec.Struct, frozen=True):
    """What a door has to know of a call in the registry: its tool, how far it is, and which events it takes."""

    tool: str
    state: str = "queued"
    server: str = ""
    event_schema: bytes = b""
    since: int = 0


class Registry(msgspec.Struct, frozen=True):
    """What a door has to know of a thread: its calls by their ids, and where it stands what it may do."""

    config: bytes
    calls: dict[str, Standing] = {}
    authority: bytes = b""


class _Size(msgspec.Struct):
    size: int = 0


class _Format(msgspec.Struct):
    format: int = FORMAT


_decoder = decoder_of(Head)
_format_decoder = decoder_of(_Format)
_registry_decoder = decoder_of(Registry)
_size_decoder = decoder_of(_Size)
_tree_decoder = msgspec.msgpack.Decoder()

Extra = dict[str | int, "msgspec.Raw | Extra"]
"""What a newer version added: by key or by place in an array, at whatever depth."""


class LoadedHead(msgspec.Struct, frozen=True, gc=False):
    """A head as it was read: the value, and what a newer version added to it."""

    head: Head
    extra: Extra


def decode_head(data: bytes) -> LoadedHead:
    """Read a head.

    Raises:
        StoreCorrupt: it is not one.
        StoreFormatTooNew: a newer version wrote something into it that this one cannot leave aside.
    """
    try:
        head = unpack(data, _decoder, "a thread's head")
    except StoreCorrupt as error:
        if unpack(data, _format_decoder, "a thread's head").format > FORMAT:
            raise StoreFormatTooNew(str(error)) from error
        raise
    if head.format <= FORMAT:
        return LoadedHead(head, {})
    return LoadedHead(head, _unknown(_tree_decoder.decode(data), _tree(head)))


def registry_of(data: bytes) -> Registry:
    """Return what a door has to know of a head, without reading the rest of it.

    Raises:
        StoreCorrupt: it is no head.
    """
    return unpack(data, _registry_decoder, "a thread's head")


def history_size(data: bytes) -> int:
    """Return how many bytes a thread's own history has, without reading the rest of its head.

    Raises:
        StoreCorrupt: it is no head.
    """
    return unpack(data, _size_decoder, "a thread's head").size


def encode_head(head: Head, extra: Extra | None = None) -> bytes:
    """Write a head, with what a newer version had added to it."""
    if not extra:
        return pack(head)
    tree = _tree(head)
    _add(tree, extra)
    return pack(tree)


def _tree(head: Head) -> Any:
    fields = zip(head.__struct_fields__, msgspec.structs.astuple(head), strict=True)
    return _tree_decoder.decode(pack(dict(fields)))


def _unknown(stored: Any, known: Any) -> Extra:
    """Return what stands in `stored` and has no place in `known`."""
    extra: Extra = {}
    places = stored.items() if isinstance(stored, dict) else enumerate(stored) if isinstance(stored, list) else ()
    for place, value in places:
        if not _has(known, place):
            extra[place] = msgspec.Raw(pack(value))
        elif deeper := _unknown(value, known[place]):
            extra[place] = deeper
    return extra


def _add(tree: Any, extra: Extra) -> None:
    """Put back what was unknown, wherever what it belonged to is still there."""
    for place, value in extra.items():
        if isinstance(value, dict):
            if _has(tree, place):
                _add(tree[place], value)
        elif isinstance(tree, dict):
            tree.setdefault(place, value)
        elif isinstance(tree, list) and place == len(tree):
            tree.append(value)


def _has(tree: Any, place: str | int) -> bool:
    if isinstance(tree, dict):
        return place in tree
    return isinstance(tree, list) and isinstance(place, int) and place < len(tree)


def copy_head(head: Head) -> Head:
    """Return a head that can be changed without changing this one."""
    calls = {name: msgspec.structs.replace(call) for name, call in head.calls.items()}
    questions = {name: msgspec.structs.replace(pending) for name, pending in head.questions.items()}
    children, begun = dict(head.children), dict(head.begun)
    return msgspec.structs.replace(head, calls=calls, questions=questions, children=children, begun=begun)
