"""Transcripts of every shape that the runtime may ask a model with, made by chance.

A history of all kinds of items is put together and then shown as the runtime shows it, so it holds what threads live
through: interruptions, events, results that came late or never, images, and turns of other providers.
"""

import binascii
import struct
import zlib
from collections.abc import Callable, Sequence
from random import Random
from typing import Final

from hibernaut.codec import to_json
from hibernaut.kernel.transcript import Transcript, validate
from hibernaut.messages.items import CallItem, EventItem, Item, ReasoningItem, ResultItem, TextItem, UserItem
from hibernaut.messages.parts import Content, Excerpt, Image, Part, Text

MOST_TURNS: Final = 6
MOST_CALLS: Final = 4

FOREIGN: Final = (
    ReasoningItem("scripted", b"opaque", "I think"),
    ReasoningItem("elsewhere", b'{"type":"thinking","thinking":"hm","signature":"c2ln"}', "hm"),
    ReasoningItem("elsewhere", b"\x00\xff not even text"),
)
"""Reasoning that no real provider may be shown."""

TEXTS: Final = (
    "hello",
    "x",
    " leading and trailing \n",
    'quotes " and \\ backslashes \\u0041 and </tool> <|end|> {"a": 1}',
    "line\u2028separator, \u200b, \x01\x1b[0m\x7f, ␛␀",
    "日本語のテキスト, emoji 👩‍👩‍👧, e\u0301, \u202eright to left",
    "\u200b",
    "word " * 400,
)

ARGUMENTS: Final = (
    "{}",
    '{"path":"a.txt"}',
    to_json({"a": {"b": [1, 2.5, None, True, "x"]}, "": "empty key", "n": 2**53 + 1, "m": -(2**63)}),
    to_json({"text": TEXTS[3], "more": TEXTS[5]}),
    '{"deep":' + "[" * 30 + "]" * 30 + "}",
)

NAMES: Final = ("read", "start_build", "a-b_c", "x" * 64, "receive_event__injected")

OLD_NAMES: Final = ("fs.read", "größe", "y" * 200)
"""What older histories may hold: names that are no name of a tool today."""

PROVIDER_IDS: Final = ("", "", "toolu_01A", "call_1", "call_1", "0", "id with spaces/ü", "z" * 100, "fc_" + "1" * 61)


def png(width: int = 1, height: int = 1) -> bytes:
    """Return a black picture."""
    header = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    rows = zlib.compress(b"\0" * ((width + 1) * height), 9)
    chunks = ((b"IHDR", header), (b"IDAT", rows), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        [
            struct.pack(">I", len(data)) + kind + data + struct.pack(">I", binascii.crc32(kind + data))
            for kind, data in chunks
        ]
    )


GIF: Final = (
    b"GIF89a\x01\x00\x01\x00\x80\x00\x00\x00\x00\x00\xff\xff\xff!\xf9\x04\x01\x00\x00\x00\x00,\x00\x00\x00\x00\x01\x00"
    b"\x01\x00\x00\x02\x02D\x01\x00;"
)

IMAGES: Final = (
    Image("image/png", png()),
    Image("image/jpeg", png(3, 2)),  # not what it says
    Image("image/gif", GIF),
    Image("image/png", png(9_000, 1)),
    Image("image/png", png(3_000, 1)),
    Image("image/svg+xml", b"<svg xmlns='http://www.w3.org/2000/svg'/>"),
    Image("image/png", b"no picture at all"),
    Image("", b""),
    Image("image/png", url="https://pictures.example/a.png"),
    Image("image/png", url="file:///etc/passwd"),
)
"""Pictures that providers take, and such as they refuse."""


def random_transcript(
    random: Random, own: Sequence[ReasoningItem] = (), call_data: Sequence[bytes] = (b"",), *, images: bool = True
) -> list[Item]:
    """Return a transcript that a model may be asked with.

    Args:
        random: where chance comes from.
        own: reasoning of the model's own dialect that may be replayed.
        call_data: what the dialect may have stored with a call.
        images: whether there are pictures in it.
    """
    shown = Transcript()
    shown.extend(_History(random, own, call_data, images=images).make())
    ready = list(shown.ready())
    validate(ready)
    return ready


class _History:
    def __init__(
        self, random: Random, own: Sequence[ReasoningItem], call_data: Sequence[bytes], *, images: bool
    ) -> None:
        self._random = random
        self._reasoning = (*own, *own, *FOREIGN)
        self._call_data = (b"", *call_data, b"\x00of another provider")
        self._images = images
        self._calls: list[CallItem] = []
        self._items: list[Item] = []

    def make(self) -> list[Item]:
        self._user_side()
        for _ in range(self._random.randint(0, MOST_TURNS)):
            self._turn()
            if self._chance(0.8):  # mostly the user answers
                self._user_side()
        self._user_side()
        return self._items

    def _user_side(self) -> None:
        for _ in range(self._random.choice((1, 1, 1, 2, 3))):
            origin = self._random.choice(("", "", "runtime"))
            self._items.append(UserItem(self._content(), "ada", origin))
        while self._calls and self._chance(0.2):  # some calls lead to events
            call = self._random.choice(self._calls)
            event_id = f"e{len(self._items)}"
            self._items.append(EventItem(event_id, call.id, call.name, call.arguments, self._content()))

    def _turn(self) -> None:
        made: list[CallItem] = []
        for _ in range(self._random.randint(1, 5)):
            kind = self._random.choice(("text", "reasoning", "call", "call"))
            if kind == "reasoning":
                self._items.append(self._random.choice(self._reasoning))
            elif kind == "text":
                self._items.append(TextItem(self._random.choice(TEXTS), interrupted=self._chance(0.1)))
            elif len(made) < MOST_CALLS:
                made.append(self._call())
                self._items.append(made[-1])
        self._calls += made
        self._results(made)

    def _call(self) -> CallItem:
        choice = self._random.choice
        name = choice(NAMES) if self._chance(0.9) else choice(OLD_NAMES)
        number = sum(isinstance(item, CallItem) for item in self._items)
        return CallItem(f"c{number}", name, choice(ARGUMENTS), choice(PROVIDER_IDS), choice(self._call_data))

    def _results(self, calls: Sequence[CallItem]) -> None:
        for call in self._random.sample(calls, len(calls)):
            if self._chance(0.9):  # some never come
                failed = self._chance(0.2)
                self._items.append(ResultItem(call.id, self._content(), failed))

    def _chance(self, share: float) -> bool:
        return self._random.random() < share

    def _content(self) -> Content:
        if self._chance(0.6):  # most is plain text
            return self._random.choice((*TEXTS, "", " "))
        return tuple([self._part() for _ in range(self._random.randint(0, 3))])

    def _part(self) -> Part:
        makers: list[Callable[[], Part]] = [
            lambda: Text(self._random.choice((*TEXTS, ""))),
            lambda: Excerpt(self._random.choice(TEXTS), b"\x01" * 32, 70_000),
        ]
        if self._images:
            makers += [lambda: self._random.choice(IMAGES)] * 2
        return self._random.choice(makers)()
