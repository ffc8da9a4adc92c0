"""The models that the command knows by name: the one place where a name becomes a model."""

import inspect
import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hibernaut.errors import ConfigurationError
from hibernaut.imports import NoModule, find, split
from hibernaut.models.protocol import Model

if TYPE_CHECKING:
    from hibernaut.models.providers import Providers


def _echo() -> Model:
    from hibernaut.models.echo import EchoModel

    return EchoModel()


BUILT_IN: dict[str, Callable[[], Model]] = {"echo": _echo}
"""Models that come with Hibernaut."""

RECORDED = "recorded:"
"""Before the file of a recording (see `hibernaut record`), which is played back."""

YOURS = "module:attribute or path/to/file.py:attribute"
"""How one's own are named."""

THERE_IS = (
    f"there is: {', '.join(BUILT_IN)}, {RECORDED}FILE, provider:model (`hibernaut models` lists the providers), or "
    f"your own as {YOURS}"
)

_PROVIDER = re.compile(r"[A-Za-z0-9_-]+(:|$)")

NOT_NAMED = ("", "default")
"""What a thread's model is called when whoever launched it named none."""


class NamedModels:
    """A `ModelSource`: built-in models, recordings, models of providers, and those of the user's own modules.

    `provider:model` and the names of the file `hibernaut.toml` come before modules of the same name. `module:attribute`
    is a model, a source of models (`module:attribute:name` is one of its models) or a function without arguments that
    makes either. Each is made once. A thread that names no model gets the default.
    """

    def __init__(self, default: str = "") -> None:
        self._providers: Providers | None = None
        self._made: dict[str, Model] = {}
        self.default = self.full_name(default) if default else ""

    def resolve(self, name: str) -> Model:
        """Return the model of that name.

        Raises:
            ConfigurationError: there is none, or it cannot be made.
        """
        if name in NOT_NAMED:
            name = self.default
        if not name:
            raise ConfigurationError(f"no model is named: give one with --model or HIBERNAUT_MODEL; {THERE_IS}")
        if name not in self._made:
            self._made[name] = self._make(name)
        return self._made[name]

    @property
    def providers(self) -> "Providers":
        """The providers that there are, with what the file `hibernaut.toml` says of them."""
        if self._providers is None:
            from hibernaut.models.configuration import find_configuration
            from hibernaut.models.providers import Providers

            self._providers = Providers(find_configuration())
        return self._providers

    def full_name(self, name: str) -> str:
        """Return a name that means the same from any directory."""
        if name.startswith(RECORDED) and name != RECORDED:
            return f"{RECORDED}{Path(name.removeprefix(RECORDED)).absolute()}"
        if name in BUILT_IN or self._is_of_provider(name):
            return name
        place, attribute = split(name)
        return f"{place}:{attribute}" if attribute else name

    async def close(self) -> None:
        """Let go of all connections."""
        if self._providers is not None:
            await self._providers.close()

    def _make(self, name: str) -> Model:
        if name in BUILT_IN:
            return BUILT_IN[name]()
        if name.startswith(RECORDED):
            return _recorded(name.removeprefix(RECORDED))
        return self.providers.resolve(name) if self._is_of_provider(name) else self._load(name)

    def _load(self, name: str) -> Model:
        place, rest = split(name)
        attribute, _, inner = rest.partition(":")
        if not attribute:
            raise ConfigurationError(self._no_model(name))
        try:
            value = find(place, attribute.split("."))
        except NoModule as error:
            if not _PROVIDER.match(name):
                raise
            # Whoever writes one word before a colon means a provider, until there is a module of that name.
            raise ConfigurationError(
                f"{self.providers.no_provider(place)}; a model of your own is {YOURS}, and {error}"
            ) from error
        if inspect.isclass(value) or not (_is_model(value) or hasattr(value, "resolve")):
            value = _make(name, value)
        if _is_model(value) and not inner:
            model: Model = value
            return model
        if hasattr(value, "resolve"):
            found: Model = value.resolve(inner)
            return found
        raise ConfigurationError(f"{name} is neither a model nor a source of models but {_kind(value)}")

    def _no_model(self, name: str) -> str:
        if name.endswith(".py"):
            return f"there is no model {name!r}: say which in that file, as {name}:NAME"
        return self.providers.no_model(name, BUILT_IN, THERE_IS)

    def _is_of_provider(self, name: str) -> bool:
        # A name that can only be a module's or a file's does not wait for the providers to be looked up.
        return _PROVIDER.match(name) is not None and self.providers.knows(name)


def _recorded(path: str) -> Model:
    from hibernaut.testing.recording import RecordedModel

    if not path:
        raise ConfigurationError(f"{RECORDED} names no file; say {RECORDED}FILE")
    return RecordedModel(path)


def _make(name: str, factory: Any) -> Any:
    if not callable(factory):
        raise ConfigurationError(f"{name} is neither a model nor makes one: it is {_kind(factory)}")
    try:
        made = factory()
    except Exception as error:
        raise ConfigurationError(f"{name} could not make a model: {type(error).__name__}: {error}") from error
    if inspect.iscoroutine(made):
        made.close()
        raise ConfigurationError(f"{name} is asynchronous; make it a plain function that returns a model")
    return made


def _is_model(value: Any) -> bool:
    return hasattr(value, "stream") and hasattr(value, "info")


def _kind(value: Any) -> str:
    name = type(value).__qualname__
    return f"an {name}" if name[0] in "AEIOUaeiou" else f"a {name}"
