"""Questions of calls to people: kept in the head until they are answered, once, or their call has ended."""

from hibernaut.kernel.commit import Disposition
from hibernaut.kernel.draft import Draft
from hibernaut.kernel.head import Pending
from hibernaut.messages.inputs import Answer, Orphaned, Question, ToolResult
from hibernaut.messages.items import QuestionEndItem, QuestionItem

ANSWERED_ORPHAN = """\
A person was asked: {prompt}
{how}: {choice}
The process that asked has ended meanwhile: nothing that was to follow the answer has been done."""

_ALIVE = ("open", "detached")


def ask(draft: Draft, asked: Question) -> Disposition:
    """Keep a question and show it to people."""
    head, call = draft.head, draft.head.calls.get(asked.call_id)
    if asked.question_id in head.questions:
        return Disposition.DUPLICATE
    waiting = sum(one.answer < 0 for one in head.questions.values())
    if call is None or call.state not in _ALIVE or waiting >= draft.options.max_questions:
        head.refused += 1
        return Disposition.REFUSED
    if not asked.choices or not 0 <= asked.default < len(asked.choices):
        head.refused += 1
        return Disposition.REFUSED
    head.questions[asked.question_id] = Pending(
        asked.call_id, asked.prompt, asked.choices, asked.default, asked.due, asked.url, draft.now
    )
    draft.items.append(
        QuestionItem(asked.question_id, asked.call_id, asked.prompt, asked.choices, asked.default, asked.due, asked.url)
    )
    if asked.due:
        draft.timer("question", asked.due, asked.question_id)
    return Disposition.SURFACED


def answer(draft: Draft, given: Answer) -> Disposition:
    """Take a person's answer: the first one counts."""
    pending = draft.head.questions.get(given.question_id)
    if pending is None or pending.answer >= 0:
        return Disposition.STALE
    if not 0 <= given.choice < len(pending.choices):
        draft.head.refused += 1
        return Disposition.REFUSED
    if pending.due:
        draft.dropped.append(f"question:{given.question_id}")
    _settle(draft, given.question_id, pending, given.choice, "answered", given.user)
    return Disposition.SURFACED


def expire(draft: Draft, question_id: str) -> Disposition:
    """Let the default count, since nobody has answered in time."""
    pending = draft.head.questions.get(question_id)
    if pending is None or pending.answer >= 0:
        return Disposition.STALE
    _settle(draft, question_id, pending, pending.default, "expired", "")
    return Disposition.SURFACED


def orphan(draft: Draft, word: Orphaned) -> Disposition:
    """Take in that the process that asked has ended: the answer will be what the call is answered with."""
    found = False
    for question_id, pending in draft.head.questions.items():
        if pending.call_id == word.call_id:
            found = True
            pending.orphaned = True
            if pending.answer >= 0 and not _still_asks(draft, word.call_id):
                _tell_model(draft, question_id, pending, "Answer")
                break
    return Disposition.ACCEPTED if found else Disposition.STALE


def sweep(draft: Draft) -> None:
    """Dismiss the questions of calls that have ended."""
    head = draft.head
    for question_id, pending in list(head.questions.items()):
        call = head.calls.get(pending.call_id)
        if call is not None and call.state in _ALIVE and call.held is None:
            continue
        if call is not None and call.state == "detached":
            continue
        del head.questions[question_id]
        if pending.answer < 0:
            if pending.due:
                draft.dropped.append(f"question:{question_id}")
            state = call.state if call is not None else "answered"
            reason = {"cancelled": "the call was cancelled", "expired": "the call timed out"}.get(
                state, "the call has ended"
            )
            draft.items.append(QuestionEndItem(question_id, pending.call_id, "dismissed", text=reason))


def _still_asks(draft: Draft, call_id: str) -> bool:
    return any(one.call_id == call_id and one.answer < 0 for one in draft.head.questions.values())


def _settle(draft: Draft, question_id: str, pending: Pending, choice: int, outcome: str, user: str) -> None:
    pending.answer = choice
    draft.items.append(QuestionEndItem(question_id, pending.call_id, outcome, choice, pending.choices[choice], user))
    if pending.orphaned and not _still_asks(draft, pending.call_id):
        _tell_model(draft, question_id, pending, "Answer" if outcome == "answered" else "Nobody answered; the default")


def _tell_model(draft: Draft, question_id: str, pending: Pending, how: str) -> None:
    text = ANSWERED_ORPHAN.format(prompt=pending.prompt, how=how, choice=pending.choices[pending.answer])
    draft.send(f"asked:{question_id}", ToolResult(pending.call_id, text))
