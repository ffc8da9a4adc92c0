"""How much of a model's window things take, as far as can be told without its tokenizer, and what is too large for it.

Everything here is an estimate, and the same one every time: four bytes of UTF-8 to a token. What a provider has counted
itself goes before it; see `hibernaut.kernel.compaction`.
"""

from collections.abc import Iterable, Sequence

from msgspec.structs import replace

from hibernaut.messages.items import (
    CallItem,
    EventItem,
    Item,
    OutsideItem,
    ReasoningItem,
    ResultItem,
    TextItem,
    UserItem,
)
from hibernaut.messages.parts import Content, Excerpt, Image, Part, Text
from hibernaut.messages.stream import CallDelta, CallStarted, ReasoningBlock, StreamPiece, TextDelta, ThinkingDelta
from hibernaut.messages.text import excerpt
from hibernaut.messages.tools import ToolSpec

BYTES_PER_TOKEN = 4

ITEM_TOKENS = 4
"""Tokens that an item takes beside its texts."""

EVENT_TOKENS = 40
"""The same of an event, which is shown as a call with its result."""

OUTSIDE_TOKENS = 96
"""What one takes more that is shown as data from outside."""

IMAGE_TOKENS = 1_500
"""Tokens that an image takes."""

LARGE = 256
"""Tokens from which on it is remembered how large an item is."""

LEAST_SHOWN = 64
"""Tokens that are shown of a large item at least."""

IN_HISTORY = "kept in this thread's history, which you cannot open"


def text_tokens(text: str) -> int:
    """Estimate a text."""
    return _utf8_size(text) // BYTES_PER_TOKEN


def _utf8_size(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))


def content_tokens(content: Content) -> int:
    """Estimate a content."""
    if isinstance(content, str):
        return text_tokens(content)
    return sum(IMAGE_TOKENS if isinstance(part, Image) else text_tokens(part.text) for part in content)


