"""What operators decide about a thread: to stop it, to let it go on, to end or answer a call by hand, and so on.

Messages that wait for the thread are another matter: see `hibernaut.kernel.queue`.
"""

from hibernaut.kernel.budgets import grant_anew
from hibernaut.kernel.commit import Disposition
from hibernaut.kernel.draft import Draft
from hibernaut.kernel.ending import close, stop
from hibernaut.kernel.head import Call, Status
from hibernaut.kernel.subscriptions import set_end
from hibernaut.kernel.waiting import must_wait, wake
from hibernaut.messages.inputs import Command, Delivered, Settlement, UserText
from hibernaut.messages.parts import is_blank


def resumes(arrived: Delivered, status: Status) -> bool:
    """Tell whether an input lets a thread go on that has this status."""
    content = arrived.message.content if arrived.message else None
    if isinstance(content, UserText):
        return not is_blank(content.content)
    if isinstance(content, Command):
        return content.action == "resume" or (content.action == "retry" and status == "parked")
    return False


def resume(draft: Draft, by: Delivered) -> None:
    """Let a thread go on that is stopped or parked."""
    head = draft.head
    content = by.message.content if by.message else None
    why = f": {content.reason}" if isinstance(content, Command) and content.reason else ""
    draft.notice("resumed", f"was {head.status}{why}")
    head.status, head.reason = "open", ""
    head.repeats = 0
    head.repeated = b""
    head.overflowed = False
    grant_anew(head)
    draft.forget_failures()


def command(draft: Draft, content: Command, arrived: Delivered) -> Disposition:  # a table
    """Carry out what an operator decided."""
    head = draft.head
    match content.action:
        case "resume":
            if head.status != "open":  # it was stopped or parked by an input before this one
                resume(draft, arrived)
            return Disposition.ACCEPTED
        case "retry":
            return _retry(draft, arrived)
        case "cancel":
            return _cancel(draft, content)
        case "authorize":
            return _authorize(draft, content)
        case "compact":
            return _compact(draft)
        case "close":
            close(draft, content.reason)
        case "park" if head.status == "open":
            draft.park(content.reason or "parked by an operator")
        case "stop" if head.status != "stopped":
            stop(draft, content.reason)
        case _:
            return Disposition.STALE
    return Disposition.ACCEPTED


def _retry(draft: Draft, arrived: Delivered) -> Disposition:
    """Try again what failed: at once, where it was put off."""
    head = draft.head
    if head.status == "parked":
        resume(draft, arrived)
    elif head.status == "open" and head.attempts:
        draft.forget_failures()
    elif draft.resumed_by != arrived.message_id:
        return Disposition.STALE
    return Disposition.ACCEPTED


def _compact(draft: Draft) -> Disposition:
    draft.compacting = draft.head.status == "open"
    if not draft.compacting:
        draft.notice("compaction_failed", f"the thread is {draft.head.status}; resume it, then compact it")
    return Disposition.ACCEPTED if draft.compacting else Disposition.STALE


def _authorize(draft: Draft, content: Command) -> Disposition:
    """Change what the thread may do, for all that comes after."""
    if content.authority not in draft.found.authorities:
        draft.notice("refused", "the authority that it should have is not in the store")
        return Disposition.REFUSED
    draft.head.authority, draft.authority = content.authority, draft.found.authorities[content.authority]
    draft.reauthorized = True
    for call in draft.head.calls.values():
        if call.since:
            set_end(draft, call)
    draft.notice("authority", content.reason)
    return Disposition.ACCEPTED


def settle(draft: Draft, content: Settlement, arrived: Delivered) -> Disposition | None:
    """Answer a call as an operator says; it is remembered, so that its own result is shown should it come."""
    head = draft.head
    call = head.calls.get(content.call_id)
    if call is None or call.mode == "rest":
        return Disposition.STALE
    is_open = call.state == "open" and call.held is None and call.id in head.turn
    if call.state != "detached" and not is_open:
        return Disposition.STALE
    if is_open:
        draft.hold(call, content.content, is_error=content.is_error)
    else:
        if head.status == "open" and must_wait(draft, arrived):
            return None
        wake(draft)
        draft.drop_timer(call)
        draft.inject(call, content.content, "late_result", is_error=content.is_error)
    draft.settled += (call.id,)
    call.approval = ""
    draft.remember(call, "expired")
    why = f": {content.reason}" if content.reason else ""
    draft.notice("settled", f"{call.tool} {call.id} was answered by {content.user or 'an operator'}{why}")
    draft.release_results()
    return Disposition.ACCEPTED


def _cancel(draft: Draft, content: Command) -> Disposition:
    call = draft.head.calls.get(content.call_id)
    if call is None or call.state in ("answered", "cancelled", "expired"):
        return Disposition.STALE
    _end_call(draft, call, f"an operator ({content.reason})" if content.reason else "an operator")
    draft.release_results()
    return Disposition.ACCEPTED


def _end_call(draft: Draft, call: Call, who: str) -> None:
    if call.state == "queued" or (call.approval and call.state == "open"):
        call.approval = ""
        draft.answer(call, f"Not run: cancelled by {who}.", is_error=True)
    elif call.mode == "rest":
        draft.answer(call, f"Woken early by {who}.")
    elif call.state == "open" and call.held is None:
        draft.end_work(call, "cancelled", f"Cancelled by {who}. It is unknown how far it got.")
    else:
        draft.tell_later(call, f"Cancelled by {who}. It is unknown how far it got.")
        draft.forget_work(call, "cancelled")
        draft.notice("cancelled", f"{call.tool} {call.id} was cancelled by {who}")
