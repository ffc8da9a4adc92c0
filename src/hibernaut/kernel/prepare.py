"""What each input does to a thread (the table in the documentation's "How inputs are handled").

`prepare` is the first half of a round: it folds the inputs into the head, decides their dispositions, and leaves a
draft that says whether the model must be asked.
"""

from collections.abc import Mapping, Sequence

from hibernaut.kernel import questions
from hibernaut.kernel.authority import OPEN, Judge
from hibernaut.kernel.commit import Disposition
from hibernaut.kernel.dispatch import dispatch, spent_on
from hibernaut.kernel.draft import Draft, word_of
from hibernaut.kernel.ending import NOT_RUN, WOKEN, close, stop
from hibernaut.kernel.family import can_go_deeper, can_route, end_if_done, hear_parent, hear_report, route
from hibernaut.kernel.head import Call, Head
from hibernaut.kernel.limits import ThreadOptions
from hibernaut.kernel.provenance import call_named_by
from hibernaut.messages.inputs import (
    Answer,
    Command,
    Delivered,
    Event,
    InputContent,
    Orphaned,
    ParentMessage,
    Question,
    Report,
    Seed,
    Settlement,
    Timer,
    ToolResult,
    UserText,
)
from hibernaut.messages.items import UserItem
from hibernaut.messages.parts import is_blank

STILL_RUNNING = "Still running. The result will arrive later as an event."
INTERRUPTED = "Interrupted by the user. It is unknown how far it got; check before repeating it."

UNCONFIRMED = (
    "The subscription has ended, without having been confirmed. What it brought until then has been dealt with."
)

NO_ROOM = 15 * 60_000
"""Milliseconds after which an event that waits for its turn is looked at again, if nothing made room before."""

TREE_FULL = 15_000
"""The same when its tree is full: room that is made elsewhere in it wakes nobody."""

PUNCTUAL = 2_000
"""Milliseconds that a timer may be late without a word about it."""

_ENDED = ("cancelled", "expired", "detached")


def prepare(
    head: Head,
    inputs: Sequence[Delivered],
    options: ThreadOptions,
    now: int,
    family: int = 0,
    authority: Judge = OPEN,
    authorities: Mapping[bytes, Judge] | None = None,
) -> Draft:
    """Fold inputs into a thread. The head is the caller's no more: the draft changes it in place.

    `family`: threads that live below the root of its tree; needed when one of the inputs `may_spawn`.

    Results of open calls are applied first, then the rest in order, but no deadline before a result that is there; an
    event that must wait for an open call stays in the inbox for at most `options.event_grace`.

    `authority` is what the thread may do, `authorities` what inputs may change that to, by digest ("": its launch's).
    """
    draft = Draft(head, options, now)
    draft.family, draft.authority = family, authority
    draft.authorities = authorities or {}
    if head.status == "closed":
        draft.dispose_all(inputs, Disposition.CLOSED)
        return draft
    if head.status != "open" and any(_resumes(arrived) for arrived in inputs):
        _resume(draft)
    if len(inputs) == 1 and _take(draft, inputs[0]):
        pending: list[Delivered] = []
    else:
        pending, before = sorted(inputs, key=lambda arrived: _precedence(head, arrived)), len(inputs) + 1
        while len(pending) < before:
            pending, before = _take_all(draft, pending), len(pending)
    for arrived in pending:
        _leave(draft, arrived)
    if head.questions:
        questions.sweep(draft)
    if head.status == "open":
        if inputs and head.owes:
            head.reported = False
        if head.turn:
            dispatch(draft)
            draft.release_results()
        elif inputs and head.link is not None:
            end_if_done(draft)
        if options.token_budget or draft.authority.tokens:
            _check_budget(draft)
    return draft


def may_spawn(content: InputContent) -> bool:
    """Tell whether an input may make a child: an event that gets a thread of its own."""
    return isinstance(content, Event) and not content.associative


