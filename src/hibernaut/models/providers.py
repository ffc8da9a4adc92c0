"""Where `provider:model` becomes a model: providers that come with Hibernaut, those of other packages, one's own."""

import importlib
import logging
import os
from collections.abc import Callable, Iterable, Mapping
from importlib.metadata import entry_points
from typing import Final

import msgspec
from msgspec.structs import replace

from hibernaut.clock import Clock, SystemClock
from hibernaut.credentials import BY_NAME
from hibernaut.errors import ConfigurationError
from hibernaut.models.catalogue import known
from hibernaut.models.configuration import FILE, Configuration, ModelSettings, ProviderSettings
from hibernaut.models.nearest import did_you_mean, maker_of
from hibernaut.models.protocol import About, Model, ModelInfo, ModelProvider

logger = logging.getLogger(__name__)

ENTRY_POINTS: Final = "hibernaut.models"
"""The group of entry points under which other packages name their providers: a `ProviderMaker` each."""

UNKNOWN_MODEL: Final = (
    "%s is not in the catalogue: how long its prompts may be is unknown, so its history is compacted only when the "
    'provider refuses it; say in %s: [models."%s"] context_window = …'
)

REMEMBERED_MODELS: Final = 256
"""Models that are kept once they were made; the oldest are made anew when they are asked for again."""


class BuiltIn(msgspec.Struct, frozen=True):
    """A provider that comes with Hibernaut: what makes it, where it is, and the variable that holds its key."""

    maker: str
    """The module below `hibernaut.models`, and what in it makes the provider."""
    url: str = ""
    """"": it has to be said, or follows from the options."""
    variable: str = ""
    """"": it needs no key."""
    has_other: bool = False
    """Whether there are other credentials that count while that variable is not set."""
    catalogue: str = ""
    """Under which provider the catalogue has its models, if not its own."""
    traced: str = ""
    """What OpenTelemetry calls it (`gen_ai.provider.name`), if not by its own name."""


class Wanted(msgspec.Struct, frozen=True):
    """A provider as it is to be made."""

    name: str
    kind: str
    """The provider that it is like; its own name, if it is one itself."""
    url: str
    """Its base URL; "" if nobody said."""
    key: str
    """Its key, or the name of the variable that holds it (see `hibernaut.credentials`); "" if nobody said."""
    settings: ProviderSettings
    clock: Clock


ProviderMaker = Callable[[Wanted], ModelProvider]
"""Makes a provider. It must not connect to anything yet.

It may raise `ConfigurationError`.
"""

_COMPATIBLE = "openai.provider:compatible"

BUILT_IN: Final[Mapping[str, BuiltIn]] = {
    "anthropic": BuiltIn("anthropic.provider:anthropic", "https://api.anthropic.com", "ANTHROPIC_API_KEY"),
    "anthropic-bedrock": BuiltIn(
        "anthropic.provider:bedrock",
        variable="AWS_BEARER_TOKEN_BEDROCK",
        has_other=True,
        catalogue="bedrock",
        traced="aws.bedrock",
    ),
    "anthropic-vertex": BuiltIn(
        "anthropic.provider:vertex",
        variable="VERTEX_ACCESS_TOKEN",
        has_other=True,
        catalogue="google",
        traced="gcp.vertex_ai",
    ),
    "azure": BuiltIn(
        "openai.provider:azure", variable="AZURE_OPENAI_API_KEY", catalogue="openai", traced="azure.ai.openai"
    ),
    "azure-chat": BuiltIn(
        "openai.provider:azure_chat", variable="AZURE_OPENAI_API_KEY", catalogue="openai", traced="azure.ai.openai"
    ),
    "bedrock": BuiltIn(
        "bedrock.provider:bedrock", variable="AWS_BEARER_TOKEN_BEDROCK", has_other=True, traced="aws.bedrock"
    ),
    "cerebras": BuiltIn(_COMPATIBLE, "https://api.cerebras.ai/v1", "CEREBRAS_API_KEY"),
    "compatible": BuiltIn(_COMPATIBLE),
    "deepseek": BuiltIn(_COMPATIBLE, "https://api.deepseek.com", "DEEPSEEK_API_KEY"),
    "google": BuiltIn(
        "google.provider:google",
        "https://generativelanguage.googleapis.com/v1beta",
        "GEMINI_API_KEY",
        traced="gcp.gemini",
    ),
    "google-vertex": BuiltIn(
        "google.provider:vertex",
        variable="VERTEX_ACCESS_TOKEN",
        has_other=True,
        catalogue="google",
        traced="gcp.vertex_ai",
    ),
    "groq": BuiltIn(_COMPATIBLE, "https://api.groq.com/openai/v1", "GROQ_API_KEY"),
    "llamacpp": BuiltIn(_COMPATIBLE, "http://127.0.0.1:8080/v1"),
    "lmstudio": BuiltIn(_COMPATIBLE, "http://127.0.0.1:1234/v1"),
    "mistral": BuiltIn(_COMPATIBLE, "https://api.mistral.ai/v1", "MISTRAL_API_KEY", traced="mistral_ai"),
    "moonshot": BuiltIn(_COMPATIBLE, "https://api.moonshot.ai/v1", "MOONSHOT_API_KEY", traced="moonshot_ai"),
    "ollama": BuiltIn(_COMPATIBLE, "http://127.0.0.1:11434/v1"),
    "openai": BuiltIn("openai.provider:openai", "https://api.openai.com/v1", "OPENAI_API_KEY"),
    "openai-chat": BuiltIn(
        _COMPATIBLE, "https://api.openai.com/v1", "OPENAI_API_KEY", catalogue="openai", traced="openai"
    ),
    "openrouter": BuiltIn(_COMPATIBLE, "https://openrouter.ai/api/v1", "OPENROUTER_API_KEY"),
    "vllm": BuiltIn(_COMPATIBLE, "http://127.0.0.1:8000/v1"),
    "xai": BuiltIn(_COMPATIBLE, "https://api.x.ai/v1", "XAI_API_KEY", traced="x_ai"),
}
"""Providers that come with Hibernaut. They are loaded when they are first named."""


