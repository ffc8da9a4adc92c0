"""The page about testing says nothing that is not so: its example runs as it stands there."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from hibernaut.testing import Life

PAGE = (Path(__file__).parents[1] / "docs" / "testing.md").read_text(encoding="utf-8")


def test_the_example_runs_as_it_stands_on_the_page(tmp_path: Path) -> None:
    (example,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    (tmp_path / "paying.py").write_text(example, encoding="utf-8")
    command = [sys.executable, "-W", "error", "paying.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, encoding="utf-8", timeout=55, check=False)
    assert done.returncode == 0, done.stderr
    table, verdict = done.stdout.splitlines()[:-1], done.stdout.splitlines()[-1]
    assert table[0].startswith("runs ")
    assert table[-1].split() == ["divergences", "0"]
    assert verdict.startswith("passed: ")


@pytest.mark.parametrize(
    "name", re.findall(r"`(\w+)(?:\([^`]*\))?`", "".join(re.findall(r"^\| (`.*?) \|", PAGE, re.MULTILINE)))
)
def test_what_the_page_says_that_a_life_has_is_there(name: str) -> None:
    assert name in ("world", "did", "has_begun", "chance") or hasattr(Life, name)