def _resumes(arrived: Delivered) -> bool:
    content = arrived.message.content if arrived.message else None
    if isinstance(content, UserText):
        return not is_blank(content.content)
    return isinstance(content, Command) and content.action == "resume"


def _resume(draft: Draft) -> None:
    head = draft.head
    draft.notice("resumed", f"was {head.status}")
    head.status, head.reason = "open", ""
    head.repeats = head.continuations = 0
    head.repeated = b""
    head.overflowed = False
    head.granted = _used(head)
    head.begun = {}
    draft.forget_failures()


def _precedence(head: Head, arrived: Delivered) -> int:
    content = arrived.message.content if arrived.message else None
    if isinstance(content, Settlement):
        return 0
    if not isinstance(content, ToolResult | Timer):
        return 2
    if isinstance(content, Timer) and content.purpose == "question":
        return 3
    call = head.calls.get(content.call_id)
    is_open = call is not None and call.state == "open"
    if isinstance(content, Timer) and content.purpose == "deadline":
        return 1 if is_open else 3
    return 0 if is_open else 2


def _take_all(draft: Draft, inputs: Sequence[Delivered]) -> list[Delivered]:
    """Apply inputs in order and return those that must wait; what comes behind one that waits does not overtake it."""
    waiting: list[Delivered] = []
    draft.queueing = False
    draft.blocked.clear()
    for arrived in inputs:
        if not _take(draft, arrived):
            waiting.append(arrived)
            draft.queueing = draft.queueing or arrived.message_id not in draft.patience
    return waiting


def _take(draft: Draft, arrived: Delivered) -> bool:
    """Apply one input; False leaves it where it is (it must wait, or the thread does not run)."""
    message = arrived.message
    call = draft.head.calls.get(call_named_by(arrived.message_id))
    tool = call.tool if call is not None else ""
    if message is None:
        draft.notice("refused", f"input {arrived.message_id} cannot be read: {arrived.problem}")
        disposition: Disposition | None = Disposition.REFUSED
    else:
        content = message.content
        if draft.head.status == "closed":
            disposition = Disposition.CLOSED
        elif isinstance(content, Command):
            disposition = _command(draft, content)
        elif isinstance(content, Settlement):
            disposition = _settlement(draft, content, arrived)
        elif isinstance(content, UserText) and is_blank(content.content):
            disposition = Disposition.REFUSED
        elif draft.head.status != "open":
            disposition = None
        else:
            disposition = _apply(draft, content, arrived)
        if disposition is Disposition.ACCEPTED and message.metadata:
            draft.take_metadata(message.metadata)
    if disposition is None:
        return False
    draft.dispose(arrived, disposition, tool)
    return True


def _apply(draft: Draft, content: InputContent, arrived: Delivered) -> Disposition | None:  # a table
    """Apply an input of an open thread, by its kind."""
    if isinstance(content, UserText):
        return _user_text(draft, content)
    if isinstance(content, ToolResult):
        return _result(draft, content, arrived)
    if isinstance(content, Event):
        return _event(draft, content, arrived)
    if isinstance(content, Timer):
        return _timer(draft, content, arrived)
    if isinstance(content, Report):
        return _report(draft, content, arrived)
    if isinstance(content, ParentMessage):
        return _parent_message(draft, content, arrived)
    if isinstance(content, Question):
        return questions.ask(draft, content)
    if isinstance(content, Answer):
        return questions.answer(draft, content, arrived.accepted)
    if isinstance(content, Orphaned):
        return questions.orphan(draft, content)
    if isinstance(content, Seed):
        draft.items += content.items
        draft.head.owes = True
        return Disposition.ACCEPTED
    return _settlement(draft, content, arrived) if isinstance(content, Settlement) else _command(draft, content)


