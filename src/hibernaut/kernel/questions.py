"""Questions of calls to people: kept in the head until they are answered, once, or their call has ended.

Normally the process that asked reads the answer from the head and goes on. When that process has ended (`Orphaned`),
the answer is what its call is answered with: nothing can do what was to follow it. A tool server is told the answer,
and the default when the question is dismissed: it goes on by itself. Whoever cancels what it wants authorized cancels
its call.
"""

from hibernaut.kernel.commit import Disposition
from hibernaut.kernel.dispatch import decide
from hibernaut.kernel.draft import Draft
from hibernaut.kernel.head import Call, Pending
from hibernaut.messages.inputs import Answer, Command, Orphaned, Question, ToolResult
from hibernaut.messages.items import QuestionEndItem, QuestionItem

ORPHANED = """\
{asked}
The process that asked had ended by then, before it heard of that: what was to follow has not been done. Whatever came \
before the question has been done."""

ANSWERED = "A person was asked: {prompt}\nThe answer: {choice}"

EXPIRED = "A person was asked: {prompt}\nNobody answered in time, so that this counts: {choice}"

LOST = (
    "The process that ran {tool} ended while it was to ask a person, who was not asked. It is unknown how far it got; "
    "check before repeating it."
)

_ALIVE = ("open", "detached")


def ask(draft: Draft, asked: Question) -> Disposition:
    """Keep a question and show it to people."""
    head, call = draft.head, draft.head.calls.get(asked.call_id)
    if asked.question_id in head.questions:
        return Disposition.DUPLICATE
    waiting = sum(one.answer < 0 for one in head.questions.values())
    fits = bool(asked.choices) and 0 <= asked.default < len(asked.choices)
    if not _may_ask(call) or waiting >= draft.options.max_questions or not fits:
        head.refused += 1
        return Disposition.REFUSED
    head.questions[asked.question_id] = Pending(
        asked.call_id,
        asked.prompt,
        asked.choices,
        asked.default,
        asked.due,
        asked.url,
        draft.now,
        reply_url=asked.reply_url,
    )
    draft.items.append(
        QuestionItem(asked.question_id, asked.call_id, asked.prompt, asked.choices, asked.default, asked.due, asked.url)
    )
    if asked.due:
        draft.timer("question", asked.due, asked.question_id)
    return Disposition.SURFACED


def answer(draft: Draft, given: Answer, accepted: int) -> Disposition:
    """Take a person's answer, accepted at that moment: the first one counts, unless it came too late."""
    pending = draft.head.questions.get(given.question_id)
    if pending is None or pending.answer >= 0:
        return Disposition.STALE
    if pending.due and accepted >= pending.due:
        expire(draft, given.question_id)
        return Disposition.STALE
    if not 0 <= given.choice < len(pending.choices):
        draft.head.refused += 1
        return Disposition.REFUSED
    _settle(draft, given.question_id, pending, given.choice, given.user)
    return Disposition.SURFACED


def expire(draft: Draft, question_id: str) -> Disposition:
    """Let the default count, since nobody has answered in time."""
    pending = draft.head.questions.get(question_id)
    if pending is None or pending.answer >= 0:
        return Disposition.STALE
    pending.expired = True
    _settle(draft, question_id, pending, pending.default, "")
    return Disposition.SURFACED


def orphan(draft: Draft, word: Orphaned) -> Disposition:
    """Take in that the process that asked has ended: the answer will be what the call is answered with."""
    call = draft.head.calls.get(word.call_id)
    if call is None or not _may_ask(call):
        return Disposition.STALE
    for pending in _of(draft, word.call_id):
        pending.orphaned = True
    _answer_orphan(draft, word.call_id)
    return Disposition.ACCEPTED


def sweep(draft: Draft) -> None:
    """Dismiss the questions of calls that have ended."""
    head = draft.head
    for question_id, pending in list(head.questions.items()):
        call = head.calls.get(pending.call_id)
        if _may_ask(call):
            continue
        del head.questions[question_id]
        if pending.answer < 0:
            _forget_timer(draft, question_id, pending)
            if call is not None and call.state in ("cancelled", "expired"):
                _tell_server(draft, call, question_id, pending, pending.default)
            draft.items.append(QuestionEndItem(question_id, pending.call_id, "dismissed", text=_reason(draft, call)))


def _may_ask(call: Call | None) -> bool:
    """Tell whether a call is neither answered nor over."""
    return call is not None and (call.state == "detached" or (call.state == "open" and call.held is None))


def _reason(draft: Draft, call: Call | None) -> str:
    if draft.head.status in ("stopped", "closed"):
        return f"the thread was {draft.head.status}"
    state = call.state if call is not None else "answered"
    return {"cancelled": "the call was cancelled", "expired": "the call timed out"}.get(state, "the call has ended")


def _of(draft: Draft, call_id: str) -> list[Pending]:
    asked = draft.head.questions.values()
    return [pending for pending in asked if pending.call_id == call_id and not pending.approves]


def _settle(draft: Draft, question_id: str, pending: Pending, choice: int, user: str) -> None:
    pending.answer = choice
    outcome = "expired" if pending.expired else "answered"
    if not pending.expired:
        _forget_timer(draft, question_id, pending)
    draft.items.append(QuestionEndItem(question_id, pending.call_id, outcome, choice, pending.choices[choice], user))
    if pending.approves:
        decide(draft, pending, choice, user)
        return
    if (call := draft.head.calls.get(pending.call_id)) is not None and call.server:
        _tell_server(draft, call, question_id, pending, choice)
        if pending.url and choice == pending.default:
            command = Command("cancel", call.id, "it was not authorized")
            draft.send(f"unauthorized:{question_id}", command)
    if pending.orphaned:
        _answer_orphan(draft, pending.call_id)


def _tell_server(draft: Draft, call: Call, question_id: str, pending: Pending, choice: int) -> None:
    if pending.reply_url:
        draft.tell_choice(call, question_id, pending.reply_url, choice)


def _forget_timer(draft: Draft, question_id: str, pending: Pending) -> None:
    if pending.due:
        draft.withdraw(f"question:{question_id}")


def _answer_orphan(draft: Draft, call_id: str) -> None:
    """Answer a call whose process has ended with what people said, once all of its questions are settled."""
    asked = _of(draft, call_id)
    if any(pending.answer < 0 for pending in asked):
        return
    told = "\n".join(
        (EXPIRED if pending.expired else ANSWERED).format(prompt=pending.prompt, choice=pending.choices[pending.answer])
        for pending in asked
    )
    text = ORPHANED.format(asked=told) if asked else LOST.format(tool=draft.head.calls[call_id].tool)
    draft.send(f"asked:{call_id}", ToolResult(call_id, text, is_error=not asked, unknown=True))
