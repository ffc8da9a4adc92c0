"""Waiting for what a thread answers to a program."""

from typing import TYPE_CHECKING

from hibernaut.errors import NoAnswer, StoreError, ThreadClosed
from hibernaut.kernel.head import decode_head
from hibernaut.messages.items import OutputItem, decode_page
from hibernaut.state import wakes

if TYPE_CHECKING:
    from hibernaut.system import AgentSystem


async def answer_to(system: "AgentSystem", thread_id: str, ask_id: str, after: int = 0) -> str:
    """Return the answer to a message that asked: text, or JSON of the form that it asked for.

    `after` is a head version at which there was no answer yet; the history is read from there.

    Raises:
        NoAnswer: there is none, and will be none as things stand. ThreadClosed. UnknownThread: it was deleted.
    """
    with system.feed.watch(thread_id) as moved:
        while True:
            moved.clear()
            try:
                after, answer = await _look(system, thread_id, ask_id, after)
            except StoreError:
                if not system.feed.is_over:
                    raise
                answer = None
            if answer is not None:
                return answer
            if system.feed.is_over:
                raise NoAnswer(thread_id, ask_id, "the system was closed; ask again with this message id")
            await moved.wait()


async def _look(system: "AgentSystem", thread_id: str, ask_id: str, after: int) -> tuple[int, str | None]:
    """Return up to which version there is no answer, and the one that there is beyond it.

    Raises:
        NoAnswer, ThreadClosed, UnknownThread: as above.
    """
    store = system.store
    # In this order: what leaves the inbox shows in the head, and what leaves the head in the log.
    inbox = await store.read_inbox(thread_id)
    row = await system.row(thread_id)
    head = decode_head(row.head).head
    for entry in await store.read_log(thread_id, after):
        after = entry.version
        for item in decode_page(entry.page):
            if isinstance(item, OutputItem) and item.ask_id == ask_id:
                if item.problem:
                    raise NoAnswer(thread_id, ask_id, item.problem)
                return after, item.value
    if head.status == "closed":
        raise ThreadClosed(thread_id)
    if ask_id not in [one.message_id for one in inbox] and ask_id not in [one.id for one in head.asks]:
        raise NoAnswer(thread_id, ask_id, "nothing waits for one: the message was dropped, or only said")
    status, now = head.status, system.clock.now()
    if row.frozen or (status != "open" and not any(wakes(arrived, status, now) for arrived in inbox)):
        stands = "frozen" if row.frozen else f"{status} ({head.reason})" if head.reason else status
        raise NoAnswer(thread_id, ask_id, f"it is {stands}; once it goes on, ask with this message id again")
    return after, None
