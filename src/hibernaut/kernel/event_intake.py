"""What an event does to a thread: refused, left to wait, given a thread of its own, or put into this one."""

from typing import Final

from msgspec.structs import replace

from hibernaut.errors import EventMisfit, InputRefused, SubscriptionOver
from hibernaut.kernel.authority import least
from hibernaut.kernel.commit import Disposition
from hibernaut.kernel.draft import Draft, Outside
from hibernaut.kernel.family import can_go_deeper, can_route, route
from hibernaut.kernel.head import Call
from hibernaut.kernel.outside import order_of
from hibernaut.kernel.subscriptions import ENDED, LEFT_OUT, UNFIT, expire, refusal_of, set_end, size_of
from hibernaut.kernel.waiting import forget, must_wait, refuse, wake
from hibernaut.messages.inputs import Delivered, Event
from hibernaut.messages.parts import is_blank
from hibernaut.messages.text import shorten

UNCONFIRMED: Final = (
    "The subscription has ended, without having been confirmed. What it brought until then has been dealt with."
)
NO_SUBSCRIPTION: Final = "it is about no active subscription"
NOT_ROUTED: Final = "it has no thread of its own, since threads may not be nested deeper (max_depth)"

NO_ROOM: Final = 15 * 60_000
"""Milliseconds after which an event that waits for its turn is looked at again, if nothing made room before."""

TREE_FULL: Final = 15_000
"""The same when its tree is full: room that is made elsewhere in it wakes nobody."""

LONGEST_REASON: Final = 400
"""Characters that people are told of why an event was refused."""


def take_event(draft: Draft, event: Event, arrived: Delivered) -> Disposition | None:
    """Take an event in; None leaves it where it is."""
    call = draft.head.calls.get(event.call_id)
    if call is None or not _brings_events(call):
        draft.notes[arrived.message_id] = NO_SUBSCRIPTION
        return refuse(draft)
    outside = _outside(call, event, arrived)
    why = _why_not(draft, call, event, arrived) if outside is not None else None
    if why is not None:
        if not event.final or isinstance(why, SubscriptionOver):
            _tell(draft, call, arrived, why)
            return refuse(draft)
        event, outside = replace(event, content=LEFT_OUT.format(why=_note_of(why))), None
    elif event.final and is_blank(event.content):
        event, outside = replace(event, content=ENDED), None
    threaded = not event.associative and can_go_deeper(draft)
    if _is_blocked(draft, call, arrived, threaded=threaded):
        return None
    if threaded:
        route(draft, call, event, arrived.message_id, outside)
    elif must_wait(draft, arrived):
        draft.blocked[call.id] = 0
        return None
    else:
        wake(draft)
        draft.inject(call, event.content, "event", final=event.final, outside=outside)
    _note(draft, call, event, arrived, outside, is_routed=threaded or event.associative)
    if why is not None:
        _tell(draft, call, arrived, why)
    if event.final:
        _end(draft, call)
    return Disposition.ROUTED if threaded else Disposition.ACCEPTED


def take_expiry(draft: Draft, call: Call | None, arrived: Delivered) -> Disposition | None:
    """End a subscription whose time is up; None leaves the timer where it is."""
    if call is None or call.timer != arrived.message_id:
        return Disposition.STALE
    if must_wait(draft, arrived):
        return None
    wake(draft)
    call.timer = ""
    expire(draft, call)
    return Disposition.ACCEPTED


def _brings_events(call: Call) -> bool:
    """Tell whether a call is a subscription, or may be one: a tool server says so with its first answer.

    An event may overtake that answer when it has to be delivered anew.
    """
    maybe = (call.mode == "subscription" or bool(call.server)) and call.state in ("open", "detached")
    return call.state == "subscribed" or maybe


def _outside(call: Call, event: Event, arrived: Delivered) -> Outside | None:
    """Return where an event comes from; None for what the runtime itself has to say of a subscription.

    The numbers that an engine gives to the events of its own tools order nothing: they come from one queue.
    """
    sender = arrived.message.sender if arrived.message is not None else ""
    if sender == "engine":
        return None
    counts = bool(event.sequence) and not sender.startswith("tool:")
    return Outside(event.sequence, call.sequence) if counts else Outside()


def _why_not(draft: Draft, call: Call, event: Event, arrived: Delivered) -> InputRefused | None:
    refusal = refusal_of(draft.authority, call, size_of(event.content), arrived.accepted)
    problems = draft.found.misfits.get(arrived.message_id, "")
    return EventMisfit(call.tool, problems) if refusal is None and problems else refusal


def _note_of(why: InputRefused) -> str:
    """Return why something is not taken for whoever must not read payloads."""
    return UNFIT if isinstance(why, EventMisfit) else str(why)


def _tell(draft: Draft, call: Call, arrived: Delivered, why: InputRefused) -> None:
    """Tell people why an event, or what it says, is not taken; the receipt, too."""
    draft.notes[arrived.message_id] = _note_of(why)
    if call.id not in draft.warned:  # of thousands at once, one line is enough
        draft.warned.add(call.id)
        draft.notice("refused", f"an event of {call.tool} ({call.id}): {shorten(str(why), LONGEST_REASON)}")


def _is_blocked(draft: Draft, call: Call, arrived: Delivered, *, threaded: bool) -> bool:
    """Tell whether an event waits for room, or behind one that does."""
    if call.id not in draft.blocked and _is_too_fast(draft, call):
        draft.blocked[call.id] = (call.minute + 1) * 60_000
    elif call.id not in draft.blocked and threaded and not can_route(draft, call):
        full = draft.family >= draft.options.max_descendants
        draft.blocked[call.id] = draft.now + (TREE_FULL if full else NO_ROOM)
    draft.patience.pop(arrived.message_id, None)
    if call.id not in draft.blocked:
        return False
    if until := draft.blocked[call.id]:
        draft.patience[arrived.message_id] = until
    return True


def _is_too_fast(draft: Draft, call: Call) -> bool:
    most = least((draft.options.max_events_per_minute, draft.authority.events_per_minute))
    return bool(most) and call.taken >= most and call.minute == draft.now // 60_000


def _note(
    draft: Draft, call: Call, event: Event, arrived: Delivered, outside: Outside | None, *, is_routed: bool
) -> None:
    """Note in the registry, and for the receipt, what is to be known of an event that was taken in."""
    if outside is not None and (order := order_of(outside.sequence, outside.before)):
        draft.notes[arrived.message_id] = order
    elif outside is not None and not is_routed:
        draft.notes[arrived.message_id] = NOT_ROUTED
    call.mode = "subscription"
    if event.event_id:
        call.last_event = event.event_id
    call.sequence = max(call.sequence, event.sequence)
    if call.state == "subscribed" and not call.since:  # it was confirmed by a version that knew of no end
        call.since = draft.now
        set_end(draft, call)
    minute = draft.now // 60_000
    call.taken = call.taken + 1 if call.minute == minute else 1
    call.minute = minute


def _end(draft: Draft, call: Call) -> None:
    draft.drop_timer(call)
    draft.settled += (call.id,)
    if call.state == "open" and call.held is None:
        draft.answer(call, UNCONFIRMED)
        draft.release_results()
    else:
        forget(draft, call)