def item_tokens(item: Item) -> int:
    """Estimate what an item takes of a prompt; what a model is not shown takes nothing."""
    if isinstance(item, ResultItem | UserItem):
        return ITEM_TOKENS + content_tokens(item.content)
    if isinstance(item, TextItem):
        return ITEM_TOKENS + text_tokens(item.text)
    if isinstance(item, CallItem):
        return ITEM_TOKENS + text_tokens(item.name) + text_tokens(item.arguments) + len(item.data) // BYTES_PER_TOKEN
    if isinstance(item, EventItem):
        shown = EVENT_TOKENS + (OUTSIDE_TOKENS if isinstance(item, OutsideItem) else 0)
        return shown + text_tokens(item.arguments) + text_tokens(item.tool) + content_tokens(item.content)
    if isinstance(item, ReasoningItem):
        return ITEM_TOKENS + max(text_tokens(item.text), len(item.data) // BYTES_PER_TOKEN)
    return 0


def items_tokens(items: Iterable[Item]) -> int:
    """Estimate several items."""
    return sum(map(item_tokens, items))


def said_tokens(pieces: Iterable[StreamPiece]) -> int:
    """Estimate what a model has said so far: what it thought, its texts and its calls."""
    size = thought = 0
    for piece in pieces:
        if isinstance(piece, TextDelta):
            size += _utf8_size(piece.text)
        elif isinstance(piece, ThinkingDelta):
            thought += _utf8_size(piece.text)
        elif isinstance(piece, ReasoningBlock):
            # Where nothing of it was shown, as large as it is sealed.
            size += thought or max(_utf8_size(piece.text), len(piece.data))
            thought = 0
        elif isinstance(piece, CallStarted):
            size += _utf8_size(piece.name)
        elif isinstance(piece, CallDelta):
            size += _utf8_size(piece.arguments)
    return -(-(size + thought) // BYTES_PER_TOKEN)


def frame_tokens(instructions: str, tools: Sequence[ToolSpec]) -> int:
    """Estimate what stands around every transcript."""
    specs = sum(text_tokens(one.name + one.description + one.parameters) + ITEM_TOKENS for one in tools)
    return text_tokens(instructions) + specs


def may_be_cut(item: Item) -> bool:
    """Tell whether an excerpt may stand for an item: for what others wrote, not what the model or the runtime did."""
    if isinstance(item, UserItem):
        return item.origin != "runtime"
    return isinstance(item, ResultItem | EventItem)


class Sizes:
    """Keeps the estimate of a transcript while it grows: work follows what is new, and is done when somebody asks."""

    __slots__ = ("_before", "_count", "_large", "_largest", "_mark", "_marked", "_marked_tokens", "_tokens", "_waiting")

    def __init__(self, count: int = 0) -> None:
        self._count = count
        self._tokens = 0
        self._largest = 0
        self._large: list[tuple[int, int]] = []
        self._mark = -1
        self._marked = -1
        """The mark up to which the estimate is known, which may not be the last one."""
        self._marked_tokens = -1
        self._before: list[Item] = []
        self._waiting: list[Item] = []
        """What was taken in and not measured yet."""

    @property
    def largest(self) -> int:
        """The largest item that may be cut."""
        self._settle()
        return self._largest

    def mark(self, count: int) -> None:
        """Note that what is new will be measured from number `count` of the thread's own items on."""
        self._mark = count

    def inherit(self, items: Iterable[Item]) -> None:
        """Take what comes before the thread's own items."""
        self._before += items

    def extend(self, items: Iterable[Item]) -> None:
        """Take the next of the thread's own items."""
        self._waiting += items

    def _settle(self) -> None:
        for item in self._before:
            self._take(item)
        self._before.clear()
        if self._mark != self._marked:
            self._marked, self._marked_tokens = self._mark, self._tokens if self._mark == self._count else -1
        for item in self._waiting:
            self._count += 1
            self._take(item)
            if self._count == self._marked:
                self._marked_tokens = self._tokens
        self._waiting.clear()

    def _take(self, item: Item) -> None:
        tokens = item_tokens(item)
        self._tokens += tokens
        if tokens >= LARGE and may_be_cut(item):
            self._large.append((self._count, tokens))
            self._largest = max(self._largest, tokens)

    def shown(self, cap: int = 0) -> int:
        """Return the estimate when no item that may be cut is shown with more than `cap` tokens (0: all whole)."""
        self._settle()
        return self._tokens - self._excess(cap, 0)

    def since(self, count: int, cap: int = 0) -> int:
        """Return the estimate of the items after number `count` of the thread's own, or of all if that is unknown."""
        self._settle()
        if count != self._marked or self._marked_tokens < 0:
            return self.shown(cap)
        return self._tokens - self._marked_tokens - self._excess(cap, count + 1)

    def _excess(self, cap: int, first: int) -> int:
        if not cap or self._largest <= cap:
            return 0
        return sum(tokens - cap for number, tokens in self._large if tokens > cap and number >= first)

    def cap_for(self, cap: int, room: int) -> int:
        """Return the most that one item may be shown with so that all of them fit into `room`: `cap`, or less."""
        while cap > LEAST_SHOWN and self.shown(cap) > room:
            cap //= 2
        return cap


def fit_item(item: Item, cap: int) -> Item:
    """Return an item of a transcript as it is shown when it may take `cap` tokens: itself, or with excerpts."""
    if not isinstance(item, UserItem | ResultItem) or not may_be_cut(item) or item_tokens(item) <= cap:
        return item
    room = max(cap, LEAST_SHOWN) * BYTES_PER_TOKEN
    content = item.content
    if isinstance(content, str):
        return replace(item, content=excerpt(content, room, whole=IN_HISTORY))
    texts = sum(0 if isinstance(part, Image) else text_tokens(part.text) for part in content) or 1
    return replace(item, content=tuple([_fit_part(part, room, texts) for part in content]))


def _fit_part(part: Part, room: int, texts: int) -> Part:
    if isinstance(part, Image):
        return part
    share = max(room * text_tokens(part.text) // texts, LEAST_SHOWN)
    text = excerpt(part.text, share, whole=IN_HISTORY)
    if text is part.text:
        return part
    return Excerpt(text, part.blob, part.size) if isinstance(part, Excerpt) else Text(text)
