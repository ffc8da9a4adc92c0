"""What the store in memory keeps beside conversations: views of threads, notes of engines, and what is counted."""

from abc import ABC
from collections.abc import Mapping

from hibernaut.stores.known import digest_of, has
from hibernaut.stores.memory_logs import Logs
from hibernaut.stores.memory_threads import Thread
from hibernaut.stores.protocol import MOST_VIEWS, Outcome, ViewRow, check_note


class MemoryBeside(ABC):
    """The part of a store in memory that is about no message and no head; the rest is `hibernaut.stores.memory`."""

    _threads: dict[str, Thread]
    _bytes: int
    _logs: Logs
    _views: dict[str, dict[str, ViewRow]]
    """Of the threads that have any."""
    _notes: dict[str, bytes]
    _counted: dict[str, int]

    async def knows(self, thread_id: str, message_id: str) -> bool:
        thread = self._threads.get(thread_id)
        return thread is not None and has(self._logs.known(thread), digest_of(message_id))

    async def put_view(self, thread_id: str, view_type: str, content: str, now: int) -> Outcome:
        thread = self._threads.get(thread_id)
        if thread is None:
            return Outcome.UNKNOWN
        if thread.status == "closed":
            return Outcome.CLOSED
        views = self._views.get(thread_id, {})
        old = views.get(view_type)
        if old is None and len(views) >= MOST_VIEWS:
            return Outcome.FULL
        if old is None or old.content != content:
            row = ViewRow(view_type, content, now)
            self._bytes += size_of_view(row) - (0 if old is None else size_of_view(old))
            self._views.setdefault(thread_id, {})[view_type] = row
        return Outcome.ACCEPTED

    async def read_views(self, thread_id: str) -> list[ViewRow]:
        return sorted(self._views.get(thread_id, {}).values(), key=lambda row: row.view_type)

    async def write_note(self, key: str, value: bytes) -> None:
        check_note(key, value)
        self._keep_note(key, value)

    async def add_counts(self, added: Mapping[str, int], greatest: Mapping[str, int]) -> None:
        for name, number in added.items():
            self._counted[name] = self._counted.get(name, 0) + number
        for name, number in greatest.items():
            self._counted[name] = max(self._counted.get(name, 0), number)

    async def read_note(self, key: str) -> bytes | None:
        return self._notes.get(key)

    def _keep_note(self, key: str, value: bytes) -> None:
        self._bytes += len(value) - len(self._notes.get(key, b""))
        self._notes[key] = value

    def _forget_views(self, thread_id: str) -> None:
        for row in self._views.pop(thread_id, {}).values():
            self._bytes -= size_of_view(row)


def size_of_view(row: ViewRow) -> int:
    """Return how many bytes a view takes."""
    return len(row.view_type) + len(row.content.encode())
