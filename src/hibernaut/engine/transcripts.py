"""Decoded transcripts of the threads that are at work. Idle threads are only bytes in the store."""

from collections import OrderedDict
from collections.abc import Sequence
from typing import Final

from hibernaut.engine.history import read_material
from hibernaut.engine.images import FittedItems, fit_images
from hibernaut.kernel.head import Head, LoadedHead, decode_head
from hibernaut.kernel.receipt import next_history
from hibernaut.kernel.sizes import Sizes
from hibernaut.kernel.transcript import Transcript, Validator
from hibernaut.messages.items import CallItem, EventItem, Item, ResultItem, TextItem, UserItem, decode_page
from hibernaut.messages.parts import Image
from hibernaut.models.protocol import Memo, ModelInfo
from hibernaut.stores.protocol import Store

TRANSCRIPT_CACHE = 32 * 1024 * 1024
"""Bytes of stored pages whose decoded form is kept, at most, over all threads."""

BESIDE = 2_048
"""Bytes that a thread counts for beside its pages: its head is kept, too."""


_WITH_CONTENT: Final = (UserItem, ResultItem, EventItem)
_TEXTS_ONLY: Final = frozenset({TextItem, CallItem})
"""Kinds of items that need not be looked at for images."""


class HotTranscript:
    """One thread's transcript as of a head version, and the check that has already passed over it."""

    __slots__ = (
        "_checked",
        "_fetched",
        "_fitted",
        "_validator",
        "has_images",
        "head",
        "history",
        "memo",
        "salt",
        "since",
        "size",
        "sizes",
        "stored",
        "transcript",
        "version",
    )

    def __init__(self, salt: bytes = b"", since: int = 0) -> None:
        self.transcript = Transcript()
        self.salt = salt
        """That of its thread: one that is deleted and made anew under the same name has another."""
        self.history = b""
        """The digest of the thread's history: one that was brought back from elsewhere may go on in another way."""
        self.head: LoadedHead | None = None
        self.stored = b""
        """The bytes that `head` was written as; it is as good as they are, and nobody else changes it."""
        self.version = 0
        self.since = since
        """Version of the summary that it begins with; 0: none."""
        self.sizes = Sizes()
        self.size = 0
        self.memo = Memo()
        self.has_images = False
        self._fitted: dict[bool, FittedItems] = {}
        """Once there are images: what models are shown, by whether they take any."""
        self._fetched = 0
        self._validator = Validator()
        self._checked = 0

    def inherit(self, items: Sequence[Item]) -> None:
        """Take what comes before the thread's own items: what it inherits, or a summary."""
        self.sizes.inherit(items)
        self._take(items)

    def extend(self, items: Sequence[Item]) -> None:
        """Take the next stored items."""
        self.sizes.extend(items)
        self._take(items)

    def _take(self, items: Sequence[Item]) -> None:
        self.transcript.extend(items)
        for item in items:
            if type(item) in _TEXTS_ONLY:
                continue
            if isinstance(item, _WITH_CONTENT) and type(item.content) is not str:
                self.has_images = self.has_images or any(isinstance(part, Image) for part in item.content)

    def memo_of(self, transcript: Sequence[Item]) -> Memo | None:
        """Return what providers have made of a transcript so far: of this one, just as it stands, and of no other."""
        if transcript is self.transcript.items or any(transcript is one.items for one in self._fitted.values()):
            return self.memo
        return None

    def grown(self) -> int:
        """Return by how many bytes what is kept beside the transcript has grown since this was asked last."""
        if not self._fitted:
            return self.memo.grown()
        before, self._fetched = self._fetched, sum(fitted.size for fitted in self._fitted.values())
        return self.memo.grown() + self._fetched - before

    async def fitted(self, ready: Sequence[Item], info: ModelInfo, store: Store) -> Sequence[Item]:
        """Return a transcript that was `checked`, with its images as a model can take them.

        Raises:
            StoreCorrupt: an image is not in the store.
        """
        items = self.transcript.items
        fitted = self._fitted.setdefault(info.images, FittedItems())
        await fitted.extend(items[len(fitted.items) :], info, store)
        if ready is items:
            return fitted.items
        return [*fitted.items, *await fit_images(ready[len(items) :], info, store)]

    def checked(self) -> Sequence[Item]:
        """Return the transcript as it may be sent now.

        Raises:
            TranscriptInvalid: it may not, which is a defect of ours.
        """
        items = self.transcript.items
        ready = self.transcript.ready()
        if ready is not items:
            whole = Validator()
            whole.feed(ready)
            whole.finish()
            return ready
        self._validator.feed(items[self._checked :])
        self._checked = len(items)
        self._validator.finish()
        return items


