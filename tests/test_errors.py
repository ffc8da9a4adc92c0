"""What is told of errors."""

from hibernaut.errors import said_by

RESET = ConnectionResetError(104, "Connection reset by peer")


def test_an_error_without_words_is_told_by_what_it_came_from() -> None:
    first, second, third = ValueError(), OSError(" "), RuntimeError()
    first.__context__ = RESET
    second.__cause__ = first
    assert said_by(second) == str(RESET)
    third.__context__, third.__suppress_context__ = second, True
    assert said_by(third) == str(RESET)


def test_an_error_with_words_is_told_by_them() -> None:
    error = OSError("cut off")
    error.__cause__ = RESET
    assert said_by(error) == "cut off"


def test_an_error_that_came_from_nothing_that_says_more_is_told_by_its_class() -> None:
    error = OSError()
    error.__cause__ = ValueError()
    assert said_by(error) == "OSError"


def test_errors_that_came_from_each_other_are_told() -> None:
    first, second = OSError(), ValueError()
    first.__cause__, second.__cause__ = second, first
    assert (said_by(first), said_by(second)) == ("OSError", "ValueError")
