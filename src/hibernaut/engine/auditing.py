"""Reading a thread as an auditor does: its receipts in their published form, and whether what is stored holds."""

from collections.abc import AsyncGenerator, Mapping

import msgspec

from hibernaut.engine.history import chain_start
from hibernaut.errors import StoreCorrupt, UnknownThread, VerificationFailed
from hibernaut.kernel.chain import ChainCheck
from hibernaut.kernel.config import LaunchConfig, decode_config
from hibernaut.kernel.head import Head, decode_head
from hibernaut.kernel.published_receipts import EffectFate, Ends, PublishedReceipt, Publisher
from hibernaut.kernel.receipt import decode_receipt
from hibernaut.stores.protocol import LogRow, Store, ThreadRow

ROWS = 256
"""Rounds of a thread that are held in memory at a time."""


class Audited(msgspec.Struct, frozen=True):
    """What was checked of one thread, and held."""

    receipts: int
    effects: int
    """Effects that its receipts owe."""


async def published_receipts(
    store: Store, row: ThreadRow, *, payloads: bool = False
) -> AsyncGenerator[PublishedReceipt, None]:
    """Yield the receipts of a thread in their published form, oldest first.

    Raises:
        StoreCorrupt: something of it cannot be read.
    """
    head = decode_head(row.head).head
    ends = Ends()
    async for entry in log_up_to(store, head):
        ends.note(decode_receipt(entry.receipt))
    outbox: Mapping[str, EffectFate] = {
        one.effect.request_id: one.state for one in await store.read_effects(head.thread_id)
    }
    body = await store.read_config(head.config)
    config = decode_config(body) if body is not None else LaunchConfig()
    start = await chain_start(store, head.base)
    parent = head.link.parent if head.link else ""
    publisher = Publisher(head.thread_id, ends, outbox, start=start, model=config.model, parent=parent)
    async for entry in log_up_to(store, head):
        yield publisher.publish(entry.page, entry.receipt, payloads=payloads)


async def log_up_to(store: Store, head: Head, after: int = 0) -> AsyncGenerator[LogRow, None]:
    """Yield the commits of a thread after a version, up to that of its head, a few in memory at a time."""
    while after < head.version:
        rows = await store.read_log(head.thread_id, after, min(ROWS, head.version - after))
        for entry in rows:
            if entry.version > head.version:
                return
            yield entry
        if not rows:
            return
        after = rows[-1].version


async def audit(store: Store, row: ThreadRow) -> Audited:
    """Check a thread's pages, receipts, head and effects against each other; it may go on meanwhile.

    Raises:
        VerificationFailed: naming the first difference.
        UnknownThread: it was deleted meanwhile.
    """
    while True:
        try:
            return await _audit(store, row)
        except VerificationFailed:
            again = await store.read_head(row.thread_id)
            if again is None:
                raise UnknownThread(row.thread_id) from None
            if again.created == row.created:
                raise
            row = again


async def _audit(store: Store, row: ThreadRow) -> Audited:
    head = _head_of(row)
    await _check_launch(store, head)
    check = ChainCheck(await _start_of(store, head))
    while True:
        try:
            async for entry in log_up_to(store, head, check.version):
                check.take(entry.page, entry.receipt)
        except StoreCorrupt:
            await _take_one_by_one(store, head, check)
        check.compare(head.history, head.receipts)
        check.compare_authority(head.authority)
        outbox = await _outbox_of(store, head)
        try:
            check.compare_effects(outbox)
        except VerificationFailed:
            # The thread may have gone on since its head was read.
            again = await store.read_head(row.thread_id)
            if again is None or (newer := _head_of(again)).version <= head.version:
                raise
            head = newer
        else:
            return Audited(check.version, check.owed)


async def _take_one_by_one(store: Store, head: Head, check: ChainCheck) -> None:
    """Go on with a log of which a part cannot be read, to find which.

    Raises:
        VerificationFailed: naming it.
    """
    while check.version < head.version:
        try:
            rows = await store.read_log(head.thread_id, check.version, 1)
        except StoreCorrupt as error:
            version = check.version + 1
            raise VerificationFailed(
                f"the page of version {version} cannot be read: {error}", "page", version
            ) from error
        if not rows:
            return
        check.take(rows[0].page, rows[0].receipt)


def _head_of(row: ThreadRow) -> Head:
    try:
        return decode_head(row.head).head
    except StoreCorrupt as error:
        raise VerificationFailed(f"the head cannot be read: {error}", "head") from error


async def _check_launch(store: Store, head: Head) -> None:
    """Read what says what the thread may do: the store refuses what does not have the digest that it is kept under."""
    try:
        found = [await store.read_config(head.config)]
        if head.authority:
            found.append(await store.read_blob(head.authority))
    except StoreCorrupt as error:
        raise VerificationFailed(f"what it was launched with cannot be read: {error}", "head") from error
    if None in found:
        raise VerificationFailed("what it was launched with, or its authority, is missing", "head")


async def _outbox_of(store: Store, head: Head) -> set[str]:
    try:
        return {one.effect.request_id for one in await store.read_effects(head.thread_id)}
    except StoreCorrupt as error:
        raise VerificationFailed(f"an effect in the outbox cannot be read: {error}", "effect") from error


async def _start_of(store: Store, head: Head) -> bytes:
    try:
        return await chain_start(store, head.base)
    except StoreCorrupt as error:
        raise VerificationFailed(f"what it inherits cannot be read: {error}", "page") from error
