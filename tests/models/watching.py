"""What must hold of every request that a course makes, whatever was lived through before.

The provider's strict fake says itself whether it takes it. Here the rest is checked: that what was written before is
used again and is the same as if it were read from the store and written now; that nobody is shown what another has
thought, and each is shown its own as it came; that a child is shown what its parent was; and that a prompt which begins
like an earlier one begins with the same bytes.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, Final

import msgspec

from hibernaut.engine.images import fit_images
from hibernaut.engine.transcripts import Transcripts
from hibernaut.kernel.head import Head, decode_head
from hibernaut.kernel.transcript import validate
from hibernaut.messages.items import CallItem, Item, ReasoningItem, ResultItem, UserItem
from hibernaut.messages.parts import Image
from hibernaut.messages.stream import CallEnded, ReasoningBlock, StreamPiece
from hibernaut.models.protocol import ModelInfo, ModelRequest
from hibernaut.stores.protocol import Store
from tests.models.doors import CHAT, Door, Doors

MARKS: Final = (b',"cache_control":{"type":"ephemeral"}', b',{"cachePoint":{"type":"default"}}')
"""What moves with the end of a prompt."""

MESSAGES: Final = ("messages", "input", "contents")

BEGINNINGS: Final = ("tools", "toolConfig", "system", "systemInstruction", "instructions")

GIVEN_WAY: Final = b"no longer shown"

LEAST: Final = 12
"""Characters that a text of a block of reasoning has which belongs to no other."""

_members = msgspec.json.Decoder(dict[str, msgspec.Raw])
_value = msgspec.json.Decoder()


class Broken(AssertionError):
    """A request is not as it must be."""


class Asked(msgspec.Struct, frozen=True):
    """A request for a turn, as it was made."""

    transcript: tuple[Item, ...]
    body: bytes
    beginning: tuple[object, ...]
    """The tools, form and instructions that came with it."""
    thread_id: str


class Watch:
    """Looks at the requests of one course."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.seen: Counter[str] = Counter()
        """What there was to be checked, by kind."""
        self._asked: dict[str, dict[str, Asked]] = {}
        """The last requests for turns, by how a model is asked and by thread."""
        self._shown: dict[tuple[str, bool], tuple[int, tuple[Item, ...]]] = {}
        """What threads were first shown, with pictures or words for them, and the version of their heads then."""
        self._secrets: dict[str, set[bytes]] = {}
        """What must not be shown to others, by the name of the dialect that it came from."""

    async def check(self, doors: Doors, door: Door, other: Door, request: ModelRequest) -> bytes:
        """Check a request before it is sent; return the body that has to arrive.

        Raises:
            Broken, TranscriptInvalid: it is not as it must be.
        """
        validate(request.transcript)
        if _has_images(request) and not doors.model(door).info.images:
            raise Broken(f"{door.model} is shown images, which it cannot see")
        if request.purpose == "turn" and request.memo is not None:
            await self._follows_from_what_is_stored(doors.model(door).info, request)
        body = doors.model(door).sent(msgspec.structs.replace(request, memo=None)).body
        self._shows_only_its_own(doors, door, request, body)
        if request.purpose == "turn":
            self._begins_as_before(f"{door.model} {doors.asked.get(door.model)}", door, request, body)
        await self.taken_by(doors, other, request)
        self._count(request, body)
        return body

    async def taken_by(self, doors: Doors, door: Door, request: ModelRequest) -> None:
        """Check that a model would take a request, if the thread had been switched to it.

        Raises:
            Broken: it would not.
        """
        shown = await fit_images(request.transcript, doors.model(door).info, self._store)
        asked = msgspec.structs.replace(request, transcript=shown, memo=None)
        body = doors.model(door).sent(asked).body
        self._shows_only_its_own(doors, door, asked, body)
        self.seen["pictures given way"] += GIVEN_WAY in body
        refused = doors.verdict(door, asked)
        if refused is not None:
            raise Broken(f"{door.model} would not take it: {refused.body.decode()}")

    def heard(self, door: Door, piece: StreamPiece) -> None:
        """Take in what a model has said."""
        if isinstance(piece, ReasoningBlock):
            self._secrets.setdefault(piece.provider, set()).update(_secrets(piece.data))
        elif isinstance(piece, CallEnded) and piece.data:
            self._secrets.setdefault(door.speaks, set()).update(_secrets(piece.data))

    # The rules

    async def _follows_from_what_is_stored(self, info: ModelInfo, request: ModelRequest) -> None:
        row = await self._store.read_head(request.thread_id)
        if row is None:
            raise Broken(f"{request.thread_id} is not there")
        head = decode_head(row.head).head
        stored = (await Transcripts(self._store).at(head)).transcript.items
        shown = tuple(request.transcript)
        if shown[: len(stored)] != tuple(await fit_images(stored, info, self._store)):
            raise Broken(f"{request.thread_id} is shown something else than what is stored")
        if head.summary is None:
            self._inherits(head, shown, images=info.images)
            self._shown.setdefault((request.thread_id, info.images), (head.version, shown))

    def _inherits(self, head: Head, shown: tuple[Item, ...], *, images: bool) -> None:
        """Check that a child's whole history begins with what its parent was first shown, if that was a whole one."""
        link = head.link
        if link is None or link.fresh or link.summary is not None:
            return
        version, above = self._shown.get((link.parent, images), (link.version, ()))
        if version >= link.version:  # it was not shown that before the child was made
            return
        if shown[: len(above)] != above:
            raise Broken(f"{head.thread_id} does not begin with what {link.parent} was shown")
        self.seen["inherited"] += 1

    def _shows_only_its_own(self, doors: Doors, door: Door, request: ModelRequest, body: bytes) -> None:
        for dialect, secrets in self._secrets.items():
            if dialect != door.speaks or not doors.replays(door):
                for secret in secrets:
                    if secret in body:
                        raise Broken(f"{door.model} is shown what {dialect} has thought: {secret!r}")
        if not doors.replays(door):
            return
        for item in request.transcript:
            if data := _reasoning_of(item, door.speaks):
                self._is_replayed(door, data, body)

    def _is_replayed(self, door: Door, data: bytes, body: bytes) -> None:
        if door.provider not in CHAT and not door.provider.startswith("google"):
            if data not in body:
                raise Broken(f"{door.model} is not shown what it has thought: {data!r}")
        elif b":" in data and door.provider.startswith("google"):
            signature = data.partition(b":")[2]
            if signature not in body:
                raise Broken(f"{door.model} is not shown its signature {data!r}")
        elif not door.provider.startswith("google"):
            for secret in _secrets(data):
                if secret not in body:
                    raise Broken(f"{door.model} is not shown what it has thought: {secret!r}")
        self.seen["reasoning replayed"] += 1

    def _begins_as_before(self, how: str, door: Door, request: ModelRequest, body: bytes) -> None:
        asked = Asked(
            tuple(request.transcript), body, (request.tools, request.output, request.instructions), request.thread_id
        )
        before = self._asked.setdefault(how, {})
        for earlier in before.values():
            count = len(earlier.transcript)
            if asked.transcript[:count] == earlier.transcript and GIVEN_WAY not in body:
                _begins_like(door, earlier, asked)
                own = earlier.thread_id == asked.thread_id
                self.seen["goes on" if own else "begins like another thread"] += 1
        before[request.thread_id] = asked

    def _count(self, request: ModelRequest, body: bytes) -> None:
        self.seen["with images"] += _has_images(request)
        self.seen["from a memo"] += request.memo is not None
        self.seen["pictures given way"] += GIVEN_WAY in body
        self.seen[request.purpose] += 1
        self.seen["in a form"] += request.output is not None


