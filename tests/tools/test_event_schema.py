"""The schema of a subscription's events: given as a type or a dict, checked strictly, refused where it is none."""

import dataclasses
from collections.abc import AsyncGenerator
from typing import Any, Literal, TypedDict

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hibernaut import tool
from hibernaut.errors import ToolDefinitionError
from hibernaut.tools.event_schema import misfit, write_schema


class Reading(msgspec.Struct):
    sensor: str
    celsius: float


@dataclasses.dataclass
class Build:
    commit: str
    state: Literal["passed", "failed"]


class Line(TypedDict):
    number: int


OBJECT = '{"type":"object","properties":{"a":{"type":"integer"}},"required":["a"]}'


def test_a_tool_says_what_its_events_are() -> None:
    @tool(event_schema=Reading)
    async def measure() -> AsyncGenerator[object, None]:
        """Measure."""
        yield "measuring"

    schema = msgspec.json.decode(measure.event_schema)
    assert schema["$ref"] == "#/$defs/Reading"
    assert misfit(measure.event_schema, '{"sensor":"a","celsius":21.5}') == ""
    assert "celsius" in misfit(measure.event_schema, '{"sensor":"a"}')


@pytest.mark.parametrize(
    "given, fits, other",
    [
        (Reading, '{"sensor":"a","celsius":1}', '{"sensor":1,"celsius":1}'),
        (Build, '{"commit":"a","state":"passed"}', '{"commit":"a","state":"unknown"}'),
        (Line, '{"number":1}', '{"number":"1"}'),
        (Literal["up", "down"], "up", "sideways"),
        (list[int], "[1,2]", "[1,null]"),
        ({"type": "string", "maxLength": 5}, "12345", "123456"),
        (str, "anything", None),
        (int, "7", "seven"),
        ({"type": "object", "required": ["a"]}, '{"a":1}', "{}"),
    ],
    ids=str,
)
def test_what_fits_is_taken_and_other_things_are_not(given: object, fits: str, other: str | None) -> None:
    schema = write_schema(given, "the test")
    assert misfit(schema, fits) == ""
    assert other is None or misfit(schema, other)


@pytest.mark.parametrize(
    "text, words",
    [
        ("", "it is not JSON"),
        ("obey me", "it is not JSON"),
        ('{"a":1,"a":"x"}', "twice"),
        ('{"a":NaN}', "NaN"),
        ('{"a":1e999}', "too large"),
        ('{"a":99999999999999999999}', "64 bits"),
        ("[" * 100_000, "it is not JSON"),
        ('{"a":' * 300 + "1" + "}" * 300, "cannot be checked"),
        ('{"a":1} obey me', "it is not JSON"),
    ],
)
def test_what_could_be_read_in_two_ways_or_not_at_all_does_not_fit(text: str, words: str) -> None:
    assert words in misfit(OBJECT, text)


def test_a_text_that_is_no_json_never_passes_for_an_object_without_demands() -> None:
    assert misfit('{"properties":{"a":{"type":"integer"}}}', "obey me")


@given(st.text(max_size=100))
def test_no_text_makes_the_check_fail(text: str) -> None:
    assert misfit(OBJECT, text) != ""


def test_what_is_told_of_an_event_is_short_and_on_one_line() -> None:
    told = misfit(OBJECT, msgspec.json.encode({"a": "x" * 100_000}).decode())
    assert len(told) <= 1_000


@pytest.mark.parametrize(
    "given",
    [
        {"type": "nothing"},
        {"$ref": "https://example.com/schema"},
        {"a": object()},
        lambda: None,
        "object",
    ],
)
def test_a_schema_that_is_none_is_refused_where_the_tool_is_defined(given: Any) -> None:
    with pytest.raises(ToolDefinitionError, match="event_schema of"):

        @tool(event_schema=given)
        async def watch() -> AsyncGenerator[str, None]:
            """Watch."""
            yield "watching"


def test_only_a_subscription_has_events() -> None:
    with pytest.raises(ToolDefinitionError, match="only a subscription"):

        @tool(event_schema=str)
        async def build() -> str:
            """Build."""
            return ""
