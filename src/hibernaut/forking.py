"""How a thread is forked: a new root that shares the history of another thread, by reference, up to some item."""

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any

from hibernaut.doors import check_name, cleaned_reason, refuse
from hibernaut.engine.history import chain_start, inherited_items
from hibernaut.errors import ThreadExists, UnknownThread
from hibernaut.ids import Ids
from hibernaut.kernel.commit import Blob, NewThread
from hibernaut.kernel.forking import FORKED, Place, fork_at
from hibernaut.kernel.head import Head, decode_head, encode_head
from hibernaut.messages.inputs import Forked, InputMessage
from hibernaut.messages.items import UserItem, decode_page
from hibernaut.messages.parts import Content
from hibernaut.part import SystemPart
from hibernaut.stores.protocol import ThreadRow


class ForksThreads(SystemPart):
    """The part of an `AgentSystem` that forks threads."""

    @property
    @abstractmethod
    def ids(self) -> Ids:
        """Where names come from."""

    @abstractmethod
    def user_message(
        self,
        thread_id: str,
        content: str | Content,
        message_id: str | None,
        user: str,
        metadata: Mapping[str, Any] | None,
    ) -> tuple[InputMessage, tuple[Blob, ...]]:
        """Make the message that says something to a thread, and what is to be stored beside it."""

    async def fork(
        self,
        thread_id: str,
        at: int | None = None,
        *,
        name: str | None = None,
        message: str | Content | None = None,
        user: str = "",
        reason: str = "",
    ) -> str:
        """Make a root that shares the first `at` own items of a thread; returns its id. See `ThreadHandle.fork`.

        Raises:
            UnknownThread: this tenant has no such thread. MalformedInput: it cannot be forked there.
            ThreadExists: there is a thread of this name, and it is another one.
        """
        reason = cleaned_reason(reason)
        row = await self.row(thread_id)
        place = await self._place(row, at)
        name = name or self.ids.new("thread")
        check_name("thread id", name)
        await self._check_free(name, place)
        thread = await self._thread(row, name, place)
        note = UserItem(FORKED.format(origin=thread_id, fork=name), origin="runtime")
        content = Forked((note,), place.owes, reason)
        messages = [InputMessage(f"fork:{thread_id}:{place.items}", name, content, "operator")]
        blobs: tuple[Blob, ...] = ()
        if message is not None:
            said, blobs = self.user_message(name, message, None, user, None)
            messages.append(said)
        now = self.clock.now()
        for outcome in await self.store.create([thread], messages, now, blobs=blobs, tenant=self.tenant):
            refuse(outcome, name)
        return name

    async def _place(self, row: ThreadRow, at: int | None) -> Place:
        head = decode_head(row.head).head
        rows = await self.store.read_log(row.thread_id, 0, head.version) if head.version else []
        inherited = await inherited_items(self.store, head.base)
        return fork_at(head, inherited, [decode_page(one.page) for one in rows], at)

    async def _check_free(self, name: str, place: Place) -> None:
        there = await self.store.read_head(name)
        if there is None:
            return
        if there.tenant != self.tenant:
            raise UnknownThread(name)
        if decode_head(there.head).head.fork != place.fork:
            raise ThreadExists(name)

    async def _thread(self, row: ThreadRow, name: str, place: Place) -> NewThread:
        """Return the fork as it begins: launched as its origin was, and allowed what that is allowed now."""
        origin = decode_head(row.head).head
        head = Head(
            name,
            self.ids.salt(),
            origin.config,
            title=origin.title,
            metadata=origin.metadata,
            model=origin.model,
            history=await chain_start(self.store, place.fork),
            authority=origin.authority,
            toolsets=origin.toolsets,
            fork=place.fork,
        )
        now = self.clock.now()
        return NewThread(name, row.tenant, encode_head(head), origin.config, b"", now, fork_of=origin.thread_id)
