"""How a thread is stopped or closed, and what that does to its calls, its children and its parent."""

from hibernaut.kernel.draft import Draft
from hibernaut.kernel.outputs import give_up
from hibernaut.messages.inputs import Command, Report

NOT_RUN = "Not run: the turn was cut short before its time came."
STOPPED = "Stopped before it was done. It is unknown how far it got; check before repeating it."
WOKEN = "Woken early: something arrived."

_ON_A_SERVER = ("open", "detached", "subscribed")


def stop(draft: Draft, reason: str) -> None:
    """Stop the thread: open calls are cancelled, subscriptions and children go on, what comes is held."""
    for call in list(draft.head.calls.values()):
        if call.state == "detached":
            draft.tell_later(call, STOPPED)
            draft.forget_work(call, "cancelled")
    _end(draft, "stopped", reason)
    if draft.head.link is not None:
        why = f" ({reason})" if reason else ""
        draft.report(f"stopped:{draft.head.thread_id}:{draft.head.version + 1}", f"It was stopped by an operator{why}.")


def close(draft: Draft, reason: str, report: str = "") -> None:
    """Close the thread for good, and all its children with it; its parent hears of it, with the report."""
    head = draft.head
    servers = [
        call.server for call in head.calls.values() if call.server and call.state in _ON_A_SERVER and not call.approval
    ]
    for call in list(head.calls.values()):
        if call.state in ("detached", "subscribed"):
            draft.forget_work(call, "cancelled")
    for child in [name for name, child in head.children.items() if not child.ending]:
        draft.send(f"close:{child}", Command("close", reason="its parent was closed"), child)
    head.children = {}
    _end(draft, "closed", reason)
    if head.asks:
        give_up(draft, f"the thread was closed{f': {reason}' if reason else ''}")
    draft.tell_closed(servers)
    if head.link is not None:
        draft.send(f"closed:{head.thread_id}", Report(head.thread_id, report, closed=True), head.link.parent)


def _end(draft: Draft, status: str, reason: str) -> None:
    head = draft.head
    for call in draft.turn_calls():
        if call.held is not None:
            continue
        if call.state == "queued":
            draft.answer(call, NOT_RUN, is_error=True)
        elif call.mode == "rest":
            draft.answer(call, WOKEN)
        else:
            draft.end_work(call, "cancelled", STOPPED)
    draft.release_results()
    draft.forget_failures()
    head.status = "closed" if status == "closed" else "stopped"
    head.reason = reason
    draft.notice(status, reason)
