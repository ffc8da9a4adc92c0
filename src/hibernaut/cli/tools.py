"""The tools that the command is given."""

from collections.abc import Callable, Iterable
from typing import Any

from hibernaut.errors import ConfigurationError
from hibernaut.imports import find, load, split
from hibernaut.tools.tool import AnyTool, Tool

Given = AnyTool | Callable[..., Any]


def load_tools(names: Iterable[str]) -> list[Given]:
    """Return the tools that are named, each once, in the order they are named.

    Raises:
        ConfigurationError: one of them cannot be had.
    """
    found: list[Given] = []
    for name in names:
        for tool in _tools_of(name):
            if not any(tool is other for other in found):
                found.append(tool)
    return found


def _tools_of(name: str) -> list[Given]:
    place, attribute = split(name)
    if not attribute:
        tools: list[Given] = [value for value in vars(load(place)).values() if isinstance(value, Tool)]
        if not tools:
            raise ConfigurationError(
                f"{place} has no tools: decorate its functions with @tool, or name one as {place}:name"
            )
        return tools
    value = find(place, attribute.split("."))
    given = list(value) if isinstance(value, list | tuple | set | frozenset) else [value]
    for one in given:
        if not callable(one):
            raise ConfigurationError(f"{name} is neither a tool nor a list of them: there is {one!r:.80} in it")
    return given
