from pathlib import Path

import pytest

from hibernaut.errors import ConfigurationError
from hibernaut.models.configuration import Configuration, ModelSettings, find_configuration, read_configuration
from hibernaut.models.prices import Prices
from hibernaut.models.protocol import About, ModelInfo, Settings

WHOLE = """
[providers.lab]
like = "vllm"
url = "http://gpu-1:8000/v1"
key = "env:LAB_KEY"
headers = { X-Team = "blue" }
concurrency = 16
requests_per_minute = 600
tokens_per_minute = 1_000_000
options = { region = "here" }

[models.quick]
is = "anthropic:claude-haiku-4-5"
max_output = 4_000

[models."openai:gpt-5-mini"]
effort = "low"
cache = false
forms = false
context_window = 400_000
images = false
reasoning = true
parameters = { temperature = 0.2, metadata = { team = "blue" } }
prices = { input = 0.25, output = 2, cached = 0.025 }

[something-else]
is = "left to others"
"""


def written(folder: Path, text: str) -> Path:
    path = folder / "hibernaut.toml"
    path.write_text(text, encoding="utf-8")
    return path


def test_everything_that_can_be_said_is_read(tmp_path: Path) -> None:
    read = read_configuration(written(tmp_path, WHOLE))
    assert read.providers["lab"].options == {"region": "here"}
    assert read.models["quick"].of == "anthropic:claude-haiku-4-5"
    assert read.models["openai:gpt-5-mini"].prices == Prices(input=0.25, output=2, cached=0.025)


def test_what_is_said_wins_over_what_is_known() -> None:
    known = ModelInfo(context_window=200_000, max_output=64_000, images=True, prices=Prices(1, 2))
    said = ModelSettings(context_window=100_000, images=False, effort="high", max_output=5)
    about = said.about("m", known)
    assert about == About(
        "m",
        ModelInfo(context_window=100_000, max_output=64_000, images=False, prices=Prices(1, 2)),
        Settings(max_output=5, effort="high"),
    )
    assert ModelSettings().about("m", known).info == known


@pytest.mark.parametrize(
    "text,problem",
    [
        ("[providers.'a:b']", "no colon"),
        ("[providers.a]\nurll = 'x'", "unknown field `urll`"),
        ("[providers.a]\nconcurrency = -1", "concurrency must be at least 0"),
        ("[providers.a]\nconcurrency = 'many'", "Expected `int`"),
        ("[models.quick]\neffort = 'low'", "says of no model what it `is`"),
        ("[models.quick]\nis = 'claude'", "no provider:model"),
        ("[models.'a:b']\nmax_output = -1", "max_output must be at least 0"),
        ("[models.'a:b']\neffort = 'huge'", "Invalid enum value 'huge'"),
        ("[models", "cannot be meant"),
        ("models = 1", "Expected `object`"),
        ("[model.quick]\nis = 'a:b'", "there is no table 'model' (did you mean 'models'?)"),
        ("[Providers.lab]\nlike = 'vllm'", "there is no table 'Providers' (did you mean 'providers'?)"),
    ],
)
def test_what_cannot_be_meant_is_named(text: str, problem: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError) as caught:
        read_configuration(written(tmp_path, text))
    assert problem in str(caught.value)
    assert "hibernaut.toml" in str(caught.value)


def test_the_file_of_this_directory_is_found_unless_another_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("HIBERNAUT_CONFIG", raising=False)
    assert find_configuration() == Configuration()
    written(tmp_path, WHOLE)
    assert "quick" in find_configuration().models
    other = tmp_path / "other.toml"
    other.write_text('[models.slow]\nis = "a:b"', encoding="utf-8")
    monkeypatch.setenv("HIBERNAUT_CONFIG", str(other))
    assert list(find_configuration().models) == ["slow"]
    monkeypatch.setenv("HIBERNAUT_CONFIG", str(tmp_path / "none.toml"))
    with pytest.raises(ConfigurationError, match=r"none\.toml cannot be read"):
        find_configuration()
