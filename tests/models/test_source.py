import pytest

from hibernaut.errors import ConfigurationError
from hibernaut.models import source
from hibernaut.models.protocol import Model, ModelSource
from hibernaut.models.scripted import ScriptedModel
from hibernaut.models.source import Models


def scripted(model_id: str) -> Model:
    return ScriptedModel(f"I am {model_id}")


def test_a_model_is_found_under_the_name_it_was_given_under() -> None:
    one, other = ScriptedModel("one"), ScriptedModel("other")
    models = Models({"scripted:one": one, "plain": other})
    assert models.resolve("scripted:one") is one
    assert models.resolve("plain") is other


def test_a_factory_makes_the_models_of_its_provider_from_their_ids_each_once() -> None:
    asked: list[str] = []

    def make(model_id: str) -> Model:
        asked.append(model_id)
        return scripted(model_id)

    models = Models({"scripted": make})
    first = models.resolve("scripted:large")
    assert models.resolve("scripted:large") is first
    assert models.resolve("scripted:eu:small/2") is not first
    assert asked == ["large", "eu:small/2"]


def test_a_model_of_its_own_goes_before_the_factory_of_its_provider() -> None:
    special = ScriptedModel("special")
    models = Models({"scripted": scripted, "scripted:special": special})
    assert models.resolve("scripted:special") is special


@pytest.mark.parametrize(
    "name,meant",
    [
        ("scripted", ""),
        ("scripted:", ""),
        ("other:large", ""),
        ("plane", " (did you mean 'plain'?)"),
        ("Tiny", " (did you mean 'tiny'?)"),
        ("script:large", " (did you mean 'scripted'?)"),
        ("", ""),
        (":large", ""),
    ],
)
def test_a_name_that_nothing_answers_to_is_refused_with_what_there_is(name: str, meant: str) -> None:
    models = Models({"scripted": scripted, "tiny": ScriptedModel("hi"), "plain": ScriptedModel("hi")})
    with pytest.raises(ConfigurationError) as caught:
        models.resolve(name)
    assert str(caught.value) == f"there is no model {name!r}{meant}; there is: plain, scripted:…, tiny"


def test_a_source_of_nothing_says_so() -> None:
    with pytest.raises(ConfigurationError, match="there is: none at all"):
        Models({}).resolve("scripted:large")


def test_a_factory_cannot_stand_for_a_single_model() -> None:
    with pytest.raises(ConfigurationError, match="'scripted:large' is given a factory"):
        Models({"scripted:large": scripted})


def test_what_a_factory_refuses_is_not_remembered() -> None:
    refused: list[str] = []

    def make(model_id: str) -> Model:
        if not refused:
            refused.append(model_id)
            raise ConfigurationError("no key")
        return scripted(model_id)

    models = Models({"scripted": make})
    with pytest.raises(ConfigurationError, match="no key"):
        models.resolve("scripted:large")
    assert isinstance(models.resolve("scripted:large"), ScriptedModel)


def test_models_that_were_made_are_remembered_in_a_bounded_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source, "REMEMBERED_MODELS", 2)
    models = Models({"scripted": scripted})
    first, second = models.resolve("scripted:1"), models.resolve("scripted:2")
    models.resolve("scripted:3")
    assert models.resolve("scripted:2") is second
    assert models.resolve("scripted:1") is not first


def test_a_single_model_answers_to_every_name() -> None:
    model = ScriptedModel("hi")
    models: ModelSource = Models.of(model)
    assert models.resolve("scripted:any") is models.resolve("") is model