class Providers:
    """A `ModelSource` that finds `provider:model`, and the names that a configuration gives.

    A provider is made when it is first named, a model when it is first asked for; both are kept.
    """

    def __init__(self, configuration: Configuration | None = None, *, clock: Clock | None = None) -> None:
        self._configuration = configuration or Configuration()
        self._clock = clock or SystemClock()
        self._providers: dict[str, ModelProvider] = {}
        self._models: dict[str, Model] = {}
        self._others = {entry.name: entry for entry in entry_points(group=ENTRY_POINTS)}

    @property
    def names(self) -> list[str]:
        """The providers that there are, by name."""
        return sorted({*BUILT_IN, *self._others, *self._configuration.providers})

    @property
    def given(self) -> list[str]:
        """The names of models that the configuration gives."""
        return sorted(name for name, model in self._configuration.models.items() if model.of)

    @property
    def problems(self) -> list[str]:
        """What is wrong in the configuration: it names providers that there are not."""
        named = [(name, "") for name in self._configuration.providers]
        for name, model in self._configuration.models.items():
            named.append(((model.of or name).partition(":")[0], _said(name, model)))
        found = [self._missing(provider, said) for provider, said in named]
        return [text for text in dict.fromkeys(found) if text]

    def stands_for(self, name: str) -> str:
        """Return the `provider:model` that one of `given` stands for."""
        return self._configuration.models[name].of

    def knows(self, name: str) -> bool:
        """Tell whether a name can be that of a model here: it names a provider that there is, or is one of `given`."""
        provider, colon, model_id = name.partition(":")
        return name in self.given or bool(colon and model_id and provider in self.names)

    def resolve(self, name: str) -> Model:
        """Return the model of that name.

        Raises:
            ConfigurationError: there is no such provider, or it is set up wrongly.
        """
        if name not in self._models:
            if len(self._models) >= REMEMBERED_MODELS:
                del self._models[next(iter(self._models))]
            self._models[name] = self._make(name)
        return self._models[name]

    def provider(self, name: str) -> ModelProvider:
        """Return the provider of that name.

        Raises:
            ConfigurationError: there is none, or it is set up wrongly.
        """
        if name not in self._providers:
            self._check_there(name)
            wanted = self.wanted(name)
            self._providers[name] = self._maker(wanted.kind)(wanted)
        return self._providers[name]

    def wanted(self, name: str) -> Wanted:
        """Return how a provider is to be made: what the configuration says, and what comes with Hibernaut."""
        settings = self._configuration.providers.get(name, ProviderSettings())
        kind = self._kind_of(name)
        built_in = BUILT_IN.get(kind, BuiltIn(""))
        key = settings.key
        if not key and built_in.variable and (not built_in.has_other or built_in.variable in os.environ):
            key = BY_NAME + built_in.variable
        return Wanted(name, kind, settings.url or built_in.url, key, settings, self._clock)

    def about(self, name: str) -> tuple[str, About]:
        """Return the provider of the model of that name, what is known of the model, and how it is asked.

        Raises:
            ConfigurationError: it is neither `provider:model` of a provider that there is, nor one of `given`.
        """
        settings = self._configuration.models.get(name, ModelSettings())
        provider, colon, model_id = (settings.of or name).partition(":")
        if not colon or not model_id:
            raise ConfigurationError(self.no_model(name))
        self._check_there(provider, _said(name, settings) if settings.of else "")
        kind = self.wanted(provider).kind
        built_in = BUILT_IN.get(kind, BuiltIn(""))
        info = known(built_in.catalogue or kind, model_id) or ModelInfo()
        return provider, settings.about(model_id, replace(info, provider=built_in.traced or kind))

    def no_model(self, name: str, others: Iterable[str] = (), there_is: str = "") -> str:
        """Return what is wrong with a name that is no model's, what was probably meant, and what there is.

        `others`: names that count besides those that are known here. `there_is`: what there is besides.
        """
        provider, _, model_id = name.partition(":")
        if provider in self.names and not model_id:
            return (
                f"there is no model {name!r}: {provider} is a provider; name one of its models, as {provider}:MODEL "
                f"(`hibernaut models list {provider}` asks it which it has)"
            )
        maker = maker_of(name)
        meant = f" (did you mean '{maker}:{name}'?)" if maker else did_you_mean(name, [*others, *self.given])
        named = ", ".join([*self.given, *(f"{one}:MODEL" for one in self.names)])
        return f"there is no model {name!r}{meant}; {there_is or f'there is: {named}'}"

    def no_provider(self, name: str) -> str:
        """Return that there is no such provider, which was probably meant, and how others come in."""
        return self._no(name) + self._others_come(name)

    def _no(self, name: str) -> str:
        return f"there is no provider {name!r}{did_you_mean(name, filter(self._is_there, self.names))}"

    def _others_come(self, name: str) -> str:
        names = ", ".join(filter(self._is_there, self.names))
        return (
            f"; there is: {names}; one of another package is found by its entry point `{ENTRY_POINTS}`, and "
            f"[providers.{name}] in {FILE} makes one that is like another"
        )

    async def close(self) -> None:
        """Let go of all connections."""
        for provider in self._providers.values():
            await provider.close()

    def _make(self, name: str) -> Model:
        provider, about = self.about(name)
        made = self.provider(provider).model(about)
        if not made.info.context_window:
            logger.warning(UNKNOWN_MODEL, name, FILE, name)
        return made

    def _maker(self, kind: str) -> ProviderMaker:
        if kind in self._others:
            entry = self._others[kind]
            try:
                made: ProviderMaker = entry.load()
            except Exception as error:
                raise ConfigurationError(f"the provider {kind!r} of {entry.value} cannot be loaded: {error}") from error
            return made
        module, _, maker = BUILT_IN[kind].maker.partition(":")
        built_in: ProviderMaker = getattr(importlib.import_module(f"hibernaut.models.{module}"), maker)
        return built_in

    def _kind_of(self, name: str) -> str:
        settings = self._configuration.providers.get(name)
        return settings.like or name if settings else name

    def _is_there(self, name: str) -> bool:
        kind = self._kind_of(name)
        return kind in BUILT_IN or kind in self._others

    def _missing(self, name: str, said: str = "") -> str:
        """Return that a provider is not there, and where it is `said` to be; "" if it is."""
        if self._is_there(name):
            return ""
        settings = self._configuration.providers.get(name)
        if settings:
            said = f"[providers.{name}]" + (f' like = "{settings.like}"' if settings.like else "")
        where = f"{FILE}, {said}: " if said else ""
        return where + self._no(self._kind_of(name))

    def _check_there(self, name: str, said: str = "") -> None:
        if missing := self._missing(name, said):
            raise ConfigurationError(missing + self._others_come(self._kind_of(name)))


def _said(name: str, model: ModelSettings) -> str:
    """Return how a configuration says which provider a model is of."""
    table = f"[models.{name}]" if name.isidentifier() else f'[models."{name}"]'
    return f'{table} is = "{model.of}"' if model.of else table
