"""Bodies of requests, put together from what is written already."""

import functools
from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec

MANY: Final = 1_024
"""Pieces of a text from which on they are made one: each turn joins them all."""

json_of = msgspec.json.Encoder().encode
"""Write a value as JSON."""


@functools.lru_cache(maxsize=64)
def text_of(instructions: str) -> bytes:
    """Return instructions as a JSON string."""
    return json_of(instructions)


def joined(pieces: list[bytes], kept: int = 0) -> list[bytes]:
    """Return pieces, as one if they have become many, but for some at the beginning."""
    return pieces if len(pieces) < MANY else [*pieces[:kept], b"".join(pieces[kept:])]


def body_of(fields: Mapping[str, Any], *members: tuple[str, Iterable[bytes]]) -> bytes:
    """Return an object of fields, and of members whose JSON is written already, in pieces. Fields win over members."""
    pieces = [json_of(fields)[:-1]]
    for name, text in members:
        if name not in fields:
            pieces += (b",", json_of(name), b":", *text)
    return b"".join((*pieces, b"}"))
