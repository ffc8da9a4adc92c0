"""What is kept beside conversations, inside a transaction: views of threads, and what is counted."""

from collections.abc import Mapping

from hibernaut.stores.protocol import MOST_VIEWS, Outcome
from hibernaut.stores.sqlite.lanes import CLOSED
from hibernaut.stores.sqlite.transaction import Transaction


def put_view(tx: Transaction, thread_id: str, view_type: str, content: str, now: int) -> Outcome:
    """Replace what people see of one kind, unless it is the same."""
    found = tx.first("find_status", (thread_id,))
    if found is None:
        return Outcome.UNKNOWN
    thread, status = found
    if status == CLOSED:
        return Outcome.CLOSED
    old = tx.first("read_view", (thread, view_type))
    if old is None and tx.first("count_views", (thread,))[0] >= MOST_VIEWS:
        return Outcome.FULL
    if old is None or old[0] != content:
        tx.run("put_view", (thread, view_type, content, now))
    return Outcome.ACCEPTED


def add_counts(tx: Transaction, added: Mapping[str, int], greatest: Mapping[str, int]) -> None:
    """Add sums, and keep the greatest of other values."""
    for entry in added.items():
        tx.run("add_count", entry)
    for entry in greatest.items():
        tx.run("keep_greatest", entry)
