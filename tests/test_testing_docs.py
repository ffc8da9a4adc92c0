"""The page about testing says nothing that is not so: its examples run as they stand there."""

import asyncio
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from hibernaut.models.scripted import call
from hibernaut.testing import Life
from hibernaut.testing.providers.anthropic import AnthropicWire
from hibernaut.testing.providers.anthropic_checks import KNOWN
from hibernaut.testing.providers.server import FakeProvider, Played
from tests.e2e.commands import KEY, hibernaut

PAGE = (Path(__file__).parents[1] / "docs" / "testing.md").read_text(encoding="utf-8")


def examples(heading: str, language: str) -> list[str]:
    """Return the examples in a language below a heading."""
    (section,) = re.findall(rf"^## {heading}\n(.*?)(?=^## |\Z)", PAGE, re.DOTALL | re.MULTILINE)
    found: list[str] = re.findall(rf"```{language}\n(.*?)```", section, re.DOTALL)
    return found


def test_the_example_of_crashes_runs_as_it_stands_on_the_page(tmp_path: Path) -> None:
    (example,) = examples("Test your own agent against crashes", "python")
    (tmp_path / "paying.py").write_text(example, encoding="utf-8")
    command = [sys.executable, "-W", "error", "paying.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, encoding="utf-8", timeout=55, check=False)
    assert done.returncode == 0, done.stderr
    table, verdict = done.stdout.splitlines()[:-1], done.stdout.splitlines()[-1]
    assert table[0].startswith("runs ")
    assert table[-1].split() == ["divergences", "0"]
    assert verdict.startswith("passed: ")


def test_the_example_of_recording_is_recorded_and_passes_as_it_stands_on_the_page(tmp_path: Path) -> None:
    heading = "Test your own agent with what a model said"
    tools, test = examples(heading, "python")
    (record,) = examples(heading, "sh")
    (tmp_path / "tests").mkdir()
    (tmp_path / "builds.py").write_text(tools, encoding="utf-8")
    (tmp_path / "tests" / "test_builds.py").write_text(test, encoding="utf-8")
    known = {"claude-haiku-4-5": KNOWN["claude-haiku-4-5-20251001"]}
    said: list[Played] = [call("start_build", commit="abc456"), "abc456 failed: two tests of test_login.py do."]
    command, *words = shlex.split(record.replace("\\\n", ""))
    assert command == "hibernaut"

    async def scenario() -> None:
        async with FakeProvider(AnthropicWire(KEY, known), said) as fake:
            (tmp_path / "hibernaut.toml").write_text(f'[providers.anthropic]\nurl = "{fake.url}"\n', encoding="utf-8")
            done = await hibernaut(tmp_path, *words, ANTHROPIC_API_KEY=KEY, HIBERNAUT_STORE="")
            assert (done.code, fake.refused) == (0, []), done.err
            assert "Recorded 2 completions in tests/fixtures/build.json" in done.err

    asyncio.run(scenario())
    pytest_ = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests"]

    def tested() -> subprocess.CompletedProcess[str]:
        environment = {"PYTHONPATH": str(tmp_path), "PATH": ""}
        return subprocess.run(
            pytest_, cwd=tmp_path, env=environment, capture_output=True, encoding="utf-8", check=False
        )

    passed = tested()
    assert passed.returncode == 0, passed.stdout
    (tmp_path / "builds.py").write_text(tools.replace("2 of 41", "3 of 41"), encoding="utf-8")
    failed = tested()
    assert failed.returncode == 1
    assert "not_recorded: this was not recorded in tests/fixtures/build.json" in failed.stdout
    assert "- result #1 abc456: 2 of 41 tests failed" in failed.stdout
    assert "+ result #1 abc456: 3 of 41 tests failed" in failed.stdout


@pytest.mark.parametrize(
    "name", re.findall(r"`(\w+)(?:\([^`]*\))?`", "".join(re.findall(r"^\| (`.*?) \|", PAGE, re.MULTILINE)))
)
def test_what_the_page_says_that_a_life_has_is_there(name: str) -> None:
    assert name in ("world", "did", "has_begun", "chance") or hasattr(Life, name)
