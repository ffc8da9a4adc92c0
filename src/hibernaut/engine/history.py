"""What a thread has of a history: its own pages, and before them what it inherits, by reference, from above."""

import msgspec

from hibernaut.errors import StoreCorrupt
from hibernaut.kernel.compaction import Material, OwnPage, shown_summary
from hibernaut.kernel.head import Head, Link, Summary, decode_head
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
    return await _read(store, _Reach(head.thread_id, head.version), head.link, head.summary)


async def inherited_items(store: Store, link: Link | None, *, whole: bool = False) -> list[Item]:
    """Return what a thread inherits: what its parent's model was shown then, or (`whole`) all there was.

    Raises:
        StoreCorrupt: a part of it is not in the store, or cannot be read.
    """
    return (await _inherited(store, link, whole=whole))[0]


async def _inherited(store: Store, link: Link | None, *, whole: bool) -> tuple[list[Item], int]:
    """Return what a thread inherits, and how many bytes that is in the store."""
    if link is None or link.fresh:
        return [], 0
    summary = None if whole else link.summary
    above = await _link_of(store, link.parent) if summary is None else None
    found = await _read(store, _Reach(link.parent, link.version, link.items), above, summary, whole=whole)
    return [*found.before, *[item for page in found.pages for item in page.items]], found.size


async def _read(
    store: Store, reach: _Reach, link: Link | None, summary: Summary | None, *, whole: bool = False
) -> Material:
    after, size = 0, 0
    before: list[Item] = []
    if summary is None:
        before, size = await _inherited(store, link, whole=whole)
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


async def _link_of(store: Store, thread_id: str) -> Link | None:
    row = await store.read_head(thread_id)
    if row is None:
        raise StoreCorrupt(f"thread {thread_id}, of whose history another one inherits, is not in the store")
    return decode_head(row.head).head.link


async def chain_start(store: Store, link: Link | None) -> bytes:
    """Return the digest that a thread's chain of pages starts from: its parent's at the moment it was made.

    Raises:
        StoreCorrupt: the parent's part of it is not in the store, or cannot be read.
    """
    if link is None or link.fresh:
        return b""
    first = max(link.version - 1, 0)
    rows = {row.version: row for row in await store.read_log(link.parent, first, link.version + 1 - first)}
    if link.version in rows:
        before = decode_receipt(rows[link.version].receipt).history
    elif link.version:
        raise StoreCorrupt(f"receipt {link.version} of thread {link.parent} is not in the store")
    else:
        before = await chain_start(store, await _link_of(store, link.parent))
    following = rows.get(link.version + 1)
    if link.items and following is None:
        raise StoreCorrupt(f"page {link.version + 1} of thread {link.parent} is not in the store")
    return next_history(before, page_prefix(following.page, link.items) if following else b"")
