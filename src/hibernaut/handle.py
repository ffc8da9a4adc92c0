"""A `ThreadHandle` talks to one thread of a system."""

from collections import Counter
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from typing import Any

from hibernaut.authorizing import authority_of, explain
from hibernaut.engine.answering import OpenQuestion
from hibernaut.engine.history import inherited_items
from hibernaut.engine.trees import tree_events
from hibernaut.kernel.authority import Authority, Judgement
from hibernaut.kernel.head import Head, Status, decode_head
from hibernaut.kernel.receipt import Receipt, decode_receipt
from hibernaut.messages.events import AgentEvent
from hibernaut.messages.inputs import USER, Delivered, Event, urgency
from hibernaut.messages.items import Item, decode_page
from hibernaut.messages.parts import Content
from hibernaut.state import ThreadState, state_of
from hibernaut.steering import SteersThread
from hibernaut.stores.protocol import ViewRow


class ThreadHandle(SteersThread):
    """One thread. A handle is only a name: it can be dropped and taken again at any time, in any process."""

    __slots__ = ()

    async def send(
        self,
        content: str | Content,
        *,
        message_id: str | None = None,
        user: str = "",
        metadata: Mapping[str, Any] | None = None,
    ) -> str:
        """Say something. Returns the message id; then it is stored. The same id twice is the same message.

        Raises:
            MalformedInput: it is blank. TooLarge. ThreadClosed. UnknownThread: it was deleted.
        """
        system = self._system
        message, blobs = system.user_message(self.thread_id, content, message_id, user, metadata)
        return await system.put(message, blobs)

    async def events(
        self, after: str = "", *, follow: bool = True, tree: bool = False
    ) -> AsyncGenerator[AgentEvent, None]:
        """Yield what happened after a cursor, then (with `follow`) what happens, until the system is closed.

        Whoever follows one thread is also shown what tool servers show beside it, and every change of that.

        With `tree` also the events of all threads below this one, those that start later too; each says whose it is.
        The cursors are of the tree then, and go with `tree` only.

        Raises:
            MalformedInput: `after` is no cursor.
            UnknownThread: it was deleted.
        """
        await self._system.row(self.thread_id)
        feed, name = self._system.feed, self.thread_id
        found = tree_events(feed, name, after, follow=follow) if tree else feed.events(name, after, follow=follow)
        async with aclosing(found) as events:
            async for event in events:
                yield event

    async def views(self) -> list[ViewRow]:
        """Return what tool servers show people beside the thread, the last of each kind.

        Raises:
            UnknownThread: it was deleted.
        """
        await self._system.row(self.thread_id)
        return await self._system.store.read_views(self.thread_id)

    async def questions_below(self) -> list[OpenQuestion]:
        """Return what the threads below this one ask people, oldest first."""
        below = {state.thread_id for state in await self.tree()} - {self.thread_id}
        row = await self._system.row(self.thread_id)
        asked = await self._system.questions(row.root or row.thread_id) if below else []
        return [question for question in asked if question.thread_id in below]

    async def history(self, *, inherited: bool = False) -> list[Item]:
        """Return everything in the history, oldest first; what a summary stands for too.

        With `inherited`, what a child shares with the threads above it comes first.

        Raises:
            UnknownThread: it was deleted.
        """
        store = self._system.store
        head = await self._head()
        above = await inherited_items(store, head.base, whole=True) if inherited else []
        rows = await store.read_log(self.thread_id)
        return [*above, *[item for row in rows for item in decode_page(row.page)]]

    async def receipts(self) -> list[Receipt]:
        """Return the receipts, oldest first.

        Raises:
            UnknownThread: it was deleted.
        """
        await self._system.row(self.thread_id)
        return [decode_receipt(row.receipt) for row in await self._system.store.read_log(self.thread_id)]

    async def state(self) -> ThreadState:
        """Return what the thread is now.

        Raises:
            UnknownThread: it was deleted.
        """
        # The inbox first: what leaves it from now on shows in the head that is read after it.
        inbox = await self._system.store.read_inbox(self.thread_id)
        row = await self._system.row(self.thread_id)
        now = self._system.clock.now()
        contents = [arrived.message.content for arrived in inbox if arrived.message]
        events = Counter(content.call_id for content in contents if isinstance(content, Event))
        return state_of(row, ready=any(_wakes(arrived, row.status, now) for arrived in inbox), events=events)

    async def authority(self) -> Authority:
        """Return what the thread may do now."""
        return await authority_of(self._system.store, await self._head())

    async def explain(self, tool: str, arguments: Mapping[str, Any]) -> Judgement:
        """Say what would become of a call, and by which rule, as the thread's authority is now.

        What a tool says of itself is known here for tools of this program, and for those of servers whose tools the
        thread has.
        """
        system = self._system
        return await explain(system.store, system.tools, await self._head(), tool, arguments)

    async def _head(self) -> Head:
        return decode_head((await self._system.row(self.thread_id)).head).head

    async def wait_idle(self) -> ThreadState:
        """Return when the thread does nothing more by itself: it has answered, sleeps, or cannot go on.

        A thread that waits for a working call (a deferred one too) is not idle; bound the wait with `asyncio.timeout`.
        """
        with self._system.feed.watch(self.thread_id) as moved:
            while True:
                moved.clear()
                state = await self.state()
                if state.activity in ("idle", "resting"):
                    return state
                await moved.wait()


def _wakes(arrived: Delivered, status: Status, now: int) -> bool:
    """Tell whether an input makes a thread of that status run; what a stopped one holds does not."""
    content = arrived.message.content if arrived.message else None
    if arrived.due > now:
        return False
    return status == "open" or (content is not None and urgency(content) == USER)
