"""Forms that answers are to have, as far as the rules must know of them."""

from typing import Protocol

import msgspec


class Given(msgspec.Struct, frozen=True):
    """An answer that fits: compact JSON, or any text where there is no form."""

    value: str


class Unfit(msgspec.Struct, frozen=True):
    """An answer that does not fit, and why, for the model that gave it."""

    reason: str
    value: str = "{}"
    """What was given, as compact JSON, if it is an object."""


class FormJudge(Protocol):
    """Knows the form that an answer is to have."""

    def judge(self, text: str) -> Given | Unfit:
        """Hold an answer against the form."""
        ...


class Output(msgspec.Struct):
    """The form that the answer is to have which a program waits for, and what the model has given as that."""

    form: FormJudge
    given: Given | Unfit | None = None
