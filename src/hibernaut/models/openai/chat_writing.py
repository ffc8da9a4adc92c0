"""A transcript as the messages of the Chat Completions API.

A turn of the model is one message, whatever it consists of; what the user's side says in a row is one, too. The message
that may still grow is kept apart, and written whole each time; those before it are never written anew.

A turn with more calls than a message may have is several: each has the results of its calls before the next one.

Results can only be text. Images in them go into a message of the user after the last result of the turn, each with a
line that says which call it belongs to.
"""

import re
from collections.abc import Iterable
from typing import Any, Final

import msgspec

from hibernaut.messages.items import CallItem, Item, ReasoningItem, ResultItem, TextItem, UserItem
from hibernaut.messages.parts import Content, Image
from hibernaut.models.call_ids import CallIds
from hibernaut.models.openai.bodies import joined, json_of
from hibernaut.models.openai.pictures import shown
from hibernaut.models.openai.rules import MOST_CALLS, error_text, object_text
from hibernaut.models.openai.servers import Server
from hibernaut.models.pictures import Album
from hibernaut.models.tool_names import ToolNames

BRIDGE: Final = b'{"role":"assistant","content":"OK."}'
"""What stands between results and the user where a template does not let the user speak after results."""

BELOW: Final = "[image {number}: shown below the results]"
ABOVE: Final = "Image {number} in the result of the call {call_id} of {name}:"

_LETTERS: Final = r"[A-Za-z0-9]{9}"
_BETWEEN: Final = "\n\n"

_fields = msgspec.json.Decoder(dict[str, Any])


