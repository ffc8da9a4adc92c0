"""Where a subscription goes on whose process has ended."""

import msgspec

from hibernaut.kernel.head import decode_head
from hibernaut.messages.inputs import Event
from hibernaut.stores.protocol import Store


class LastEvent(msgspec.Struct, frozen=True):
    """The last event of a subscription that was stored. `final`: there will be no other."""

    event_id: str = ""
    sequence: int = 0
    final: bool = False


BEGINNING = LastEvent()


async def last_event(store: Store, thread_id: str, call_id: str) -> LastEvent:
    """Return the last event of a call that was stored, whether its thread has taken it in or not."""
    # The inbox first: what leaves it from now on shows in the head that is read after it.
    inbox = await store.read_inbox(thread_id)
    row = await store.read_head(thread_id)
    call = decode_head(row.head).head.calls.get(call_id) if row is not None else None
    last = LastEvent(call.last_event, call.sequence) if call is not None else BEGINNING
    for arrived in inbox:
        content = arrived.message.content if arrived.message is not None else None
        if isinstance(content, Event) and content.call_id == call_id and content.sequence > last.sequence:
            last = LastEvent(content.event_id, content.sequence, content.final)
    return last
