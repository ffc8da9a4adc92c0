"""Callbacks: what a server makes of the answers to them, and whether each was as it must be."""

from email.message import Message
from typing import Final

from hibernaut.rap.answers import Answer, UnknownCall, answer_to
from hibernaut.rap.arrivals import scope_of
from hibernaut.rap.callbacks import Callback, SubscriptionEvent, ViewUpdate
from hibernaut.rap.check.peer import Call
from hibernaut.rap.check.session import Named, Session, is_taken, seconds

_TOLERANCE: Final = 20
"""Milliseconds by which two clocks on one machine may disagree about a wait."""


async def come_again(session: Session, sample: Named) -> None:
    """Answer a callback with 503 once, and see when it comes again."""
    if not session.findings.wants("callbacks.retry", "callbacks.retry-after"):
        return
    inbox = session.receiver.inbox()
    wait = session.settings.retry_after
    body = b'{"error":"unavailable","message":"this is a check; come again"}'
    inbox.answers.append(Answer(503, body, (("Content-Type", "application/json"), ("Retry-After", str(wait)))))
    call = await session.make(session.invocation(*sample, inbox), inbox)
    first = await session.anything_of(call) if is_taken(call.answered) else None
    if first is None:
        session.findings.not_tried("callbacks.retry", "the call was not answered")
        session.findings.not_tried("callbacks.retry-after", "the call was not answered")
        return
    within = session.settings.called_back_within + wait * 1_000
    second = await inbox.next(within, after=1)
    if second is None:
        session.findings.broken("callbacks.retry", f"answered with 503, and it did not come again in {seconds(within)}")
        session.findings.not_tried("callbacks.retry-after", "it did not come again")
        return
    gap = second.at - first.at
    seen = f"came again after {seconds(gap)}, asked to wait for {wait} s"
    session.findings.kept("callbacks.retry", seen)
    session.findings.judge("callbacks.retry-after", gap + _TOLERANCE >= wait * 1_000, seen)


async def give_up(session: Session, sample: Named) -> None:
    """Answer a callback with 404, and see that it does not come again."""
    if not session.findings.wants("callbacks.stop"):
        return
    inbox = session.receiver.inbox()
    sent = session.invocation(*sample, inbox)
    refusal = answer_to(UnknownCall(sent.group_id, sent.id))
    inbox.answers.extend([refusal] * 100)
    call = await session.make(sent, inbox)
    if not is_taken(call.answered) or await session.anything_of(call) is None:
        session.findings.not_tried("callbacks.stop", "the call was not answered")
        return
    again = await inbox.next(session.settings.quiet, after=1)
    seen = f"answered with 404, and nothing came for {seconds(session.settings.quiet)}"
    if again:
        seen = f"answered with 404, it came again after {seconds(again.at - inbox.deliveries[0].at)}"
    session.findings.judge("callbacks.stop", again is None, seen)


def review(session: Session) -> None:
    """Look at all that has come in, whatever it was asked for."""
    manifest = session.manifest
    if manifest is not None and manifest.status is not None and session.peer.endpoint:
        _content_type(session, "the manifest", manifest.content_type)
    for call in session.calls:
        for delivery in call.inbox.deliveries:
            kind = delivery.kind or "a callback"
            _content_type(session, kind, delivery.content_type)
            session.findings.judge(
                "callbacks.shape", not delivery.problem, delivery.words if delivery.problem else kind
            )
            if delivery.written is not None:
                _ids(session, call, delivery.written)


def _content_type(session: Session, what: str, written: str) -> None:
    header = Message()
    header["content-type"] = written
    fine = header.get_content_type() == "application/json" and bool(written)
    fine = fine and str(header.get_param("charset", "utf-8")).lower() in ("utf-8", "utf8")
    session.findings.judge("content-type", fine, f"{what} as {written or 'nothing'}")


def _ids(session: Session, call: Call, callback: Callback) -> None:
    if isinstance(callback, SubscriptionEvent | ViewUpdate):
        return
    kind, thread_id, call_id = scope_of(callback)
    seen = f"{kind} for {thread_id}, {call_id}, {callback.call_id}"
    sent = call.sent
    fine = (thread_id, call_id) == (sent.group_id, sent.id) and callback.call_id in (None, sent.call_id)
    if not fine:
        seen += f"; the call had {sent.group_id}, {sent.id}, {sent.call_id}"
    session.findings.judge("echo.ids", fine, seen)
