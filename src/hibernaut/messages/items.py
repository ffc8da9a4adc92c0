"""The entries of a thread's history, and how a page of them is written down.

The items that one commit appends are one page: a msgpack array of tagged arrays. A page is never
rewritten, so what an older version does not understand it simply leaves as it is (`Unknown`).
A field may be added at the end of an item, with a default; nothing else may change.
"""

from collections.abc import Sequence

import msgspec

from hibernaut.codec import decoder_of, pack
from hibernaut.errors import StoreCorrupt
from hibernaut.messages.parts import Content

EVENT_TOOL = "receive_event__injected"
"""The name under which a model sees that something reached it from outside. It can never call it."""


class _Item(msgspec.Struct, frozen=True, array_like=True, gc=False):
    pass


class UserItem(_Item, frozen=True, tag="u"):
    """What the user said. `origin` is "" for a person, "runtime" for a note that the runtime wrote."""

    content: Content
    user: str = ""
    origin: str = ""


class TextItem(_Item, frozen=True, tag="a"):
    """What the model said. `interrupted`: the user cut it short here."""

    text: str
    interrupted: bool = False


class ReasoningItem(_Item, frozen=True, tag="r"):
    """A block of reasoning, to be replayed to its own provider byte for byte and to no other.

    `text` is what people may read of it; `data` is the provider's own block, opaque (signed, redacted or encrypted).
    """

    provider: str
    data: bytes
    text: str = ""


class CallItem(_Item, frozen=True, tag="c"):
    """A tool call. `id` is the runtime's own and unique for ever; `provider_id` is used on that provider's wire only.

    `arguments` is always a JSON object. `data` is what the provider wants back with the call (a signature), opaque.
    """

    id: str
    name: str
    arguments: str = "{}"
    provider_id: str = ""
    data: bytes = b""
    display: str = ""
    """The call as people read it; "" for its name and arguments. A model never sees it."""


class ResultItem(_Item, frozen=True, tag="t"):
    """The answer to a call. `display` is JSON for people (display segments); a model never sees it."""

    call_id: str
    content: Content
    is_error: bool = False
    display: str = ""


class EventItem(_Item, frozen=True, tag="e"):
    """Something that reached the thread from outside, about a call it once made.

    A model sees it as a call of `receive_event__injected` with `tool`, `call_id` and `arguments` of the original
    call, answered with `content`. `id` is the id of that pretended call. `source`: "late_result", "event", "report" or
    "parent_message".
    """

    id: str
    call_id: str
    tool: str
    arguments: str
    content: Content
    source: str = "event"
    final: bool = False
    is_error: bool = False
    display: str = ""
    thread_id: str = ""
    """The thread that it comes from: of a report the child, of a parent's message the parent."""


class OutsideItem(EventItem, frozen=True, tag="o"):
    """An event of a subscription: what it says comes from outside, and a model is shown that it does.

    `server` is the tool server that brought it, "" for a tool of the program. `sequence` is the number that whoever
    sent it gave it (0: none), `before` the highest one before it: what lies between them has not come.
    """

    server: str = ""
    sequence: int = 0
    before: int = 0


class SummaryItem(_Item, frozen=True, tag="s"):
    """What stands for the items before it: all that the thread inherited, and the first `covers` items of its own.

    `before` and `after` are the tokens of the transcript as estimated without and with it.
    """

    text: str
    covers: int
    before: int = 0
    after: int = 0


class SpawnItem(_Item, frozen=True, tag="b"):
    """A child was made by a call: by `spawn_thread`, or (`event`) by a subscription for one event. For people."""

    thread_id: str
    call_id: str
    event: bool = False


class QuestionItem(_Item, frozen=True, tag="q"):
    """A call asks a person, who answers with one of the `choices`. For people; the call's result tells the model.

    `default`: the choice that counts when nobody has answered at `due` (milliseconds since 1970; 0: it waits). With a
    `url` it asks to authorize something there.
    """

    id: str
    call_id: str
    prompt: str
    choices: tuple[str, ...]
    default: int = 0
    due: int = 0
    url: str = ""


class QuestionEndItem(_Item, frozen=True, tag="d"):
    """A question is over: "answered" (by `user`), "expired" (its default counts) or "dismissed" (`reason` says why)."""

    id: str
    call_id: str
    outcome: str
    choice: int = -1
    text: str = ""
    """The words of the choice; of a dismissed one the reason."""
    user: str = ""


class NoticeItem(_Item, frozen=True, tag="n"):
    """Something that happened to the thread, for people: a model never sees it.

    `kind` is one of: "retry", "parked", "stopped", "resumed", "closed", "title", "empty_turn", "truncated",
    "cancelled", "refused", "compacting", "compaction_failed", "server_down", "tool_refused",
    "authority", "settled", "dropped", "edited".
    """

    kind: str
    text: str = ""


class OutputItem(_Item, frozen=True, tag="v"):
    """The answer that a program waits for, which asked with message `ask_id`. A model never sees it.

    `value` is text, or JSON of the form that was asked for. With a `problem` there is no answer, and that is why.
    """

    ask_id: str
    value: str
    problem: str = ""


class Unknown(_Item, frozen=True, tag="?"):
    """An item that a newer version wrote. It is kept as it is and shown to no model."""

    raw: bytes


Item = (
    UserItem
    | TextItem
    | ReasoningItem
    | CallItem
    | ResultItem
    | EventItem
    | OutsideItem
    | SummaryItem
    | SpawnItem
    | QuestionItem
    | QuestionEndItem
    | NoticeItem
    | OutputItem
    | Unknown
)

_page_decoder = decoder_of(list[Item])
_item_decoder: msgspec.msgpack.Decoder[Item] = msgspec.msgpack.Decoder(Item)
_raw_decoder = decoder_of(list[msgspec.Raw])


def encode_page(items: Sequence[Item]) -> bytes:
    """Write the items of one commit; no items are no bytes."""
    return pack(items) if items else b""


def decode_page(page: bytes) -> list[Item]:
    """Read the items of one commit. What a newer version wrote comes as `Unknown`.

    Raises:
        StoreCorrupt: the page is not an array of items.
    """
    if not page:
        return []
    try:
        return _page_decoder.decode(page)
    except (msgspec.ValidationError, UnicodeDecodeError):
        return [_decode_item(raw) for raw in _raw_items(page)]
    except msgspec.DecodeError as error:
        raise StoreCorrupt(f"a page of history cannot be read: {error}") from error


def page_prefix(page: bytes, count: int) -> bytes:
    """Return the page of the first `count` items of a page, byte for byte.

    Raises:
        StoreCorrupt: the page is not an array of that many items.
    """
    raw = _raw_items(page) if page else []
    if len(raw) < count:
        raise StoreCorrupt(f"a page of history has {len(raw)} items where {count} are inherited")
    return pack(raw[:count]) if count else b""


def _raw_items(page: bytes) -> list[msgspec.Raw]:
    try:
        return _raw_decoder.decode(page)
    except msgspec.DecodeError as error:
        raise StoreCorrupt(f"a page of history cannot be read: {error}") from error


def _decode_item(raw: msgspec.Raw) -> Item:
    try:
        return _item_decoder.decode(raw)
    except UnicodeDecodeError as error:
        raise StoreCorrupt(f"a page of history cannot be read: {error}") from error
    except msgspec.DecodeError:
        return Unknown(bytes(raw))