def _user_text(draft: Draft, content: UserText) -> Disposition:
    for call in draft.turn_calls() if draft.head.turn else ():
        if call.held is not None:
            continue
        if call.state == "queued":
            draft.answer(call, NOT_RUN, is_error=True)
        elif call.mode == "rest":
            draft.answer(call, WOKEN)
        elif draft.options.on_user_text == "cancel":
            draft.end_work(call, "cancelled", INTERRUPTED)
        else:
            draft.detach(call, STILL_RUNNING)
    draft.release_results()
    draft.items.append(UserItem(content.content, content.user))
    draft.head.owes = True
    draft.head.continuations = 0
    draft.forget_failures()
    return Disposition.ACCEPTED


def _result(draft: Draft, content: ToolResult, arrived: Delivered) -> Disposition | None:
    call = draft.head.calls.get(content.call_id)
    if call is None:
        return Disposition.STALE
    if call.state == "open" and call.held is None and call.id in draft.head.turn:
        _answer_open(draft, call, content)
        return Disposition.ACCEPTED
    if content.unknown and call.state != "detached":
        if call.state != "subscribed":  # that is known to go on, so it is still worked on
            draft.settled.append(call.id)
        return Disposition.STALE
    if call.state not in _ENDED:
        return Disposition.STALE
    if _must_wait(draft, arrived):
        return None
    _show_late(draft, call, content, is_word=arrived.message_id == word_of(call))
    return Disposition.ACCEPTED


def _answer_open(draft: Draft, call: Call, content: ToolResult) -> None:
    """Give a call that the turn waits for its result."""
    draft.hold(call, content.content, is_error=content.is_error, display=content.display)
    subscribed = content.subscription and not content.is_error
    if content.unknown:
        draft.remember(call, "expired")
    elif subscribed:
        call.state, call.mode = "subscribed", "subscription"
    else:
        call.state = "answered"
    if not subscribed:
        draft.settled.append(call.id)
    draft.watch_repeats(call, content.content, is_error=content.is_error)
    draft.release_results()


def _show_late(draft: Draft, call: Call, content: ToolResult, *, is_word: bool) -> None:
    """Show the result of a call that nothing waits for any more; `is_word`: it says that the call was cancelled."""
    _wake(draft)
    draft.drop_timer(call)
    draft.inject(call, content.content, "late_result", is_error=content.is_error, display=content.display)
    if content.subscription and not content.is_error and call.state == "detached":
        call.state, call.mode = "subscribed", "subscription"
    elif content.unknown:
        draft.settled.append(call.id)
        draft.remember(call, "expired")
    elif not is_word:
        draft.settled.append(call.id)
        _forget(draft, call)


def _event(draft: Draft, content: Event, arrived: Delivered) -> Disposition | None:
    call = draft.head.calls.get(content.call_id)
    if call is None or not _brings_events(call):
        return _refuse(draft)
    threaded = not content.associative and can_go_deeper(draft)
    if call.id not in draft.blocked and _is_too_fast(draft, call):
        draft.blocked[call.id] = (call.minute + 1) * 60_000
    elif call.id not in draft.blocked and threaded and not can_route(draft, call):
        full = draft.family >= draft.options.max_descendants
        draft.blocked[call.id] = draft.now + (TREE_FULL if full else NO_ROOM)
    draft.patience.pop(arrived.message_id, None)
    if call.id in draft.blocked:
        if until := draft.blocked[call.id]:
            draft.patience[arrived.message_id] = until
        return None
    if threaded:
        route(draft, call, content, arrived.message_id)
    elif _must_wait(draft, arrived):
        draft.blocked[call.id] = 0
        return None
    else:
        _wake(draft)
        draft.inject(call, content.content, "event", final=content.final)
    _note_event(draft, call, content)
    if content.final:
        draft.drop_timer(call)
        draft.settled.append(call.id)
        if call.state == "open" and call.held is None:
            draft.answer(call, UNCONFIRMED)
            draft.release_results()
        else:
            _forget(draft, call)
    return Disposition.ROUTED if threaded else Disposition.ACCEPTED


