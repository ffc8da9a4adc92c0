"""Subscriptions: confirmed, followed to their end, and cancelled."""

from hibernaut.rap.callbacks import Result, SubscriptionEvent
from hibernaut.rap.check.notices import ask_while_open
from hibernaut.rap.check.peer import Call
from hibernaut.rap.check.receiver import Delivery
from hibernaut.rap.check.session import Named, Session, is_taken, seconds
from hibernaut.tools.event_schema import misfit

_EVENT = "subscription_event"


async def follow(session: Session, named: Named) -> None:
    """Subscribe, and listen until a final event or the end of patience."""
    if (call := await _subscribed(session, named)) is None:
        return
    await ask_while_open(session, call, lambda: any(map(_is_final, call.inbox.deliveries)))
    within = session.settings.called_back_within
    await call.inbox.next(within, _is_final)
    events = [one for one in call.inbox.deliveries if one.kind == _EVENT]
    if not events:
        for rule in ("subscription.events", "subscription.event-ids", "subscription.event-schema"):
            session.findings.not_tried(rule, f"{named[0]}: no event came in {seconds(within)}")
    _judge_events(session, call, events)
    _judge_contents(session, named, events)
    if not any(map(_is_final, events)):
        session.findings.not_applicable(
            "subscription.final-is-last", f"{named[0]}: it did not end in {seconds(within)}"
        )
        await session.peer.cancel(call.sent.group_id, call.sent.id)
        return
    place = next(place for place, one in enumerate(call.inbox.deliveries) if _is_final(one))
    more = await call.inbox.next(session.settings.quiet, lambda one: one.kind == _EVENT, after=place + 1)
    waited = f"nothing came for {seconds(session.settings.quiet)} after it"
    session.findings.judge("subscription.final-is-last", more is None, f"then came {more.words}" if more else waited)


async def cancel(session: Session, named: Named) -> None:
    """Subscribe, cancel, and see that no event comes any more. One that says that it is the last may."""
    if (
        not session.findings.wants("subscription.cancel-stops")
        or (call := await _subscribed(session, named)) is None
        or await call.inbox.next(session.settings.called_back_within, lambda one: one.kind == _EVENT) is None
    ):
        session.findings.not_tried("subscription.cancel-stops", f"{named[0]}: there was no event before it")
        return
    if any(map(_is_final, call.inbox.deliveries)):
        session.findings.not_tried("subscription.cancel-stops", f"{named[0]}: it was over before it could be cancelled")
        return
    answered = await session.peer.cancel(call.sent.group_id, call.sent.id)
    session.findings.judge("cancel.always-200", is_taken(answered), f"a subscription: {answered.words}")
    # What was on its way already is nobody's fault: the first part of the quiet is left out.
    await session.clock.sleep(session.settings.quiet // 4)
    came = await call.inbox.next(
        session.settings.quiet, lambda one: one.kind == _EVENT and not _is_final(one), after=len(call.inbox.deliveries)
    )
    waited = f"{named[0]}: nothing came for {seconds(session.settings.quiet)}"
    seen = f"{named[0]}: cancelled, and then came {came.words}" if came else waited
    session.findings.judge("subscription.cancel-stops", came is None, seen)


async def _subscribed(session: Session, named: Named) -> Call | None:
    call = await session.call(named)
    if not is_taken(call.answered):
        session.findings.broken("subscription.confirms", f"{named[0]}: {call.answered.words}")
        return None
    came = await session.result_of(call)
    if came is None:
        within = seconds(session.settings.called_back_within)
        session.findings.broken("subscription.confirms", f"{named[0]}: no tool_result came in {within}")
        return None
    confirmed = isinstance(came.callback, Result) and came.callback.subscription
    session.findings.judge("subscription.confirms", confirmed, f"{named[0]}: {came.words}")
    return call if confirmed else None


def _judge_events(session: Session, call: Call, deliveries: list[Delivery]) -> None:
    ids: set[str] = set()
    for delivery in deliveries:
        event = delivery.written
        if not isinstance(event, SubscriptionEvent):
            continue
        fine = (event.group_id, event.tool_call_id) == (call.sent.group_id, call.sent.id)
        seen = f"for {event.group_id}, {event.tool_call_id}"
        if not fine:
            seen += f"; the call had {call.sent.group_id}, {call.sent.id}"
        session.findings.judge("subscription.events", fine, seen)
        named = bool(event.event_id) and event.event_id not in ids
        seen = f"the event_id {event.event_id!r}" if event.event_id else "no event_id"
        session.findings.judge(
            "subscription.event-ids", named, seen if named or not event.event_id else f"{seen} twice"
        )
        ids.add(event.event_id)


def _judge_contents(session: Session, named: Named, deliveries: list[Delivery]) -> None:
    rule, tool = "subscription.event-schema", session.tool(named[0])
    if tool is None or not tool.event_schema:
        session.findings.not_applicable(rule, f"{named[0]}: it has no eventSchema")
        return
    for delivery in deliveries:
        event = delivery.written
        if isinstance(event, SubscriptionEvent) and not event.final:
            problems = misfit(tool.event_schema, event.text)
            session.findings.judge(rule, not problems, f"{named[0]}: {problems or 'it fits'}")


def _is_final(delivery: Delivery) -> bool:
    return isinstance(delivery.written, SubscriptionEvent) and delivery.written.final
