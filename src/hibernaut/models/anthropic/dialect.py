"""How the Messages API of Anthropic is spoken, wherever it stands."""

from collections.abc import Sequence
from urllib.parse import quote

import msgspec

from hibernaut.errors import ModelError
from hibernaut.models.anthropic.failures import failure_of
from hibernaut.models.anthropic.platforms import ANTHROPIC, Platform
from hibernaut.models.anthropic.reading import AnthropicReader
from hibernaut.models.anthropic.requests import Body, CacheFor, body_of, manner_of
from hibernaut.models.anthropic.rules import LONGEST_TOOL_NAME, TOOL_NAME
from hibernaut.models.anthropic.writing import MessageWriter
from hibernaut.models.dialect import Refusal, Sent
from hibernaut.models.protocol import About, ListedModel, ModelInfo, ModelRequest
from hibernaut.models.tool_names import ToolNames


class _Support(msgspec.Struct):
    supported: bool = False


class _Capabilities(msgspec.Struct):
    image_input: _Support | None = None
    thinking: _Support | None = None


class _Listed(msgspec.Struct):
    id: str
    display_name: str | None = None
    max_input_tokens: int | None = None
    max_tokens: int | None = None
    capabilities: _Capabilities | None = None


class _Page(msgspec.Struct):
    data: list[_Listed]
    has_more: bool = False
    last_id: str | None = None


class _Count(msgspec.Struct):
    input_tokens: int


_pages = msgspec.json.Decoder(_Page)
_counts = msgspec.json.Decoder(_Count)


class AnthropicDialect:
    """Speaks the Messages API.

    Args:
        platform: which door it stands behind.
        name: with what reasoning is marked. Another server that speaks this API has another name, since neither takes
            the other's.
        cache_for: how long the provider is to keep prompts; "": as it does by default, five minutes.
    """

    def __init__(self, platform: Platform = ANTHROPIC, *, name: str = "anthropic", cache_for: CacheFor = "") -> None:
        self._platform = platform
        self._name = name
        self._cache_for = cache_for
        self._names = ToolNames(TOOL_NAME, LONGEST_TOOL_NAME)

    @property
    def name(self) -> str:
        """What it is called."""
        return self._name

    def writer(self, about: About) -> MessageWriter:
        """Return a writer for a new transcript."""
        return MessageWriter(manner_of(self._name, self._platform, about), self._names)

    def request(self, about: About, request: ModelRequest, writer: MessageWriter) -> Sent:
        """Return what asks for a completion."""
        manner = manner_of(self._name, self._platform, about)
        body = body_of(self._platform, about, request, writer, manner, self._names, self._cache_for)
        return self._sent(self._platform.messages, about, body)

    def counting(self, about: About, request: ModelRequest, writer: MessageWriter) -> Sent:
        """Return what asks how many tokens a prompt has."""
        manner = manner_of(self._name, self._platform, about)
        body = body_of(self._platform, about, request, writer, manner, self._names, counting=True)
        return self._sent(self._platform.counting, about, body)

    def counted(self, body: bytes) -> int:
        """Read how many tokens a prompt has."""
        return _counts.decode(body).input_tokens

    def reader(self) -> AnthropicReader:
        """Return a reader for a new answer."""
        return AnthropicReader(self._name, self._names)

    def failure(self, refusal: Refusal) -> ModelError:
        """Return what an answer means that is no stream."""
        return failure_of(self._platform.name, refusal)

    @property
    def listing(self) -> str:
        """The path at which models are listed."""
        return self._platform.listing

    def listed(self, body: bytes) -> tuple[Sequence[ListedModel], str]:
        """Read a list of models, and the path of its next page."""
        page = _pages.decode(body)
        more = f"{self._platform.listing}&after_id={quote(page.last_id)}" if page.has_more and page.last_id else ""
        return [_known(model) for model in page.data], more

    def _sent(self, path: str, about: About, body: Body) -> Sent:
        headers = {} if self._platform.names_model else {"anthropic-version": self._platform.version}
        if body.betas:
            headers["anthropic-beta"] = ",".join(body.betas)
        return Sent(path.replace("{model}", quote(about.model_id, safe="@:")), body.data, headers)


def _known(model: _Listed) -> ListedModel:
    can = model.capabilities or _Capabilities()
    info = ModelInfo(
        context_window=model.max_input_tokens or 0,
        max_output=model.max_tokens or 0,
        images=can.image_input is None or can.image_input.supported,
        reasoning=can.thinking is not None and can.thinking.supported,
        prompt_cache=True,
    )
    return ListedModel(model.id, model.display_name or "", info)
