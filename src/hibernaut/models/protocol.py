"""What the runtime asks of a model provider."""

from collections.abc import AsyncGenerator, Sequence
from typing import Literal, Protocol

import msgspec

from hibernaut.messages.items import Item
from hibernaut.messages.stream import StreamPiece
from hibernaut.messages.tools import ToolSpec


class ModelRequest(msgspec.Struct, frozen=True):
    """One completion to be made.

    `transcript` is valid (see `hibernaut.kernel.transcript`) and holds only `UserItem`, `TextItem`, `ReasoningItem`,
    `CallItem` and `ResultItem`. It belongs to the runtime: a provider reads it while it streams, and keeps a copy of
    what it wants to keep.
    """

    model: str
    instructions: str
    transcript: Sequence[Item]
    tools: tuple[ToolSpec, ...]
    thread_id: str
    purpose: Literal["turn", "summary"] = "turn"
    """What is asked for: the thread's next turn, or a summary of its history (then there are no tools)."""


class ModelInfo(msgspec.Struct, frozen=True):
    """What is known of a model. 0: unknown."""

    context_window: int = 0
    max_output: int = 0
    images: bool = True
    """Whether it takes images; where it does not, a word stands in their place."""
    provider: str = ""
    """Who runs it, as OpenTelemetry calls them ("anthropic", "openai", "aws.bedrock"); for traces."""


class Model(Protocol):
    """A model that can be asked."""

    @property
    def info(self) -> ModelInfo:
        """What is known of it."""
        ...

    def stream(self, request: ModelRequest) -> AsyncGenerator[StreamPiece, None]:
        """Make one completion. Closing the generator gives it up and frees what it holds.

        Raises:
            ModelError: of the kind in `hibernaut.models.errors`, at any point of the stream.
        """
        ...


class ModelSource(Protocol):
    """Finds the model that a thread names."""

    def resolve(self, name: str) -> Model:
        """Return the model of that name.

        Raises:
            ConfigurationError: there is none, saying which there are.
        """
        ...
