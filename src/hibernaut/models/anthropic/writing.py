"""A transcript as the messages of Anthropic's API.

The two sides take turns, and adjacent items of one side are one message. In a message of the user the results come
first, since they stand right after the calls. Thinking goes back as it came, and only to where it came from.
"""

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from hibernaut.codec import to_json
from hibernaut.messages.items import CallItem, Item, ReasoningItem, ResultItem, TextItem, UserItem
from hibernaut.messages.parts import Content, Image
from hibernaut.models.anthropic.rules import CALL_ID
from hibernaut.models.call_ids import CallIds
from hibernaut.models.messages_json import MessageList
from hibernaut.models.pictures import Album, PictureLimits, word_for
from hibernaut.models.tool_names import ToolNames

USER = b'{"role":"user","content":['
ASSISTANT = b'{"role":"assistant","content":['
FAILED = "[The call failed.]"
"""Before a result that says so itself: with a picture in it, the API takes no result that is marked as an error."""

_encode = msgspec.json.Encoder().encode


class Manner(msgspec.Struct, frozen=True):
    """How a transcript is written, where that differs between models and platforms."""

    provider: str
    """Whose reasoning is replayed; "": nobody's."""
    limits: PictureLimits


class _Thought(msgspec.Struct):
    type: str = ""
    signature: str = ""
    data: str = ""


_thought = msgspec.json.Decoder(_Thought)
_value = msgspec.json.Decoder()


class MessageWriter:
    """Writes a transcript."""

    __slots__ = ("_album", "_fresh", "_ids", "_manner", "_messages", "_names", "_thoughtless", "calls", "items")

    def __init__(self, manner: Manner, names: ToolNames) -> None:
        self._manner = manner
        self._names = names
        self._album = Album(manner.limits)
        self._restart()

    def _restart(self) -> None:
        self._messages = MessageList(USER, ASSISTANT)
        self._ids = CallIds(CALL_ID, "toolu_")
        self._fresh = True
        self._thoughtless = False
        self.calls = 0
        self.items = 0

    @property
    def size(self) -> int:
        """How many bytes it holds."""
        return self._messages.size

    @property
    def midway(self) -> bool:
        """Whether calls are being answered in a turn that did not begin with thinking."""
        return self._thoughtless

    def feed(self, items: Iterable[Item]) -> None:
        """Take the next items."""
        for item in items:
            self.items += 1
            if isinstance(item, TextItem):
                self._says(_text(item.text))
            elif isinstance(item, CallItem):
                self.calls += 1
                self._says(self._call(item))
            elif isinstance(item, ResultItem):
                self._messages.add("user", self._result(item))
            elif isinstance(item, UserItem):
                self._asks(item.content)
            elif isinstance(item, ReasoningItem):
                self._thinks(item)

    def pieces(self, manner: Manner, transcript: Sequence[Item], mark: bytes = b"") -> list[bytes]:
        """Return the messages in pieces, written in a manner; with a `mark`, marked for the cache.

        What was written is written anew where it was in another manner, or where pictures have given way.
        """
        if manner != self._manner:
            self._manner = manner
            self._album = Album(manner.limits)
            self._again(transcript)
        if self._album.stale:
            self._again(transcript)
        return self._messages.pieces(mark, twice=bool(mark))

    def _again(self, transcript: Sequence[Item]) -> None:
        self._album.begin()
        self._restart()
        self.feed(transcript)

    def _asks(self, content: Content) -> None:
        if self._messages.side != "user":
            self._fresh, self._thoughtless = True, False
        for block in self._blocks(content):
            self._messages.add("user", _encode(block))

    def _says(self, block: bytes, *, thought: bool = False) -> None:
        if self._fresh:
            self._fresh, self._thoughtless = False, not thought
        self._messages.add("model", block)

    def _thinks(self, item: ReasoningItem) -> None:
        if item.provider == self._manner.provider and _is_thought(item.data):
            self._says(item.data, thought=True)

    def _call(self, call: CallItem) -> bytes:
        head = _encode({"type": "tool_use", "id": self._ids.begin(call), "name": self._names.on_wire(call.name)})
        return b"".join((head[:-1], b',"input":', _object(call.arguments), b"}"))

    def _result(self, result: ResultItem) -> bytes:
        blocks = self._blocks(result.content)
        marked = result.is_error and all(block["type"] == "text" for block in blocks)
        if result.is_error and not marked:
            blocks.insert(0, {"type": "text", "text": FAILED})
        content: Any = result.content if isinstance(result.content, str) else blocks
        block = {"type": "tool_result", "tool_use_id": self._ids.of(result.call_id), "content": content}
        return _encode({**block, "is_error": True} if marked else block)

    def _blocks(self, content: Content) -> list[dict[str, Any]]:
        if isinstance(content, str):
            return [{"type": "text", "text": content}]
        return [
            self._image(part) if isinstance(part, Image) else {"type": "text", "text": part.text} for part in content
        ]

    def _image(self, image: Image) -> dict[str, Any]:
        picture = self._album.look(image)
        if isinstance(picture, str):
            return {"type": "text", "text": word_for(image, picture)}
        if not image.data:
            return {"type": "image", "source": {"type": "url", "url": image.url}}
        # msgspec writes bytes as Base64.
        return {"type": "image", "source": {"type": "base64", "media_type": picture.media_type, "data": image.data}}


def _text(text: str) -> bytes:
    return _encode({"type": "text", "text": text})


def _is_thought(data: bytes) -> bool:
    """Tell whether a block can be replayed: it is whole, and signed."""
    try:
        thought = _thought.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return False
    if not (data.startswith(b"{") and data.endswith(b"}")):
        return False
    return bool(thought.signature if thought.type == "thinking" else thought.data)


def _object(arguments: str) -> bytes:
    """Return arguments as an object, whatever an old history holds."""
    try:
        value = _value.decode(arguments)
    except (msgspec.DecodeError, UnicodeError):
        value = None
    return (arguments if isinstance(value, dict) else to_json({"arguments": arguments})).encode()
