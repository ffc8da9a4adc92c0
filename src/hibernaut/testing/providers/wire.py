"""What a fake provider needs to know of the API that it speaks."""

from collections.abc import Iterable, Mapping
from typing import Any, Protocol

import msgspec

from hibernaut.errors import ModelError
from hibernaut.messages.stream import StreamPiece


class Asked(msgspec.Struct, frozen=True):
    """A request as it arrived."""

    method: str
    path: str
    """With its query."""
    headers: Mapping[str, str]
    """Names in lower case."""
    body: Any = None
    """What its JSON holds."""
    raw: bytes = b""

    @classmethod
    def of(cls, method: str, path: str, headers: Mapping[str, str], raw: bytes) -> "Asked":
        """Return a request with the value that its body holds; None where that is no JSON."""
        try:
            value = msgspec.json.decode(raw) if raw else None
        except (msgspec.DecodeError, UnicodeDecodeError):
            value = None
        return cls(method, path, {name.lower(): text for name, text in headers.items()}, value, raw)


class Raw(msgspec.Struct, frozen=True):
    """An answer as it stands, in place of a turn."""

    status: int = 200
    headers: Mapping[str, str] = msgspec.field(default_factory=lambda: {"content-type": "application/json"})
    body: bytes = b""
    hangs: bool = False
    """Whether nothing more comes after the body, and the connection stays open."""


class Encoder(Protocol):
    """Writes one turn as events of the wire."""

    def feed(self, piece: StreamPiece) -> Iterable[bytes]:
        """Return the events that say this."""
        ...

    def failed(self, error: ModelError) -> bytes | None:
        """Return the event that says that the completion failed in the middle; None: the wire has none."""
        ...


class FakeWire(Protocol):
    """A provider's API, seen from its own side."""

    @property
    def stream_type(self) -> str:
        """The media type of a stream."""
        ...

    def check(self, asked: Asked) -> Raw | None:
        """Return the answer to a request that asks for no turn, or that the provider would refuse; None: it is fine."""
        ...

    def refuse(self, error: ModelError) -> Raw:
        """Return the answer of a provider with which a completion fails like this from the start."""
        ...

    def encoder(self, asked: Asked) -> Encoder:
        """Return what writes the turn that this asks for."""
        ...
