"""What a slice waits for and can be stopped: the model's stream, and tools inside the slice."""

import asyncio
import logging
from collections.abc import AsyncIterator, Sequence

import msgspec

from hibernaut.kernel.commit import Disposition
from hibernaut.messages.stream import StreamPiece

logger = logging.getLogger(__name__)

INSIST_AFTER = 300
"""Milliseconds after which a stream that was stopped and goes on is stopped once more."""

CLOSING = 0.3
"""Seconds that a stream which was cut off may take to let go of its connection; what takes longer is left behind."""

INLINE_GRACE = 1_000
"""Milliseconds that inline tools may take when somebody speaks meanwhile; then they are waited for like others."""

STALLED_AFTER = 120_000
"""Milliseconds without a piece of the answer after which a stream counts as broken."""

Inputs = Sequence[tuple[str, Disposition]]
"""The inputs that a round has taken, by message id, and what became of each."""


class LiveStream(msgspec.Struct, eq=False):
    """A completion that is under way, for those who may have to stop it."""

    _pieces: Sequence[StreamPiece]
    _moved: int
    """When a piece had come at the last look; at first when it began."""
    _answers: Inputs
    _task: "asyncio.Task[None] | None"
    _counted: int = 0
    _cancelled: int = 0
    _stopped: int = 0
    reason: str = ""
    """Why it was stopped; "" if it was not."""

    @property
    def inputs(self) -> frozenset[str]:
        """Message ids of the inputs that it answers: they do not interrupt it."""
        return frozenset([name for name, _ in self._answers])

    def look(self, now: int) -> None:
        """Stop the stream if no piece has come for too long. To be called every now and then: a piece costs nothing."""
        if self.reason:
            self._insist(now)
        elif len(self._pieces) != self._counted:
            self._counted, self._moved = len(self._pieces), now
        elif now - self._moved > STALLED_AFTER:
            self.stop("stalled")

    def stop(self, reason: str) -> None:
        """End the stream: "interrupted" keeps its visible text, "stalled" is a failure."""
        if not self.reason:
            self.reason = reason
            self._cancel()

    def _insist(self, now: int) -> None:
        """Stop it again, as long as the model's code swallows that."""
        if not self._stopped:
            self._stopped = now
        elif now - self._stopped >= INSIST_AFTER:
            self._stopped = now
            self._cancel()

    def _cancel(self) -> None:
        if self._task is not None:
            self._task.cancel()
            self._cancelled += 1

    def was_stopped(self) -> bool:
        """Take the cancellations of the stream's task back that `stop` made; tell whether there are no others."""
        if not self.reason or self._task is None:
            return False
        while self._cancelled:
            self._cancelled -= 1
            self._task.uncancel()
        return self._task.cancelling() == 0


class InlineWait:
    """Inline tools that a slice waits for, but not for long when somebody speaks to the thread meanwhile."""

    __slots__ = ("_asked", "_scope", "_since", "inputs")

    def __init__(self, scope: asyncio.Timeout, now: int, inputs: frozenset[str]) -> None:
        self._scope = scope
        self._since = now
        self._asked = False
        self.inputs = inputs

    def look(self, now: int) -> None:
        """Wait no longer if that was asked for and the tools have had their time. They go on beside the thread."""
        if self._asked and now - self._since >= INLINE_GRACE:
            self._asked = False
            self._scope.reschedule(0)

    def stop(self, _reason: str) -> None:
        """Ask for an end of the wait."""
        self._asked = True


async def let_go(pieces: AsyncIterator[StreamPiece] | None) -> None:
    """Have a stream that was not read to its end let go of what it holds."""
    close = getattr(pieces, "aclose", None)
    if close is None:
        return
    try:
        async with asyncio.timeout(CLOSING):
            await close()
    except TimeoutError:
        logger.warning("a model's stream did not end within %g s after it was cut off", CLOSING)
