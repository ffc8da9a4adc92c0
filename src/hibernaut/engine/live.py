"""What is happening right now: turns being streamed, and who watches.

Observers pull. Each has only a cursor; when something moves it reads what follows, from the store or from the turn that
is being made. So a slow observer holds nothing up, and one that comes back misses nothing and sees nothing twice.
"""

import asyncio
from collections import defaultdict, deque
from collections.abc import AsyncGenerator, Iterator
from contextlib import contextmanager
from typing import Protocol

import msgspec
from msgspec.structs import replace

from hibernaut.errors import UnknownThread
from hibernaut.kernel.feed import event_of, rest_of, stored_events, units
from hibernaut.kernel.receipt import TurnCommit, decode_receipt
from hibernaut.messages.events import (
    AgentEvent,
    CompletionStarted,
    Cursor,
    TextChunk,
    ThinkingChunk,
    ToolProgress,
    TurnDiscarded,
    ViewChanged,
)
from hibernaut.messages.items import Item, decode_page
from hibernaut.messages.stream import CallStarted, ReasoningBlock, StreamPiece, TextDelta, ThinkingDelta
from hibernaut.messages.text import clean
from hibernaut.stores.protocol import LogRow, Store

LOG_ROWS = 64
"""Commits that an observer reads at a time."""

PROGRESS_KEPT = 256
"""Progress reports that wait for a slow observer; the oldest give way."""


class LiveTurn(msgspec.Struct, eq=False, gc=False):
    """A turn that is being streamed, as observers see it. `version` is the head version before it.

    With `speaks` False the model works on something that is not said in the thread, and only `items` are shown.

    The stream only appends to `pieces`; events are made when somebody looks. A call is shown when it is stored, and so
    is what the model says after it. `since` is the moment at which what it answers was due; 0: it answers nothing new.
    """

    thread_id: str
    version: int
    attempt: int
    items: tuple[Item, ...]
    speaks: bool = True
    since: int = 0
    pieces: list[StreamPiece] = []
    entries: list[AgentEvent] = []
    """What observers see: what came in, then what the model says."""
    read: int = 0
    """Pieces that are among the entries."""
    calling: bool = False
    """A call has begun: what comes after it is shown when it is stored."""
    inside: bool = False
    """Something of the present part was shown."""
    held: str = ""
    """White space, or half a character, that waits for what follows it."""

    def catch_up(self) -> None:
        """Turn the pieces that came since the last look into entries."""
        if not self.entries:
            events = [event_of(self.thread_id, item) for item in self.items]
            self.entries += [event for event in events if event is not None]
            if self.speaks:
                self.entries.append(CompletionStarted(thread_id=self.thread_id))
        while self.read < len(self.pieces):
            self._take(self.pieces[self.read])
            self.read += 1

    def _take(self, piece: StreamPiece) -> None:
        if isinstance(piece, ThinkingDelta):
            self.entries.append(ThinkingChunk(thread_id=self.thread_id, text=clean(piece.text)))
        elif isinstance(piece, CallStarted):
            self.calling = True
        elif isinstance(piece, ReasoningBlock):
            self.held, self.inside = "", False
        elif isinstance(piece, TextDelta) and not self.calling:
            self._say(self.held + piece.text)

    def _say(self, text: str) -> None:
        # A part that is blank is not stored, so white space waits for what follows it, half a character for its half.
        ready = text[:-1] if text and "\ud800" <= text[-1] <= "\udbff" else text
        if not self.inside and (not ready or ready.isspace()):
            self.held = text
            return
        self.held = text[len(ready) :]
        if ready:
            self.inside = True
            self.entries.append(TextChunk(thread_id=self.thread_id, text=clean(ready)))


class Bell(Protocol):
    """What is told that there may be something new."""

    def set(self) -> None:
        """Be told."""
        ...


class Observer:
    """One reader of one thread."""

    __slots__ = ("cursor", "moved", "progress", "turn")

    def __init__(self, cursor: Cursor, moved: Bell) -> None:
        self.cursor = cursor
        self.moved = moved
        self.progress: deque[AgentEvent] = deque(maxlen=PROGRESS_KEPT)
        self.turn: LiveTurn | None = None
        """The turn that it was last shown a part of."""


