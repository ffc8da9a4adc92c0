"""Names for things that must be unique for ever.

Random names come from an `Ids` source that is passed in, so that a test can replay a run. Names that
follow from what is stored (call ids, request ids) are derived, not drawn: a slice that is run again
after a crash arrives at the same ones.
"""

import hashlib
import secrets
import time
from typing import Protocol

_ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"

_PAIRS = [first + second for first in _ALPHABET for second in _ALPHABET]

_WORD = (1 << 40) - 1


def base32(data: bytes) -> str:
    """Write bytes (a multiple of 5) in lower-case Crockford base 32."""
    text, number = "", int.from_bytes(data, "big")
    for _ in range(0, len(data), 5):
        word, number = number & _WORD, number >> 40
        text = f"{_PAIRS[word >> 30]}{_PAIRS[word >> 20 & 1023]}{_PAIRS[word >> 10 & 1023]}{_PAIRS[word & 1023]}{text}"
    return text


class Ids(Protocol):
    """Draws names that nobody else draws."""

    def new(self, prefix: str) -> str:
        """Return a fresh name that starts with `prefix` and an underscore."""
        ...

    def salt(self) -> bytes:
        """Return 8 bytes that make the derived names of a new thread its own."""
        ...


class RandomIds:
    """Names of 24 characters that sort by the time they were drawn (48 bits of milliseconds, 72 random bits)."""

    def new(self, prefix: str) -> str:
        """Return a fresh name."""
        stamp = time.time_ns() // 1_000_000
        return f"{prefix}_{base32(stamp.to_bytes(6, 'big') + secrets.token_bytes(9))}"

    def salt(self) -> bytes:
        """Return 8 random bytes."""
        return secrets.token_bytes(8)


def call_id(salt: bytes, version: int, position: int) -> str:
    """Derive the id of the call that the turn of head `version` makes at `position`.

    The salt is drawn once when a thread is created, so a thread that is deleted and made again under
    the same name never repeats an id.
    """
    digest = hashlib.sha256(b"%b|%d|%d" % (salt, version, position)).digest()
    return "call_" + base32(digest[:10])


def child_of(salt: bytes, origin: str) -> tuple[str, bytes]:
    """Derive the thread id and the salt of the child that a thread makes for a call or an event, named by `origin`."""
    digest = hashlib.sha256(b"%b|child|%b" % (salt, origin.encode())).digest()
    return "thread_" + base32(digest[:15]), digest[15:23]


def question_id(thread_id: str, call: str, number: int) -> str:
    """Derive the id of the `number`th question of a call; what stands before the @ is unique by itself."""
    return f"q_{call.removeprefix('call_')}.{number}@{thread_id}"


def asked_id(thread_id: str, call: str, identity: bytes) -> str:
    """Derive the id of a question that a tool server asks, from a digest of what makes it this one and no other."""
    return f"q_{call.removeprefix('call_')}.{base32(identity[:10])}@{thread_id}"


def asking_thread(question: str) -> str:
    """Return the id of the thread that a question belongs to, "" if only its first part was given."""
    return question.partition("@")[2]
