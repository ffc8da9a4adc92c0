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

# A member of an enum that is looked up in its class costs more than all that is counted with it.
_NONE, _COMPLETE, _NOT_SUMMARIZED = TurnCommit.NONE, TurnCommit.COMPLETE, TurnCommit.NOT_SUMMARIZED
_FAILED = (TurnCommit.FAILED, TurnCommit.NOT_SUMMARIZED)
_REFUSED = int(Disposition.REFUSED)


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


def count_round(metrics: Metrics, was: Status, draft: Draft, asked: Asked, gave_up: bool) -> None:  # noqa: FBT001
    """Count a round that was committed. `was`: the thread's status before; `gave_up`: its slices came to nothing.

    It runs for every round, so what is rare is looked at only where it can be.
    """
    counts, turn, head = metrics.inputs, asked.turn, draft.head
    for name, disposition in draft.dispositions:
        counts[disposition] += 1
        if disposition >= _REFUSED and name.startswith("event:"):
            metrics.late_events += 1
    if turn is not _NONE:
        metrics.completions[turn] += 1
        if (usage := asked.usage) is not None:
            tokens = metrics.tokens
            tokens[0] += usage.input
            tokens[1] += usage.output
        if turn is not _COMPLETE and turn in _FAILED and head.retry:
            metrics.retries += 1
    if turn is _NOT_SUMMARIZED or draft.compacting:
        notices = [item for item in draft.items if isinstance(item, NoticeItem)]
        metrics.compaction_failures += sum(notice.kind == "compaction_failed" for notice in notices)
    if head.status == "parked" and was != "parked":
        metrics.parked[SLICES if gave_up else COMPLETIONS if turn in _FAILED else OTHER] += 1
