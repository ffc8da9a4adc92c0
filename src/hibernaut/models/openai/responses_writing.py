"""A transcript as the input of the Responses API: a list of items, one for each of ours.

What OpenAI gave an id of its own is sent without it, except reasoning, which is sent as it came: nothing is stored
there that an id could stand for.
"""

from collections.abc import Container, Iterable
from typing import Any

import msgspec

from hibernaut.messages.items import CallItem, Item, ReasoningItem, ResultItem, TextItem, UserItem
from hibernaut.messages.parts import Content, Image
from hibernaut.models.call_ids import CallIds
from hibernaut.models.openai.bodies import joined, json_of
from hibernaut.models.openai.pictures import LIMITS, shown
from hibernaut.models.openai.rules import error_text, object_text
from hibernaut.models.pictures import Album
from hibernaut.models.tool_names import ToolNames


class Reasoned(msgspec.Struct):
    """What must be known of a block of reasoning."""

    id: str = ""
    encrypted_content: str | None = None
    type: str = ""


_reasoned = msgspec.json.Decoder(Reasoned)


def reasoned(data: bytes) -> Reasoned | None:
    """Read a block of reasoning; None if it cannot be replayed."""
    try:
        block = _reasoned.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
    return block if block.type == "reasoning" and block.encrypted_content else None


def key_of(block: Reasoned) -> str:
    """Return what tells a block of reasoning from others."""
    return block.id or (block.encrypted_content or "")[-64:]


class ResponsesWriter:
    """Writes a transcript as `input`.

    Args:
        provider: whose reasoning is replayed; "" for none.
        names: how tools are called on the wire.
        unwanted: reasoning that the provider refuses, by its keys. What is added later counts after a new beginning.
    """

    __slots__ = ("_album", "_chunks", "_ids", "_names", "_provider", "_unwanted", "items", "replayed", "size")

    def __init__(self, provider: str, names: ToolNames, unwanted: Container[str] = ()) -> None:
        self._provider = provider
        self._names = names
        self._unwanted = unwanted
        self._album = Album(LIMITS)
        self._restart()

    def _restart(self) -> None:
        self._ids = CallIds()
        self._chunks: list[bytes] = []
        self.replayed: list[str] = []
        """The reasoning that is in it, by its keys."""
        self.items = 0
        self.size = 0

    def feed(self, items: Iterable[Item]) -> None:
        """Take the next items."""
        for item in items:
            self.items += 1
            written = self._written(item)
            if written:
                self._chunks += (b"," if self._chunks else b"[", written)
                self.size += len(written) + 1

    def again(self, transcript: Iterable[Item]) -> None:
        """Write the transcript anew: pictures have given way, or reasoning is not wanted any more."""
        self._album.begin()
        self._restart()
        self.feed(transcript)

    def text(self, transcript: Iterable[Item]) -> list[bytes]:
        """Return the whole list, in pieces. The transcript is the one that was taken."""
        if self._album.stale:
            self.again(transcript)
        self._chunks = joined(self._chunks)
        return [*self._chunks, b"]"] if self._chunks else [b"[]"]

    def _written(self, item: Item) -> bytes:
        if isinstance(item, ReasoningItem):
            return self._reasoning(item)
        if isinstance(item, UserItem):
            return json_of({"role": "user", "content": self._content(item.content)})
        if isinstance(item, TextItem):
            return json_of({"role": "assistant", "content": item.text})
        if isinstance(item, CallItem):
            call_id = self._ids.begin(item)
            name, arguments = self._names.on_wire(item.name), object_text(item.arguments)
            call = {"call_id": call_id, "name": name, "arguments": arguments}
            return json_of({"type": "function_call", **call})
        if isinstance(item, ResultItem):
            content = self._content(item.content)
            if item.is_error:
                content = _marked(content)
            return json_of({"type": "function_call_output", "call_id": self._ids.of(item.call_id), "output": content})
        return b""

    def _reasoning(self, item: ReasoningItem) -> bytes:
        block = reasoned(item.data) if item.provider == self._provider else None
        if block is None or key_of(block) in self._unwanted:
            return b""
        self.replayed.append(key_of(block))
        return item.data

    def _content(self, content: Content) -> str | list[dict[str, str]]:
        if isinstance(content, str):
            return content
        return [self._image(part) if isinstance(part, Image) else _text(part.text) for part in content]

    def _image(self, image: Image) -> dict[str, str]:
        url, word = shown(self._album, image)
        return {"type": "input_image", "image_url": url} if url else _text(word)


def _text(text: str) -> dict[str, str]:
    return {"type": "input_text", "text": text}


def _marked(content: str | list[dict[str, Any]]) -> str | list[dict[str, Any]]:
    if isinstance(content, str):
        return error_text(content)
    first = content[0]
    if "text" in first:
        return [_text(error_text(first["text"])), *content[1:]]
    return [_text("Error:"), *content]
