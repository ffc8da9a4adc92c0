"""Which digests stored bytes refer to: to know what nothing refers to any more."""

from collections.abc import Iterable

MARK = b"\xc4\x20"
"""What msgpack writes before 32 bytes."""

_SIZE = 32


def digests_in(values: Iterable[bytes]) -> set[bytes]:
    """Return all that may be a SHA-256 in packed values. Some of it is chance: look it up."""
    found = set()
    for value in values:
        at = value.find(MARK)
        while at >= 0:
            found.add(value[at + 2 : at + 2 + _SIZE])
            at = value.find(MARK, at + 1)
    return found


def still_free(candidates: set[bytes], values: Iterable[bytes]) -> set[bytes]:
    """Return the candidates that no value refers to; stops looking when there are none."""
    free = set(candidates)
    if free:
        for value in values:
            if MARK in value:
                free -= digests_in((value,))
                if not free:
                    break
    return free
