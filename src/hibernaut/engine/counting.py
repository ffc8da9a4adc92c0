"""What is counted of a round, once the store has taken it."""

from collections.abc import Sequence

from hibernaut.kernel.commit import Disposition
from hibernaut.kernel.draft import Draft
from hibernaut.kernel.head import Status
from hibernaut.kernel.receipt import TurnCommit
from hibernaut.kernel.seal import Asked
from hibernaut.messages.inputs import Delivered
from hibernaut.messages.items import NoticeItem
from hibernaut.metrics import COMPLETIONS, OTHER, SLICES, Metrics

_FAILED = (TurnCommit.FAILED, TurnCommit.NOT_SUMMARIZED)


def due_since(status: Status, inputs: Sequence[Delivered]) -> int:
    """Return since when a slice was due: since its oldest input was; 0 for a slice without any.

    What a thread that was stopped or parked is resumed by came last; the others were held, and nobody waited for them.
    """
    if not inputs:
        return 0
    if len(inputs) == 1:
        return inputs[0].due or inputs[0].accepted
    moments = [one.due or one.accepted for one in inputs]
    return min(moments) if status == "open" else max(moments)


def count_round(metrics: Metrics, was: Status, draft: Draft, asked: Asked, *, gave_up: bool) -> None:
    """Count a round that was committed. `was`: the thread's status before; `gave_up`: its slices came to nothing."""
    head, counts = draft.head, metrics.inputs
    for name, disposition in draft.dispositions:
        counts[disposition] += 1
        if disposition >= Disposition.REFUSED and name.startswith("event:"):
            metrics.late_events += 1
    turn = asked.turn
    if turn is not TurnCommit.NONE:
        metrics.completions[turn] += 1
        if asked.usage is not None:
            metrics.tokens[0] += asked.usage.input
            metrics.tokens[1] += asked.usage.output
        if turn in _FAILED and head.retry:
            metrics.retries += 1
    if turn is TurnCommit.NOT_SUMMARIZED or draft.compacting:
        notices = [item for item in draft.items if isinstance(item, NoticeItem)]
        metrics.compaction_failures += sum(notice.kind == "compaction_failed" for notice in notices)
    if head.status == "parked" and was != "parked":
        metrics.parked[SLICES if gave_up else COMPLETIONS if turn in _FAILED else OTHER] += 1
    if draft.items:
        metrics.history.observe(head.size)
