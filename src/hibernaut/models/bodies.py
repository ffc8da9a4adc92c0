"""Bodies of requests, put together from members that are written already."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

_encode = msgspec.json.Encoder().encode


def joined(members: Mapping[str, Sequence[bytes]]) -> bytes:
    """Return an object of members, each written in pieces. All is copied once."""
    pieces: list[bytes] = []
    for name, written in members.items():
        pieces += (b"," if pieces else b"{", _encode(name), b":", *written)
    return b"".join((*pieces, b"}")) if pieces else b"{}"


def merged(own: Mapping[str, Any], given: Any) -> Any:
    """Return a value in which what is given wins, member by member where both are objects."""
    if not isinstance(given, Mapping):
        return given
    result = dict(own)
    for name, value in given.items():
        result[name] = merged(own[name], value) if isinstance(own.get(name), Mapping) else value
    return result