class ChatWriter:
    """Writes a transcript as `messages`.

    Args:
        server: whom it is for.
        model_id: its model.
        provider: whose reasoning is replayed.
        names: how tools are called on the wire.
    """

    __slots__ = (
        "_album",
        "_alternates",
        "_called",
        "_chunks",
        "_due",
        "_ids",
        "_images",
        "_last",
        "_more",
        "_names",
        "_provider",
        "_said",
        "_server",
        "_turn",
        "_written",
        "items",
    )

    def __init__(self, server: Server, model_id: str, provider: str, names: ToolNames) -> None:
        self._server = server
        self._provider = provider
        self._names = names
        self._alternates = bool(server.alternates) and re.match(server.alternates, model_id) is not None
        self._album = Album(server.images)
        self._restart()

    def _restart(self) -> None:
        self._ids = CallIds(_LETTERS, "", 9) if self._alternates else CallIds()
        self._chunks: list[bytes] = []
        self._written = 0
        self._last = ""
        """Whose message was written last."""
        self._turn = _Turn()
        self._said: list[str | dict[str, Any]] = []
        """What the user's side has said since the model last spoke."""
        self._called: dict[str, str] = {}
        """Names of calls of the turn that have no result yet."""
        self._due = 0
        """How many of them the last message has made;"""
        self._more: list[dict[str, Any]] = []
        """the others, which have to wait for that."""
        self._images: list[str | dict[str, Any]] = []
        self.items = 0

    @property
    def size(self) -> int:
        """How many bytes it holds."""
        return self._written + sum(map(_size, self._said)) + sum(map(_size, self._images))

    def feed(self, items: Iterable[Item]) -> None:
        """Take the next items."""
        for item in items:
            self.items += 1
            if isinstance(item, UserItem):
                self._end_turn()
                self._say(*self._parts(item.content))
            elif isinstance(item, ResultItem):
                self._end_turn()
                self._answer(item)
            else:
                self._end_saying()
                self._take(item)

    def text(self, transcript: Iterable[Item], first: bytes = b"") -> list[bytes]:
        """Return all messages after a first one, in pieces. The transcript is the one that was taken."""
        if self._album.stale:
            self._album.begin()
            self._restart()
            self.feed(transcript)
        self._chunks = joined(self._chunks, 1)
        pieces = [*self._chunks, b",", _user(self._said)] if self._said else self._chunks
        return [b"[", first, *pieces[0 if first else 1 :], b"]"]

    def _write(self, role: str, message: bytes) -> None:
        self._last = role
        self._chunks += (b",", message)
        self._written += len(message) + 1

    # The user's side

    def _say(self, *parts: str | dict[str, Any]) -> None:
        if self._alternates and self._last == "tool":
            self._write("assistant", BRIDGE)
        self._said += parts

    def _end_saying(self) -> None:
        if self._said:
            self._write("user", _user(self._said))
            self._said = []

    def _answer(self, item: ResultItem) -> None:
        if not self._due and self._more:
            self._make_calls({"role": "assistant", "content": None}, self._more)
        self._due -= 1
        call_id, name = self._ids.of(item.call_id), self._called.pop(item.call_id)
        texts: list[str] = []
        number = 0
        for part in self._parts(item.content):
            if isinstance(part, str):
                texts.append(part)
                continue
            number += 1
            texts.append(BELOW.format(number=number))
            self._images += (ABOVE.format(number=number, call_id=call_id, name=name), part)
        text = "\n".join(texts)
        content = error_text(text) if item.is_error else text
        self._write("tool", json_of({"role": "tool", "tool_call_id": call_id, "content": content}))
        if self._images and not self._called:
            images, self._images = self._images, []
            self._say(*images)

    def _parts(self, content: Content) -> list[str | dict[str, Any]]:
        if isinstance(content, str):
            return [content]
        parts: list[str | dict[str, Any]] = []
        for part in content:
            made = self._image(part) if isinstance(part, Image) else part.text
            if isinstance(made, str) and parts and isinstance(parts[-1], str):
                parts[-1] += "\n" + made
            else:
                parts.append(made)
        return parts

    def _image(self, image: Image) -> str | dict[str, Any]:
        url, word = shown(self._album, image)
        return {"type": "image_url", "image_url": {"url": url}} if url else word

    # The model's side

    def _take(self, item: Item) -> None:
        turn = self._turn
        if isinstance(item, TextItem):
            turn.texts.append(item.text)
        elif isinstance(item, CallItem):
            name = self._names.on_wire(item.name)
            self._called[item.id] = name
            function = {"name": name, "arguments": object_text(item.arguments)}
            turn.calls.append({"id": self._ids.begin(item), "type": "function", "function": function})
        elif isinstance(item, ReasoningItem) and item.provider == self._provider and self._server.thinking:
            turn.think(item.data)

    def _end_turn(self) -> None:
        turn = self._turn
        if not turn.texts and not turn.calls:
            return
        message: dict[str, Any] = {"role": "assistant", "content": _BETWEEN.join(turn.texts) or None}
        message |= turn.thoughts
        self._make_calls(message, turn.calls)
        self._turn = _Turn()

    def _make_calls(self, message: dict[str, Any], calls: list[dict[str, Any]]) -> None:
        """Write a message of the model with as many calls as it may have."""
        if calls:
            message["tool_calls"] = calls[:MOST_CALLS]
            if self._server.owes_thinking:
                message.setdefault(self._server.thinking, "")
        self._due, self._more = len(calls[:MOST_CALLS]), calls[MOST_CALLS:]
        self._write("assistant", json_of(message))


class _Turn:
    """What the model says between two items of the user's side."""

    __slots__ = ("calls", "texts", "thoughts")

    def __init__(self) -> None:
        self.texts: list[str] = []
        self.calls: list[dict[str, Any]] = []
        self.thoughts: dict[str, Any] = {}

    def think(self, data: bytes) -> None:
        """Take a block of reasoning: fields of the message."""
        try:
            fields = _fields.decode(data)
        except (msgspec.DecodeError, UnicodeDecodeError):
            return
        for name, value in fields.items():
            before = self.thoughts.get(name)
            joined = isinstance(value, str | list) and type(before) is type(value)
            self.thoughts[name] = before + value if joined else value


def _user(parts: list[str | dict[str, Any]]) -> bytes:
    """Return a message of the user; as plain text where it can be, which every server and template takes."""
    if all(isinstance(part, str) for part in parts):
        return json_of({"role": "user", "content": _BETWEEN.join([part for part in parts if isinstance(part, str)])})
    content = [{"type": "text", "text": part} if isinstance(part, str) else part for part in parts]
    return json_of({"role": "user", "content": content})


def _size(part: str | dict[str, Any]) -> int:
    return len(part) if isinstance(part, str) else len(part["image_url"]["url"])
