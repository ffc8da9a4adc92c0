"""The floor: the same texts and items made, encoded, stored and decoded in plain Python, and nothing else.

No runtime that keeps these items can be faster, so what share of the floor ours reaches says how much it adds. Both are
measured in turn in one process, in slices that are short beside the time in which a machine changes its speed.
"""

import time
from pathlib import Path

import apsw

from hibernaut.bench.texts import COMMAND, Texts
from hibernaut.bench.workload import COMPLETIONS
from hibernaut.messages.items import CallItem, Item, ResultItem, TextItem, UserItem, decode_page, encode_page

CALL = "call_0123456789abcdef"

SLICE = 2_000
"""Completions of one measurement at most."""


class Floor:
    """Does what must be done for the workload's completions.

    Args:
        path: where SQLite keeps the pages, synced; "" keeps them in a list.
        wave: agents that are driven at the same time: on SQLite their pages go into one transaction.
    """

    def __init__(self, path: str | Path, wave: int) -> None:
        self._texts = Texts()
        self._wave = wave
        self.completions = 0
        """Completions that it has done."""
        self._connection: apsw.Connection | None = None
        if path:
            self._connection = connection = apsw.Connection(str(path))
            connection.pragma("journal_mode", "wal")
            connection.pragma("synchronous", "full")
            connection.execute("CREATE TABLE log (place INTEGER PRIMARY KEY, page BLOB NOT NULL)")

    def per_second(self, completions: int) -> float:
        """Return how many completions a second it does."""
        wave = min(self._wave, completions, SLICE)
        rounds = min(completions, SLICE) // wave
        began = time.perf_counter()
        for number in range(rounds):
            if self._connection is None:
                self._in_memory(wave, first=number % COMPLETIONS == 0)
            else:
                self._in_file(self._connection, wave, first=number % COMPLETIONS == 0)
        self.completions += rounds * wave
        return rounds * wave / (time.perf_counter() - began)

    def close(self) -> None:
        """Close the file."""
        if self._connection is not None:
            self._connection.close()

    def _items(self, *, first: bool) -> list[Item]:
        texts = self._texts
        text = "".join(texts.chunks())
        if first:
            return [UserItem(texts.user_text()), TextItem(text), CallItem(CALL, "run_command", COMMAND, "toolu_1")]
        return [ResultItem(CALL, texts.result()), TextItem(text)]

    def _in_memory(self, wave: int, *, first: bool) -> None:
        stored = [encode_page(self._items(first=first)) for _ in range(wave)]
        for page in stored:
            decode_page(page)

    def _in_file(self, connection: apsw.Connection, wave: int, *, first: bool) -> None:
        with connection:
            for _ in range(wave):
                connection.execute("INSERT INTO log (page) VALUES (?)", (encode_page(self._items(first=first)),))
        newest = "SELECT page FROM log ORDER BY place DESC LIMIT ?"
        for (page,) in connection.execute(newest, (wave,)):
            decode_page(page)
