"""A transcript as the Gemini API takes it: `contents` of two roles, each a list of parts."""

from base64 import b64encode
from collections import deque
from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from hibernaut.messages.items import CallItem, Item, ReasoningItem, ResultItem, TextItem, UserItem
from hibernaut.messages.parts import Content, Image
from hibernaut.models.call_ids import CallIds
from hibernaut.models.google.rules import CALL_ID, PICTURES, UNSIGNED, Generation, Platform
from hibernaut.models.messages_json import MessageList
from hibernaut.models.pictures import Album, Picture, word_for
from hibernaut.models.tool_names import ToolNames

_encode = msgspec.json.Encoder().encode

_TAGGED: Final = "%s:"


def call_data(dialect: str, signature: str) -> bytes:
    """Return what is kept with a call. It says whose it is: other dialects keep other things there."""
    return (_TAGGED % dialect + signature).encode()


class _Call(msgspec.Struct, frozen=True):
    id: str
    """"": it has none on the wire."""
    name: str


class GeminiWriter:
    """Writes items as parts. The images of results follow the last of them where results cannot have any."""

    __slots__ = ("_after", "_album", "_contents", "_distrusted", "_generation", "_ids", "_names", "_open", "_signed",
                 "_tag", "_text_last", "_with_ids", "items")  # fmt: skip

    def __init__(self, dialect: str, platform: Platform, generation: Generation, names: ToolNames) -> None:
        self._generation = generation
        self._names = names
        self._tag = call_data(dialect, "")
        self._with_ids = platform.call_ids
        self._album = Album(PICTURES)
        self._distrusted = 0
        """Items whose signatures are not sent back, from the first."""
        self._begin()

    def _begin(self) -> None:
        self.items = 0
        self._ids = CallIds(CALL_ID)
        self._contents = MessageList(b'{"role":"user","parts":[', b'{"role":"model","parts":[')
        self._open: deque[_Call] = deque()
        self._after: list[bytes] = []
        self._signed = False
        """Whether a call was written since the user's side spoke."""
        self._text_last = False

    @property
    def size(self) -> int:
        """How many bytes it holds."""
        return self._contents.size

    def pieces(self, transcript: Iterable[Item]) -> list[bytes]:
        """Return the member `contents` in pieces. If a picture has given way since, all of it is written again."""
        if self._album.stale:
            self._album.begin()
            self._begin()
            self.feed(transcript)
        return self._contents.pieces()

    def distrust(self, transcript: Sequence[Item]) -> None:
        """Write all of a transcript again, and without the signatures in it, since one of them was refused."""
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
                self._contents.add("model", _text(item.text))
                self._text_last = True
            elif type(item) is UserItem:
                self._user(item.content)
            elif type(item) is ReasoningItem:
                self._reasoning(item)
            self.items += 1

    def _user(self, content: Content) -> None:
        for part in self._parts(content):
            self._add_user(part)

    def _add_user(self, part: bytes) -> None:
        self._contents.add("user", part)
        self._signed = self._text_last = False

    def _parts(self, content: Content) -> Iterable[bytes]:
        if isinstance(content, str):
            yield _text(content)
            return
        for part in content:
            if not isinstance(part, Image):
                yield _text(part.text)
            else:
                picture = self._look(part)
                yield _text(picture) if isinstance(picture, str) else picture

    def _look(self, image: Image) -> bytes | str:
        """Return a picture as a part, or the word that stands for it."""
        found = self._album.look(image)
        if not isinstance(found, Picture):
            return word_for(image, found)
        return b'{"inlineData":{"mimeType":"%b","data":"%b"}}' % (found.media_type.encode(), b64encode(image.data))

    def _reasoning(self, item: ReasoningItem) -> None:
        """Send the signature of a text back beside it. Without one, what was thought is for people only."""
        own = item.provider.encode() + b":" == self._tag and self.items >= self._distrusted
        if own and item.data and item.data.isascii() and self._text_last:
            self._contents.extend(b',"thoughtSignature":' + _encode(item.data.decode()))
            self._text_last = False

    def _call(self, item: CallItem) -> None:
        own = item.data.startswith(self._tag) and item.data.isascii()
        trusted = own and self.items >= self._distrusted
        signature = item.data[len(self._tag) :].decode() if trusted else ""
        call_id = self._ids.begin(item) if own and item.provider_id and self._with_ids else ""
        name = self._names.on_wire(item.name)
        written = b'{"functionCall":{' + _named(call_id, name) + b',"args":' + item.arguments.encode() + b"}"
        if not signature and not self._signed and self._generation.signed_calls:
            signature = UNSIGNED
        if signature:
            written += b',"thoughtSignature":' + _encode(signature)
        self._contents.add("model", written + b"}")
        self._open.append(_Call(call_id, name))
        self._signed, self._text_last = True, False

    def _result(self, item: ResultItem) -> None:
        call = self._open.popleft()
        if call.id:
            self._ids.of(item.call_id)
        texts, images = self._told(item.content)
        key = b"error" if item.is_error else b"output"
        written = b'{"functionResponse":{' + _named(call.id, call.name)
        written += b',"response":{"' + key + b'":' + _encode("\n".join(texts)) + b"}"
        if images and self._generation.result_images:
            written += b',"parts":[' + b",".join(images) + b"]"
        elif images:
            self._after += [_text(f"[what {call.name} has returned, as {len(images)} images]"), *images]
        self._add_user(written + b"}}")
        if not self._open:
            for part in self._after:
                self._add_user(part)
            self._after.clear()

    def _told(self, content: Content) -> tuple[list[str], list[bytes]]:
        if isinstance(content, str):
            return [content], []
        texts: list[str] = []
        images: list[bytes] = []
        for part in content:
            if not isinstance(part, Image):
                texts.append(part.text)
                continue
            picture = self._look(part)
            if isinstance(picture, str):
                texts.append(picture)
            else:
                images.append(picture)
                texts.append(f"[image {len(images)}]")
        return texts, images


def _named(call_id: str, name: str) -> bytes:
    return (b'"id":' + _encode(call_id) + b"," if call_id else b"") + b'"name":' + _encode(name)


def _text(text: str) -> bytes:
    return b'{"text":' + _encode(text) + b"}"
