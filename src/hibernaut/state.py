"""What a thread is at one moment, for those who look."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal

import msgspec

from hibernaut.kernel.head import Call, Head, Link, Status, decode_head, living, works
from hibernaut.messages.events import Usage
from hibernaut.messages.inputs import USER, Delivered, urgency
from hibernaut.stores.protocol import ThreadRow

Activity = Literal["idle", "ready", "waiting", "resting", "retrying"]


class OpenCall(msgspec.Struct, frozen=True):
    """A call that still matters to a thread; see `hibernaut.kernel.head.Call` for the states."""

    call_id: str
    tool: str
    arguments: str
    state: str
    due: int = 0


class Subscription(msgspec.Struct, frozen=True):
    """A subscription that is active."""

    call_id: str
    tool: str
    arguments: str
    last_event: str
    at_work: int
    """Events that have threads of their own now."""
    waiting: int
    """Events in the inbox; in a listing, which does not look into inboxes, 0."""


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
    parent: str = ""
    """The thread that made it; "" for a root."""
    root: str = ""
    """The thread at the top of its tree; "" for a root."""
    for_event: bool = False
    """It was made for one event of a subscription."""
    purpose: str = ""
    """What a child was made for: its instructions, or the call of the subscription."""
    children: int = 0
    """Children that live."""
    questions: int = 0
    """Questions that wait for a person."""
    awaited: tuple[str, ...] = ()
    """The messages to which programs wait for answers."""
    subscriptions: tuple[Subscription, ...] = ()
    refused: int = 0
    """Inputs so far that were about nothing the thread has."""
    frozen: bool = False
    """Nothing runs it, whatever comes, until its tree is thawed."""
    cost: int = 0
    """Millionths of a US dollar that it has cost, as far as prices are known."""
    unpriced: int = 0
    """Tokens whose prices are not."""
    estimated: int = 0
    """Tokens of `usage` that are an estimate: of completions that were cut short,"""
    estimated_cost: int = 0
    """and how much of the cost that is."""
    fork_of: str = ""
    """The thread whose history a fork begins with."""


class TreeState(msgspec.Struct, frozen=True):
    """A thread and the threads below it, in the order they were made."""

    thread: ThreadState
    children: tuple["TreeState", ...] = ()

    def __iter__(self) -> Iterator[ThreadState]:
        """Yield every thread, parents before their children."""
        yield self.thread
        for child in self.children:
            yield from child


def tree_of(rows: Sequence[ThreadRow], top: str) -> TreeState:
    """Return the tree below a thread, from the stored threads of its whole tree."""
    below: dict[str, list[ThreadRow]] = {}
    for row in rows:
        below.setdefault(row.parent, []).append(row)

    def grow(row: ThreadRow) -> TreeState:
        children = tuple([grow(child) for child in below.get(row.thread_id, ())])
        return TreeState(state_of(row, ready=False), children)

    return grow(next(row for row in rows if row.thread_id == top))


def state_of(row: ThreadRow, *, ready: bool, events: Mapping[str, int] | None = None) -> ThreadState:
    """Return the state of a stored thread.

    `ready` says whether its inbox has something for it now, `events` how many events of each subscription it holds.
    """
    head = decode_head(row.head).head
    return ThreadState(
        thread_id=row.thread_id,
        tenant=row.tenant,
        status=head.status,
        reason=head.reason,
        activity=_activity(head, ready=ready and not row.frozen),
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
        parent=head.link.parent if head.link else "",
        root=head.link.root if head.link else "",
        for_event=head.link is not None and head.link.event,
        purpose=_purpose(head.link) if head.link else "",
        children=len(living(head)),
        questions=sum(one.answer < 0 for one in head.questions.values()),
        awaited=tuple([one.id for one in head.asks]),
        subscriptions=tuple(
            _subscription(head, call, (events or {}).get(call.id, 0))
            for call in head.calls.values()
            if call.state == "subscribed"
        ),
        refused=head.refused,
        frozen=row.frozen,
        cost=head.cost,
        unpriced=head.unpriced,
        estimated=head.estimated,
        estimated_cost=head.estimated_cost,
        fork_of=head.fork.origin if head.fork else "",
    )


def wakes(arrived: Delivered, status: Status, now: int) -> bool:
    """Tell whether an input makes a thread of that status run; what a stopped one holds does not."""
    content = arrived.message.content if arrived.message else None
    if arrived.due > now:
        return False
    return status == "open" or (content is not None and urgency(content) == USER)


def _purpose(link: Link) -> str:
    if link.event:
        return f"an event of {link.tool} {link.arguments}"
    try:
        return str(msgspec.json.decode(link.arguments, type=dict[str, Any]).get("instructions", ""))
    except msgspec.DecodeError:  # long ones are kept as an excerpt
        return link.arguments.partition('"instructions":"')[2] or link.arguments


def _subscription(head: Head, call: Call, waiting: int) -> Subscription:
    at_work = sum(child.event and child.call_id == call.id for child in head.children.values())
    return Subscription(call.id, call.tool, call.arguments, call.last_event, at_work, waiting)


def _activity(head: Head, *, ready: bool) -> Activity:
    if ready and head.status != "closed":
        return "ready"
    if head.status != "open":
        return "idle"
    if head.turn:
        return "waiting" if works(head) else "resting"
    if head.owes:
        return "retrying" if head.attempts else "ready"
    return "idle"
