"""How the API of a provider is spoken: what is sent, and what is read from the answer. Values and bytes, no I/O.

A dialect turns a request into a message to the provider and its answer into pieces of a turn. `HttpModel` does the rest
for all of them: connections, deadlines, limits, cancellation.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

import msgspec

from hibernaut.errors import ModelError
from hibernaut.messages.items import Item
from hibernaut.messages.stream import StreamPiece
from hibernaut.models.protocol import About, ListedModel, ModelRequest


class Frame(msgspec.Struct, frozen=True, gc=False):
    """One event of a streamed answer: its kind, where the wire names one, and its data (JSON text)."""

    kind: str
    data: str


class Refusal(msgspec.Struct, frozen=True):
    """An answer that is no stream: its status, headers (lower case), the beginning of its body, and when it came."""

    status: int
    headers: Mapping[str, str]
    body: bytes
    came: int = 0
    """Milliseconds since 1970."""


class Sent(msgspec.Struct, frozen=True):
    """A message to the provider: where below its base URL it goes, and its body (JSON)."""

    path: str
    body: bytes
    headers: Mapping[str, str] = {}
    answer: str = "text/event-stream"
    """The media type of the stream that answers it, one of `hibernaut.models.frames.READERS`."""
    instead: "Callable[[Refusal], Sent | None] | None" = None
    """Returns what is sent, once, where this is refused so; None: nothing would help."""


class Writer(Protocol):
    """A transcript as the provider takes it, written item by item and only ever appended to."""

    @property
    def items(self) -> int:
        """How many items it has taken."""
        ...

    @property
    def size(self) -> int:
        """How many bytes it holds."""
        ...

    def feed(self, items: Iterable[Item]) -> None:
        """Take the next items."""
        ...


class Reader(Protocol):
    """Reads one streamed answer."""

    def feed(self, frame: Frame) -> Iterable[StreamPiece]:
        """Return the pieces that an event holds.

        Raises:
            ModelError: the event says that the completion failed.
            msgspec.DecodeError, msgspec.ValidationError, ValueError: it cannot be read.
        """
        ...

    def end(self) -> Iterable[StreamPiece]:
        """Return what is still owed when the stream has ended. Without a `Finish` by now the stream has failed."""
        ...


class Dialect(Protocol):
    """How a provider's API is spoken."""

    @property
    def name(self) -> str:
        """What it is called. Reasoning is replayed only to models of the dialect that it came from."""
        ...

    def writer(self, about: About) -> Writer:
        """Return a writer for a new transcript."""
        ...

    def request(self, about: About, request: ModelRequest, writer: Any) -> Sent:
        """Return what asks for a completion. `writer` is one of this dialect and has taken the whole transcript.

        Raises:
            InvalidRequest: the provider would not take it; the text says what and why.
        """
        ...

    def reader(self) -> Reader:
        """Return a reader for a new answer."""
        ...

    def failure(self, refusal: Refusal) -> ModelError:
        """Return what an answer means that is no stream."""
        ...

    @property
    def listing(self) -> str:
        """The path below the base URL, or the whole URL, at which models are listed; "" if they are not."""
        ...

    def listed(self, body: bytes) -> tuple[Sequence[ListedModel], str]:
        """Read a list of models, and the path or URL of its next page ("" for none).

        Raises:
            msgspec.DecodeError, ValueError: it is none.
        """
        ...


@runtime_checkable
class CountingDialect(Protocol):
    """A dialect of a provider that can be asked how many tokens a prompt has."""

    def counting(self, about: About, request: ModelRequest, writer: Any) -> Sent:
        """Return what asks for it. `writer` is one of this dialect and has taken the whole transcript.

        Raises:
            InvalidRequest: the provider would not take it.
        """
        ...

    def counted(self, body: bytes) -> int:
        """Read the answer.

        Raises:
            msgspec.DecodeError, ValueError: it is none.
        """
        ...
