"""Models behind all of our adapters, each with the strict fake of its provider.

`Doors` has them under the names that a user gives them, so what is tried is what is used: the configuration, the
provider that it makes, the model, its dialect.
"""

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from typing import Final, cast

import msgspec

from hibernaut.clock import Clock
from hibernaut.models.configuration import Configuration, ModelSettings, ProviderSettings
from hibernaut.models.http_model import HttpModel
from hibernaut.models.protocol import ModelRequest
from hibernaut.models.providers import Providers
from hibernaut.testing.providers.anthropic import AnthropicWire, BedrockWire, VertexWire
from hibernaut.testing.providers.bedrock import TOKEN, ConverseWire
from hibernaut.testing.providers.google import GeminiWire
from hibernaut.testing.providers.openai_chat import ChatWire, Manner
from hibernaut.testing.providers.openai_responses import ResponsesWire
from hibernaut.testing.providers.server import FakeProvider, FakeScript
from hibernaut.testing.providers.wire import Asked, FakeWire, Raw
from tests.models.bedrock.converse import ADAPTIVE, CLAUDE, LLAMA, NOVA, OLD_CLAUDE

KEY: Final = TOKEN
"""Of all of them."""

NOWHERE: Final = "http://127.0.0.1:9"


class Door(msgspec.Struct, frozen=True):
    """A model, and what is known of it that its requests are held against."""

    model: str
    """`provider:model`."""
    replays: bool = False
    """Whether it is shown the reasoning that came from its provider."""
    dialect: str = ""
    """Whose reasoning that is; "": the provider's."""
    forgets: bool = False
    """Whether it is not shown it where it is told not to think."""
    only_json: bool = False
    """Whether it can only make calls whose arguments are JSON."""
    tells_usage: bool = True

    @property
    def provider(self) -> str:
        return self.model.partition(":")[0]

    @property
    def speaks(self) -> str:
        """The name of its dialect."""
        return self.dialect or self.provider


DOORS: Final[Mapping[str, Door]] = {
    "old haiku": Door("anthropic:claude-3-haiku-20240307"),
    "haiku": Door("anthropic:claude-haiku-4-5-20251001", True),
    "haiku 5.5": Door("anthropic:claude-haiku-5-5", True, forgets=True),
    "sonnet": Door("anthropic:claude-sonnet-4-6", True),
    "sonnet 5": Door("anthropic:claude-sonnet-5", True),
    "sonnet 5.5": Door("anthropic:claude-sonnet-5-5", True, forgets=True),
    "opus": Door("anthropic:claude-opus-5-5", True),
    "haiku at vertex": Door("anthropic-vertex:claude-haiku-4-5-20251001", True, "anthropic"),
    "sonnet at bedrock": Door("anthropic-bedrock:anthropic.claude-sonnet-4-6", True, "anthropic"),
    "haiku of a gateway": Door("gateway:claude-haiku-4-5-20251001", True),
    "gpt-5": Door("openai:gpt-5", True),
    "gpt-4.1": Door("openai:gpt-4.1"),
    "gpt-5 at azure": Door("azure:gpt-5", True),
    "gpt-4o by chat": Door("openai-chat:gpt-4o"),
    "deepseek": Door("deepseek:deepseek-chat", True),
    "groq": Door("groq:llama-3.3-70b-versatile"),
    "gemma": Door("llamacpp:gemma-3-12b", True),
    "ministral": Door("lmstudio:ministral-8b"),
    "mistral": Door("mistral:mistral-large-latest"),
    "kimi": Door("moonshot:kimi-k2", True),
    "qwen": Door("ollama:qwen3", True),
    "router": Door("openrouter:mistralai/mistral-large", True),
    "magistral": Door("vllm:magistral-small", True),
    "odd": Door("odd:some-model", only_json=True, tells_usage=False),
    "gemini": Door("google:gemini-3.5-flash", True, only_json=True),
    "gemini pro": Door("google:gemini-3-pro-preview", True, only_json=True),
    "older gemini": Door("google:gemini-2.5-flash", True, only_json=True),
    "oldest gemini": Door("google:gemini-2.0-flash", True, only_json=True),
    "gemini at vertex": Door("google-vertex:gemini-3.5-flash", True, only_json=True),
    "claude by converse": Door(f"bedrock:{CLAUDE}", True),
    "opus by converse": Door(f"bedrock:{ADAPTIVE}", True),
    "old claude by converse": Door(f"bedrock:{OLD_CLAUDE}"),
    "nova": Door(f"bedrock:{NOVA}"),
    "gpt-oss": Door("bedrock:openai.gpt-oss-120b-1:0"),
    "llama": Door(f"bedrock:{LLAMA}"),
}

