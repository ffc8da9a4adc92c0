"""What a subscription lives by: from when and until when it brings events, and which of them are taken.

The same rules are asked at the doors, where whoever sends an event can be told, and once more when it is taken in:
what bounds a thread may have changed in between.
"""

from collections.abc import Iterable, Mapping
from typing import Final, Protocol

from hibernaut.errors import EventNotTaken, InputRefused, SubscriptionOver, TooLarge
from hibernaut.kernel.authority import Judge
from hibernaut.kernel.commit import Blob
from hibernaut.kernel.draft import Draft
from hibernaut.kernel.head import Call
from hibernaut.messages.parts import Content, Excerpt, Image
from hibernaut.messages.text import duration

EXPIRED: Final = (
    "The subscription has ended: its time, {lifetime}, was up. Call {tool} again if its events are still needed."
)
ENDED: Final = "The subscription has ended."
LEFT_OUT: Final = "The subscription has ended. What its last event said is left out: {why}."
UNFIT: Final = "it does not fit its event schema"


class Subscribed(Protocol):
    """What has to be known of a call to judge an event of it."""

    @property
    def tool(self) -> str:
        """Its tool."""
        ...

    @property
    def server(self) -> str:
        """The tool server that works on it, "" for none."""
        ...

    @property
    def since(self) -> int:
        """When it was confirmed, milliseconds since 1970; 0: it was not, or nobody knows."""
        ...


def confirm(draft: Draft, call: Call) -> None:
    """Take a call for a subscription from now on, until its time is up."""
    call.state, call.mode = "subscribed", "subscription"
    call.since = draft.now
    set_end(draft, call)


def set_end(draft: Draft, call: Call) -> None:
    """Set the timer of a subscription by what bounds its thread now."""
    draft.drop_timer(call)
    if lifetime := draft.authority.lifetime:
        # A name of its own every time: a timer that was taken back must not be taken for the one that replaces it.
        name = f"expiry:{call.id}:{draft.head.version + 1}"
        call.timer = draft.timer("expiry", call.since + lifetime, call.id, name=name)


def expire(draft: Draft, call: Call) -> None:
    """End a subscription whose time is up; whoever works on it is told, and so is the model."""
    ended = EXPIRED.format(lifetime=duration(draft.now - call.since), tool=call.tool)
    draft.inject(call, ended, "event", final=True)
    draft.forget_work(call, "expired")


def refusal_of(judge: Judge, call: Subscribed, size: int, at: int) -> InputRefused | None:
    """Say why an event is not taken that was delivered at that moment; None if it is.

    Whether it fits its schema is another question.
    """
    lifetime = judge.lifetime
    if lifetime and call.since and at >= call.since + lifetime:
        return SubscriptionOver(call.tool)
    if not judge.takes_events_of(call.tool, call.server):
        return EventNotTaken(call.tool, call.server)
    if (most := judge.event_bytes) and size > most:
        return TooLarge("the event", size, most, "events.max_bytes")
    return None


def size_of(content: Content, beside: Iterable[Blob] = ()) -> int:
    """Return the bytes of a content, with those of the blobs beside it."""
    if isinstance(content, str):
        return len(content.encode("utf-8", "surrogatepass"))
    blobs: Mapping[bytes, int] = {blob.digest: len(blob.data) for blob in beside}
    size = 0
    for part in content:
        if isinstance(part, Image):
            size += len(part.data) + blobs.get(part.blob, 0)
        else:
            size += part.size if isinstance(part, Excerpt) else size_of(part.text)
    return size
