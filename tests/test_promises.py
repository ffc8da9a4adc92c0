"""The pages about the resume contract say nothing that is not so."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PROMISES = (ROOT / "docs" / "promises.md").read_text(encoding="utf-8")
CONTRACT = (ROOT / "docs" / "contract.md").read_text(encoding="utf-8")
NAMED = re.findall(r"^\| ([0-9, ]+) \| .* \| `([^`:]+)::([^`:]+)` \|$", PROMISES, re.MULTILINE)


def functions_of(path: str) -> set[str]:
    tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
    return {node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}


@pytest.mark.parametrize("path, name", [(path, name) for _, path, name in NAMED])
def test_every_promise_names_a_test_that_there_is(path: str, name: str) -> None:
    assert name in functions_of(path)


def test_every_line_of_the_table_is_a_promise_with_a_test() -> None:
    lines = [line for line in PROMISES.splitlines() if line.startswith("| ") and not line.startswith("| rule")]
    assert len(lines) == len(NAMED)


def test_every_rule_of_the_contract_is_tested() -> None:
    rules = re.findall(r"^([0-9]+)\. ", CONTRACT, re.MULTILINE)
    tested = {number.strip() for numbers, _, _ in NAMED for number in numbers.split(",")}
    assert [int(rule) for rule in rules] == list(range(1, len(rules) + 1))
    assert tested == set(rules)
