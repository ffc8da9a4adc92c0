"""What the store in memory tells of trees, and how it removes them."""

import heapq
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from operator import attrgetter

from hibernaut.errors import HasForks
from hibernaut.kernel.head import Status
from hibernaut.messages.inputs import encode_input
from hibernaut.stores.known import count_known
from hibernaut.stores.memory_engines import FROZEN
from hibernaut.stores.memory_logs import Logs
from hibernaut.stores.memory_threads import Thread
from hibernaut.stores.protocol import EffectRow, ThreadRow, check_note
from hibernaut.stores.references import digests_in, still_free
from hibernaut.stores.trees import Member, Trees, prunable


class MemoryTrees(ABC):
    """The part of a store in memory that has to do with trees; the rest is `hibernaut.stores.memory`."""

    _threads: dict[str, Thread]
    _configs: dict[bytes, bytes]
    _blobs: dict[bytes, bytes]
    _bytes: int
    _logs: Logs
    _trees: Trees
    _asking: dict[str, int]
    """How many questions wait, of the threads that have any."""
    _first_token: int
    """The greatest token of a thread that was removed: an old claim stays lost when its thread is made again."""

    @abstractmethod
    def _withdraw(self, thread: Thread) -> None: ...

    @abstractmethod
    def _forget_views(self, thread_id: str) -> None: ...

    @abstractmethod
    def _keep_note(self, key: str, value: bytes) -> None: ...

    @abstractmethod
    def _is_unchanged(self, root: str, digest: bytes) -> bool: ...

    @abstractmethod
    def _drop_effect(self, request_id: str) -> EffectRow | None: ...

    def _with_trees(self, names: Iterable[str]) -> dict[str, None]:
        """Return threads, and those below the roots among them."""
        return dict.fromkeys(member for name in names for member in self._trees.members(name))

    async def list_asking(
        self, tenant: str | None = None, *, root: str | None = None, limit: int = 100
    ) -> list[ThreadRow]:
        found = (
            thread
            for thread in map(self._threads.__getitem__, self._asking)
            if (tenant is None or thread.tenant == tenant)
            and (root is None or root == (self._trees.place(thread.thread_id)[1] or thread.thread_id))
        )
        return [self._row(thread) for thread in heapq.nsmallest(limit, found, attrgetter("updated", "thread_id"))]

    async def read_tree(self, root: str, *, living: bool = False) -> list[ThreadRow]:
        if not self._is_root(root):
            return []
        tree = map(self._threads.__getitem__, self._trees.members(root))
        return [self._row(thread) for thread in tree if not (living and thread.status == "closed")]

    async def read_forks(self, root: str) -> list[str]:
        return self._trees.forks(root) if root in self._threads and self._trees.is_root(root) else []

    async def count_living(self, root: str) -> int:
        return self._trees.living(root)

    async def delete(
        self,
        root: str,
        *,
        unchanged: bytes = b"",
        tenant: str | None = None,
        note: tuple[str, bytes] | None = None,
    ) -> int:
        if note is not None:
            check_note(*note)
        if not self._is_root(root, tenant):
            return 0
        if unchanged and not self._is_unchanged(root, unchanged):
            return 0
        if forks := self._trees.forks(root):
            raise HasForks(root, forks)
        if note is not None:
            self._keep_note(*note)
        return self._remove(list(self._trees.members(root)))

    async def prune(self, before: int, *, tenant: str | None = None) -> int:
        def is_over(thread: Thread) -> bool:
            closed = thread.status == "closed" and thread.updated < before
            needed = thread.effects or thread.thread_id in self._asking or self._trees.has_forks(thread.thread_id)
            return closed and not needed

        roots = {
            self._trees.place(thread.thread_id)[1] or thread.thread_id: None
            for thread in self._threads.values()
            if (tenant is None or thread.tenant == tenant) and is_over(thread)
        }
        names: list[str] = []
        for root in roots:
            tree = [
                Member(
                    thread.thread_id, self._trees.place(thread.thread_id)[0], thread.status == "closed", is_over(thread)
                )
                for thread in map(self._threads.__getitem__, self._trees.members(root))
            ]
            names += map(str, prunable(tree))
        return self._remove(names)

    def _has_origin(self, fork_of: str, tenant: str) -> bool:
        origin = self._threads.get(fork_of)
        return origin is not None and origin.tenant == tenant

    def _is_root(self, root: str, tenant: str | None = None) -> bool:
        thread = self._threads.get(root)
        return thread is not None and tenant in (None, thread.tenant) and self._trees.is_root(root)

    def _row(self, thread: Thread) -> ThreadRow:
        name = thread.thread_id
        moments, place = (thread.created, thread.updated), self._trees.place(name)
        waiting, asking = len(thread.inbox or ()), self._asking.get(name, 0)
        frozen = thread.owner is FROZEN
        return ThreadRow(
            name, thread.tenant, thread.status, self._logs.head(thread), *moments, waiting, *place, asking, frozen
        )

    def _set_status(self, thread: Thread, status: Status) -> None:
        if thread.status != status and "closed" in (thread.status, status):
            self._trees.count_closed(thread.thread_id, 1 if status == "closed" else -1)
        thread.status = status

    def _ask(self, thread: Thread, questions: int) -> None:
        if questions:
            self._asking[thread.thread_id] = questions
        elif self._asking:
            self._asking.pop(thread.thread_id, None)

    def _remove(self, names: Sequence[str]) -> int:
        """Remove threads, and the blobs and configurations that only they referred to."""
        gone = [self._threads.pop(name) for name in names]
        self._trees.remove(names, {thread.thread_id for thread in gone if thread.status == "closed"})
        referred = digests_in(self._contents(gone))
        for thread in gone:
            self._first_token = max(self._first_token, thread.token)
            self._asking.pop(thread.thread_id, None)
            self._withdraw(thread)
            self._forget_views(thread.thread_id)
            if thread.owner is not None:
                thread.owner.claims.discard(thread.thread_id)
            for request_id in thread.effects:
                self._drop_effect(request_id)
            self._bytes -= len(self._logs.head(thread)) + 16 * count_known(self._logs.known(thread))
            self._logs.forget(thread)
        candidates = referred & (self._blobs.keys() | self._configs.keys())
        for digest in still_free(candidates, self._contents(self._threads.values())):
            for shelf in (self._blobs, self._configs):
                self._bytes -= len(shelf.pop(digest, b""))
        self._logs.gather(tuple(self._threads.values()))
        return len(gone)

    def _contents(self, threads: Iterable[Thread]) -> Iterator[bytes]:
        """Yield all that can refer to a blob or a configuration."""
        threads = list(threads)
        yield from map(self._logs.head, threads)
        for thread in threads:
            yield from (encode_input(letter.message) for letter in thread.inbox or ())
            yield from (page for page, _ in self._logs.back(thread))
