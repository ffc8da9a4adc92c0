"""What a thread is at one moment, for those who look."""

from typing import Any, Literal

import msgspec

from hibernaut.kernel.head import Head, Status, decode_head
from hibernaut.messages.events import Usage
from hibernaut.stores.protocol import ThreadRow

Activity = Literal["idle", "ready", "waiting", "resting", "retrying"]


class OpenCall(msgspec.Struct, frozen=True):
    """A call that still matters to a thread; see `hibernaut.kernel.head.Call` for the states."""

    call_id: str
    tool: str
    arguments: str
    state: str
    due: int = 0


class ThreadState(msgspec.Struct, frozen=True):
    """What a thread is at one moment."""

    thread_id: str
    tenant: str
    status: Status
    reason: str
    """Why it is parked, stopped or closed."""
    activity: Activity
    """`ready`: it has something to do now. `waiting`: a call works. `resting`: it sleeps. `retrying`: a failure was."""
    title: str
    metadata: dict[str, Any]
    calls: tuple[OpenCall, ...]
    usage: Usage
    version: int
    """Commits so far."""
    items: int
    waiting: int
    """Messages in its inbox, timers included."""
    head_bytes: int
    created: int
    updated: int


def state_of(row: ThreadRow, *, ready: bool) -> ThreadState:
    """Return the state of a stored thread; `ready` says whether its inbox has something for it now."""
    head = decode_head(row.head).head
    return ThreadState(
        thread_id=row.thread_id,
        tenant=row.tenant,
        status=head.status,
        reason=head.reason,
        activity=_activity(head, ready=ready),
        title=head.title,
        metadata=msgspec.json.decode(head.metadata) if head.metadata else {},
        calls=tuple(OpenCall(call.id, call.tool, call.arguments, call.state, call.due) for call in head.calls.values()),
        usage=head.usage,
        version=head.version,
        items=head.items,
        waiting=row.waiting,
        head_bytes=len(row.head),
        created=row.created,
        updated=row.updated,
    )


def _activity(head: Head, *, ready: bool) -> Activity:
    if ready and head.status != "closed":
        return "ready"
    if head.status != "open":
        return "idle"
    if head.turn:
        open_calls = [head.calls[name] for name in head.turn]
        return "resting" if all(call.passive for call in open_calls) else "waiting"
    if head.owes:
        return "retrying" if head.attempts else "ready"
    return "idle"
