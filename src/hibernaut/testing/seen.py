"""What a tree of threads is at one moment, as it is stored."""

import msgspec

from hibernaut.engine.history import chain_start
from hibernaut.kernel.head import Head, decode_head
from hibernaut.messages.inputs import Delivered, Timer
from hibernaut.messages.items import (
    CallItem,
    Item,
    NoticeItem,
    QuestionItem,
    ResultItem,
    TextItem,
    UserItem,
    decode_page,
)
from hibernaut.stores.protocol import EffectRow, LogRow, Store, ThreadRow

THREAD = "thread"
"""The root of the tree that a scenario is about."""


class Seen(msgspec.Struct):
    """What a thread is at one moment."""

    head: Head
    log: list[LogRow]
    items: list[Item]
    inbox: tuple[Delivered, ...]
    effects: list[EffectRow]
    start: bytes = b""
    """The digest that its chain starts from."""
    tree: "dict[str, Seen]" = {}
    """It and all threads below it, in the order they were made."""

    @property
    def children(self) -> "list[Seen]":
        """The threads below it."""
        return list(self.tree.values())[1:]

    def said(self, text: str) -> bool:
        """Tell whether somebody said this to the thread."""
        return any(isinstance(item, UserItem) and item.content == text for item in self.items)

    def says(self, text: str) -> bool:
        """Tell whether the thread's model has said this."""
        return any(isinstance(item, TextItem) and item.text == text for item in self.items)

    def notices(self, kind: str) -> bool:
        """Tell whether the thread has a notice of a kind."""
        return any(isinstance(item, NoticeItem) and item.kind == kind for item in self.items)

    def answered(self, tool: str) -> bool:
        """Tell whether the call of a tool has a result in the history."""
        calls = {item.id for item in self.items if isinstance(item, CallItem) and item.name == tool}
        return any(isinstance(item, ResultItem) and item.call_id in calls for item in self.items)

    def question(self, prompt: str) -> str:
        """Return the id of the question that asked this, "" as long as it was not asked."""
        return next((item.id for item in self.items if isinstance(item, QuestionItem) and item.prompt == prompt), "")

    def timers(self, purpose: str = "") -> list[int]:
        """Return when timers are due: those of a purpose, or all."""
        contents = [arrived.message.content for arrived in self.inbox if arrived.message]
        timers = [content for content in contents if isinstance(content, Timer)]
        return sorted(timer.due for timer in timers if purpose in ("", timer.purpose))


async def look(store: Store) -> Seen:
    """Look at the tree as it is stored. What is seen of its threads belongs to one moment."""
    while True:
        rows = await store.read_tree(THREAD)
        if not rows:
            return Seen(Head(THREAD, b"", b""), [], [], (), [])
        tree = {row.thread_id: await _look_at(store, row) for row in rows}
        if await store.read_tree(THREAD) == rows:
            tree[THREAD].tree = tree
            return tree[THREAD]


async def _look_at(store: Store, row: ThreadRow) -> Seen:
    head, log = decode_head(row.head).head, await store.read_log(row.thread_id)
    items = [item for entry in log for item in decode_page(entry.page)]
    inbox, effects = await store.read_inbox(row.thread_id), await store.read_effects(row.thread_id)
    return Seen(head, log, items, inbox, effects, await chain_start(store, head.base))
