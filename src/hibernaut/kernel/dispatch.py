"""Beginning calls: what may run is owed to the outside, what needs a person's leave asks for it, the rest is refused.

Leave is bound to one call and to what it would do: the question carries the digest of the tool and the arguments, and
what the person decided is held against the thread's authority of that moment once more.
"""

from typing import Any, Final

import msgspec

from hibernaut.codec import sha256
from hibernaut.ids import question_id
from hibernaut.kernel.authority import Facts, Judgement
from hibernaut.kernel.budgets import park_if_called_enough
from hibernaut.kernel.commit import Effect
from hibernaut.kernel.draft import Draft
from hibernaut.kernel.head import Call, Pending
from hibernaut.messages.items import QuestionItem
from hibernaut.messages.text import excerpt

LEAVE: Final = ("Allow", "Deny")
"""What a person answers who is asked whether a call may run."""

ALLOW: Final = LEAVE.index("Allow")
DENY: Final = LEAVE.index("Deny")

SHOWN_ARGUMENTS: Final = 2_000
"""Bytes of a call's arguments that the person is shown who is asked."""

REFUSED: Final = "Not run: this thread's authority does not allow it{reason}."
DENIED: Final = "Not run: {who} did not allow it."
NOT_IN_TIME: Final = "Not run: nobody allowed it in time."
ANOTHER: Final = "Not run: what was allowed was another call."
TOO_MANY: Final = "Not run: it needs a person's leave, and {count} questions wait already (option max_questions)."

_arguments: Final = msgspec.json.Decoder(dict[str, Any])


def dispatch(draft: Draft) -> None:
    """Begin as many queued calls of the turn as may be open at once."""
    free = draft.options.parallel_calls
    queued = []
    for call in draft.turn_calls():
        if call.held is None:
            if call.state == "queued":
                queued.append(call)
            elif call.state == "open":
                free -= 1
    for call in queued:
        if free <= 0 or draft.head.status != "open":
            return
        if call.state == "queued" and _begin(draft, call):
            free -= 1


def _begin(draft: Draft, call: Call) -> bool:
    """Begin a call; tell whether the turn waits for it now."""
    if call.mode == "rest":
        call.state = "open"
        if call.delay or call.due:
            call.due = call.due or draft.now + call.delay
            call.timer = draft.timer("sleep", call.due, call.id)
        return True
    judgement = _judge(draft, call)
    if judgement.decision == "deny":
        _refuse(draft, call, judgement)
        return False
    if judgement.decision == "ask":
        return _ask(draft, call, judgement)
    if park_if_called_enough(draft):
        return False
    call.state = "open"
    _work(draft, call)
    return True


def decide(draft: Draft, pending: Pending, choice: int, user: str) -> None:
    """Carry out what a person decided about a call, or what counts since nobody did."""
    call = draft.head.calls.get(pending.call_id)
    if call is None or not call.approval:
        return
    call.approval = ""
    judgement = _judge(draft, call)
    if choice != ALLOW:
        told = NOT_IN_TIME if pending.expired else DENIED.format(who=user or "a person")
    elif pending.approves != digest_of_call(call):
        told = ANOTHER
    elif judgement.decision == "deny":
        told = _refusal(judgement)
    else:
        _work(draft, call)
        return
    if call.state == "open":
        draft.answer(call, told, is_error=True)
        draft.release_results()
    else:
        draft.tell_later(call, told)
        draft.remember(call, "cancelled")


def digest_of_call(call: Call) -> bytes:
    """Return what leave for a call is bound to: SHA-256 of the tool's name and its arguments."""
    return sha256(call.tool.encode(), b"\0", call.arguments.encode())


def _judge(draft: Draft, call: Call) -> Judgement:
    authority = draft.authority
    if authority.is_open:
        return Judgement("allow")
    facts = Facts(call.server, frozenset(call.annotations))
    return authority.decide(call.tool, facts, _arguments.decode(call.arguments))


def _refuse(draft: Draft, call: Call, judgement: Judgement) -> None:
    told = _refusal(judgement)
    draft.answer(call, told, is_error=True)
    draft.watch_repeats(call, told, is_error=True)


def _refusal(judgement: Judgement) -> str:
    return REFUSED.format(reason=f": {judgement.reason}" if judgement.reason else "")


def _ask(draft: Draft, call: Call, judgement: Judgement) -> bool:
    head = draft.head
    waiting = sum(one.answer < 0 for one in head.questions.values())
    if waiting >= draft.options.max_questions:
        draft.answer(call, TOO_MANY.format(count=waiting), is_error=True)
        return False
    call.state = "open"
    call.approval = name = question_id(head.thread_id, call.id, 0)
    where = f" on {call.server}" if call.server else ""
    why = f"\n{judgement.reason}" if judgement.reason else ""
    prompt = f"May {call.tool}{where} run with {excerpt(call.arguments, SHOWN_ARGUMENTS)}?{why}"
    head.questions[name] = Pending(call.id, prompt, LEAVE, DENY, asked=draft.now, approves=digest_of_call(call))
    draft.items.append(QuestionItem(name, call.id, prompt, LEAVE, DENY))
    return True


def _work(draft: Draft, call: Call) -> None:
    """Owe the work of a call to the outside."""
    if draft.authority.is_bounded:
        draft.head.begun[call.tool] = draft.head.begun.get(call.tool, 0) + 1
    where, as_known = call.server, call.provider_id
    draft.effects += (Effect(call.id, "invoke", call.id, call.tool, call.arguments, not where, where, as_known),)
    if call.deadline:
        call.timer = draft.timer("deadline", draft.now + call.deadline, call.id)
