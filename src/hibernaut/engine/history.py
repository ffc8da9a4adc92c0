"""What a thread has of a history: its own pages, and before them what it inherits, by reference, from above."""

import msgspec

from hibernaut.errors import StoreCorrupt
from hibernaut.kernel.compaction import Material, OwnPage, shown_summary
from hibernaut.kernel.head import Fork, Head, Link, Summary, decode_head
from hibernaut.kernel.receipt import decode_receipt, next_history
from hibernaut.messages.items import Item, SummaryItem, decode_page, page_prefix
from hibernaut.stores.protocol import Store


class _Reach(msgspec.Struct, frozen=True):
    """How far a history is read: all pages up to `version`, and `more` items of the page after that."""

    thread_id: str
    version: int
    more: int = 0


async def read_material(store: Store, head: Head) -> Material:
    """Read what a thread's model is shown as of its head: from the last summary on, or everything.

    Raises:
        StoreCorrupt: a part of it is not in the store, or cannot be read.
    """
    return await _read(store, _Reach(head.thread_id, head.version), head.base, head.summary)


async def inherited_items(store: Store, base: Link | Fork | None, *, whole: bool = False) -> list[Item]:
    """Return what a thread inherits: what the model of the one above was shown then, or (`whole`) all there was.

    Raises:
        StoreCorrupt: a part of it is not in the store, or cannot be read.
    """
    return (await _inherited(store, base, whole=whole))[0]


async def _inherited(store: Store, base: Link | Fork | None, *, whole: bool) -> tuple[list[Item], int]:
    """Return what a thread inherits, and how many bytes that is in the store."""
    if base is None or base.fresh:
        return [], 0
    summary = None if whole else base.summary
    above = await _base_of(store, base.origin) if summary is None else None
    found = await _read(store, _Reach(base.origin, base.version, base.items), above, summary, whole=whole)
    return [*found.before, *[item for page in found.pages for item in page.items]], found.size


async def _read(
    store: Store, reach: _Reach, base: Link | Fork | None, summary: Summary | None, *, whole: bool = False
) -> Material:
    after, size = 0, 0
    before: list[Item] = []
    if summary is None:
        before, size = await _inherited(store, base, whole=whole)
    else:
        after = summary.kept - 1
    pages: list[OwnPage] = []
    last = reach.version + (1 if reach.more else 0)
    for row in await store.read_log(reach.thread_id, after, last - after) if last > after else ():
        items = decode_page(row.page if row.version <= reach.version else page_prefix(row.page, reach.more))
        if summary is not None and row.version == summary.version:
            before = [shown_summary(item.text) for item in items if isinstance(item, SummaryItem)]
        skip = summary.skip if summary is not None and row.version == summary.kept else 0
        pages.append(OwnPage(row.version, items[skip:], skip))
        size += len(row.page)
    if len(pages) != last - after or (summary is not None and not before):
        raise StoreCorrupt(f"a part of the history of thread {reach.thread_id} is not in the store")
    return Material(before, pages, summary.covers if summary else 0, summary is not None, size)


async def _base_of(store: Store, thread_id: str) -> Link | Fork | None:
    row = await store.read_head(thread_id)
    if row is None:
        raise StoreCorrupt(f"thread {thread_id}, of whose history another one inherits, is not in the store")
    return decode_head(row.head).head.base


async def chain_start(store: Store, base: Link | Fork | None) -> bytes:
    """Return the digest that a thread's chain of pages starts from: that of what it inherits.

    Raises:
        StoreCorrupt: a part of it is not in the store, or cannot be read.
    """
    if base is None or base.fresh:
        return b""
    first = max(base.version - 1, 0)
    rows = {row.version: row for row in await store.read_log(base.origin, first, base.version + 1 - first)}
    if base.version in rows:
        before = decode_receipt(rows[base.version].receipt).history
    elif base.version:
        raise StoreCorrupt(f"receipt {base.version} of thread {base.origin} is not in the store")
    else:
        before = await chain_start(store, await _base_of(store, base.origin))
    following = rows.get(base.version + 1)
    if base.items and following is None:
        raise StoreCorrupt(f"page {base.version + 1} of thread {base.origin} is not in the store")
    return next_history(before, page_prefix(following.page, base.items) if following else b"")
