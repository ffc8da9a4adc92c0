"""Widths, cuts, tables, and when there are styles."""

from io import StringIO

import pytest

from hibernaut.cli.terminal import DIM, Printed, cut, is_styled, safe, table, width
from hibernaut.cli.times import ago, span


class Terminal(StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    "text, columns", [("abc", 3), ("", 0), ("你好", 4), ("e\u0301", 1), ("é", 1), ("ｘ", 2), ("a\u200db", 2)]
)
def test_text_takes_the_columns_that_a_terminal_gives_it(text: str, columns: int) -> None:
    assert width(text) == columns


@pytest.mark.parametrize(
    "text, room, expected",
    [
        ("hello", 5, "hello"),
        ("hello", 4, "hel…"),
        ("你好吗", 5, "你好…"),
        ("你好吗", 4, "你…"),
        ("hello", 1, "…"),
        ("x", 0, ""),
    ],
)
def test_a_cut_text_fits_and_says_that_it_was_cut(text: str, room: int, expected: str) -> None:
    assert cut(text, room) == expected
    assert width(cut(text, room)) <= room


def test_a_table_is_aligned_by_columns_of_the_terminal() -> None:
    rows = [("你好", "1", "x"), ("a", "1,000", "")]
    assert table(("NAME", "SIZE", "TITLE"), rows, right=(1,)) == [
        "NAME   SIZE  TITLE",
        "你好      1  x",
        "a     1,000",
    ]


def test_nothing_in_a_table_steers_the_terminal() -> None:
    assert table(("NAME",), [("a\x1b[2J",)])[1] == "a␛[2J"


@pytest.mark.parametrize(
    "environment, expected",
    [({}, True), ({"NO_COLOR": "1"}, False), ({"NO_COLOR": ""}, True), ({"TERM": "dumb"}, False)],
)
def test_a_terminal_has_styles_unless_somebody_does_not_want_them(
    environment: dict[str, str], expected: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert is_styled(Terminal()) is expected
    assert is_styled(StringIO()) is False


@pytest.mark.parametrize("terminal, expected", [(True, "a␛b\n"), (False, "a\x1bb\n")])
def test_only_a_terminal_is_protected_from_control_characters(terminal: bool, expected: str) -> None:
    stream = Terminal() if terminal else StringIO()
    Printed(stream).line("a\x1bb")
    assert stream.getvalue() == expected


def test_lines_are_styled_where_there_are_styles(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    stream = Terminal()
    Printed(stream).line("quiet", DIM)
    assert stream.getvalue() == "\x1b[2mquiet\x1b[0m\n"


def test_newlines_and_tabs_are_safe() -> None:
    assert safe("a\n\tb\x00\x7f") == "a\n\tb␀␡"


@pytest.mark.parametrize(
    "milliseconds, expected",
    [(0, "0 s"), (1_999, "1 s"), (119_000, "119 s"), (120_000, "2 min"), (7_200_000, "2 h"), (200_000_000, "2 d")],
)
def test_spans_are_told_in_one_unit(milliseconds: int, expected: str) -> None:
    assert span(milliseconds) == expected


@pytest.mark.parametrize("at, expected", [(10_000, "now"), (5_000, "5 s ago"), (20_000, "in 10 s")])
def test_moments_are_told_from_now(at: int, expected: str) -> None:
    assert ago(at, 10_000) == expected


def test_what_turns_the_order_of_text_is_shown() -> None:
    assert safe("a\u202eb\u2066c\u200fd") == "a\ufffdb\ufffdc\u200fd"
