"""Names that become tools, and those that do not."""

from pathlib import Path

import pytest

from hibernaut.cli.tools import load_tools
from hibernaut.errors import ConfigurationError
from hibernaut.tools.tool import Tool


def names(*given: str) -> list[str]:
    return [tool.name if isinstance(tool, Tool) else tool.__name__ for tool in load_tools(given)]


@pytest.mark.parametrize(
    "given, expected",
    [
        (["agent:add"], ["add"]),
        (["agent:plain"], ["plain"]),
        (["agent:both"], ["add", "plain"]),
        (["agent"], ["add", "ask"]),
        (["agent.py"], ["add", "ask"]),
        (["agent.py:add", "agent:plain"], ["add", "plain"]),
        (["agent.py", "agent.py:both"], ["add", "ask", "plain"]),
        ([], []),
    ],
)
def test_tools_come_in_the_order_in_which_they_are_named_and_once(given: list[str], expected: list[str]) -> None:
    assert names(*given) == expected


@pytest.mark.parametrize(
    "given, problem",
    [
        ("agent:number", "neither a tool nor a list of them: there is 7 in it"),
        ("agent:none", "has no 'none'"),
        ("empty.py", "has no tools: decorate its functions with @tool"),
        ("nowhere", "there is no module 'nowhere'"),
    ],
)
def test_what_is_no_tool_is_refused(given: str, problem: str, folder: Path) -> None:
    (folder / "empty.py").write_text("", encoding="utf-8")
    with pytest.raises(ConfigurationError) as caught:
        load_tools([given])
    assert problem in str(caught.value)
