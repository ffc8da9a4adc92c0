"""What the store does with whole trees inside a transaction: reading them, and removing them."""

from array import array
from collections.abc import Iterator, Sequence
from typing import Any

import apsw

from hibernaut.errors import HasForks
from hibernaut.stores.references import digests_in, still_free
from hibernaut.stores.sqlite.lanes import CLOSED
from hibernaut.stores.sqlite.transaction import Transaction
from hibernaut.stores.trees import Member, prunable

PIECE = 200
"""Values that are read in one go when all there are have to be looked at."""

NO_END = (1 << 63) - 1
"""Beyond the places of all threads."""


def read_tree(tx: Transaction, root: str, *, living: bool) -> list[Any]:
    """Return the rows of a tree in the order its threads were made."""
    found = tx.first("find_root", (root, None))
    if found is None:
        return []
    number, status = found
    rows = tx.rows("living_descendants", (number,)) if living else tx.rows("descendants", (number,))
    return _rows(tx, [*([] if living and status == CLOSED else [number]), *(thread for (thread,) in rows)])


def list_asking(tx: Transaction, tenant: str | None, root: str | None, limit: int) -> list[Any]:
    """Return the rows of threads that wait for a person, the longest untouched first."""
    limit = max(limit, 0)
    if root is not None:
        rows = tx.rows("asking_of_tree", (root, tenant, limit))
    elif tenant is not None:
        rows = tx.rows("asking_of_tenant", (tenant, limit))
    else:
        rows = tx.rows("asking", (limit,))
    return _rows(tx, [thread for (thread,) in rows])


def _rows(tx: Transaction, threads: Sequence[int]) -> list[Any]:
    if not threads:
        return []
    found = {row[0]: row[1:] for row in tx.rows("read_in_order", (apsw.carray(array("q", threads)),))}
    return [found[thread] for thread in threads]


def members(tx: Transaction, root: str, tenant: str | None = None) -> list[int]:
    """Return the numbers of a root and its descendants, in the order they were made; none if there is no such root."""
    found = tx.first("find_root", (root, tenant))
    return [] if found is None else [found[0], *(thread for (thread,) in tx.rows("descendants", (found[0],)))]


def read_forks(tx: Transaction, root: str) -> list[str]:
    """Return the forks of the threads in a tree, in the order they were made."""
    threads = members(tx, root)
    return [name for (name,) in tx.rows("forks", (apsw.carray(array("q", threads)),))] if threads else []


def delete(tx: Transaction, root: str, tenant: str | None = None, note: tuple[str, bytes] | None = None) -> int:
    """Remove a tree; return how many threads went. If any did, the note is kept."""
    threads = members(tx, root, tenant)
    if threads and (forks := read_forks(tx, root)):
        raise HasForks(root, forks)
    if threads and note is not None:
        tx.run("write_note", note)
    return _remove(tx, threads) if threads else 0


def prune(tx: Transaction, before: int, tenant: str | None) -> int:
    """Remove what is over; return how many threads went."""
    gone: list[int] = []
    for (root,) in tx.rows("trees_with_closed", (before, tenant)):
        tree = [
            Member(thread, parent, bool(is_closed), bool(over))
            for thread, parent, is_closed, over in tx.rows("members", (root, before))
        ]
        gone += map(int, prunable(tree))
    return _remove(tx, gone) if gone else 0


def _remove(tx: Transaction, threads: Sequence[int]) -> int:
    number = apsw.carray(array("q", threads))
    with_blobs = bool(tx.first("has_blobs")[0])
    referred = digests_in(head for _, head in tx.rows("heads", (number,)))
    for thread in threads if with_blobs else ():
        referred |= digests_in(contents(tx, thread))
    tx.run("raise_tokens", (number,))
    tx.run("delete_threads", (number,))
    tx.run("delete_heads", (number,))
    tx.run("delete_effects", (number,))
    tx.run("delete_views", (number,))
    for thread in threads:
        tx.run("delete_known", (thread,))
        tx.run("delete_inbox", (thread,))
        tx.run("delete_log", (thread,))
    if referred:
        _remove_unused(tx, referred)
    return len(threads)


def _remove_unused(tx: Transaction, referred: set[bytes]) -> None:
    """Remove those of the blobs and configurations that nothing refers to any more."""
    names = apsw.carray(tuple(referred))
    candidates = {digest for (digest,) in tx.rows("configs_of", (names,)) + tx.rows("blobs_of", (names,))}
    for digest in still_free(candidates, _all_contents(tx)):
        tx.run("delete_blob", (digest,))
        tx.run("delete_config", (digest,))


def contents(tx: Transaction, thread: int) -> Iterator[bytes]:
    """Yield the messages and the pages of a thread that can refer to something."""
    start, end = thread << 32, (thread + 1) << 32
    yield from _values(tx, "inbox_after", start, end)
    yield from _values(tx, "log_after", start, end)


def _all_contents(tx: Transaction) -> Iterator[bytes]:
    yield from _values(tx, "heads_after", 0)
    yield from _values(tx, "inbox_after", 0, NO_END)
    yield from _values(tx, "whole_log_after", 0)


def _values(tx: Transaction, query: str, start: int, *end: int) -> Iterator[bytes]:
    """Yield the values of a query that has them by keys, piece by piece."""
    last = start
    while rows := tx.rows(query, (last, *end, PIECE)):
        last = rows[-1][0]
        yield from (value for _, value in rows)
