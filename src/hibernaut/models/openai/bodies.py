"""Bodies of requests, put together from what is written already."""

import functools
from collections.abc import Mapping
from typing import Any

import msgspec

json_of = msgspec.json.Encoder().encode
"""Write a value as JSON."""


@functools.lru_cache(maxsize=64)
def text_of(instructions: str) -> bytes:
    """Return instructions as a JSON string."""
    return json_of(instructions)


def body_of(fields: Mapping[str, Any], *members: tuple[str, bytes]) -> bytes:
    """Return an object of fields, and of members whose JSON is written already. Fields win over members."""
    pieces = [json_of(fields)[:-1]]
    for name, text in members:
        if name not in fields:
            pieces += (b"," if len(pieces) > 1 or fields else b"", json_of(name), b":", text)
    return b"".join((*pieces, b"}"))
