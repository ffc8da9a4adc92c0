"""A transcript as the Converse API takes it: messages of two roles that take turns, each a list of blocks."""

from base64 import b64encode
from collections import deque
from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from hibernaut.messages.items import CallItem, Item, ReasoningItem, ResultItem, TextItem, UserItem
from hibernaut.messages.parts import Content, Image
from hibernaut.models.bedrock.rules import CACHE_POINT, CALL_ID, PICTURES, Family
from hibernaut.models.call_ids import CallIds
from hibernaut.models.messages_json import MessageList
from hibernaut.models.pictures import Album, Picture, word_for
from hibernaut.models.tool_names import ToolNames

_encode = msgspec.json.Encoder().encode

FAILED: Final = "[The call failed.]"
"""Before a result that cannot say so: the model knows no status, or takes none beside an image."""

_MARK: Final = b"}," + CACHE_POINT[:-1]
"""What is added to the last block so that a cache point follows it."""


class _Thought(msgspec.Struct, rename="camel"):
    signature: str | None = None


class _Block(msgspec.Struct, rename="camel"):
    reasoning_text: _Thought | None = None
    redacted_content: str | None = None


_block = msgspec.json.Decoder(_Block)


class ConverseWriter:
    """Writes items as blocks. The images of results follow the last of them where results cannot have any."""

    __slots__ = ("_after", "_album", "_dialect", "_distrusted", "_family", "_fresh", "_ids", "_messages", "_names",
                 "_open", "_replays", "calls", "items", "midway")  # fmt: skip

    def __init__(self, dialect: str, family: Family, names: ToolNames) -> None:
        self._dialect = dialect
        self._family = family
        self._names = names
        self._album = Album(PICTURES)
        self._replays = True
        self._distrusted = 0
        """Items whose reasoning is not sent back, from the first."""
        self._begin()

    def _begin(self) -> None:
        self.items = 0
        self.calls = 0
        self.midway = False
        """Whether calls are being answered in a turn that did not begin with reasoning."""
        self._fresh = True
        self._ids = CallIds(CALL_ID, "tooluse_")
        self._messages = MessageList(b'{"role":"user","content":[', b'{"role":"assistant","content":[')
        self._open: deque[str] = deque()
        self._after: list[bytes] = []

    @property
    def size(self) -> int:
        """How many bytes it holds."""
        return self._messages.size

    def pieces(self, transcript: Iterable[Item], *, replays: bool, cached: bool) -> list[bytes]:
        """Return the messages, in pieces.

        They are written again where a picture has given way since, or reasoning is to be sent back and was not.

        Args:
            transcript: all of it.
            replays: whether reasoning is sent back, as far as the family takes it.
            cached: whether cache points stand at the end, and where the end was when the model was last asked.
        """
        if self._album.stale or replays != self._replays:
            self._replays = replays
            self._album.begin()
            self._begin()
            self.feed(transcript)
        return self._messages.pieces(_MARK if cached else b"", twice=cached)

    def distrust(self, transcript: Sequence[Item]) -> None:
        """Write all of a transcript again, and without the reasoning in it, since some of it was refused."""
        self._distrusted = len(transcript)
        self._album.begin()
        self._begin()
        self.feed(transcript)

    def feed(self, items: Iterable[Item]) -> None:
        """Take the next items."""
        for item in items:
            if type(item) is ResultItem:
                self._result(item)
            elif type(item) is CallItem:
                self._call(item)
            elif type(item) is TextItem:
                self._says(_text(item.text))
            elif type(item) is UserItem:
                self._user(item.content)
            elif type(item) is ReasoningItem:
                self._reasoning(item)
            self.items += 1

    def _user(self, content: Content) -> None:
        self._fresh, self.midway = True, False
        for block in self._blocks(content)[0]:
            self._messages.add("user", block)

    def _says(self, block: bytes, *, thought: bool = False) -> None:
        if self._fresh:
            self._fresh, self.midway = False, not thought
        self._messages.add("model", block)

    def _reasoning(self, item: ReasoningItem) -> None:
        wanted = self._replays and self._family.replays and self.items >= self._distrusted
        if wanted and item.provider == self._dialect and _is_signed(item.data):
            self._says(b'{"reasoningContent":' + item.data + b"}", thought=True)

    def _call(self, item: CallItem) -> None:
        self.calls += 1
        call_id = self._ids.begin(item)
        name = _encode(self._names.on_wire(item.name))
        block = b'{"toolUse":{"toolUseId":"%b","name":%b,"input":%b}}'
        self._says(block % (call_id.encode(), name, item.arguments.encode()))
        self._open.append(call_id)

    def _result(self, item: ResultItem) -> None:
        call_id = self._open.popleft()
        self._ids.of(item.call_id)
        blocks, images = self._blocks(item.content)
        failed = b""
        if images and not self._family.result_images:
            self._after += [_text(f"[the images that call {call_id} has returned]"), *images]
            blocks = [block for block in blocks if block not in images] or [_text("[images follow]")]
            images = []
        if item.is_error and self._family.status and not images:
            failed = b',"status":"error"'
        elif item.is_error:
            blocks.insert(0, _text(FAILED))
        block = b'{"toolResult":{"toolUseId":"%b","content":[%b]%b}}'
        self._messages.add("user", block % (call_id.encode(), b",".join(blocks), failed))
        if not self._open:
            for image in self._after:
                self._messages.add("user", image)
            self._after.clear()

    def _blocks(self, content: Content) -> tuple[list[bytes], list[bytes]]:
        """Return content as blocks, and those of them that are images."""
        if isinstance(content, str):
            return [_text(content)], []
        blocks: list[bytes] = []
        images: list[bytes] = []
        for part in content:
            if not isinstance(part, Image):
                blocks.append(_text(part.text))
                continue
            found = self._album.look(part)
            if isinstance(found, Picture):
                images.append(_picture(found, part.data))
                blocks.append(images[-1])
            else:
                blocks.append(_text(word_for(part, found)))
        return blocks, images


def _text(text: str) -> bytes:
    return b'{"text":' + _encode(text) + b"}"


def _picture(picture: Picture, data: bytes) -> bytes:
    kind = picture.media_type.removeprefix("image/").encode()
    return b'{"image":{"format":"%b","source":{"bytes":"%b"}}}' % (kind, b64encode(data))


def _is_signed(data: bytes) -> bool:
    try:
        block = _block.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return False
    return bool(block.redacted_content or (block.reasoning_text and block.reasoning_text.signature))
