"""What the runtime asks of a model provider."""

from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from typing import Any, Literal, Protocol, TypeVar, cast, runtime_checkable

import msgspec

from hibernaut.messages.items import Item
from hibernaut.messages.stream import StreamPiece
from hibernaut.messages.tools import ToolSpec
from hibernaut.models.prices import Prices


class Kept(Protocol):
    """What a provider has made of a transcript so far, and can go on from."""

    @property
    def size(self) -> int:
        """How many bytes it holds."""
        ...


K = TypeVar("K", bound=Kept)


class Memo:
    """What providers have made of one transcript, so that its next completion costs only what is new.

    It lives exactly as long as a transcript to which nothing happens but that it grows at its end.
    """

    __slots__ = ("_kept", "_size")

    def __init__(self) -> None:
        self._kept: dict[str, Kept] = {}
        self._size = 0

    def grown(self) -> int:
        """Return by how many bytes it has grown since it was asked last."""
        if not self._kept and not self._size:
            return 0
        before, self._size = self._size, sum(kept.size for kept in self._kept.values())
        return self._size - before

    def get(self, key: str, make: Callable[[], K]) -> K:
        """Return what is kept under a key, or what `make` returns, which is then kept. A key has one type."""
        if key not in self._kept:
            self._kept[key] = make()
        return cast("K", self._kept[key])

    def forget(self, key: str) -> None:
        """Drop what is kept under a key."""
        self._kept.pop(key, None)


class OutputSpec(msgspec.Struct, frozen=True):
    """The form that the answer is to have: a JSON Schema of an object, as JSON text."""

    schema: str
    tool: ToolSpec
    """The tool that takes such an answer, for providers that can be held to a form in no other way."""


class ModelRequest(msgspec.Struct, frozen=True, gc=False):
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
    memo: Memo | None = None
    """What was made of the transcript when it was shorter; None: nothing is known of it."""
    tree_id: str = ""
    """The thread at the top of the thread's tree: prompts in a tree begin alike. "": not known."""
    output: OutputSpec | None = None
    """The form that the answer is to have. Only for a model whose `ModelInfo.structured` is set."""

    def offered(self, *, held: bool) -> tuple[ToolSpec, ...]:
        """Return the tools to offer: also the one that takes the answer, unless the model is `held` to its form."""
        return self.tools if held or self.output is None else (*self.tools, self.output.tool)


class ModelInfo(msgspec.Struct, frozen=True):
    """What is known of a model. 0: unknown."""

    context_window: int = 0
    max_output: int = 0
    images: bool = True
    """Whether it takes images; where it does not, a word stands in their place."""
    reasoning: bool = False
    """Whether it can think before it speaks."""
    prompt_cache: bool = False
    """Whether its provider keeps prompts, so that one that begins like an earlier one costs less."""
    prices: Prices | None = None
    provider: str = ""
    """Who runs it, as OpenTelemetry calls them ("anthropic", "openai", "aws.bedrock"); for traces."""
    structured: bool = False
    """Whether its code looks at `ModelRequest.output`; otherwise the tool that takes the answer is among the tools."""


Effort = Literal["", "none", "low", "medium", "high"]


class Settings(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """How a model is to be asked, beyond what the runtime asks for."""

    max_output: int = 0
    """Tokens that a turn may have; 0: as many as the model can, or the provider's own default."""
    effort: Effort = ""
    """How much it may think before it speaks; "": the provider's own default."""
    parameters: Mapping[str, Any] = {}
    """Further fields of the request's body, as the provider names them. They win over the runtime's own."""
    cache: bool = True
    """Whether prompts are marked for the provider's cache, where they have to be."""
    forms: bool = True
    """Whether answers of a form are asked for as the provider has it, where it has; otherwise by a tool."""


class About(msgspec.Struct, frozen=True):
    """A model, what is known of it, and how it is to be asked."""

    model_id: str
    info: ModelInfo = ModelInfo()
    settings: Settings = Settings()


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


class ListedModel(msgspec.Struct, frozen=True):
    """A model that a provider says it has."""

    id: str
    name: str = ""
    """What people call it."""
    info: ModelInfo = ModelInfo()


class ModelProvider(Protocol):
    """Whoever has models."""

    def model(self, about: About) -> Model:
        """Return a model of the provider's. Whether there is one of that id may show only when it is asked.

        Raises:
            ConfigurationError: there is none.
        """
        ...

    async def models(self) -> Sequence[ListedModel]:
        """Ask the provider which models it has.

        Raises:
            ModelError.
        """
        ...

    async def close(self) -> None:
        """Let go of all connections."""
        ...


@runtime_checkable
class Closes(Protocol):
    """What holds connections that can be let go."""

    async def close(self) -> None:
        """Let go of all connections."""
        ...


class ModelSource(Protocol):
    """Finds the model that a thread names."""

    def resolve(self, name: str) -> Model:
        """Return the model of that name.

        Raises:
            ConfigurationError: there is none, saying which there are.
        """
        ...