class Transcripts:
    """A bounded cache. An entry is used only for the thread and the head version it was made for: it is never stale."""

    def __init__(self, store: Store, limit: int = TRANSCRIPT_CACHE) -> None:
        self._store = store
        self._limit = limit
        self._hot: OrderedDict[str, HotTranscript] = OrderedDict()
        self._size = 0

    def head(self, thread_id: str, stored: bytes) -> LoadedHead:
        """Read a head, unless it is still here; it is the caller's from now on.

        Raises:
            StoreCorrupt, StoreFormatTooNew: it cannot be read.
        """
        hot = self._hot.get(thread_id)
        if hot is None or hot.head is None or hot.stored != stored:
            return decode_head(stored)
        head, hot.head = hot.head, None
        return head

    def ready(self, head: Head) -> HotTranscript | None:
        """Return the same as `at`, if nothing has to be read for it."""
        hot = self._hot.get(head.thread_id)
        if hot is None or hot.version != head.version or hot.history != head.history or not _is_of(hot, head):
            return None
        self._hot.move_to_end(head.thread_id)
        return hot

    async def at(self, head: Head) -> HotTranscript:
        """Return the transcript as of a head, reading from the store only what is not there yet.

        What the thread inherits comes first, or its summary; then its own items.
        """
        thread_id = head.thread_id
        hot = self._hot.get(thread_id)
        if hot is not None and not (_is_of(hot, head) and await self._catch_up(hot, head)):
            self.drop(thread_id)
            hot = None
        if hot is None:
            hot = self._hot[thread_id] = HotTranscript(head.salt, _since(head))
            self._grow(hot, BESIDE)
            if head.base is not None or head.summary is not None:
                await self._begin(hot, head)
            else:
                await self._catch_up(hot, head)
            hot.history = head.history  # whether what is stored was changed is for `verify` to say
        self._hot[thread_id] = hot
        self._hot.move_to_end(thread_id)
        return hot

    async def _catch_up(self, hot: HotTranscript, head: Head) -> bool:
        """Read what has come since; tell whether it then is the history of that head."""
        if hot.version < head.version:
            hot.sizes.mark(head.measured_items)
            for row in await self._store.read_log(head.thread_id, hot.version, head.version - hot.version):
                hot.extend(decode_page(row.page))
                hot.history = next_history(hot.history, row.page)
                self._grow(hot, len(row.page))
            hot.version = head.version
        return hot.version == head.version and hot.history == head.history

    async def _begin(self, hot: HotTranscript, head: Head) -> None:
        material = await read_material(self._store, head)
        hot.sizes = Sizes(material.covered)
        hot.sizes.mark(head.measured_items)
        hot.inherit(material.before)
        own = [item for page in material.pages for item in page.items]
        hot.extend(own)
        self._grow(hot, material.size)
        hot.version = head.version

    def advance(self, head: Head, hot: HotTranscript, items: Sequence[Item], size: int) -> None:
        """Take over what a commit has appended: `items` that the transcript does not have yet, `size` bytes in all."""
        if _since(head) != hot.since:
            self.drop(head.thread_id)
            return
        hot.sizes.mark(head.measured_items)
        hot.extend(items)
        hot.version, hot.history = head.version, head.history
        if self._hot.get(head.thread_id) is hot:
            self._grow(hot, size + hot.grown())
            while self._size > self._limit and len(self._hot) > 1:
                self.drop(next(iter(self._hot)))

    def keep(self, loaded: LoadedHead, stored: bytes) -> None:
        """Keep the head that a slice ends with, and the bytes that it was written as: nobody changes it any more."""
        hot = self._hot.get(loaded.head.thread_id)
        if hot is not None:
            hot.head, hot.stored = loaded, stored

    def drop(self, thread_id: str) -> None:
        """Forget a thread's transcript: it was tried and not committed, or the thread rests."""
        hot = self._hot.pop(thread_id, None)
        if hot is not None:
            self._size -= hot.size

    def clear(self) -> None:
        """Forget all of them."""
        self._hot.clear()
        self._size = 0

    def _grow(self, hot: HotTranscript, size: int) -> None:
        hot.size += size
        self._size += size


def _is_of(hot: HotTranscript, head: Head) -> bool:
    """Tell whether a transcript is one of that thread, and begins with the same summary."""
    return hot.salt == head.salt and hot.since == _since(head)


def _since(head: Head) -> int:
    return head.summary.version if head.summary is not None else 0