LIKE: Final = {"gateway": "anthropic", "odd": "compatible"}
"""Providers of one's own, and what they are like."""

CHAT: Final = (
    *("deepseek", "groq", "llamacpp", "lmstudio", "mistral", "moonshot", "ollama", "openai-chat", "openrouter", "vllm"),
    "odd",
)
"""Providers that are asked through the Chat API."""

ODD: Final = Manner(
    ids="missing",
    index="missing",
    whole=True,
    objects=True,
    nulls=True,
    content_parts=True,
    usage="missing",
    done=False,
)
"""A server that puts its answers in all the ways that others do not."""

WIRES: Final[Mapping[str, Callable[[], FakeWire]]] = {
    "anthropic": lambda: AnthropicWire(KEY),
    "anthropic-vertex": lambda: VertexWire(KEY),
    "anthropic-bedrock": lambda: BedrockWire(KEY),
    "gateway": lambda: AnthropicWire(KEY),
    "openai": lambda: ResponsesWire(key=KEY),
    "azure": lambda: ResponsesWire(key=KEY, account="azure"),
    **{name: partial(ChatWire, ODD if name == "odd" else name.removesuffix("-chat"), key=KEY) for name in CHAT},
    "google": lambda: GeminiWire(key=KEY),
    "google-vertex": lambda: GeminiWire(vertex=True, key=KEY),
    "bedrock": ConverseWire,
}

_HEADERS: Final = {
    "authorization": f"Bearer {KEY}",
    "x-api-key": KEY,
    "x-goog-api-key": KEY,
    "api-key": KEY,
    "anthropic-version": "2023-06-01",
}
"""What the endpoints of all providers show, together."""


class Doors:
    """All models.

    Args:
        urls: where the fakes of those providers are that can be asked; what would be sent to others is only looked at.
        wires: the fakes of all providers.
        asked: how models are asked that are not asked as by default, by their names.
    """

    def __init__(
        self, urls: Mapping[str, str], wires: Mapping[str, FakeWire], asked: Mapping[str, ModelSettings], clock: Clock
    ) -> None:
        self.wires = wires
        self.asked = asked
        self._providers = Providers(
            Configuration(
                providers={
                    name: ProviderSettings(like=LIKE.get(name, ""), url=urls.get(name, NOWHERE), key=KEY)
                    for name in WIRES
                },
                models=asked,
            ),
            clock=clock,
        )

    def replays(self, door: Door) -> bool:
        """Tell whether a model is shown the reasoning that came from its provider."""
        thinks = door.model not in self.asked or self.asked[door.model].effort != "none"
        return door.replays and (thinks or not door.forgets)

    def model(self, door: Door) -> HttpModel:
        return cast("HttpModel", self._providers.resolve(door.model))

    def verdict(self, door: Door, request: ModelRequest) -> Raw | None:
        """Return what the fake of a model answers to a request that is not sent; None: it would take it."""
        sent = self.model(door).sent(request)
        headers = {"content-type": "application/json", **_HEADERS, **sent.headers}
        return self.wires[door.provider].check(Asked.of("POST", sent.path, headers, sent.body))

    async def close(self) -> None:
        await self._providers.close()


class Street:
    """Fakes of all providers, of which some are running."""

    def __init__(self, stack: AsyncExitStack, clock: Clock) -> None:
        self.fakes: list[FakeProvider] = []
        """Those that run."""
        self._wires = {name: make() for name, make in WIRES.items()}
        self._urls: dict[str, str] = {}
        self._stack = stack
        self._clock = clock

    async def serve(self, provider: str, script: FakeScript, chunks: int | None) -> None:
        """Run the fake of a provider, with its script, its streams cut to `chunks`."""
        fake = FakeProvider(self._wires[provider], script, chunks=chunks, clock=self._clock)
        self.fakes.append(await self._stack.enter_async_context(fake))
        self._urls[provider] = fake.url

    def doors(self, asked: Mapping[str, ModelSettings]) -> Doors:
        """Return all models, asked in certain ways."""
        made = Doors(self._urls, self._wires, asked, self._clock)
        self._stack.push_async_callback(made.close)
        return made


@asynccontextmanager
async def street(clock: Clock) -> AsyncIterator[Street]:
    """Hold the fakes of all providers open."""
    async with AsyncExitStack() as stack:
        yield Street(stack, clock)
