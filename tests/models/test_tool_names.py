"""Names of tools that a provider does not take."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hibernaut.models import tool_names
from hibernaut.models.tool_names import ToolNames

FIT = r"[A-Za-z_][A-Za-z0-9_-]{0,62}"


@given(st.text(min_size=1, max_size=200))
def test_every_name_becomes_one_that_is_taken_and_is_known_again(name: str) -> None:
    names = ToolNames(FIT, 63)
    wire = names.on_wire(name)
    assert re.fullmatch(FIT, wire)
    assert names.of(wire) == name
    assert ToolNames(FIT, 63).on_wire(name) == wire


def test_a_name_that_is_fit_stays_and_two_that_are_cut_alike_stay_two() -> None:
    names = ToolNames(FIT, 63)
    assert names.on_wire("read_file") == "read_file"
    assert names.on_wire("x" * 100) != names.on_wire("x" * 101)
    assert names.of("never_heard_of") == "never_heard_of"


def test_what_is_remembered_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tool_names, "REMEMBERED", 2)
    names = ToolNames(FIT, 63)
    first, second, third = (names.on_wire(f"{number}") for number in range(3))
    assert [names.of(wire) for wire in (first, second, third)] == [first, "1", "2"]
