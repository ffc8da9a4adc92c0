"""Names that become models, and those that do not."""

from pathlib import Path

import pytest

from hibernaut.cli.models import NamedModels
from hibernaut.errors import ConfigurationError
from hibernaut.models.echo import EchoModel
from hibernaut.models.scripted import ScriptedModel


@pytest.mark.parametrize("name", ["agent:model", "agent:make", "agent.py:model", "./agent.py:make"])
def test_a_model_and_a_function_that_makes_one_can_be_named(name: str) -> None:
    assert isinstance(NamedModels().resolve(name), ScriptedModel)


def test_a_model_is_made_once() -> None:
    models = NamedModels()
    assert models.resolve("agent:make") is models.resolve("agent:make")


def test_a_file_is_loaded_once_however_it_is_named(folder: Path) -> None:
    assert NamedModels().resolve("agent.py:model") is NamedModels().resolve(f"{folder}/agent.py:model")


def test_a_class_is_made_a_model(folder: Path) -> None:
    (folder / "mine.py").write_text("from hibernaut.models.echo import EchoModel as Mine", encoding="utf-8")
    assert isinstance(NamedModels().resolve("mine.py:Mine"), EchoModel)


def test_a_source_of_models_is_asked_for_the_name_behind_it(folder: Path) -> None:
    source = "from hibernaut.models.echo import EchoModel\nfrom hibernaut.models.source import Models\n"
    (folder / "mine.py").write_text(source + 'all = Models({"small:1": EchoModel()})', encoding="utf-8")
    assert isinstance(NamedModels().resolve("mine.py:all:small:1"), EchoModel)
    with pytest.raises(ConfigurationError, match="there is no model 'large'; there is: small:1"):
        NamedModels().resolve("mine.py:all:large")


@pytest.mark.parametrize("name", ["", "default"])
def test_a_thread_that_names_no_model_gets_the_default(name: str) -> None:
    assert isinstance(NamedModels("echo").resolve(name), EchoModel)


def test_a_name_means_the_same_from_any_directory(folder: Path) -> None:
    assert NamedModels().full_name("agent.py:model") == f"{folder}/agent.py:model"
    assert NamedModels().full_name("agent:model") == "agent:model"
    assert NamedModels().full_name("echo") == "echo"


@pytest.mark.parametrize(
    "name, problem",
    [
        ("", "no model is named: give one with --model or HIBERNAUT_MODEL; there is: echo"),
        ("ecko", "there is no model 'ecko' (did you mean 'echo'?); there is: echo, recorded:FILE, provider:model"),
        ("agent", "there is no model 'agent'; there is: echo"),
        ("agent.py", "there is no model 'agent.py': say which in that file, as agent.py:NAME"),
        ("anthropic", "anthropic is a provider; name one of its models, as anthropic:MODEL"),
        ("anthropic:", "anthropic is a provider; name one of its models, as anthropic:MODEL"),
        ("claude-sonnet-4-6", "(did you mean 'anthropic:claude-sonnet-4-6'?)"),
        ("gpt-4o", "(did you mean 'openai:gpt-4o'?)"),
        ("nowhere:model", "there is no provider 'nowhere'; there is: anthropic, "),
        ("Antropic:claude-sonnet-4-6", "there is no provider 'Antropic' (did you mean 'anthropic'?); there is: "),
        ("agent.nowhere:model", "there is no module 'agent.nowhere'"),
        ("nowhere.py:model", "there is no file"),
        ("no module:model", "'no module' is no module"),
        ("agent:modle", "agent has no 'modle'; it has: "),
        ("agent:number", "neither a model nor makes one: it is an int"),
        ("agent:plain", "could not make a model: TypeError"),
        ("agent:both", "neither a model nor makes one: it is a list"),
    ],
)
def test_what_is_no_model_is_said_to_be_none(name: str, problem: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        NamedModels().resolve(name)
    assert problem in str(caught.value)


def test_an_asynchronous_maker_is_refused(folder: Path) -> None:
    (folder / "mine.py").write_text("async def make(): ...", encoding="utf-8")
    with pytest.raises(ConfigurationError, match="is asynchronous"):
        NamedModels().resolve("mine.py:make")


@pytest.mark.parametrize(
    "source, problem",
    [
        ("1 / 0", "ZeroDivisionError: division by zero"),
        ("import nowhere_to_be_found", "No module named 'nowhere_to_be_found'"),
        ("def", "SyntaxError"),
        ("raise SystemExit(3)", "SystemExit: 3"),
    ],
)
@pytest.mark.parametrize("name", ["broken:model", "broken.py:model"])
def test_a_module_that_cannot_be_imported_is_named_with_the_reason(
    name: str, source: str, problem: str, folder: Path
) -> None:
    (folder / "broken.py").write_text(source, encoding="utf-8")
    with pytest.raises(ConfigurationError, match="cannot be imported") as caught:
        NamedModels().resolve(name)
    assert problem in str(caught.value)


def test_two_files_of_one_name_are_two_modules(folder: Path) -> None:
    for place, value in (("one", "1"), ("two", "2")):
        (folder / place).mkdir()
        (folder / place / "same.py").write_text(f"from hibernaut.models.echo import EchoModel\nm{value} = EchoModel()")
    models = NamedModels()
    assert isinstance(models.resolve("one/same.py:m1"), EchoModel)
    assert isinstance(models.resolve("two/same.py:m2"), EchoModel)
