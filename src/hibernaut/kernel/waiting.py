"""Whether an input waits for an open call, and what makes room for it when it does not."""

from hibernaut.kernel.commit import Disposition
from hibernaut.kernel.draft import Draft
from hibernaut.kernel.ending import NOT_RUN, WOKEN
from hibernaut.kernel.head import Call, works
from hibernaut.messages.inputs import Delivered, Timer

STILL_RUNNING = "Still running. The result will arrive later as an event."


def must_wait(draft: Draft, arrived: Delivered) -> bool:
    """Tell whether an input is left in the inbox for the sake of an open call."""
    return (works(draft.head) or draft.queueing) and draft.now < grace_ends(draft, arrived)


def grace_ends(draft: Draft, arrived: Delivered) -> int:
    """Return when an input has waited long enough for an open call."""
    content = arrived.message.content if arrived.message else None
    since = content.due if isinstance(content, Timer) else arrived.accepted
    return since + draft.options.event_grace


def wake(draft: Draft) -> None:
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


def forget(draft: Draft, call: Call) -> None:
    """Take a call that is over out of the registry, as soon as its result stands in the history."""
    if call.id in draft.head.turn:  # its result waits for those of calls before it
        call.state = "answered"
    else:
        del draft.head.calls[call.id]


def refuse(draft: Draft) -> Disposition:
    """Count an input that is not taken."""
    draft.head.refused += 1
    return Disposition.REFUSED
