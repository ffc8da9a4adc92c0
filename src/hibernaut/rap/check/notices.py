"""Notices: calls that are cancelled, threads that are closed, and the question whether a call is at work."""

from collections.abc import Callable

from hibernaut.rap.answers import liveness
from hibernaut.rap.check.peer import Call
from hibernaut.rap.check.session import Named, Session, is_taken, seconds


async def cancellations(session: Session) -> None:
    """Cancel a call that nobody made, and one that was made and is over."""
    if not session.findings.wants("cancel.always-200"):
        return
    answered = await session.peer.cancel(session.ids.new("thread"), session.ids.new("check"))
    session.findings.judge("cancel.always-200", is_taken(answered), f"an unknown call: {answered.words}")
    if (call := await _known(session)) is not None:
        answered = await session.peer.cancel(call.sent.group_id, call.sent.id)
        session.findings.judge("cancel.always-200", is_taken(answered), f"a call that is over: {answered.words}")


async def closings(session: Session) -> None:
    """Close a thread that the server has never heard of, and one that it has."""
    if not session.findings.wants("close.always-200"):
        return
    answered = await session.peer.close_thread(session.ids.new("thread"))
    session.findings.judge("close.always-200", is_taken(answered), f"an unknown thread: {answered.words}")
    if (call := await _known(session)) is not None:
        answered = await session.peer.close_thread(call.sent.group_id)
        session.findings.judge("close.always-200", is_taken(answered), f"a thread that is known: {answered.words}")


async def unknown_status(session: Session) -> None:
    """Ask for a call that nobody made."""
    if session.findings.wants("status.unknown"):
        answered = await session.peer.status(session.ids.new("thread"), session.ids.new("check"))
        dead = liveness(answered.status, answered.body) == "dead"
        session.findings.judge("status.unknown", dead, answered.words)


async def ask_while_open(session: Session, call: Call, is_over: Callable[[], bool]) -> None:
    """Ask for a call that waits, or a subscription that goes on, unless it turns out to be over meanwhile."""
    answered = await session.peer.status(call.sent.group_id, call.sent.id)
    if is_over():
        session.findings.not_tried("status.alive", f"{call.sent.operation} was over before it could be asked for")
        return
    alive = liveness(answered.status, answered.body) == "alive"
    session.findings.judge("status.alive", alive, f"{call.sent.operation}: {answered.words}")


async def at_work(session: Session, named: Named) -> None:
    """Ask for a call that takes its time, then cancel it and see that no result comes."""
    if not session.findings.wants("status.alive", "cancel.stops"):
        return
    call = await session.call(named)
    if not is_taken(call.answered):
        _not_tried(session, f"{named[0]}: {call.answered.words}")
        return
    # A result that crosses the cancellation would prove nothing, so a tool that is quick is found out first.
    if await call.inbox.next(session.settings.quiet // 4) is not None:
        _not_tried(session, f"{named[0]} is no slow tool: something came for it at once")
        return
    answered = await session.peer.status(call.sent.group_id, call.sent.id)
    alive = liveness(answered.status, answered.body) == "alive"
    session.findings.judge("status.alive", alive, f"{named[0]}: {answered.words}")
    answered = await session.peer.cancel(call.sent.group_id, call.sent.id)
    session.findings.judge("cancel.always-200", is_taken(answered), f"a call at work: {answered.words}")
    came = await call.inbox.next(
        session.settings.quiet, lambda one: one.kind == "tool_result", after=len(call.inbox.deliveries)
    )
    waited = f"for {seconds(session.settings.quiet)}"
    seen = f"{named[0]}: a result came all the same" if came else f"{named[0]}: nothing came {waited}"
    session.findings.judge("cancel.stops", came is None, seen)


async def _known(session: Session) -> Call | None:
    """Make a call and wait until it is answered, if there is one that may be made."""
    if session.sample is None:
        return None
    call = await session.call(session.sample)
    return call if is_taken(call.answered) and await session.anything_of(call) else None


def _not_tried(session: Session, why: str) -> None:
    session.findings.not_tried("status.alive", why)
    session.findings.not_tried("cancel.stops", why)
