"""The screen of a conversation, through the eyes of a terminal."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hibernaut.cli.screen import Screen
from hibernaut.cli.terminal import BOLD, DIM
from tests.cli.emulator import Emulator


def screen(columns: int = 20) -> tuple[Screen, Emulator]:
    emulator = Emulator(columns)
    made = Screen(emulator.write, "> ", lambda: columns)
    made.edit("", 0)
    return made, emulator


def wrapped(text: str, columns: int) -> list[str]:
    """Return the rows that a terminal makes of a text."""
    emulator = Emulator(columns)
    emulator.write(text)
    return emulator.lines


def test_running_text_grows_above_the_input() -> None:
    made, emulator = screen()
    made.edit("typing", 6)
    for piece in ("Hello ", "wor", "ld"):
        made.text(piece)
    assert emulator.lines == ["Hello world", "> typing"]


def test_a_line_ends_the_running_text() -> None:
    made, emulator = screen()
    made.text("Hello")
    made.line("→ call", DIM)
    made.text("World")
    made.end_line()
    made.end_line()
    assert emulator.lines == ["Hello", "→ call", "World", ">"]


def test_text_of_another_style_begins_a_line() -> None:
    made, emulator = screen()
    made.text("thinking", DIM)
    made.text("saying")
    made.text(" more")
    assert emulator.lines == ["thinking", "saying more", ">"]


def test_the_cursor_stands_where_the_user_writes() -> None:
    made, emulator = screen()
    made.text("Hello")
    made.edit("你好 there", 1)
    assert emulator.lines == ["Hello", "> 你好 there"]
    assert (emulator.row, emulator.column) == (1, 4)


def test_a_long_input_shows_the_part_around_the_cursor() -> None:
    made, emulator = screen(10)
    made.edit("abcdefghijklmnop", 16)
    assert emulator.lines == ["> …klmnop"]
    made.edit("abcdefghijklmnop", 0)
    assert emulator.lines == ["> abcdefg"]
    assert emulator.column == 2


def test_an_input_of_several_lines_takes_one_row() -> None:
    made, emulator = screen()
    made.edit("one\ntwo", 7)
    assert emulator.lines == ["> one⏎two"]


def test_what_a_model_says_steers_no_terminal() -> None:
    made, emulator = screen(40)
    made.text("a\x1b[2Jb\x07c\x9bd\rf")
    made.line("x\x1b]0;title\x07")
    made.edit("\x1b[2J", 4)
    assert emulator.lines == ["a␛[2Jb␇c\ufffdd␍f", "x␛]0;title␇", "> ␛[2J"]


def test_when_it_closes_nothing_of_the_input_is_left() -> None:
    made, emulator = screen()
    made.text("Hello")
    made.edit("typing", 6)
    made.close()
    assert emulator.lines == ["Hello", ""]


def test_a_row_that_is_exactly_full_is_followed_by_the_input() -> None:
    made, emulator = screen(10)
    made.text("0123456789")
    assert emulator.lines == ["0123456789", ">"]
    made.text("ab")
    assert emulator.lines == ["0123456789", "ab", ">"]


ALPHABET = st.sampled_from("ab \n你e\u0301")


@given(
    pieces=st.lists(st.one_of(st.text(ALPHABET, max_size=30), st.integers(0, 12)), max_size=12),
    columns=st.integers(4, 12),
)
def test_however_text_and_typing_alternate_the_rows_are_those_of_the_text_alone(
    pieces: list[str | int], columns: int
) -> None:
    made, emulator = screen(columns)
    said = ""
    for piece in pieces:
        if isinstance(piece, int):
            made.edit("x" * piece, piece)
        else:
            made.text(piece)
            said += piece
    made.edit("", 0)
    expected = wrapped(said, columns)
    if expected[-1] == "" and (said == "" or said.endswith("\n")):
        expected.pop()
    assert emulator.lines == [*expected, ">"]


@pytest.mark.parametrize("style", ["", DIM, BOLD])
def test_a_style_ends_where_its_text_ends(style: str) -> None:
    written: list[str] = []
    made = Screen(written.append, "> ", lambda: 20)
    made.text("Hello\nwor", style)
    made.line("line", style)
    output = "".join(written)
    assert output.count(f"\x1b[{style}m" if style else "\x1b[0m") == (output.count("\x1b[0m") if style else 0)
