"""`hibernaut models`, and what every command that takes a model says of a name that is none."""

import asyncio
from pathlib import Path

import pytest

from hibernaut import AgentSystem
from hibernaut.errors import ConfigurationError
from tests.cli.conftest import Invoke

NAMING = [
    ("models", "show", "antropic:x"),
    ("models", "list", "antropic"),
    ("run", "hello", "--model", "antropic:x"),
    ("record", "hello", "--to", "a.json", "--model", "antropic:x"),
    ("chat", "--model", "antropic:x"),
    ("send", "t", "hello", "--store", "agents.db", "--model", "antropic:x"),
    ("serve", "--local", "--store", "agents.db", "--model", "antropic:x"),
]


@pytest.mark.parametrize("words", NAMING, ids=[" ".join(words[:2]) for words in NAMING])
def test_a_provider_that_is_not_there_is_told_as_one_with_what_was_meant(
    words: tuple[str, ...], invoke: Invoke
) -> None:
    result = invoke(*words)
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.startswith(
        "Error: there is no provider 'antropic' (did you mean 'anthropic'?); there is: anthropic, anthropic-bedrock, "
    )
    assert "entry point `hibernaut.models`" in result.stderr
    assert result.stderr.count("\n") == 1
    if words[:2] != ("models", "list"):
        assert "a model of your own is module:attribute or path/to/file.py:attribute" in result.stderr
        assert "there is no module 'antropic'" in result.stderr


def test_what_the_environment_names_is_told_in_the_same_way(invoke: Invoke, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HIBERNAUT_MODEL", "antropic:x")
    assert "there is no provider 'antropic' (did you mean 'anthropic'?)" in invoke("run", "hello").stderr


def test_a_program_is_told_the_same_when_it_begins_and_when_it_launches() -> None:
    async def scenario() -> None:
        words = "there is no provider 'antropic' .did you mean 'anthropic'.*entry point"
        with pytest.raises(ConfigurationError, match=words):
            AgentSystem(model="antropic:x")
        async with AgentSystem(model="anthropic:claude-sonnet-4-6", run=False) as system:
            with pytest.raises(ConfigurationError, match=words):
                await system.launch(model="antropic:x")

    asyncio.run(scenario())


def test_the_list_of_providers_says_what_the_file_names_that_is_not_there(invoke: Invoke, folder: Path) -> None:
    (folder / "hibernaut.toml").write_text(
        '[providers.lab]\nlike = "vlm"\n[models.quick]\nis = "antropic:x"\n', encoding="utf-8"
    )
    result = invoke("models")
    assert result.exit_code == 0
    assert "lab:…" in result.stdout
    lab, quick = result.stderr.splitlines()
    assert lab.startswith("warning: hibernaut.toml, [providers.lab] like = \"vlm\": there is no provider 'vlm'")
    assert quick.endswith(
        "[models.quick] is = \"antropic:x\": there is no provider 'antropic' (did you mean 'anthropic'?)"
    )
    shown = invoke("models", "show", "quick")
    assert (shown.exit_code, shown.stdout) == (2, "")
    assert '[models.quick] is = "antropic:x": there is no provider' in shown.stderr


def test_recordings_and_models_of_the_command_itself_are_listed_and_shown(invoke: Invoke) -> None:
    names = [line.split()[0] for line in invoke("models").stdout.splitlines()]
    assert {"echo", "recorded:FILE", "anthropic:…"} <= set(names)
    invoke("record", "hello", "--model", "echo", "--to", "a.json")
    shown = invoke("models", "show", "recorded:a.json").stdout.splitlines()
    assert shown[0].split() == ["Model", "recorded:a.json"]
    assert "Takes     text" in shown
