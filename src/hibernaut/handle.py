"""A `ThreadHandle` talks to one thread of a system."""

from collections import Counter
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from typing import Any, TypeVar, overload

from hibernaut.answers import answer_to
from hibernaut.authorizing import authority_of, explain
from hibernaut.codec import sha256
from hibernaut.engine.answering import OpenQuestion
from hibernaut.engine.history import inherited_items
from hibernaut.engine.trees import tree_events
from hibernaut.errors import ConfigurationError, NoAnswer, StoreError
from hibernaut.kernel.authority import Authority, Judgement
from hibernaut.kernel.head import Head, decode_head
from hibernaut.kernel.outputs import UNFIT, quoted
from hibernaut.kernel.receipt import Receipt, decode_receipt
from hibernaut.messages.events import AgentEvent
from hibernaut.messages.inputs import Ask, Event, InputMessage
from hibernaut.messages.items import Item, decode_page
from hibernaut.messages.parts import Content
from hibernaut.messages.text import clean, restore
from hibernaut.state import ThreadState, state_of, wakes
from hibernaut.steering import SteersThread
from hibernaut.stores.protocol import ViewRow
from hibernaut.tools.outputs import OtherForm, OutputType, UnfitOutput

T = TypeVar("T")


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
            MalformedInput: it is blank, or the message id is one that the runtime gives. TooLarge. ThreadClosed.
            UnknownThread: it was deleted.
        """
        system = self._system
        message, blobs = system.user_message(self.thread_id, content, message_id, user, metadata)
        return await system.put(message, blobs)

    @overload
    async def ask(
        self,
        content: str | Content,
        *,
        message_id: str | None = None,
        user: str = "",
        metadata: Mapping[str, Any] | None = None,
    ) -> str: ...

    @overload
    async def ask(
        self,
        content: str | Content,
        *,
        output: type[T],
        message_id: str | None = None,
        user: str = "",
        metadata: Mapping[str, Any] | None = None,
    ) -> T: ...

    @overload
    async def ask(
        self,
        content: str | Content,
        *,
        output: Any,
        message_id: str | None = None,
        user: str = "",
        metadata: Mapping[str, Any] | None = None,
    ) -> Any: ...

    async def ask(
        self,
        content: str | Content,
        *,
        output: Any = str,
        message_id: str | None = None,
        user: str = "",
        metadata: Mapping[str, Any] | None = None,
    ) -> Any:
        """Say something, and return what the thread answers once its turn is over, tools and sleeps included.

        Bound the wait with `asyncio.timeout`. What is asked is durable: asked again with the same `message_id`, in any
        process, it is the same question, and its answer is returned, be it given already.

        Args:
            content: what to say.
            output: the type of the answer: `str` for the text as it is, or whatever a parameter of a tool can be
                annotated with. An answer that does not fit is sent back once, with the reason.
            message_id: the id of the question; by default a new one.
            user: who says it.
            metadata: replaces the thread's own.

        Raises:
            NoAnswer: the thread is parked, stopped or closed before it has answered, or what it answered does not fit.
            MalformedInput: it is blank, or the message id is one that the runtime gives. TooLarge. ThreadClosed.
            UnknownThread: it was deleted.
            ToolDefinitionError: JSON cannot write the type.
        """
        system, kind = self._system, None if output is str else OutputType(output)
        message, blobs = system.user_message(
            self.thread_id, content, message_id, user, metadata, form=kind.schema if kind else ""
        )
        after = 0 if message_id else (await self._head()).version
        await system.put(message, blobs)
        value = await answer_to(system, self.thread_id, message.message_id, after)
        if kind is None:
            return restore(value)
        try:
            return kind.read(value)
        except OtherForm as error:
            raise NoAnswer(self.thread_id, message.message_id, str(error)) from error
        except UnfitOutput as error:
            # What the schema cannot say is known here alone, and others may have been answered meanwhile.
            question = quoted(message.content.content) if isinstance(message.content, Ask) else ""
            told = clean(UNFIT.format(question=question, reason=error))
        again = Ask(told, user, kind.schema, "runtime")
        name = f"again:{sha256(message.message_id.encode()).hex()[:32]}"
        await system.put(InputMessage(name, self.thread_id, again, "api"))
        try:
            return kind.read(await answer_to(system, self.thread_id, name, after))
        except (NoAnswer, UnfitOutput, OtherForm) as error:
            problem = error.problem if isinstance(error, NoAnswer) else str(error)
            raise NoAnswer(self.thread_id, message.message_id, problem) from error

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
        return state_of(row, ready=any(wakes(arrived, row.status, now) for arrived in inbox), events=events)

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

        Raises:
            UnknownThread: it was deleted. ConfigurationError: the system was closed before the thread was idle.
        """
        feed = self._system.feed
        with feed.watch(self.thread_id) as moved:
            while True:
                moved.clear()
                try:
                    state = await self.state()
                    if state.activity in ("idle", "resting"):
                        return state
                except StoreError:
                    if not feed.is_over:
                        raise
                if feed.is_over:
                    raise ConfigurationError(f"the system was closed before thread {self.thread_id} was idle")
                await moved.wait()
