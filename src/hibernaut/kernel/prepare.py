"""What each input does to a thread (the table in the documentation's "How inputs are handled").

`prepare` is the first half of a round: it folds the inputs into the head, decides their dispositions, and leaves a
draft that says whether the model must be asked.
"""

from collections.abc import Sequence

from hibernaut.kernel import outputs, questions
from hibernaut.kernel.authority import OPEN, Judge
from hibernaut.kernel.budgets import park_if_spent
from hibernaut.kernel.commands import command, resume, resumes, settle
from hibernaut.kernel.commit import Disposition
from hibernaut.kernel.dispatch import dispatch
from hibernaut.kernel.draft import NOTHING_FOUND, Draft, Found, word_of
from hibernaut.kernel.ending import NOT_RUN, WOKEN
from hibernaut.kernel.event_intake import take_event, take_expiry
from hibernaut.kernel.family import end_if_done, hear_parent, hear_report
from hibernaut.kernel.head import Call, Head
from hibernaut.kernel.limits import ThreadOptions
from hibernaut.kernel.provenance import call_named_by
from hibernaut.kernel.queue import change_queue
from hibernaut.kernel.subscriptions import confirm
from hibernaut.kernel.waiting import STILL_RUNNING, forget, grace_ends, must_wait, refuse, wake
from hibernaut.messages.inputs import (
    Answer,
    Ask,
    Command,
    Delivered,
    Event,
    Forked,
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
from hibernaut.messages.text import duration

INTERRUPTED = "Interrupted by the user. It is unknown how far it got; check before repeating it."

PUNCTUAL = 2_000
"""Milliseconds that a timer may be late without a word about it."""

_ENDED = ("cancelled", "expired", "detached")

# To look a member of an enum up in its class takes a thousand instructions, and this one is looked up all the time.
_ACCEPTED = Disposition.ACCEPTED


def prepare(
    head: Head,
    inputs: Sequence[Delivered],
    options: ThreadOptions,
    now: int,
    family: int = 0,
    authority: Judge = OPEN,
    found: Found = NOTHING_FOUND,
) -> Draft:
    """Fold inputs into a thread. The head is the caller's no more: the draft changes it in place.

    `family`: threads that live below the root of its tree; needed when one of the inputs `may_spawn`.

    Results of open calls are applied first, then the rest in order, but no deadline before a result that is there; an
    event that must wait for an open call stays in the inbox for at most `options.event_grace`.

    `family` counts the threads below the root of its tree, `authority` is what the thread may do, `found` was looked up
    for the inputs.
    """
    draft = Draft(head, options, now, family, authority, found)
    if head.status == "closed":
        draft.dispose_all(inputs, Disposition.CLOSED)
        return draft
    inputs = change_queue(draft, inputs)
    if head.status != "open" and (by := next((one for one in inputs if resumes(one, head.status)), None)):
        draft.resumed_by = by.message_id
        resume(draft, by)
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
        _go_on(draft, woken=bool(inputs))
    return draft


def _go_on(draft: Draft, *, woken: bool) -> None:
    """Find out what an open thread does next."""
    head = draft.head
    if head.asks:
        outputs.remind(draft)
    if woken and head.owes:
        head.reported = False
    if head.turn:
        dispatch(draft)
        draft.release_results()
        if head.asks:  # what was refused has its results now
            outputs.remind(draft)
    elif woken and head.link is not None:
        end_if_done(draft)
    if draft.wants_completion:
        park_if_spent(draft)


def may_spawn(content: InputContent) -> bool:
    """Tell whether an input may make a child: an event that gets a thread of its own."""
    return isinstance(content, Event) and not content.associative


def _precedence(head: Head, arrived: Delivered) -> int:
    content = arrived.message.content if arrived.message else None
    if isinstance(content, Settlement):
        return 0
    if not isinstance(content, ToolResult | Timer):
        return 2
    if isinstance(content, Timer) and content.purpose in ("question", "expiry"):
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
        elif type(content) is Command:
            disposition = command(draft, content, arrived)
        elif type(content) is Settlement:
            disposition = settle(draft, content, arrived)
        elif (type(content) is UserText or type(content) is Ask) and is_blank(content.content):
            disposition = Disposition.REFUSED
        elif draft.head.status != "open":
            disposition = None
        else:
            disposition = _apply(draft, content, arrived)
        if message.metadata and disposition is _ACCEPTED:
            draft.take_metadata(message.metadata)
    if disposition is None:
        return False
    draft.dispose(arrived, disposition, tool)
    return True


def _apply(draft: Draft, content: InputContent, arrived: Delivered) -> Disposition | None:  # a table
    """Apply an input of an open thread, by its kind."""
    if type(content) is ToolResult:
        return _result(draft, content, arrived)
    if isinstance(content, UserText):
        return _user_text(draft, content, arrived.message_id)
    if isinstance(content, ToolResult):
        return _result(draft, content, arrived)
    if isinstance(content, Event):
        return take_event(draft, content, arrived)
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
    if isinstance(content, Seed | Forked):
        draft.items += content.items
        draft.head.owes = isinstance(content, Seed) or content.owes
        return Disposition.ACCEPTED
    return Disposition.STALE  # the decisions of operators do not come here


def _user_text(draft: Draft, content: UserText, message_id: str) -> Disposition:
    if type(content) is Ask and not outputs.has_room(draft):
        return outputs.refuse(draft, message_id)
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
    origin = content.origin if type(content) is Ask else ""
    draft.items.append(UserItem(content.content, content.user, origin))
    draft.head.owes = True
    draft.head.continuations = 0
    draft.forget_failures()
    if type(content) is Ask:
        outputs.ask(draft, content, message_id)
    elif draft.head.asks:
        outputs.step_aside(draft)
    return _ACCEPTED


def _result(draft: Draft, content: ToolResult, arrived: Delivered) -> Disposition | None:
    call = draft.head.calls.get(content.call_id)
    if call is None:
        return Disposition.STALE
    if call.state == "open" and call.held is None and call.id in draft.head.turn:
        _answer_open(draft, call, content)
        return _ACCEPTED
    if content.unknown and call.state != "detached":
        if call.state != "subscribed":  # that is known to go on, so it is still worked on
            draft.settled += (call.id,)
        return Disposition.STALE
    if call.state not in _ENDED:
        return Disposition.STALE
    if must_wait(draft, arrived):
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
        confirm(draft, call)
    else:
        call.state = "answered"
    if not subscribed:
        draft.settled += (call.id,)
    draft.watch_repeats(call, content.content, is_error=content.is_error)
    draft.release_results()


def _show_late(draft: Draft, call: Call, content: ToolResult, *, is_word: bool) -> None:
    """Show the result of a call that nothing waits for any more; `is_word`: it says that the call was cancelled."""
    wake(draft)
    draft.drop_timer(call)
    draft.inject(call, content.content, "late_result", is_error=content.is_error, display=content.display)
    if content.subscription and not content.is_error and call.state == "detached":
        confirm(draft, call)
    elif content.unknown:
        draft.settled += (call.id,)
        draft.remember(call, "expired")
    elif not is_word:
        draft.settled += (call.id,)
        forget(draft, call)


def _report(draft: Draft, content: Report, arrived: Delivered) -> Disposition | None:
    child_id = content.child_id
    child = draft.head.children.get(child_id)
    if child is None:
        return Disposition.STALE if content.closed else refuse(draft)
    quiet = content.closed and (child.event or child.ending) and is_blank(content.content)
    # A child's end never overtakes what it reported.
    if (not quiet or child_id in draft.blocked) and must_wait(draft, arrived):
        draft.blocked[child_id] = 0
        return None
    if quiet:
        del draft.head.children[child_id]
        return Disposition.ACCEPTED
    wake(draft)
    hear_report(draft, content)
    return Disposition.ACCEPTED


def _parent_message(draft: Draft, content: ParentMessage, arrived: Delivered) -> Disposition | None:
    if draft.head.link is None:
        return refuse(draft)
    if must_wait(draft, arrived):
        return None
    wake(draft)
    hear_parent(draft, draft.head.link, content)
    return Disposition.ACCEPTED


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
    if content.purpose == "expiry":
        return take_expiry(draft, call, arrived)
    if call is None or call.state not in ("open", "detached"):
        return Disposition.STALE
    if call.state == "detached" and must_wait(draft, arrived):
        return None
    call.timer = ""
    expired = f"Timed out: no result within {duration(call.deadline)}. It may still happen."
    if call.state == "detached":
        wake(draft)
        draft.inject(call, expired, "late_result", is_error=True)
        draft.forget_work(call, "expired")
    elif content.purpose == "sleep":
        draft.answer(call, _slept(draft.now - content.due))
    else:
        draft.end_work(call, "expired", expired)
        draft.watch_repeats(call, expired, is_error=True)
    draft.release_results()
    return Disposition.ACCEPTED


def _leave(draft: Draft, arrived: Delivered) -> None:
    """Leave an input in the inbox: for a while, or until the thread is resumed.

    One that waits already, and goes on waiting, is not mentioned again: there may be thousands of them.
    """
    if draft.head.status == "open":
        until = draft.patience.get(arrived.message_id) or grace_ends(draft, arrived)
        if draft.now < arrived.due <= until:
            return
        draft.deferred += ((arrived.message_id, until),)
        draft.dispositions.append((arrived.message_id, Disposition.DEFERRED))
    else:
        draft.dispositions.append((arrived.message_id, Disposition.HELD))


def _slept(late: int) -> str:
    woken = "Slept until the time set."
    return woken if late < PUNCTUAL else f"{woken} It was noticed {duration(late)} late."
