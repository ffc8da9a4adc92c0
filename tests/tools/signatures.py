"""What is read from a function, held against what is always so of it, and types that parameters have."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Any, Generic, Literal, TypedDict, TypeVar

import pytest

from hibernaut.errors import ToolDefinitionError
from hibernaut.tools.schema import ToolSignature, signature_of
from hibernaut.tools.validate import compile_schema

Deps = TypeVar("Deps")


class ToolContext(Generic[Deps]):
    """Stands for the context of a call."""


class Color(Enum):
    RED = "red"
    BLUE = "blue"
    AMBER = "amber"


@dataclass
class Point:
    """A place."""

    x: int
    y: int = 0
    how: Literal["walk", "drive", "fly"] = "walk"


class Range(TypedDict, total=False):
    start: int
    end: int


def signature(function: Callable[..., Any]) -> ToolSignature:
    made = signature_of(function, context_type=ToolContext)
    compile_schema(made.schema)
    assert json.loads(made.parameters) == made.schema
    assert made.schema["type"] == "object"
    assert made.schema["additionalProperties"] is False
    assert "$ref" not in made.schema
    return made


def refusal(function: Callable[..., Any], **options: Any) -> str:
    with pytest.raises(ToolDefinitionError) as caught:
        signature_of(function, context_type=ToolContext, **options)
    return str(caught.value)