class LiveFeed:
    """Hands events to observers: those of one tenant's threads, whatever others an engine beside it runs."""

    def __init__(self, store: Store, tenant: str) -> None:
        self._store = store
        self._tenant = tenant
        self.observers: defaultdict[str, set[Observer]] = defaultdict(set)
        """Who watches, by thread; empty when nobody does."""
        self._turns: dict[str, LiveTurn] = {}
        self.is_over = False
        """There will be nothing new any more."""

    # From the engine

    def begin(self, turn: LiveTurn) -> None:
        """Show a turn that begins to stream."""
        self._turns[turn.thread_id] = turn
        if self.observers:
            self.moved(turn.thread_id)

    def end(self, thread_id: str) -> None:
        """Show no more of the turn that was streaming: it is stored, or given up."""
        self._turns.pop(thread_id, None)
        if self.observers:
            self.moved(thread_id)

    def moved(self, thread_id: str) -> None:
        """Tell observers that there is something new to read in a thread."""
        observers = self.observers.get(thread_id)
        if observers:
            for observer in observers:
                observer.moved.set()

    def moved_elsewhere(self) -> None:
        """Tell all observers: another process wrote, anything may be new."""
        for thread_id in self.observers:
            self.moved(thread_id)

    def view(self, thread_id: str, view_type: str, content: str) -> None:
        """Show what a tool server shows people beside a thread from now on (`content` is JSON text)."""
        self.pass_on(_shown(thread_id, view_type, content))

    def pass_on(self, event: ToolProgress | ViewChanged) -> None:
        """Show something that is not stored with the thread to those who watch it now."""
        for observer in self.observers.get(event.thread_id, ()):
            observer.progress.append(event)
            observer.moved.set()

    def close(self) -> None:
        """End all observers once they have read what is there."""
        self.is_over = True
        self.moved_elsewhere()

    # To observers

    def watched(self, thread_id: str) -> bool:
        """Tell whether anybody watches a thread."""
        return thread_id in self.observers

    async def events(self, thread_id: str, after: str = "", *, follow: bool = True) -> AsyncGenerator[AgentEvent, None]:
        """Yield what happened after a cursor, then (with `follow`) what happens until the feed is closed."""
        moved = asyncio.Event()
        observer = Observer(Cursor.parse(after), moved)
        with self.observing(thread_id, observer):
            if follow:
                views = await self._store.read_views(thread_id)
                shown = [_shown(thread_id, view.view_type, view.content) for view in views]
                observer.progress.extendleft(reversed(shown))
            while True:
                moved.clear()
                closing = self.is_over or not follow
                async for event in self.pull(thread_id, observer):
                    yield event
                if closing:
                    return
                await moved.wait()

    @contextmanager
    def watch(self, thread_id: str) -> Iterator[asyncio.Event]:
        """Give an event that is set whenever a thread may have moved."""
        moved = asyncio.Event()
        with self.observing(thread_id, Observer(Cursor(), moved)):
            yield moved

    @contextmanager
    def observing(self, thread_id: str, observer: Observer) -> Iterator[None]:
        """Let an observer be told of what happens in a thread."""
        self.observers[thread_id].add(observer)
        try:
            yield
        finally:
            self.observers[thread_id].discard(observer)
            if not self.observers[thread_id]:
                del self.observers[thread_id]

    async def pull(self, thread_id: str, observer: Observer) -> AsyncGenerator[AgentEvent, None]:
        """Yield what there is to read for an observer now.

        Raises:
            UnknownThread: the thread is another tenant's. It may have become so: ids may be used again.
        """
        streamed = thread_id in self._turns
        while True:
            rows = await self._store.read_log(thread_id, self._from(observer), LOG_ROWS)
            if rows and not await self._is_there(thread_id):
                return
            for row in rows:
                for event in self._pull_row(thread_id, observer, row):
                    yield event
            if len(rows) < LOG_ROWS:
                break
        if observer.progress and not await self._is_there(thread_id):
            return
        for _ in range(len(observer.progress)):  # what comes meanwhile may be another thread's
            yield replace(observer.progress.popleft(), cursor=str(observer.cursor))
        if observer.cursor.attempt and not streamed and thread_id not in self._turns:
            yield self._discard(thread_id, observer)
        if (turn := self._turns.get(thread_id)) is not observer.turn:
            if turn is not None and not await self._is_there(thread_id):
                return
            observer.turn = turn
        for event in self._pull_live(thread_id, observer):
            yield event

    def _pull_row(self, thread_id: str, observer: Observer, row: LogRow) -> Iterator[AgentEvent]:
        receipt = decode_receipt(row.receipt)
        events = stored_events(thread_id, decode_page(row.page), receipt)
        cursor = observer.cursor
        if cursor.attempt and (receipt.attempt != cursor.attempt or receipt.turn is TurnCommit.FAILED):
            yield self._discard(thread_id, observer)
            cursor = observer.cursor
        rest = iter(events[cursor.index :]) if cursor.version == row.version else rest_of(events, cursor.seen)
        for event in rest:
            observer.cursor = Cursor.parse(event.cursor)
            yield event
        observer.cursor = Cursor(row.version)

    async def _is_there(self, thread_id: str) -> bool:
        """Tell whether a thread was not deleted.

        Raises:
            UnknownThread: it is another tenant's.
        """
        row = await self._store.read_head(thread_id)
        if row is not None and row.tenant != self._tenant:
            raise UnknownThread(thread_id)
        return row is not None

    def _from(self, observer: Observer) -> int:
        """Return the version after which rows must be read: inside a commit, that commit is read again."""
        cursor = observer.cursor
        return cursor.version - 1 if cursor.index and not cursor.attempt else cursor.version

    def _pull_live(self, thread_id: str, observer: Observer) -> Iterator[AgentEvent]:
        turn = self._turns.get(thread_id)
        if turn is None or turn is not observer.turn or turn.version != observer.cursor.version:
            return
        turn.catch_up()
        if observer.cursor.attempt and observer.cursor.attempt != turn.attempt:
            yield self._discard(thread_id, observer)
        # Inside a turn that is not stored yet, the index of a cursor counts the entries: thinking is one, and no unit.
        entry, seen = observer.cursor.index, observer.cursor.seen
        while entry < len(turn.entries):
            event = turn.entries[entry]
            entry += 1
            if isinstance(event, TextChunk):
                pieces = [event.text]
                while entry < len(turn.entries) and isinstance(turn.entries[entry], TextChunk):
                    pieces.append(turn.entries[entry].text)  # type: ignore[attr-defined]
                    entry += 1
                event = TextChunk(thread_id=thread_id, text="".join(pieces))
            if not isinstance(event, ThinkingChunk):
                seen += units(event)
            observer.cursor = Cursor(turn.version, entry, turn.attempt, seen)
            yield replace(event, cursor=str(observer.cursor))

    def _discard(self, thread_id: str, observer: Observer) -> AgentEvent:
        observer.cursor = Cursor(observer.cursor.version)
        return TurnDiscarded(thread_id=thread_id, cursor=str(observer.cursor))


def _shown(thread_id: str, view_type: str, content: str) -> ViewChanged:
    return ViewChanged(thread_id=thread_id, view_type=view_type, content=content)