def _brings_events(call: Call) -> bool:
    """Tell whether a call is a subscription, or may be one: a tool server says so with its first answer.

    An event may overtake that answer when it has to be delivered anew.
    """
    maybe = (call.mode == "subscription" or bool(call.server)) and call.state in ("open", "detached")
    return call.state == "subscribed" or maybe


def _is_too_fast(draft: Draft, call: Call) -> bool:
    most = draft.options.max_events_per_minute
    return bool(most) and call.taken >= most and call.minute == draft.now // 60_000


def _note_event(draft: Draft, call: Call, event: Event) -> None:
    call.mode = "subscription"
    if event.event_id:
        call.last_event = event.event_id
    call.sequence = max(call.sequence, event.sequence)
    minute = draft.now // 60_000
    call.taken = call.taken + 1 if call.minute == minute else 1
    call.minute = minute


def _report(draft: Draft, content: Report, arrived: Delivered) -> Disposition | None:
    child_id = content.child_id
    child = draft.head.children.get(child_id)
    if child is None:
        return Disposition.STALE if content.closed else _refuse(draft)
    quiet = content.closed and (child.event or child.ending) and is_blank(content.content)
    # A child's end never overtakes what it reported.
    if (not quiet or child_id in draft.blocked) and _must_wait(draft, arrived):
        draft.blocked[child_id] = 0
        return None
    if quiet:
        del draft.head.children[child_id]
        return Disposition.ACCEPTED
    _wake(draft)
    hear_report(draft, content)
    return Disposition.ACCEPTED


def _parent_message(draft: Draft, content: ParentMessage, arrived: Delivered) -> Disposition | None:
    if draft.head.link is None:
        return _refuse(draft)
    if _must_wait(draft, arrived):
        return None
    _wake(draft)
    hear_parent(draft, draft.head.link, content)
    return Disposition.ACCEPTED


def _refuse(draft: Draft) -> Disposition:
    draft.head.refused += 1
    return Disposition.REFUSED


def _timer(draft: Draft, content: Timer, arrived: Delivered) -> Disposition | None:
    head = draft.head
    if content.purpose == "retry":
        if arrived.message_id != head.retry:
            return Disposition.STALE
        head.retry = ""
        draft.retrying = True
        return Disposition.ACCEPTED
    if content.purpose == "question":
        return questions.expire(draft, content.call_id)
    call = head.calls.get(content.call_id)
    if call is None or call.state not in ("open", "detached"):
        return Disposition.STALE
    if call.state == "detached" and _must_wait(draft, arrived):
        return None
    call.timer = ""
    expired = f"Timed out: no result within {_duration(call.deadline)}. It may still happen."
    if call.state == "detached":
        _wake(draft)
        draft.inject(call, expired, "late_result", is_error=True)
        draft.forget_work(call, "expired")
    elif content.purpose == "sleep":
        draft.answer(call, _slept(draft.now - content.due))
    else:
        draft.end_work(call, "expired", expired)
        draft.watch_repeats(call, expired, is_error=True)
    draft.release_results()
    return Disposition.ACCEPTED


def _command(draft: Draft, content: Command) -> Disposition:
    head = draft.head
    if content.action == "resume":
        if head.status != "open":  # it was stopped or parked by an input before this one
            _resume(draft)
        return Disposition.ACCEPTED
    if content.action == "cancel":
        call = head.calls.get(content.call_id)
        if call is None or call.state in ("answered", "cancelled", "expired"):
            return Disposition.STALE
        _cancel(draft, call, f"an operator ({content.reason})" if content.reason else "an operator")
        draft.release_results()
        return Disposition.ACCEPTED
    if content.action == "authorize":
        return _authorize(draft, content)
    if content.action == "park":
        if head.status != "open":
            return Disposition.STALE
        draft.park(content.reason or "parked by an operator")
        return Disposition.ACCEPTED
    if content.action == "compact":
        draft.compacting = head.status == "open"
        if not draft.compacting:
            draft.notice("compaction_failed", f"the thread is {head.status}; resume it, then compact it")
        return Disposition.ACCEPTED if draft.compacting else Disposition.STALE
    if content.action == "close":
        close(draft, content.reason)
    elif head.status == "stopped":
        return Disposition.STALE
    else:
        stop(draft, content.reason)
    return Disposition.ACCEPTED


