"""A `ThreadHandle` talks to one thread of a system."""

from collections import Counter
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing, suppress
from typing import TYPE_CHECKING, Any

from hibernaut.authorizing import authority_of, explain, packed
from hibernaut.engine.answering import OpenQuestion
from hibernaut.engine.history import inherited_items
from hibernaut.engine.trees import tree_events
from hibernaut.errors import MalformedInput, ThreadClosed
from hibernaut.kernel.authority import Authority, Judgement
from hibernaut.kernel.commit import Blob
from hibernaut.kernel.head import Head, Status, decode_head
from hibernaut.kernel.receipt import Receipt, decode_receipt
from hibernaut.messages.events import AgentEvent
from hibernaut.messages.inputs import USER, Command, Delivered, Event, urgency
from hibernaut.messages.items import Item, decode_page
from hibernaut.messages.parts import Content
from hibernaut.state import ThreadState, TreeState, state_of, tree_of
from hibernaut.stores.protocol import ViewRow

if TYPE_CHECKING:
    from hibernaut.system import AgentSystem


class ThreadHandle:
    """One thread. A handle is only a name: it can be dropped and taken again at any time, in any process."""

    __slots__ = ("_system", "thread_id")

    def __init__(self, system: "AgentSystem", thread_id: str) -> None:
        self._system = system
        self.thread_id = thread_id

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

    async def tree(self) -> TreeState:
        """Return what the thread and all threads below it are now.

        Raises:
            UnknownThread: it was deleted.
        """
        row = await self._system.row(self.thread_id)
        rows = await self._system.store.read_tree(row.root or row.thread_id)
        return tree_of(rows, self.thread_id)

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
        link = (await self._head()).link
        above = await inherited_items(store, link, whole=True) if inherited else []
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

    async def stop(self, reason: str = "", *, tree: bool = False) -> None:
        """Stop the thread: what it says is cut short, its open calls are cancelled, what comes is held.

        With `tree` also all threads below it.
        """
        await self._steer(Command("stop", reason=reason), tree=tree)

    async def resume(self, *, tree: bool = False) -> None:
        """Let a stopped or parked thread go on; with `tree` also all threads below it.

        A frozen tree is thawed first.
        """
        if (await self._system.row(self.thread_id)).frozen:
            await self.thaw()
        await self._steer(Command("resume"), tree=tree)

    async def freeze(self) -> int:
        """Let nothing run in the thread's whole tree until it is thawed; returns how many threads were not frozen.

        Nothing ends by it: calls, sleeps, questions and subscriptions stay as they are, and what comes is held, what
        people say too. A slice that runs is begun anew later; what tools work on in a process goes on there.

        Raises:
            UnknownThread: it was deleted.
        """
        row = await self._system.row(self.thread_id)
        return await self._system.store.freeze(row.root or row.thread_id, tenant=row.tenant)

    async def thaw(self) -> int:
        """Let the thread's frozen tree go on where it was; returns how many threads were frozen.

        Raises:
            UnknownThread: it was deleted.
        """
        row = await self._system.row(self.thread_id)
        return await self._system.store.thaw(row.root or row.thread_id, tenant=row.tenant)

    async def _steer(self, command: Command, *, tree: bool, blobs: Sequence[Blob] = ()) -> None:
        await self._system.command(self.thread_id, command, blobs)
        for state in await self.tree() if tree else ():
            if state.thread_id != self.thread_id and state.status != "closed":
                with suppress(ThreadClosed):  # it has ended meanwhile
                    await self._system.command(state.thread_id, command, blobs)

    async def close(self, reason: str = "") -> None:
        """End the thread for good."""
        await self._system.command(self.thread_id, Command("close", reason=reason))

    async def compact(self) -> None:
        """Replace the beginning of the history by a summary in what the model is shown; nothing is deleted."""
        await self._system.command(self.thread_id, Command("compact"))

    async def delete(self) -> int:
        """Remove a root, all threads below it, and everything that only they have; return how many threads that were.

        What still works for them is not told; stop them before.

        Raises:
            UnknownThread: it is there no more. MalformedInput: it is no root.
        """
        row = await self._system.row(self.thread_id)
        if row.root:
            raise MalformedInput(
                f"thread {self.thread_id} is part of the tree of {row.root}; delete that, or close this"
            )
        return await self._system.store.delete(self.thread_id, tenant=row.tenant)

    async def cancel(self, call_id: str, reason: str = "") -> None:
        """Cancel one open call or subscription."""
        await self._system.command(self.thread_id, Command("cancel", call_id, reason))

    async def authority(self) -> Authority:
        """Return what the thread may do now."""
        return await authority_of(self._system.store, await self._head())

    async def authorize(self, authority: Authority | None, reason: str = "", *, tree: bool = False) -> None:
        """Give the thread another authority, from its next round on; None: the one that it was launched with.

        Calls that are under way go on; what waits for leave is held against the new one when leave is given. With
        `tree` also all threads below it.

        Raises:
            ConfigurationError: it cannot be meant; the text says which rule, and why. ThreadClosed.
        """
        blobs = (packed(authority),) if authority is not None else ()
        digest = blobs[0].digest if blobs else b""
        await self._steer(Command("authorize", reason=reason, authority=digest), tree=tree, blobs=blobs)

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
