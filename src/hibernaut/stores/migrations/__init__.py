"""The steps that bring a store's file from nothing to the present format, numbered from 1.

A migration that was released is never changed: its checksum is stored where it was applied, and a store whose
checksums are not ours is refused.
"""

from functools import cache
from pathlib import Path

import msgspec

from hibernaut.codec import sha256


class Migration(msgspec.Struct, frozen=True):
    """One step. Its number is the format that it makes."""

    number: int
    name: str
    script: str
    checksum: bytes


@cache
def migrations() -> tuple[Migration, ...]:
    """Return all steps, in order."""
    steps = tuple(_read(path) for path in sorted(Path(__file__).parent.glob("[0-9]*.sql")))
    if [step.number for step in steps] != list(range(1, len(steps) + 1)):
        raise ValueError("the numbers of the migrations are not 1, 2, 3, …")
    return steps


def _read(path: Path) -> Migration:
    number, _, name = path.stem.partition("_")
    script = path.read_text(encoding="utf-8")
    return Migration(int(number), name, script, sha256(script.encode()))
