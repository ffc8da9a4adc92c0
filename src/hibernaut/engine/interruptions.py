"""Stopping what a thread's model says when somebody stops the thread, or speaks to it, meanwhile."""

import asyncio
import logging
from collections.abc import Iterable, Mapping
from typing import Protocol

from hibernaut.engine.workers import start
from hibernaut.errors import StoreError
from hibernaut.messages.inputs import Command, Delivered, UserText
from hibernaut.stores.protocol import Store

logger = logging.getLogger(__name__)

LOOK_EVERY = 100
"""Milliseconds between two looks at completions under way, and at whether another process wrote to the store.

A stop has to end a completion within a second, in whatever process that streams.
"""

_INTERRUPTING = ("stop", "close", "park")


class Stream(Protocol):
    """A completion that is under way, or inline tools that a slice waits for."""

    @property
    def inputs(self) -> frozenset[str]:
        """Message ids of the inputs that it is the answer to."""
        ...

    def look(self, now: int) -> None:
        """Notice that time has passed."""
        ...

    def stop(self, reason: str) -> None:
        """End it."""
        ...


class Interruptions:
    """Watches over the completions of one engine, by thread."""

    def __init__(self, store: Store, streams: Mapping[str, Stream], tasks: asyncio.TaskGroup) -> None:
        self._store = store
        self._streams = streams
        self._tasks = tasks
        self._poked: set[str] = set()
        self._looking: set[str] = set()

    def poke(self, thread_ids: Iterable[str]) -> None:
        """Be told that these threads may have been spoken to: those that stream, and those that are about to."""
        for thread_id in list(thread_ids):
            self._poked.add(thread_id)
            self.streaming(thread_id)

    def streaming(self, thread_id: str) -> None:
        """Be told that a completion is under way; whoever poked its thread before is heeded now."""
        if thread_id in self._poked and thread_id in self._streams and thread_id not in self._looking:
            self._looking.add(thread_id)
            try:
                _ = start(self._tasks, self._interrupt_if_asked(thread_id))
            except RuntimeError:  # everything ends, and who only put a message in need not hear of it
                self._looking.discard(thread_id)

    def forget(self, thread_id: str) -> None:
        """Be told that the slice of a thread is over."""
        self._poked.discard(thread_id)

    def look(self, now: int) -> None:
        """Look at what is under way; to be called every `LOOK_EVERY`."""
        for stream in list(self._streams.values()):
            stream.look(now)
        for thread_id in self._poked & self._streams.keys():
            self.streaming(thread_id)

    async def _interrupt_if_asked(self, thread_id: str) -> None:
        try:
            while thread_id in self._poked and (stream := self._streams.get(thread_id)) is not None:
                self._poked.discard(thread_id)
                try:
                    waiting = await self._store.read_inbox(thread_id)
                except StoreError:
                    logger.exception("the inbox of thread %s could not be read; trying again", thread_id)
                    self._poked.add(thread_id)
                    return
                if self._streams.get(thread_id) is not stream:
                    self._poked.add(thread_id)  # it has ended meanwhile, and the answer may be out of date
                elif any(_interrupts(one) for one in waiting if one.message_id not in stream.inputs):
                    stream.stop("interrupted")
        finally:
            self._looking.discard(thread_id)


def _interrupts(delivered: Delivered) -> bool:
    content = delivered.message.content if delivered.message else None
    return isinstance(content, UserText) or (isinstance(content, Command) and content.action in _INTERRUPTING)
