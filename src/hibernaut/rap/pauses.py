"""How long nothing is tried again after failures in a row."""

from typing import Final

from hibernaut.clock import Clock

SHORTEST_PAUSE: Final = 1_000
"""Milliseconds after a first failure. The pause doubles with each further one."""

LONGEST_PAUSE: Final = 60_000
"""Milliseconds that a pause never exceeds."""


class Pause:
    """Grows with every failure and is over with the first success."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._length = 0
        self._until = 0

    @property
    def until(self) -> int:
        """When it is over, in milliseconds since 1970; 0 if nothing has failed."""
        return self._until

    @property
    def left(self) -> int:
        """Milliseconds until it is over, 0 if it is."""
        return max(self._until - self._clock.now(), 0)

    def begin(self) -> None:
        """Pause: something has failed, now."""
        self._length = min(self._length * 2, LONGEST_PAUSE) or SHORTEST_PAUSE
        self._until = self._clock.now() + self._length

    def end(self) -> None:
        """Forget all failures."""
        self._length = self._until = 0
