"""A store that fails, or dies with its process, exactly where a test wants it to.

Every transaction of a run has a number, from 1, in the order they begin. A run of the same scenario does the same
transactions, so a sweep over the numbers meets every place where a process can die.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from typing import TypeVar

import msgspec

from hibernaut.errors import StoreError
from hibernaut.kernel.commit import Blob, NewThread, SliceCommit
from hibernaut.kernel.head import Status
from hibernaut.messages.inputs import Delivered, InputMessage
from hibernaut.stores.archive import Record
from hibernaut.stores.protocol import (
    Claim,
    EffectRow,
    LogRow,
    Outcome,
    Owner,
    Round,
    Store,
    StoreCounts,
    ThreadRow,
    ViewRow,
)

T = TypeVar("T")


class SimulatedCrash(BaseException):
    """The process has died. No code that runs in it may go on, so this is no `Exception`."""


class FaultPlan(msgspec.Struct, frozen=True):
    """Where a `FaultyStore` dies or fails."""

    crash_at: int = 0
    """Number of the operation at which the process dies; 0: at none."""
    after: bool = False
    """It dies when the operation was performed, instead of before; nobody hears of its result."""
    fail_at: Mapping[int, StoreError] = {}
    """Errors that are raised, once each, instead of performing the operation of that number."""
    on_operation: Callable[[int, str], None] | None = None
    """Called with the number and name of every operation at the moment at which the process would die at it."""


class FaultyStore:
    """Keeps threads in another store, and fails by plan."""

    def __init__(self, inner: Store, plan: FaultPlan | None = None) -> None:
        self._inner = inner
        self._plan = plan or FaultPlan()
        self._operations: list[str] = []
        self._dead = False

    @property
    def operations(self) -> list[str]:
        """The names of the operations so far, in the order they began."""
        return list(self._operations)

    async def perform(self, name: str, operation: Callable[[], Awaitable[T]]) -> T:
        """Do something else of the same process, which is counted with the operations: it can die of it, too."""
        return await self._perform(name, operation)

    async def create(
        self,
        threads: Sequence[NewThread],
        messages: Sequence[InputMessage],
        now: int,
        *,
        blobs: Sequence[Blob] = (),
        tenant: str | None = None,
    ) -> list[Outcome]:
        return await self._perform(
            "create", lambda: self._inner.create(threads, messages, now, blobs=blobs, tenant=tenant)
        )

    async def put(
        self,
        messages: Sequence[InputMessage],
        now: int,
        *,
        due: int = 0,
        blobs: Sequence[Blob] = (),
        tenant: str | None = None,
    ) -> list[Outcome]:
        return await self._perform("put", lambda: self._inner.put(messages, now, due=due, blobs=blobs, tenant=tenant))

    async def knows(self, thread_id: str, message_id: str) -> bool:
        return await self._perform("knows", lambda: self._inner.knows(thread_id, message_id))

    async def put_view(self, thread_id: str, view_type: str, content: str, now: int) -> Outcome:
        return await self._perform("put_view", lambda: self._inner.put_view(thread_id, view_type, content, now))

    async def read_views(self, thread_id: str) -> list[ViewRow]:
        return await self._perform("read_views", lambda: self._inner.read_views(thread_id))

    async def claim(
        self, owner: Owner, now: int, limit: int, *, threads: Sequence[str] | None = None, tenant: str | None = None
    ) -> list[Claim]:
        return await self._perform(
            "claim", lambda: self._inner.claim(owner, now, limit, threads=threads, tenant=tenant)
        )

    async def take(self, claim: Claim, now: int) -> tuple[Delivered, ...]:
        return await self._perform("take", lambda: self._inner.take(claim, now))

    async def commit(self, claim: Claim, commit: SliceCommit, *, keep: bool = False) -> None:
        await self._perform("commit", lambda: self._inner.commit(claim, commit, keep=keep))

    async def commit_all(self, rounds: Sequence[Round]) -> list[Exception | None]:
        commits = [self.commit(one.claim, one.commit, keep=one.keep) for one in rounds]
        ends = await asyncio.gather(*commits, return_exceptions=True)
        for end in ends:
            if end is not None and not isinstance(end, Exception):
                raise end
        return [end if isinstance(end, Exception) else None for end in ends]

    async def release(self, claim: Claim, not_before: int = 0) -> None:
        await self._perform("release", lambda: self._inner.release(claim, not_before))

    async def beat(self, owner: Owner, now: int) -> None:
        await self._perform("beat", lambda: self._inner.beat(owner, now))

    async def leave(self, owner: Owner) -> None:
        await self._perform("leave", lambda: self._inner.leave(owner))

    async def living_engines(self, now: int) -> list[str]:
        return await self._perform("living_engines", lambda: self._inner.living_engines(now))

    async def start_effects(self, owner: Owner, request_ids: Sequence[str]) -> list[str]:
        return await self._perform("start_effects", lambda: self._inner.start_effects(owner, request_ids))

    async def accept_effects(self, request_ids: Sequence[str]) -> None:
        await self._perform("accept_effects", lambda: self._inner.accept_effects(request_ids))

    async def settle_effects(self, request_ids: Sequence[str], *, thread_id: str | None = None) -> None:
        await self._perform("settle_effects", lambda: self._inner.settle_effects(request_ids, thread_id=thread_id))

    async def adopt_effects(
        self, owner: Owner, now: int, limit: int, *, threads: Sequence[str] | None = None, tenant: str | None = None
    ) -> list[EffectRow]:
        return await self._perform(
            "adopt_effects", lambda: self._inner.adopt_effects(owner, now, limit, threads=threads, tenant=tenant)
        )

    async def next_due(self, now: int) -> int | None:
        return await self._perform("next_due", lambda: self._inner.next_due(now))

    async def read_head(self, thread_id: str) -> ThreadRow | None:
        return await self._perform("read_head", lambda: self._inner.read_head(thread_id))

    async def read_heads(self, thread_ids: Sequence[str]) -> dict[str, tuple[Status, bytes]]:
        return await self._perform("read_heads", lambda: self._inner.read_heads(thread_ids))

    async def read_log(self, thread_id: str, after: int = 0, limit: int = 0) -> list[LogRow]:
        return await self._perform("read_log", lambda: self._inner.read_log(thread_id, after, limit))

    async def read_inbox(self, thread_id: str) -> tuple[Delivered, ...]:
        return await self._perform("read_inbox", lambda: self._inner.read_inbox(thread_id))

    async def read_effects(self, thread_id: str | None = None) -> list[EffectRow]:
        return await self._perform("read_effects", lambda: self._inner.read_effects(thread_id))

    async def accepted_effects(
        self, before: int, after: str = "", limit: int = 1_000, *, tenant: str | None = None
    ) -> list[EffectRow]:
        return await self._perform(
            "accepted_effects", lambda: self._inner.accepted_effects(before, after, limit, tenant=tenant)
        )

    async def cancellations(self, owner: Owner) -> list[EffectRow]:
        return await self._perform("cancellations", lambda: self._inner.cancellations(owner))

    async def read_config(self, digest: bytes) -> bytes | None:
        return await self._perform("read_config", lambda: self._inner.read_config(digest))

    async def read_blob(self, digest: bytes) -> bytes | None:
        return await self._perform("read_blob", lambda: self._inner.read_blob(digest))

    async def list_threads(
        self,
        tenant: str | None = None,
        *,
        limit: int = 100,
        before: tuple[int, str] | None = None,
        roots: bool = False,
    ) -> list[ThreadRow]:
        return await self._perform(
            "list_threads", lambda: self._inner.list_threads(tenant, limit=limit, before=before, roots=roots)
        )

    async def list_asking(
        self, tenant: str | None = None, *, root: str | None = None, limit: int = 100
    ) -> list[ThreadRow]:
        return await self._perform("list_asking", lambda: self._inner.list_asking(tenant, root=root, limit=limit))

    async def read_tree(self, root: str, *, living: bool = False) -> list[ThreadRow]:
        return await self._perform("read_tree", lambda: self._inner.read_tree(root, living=living))

    async def read_forks(self, root: str) -> list[str]:
        return await self._perform("read_forks", lambda: self._inner.read_forks(root))

    async def count_living(self, root: str) -> int:
        return await self._perform("count_living", lambda: self._inner.count_living(root))

    async def freeze(self, root: str, *, tenant: str | None = None) -> int:
        return await self._perform("freeze", lambda: self._inner.freeze(root, tenant=tenant))

    async def thaw(self, root: str, *, tenant: str | None = None) -> int:
        return await self._perform("thaw", lambda: self._inner.thaw(root, tenant=tenant))

    async def export_tree(self, root: str, now: int) -> list[Record]:
        return await self._perform("export_tree", lambda: self._inner.export_tree(root, now))

    async def import_tree(self, records: Sequence[Record], *, reissue: Collection[str] = ()) -> int:
        return await self._perform("import_tree", lambda: self._inner.import_tree(records, reissue=reissue))

    async def delete(
        self,
        root: str,
        *,
        unchanged: bytes = b"",
        tenant: str | None = None,
        note: tuple[str, bytes] | None = None,
    ) -> int:
        return await self._perform(
            "delete", lambda: self._inner.delete(root, unchanged=unchanged, tenant=tenant, note=note)
        )

    async def prune(self, before: int, *, tenant: str | None = None) -> int:
        return await self._perform("prune", lambda: self._inner.prune(before, tenant=tenant))

    async def rest(self) -> bool:
        """Let the other store put away what is hot. No operation: when it comes depends on the time."""
        return not self._dead and await self._inner.rest()

    async def stored_bytes(self) -> int:
        return await self._perform("stored_bytes", self._inner.stored_bytes)

    async def write_note(self, key: str, value: bytes) -> None:
        await self._perform("write_note", lambda: self._inner.write_note(key, value))

    async def read_note(self, key: str) -> bytes | None:
        return await self._perform("read_note", lambda: self._inner.read_note(key))

    async def add_counts(self, added: Mapping[str, int], greatest: Mapping[str, int]) -> None:
        await self._perform("add_counts", lambda: self._inner.add_counts(added, greatest))

    async def read_counts(self, now: int) -> StoreCounts:
        return await self._perform("read_counts", lambda: self._inner.read_counts(now))

    async def secret(self) -> bytes:
        return await self._inner.secret()

    async def old_secrets(self) -> list[bytes]:
        return await self._inner.old_secrets()

    async def keep_secret(self, secret: bytes) -> None:
        await self._perform("keep_secret", lambda: self._inner.keep_secret(secret))

    def on_change(self, hint: Callable[[str, int], None]) -> Callable[[], None]:
        return self._inner.on_change(hint)

    async def changed_elsewhere(self) -> bool:
        return await self._inner.changed_elsewhere()

    async def close(self) -> None:
        await self._inner.close()

    async def _perform(self, name: str, operation: Callable[[], Awaitable[T]]) -> T:
        self._stop_if_dead()
        self._operations.append(name)
        number, plan = len(self._operations), self._plan
        if not plan.after:
            self._reach(number, name)
            self._stop_if_dead()
        try:
            if number in plan.fail_at:
                raise plan.fail_at[number]
            return await operation()
        finally:
            if plan.after:
                self._reach(number, name)
            self._stop_if_dead()  # it may also have died of another operation while this one was under way

    def _reach(self, number: int, name: str) -> None:
        if self._plan.on_operation is not None:
            self._plan.on_operation(number, name)
        if number == self._plan.crash_at:
            self._dead = True

    def _stop_if_dead(self) -> None:
        if self._dead:
            raise SimulatedCrash(f"the process died at operation {self._plan.crash_at}")
