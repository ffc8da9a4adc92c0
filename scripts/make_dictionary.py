"""Make a further dictionary for packing pages, from this project's own texts: its documentation, code and tests.

    python scripts/make_dictionary.py

It writes src/hibernaut/stores/dictionaries/N.zdict, where N is the next number. A dictionary that was released is never
changed or removed: what was packed with it could not be read any more. Nothing of `hibernaut.bench.corpus` is trained
on, so what the benchmark finds holds for texts that the dictionary has not seen.
"""

import random
import struct
import subprocess
import sys
from collections.abc import Iterator
from itertools import count
from pathlib import Path

from hibernaut.codec import sha256
from hibernaut.kernel.receipt import Receipt, TurnCommit, encode_receipt, next_history
from hibernaut.kernel.short_receipts import shorten
from hibernaut.messages.events import Usage
from hibernaut.messages.items import CallItem, ResultItem, TextItem, UserItem, encode_page
from hibernaut.stores.packing import zstd

ROOT = Path(__file__).parent.parent
PLACE = ROOT / "src/hibernaut/stores/dictionaries"

SIZE = 112 * 1024
"""Bytes of a dictionary. With 64 KiB pieces get 1 % larger, with 256 KiB 1 % smaller."""

TALKS = 150
"""Conversations to learn from."""

DIGITS = "0123456789abcdefghjkmnpqrstvwxyz"


class Source:
    """Texts, read on from a place drawn by chance."""

    def __init__(self, text: str, chance: random.Random) -> None:
        self._text = text
        self._at = chance.randrange(len(text))

    def take(self, size: int) -> str:
        """Return the next piece."""
        at, self._at = self._at, (self._at + size) % len(self._text)
        return (self._text + self._text[:size])[at : at + size]


def sources() -> list[str]:
    """Return prose, code and logs: what people, models and tools say."""
    prose = [path.read_text(encoding="utf-8") for path in sorted((ROOT / "docs").glob("*.md"))]
    code = [
        path.read_text(encoding="utf-8")
        for folder in ("src", "tests")
        for path in sorted((ROOT / folder).rglob("*.py"))
    ]
    commands = (
        ["git", "log", "-150", "--stat", "--format=commit %H%nDate: %ad%n%n    %s%n%n%b"],
        [sys.executable, "-m", "pytest", "--no-header", "-v", "-p", "no:randomly", "tests/messages", "tests/kernel"],
        ["ls", "-lR", "--time-style=long-iso", "src", "tests/kernel"],
        ["grep", "-rn", "await", "src/hibernaut/engine"],
    )
    logs = [
        subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout  # noqa: S603 - named above
        for command in commands
    ]
    return ["\n".join(texts) for texts in (prose, code, logs)]


def talk(texts: list[str], chance: random.Random) -> Iterator[bytes]:
    """Yield the pages of a conversation, each with its receipt as it is kept after others."""
    readers = [Source(text, chance) for text in texts]
    turns = count(chance.randrange(len(readers)))
    previous = history = b""
    now = 1_796_000_000_000 + chance.randrange(10**10)
    rows = []
    for version in range(1, 41):
        said, more = (readers[next(turns) % len(readers)] for _ in range(2))
        if version % 2:
            call = "call_" + "".join(chance.choices(DIGITS, k=16))
            tool = chance.choice((("run_command", '{"command":"make test"}'), ("read_file", '{"path":"README.md"}')))
            page = encode_page([UserItem(said.take(200)), TextItem(more.take(1_000)), CallItem(call, *tool)])
            inputs, calls, settled = "msg_" + "".join(chance.choices(DIGITS, k=26)), (call,), ()
        else:
            page = encode_page([ResultItem(call, said.take(600)), TextItem(more.take(1_000))])
            inputs, calls, settled = f"result:{call}", (), (call,)
        now += chance.randrange(100_000)
        history = next_history(history, page)
        usage = Usage(chance.randrange(30_000), chance.randrange(1_000))
        head = (version, previous, history, ((inputs, 0),), TurnCommit.COMPLETE)
        receipt = encode_receipt(
            Receipt(*head, calls, tuple(range(len(calls))), settled, usage, "", 1, version, 0, now, 9)
        )
        previous = sha256(receipt)
        rows.append((page, receipt))
    yield from (page + short for (page, _), short in zip(rows, shorten(rows), strict=True))


def make() -> Path:
    """Train the dictionary and write it."""
    chance = random.Random(0)  # noqa: S311 - nothing is kept from anybody
    texts = sources()
    pages = [page for _ in range(TALKS) for page in talk(texts, chance)]
    number = max((int(path.stem) for path in PLACE.glob("*.zdict")), default=0) + 1
    content = bytearray(zstd.train_dict(pages, SIZE).dict_content)
    content[4:8] = struct.pack("<I", number)  # a small number takes one byte of every piece
    PLACE.mkdir(exist_ok=True)
    path = PLACE / f"{number}.zdict"
    path.write_bytes(content)
    return path


if __name__ == "__main__":
    print(make())
