"""How a command ends: its exit codes, and errors as one line that says what to do."""

import os

import click

from hibernaut.errors import (
    ConfigurationError,
    HibernautError,
    StoreBusy,
    StoreError,
    TokenRefused,
    UnknownEffect,
    UnknownQuestion,
    UnknownThread,
    VerificationFailed,
)

ANSWERED = 0
REFUSED = 1
USAGE = 2
PARKED = 3
ENDED = 4
WAITING = 5
STORE_FAILED = 6
UNVERIFIED = 7
INTERRUPTED = 130
BROKEN_PIPE = 141

EXIT_CODES = """\
\b
Exit codes:
    0  done; of `run`: the agent has answered
    1  refused: the input was not taken, and changed nothing
    2  the command line, a model or a tool is not right
    3  the agent is parked: it gave up, and says why
    4  the agent is stopped or closed
    5  the agent goes on waiting: the time was up, or it sleeps
    6  the store failed
    7  the receipts do not match what is stored
  130  interrupted by Ctrl-C
"""

DEBUG = "HIBERNAUT_DEBUG"
"""Environment variable: when it is set, errors keep their traceback."""

_CODES: tuple[tuple[type[HibernautError], int], ...] = (
    (ConfigurationError, USAGE),
    (StoreError, STORE_FAILED),
    (VerificationFailed, UNVERIFIED),
)

_ADVICE: tuple[tuple[type[HibernautError], str], ...] = (
    (UnknownThread, "`hibernaut threads list` shows those there are"),
    (UnknownQuestion, "`hibernaut inbox` shows those that wait"),
    (UnknownEffect, "`hibernaut effects list` shows those under way"),
    (TokenRefused, "give the token as the tool was given it, and the store it came from"),
    (StoreBusy, "see which process holds it"),
)


class Leave(BaseException):  # no error: the engine must not take it for one and wind down
    """End the command at once with this exit code, without waiting for what runs. A store loses nothing by it."""

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


class Failure(click.ClickException):
    """An error that the user can do something about."""

    def __init__(self, error: HibernautError) -> None:
        advice = next((text for kind, text in _ADVICE if isinstance(error, kind)), "")
        text = " ".join(str(error).split()) or error.code
        super().__init__(f"{text}; {advice}" if advice else text)
        code = next((code for kind, code in _CODES if isinstance(error, kind)), REFUSED)
        vars(self)["exit_code"] = code  # click reads it from the exception, and declares it for the class only


def told_in_one_line(error: BaseException) -> bool:
    """Tell whether an error is shown without its traceback."""
    return isinstance(error, HibernautError) and not os.environ.get(DEBUG)


def cause_of(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """Return what a group of errors is about: the defect in it if there is one, else the first of them."""
    leaves = list(_leaves(group))
    foreign = [error for error in leaves if not isinstance(error, HibernautError | Leave)]
    return (foreign or leaves)[0]


def _leaves(error: BaseException) -> list[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        return [leaf for part in error.exceptions for leaf in _leaves(part)]
    return [error]
