"""Every example runs, and the one in the README is the one that runs."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PRINTS = {
    "asking": "Build(commit='abc456', passed=False, failures=['test_a', 'test_b'])",
    "ten_lines": "CompletionFinished",
}


def test_every_example_is_run() -> None:
    assert sorted(PRINTS) == sorted(path.stem for path in (ROOT / "examples").glob("*.py"))


@pytest.mark.parametrize("name", PRINTS)
def test_an_example_runs(name: str, tmp_path: Path) -> None:
    example = ROOT / "examples" / f"{name}.py"
    result = subprocess.run(
        [sys.executable, example], cwd=tmp_path, capture_output=True, encoding="utf-8", timeout=50, check=True
    )
    assert result.stderr == ""
    assert PRINTS[name] in result.stdout


def test_the_program_in_the_readme_is_the_example() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    blocks: list[str] = re.findall(r"```python\n(.*?)```", readme, flags=re.DOTALL)
    example = (ROOT / "examples/ten_lines.py").read_text(encoding="utf-8")
    without_docstrings = re.sub(r'^""".*?"""\n+|^    """Launch an agent.*?\n', "", example, flags=re.MULTILINE)
    assert without_docstrings in blocks


def test_every_page_that_the_readme_names_exists() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    named: list[str] = re.findall(r"\]\((?!http)([^)#]+)", readme)
    assert named
    assert [name for name in named if not (ROOT / name).exists()] == []
