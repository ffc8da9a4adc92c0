"""Texts by chance, of the kind that breaks things."""

from random import Random
from typing import Final

from hibernaut.testing.model_transcripts import TEXTS

LETTERS: Final = (
    *(
        "a",
        "b",
        "1",
        " ",
        "  ",
        "\n",
        "\t",
        "\r\n",
        '"',
        "\\",
        "'",
        "{",
        "]}",
        "</s>",
        "\u00e9",
        "e\u0301",
        "日",
        "👩‍👩‍👧",
        "🦉",
    ),
    *("\x01", "\x1b[0m", "\x1c", "\x7f", "\x85", "\u00a0", "\u200b", "\u2028", "\u202e", "\u3000", "\ufeff", "\ufffe"),
    "\U0010ffff",
)

BROKEN: Final = (*LETTERS, "\x00", "\ud83e", "\udd89", "\udfff")
"""With such as no text may have."""


def some_text(chance: Random, *, broken: bool = False) -> str:
    """Return a text, perhaps one that is blank; `broken`: as it may come in from outside, before it is cleaned."""
    if chance.random() < 0.7:
        return chance.choice(TEXTS)
    return "".join(chance.choices(BROKEN if broken else LETTERS, k=chance.choice([1, 2, 3, 12, 40])))
