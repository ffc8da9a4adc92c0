"""What an operator does to one thread. Each decision is an input: stored when the method returns, and in a receipt."""

from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Self

from hibernaut.authorizing import packed
from hibernaut.deletions import note_of
from hibernaut.doors import cleaned_reason, fitted
from hibernaut.errors import MalformedInput, ThreadClosed, UnknownMessage
from hibernaut.kernel.authority import Authority
from hibernaut.kernel.commit import Blob
from hibernaut.kernel.head import decode_head
from hibernaut.messages.inputs import Command, Delivered, Drop, Edit, is_word
from hibernaut.messages.parts import Content
from hibernaut.state import TreeState, tree_of

if TYPE_CHECKING:
    from hibernaut.system import AgentSystem


class SteersThread:
    """The part of a `ThreadHandle` with which operators steer its thread.

    What an engine has to carry out is done when one runs. `reason` is kept in the receipt, and told to people.
    """

    __slots__ = ("_system", "thread_id")

    def __init__(self, system: "AgentSystem", thread_id: str) -> None:
        self._system = system
        self.thread_id = thread_id

    # The thread

    async def stop(self, reason: str = "", *, tree: bool = False) -> None:
        """Stop the thread: what it says is cut short, its open calls are cancelled, what comes is held.

        A completion that streams ends within a second, in whatever process that is. With `tree` also all threads below.
        """
        await self._steer(Command("stop", reason=reason), tree=tree)

    async def resume(self, reason: str = "", *, tree: bool = False) -> None:
        """Let a stopped or parked thread go on; with `tree` also all threads below it.

        A frozen tree is thawed first.
        """
        if (await self._system.row(self.thread_id)).frozen:
            await self.thaw()
        await self._steer(Command("resume", reason=reason), tree=tree)

    async def park(self, reason: str = "") -> None:
        """Put the thread aside until somebody resumes it or speaks to it.

        What it says is cut short. Its open calls go on: their results wait.
        """
        await self._system.command(self.thread_id, Command("park", reason=reason))

    async def retry(self, reason: str = "") -> None:
        """Let a parked thread try again what it was parked for; one that waits to try again does so at once."""
        await self._system.command(self.thread_id, Command("retry", reason=reason))

    async def close(self, reason: str = "") -> None:
        """End the thread for good."""
        await self._system.command(self.thread_id, Command("close", reason=reason))

    async def compact(self, reason: str = "") -> None:
        """Replace the beginning of the history by a summary in what the model is shown; nothing is deleted."""
        await self._system.command(self.thread_id, Command("compact", reason=reason))

    async def cancel(self, call_id: str, reason: str = "") -> None:
        """Cancel one open call or subscription."""
        await self._system.command(self.thread_id, Command("cancel", call_id, reason))

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

    # What waits for it

    async def inbox(self) -> tuple[Delivered, ...]:
        """Return the messages that wait for the thread, due or not, in the order they were stored."""
        await self._system.row(self.thread_id)
        return await self._system.store.read_inbox(self.thread_id)

    async def drop(self, message_id: str, reason: str = "") -> None:
        """Take back a message that waits for the thread. If a round has taken it by then, nothing changes.

        Of a question that the thread has taken, and that a program waits for an answer to, only the waiting ends.

        Raises:
            UnknownMessage: it does not wait. MalformedInput: it is nothing that anybody says; cancel or settle its
                call instead. ThreadClosed.
        """
        row = await self._system.row(self.thread_id)
        if message_id not in [one.id for one in decode_head(row.head).head.asks]:
            await self._word(message_id)
        await self._system.command(self.thread_id, Drop(message_id, reason))

    async def edit(self, message_id: str, content: str | Content, reason: str = "") -> None:
        """Change what a message says that waits for the thread. It keeps its id, its sender and its place.

        The receipt has the digests of what it said before and says now. If a round has taken it by then, nothing
        changes.

        Raises:
            UnknownMessage: it does not wait. MalformedInput: the content is blank, or the message is nothing that
                anybody says. TooLarge. ThreadClosed.
        """
        await self._word(message_id)
        said, blobs = fitted(content)
        await self._system.command(self.thread_id, Edit(message_id, said, reason), blobs)

    async def _word(self, message_id: str) -> None:
        waiting = {one.message_id: one for one in await self.inbox()}
        if (found := waiting.get(message_id)) is None:
            raise UnknownMessage(self.thread_id, message_id)
        if found.message is None or not is_word(found.message.content):
            raise MalformedInput(
                f"message {message_id!r} is nothing that anybody says to the thread, and has to be heard; "
                "cancel or settle its call instead"
            )

    # The tree

    async def fork(
        self,
        at: int | None = None,
        *,
        thread_id: str | None = None,
        message: str | Content | None = None,
        user: str = "",
        reason: str = "",
    ) -> Self:
        """Make a new root that shares this thread's history, by reference; the thread itself is not touched.

        It is launched as this one was and may do what this one may do now. Nothing that is under way goes along: no
        call, subscription, timer, child, or message that waits. If what it shares ends on the user's side, its model is
        asked at once. The thread stays as long as its forks.

        Args:
            at: how many of the thread's own items are shared; by default as many as can be. The place must be between
                two turns, and no call open there.
            thread_id: the name of the fork. Repeated with the same place, it is the same fork.
            message: what is said to it at once.
            user: who says that.
            reason: why it is made.

        Raises:
            UnknownThread. ThreadExists: of this name. MalformedInput: it cannot be forked there; the text says where.
        """
        name = await self._system.fork(self.thread_id, at, name=thread_id, message=message, user=user, reason=reason)
        return type(self)(self._system, name)

    async def tree(self) -> TreeState:
        """Return what the thread and all threads below it are now.

        Raises:
            UnknownThread: it was deleted.
        """
        row = await self._system.row(self.thread_id)
        rows = await self._system.store.read_tree(row.root or row.thread_id)
        return tree_of(rows, self.thread_id)

    async def freeze(self) -> int:
        """Let nothing run in the thread's whole tree until it is thawed; returns how many threads were not frozen.

        Nothing ends by it: calls, sleeps, questions and subscriptions stay as they are, and what comes is held, what
        people say too. A slice that runs is begun anew later; what tools work on in a process goes on there.

        Raises:
            UnknownThread: it was deleted.
        """
        row = await self._system.row(self.thread_id)
        frozen = await self._system.store.freeze(row.root or row.thread_id, tenant=row.tenant)
        self._system.feed.moved_elsewhere()
        return frozen

    async def thaw(self) -> int:
        """Let the thread's frozen tree go on where it was; returns how many threads were frozen.

        Raises:
            UnknownThread: it was deleted.
        """
        row = await self._system.row(self.thread_id)
        return await self._system.store.thaw(row.root or row.thread_id, tenant=row.tenant)

    async def delete(self, reason: str = "") -> int:
        """Remove a root, all threads below it, and everything that only they have; return how many threads that were.

        What still works for them is not told; stop them before. What is left is a note of when and why, which
        `AgentSystem.deletion` returns.

        Raises:
            UnknownThread: it is there no more. MalformedInput: it is no root. HasForks: forks share its history.
        """
        row = await self._system.row(self.thread_id)
        if row.root:
            raise MalformedInput(
                f"thread {self.thread_id} is part of the tree of {row.root}; delete that, or close this"
            )
        note = note_of(row, self._system.clock.now(), cleaned_reason(reason))
        removed = await self._system.store.delete(self.thread_id, tenant=row.tenant, note=note)
        self._system.feed.moved_elsewhere()
        return removed

    async def _steer(self, command: Command, *, tree: bool, blobs: Sequence[Blob] = ()) -> None:
        await self._system.command(self.thread_id, command, blobs)
        for state in await self.tree() if tree else ():
            if state.thread_id != self.thread_id and state.status != "closed":
                with suppress(ThreadClosed):  # it has ended meanwhile
                    await self._system.command(state.thread_id, command, blobs)
