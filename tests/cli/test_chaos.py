"""`hibernaut chaos`: what it prints, and how it ends."""

import sys
from pathlib import Path

import pytest

from tests.e2e.processes import done

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="processes are killed on Linux only")

SCENARIO = '''
from hibernaut.testing import Life, Play


def sound(life: Life) -> Play:
    return Play(lambda request: "Hello.", inputs=["Hello"])


def unsound(life: Life) -> Play:
    """A check that holds only as long as nobody disturbs the agent."""

    def check(seen):
        assert not life.disturbed_by, "the agent was disturbed"

    return Play(lambda request: "Hello.", inputs=["Hello"], check=check)
'''


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "agent.py").write_text(SCENARIO, encoding="utf-8")
    return tmp_path


def test_the_last_line_is_the_verdict_and_the_exit_code_says_the_same(folder: Path) -> None:
    code, output, errors = done(folder, "chaos", "--seed", "7", "--minutes", "0.001", "--agent", "agent.py:sound")
    lines = output.splitlines()
    assert (code, errors) == (0, "")
    assert lines[0].split()[0] == "runs"
    assert lines[-1].startswith("passed: ")
    assert lines[-1].endswith("0 divergences, 0 lost inputs, 0 unmarked repeats")


def test_a_divergence_is_told_with_the_run_that_repeats_it(folder: Path) -> None:
    words = ("chaos", "--seed", "7", "--run", "3", "--agent", "agent.py:unsound")
    code, output, errors = done(folder, *words)
    assert code == 1
    assert "divergence: check: the agent was disturbed" in errors
    assert "seed 7, run 3" in output
    assert "repeat a run with: hibernaut chaos --seed 7 --agent agent.py:unsound --run N" in output
    assert output.splitlines()[-1].startswith("failed: 1 runs, ")


def test_an_agent_that_is_not_there_is_refused(folder: Path) -> None:
    code, output, errors = done(folder, "chaos", "--agent", "agent.py:nobody")
    assert (code, output) == (2, "")
    assert "has no 'nobody'" in errors


@pytest.mark.parametrize(
    "words, problem",
    [
        (("--agent", "agent.py:__doc__"), "it must be a function that takes a Life and returns a Play"),
        (("--agent", "agent.py"), "names no scenario"),
        (("--minutes", "nan"), "it must be at least 0"),
    ],
)
def test_what_cannot_be_run_is_refused_at_once(folder: Path, words: tuple[str, ...], problem: str) -> None:
    code, output, errors = done(folder, "chaos", *words)
    assert (code, output) == (2, "")
    assert problem in errors
    assert "Traceback" not in errors
