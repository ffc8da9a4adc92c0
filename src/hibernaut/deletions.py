"""What is left of a tree that was deleted: that it was, when, and why. It is written in the same transaction."""

import msgspec

from hibernaut.codec import decoder_of, pack, unpack
from hibernaut.kernel.head import decode_head
from hibernaut.part import SystemPart
from hibernaut.stores.protocol import ThreadRow


class Deletion(msgspec.Struct, frozen=True, omit_defaults=True):
    """An operator has deleted a tree."""

    thread_id: str
    """Its root."""
    tenant: str
    deleted: int
    """When, milliseconds since 1970."""
    receipt: bytes
    """SHA-256 of the last receipt of the root: whoever has kept its receipts can tell that they are all."""
    reason: str = ""


_decoder = decoder_of(Deletion)


def note_of(row: ThreadRow, now: int, reason: str) -> tuple[str, bytes]:
    """Return the note that a tree was deleted, by its root: key and value."""
    last = decode_head(row.head).head.receipts
    return _key(row.thread_id), pack(Deletion(row.thread_id, row.tenant, now, last, reason))


def _key(thread_id: str) -> str:
    return f"deleted:{thread_id}"


class KnowsDeletions(SystemPart):
    """The part of an `AgentSystem` that remembers what was deleted."""

    async def deletion(self, thread_id: str) -> Deletion | None:
        """Return when and why a root was deleted, the last time; None if it never was, or was another tenant's."""
        data = await self.store.read_note(_key(thread_id))
        found = unpack(data, _decoder, "the note of a deletion") if data is not None else None
        return found if found is not None and found.tenant == self.tenant else None
