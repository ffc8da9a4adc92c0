import asyncio
import logging
import sys
import types
from collections.abc import Sequence
from pathlib import Path

import pytest

from hibernaut.errors import ConfigurationError
from hibernaut.models.configuration import Configuration, ModelSettings, ProviderSettings
from hibernaut.models.echo import EchoModel
from hibernaut.models.protocol import About, ListedModel, ModelInfo
from hibernaut.models.providers import BUILT_IN, Providers, Wanted


class EchoOf(EchoModel):
    def __init__(self, about: About) -> None:
        self.about = about
        self.info = about.info


class Parrots:
    """A provider of another package."""

    def __init__(self, wanted: Wanted) -> None:
        self.wanted = wanted
        self.closed = False

    def model(self, about: About) -> EchoOf:
        return EchoOf(about)

    async def models(self) -> Sequence[ListedModel]:
        return [ListedModel("grey"), ListedModel("green")]

    async def close(self) -> None:
        self.closed = True


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A package is installed that brings a provider, and one that brings a broken one."""
    meta = tmp_path / "parrots-1.0.dist-info"
    meta.mkdir()
    (meta / "METADATA").write_text("Metadata-Version: 2.1\nName: parrots\nVersion: 1.0\n", encoding="utf-8")
    (meta / "entry_points.txt").write_text(
        "[hibernaut.models]\nparrots = parrots:Parrots\nbroken = nowhere_to_be_found:it\n", encoding="utf-8"
    )
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setitem(sys.modules, "parrots", types.SimpleNamespace(Parrots=Parrots))


@pytest.mark.usefixtures("installed")
def test_a_provider_of_another_package_is_found_by_its_entry_point() -> None:
    providers = Providers()
    model = providers.resolve("parrots:grey")
    assert isinstance(model, EchoOf)
    assert model.about.model_id == "grey"
    assert providers.resolve("parrots:grey") is model
    assert "parrots" in providers.names


@pytest.mark.usefixtures("installed")
def test_a_provider_that_cannot_be_loaded_is_named_with_the_reason() -> None:
    with pytest.raises(ConfigurationError, match="'broken' of nowhere_to_be_found:it cannot be loaded: No module"):
        Providers().resolve("broken:x")


@pytest.mark.usefixtures("installed")
def test_a_provider_of_ones_own_is_like_another_one_and_is_told_where_it_is() -> None:
    settings = ProviderSettings(like="parrots", url="http://cage", key="env:SEEDS")
    providers = Providers(Configuration(providers={"cage": settings}))
    made = providers.provider("cage")
    assert isinstance(made, Parrots)
    assert (made.wanted.name, made.wanted.kind, made.wanted.url, made.wanted.key) == (
        "cage",
        "parrots",
        "http://cage",
        "env:SEEDS",
    )


@pytest.mark.usefixtures("installed")
def test_a_name_of_ones_own_stands_for_a_model_asked_in_ones_own_way() -> None:
    models = {
        "loud": ModelSettings(of="parrots:grey", effort="high", context_window=9),
        "parrots:green": ModelSettings(max_output=7),
    }
    providers = Providers(Configuration(models=models))
    loud, green, grey = (providers.resolve(name) for name in ("loud", "parrots:green", "parrots:grey"))
    assert isinstance(loud, EchoOf)
    assert isinstance(green, EchoOf)
    assert isinstance(grey, EchoOf)
    assert (loud.about.model_id, loud.about.settings.effort, loud.info.context_window) == ("grey", "high", 9)
    assert (green.about.model_id, green.about.settings.max_output) == ("green", 7)
    assert grey.about == About("grey", ModelInfo(provider="parrots"))
    assert providers.given == ["loud"]


@pytest.mark.usefixtures("installed")
def test_a_model_that_the_catalogue_does_not_know_is_told_once_in_a_clear_line(
    caplog: pytest.LogCaptureFixture,
) -> None:
    providers = Providers()
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            providers.resolve("parrots:grey")
    assert len(caplog.messages) == 1
    assert "parrots:grey is not in the catalogue" in caplog.messages[0]
    assert '[models."parrots:grey"] context_window' in caplog.messages[0]


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize(
    "name,words",
    [
        ("nobody:x", "there is no provider 'nobody'; there is: anthropic, "),
        ("parots:grey", "there is no provider 'parots' (did you mean 'parrots'?); there is: "),
        ("OpenAI:gpt-5", "there is no provider 'OpenAI' (did you mean 'openai'?); there is: "),
        (":x", "there is no provider ''; there is: "),
        ("nobody", "there is no model 'nobody'; there is: quick, anthropic:MODEL, "),
        ("nobody:", "there is no model 'nobody:'; there is: quick, "),
        ("", "there is no model ''; there is: quick, "),
        ("quik", "there is no model 'quik' (did you mean 'quick'?); there is: quick, "),
        ("parrots", "parrots is a provider; name one of its models, as parrots:MODEL"),
        ("parrots:", "parrots is a provider; name one of its models, as parrots:MODEL"),
        ("gpt-4o", "there is no model 'gpt-4o' (did you mean 'openai:gpt-4o'?); there is: "),
    ],
)
def test_a_name_of_nothing_is_refused_and_says_what_there_is_and_what_was_meant(name: str, words: str) -> None:
    providers = Providers(Configuration(models={"quick": ModelSettings(of="parrots:grey")}))
    assert not providers.knows(name)
    with pytest.raises(ConfigurationError) as caught:
        providers.resolve(name)
    assert words in str(caught.value)
    assert "provider" not in words or "there is: " not in words or "entry point `hibernaut.models`" in str(caught.value)


MISTAKEN = Configuration(
    providers={"lab": ProviderSettings(like="vlm"), "opanai": ProviderSettings(url="http://x")},
    models={"quick": ModelSettings(of="antropic:claude"), "groc:x": ModelSettings(effort="low")},
)
"""What names providers in every place where they can be named, and all of them wrongly."""


@pytest.mark.parametrize(
    "name,where,meant",
    [
        ("lab:x", "[providers.lab] like = \"vlm\": there is no provider 'vlm'", "vllm"),
        ("opanai:x", "[providers.opanai]: there is no provider 'opanai'", "openai"),
        ("quick", "[models.quick] is = \"antropic:claude\": there is no provider 'antropic'", "anthropic"),
        ("groc:x", "there is no provider 'groc'", "groq"),
    ],
)
def test_a_provider_that_the_configuration_names_and_is_not_there_is_told_with_the_place(
    name: str, where: str, meant: str
) -> None:
    providers = Providers(MISTAKEN)
    for ask in (providers.resolve, providers.about):
        with pytest.raises(ConfigurationError) as caught:
            ask(name)
        assert f"{where} (did you mean '{meant}'?); there is: anthropic, " in str(caught.value)
        assert "opanai, " not in str(caught.value)


def test_all_that_is_wrong_in_a_configuration_can_be_listed_without_using_it() -> None:
    lab, own, quick, groc = Providers(MISTAKEN).problems
    assert lab == "hibernaut.toml, [providers.lab] like = \"vlm\": there is no provider 'vlm' (did you mean 'vllm'?)"
    assert own == "hibernaut.toml, [providers.opanai]: there is no provider 'opanai' (did you mean 'openai'?)"
    assert quick.startswith(
        "hibernaut.toml, [models.quick] is = \"antropic:claude\": there is no provider 'antropic' (did"
    )
    assert groc == "hibernaut.toml, [models.\"groc:x\"]: there is no provider 'groc' (did you mean 'groq'?)"
    assert Providers(Configuration(models={"openai:gpt-5": ModelSettings(effort="low")})).problems == []


@pytest.mark.usefixtures("installed")
def test_closing_lets_go_of_every_provider_that_was_made() -> None:
    providers = Providers()
    made = providers.provider("parrots")
    asyncio.run(providers.close())
    assert isinstance(made, Parrots)
    assert made.closed


OPTIONS = {"region": "eu-central-1", "project": "p", "resource": "r"}

TO_BE_TOLD = {
    "anthropic-bedrock": "region",
    "anthropic-vertex": "project",
    "azure": "resource",
    "azure-chat": "resource",
    "bedrock": "region",
    "compatible": "url",
    "google-vertex": "project",
}
"""Providers that do not know by themselves where they are, and what they miss first."""


@pytest.mark.parametrize("name", BUILT_IN)
def test_every_provider_that_comes_with_hibernaut_can_be_made(name: str) -> None:
    options = OPTIONS if TO_BE_TOLD.get(name, "url") != "url" else {}
    url = "http://127.0.0.1:1" if name == "compatible" else ""
    providers = Providers(Configuration(providers={name: ProviderSettings(url=url, options=options)}))
    assert providers.provider(name) is providers.provider(name)


@pytest.mark.parametrize("name,missing", TO_BE_TOLD.items())
def test_a_provider_that_is_not_told_enough_says_what_is_missing(
    name: str, missing: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for variable in ("AWS_REGION", "AWS_DEFAULT_REGION", "GOOGLE_CLOUD_PROJECT", "GOOGLE_CLOUD_LOCATION"):
        monkeypatch.delenv(variable, raising=False)
    with pytest.raises(ConfigurationError, match=rf"\[providers\.{name}.*\] {missing} = "):
        Providers().provider(name)


def test_models_of_a_door_are_known_under_the_name_of_whose_they_are() -> None:
    for name in ("openai:gpt-4o", "openai-chat:gpt-4o", "azure:gpt-4o"):
        assert Providers().about(name)[1].info.context_window == 128_000


def test_a_variable_that_other_credentials_can_stand_in_for_counts_only_while_it_is_set(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("AWS_BEARER_TOKEN_BEDROCK", raising=False)
    assert Providers().wanted("bedrock").key == ""
    assert Providers().wanted("anthropic").key == "env:ANTHROPIC_API_KEY"
    monkeypatch.setenv("AWS_BEARER_TOKEN_BEDROCK", "key")
    assert Providers().wanted("bedrock").key == "env:AWS_BEARER_TOKEN_BEDROCK"
