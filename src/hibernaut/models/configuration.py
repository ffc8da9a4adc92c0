"""What people say of models and providers: the file `hibernaut.toml`.

[providers.lab]                       # a provider of one's own: lab:MODEL
like = "vllm"
url = "http://gpu-1:8000/v1"
concurrency = 16

[models.quick]                        # a name of one's own
is = "anthropic:claude-haiku-4-5"
max_output = 4000

[models."openai:gpt-5-mini"]          # how a model is asked, and what the catalogue does not know of it
effort = "low"
context_window = 400_000
"""

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from hibernaut.errors import ConfigurationError
from hibernaut.models.nearest import did_you_mean
from hibernaut.models.prices import Prices
from hibernaut.models.protocol import About, Effort, ModelInfo, Settings

FILE = "hibernaut.toml"


class ModelSettings(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True, rename={"of": "is"}):
    """How a model is asked, and what is known of it. What is not said is the provider's default and the catalogue's."""

    of: str = ""
    """The `provider:model` that this name stands for; "": the name is one itself."""
    effort: Effort = ""
    max_output: int = 0
    parameters: Mapping[str, Any] = {}
    cache: bool = True
    forms: bool = True
    context_window: int = 0
    images: bool | None = None
    reasoning: bool | None = None
    prices: Prices | None = None

    def about(self, model_id: str, known: ModelInfo) -> About:
        """Return what is known of the model with this id, and how it is asked."""
        info = msgspec.structs.replace(
            known,
            context_window=self.context_window or known.context_window,
            images=known.images if self.images is None else self.images,
            reasoning=known.reasoning if self.reasoning is None else self.reasoning,
            prices=self.prices or known.prices,
        )
        return About(model_id, info, Settings(self.max_output, self.effort, self.parameters, self.cache, self.forms))


class ProviderSettings(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """Where a provider is, how it is shown who asks, and what is not to be exceeded."""

    like: str = ""
    """The provider that it is like; "": it is the one of its own name."""
    url: str = ""
    """Its base URL; "": where that provider is."""
    key: str = ""
    """The key, better `env:NAME`; "": the variable that the provider itself names."""
    headers: Mapping[str, str] = {}
    concurrency: int = 0
    requests_per_minute: int = 0
    tokens_per_minute: int = 0
    options: Mapping[str, str] = {}
    """What only this kind of provider knows, such as `region`."""


class Configuration(msgspec.Struct, frozen=True, omit_defaults=True):
    """All of it. Tables that others read are left to them."""

    providers: Mapping[str, ProviderSettings] = {}
    models: Mapping[str, ModelSettings] = {}


TABLES = Configuration.__struct_fields__


def find_configuration() -> Configuration:
    """Read the file that HIBERNAUT_CONFIG names, or the one in this directory; without one, nothing is said.

    Raises:
        ConfigurationError: it cannot be read or meant.
    """
    named = os.environ.get("HIBERNAUT_CONFIG", "")
    if not named and not Path(FILE).exists():
        return Configuration()
    return read_configuration(Path(named or FILE))


def read_configuration(path: Path) -> Configuration:
    """Read a file.

    Raises:
        ConfigurationError: it cannot be read or meant; the text says what is wrong with it.
    """
    try:
        data = path.read_bytes()
        _check_tables(msgspec.toml.decode(data))
        return check_configuration(msgspec.toml.decode(data, type=Configuration))
    except OSError as error:
        raise ConfigurationError(f"{path} cannot be read: {error.strerror}") from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"{path} cannot be meant: {error}") from error
    except ConfigurationError as error:
        raise ConfigurationError(f"{path}: {error}") from error


def _check_tables(names: Iterable[str]) -> None:
    for name in names:
        if name not in TABLES and (meant := did_you_mean(name, TABLES)):
            raise ConfigurationError(f"there is no table {name!r}{meant}")


def check_configuration(configuration: Configuration) -> Configuration:
    """Return a configuration whose parts can all be meant.

    Raises:
        ConfigurationError: naming what cannot.
    """
    for name, provider in configuration.providers.items():
        if ":" in name:
            raise ConfigurationError(f"providers.{name!r}: the name of a provider has no colon")
        for limit in ("concurrency", "requests_per_minute", "tokens_per_minute"):
            if getattr(provider, limit) < 0:
                raise ConfigurationError(f"providers.{name}.{limit} must be at least 0 (0: no limit)")
    for name, model in configuration.models.items():
        if not model.of and ":" not in name:
            raise ConfigurationError(f'models.{name}: says of no model what it `is`, such as "anthropic:MODEL ID"')
        if model.of and ":" not in model.of:
            raise ConfigurationError(f"models.{name}.is: {model.of!r} is no provider:model")
        for limit in ("max_output", "context_window"):
            if getattr(model, limit) < 0:
                raise ConfigurationError(f"models.{name!r}.{limit} must be at least 0 (0: not said)")
    return configuration
