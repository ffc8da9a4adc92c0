"""Calls that ask people: how a tool waits for the answer, and what becomes of that when its process ends.

A question is a message with an id of its own, derived from the call and from how many questions came before it in that
call. So a tool that is run again finds the answers that were given, and only what it has not asked yet is asked.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import NoReturn, Protocol, TypeVar

from hibernaut.clock import Clock
from hibernaut.engine.live import LiveFeed
from hibernaut.errors import ToolError
from hibernaut.ids import question_id
from hibernaut.kernel.commit import Effect
from hibernaut.kernel.head import Head, Pending, decode_head
from hibernaut.messages.inputs import InputContent, InputMessage, Orphaned, Question, ToolResult
from hibernaut.stores.protocol import Outcome, Store
from hibernaut.tools.context import Asked

logger = logging.getLogger(__name__)

T = TypeVar("T")

GONE = "The question was dismissed: {why}."
ANOTHER = (
    "When this call ran before, it asked something else as its question {number}, so that the answer to that cannot be "
    "taken for an answer to this."
)


class Retry(Protocol):
    """Does something until the store takes it."""

    def __call__(self, write: Callable[..., Awaitable[T]], *arguments: object) -> Awaitable[T]:
        """Do it."""
        ...


class Asking:
    """Asks on behalf of the tools that run in one engine.

    Without `keeps` the engine ends when its tools do and no tool can wait: the question is left to be answered, and the
    answer is what the call is answered with. `abandon` ends the invocation of a call without an answer.
    """

    def __init__(
        self, store: Store, feed: LiveFeed, clock: Clock, retry: Retry, abandon: Callable[[str], None], *, keeps: bool
    ) -> None:
        self._store = store
        self._feed = feed
        self._clock = clock
        self._retry = retry
        self._abandon = abandon
        self._keeps = keeps

    async def ask(self, effect: Effect, thread_id: str, asked: Asked) -> int:
        """Ask a person, and return the number of the choice once there is an answer.

        Raises:
            ToolError: the question was dismissed, or is not the one that was asked under its number before.
        """
        name = question_id(thread_id, effect.call_id, asked.number)
        due = self._clock.now() + asked.timeout if asked.timeout else 0
        question = Question(name, effect.call_id, asked.prompt, asked.choices, asked.default, due, asked.url)
        message = InputMessage(question_message(name), thread_id, question, f"tool:{effect.tool}")
        with self._feed.watch(thread_id) as moved:
            if await self._retry(self._put, message) in (Outcome.CLOSED, Outcome.UNKNOWN):
                raise ToolError(GONE.format(why="the thread is closed"))
            while True:
                moved.clear()
                pending = await self._retry(self._look, thread_id, effect.call_id, name)
                if pending is not None:
                    if (pending.prompt, pending.choices, pending.url) != (asked.prompt, asked.choices, asked.url):
                        raise ToolError(ANOTHER.format(number=asked.number))
                    if pending.orphaned:
                        logger.info("call %s was taken for dead while it waited; it ends here", effect.call_id)
                        await self._give_up(effect.call_id)
                    if pending.answer >= 0:
                        return pending.answer
                if not self._keeps:
                    await self._retry(self.leave, effect, thread_id)
                    await self._give_up(effect.call_id)
                await moved.wait()

    async def leave(self, effect: Effect, thread_id: str) -> bool:
        """Let the answers to the questions of a call be its result, if any is missing.

        For a call whose process has ended, or is about to. Returns whether it has its result or will have it.
        """
        # The inbox first: what leaves it from now on shows in the head that is read after it.
        inbox = await self._store.read_inbox(thread_id)
        row = await self._store.read_head(thread_id)
        head = decode_head(row.head).head if row is not None else None
        call = head.calls.get(effect.call_id) if head is not None else None
        if head is None or call is None or call.state in ("answered", "cancelled", "expired"):
            return True
        if call.mode == "subscription":
            return False
        contents = [arrived.message.content for arrived in inbox if arrived.message]
        if any(isinstance(content, ToolResult) and content.call_id == call.id for content in contents):
            return True
        if not _waits(head, contents, call.id):
            return False
        word = InputMessage(f"orphaned:{effect.call_id}", thread_id, Orphaned(effect.call_id), "engine")
        # The word first: an effect that is accepted is looked after by nobody.
        await self._store.put([word], self._clock.now())
        await self._store.accept_effects([effect.request_id])
        return True

    async def _put(self, message: InputMessage) -> Outcome:
        return (await self._store.put([message], self._clock.now()))[0]

    async def _look(self, thread_id: str, call_id: str, name: str) -> Pending | None:
        """Return a question as the thread has it, None if the thread has not taken it in yet.

        Raises:
            ToolError: it has, and dismissed it.
        """
        # The inbox first: what leaves it from now on shows in the head that is read after it.
        inbox = await self._store.read_inbox(thread_id)
        row = await self._store.read_head(thread_id)
        if row is None:
            raise ToolError(GONE.format(why="the thread was deleted"))
        head = decode_head(row.head).head
        pending = head.questions.get(name)
        if pending is None and not any(arrived.message_id == question_message(name) for arrived in inbox):
            raise ToolError(GONE.format(why=_why_gone(head, call_id)))
        return pending

    async def _give_up(self, call_id: str) -> NoReturn:
        self._abandon(call_id)
        await asyncio.Event().wait()  # until the cancellation arrives
        raise AssertionError("nobody sets that event")


def question_message(name: str) -> str:
    """Return the id of the message that asks a question."""
    return f"ask:{name}"


def answer_message(name: str) -> str:
    """Return the id of the message that answers a question: there is one, so the second answer is refused."""
    return f"answer:{name}"


def _waits(head: Head, inbox: Sequence[InputContent], call_id: str) -> bool:
    """Tell whether a question of a call has no answer, be it one that the thread has not taken in yet."""
    return any(pending.call_id == call_id and pending.answer < 0 for pending in head.questions.values()) or any(
        isinstance(content, Question) and content.call_id == call_id and content.question_id not in head.questions
        for content in inbox
    )


def answers_of(head: Head, call_id: str) -> str:
    """Return what people have answered to a call, for a model that hears no more of it; "" if it asked nothing."""
    answered = [one for one in head.questions.values() if one.call_id == call_id and one.answer >= 0]
    return "".join([f"\nA person was asked: {one.prompt}\nAnswer: {one.choices[one.answer]}" for one in answered])


def _why_gone(head: Head, call_id: str) -> str:
    if head.status == "closed":
        return "the thread is closed"
    call = head.calls.get(call_id)
    if call is not None and call.state in ("open", "detached"):
        waiting = sum(pending.answer < 0 for pending in head.questions.values())
        return f"the thread has {waiting} questions that wait already, and no room for more (option max_questions)"
    return "its call has ended"
