"""Answers that programs wait for: who asked first has the end of the next turn, in the form that was asked for.

A model that answers in another form is told so once, with the words of whoever checked it. What ends the waiting is an
`OutputItem` in the history: the answer, or why there is none.
"""

from collections.abc import Sequence
from typing import Final

from msgspec.structs import replace

from hibernaut.codec import to_json
from hibernaut.kernel.commit import Disposition
from hibernaut.kernel.draft import Draft
from hibernaut.kernel.forms import Given, Output, Unfit
from hibernaut.kernel.head import Call, Head, OpenAsk
from hibernaut.messages.inputs import Ask
from hibernaut.messages.items import OutputItem, UserItem
from hibernaut.messages.parts import Content, plain_text
from hibernaut.messages.text import shorten
from hibernaut.messages.tools import ANSWER_TOOL

MOST_ASKS: Final = 64
"""Programs that may wait for answers of one thread: what they wait for stands in its head."""

QUESTION: Final = 200
"""Characters of a question by which it is told from others."""

TAKEN: Final = "Taken."
TAKEN_BEFORE: Final = "Not taken: the answer was given already."
CUT: Final = "the output limit cut it off; make it shorter"
NOTHING: Final = "nothing was answered"
BESIDE: Final = "it has to be given alone, when all other calls have their results"
UNFIT: Final = (
    "[The answer to {question} is read by a program and cannot be taken: {reason}. Give it again, as a whole.]"
)
AGAIN: Final = "[This answer is read by a program and cannot be taken: {reason}. Give it again, as a whole.]"
WAITS: Final = "[A program waits for the answer to this, and to nothing else: {question}]"


def ask(draft: Draft, content: Ask, message_id: str) -> None:
    """Let a program wait for an answer to what was just said."""
    head, asks = draft.head, draft.head.asks
    aside = bool(asks) and asks[0].aside  # then somebody is answered first who has spoken before
    question, since = quoted(content.content), head.version + 1
    head.asks = (*asks, OpenAsk(message_id, content.form, question, since, aside=aside, told=not asks))
    if asks and not aside:
        _tell_which(draft)


def refuse(draft: Draft, message_id: str) -> Disposition:
    """Turn away a program for which there is no room."""
    problem = f"{MOST_ASKS} programs wait for answers of this thread already; ask later, with another message id"
    draft.items.append(OutputItem(message_id, "", problem))
    return Disposition.REFUSED


def has_room(draft: Draft) -> bool:
    """Tell whether one more program may wait."""
    return len(draft.head.asks) < MOST_ASKS


def step_aside(draft: Draft) -> None:
    """Let somebody be answered who has spoken beside the programs that wait."""
    draft.head.asks = tuple([replace(one, aside=True, told=False) for one in draft.head.asks])


def forget_told(draft: Draft) -> None:
    """Note that the model may not see any more which question it has to answer."""
    draft.head.asks = tuple([replace(one, told=False) for one in draft.head.asks])


def form_wanted(head: Head) -> str:
    """Return the form that the next answer is to have, "" if any will do."""
    wanted = head.asks[0].form if head.asks and not head.asks[0].aside else ""
    return "" if wanted and _is_at_work(head) else wanted


def withdraw(draft: Draft, message_id: str, reason: str) -> bool:
    """Let a program wait no more; tell whether it did."""
    head = draft.head
    left = tuple([one for one in head.asks if one.id != message_id])
    if len(left) == len(head.asks):
        return False
    head.asks = left
    draft.items.append(OutputItem(message_id, "", f"it was dropped by an operator{reason}"))
    return True


# What the model answers


def take_call(output: Output, text: str, *, alone: bool, last: bool) -> tuple[str, str]:
    """Take what the answering tool was called with.

    `alone`: the turn consists of such calls; `last`: an answer was sent back before.

    Returns:
        Why it is not taken ("" if it is), and what was given, as JSON.
    """
    found = output.form.judge(text)
    value = found.value
    if isinstance(output.given, Given):
        return TAKEN_BEFORE, value
    output.given = found if alone or isinstance(found, Unfit) else Unfit(BESIDE, value)
    if isinstance(output.given, Given):
        return "", value
    then = "No answer is waited for any more." if last else "Give it again, as a whole."
    return f"Not taken: {output.given.reason}. {then}", value


