"""When an input must wait for the open calls of its thread, and how room is made for it when it need not any more."""

from hibernaut.kernel.draft import Draft
from hibernaut.kernel.ending import NOT_RUN, WOKEN
from hibernaut.messages.inputs import Delivered, Timer

STILL_RUNNING = "Still running. The result will arrive later as an event."


def must_wait(draft: Draft, arrived: Delivered) -> bool:
    """Tell whether an input has to wait for an open call, or for another input that does."""
    return (draft.works() or draft.queueing) and draft.now < grace_ends(draft, arrived)


def grace_ends(draft: Draft, arrived: Delivered) -> int:
    """Return the moment up to which an input waits for an open call."""
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
