"""What a system says of its threads to auditors and operators: receipts, whether they hold, and effects."""

from collections.abc import AsyncGenerator

from hibernaut.engine.auditing import Audited, audit, published_receipts
from hibernaut.kernel.published_receipts import PublishedReceipt
from hibernaut.part import SystemPart


class AuditsThreads(SystemPart):
    """The part of an `AgentSystem` that shows what was recorded, and checks it."""

    async def receipts_of(self, thread_id: str, *, payloads: bool = False) -> AsyncGenerator[PublishedReceipt, None]:
        """Yield the receipts of a thread in their published form, oldest first; `payloads`: with what pages hold.

        Raises:
            UnknownThread: this tenant has no such thread.
            StoreCorrupt: something of it cannot be read.
        """
        async for receipt in published_receipts(self.store, await self.row(thread_id), payloads=payloads):
            yield receipt

    async def verify(self, thread_id: str) -> int:
        """Check a thread's pages, receipts, head and effects against each other; returns how many receipts there are.

        Raises:
            VerificationFailed: naming the first difference.
            UnknownThread: this tenant has no such thread.
        """
        return (await self.audit(thread_id)).receipts

    async def audit(self, thread_id: str) -> Audited:
        """Do the same, and return what was checked."""
        return await audit(self.store, await self.row(thread_id))
