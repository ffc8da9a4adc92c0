"""The commits of threads in memory: what is put away comes back byte for byte, and what is let go is used again."""

from random import Random

import pytest

from hibernaut.codec import sha256
from hibernaut.errors import StoreCorrupt
from hibernaut.kernel.receipt import Receipt, TurnCommit, encode_receipt, next_history
from hibernaut.messages.items import TextItem, encode_page
from hibernaut.stores import memory_logs
from hibernaut.stores.arena import Arena
from hibernaut.stores.memory_logs import Logs
from hibernaut.stores.memory_threads import Thread
from hibernaut.stores.shelf import LARGEST, Shelf

Rows = list[tuple[bytes, bytes]]


class Chain:
    """Makes the commits of one thread, as a kernel would."""

    def __init__(self, chance: Random) -> None:
        self._chance = chance
        self._history = self._previous = b""
        self.rows: Rows = []

    def next(self) -> tuple[bytes, bytes]:
        words = self._chance.choices(("the", "engine", "waits", "for", "a", "message", "\u2026"), k=80)
        page = encode_page([TextItem(" ".join(words))]) if self._chance.random() < 0.9 else b""
        self._history = next_history(self._history, page)
        version = len(self.rows) + 1
        receipt = encode_receipt(Receipt(version, self._previous, self._history, (), TurnCommit.NONE, started=version))
        self._previous = sha256(receipt)
        if self._chance.random() < 0.05:
            receipt = self._chance.randbytes(self._chance.choice((0, 1, 90)))
        self.rows.append((page, receipt))
        return page, receipt


def _thread(number: int) -> Thread:
    return Thread(f"thread_{number}", "", b"h" * 200, 0, 0)


@pytest.mark.parametrize("compress", [False, True])
def test_every_commit_comes_back_however_threads_are_put_away(compress: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory_logs, "LARGEST_FRAME", 8_000)
    monkeypatch.setattr(memory_logs, "HOT_SEGMENT", 4_096)
    monkeypatch.setattr(memory_logs, "COLD_SEGMENT", 16_384)
    chance = Random(11)
    logs = Logs(compress=compress, most_hot=20_000)
    threads = [_thread(number) for number in range(12)]
    chains = [Chain(chance) for _ in threads]
    for step in range(1_500):
        which = chance.randrange(len(threads))
        thread, chain = threads[which], chains[which]
        if thread.asleep:
            logs.wake(thread)
        assert thread.head == b"h" * 200
        thread.known = b"k" * (16 * len(chain.rows)) if len(chain.rows) < 250 else b""
        logs.append(thread, *chain.next())
        logs.make_room(thread)
        if chance.random() < 0.01:
            while logs.put_away_some():
                pass
            assert all(one.asleep and not one.head for one in threads if one.log)
        if chance.random() < 0.01:
            logs.forget(thread)
            threads[which], chains[which] = _thread(1_000 + step), Chain(chance)
            logs.gather(threads)
        skip = chance.randrange(20)
        assert list(logs.back(thread, skip)) == (chain.rows[::-1] if thread is threads[which] else [])[skip:]
    for thread, chain in zip(threads, chains, strict=True):
        assert list(logs.back(thread)) == chain.rows[::-1]
        assert logs.head(thread) == b"h" * 200
    for thread in threads:
        logs.forget(thread)
    assert logs.size == 0


@pytest.mark.parametrize("compress", [False, True])
def test_what_was_put_away_is_smaller_and_only_what_is_asked_for_is_unpacked(
    compress: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    logs, thread, chain = Logs(compress=compress), _thread(1), Chain(Random(5))
    for _ in range(200):
        logs.append(thread, *chain.next())
        logs.make_room(thread)
    while logs.put_away_some():
        pass
    came = sum(len(page) + len(receipt) for page, receipt in chain.rows)
    assert logs.size < (0.5 if compress else 0.95) * came
    logs.append(thread, *chain.next())
    monkeypatch.setattr(Logs, "_rows", None)  # no frame is unpacked for what came after it
    assert next(logs.back(thread)) == chain.rows[-1]


def test_an_arena_gives_back_a_mapping_of_which_nothing_is_left() -> None:
    chance, arena = Random(3), Arena(4_096)
    kept: dict[int, bytes] = {}
    for _ in range(3_000):
        record = chance.randbytes(chance.choice((1, 500, 5_000)))
        place = arena.add(record)
        assert place not in kept
        assert place != 0
        kept[place] = record
        while len(kept) > 20:
            gone = next(iter(kept))
            arena.drop(gone, len(kept.pop(gone)))
    for place, record in kept.items():
        mapping, at = arena.view(place)
        assert mapping[at : at + len(record)] == record
    assert sum(mapping is not None for mapping in arena._segments) < 40
    assert not Arena(4_096).is_sparse()
    gone = arena._segments.index(None)
    with pytest.raises(StoreCorrupt, match="dropped"):
        arena.view((gone + 1) << 32)


def test_a_shelf_gives_a_place_that_is_free_to_the_next_record_that_fits() -> None:
    chance, shelf = Random(3), Shelf()
    kept: dict[int, bytes] = {}
    for _ in range(20_000):
        record = chance.randbytes(chance.choice((1, 64, 65, 1_000, LARGEST)))
        place = shelf.add(record)
        assert place not in kept
        kept[place] = record
        if len(kept) > 100:
            gone = chance.choice(list(kept))
            shelf.drop(gone, len(kept.pop(gone)))
    assert all(shelf.read(place, len(record)) == record for place, record in kept.items())
    assert len(shelf._segments) == 1
