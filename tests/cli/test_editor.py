"""Editing an input: what keys do."""

import pytest

from hibernaut.cli.editor import Key, LineEditor, Submitted

UP, DOWN, RIGHT, LEFT = "\x1b[A", "\x1b[B", "\x1b[C", "\x1b[D"


@pytest.mark.parametrize(
    "keys, text, cursor",
    [
        ("hello", "hello", 5),
        ("helo" + LEFT + "l", "hello", 4),
        ("ello\x01h", "hello", 1),
        ("hello\x02\x02\x05!", "hello!", 6),
        ("hello\x7f\x7f", "hel", 3),
        ("hello\x01\x04\x04", "llo", 0),
        ("hello" + LEFT + "\x1b[3~", "hell", 4),
        ("one two three\x17", "one two ", 8),
        ("one two three\x17\x17", "one ", 4),
        ("one two\x15", "", 0),
        ("one two\x01\x06\x0b", "o", 1),
        ("one two\x17\x01\x19", "twoone ", 3),
        ("one two\x1bb\x1bb!", "!one two", 1),
        ("one two\x01\x1b[1;5C!", "one! two", 4),
        ("one\x1b\rtwo\nthree", "one\ntwo\nthree", 13),
        ("a\x1b[200~x\r\ny\rz\x1b[201~b", "ax\ny\nzb", 7),
        ("e\u0301x" + LEFT + "\x7f", "x", 0),
        ("你好\x7f", "你", 1),
        ("a\x1b[15~b\x1bOPc\x00", "abc", 3),
        (LEFT + RIGHT + "\x7f\x1b[3~" + UP + DOWN, "", 0),
    ],
)
def test_keys_edit_as_they_do_in_readline(keys: str, text: str, cursor: int) -> None:
    editor = LineEditor()
    assert editor.feed(keys) == []
    assert (editor.text, editor.cursor) == (text, cursor)


@pytest.mark.parametrize("size", [1, 2, 3])
def test_keys_may_come_in_pieces(size: int) -> None:
    keys = "ab\x1b[D\x1b[200~x\x1b[201\ry\x1b[201~\x1b[1;5Dz"
    whole, pieces = LineEditor(), LineEditor()
    whole.feed(keys)
    for place in range(0, len(keys), size):
        pieces.feed(keys[place : place + size])
    assert (pieces.text, pieces.cursor) == (whole.text, whole.cursor) == ("ax\x1b[201\nzyb", 9)


def test_what_is_written_is_sent_with_enter_and_the_next_begins_empty() -> None:
    editor = LineEditor()
    assert editor.feed("hello\rwor") == [Submitted("hello")]
    assert editor.feed("ld\r\r  \r") == [Submitted("world")]
    assert editor.text == ""


@pytest.mark.parametrize(
    "keys, wanted",
    [("\x03", Key.INTERRUPT), ("\x04", Key.LEAVE), ("\x1a", Key.SUSPEND), ("\x0c", Key.REDRAW)],
)
def test_some_keys_are_for_the_owner(keys: str, wanted: Key) -> None:
    assert LineEditor().feed(keys) == [wanted]


def test_ctrl_d_leaves_only_when_nothing_is_written() -> None:
    assert LineEditor().feed("x\x01\x04\x04") == [Key.LEAVE]


def test_the_arrow_keys_bring_back_what_was_sent_and_what_was_being_written() -> None:
    editor = LineEditor()
    editor.feed("one\rtwo\rtwo\rdraft")
    seen = []
    for key in (UP, UP, UP, DOWN, DOWN, DOWN):
        editor.feed(key)
        seen.append(editor.text)
    assert seen == ["two", "one", "one", "two", "draft", "draft"]
