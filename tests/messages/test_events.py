"""Cursors: places in a feed, written and read."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hibernaut.errors import MalformedInput
from hibernaut.messages.events import Cursor

numbers = st.integers(0, 2**40)


@given(numbers, numbers, st.integers(1, 2**40), numbers)
def test_a_cursor_is_read_as_it_was_written(version: int, index: int, attempt: int, seen: int) -> None:
    for cursor in (Cursor(version, index), Cursor(version, index, attempt, seen)):
        assert Cursor.parse(str(cursor)) == cursor


@pytest.mark.parametrize("text", ["-1.1", "1.-1", "1.1~-1:0", "1.1~1:-5", "-1.-5", "x", "1.2.3", "~", "é", " "])
def test_what_is_no_cursor_is_refused(text: str) -> None:
    with pytest.raises(MalformedInput, match="is not a cursor"):
        Cursor.parse(text)
