"""Sets of message ids, as the 16-byte digests of their members.

They are packed while they are few, then an open hash table whose first cell counts the cells that were ever taken.
"""

from hashlib import blake2b

PACKED = 256 * 16
"""Bytes of digests that are searched from end to end (about a microsecond); more are kept as a hash table."""

_FREE, _REMOVED = b"\x00" * 16, b"\xff" * 16


def digest_of(message_id: str) -> bytes:
    """Return what a message id is known by."""
    return blake2b(message_id.encode(), digest_size=16).digest()


def _cell(known: bytes | bytearray, digest: bytes) -> int:
    """Return where a digest stands, or -1; in a table instead where it would stand, the free cell."""
    if isinstance(known, bytes):
        at = known.find(digest)
        while at % 16 and at > 0:
            at = known.find(digest, at + 1)
        return at
    at = 16 + int.from_bytes(digest[:8], "big") % (len(known) // 16 - 1) * 16
    while known[at : at + 16] not in (digest, _FREE):
        at += 16
        if at == len(known):
            at = 16
    return at


def has(known: bytes | bytearray, digest: bytes) -> bool:
    """Tell whether a digest is in a set."""
    at = _cell(known, digest)
    return at >= 0 and (isinstance(known, bytes) or known[at : at + 16] == digest)


def including(known: bytes | bytearray, digest: bytes) -> bytes | bytearray:
    """Return the set with a digest that is not in it; a table is changed in place."""
    if isinstance(known, bytes):
        if len(known) < PACKED:
            return known + digest
        known = _table(known)
    taken = int.from_bytes(known[:16], "big") + 1
    if taken * 16 > len(known) * 3 // 4:
        known = _table(bytes(known[16:]))
        taken = int.from_bytes(known[:16], "big") + 1
    at = _cell(known, digest)
    known[at : at + 16] = digest
    known[:16] = taken.to_bytes(16, "big")
    return known


def excluding(known: bytes | bytearray, digest: bytes) -> bytes | bytearray:
    """Return the set without a digest; a table is changed in place."""
    at = _cell(known, digest)
    if isinstance(known, bytes):
        return known[:at] + known[at + 16 :] if at >= 0 else known
    if known[at : at + 16] == digest:
        known[at : at + 16] = _REMOVED
    return known


def _table(cells: bytes) -> bytearray:
    """Return a table that is about half full of the digests in these cells."""
    digests = digests_of(cells)
    table = bytearray(16 + len(digests) * 32)
    for digest in digests:
        at = _cell(table, digest)
        table[at : at + 16] = digest
    table[:16] = len(digests).to_bytes(16, "big")
    return table


def digests_of(known: bytes | bytearray) -> list[bytes]:
    """Return the digests of a set."""
    cells = known if isinstance(known, bytes) else bytes(known[16:])
    return [cell for n in range(0, len(cells), 16) if (cell := cells[n : n + 16]) not in (_FREE, _REMOVED)]


def count_known(known: bytes | bytearray) -> int:
    """Return how many digests a set has."""
    if isinstance(known, bytes):
        return len(known) // 16
    return sum(known[n : n + 16] not in (_FREE, _REMOVED) for n in range(16, len(known), 16))
