"""Where models are found by name."""

from collections.abc import Callable, Mapping

from hibernaut.errors import ConfigurationError
from hibernaut.models.nearest import did_you_mean
from hibernaut.models.protocol import Model

ModelFactory = Callable[[str], Model]
"""Makes the model of a provider that has this id."""

REMEMBERED_MODELS = 256
"""Models that are kept once they were made; the oldest are made anew when they are asked for again."""


class Models:
    """A `ModelSource` made of what it is given.

    A model is found under the very name it is given under. A factory stands for a provider: given as `"anthropic"`, it
    makes every `"anthropic:MODEL ID"`, each once.
    """

    def __init__(self, models: Mapping[str, Model | ModelFactory]) -> None:
        self._models: dict[str, Model] = {}
        self._factories: dict[str, ModelFactory] = {}
        self._made: dict[str, Model] = {}
        for name, model in models.items():
            if not callable(model):
                self._models[name] = model
            elif ":" in name:
                raise ConfigurationError(f"{name!r} is given a factory; a factory is for a provider, without a colon")
            else:
                self._factories[name] = model

    @staticmethod
    def of(model: Model) -> "OneModel":
        """Return a source that has this one model, whatever name it is asked for."""
        return OneModel(model)

    @property
    def names(self) -> list[str]:
        """What there is: names of models, and `provider:…` where any model id can stand."""
        return sorted([*self._models, *(f"{provider}:…" for provider in self._factories)])

    def resolve(self, name: str) -> Model:
        """Return the model of that name."""
        found = self._models.get(name) or self._made.get(name)
        return found if found is not None else self._make(name)

    def _make(self, name: str) -> Model:
        provider, _, model_id = name.partition(":")
        factory = self._factories.get(provider)
        if factory is None or not model_id:
            there_is = ", ".join(self.names) or "none at all"
            meant = did_you_mean(name, self._models) or did_you_mean(provider, self._factories)
            raise ConfigurationError(f"there is no model {name!r}{meant}; there is: {there_is}")
        model = factory(model_id)
        if len(self._made) >= REMEMBERED_MODELS:
            del self._made[next(iter(self._made))]
        self._made[name] = model
        return model


class OneModel:
    """A `ModelSource` that answers to every name with the same model."""

    def __init__(self, model: Model) -> None:
        self._model = model

    def resolve(self, name: str) -> Model:  # noqa: ARG002
        """Return the model."""
        return self._model