def _reasoning_of(item: Item, dialect: str) -> bytes:
    """Return what a dialect has stored with an item and wants to be shown again; b"" for nothing."""
    match item:
        case ReasoningItem(provider=provider, data=data) if provider == dialect:
            return data
        case CallItem(data=data) if data.startswith(dialect.encode() + b":"):
            return data
        case _:
            return b""


def _has_images(request: ModelRequest) -> bool:
    contents = [item.content for item in request.transcript if isinstance(item, UserItem | ResultItem)]
    return any(isinstance(part, Image) for content in contents if not isinstance(content, str) for part in content)


def _begins_like(door: Door, earlier: Asked, later: Asked) -> None:
    before, now = _members.decode(earlier.body), _members.decode(later.body)
    messages = next(name for name in MESSAGES if name in now)
    if list(now)[-1] != messages:
        raise Broken(f"{door.model}: {list(now)[-1]!r} comes after the messages")
    if earlier.beginning == later.beginning:
        for name in BEGINNINGS:
            if before.get(name) != now.get(name):
                raise Broken(f"{door.model}: {name!r} is not what it was")
    start, whole = _stem(door, bytes(before[messages])), _unmarked(bytes(now[messages]))
    if not whole.startswith(start):
        place = next(at for at, (one, other) in enumerate(zip(start, whole, strict=False)) if one != other)
        told = f"{start[max(0, place - 200) : place + 200]!r}\nnow\n{whole[max(0, place - 200) : place + 200]!r}"
        raise Broken(f"{door.model}: the prompt begins otherwise than before, at byte {place}:\n{told}")


def _unmarked(messages: bytes) -> bytes:
    for mark in MARKS:
        messages = messages.replace(mark, b"")
    return messages


def _stem(door: Door, messages: bytes) -> bytes:
    """Return what must stand at the beginning of all that follows: without what is closed at the end.

    What the user's side says in a row is one message of the Chat API: the last one may still grow, and change its form.
    """
    messages = _unmarked(messages)
    if door.provider in CHAT:
        said = max(messages.rfind(opening + b'{"role":"user",') for opening in (b",", b"["))
        if messages.find(b'"role":"tool"', said) < 0:
            return messages[:said]
    return messages.rstrip(b"]}")


def _secrets(data: bytes) -> Iterator[bytes]:
    """Yield the texts in a block of reasoning, as they stand on a wire."""
    try:
        value: Any = _value.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError):
        value = data.partition(b":")[2].decode() if b":" in data else data.decode("latin-1")
    for text in _texts(value):
        if len(text) >= LEAST and text not in _COMMON:
            yield msgspec.json.encode(text)[1:-1]


_COMMON: Final = frozenset({"redacted_thinking", "reasoning.text", "reasoning.encrypted", "summary_text"})


def _texts(value: Any) -> Sequence[str]:
    if isinstance(value, dict):
        return [text for each in value.values() for text in _texts(each)]
    if isinstance(value, list):
        return [text for each in value for text in _texts(each)]
    return [value] if isinstance(value, str) else []
