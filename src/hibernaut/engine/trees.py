"""The events of a whole tree of threads, as one stream.

Whoever watches a tree follows its root and learns of each child from its parent's events, so that children that start
later are followed too and nothing looks for them. A thread that has closed is read to its end and then left alone: the
cursor of a tree holds a place in each thread that lives.
"""

import asyncio
import base64
from collections.abc import AsyncGenerator, Mapping
from contextlib import ExitStack
from typing import Self

import msgspec
from msgspec.structs import replace

from hibernaut.codec import pack
from hibernaut.engine.live import LiveFeed, Observer
from hibernaut.errors import MalformedInput
from hibernaut.messages.events import AgentEvent, Cursor, Notice, ThreadSpawned

_PREFIX = "tree."
_decoder = msgspec.msgpack.Decoder(dict[str, str])


async def tree_events(
    feed: LiveFeed, root: str, after: str = "", *, follow: bool = True
) -> AsyncGenerator[AgentEvent, None]:
    """Yield what happened in a thread and all threads below it, then (with `follow`) what happens.

    The events of one thread come in their order; of two threads, in the order in which they are noticed, but those of a
    child never before the `ThreadSpawned` of its parent. Their cursors are places in the tree.

    Raises:
        MalformedInput: `after` is no cursor of a tree.
    """
    places = _parse(after) if after else {root: ""}
    with _Watch(feed) as watch:
        for thread_id, place in places.items():
            watch.add(thread_id, place)
        while True:
            closing = feed.is_over or not follow
            while (moved := watch.next_moved()) is not None:
                async for event in _read(feed, watch, places, moved):
                    yield event
            if closing:
                return
            if not feed.is_over:  # its last ring may have been heard while something was read
                await watch.rung.wait()


def cursor_now(versions: Mapping[str, int]) -> str:
    """Return the cursor behind all that is stored of some threads, by their head versions."""
    return _write({name: str(Cursor(version)) for name, version in versions.items()}, "")


async def _read(
    feed: LiveFeed, watch: "_Watch", places: dict[str, str], thread_id: str
) -> AsyncGenerator[AgentEvent, None]:
    """Yield what there is of a thread, and of each child as soon as it is heard of: what has ended is soon left."""
    closed = False
    async for event in feed.pull(thread_id, watch.followed[thread_id]):
        places[thread_id] = event.cursor
        closed = closed or (isinstance(event, Notice) and event.kind == "closed")
        if isinstance(event, ThreadSpawned):
            places[event.child_id] = ""
            watch.add(event.child_id, "")
        yield replace(event, cursor=_write(places, event.cursor))
        if isinstance(event, ThreadSpawned):
            watch.moved.pop(event.child_id, None)
            async for below in _read(feed, watch, places, event.child_id):
                yield below
    if closed:
        watch.drop(thread_id)
        del places[thread_id]


class _Bell:
    """Tells a watch which thread has moved."""

    __slots__ = ("_thread_id", "_watch")

    def __init__(self, watch: "_Watch", thread_id: str) -> None:
        self._watch = watch
        self._thread_id = thread_id

    def set(self) -> None:
        self._watch.moved[self._thread_id] = None
        self._watch.rung.set()


class _Watch:
    """The threads that are followed, and those that have moved since they were last read."""

    def __init__(self, feed: LiveFeed) -> None:
        self._feed = feed
        self.followed: dict[str, Observer] = {}
        self.moved: dict[str, None] = {}
        self.rung = asyncio.Event()
        self._ends: dict[str, ExitStack] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for thread_id in list(self.followed):
            self.drop(thread_id)

    def add(self, thread_id: str, place: str) -> None:
        """Follow a thread from a place in it on."""
        bell = _Bell(self, thread_id)
        observer = self.followed[thread_id] = Observer(Cursor.parse(place), bell)
        end = self._ends[thread_id] = ExitStack()
        end.enter_context(self._feed.observing(thread_id, observer))
        bell.set()

    def drop(self, thread_id: str) -> None:
        """Follow a thread no more."""
        self._ends.pop(thread_id).close()
        del self.followed[thread_id]
        self.moved.pop(thread_id, None)

    def next_moved(self) -> str | None:
        """Return a thread that has something to read, the one that has waited longest."""
        if not self.moved:
            self.rung.clear()
            return None
        thread_id = next(iter(self.moved))
        del self.moved[thread_id]
        return thread_id


def _write(places: dict[str, str], cursor: str) -> str:
    """Write a cursor of a tree; like that of a thread it has a `~` in it inside a turn that is not stored yet."""
    inside = "~" if "~" in cursor else ""
    return _PREFIX + base64.urlsafe_b64encode(pack(places)).decode().rstrip("=") + inside


def _parse(cursor: str) -> dict[str, str]:
    try:
        body = cursor.removeprefix(_PREFIX).removesuffix("~") if cursor.startswith(_PREFIX) else ""
        places = _decoder.decode(base64.urlsafe_b64decode(body + "=" * (-len(body) % 4)))
    except (ValueError, msgspec.DecodeError):
        places = {}
    if not places:
        raise MalformedInput(f"{cursor[:64]!r} is no cursor of a tree; take one from an event of `events(tree=True)`")
    return places