def _authorize(draft: Draft, content: Command) -> Disposition:
    """Change what the thread may do, for all that comes after."""
    if content.authority not in draft.authorities:
        draft.notice("refused", "the authority that it should have is not in the store")
        return Disposition.REFUSED
    draft.head.authority, draft.authority = content.authority, draft.authorities[content.authority]
    draft.reauthorized = True
    draft.notice("authority", content.reason)
    return Disposition.ACCEPTED


def _settlement(draft: Draft, content: Settlement, arrived: Delivered) -> Disposition | None:
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
        if head.status == "open" and _must_wait(draft, arrived):
            return None
        _wake(draft)
        draft.drop_timer(call)
        draft.inject(call, content.content, "late_result", is_error=content.is_error)
    draft.settled.append(call.id)
    call.approval = ""
    draft.remember(call, "expired")
    why = f": {content.reason}" if content.reason else ""
    draft.notice("settled", f"{call.tool} {call.id} was answered by {content.user or 'an operator'}{why}")
    draft.release_results()
    return Disposition.ACCEPTED


def _cancel(draft: Draft, call: Call, who: str) -> None:
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


def _must_wait(draft: Draft, arrived: Delivered) -> bool:
    return (draft.works() or draft.queueing) and draft.now < _grace_ends(draft, arrived)


def _grace_ends(draft: Draft, arrived: Delivered) -> int:
    content = arrived.message.content if arrived.message else None
    since = content.due if isinstance(content, Timer) else arrived.accepted
    return since + draft.options.event_grace


def _leave(draft: Draft, arrived: Delivered) -> None:
    """Leave an input in the inbox: for a while, or until the thread is resumed.

    One that waits already, and goes on waiting, is not mentioned again: there may be thousands of them.
    """
    if draft.head.status == "open":
        until = draft.patience.get(arrived.message_id) or _grace_ends(draft, arrived)
        if draft.now < arrived.due <= until:
            return
        draft.deferred.append((arrived.message_id, until))
        draft.dispositions.append((arrived.message_id, Disposition.DEFERRED))
    else:
        draft.dispositions.append((arrived.message_id, Disposition.HELD))


def _wake(draft: Draft) -> None:
    """Make room for an event: resting calls are answered, working ones go on and report later."""
    for call in draft.turn_calls():
        if call.held is not None:
            continue
        if call.state == "queued":
            draft.answer(call, NOT_RUN, is_error=True)
        elif call.mode == "rest":
            draft.answer(call, WOKEN)
        else:
            draft.detach(call, STILL_RUNNING)
    draft.release_results()


def _forget(draft: Draft, call: Call) -> None:
    if call.id in draft.head.turn:  # its result waits for those of calls before it
        call.state = "answered"
    else:
        del draft.head.calls[call.id]


def _check_budget(draft: Draft) -> None:
    head = draft.head
    budget = min(bound for bound in (draft.options.token_budget, draft.authority.tokens) if bound)
    used = _used(head)
    if used - head.granted >= budget and draft.wants_completion:
        spent = f"{head.usage.input:,} for prompts and {head.usage.output:,} for answers"
        calls = f"; calls begun: {spent_on(head.begun)}" if head.begun else ""
        draft.park(
            f"the token budget of {budget:,} is used up ({used:,} used in all, {spent}{calls}); "
            "resuming grants as much again"
        )


def _used(head: Head) -> int:
    return head.usage.input + head.usage.output


def _slept(late: int) -> str:
    woken = "Slept until the time set."
    return woken if late < PUNCTUAL else f"{woken} It was noticed {_duration(late)} late."


def _duration(milliseconds: int) -> str:
    seconds = milliseconds / 1000
    for unit, size in (("days", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:.4g} {unit}"
    return f"{seconds:g} s"