def end_calls(draft: Draft, calls: Sequence[Call]) -> bool:
    """End a turn with calls; returns whether it was nothing but an answer, so that the turn is over with it."""
    head, output = draft.head, draft.output
    if output is None or not head.asks or ANSWER_TOOL not in [call.tool for call in calls]:
        return False
    answer = output.given or Unfit(CUT)
    if isinstance(answer, Unfit) and not head.asks[0].tried:
        head.asks = (replace(head.asks[0], tried=True), *head.asks[1:])
        return False
    only = all(call.tool == ANSWER_TOOL for call in calls) and not head.turn and head.status == "open"
    if only:
        head.owes = False
    _end(draft, answer)
    return only and not head.owes


def end_text(draft: Draft, text: str, *, cut: bool = False) -> bool:
    """End a turn in plain text; returns whether it is over, or (False) the model has something to answer still."""
    head = draft.head
    if not head.asks:
        return True
    first = head.asks[0]
    if first.aside or _is_at_work(head):
        # It was for somebody else, or what the answer needs is still under way.
        head.asks = tuple([replace(one, aside=False, told=False) for one in head.asks])
        remind(draft)
        return not head.owes
    if first.form:
        answer = Unfit(CUT) if cut else draft.output.form.judge(text) if draft.output and text else Unfit(NOTHING)
    else:
        whole = first.said + text if head.continuations else text
        answer = Given(whole) if whole and not whole.isspace() else Unfit(NOTHING)
    if isinstance(answer, Unfit) and not first.tried:
        head.asks = (replace(first, tried=True), *head.asks[1:])
        draft.items.append(UserItem(AGAIN.format(reason=answer.reason), origin="runtime"))
        head.owes = True
        return False
    _end(draft, answer)
    return not head.owes


def keep_beginning(draft: Draft, text: str) -> None:
    """Keep the beginning of an answer that the output limit has cut, and that goes on; the cut is counted already."""
    asks = draft.head.asks
    if asks and not asks[0].aside:
        before = asks[0].said if draft.head.continuations > 1 else ""
        draft.head.asks = (replace(asks[0], said=before + text), *asks[1:])


def remind(draft: Draft) -> None:
    """Let the model go on with an answer that a program waits for, and say which, unless that is what it does.

    Not while something is at work that may be for it, nor before somebody else is answered who has spoken since.
    """
    head = draft.head
    if not head.asks or head.turn or head.status != "open" or _is_at_work(head):
        return
    first = head.asks[0]
    if not head.owes or not (first.told or first.aside):
        _tell_which(draft)


def give_up(draft: Draft, problem: str) -> None:
    """Tell all programs that wait that there will be no answer."""
    draft.items += [OutputItem(one.id, "", problem) for one in draft.head.asks]
    draft.head.asks = ()


def _end(draft: Draft, answer: Given | Unfit) -> None:
    head = draft.head
    given = ("", answer.reason) if isinstance(answer, Unfit) else (answer.value, "")
    draft.items.append(OutputItem(head.asks[0].id, *given))
    head.asks = head.asks[1:]
    remind(draft)


def _tell_which(draft: Draft) -> None:
    head = draft.head
    draft.items.append(UserItem(WAITS.format(question=head.asks[0].question), origin="runtime"))
    head.asks = tuple([replace(one, aside=False, told=at == 0) for at, one in enumerate(head.asks)])
    head.owes, head.continuations = True, 0


def quoted(content: Content) -> str:
    """Return a question as notes quote it: a JSON string, shortened."""
    return to_json(shorten(plain_text(content), QUESTION))


def _is_at_work(head: Head) -> bool:
    """Tell whether something goes on beside the conversation that was begun for the answer which is due."""
    since = head.asks[0].since
    return any(call.state == "detached" and call.version >= since for call in head.calls.values())
