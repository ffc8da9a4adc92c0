"""Answers that programs wait for: who asked first has the end of the next turn, in the form that was asked for.

A model that answers in another form is told so once, with the words of whoever checked it. What ends the waiting is an
`OutputItem` in the history: the answer, or why there is none.
"""

from collections.abc import Sequence
from typing import Final

from msgspec.structs import replace

from hibernaut.kernel.draft import Draft
from hibernaut.kernel.forms import Given, Output, Unfit
from hibernaut.kernel.head import Call, OpenAsk
from hibernaut.messages.inputs import Ask
from hibernaut.messages.items import OutputItem, UserItem
from hibernaut.messages.tools import ANSWER_TOOL

MOST_ASKS: Final = 64
"""Programs that may wait for answers of one thread: what they wait for stands in its head."""

TAKEN: Final = "Taken."
TAKEN_BEFORE: Final = "Not taken: the answer was given already."
CUT: Final = "the output limit cut it off; make it shorter"
NOTHING: Final = "the model answered with nothing"
AGAIN: Final = "[This answer is read by a program and cannot be taken: {reason}. Give it again, as a whole.]"
GO_ON: Final = "[A program still waits for your answer: go on.]"
NEXT: Final = "[That was the answer to one message. Another one waits for an answer of its own: give it now.]"


def ask(draft: Draft, content: Ask, message_id: str) -> None:
    """Let a program wait for an answer to what was just said."""
    draft.head.asks = (*draft.head.asks, OpenAsk(message_id, content.form))


def has_room(draft: Draft) -> bool:
    """Tell whether one more program may wait."""
    return len(draft.head.asks) < MOST_ASKS


def take_call(output: Output, text: str) -> str:
    """Take what the answering tool was called with; returns why it is not taken, "" if it is."""
    if isinstance(output.given, Given):
        return TAKEN_BEFORE
    output.given = output.form.judge(text)
    return "" if isinstance(output.given, Given) else f"Not taken: {output.given.reason}. Give it again, as a whole."


def end_calls(draft: Draft, calls: Sequence[Call]) -> bool:
    """End a turn with calls; returns whether it was nothing but an answer, so that the turn is over with it."""
    head, output = draft.head, draft.output
    if output is None or not head.asks or ANSWER_TOOL not in [call.tool for call in calls]:
        return False
    if not isinstance(output.given, Given) and not head.asks[0].tried:
        head.asks = (replace(head.asks[0], tried=True), *head.asks[1:])
        return False
    only = all(call.tool == ANSWER_TOOL for call in calls) and not head.turn and head.status == "open"
    if only:
        head.owes = False
    _end(draft, output.given or Unfit(CUT))
    return only and not head.owes


def end_text(draft: Draft, text: str, *, cut: bool = False) -> bool:
    """End a turn in plain text; returns whether it is over, or (False) the model has something to answer still."""
    head = draft.head
    if not head.asks:
        return True
    first = head.asks[0]
    if not first.form:
        whole = first.said + text
        _end(draft, Given(whole) if whole and not whole.isspace() else Unfit(NOTHING))
        return not head.owes
    verdict = Unfit(CUT) if cut else draft.output.form.judge(text) if draft.output and text else Unfit(NOTHING)
    if isinstance(verdict, Unfit) and not first.tried:
        head.asks = (replace(first, tried=True), *head.asks[1:])
        draft.items.append(UserItem(AGAIN.format(reason=verdict.reason), origin="runtime"))
        head.owes = True
        return False
    _end(draft, verdict)
    return not head.owes


def keep_beginning(draft: Draft, text: str) -> None:
    """Keep the beginning of an answer that the output limit has cut, and that goes on."""
    asks = draft.head.asks
    if asks:
        draft.head.asks = (replace(asks[0], said=asks[0].said + text), *asks[1:])


def wants_form(draft: Draft) -> bool:
    """Tell whether the next answer is to have a form."""
    asks = draft.head.asks
    return bool(asks and asks[0].form)


def remind(draft: Draft) -> None:
    """Let the model go on with an answer, where the thread was stopped in the middle of it."""
    head = draft.head
    if head.asks and not head.owes and not head.turn:
        draft.items.append(UserItem(GO_ON, origin="runtime"))
        head.owes = True


def give_up(draft: Draft, problem: str) -> None:
    """Tell all programs that wait that there will be no answer."""
    draft.items += [OutputItem(one.id, "", problem) for one in draft.head.asks]
    draft.head.asks = ()


def _end(draft: Draft, answer: Given | Unfit) -> None:
    head = draft.head
    given = ("", answer.reason) if isinstance(answer, Unfit) else (answer.value, "")
    draft.items.append(OutputItem(head.asks[0].id, *given))
    head.asks = head.asks[1:]
    if head.asks and head.status == "open" and not head.turn:
        draft.items.append(UserItem(NEXT, origin="runtime"))
        head.owes = True
