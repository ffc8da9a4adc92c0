"""What the receipts and histories of a store prove, whatever any process has counted."""

from collections import Counter
from collections.abc import Mapping, Sequence

import msgspec

from hibernaut.engine.audit_all import batches
from hibernaut.kernel.commit import Disposition, kind_of_request
from hibernaut.kernel.receipt import Receipt, TurnCommit, decode_receipt
from hibernaut.messages.items import Item, NoticeItem, decode_page
from hibernaut.stores.protocol import Store

ROWS = 256
"""Rounds of a thread that are held in memory at a time."""

_STANDS = {"stopped": True, "parked": True, "closed": True, "resumed": False}
"""What people are told of a thread, and whether nothing may run in it from then on."""


class HistoryBytes(msgspec.Struct, frozen=True):
    """How long the own histories of some threads are."""

    threads: int
    """How many were looked at."""
    mean: float
    max: int

    @classmethod
    def of(cls, sizes: Sequence[int]) -> "HistoryBytes":
        """Return it for threads of these sizes."""
        return cls(len(sizes), sum(sizes) / len(sizes) if sizes else 0.0, max(sizes, default=0))


class Proven(msgspec.Struct, frozen=True):
    """What all receipts and pages of all threads say."""

    receipts: int
    inputs: Mapping[str, int]
    """By what became of them."""
    completions: Mapping[str, int]
    """Times the model was asked, by what came of it."""
    tokens: Mapping[str, int]
    """What completions took. Each stands in one receipt of one thread, so that sums over trees are right."""
    late_events: int
    unknown: int
    """Calls that were answered: it is unknown whether this happened."""
    compaction_failures: int
    stop_violations: int
    """Rounds that asked the model, or began a call, in a thread that was stopped, parked or closed."""
    history: HistoryBytes


class _Tally:
    def __init__(self) -> None:
        self.receipts = 0
        self.inputs: Counter[str] = Counter()
        self.completions: Counter[str] = Counter()
        self.tokens: Counter[str] = Counter()
        self.more: Counter[str] = Counter()

    def note(self, receipt: Receipt, items: Sequence[Item], *, stands: bool) -> bool:
        """Count a round; `stands` tells whether nothing may run in its thread. Returns whether that is so after it."""
        self.receipts += 1
        for name, disposition in receipt.inputs:
            self.inputs[Disposition(disposition).name.lower()] += 1
            self.more["late_events"] += disposition >= Disposition.REFUSED and name.startswith("event:")
            self.more["unknown"] += disposition == Disposition.ACCEPTED and name.startswith("unknown:")
        asked = receipt.turn is not TurnCommit.NONE
        if asked:
            self.completions[receipt.turn.name.lower()] += 1
        if receipt.usage is not None:
            self.tokens["input"] += receipt.usage.input
            self.tokens["output"] += receipt.usage.output
        told = [item.kind for item in items if isinstance(item, NoticeItem)]
        self.more["compaction_failures"] += told.count("compaction_failed")
        works = asked or any(kind_of_request(one) == "invoke" for one in receipt.dispatched)
        self.more["stop_violations"] += stands and works and "resumed" not in told
        return next((_STANDS[kind] for kind in reversed(told) if kind in _STANDS), stands)


async def prove(store: Store) -> Proven:
    """Read all receipts and pages of a store. Memory grows by a name and a number for each thread.

    Threads may go on meanwhile, and count as they were when they were read.

    Raises:
        StoreError: something cannot be read.
    """
    tally = _Tally()
    sizes: dict[str, int] = {}
    async for rows in batches(store, None):
        for row in rows:
            if row.thread_id not in sizes:  # one that has gone on meanwhile comes again
                sizes[row.thread_id] = await _read(store, row.thread_id, tally)
    return Proven(
        receipts=tally.receipts,
        inputs=tally.inputs,
        completions=tally.completions,
        tokens=tally.tokens,
        late_events=tally.more["late_events"],
        unknown=tally.more["unknown"],
        compaction_failures=tally.more["compaction_failures"],
        stop_violations=tally.more["stop_violations"],
        history=HistoryBytes.of(list(sizes.values())),
    )


async def _read(store: Store, thread_id: str, tally: _Tally) -> int:
    """Count the rounds of a thread; return the bytes of its history."""
    size, stands, after = 0, False, 0
    while rows := await store.read_log(thread_id, after, ROWS):
        for row in rows:
            size += len(row.page)
            stands = tally.note(decode_receipt(row.receipt), decode_page(row.page), stands=stands)
        after = rows[-1].version
    return size
