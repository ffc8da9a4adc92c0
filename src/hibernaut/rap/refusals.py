"""What became of deliveries: counted all, and told in the log as far as there is anything to learn from it.

Neither counts nor lines hold anything of what was sent, and no token.
"""

import logging
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from hibernaut.tools.tokens import Grant

logger = logging.getLogger(__name__)

LOG_LINES: Final = 20
"""Lines about refusals within `LOG_EVERY`; the others are counted."""

LOG_EVERY: Final = 60_000
"""Milliseconds."""

MOST_REMEMBERED: Final = 1_000
"""Refusals, by call and reason, of which it is known that they were told as a warning."""


class Tally:
    """Counts by code; "taken" is what was stored."""

    def __init__(self) -> None:
        self._counts = {"taken": 0}
        self.counts: Mapping[str, int] = MappingProxyType(self._counts)
        """The counts so far: a view of them, not a copy."""
        self._since = -LOG_EVERY
        self._lines = 0
        self._warned: dict[tuple[str, str], None] = {}

    def take(self) -> None:
        """Count a delivery that was stored."""
        self._counts["taken"] += 1

    def refuse(self, code: str, status: int, peer: str, grant: Grant | None, now: int) -> None:
        """Count a delivery that was refused, and tell the log unless much was told just now.

        The first of a call and reason is a warning; what repeats, or was broken off, is none.
        """
        self._counts[code] = self._counts.get(code, 0) + 1
        if now - self._since >= LOG_EVERY:
            if self._lines > LOG_LINES:
                logger.info("%d more callbacks were refused", self._lines - LOG_LINES)
            self._since, self._lines = now, 0
        self._lines += 1
        if self._lines <= LOG_LINES:
            call = f" for call {grant.call_id} of thread {grant.thread_id}" if grant else ""
            level = logging.WARNING if self._is_new(grant.call_id if grant else peer, code) else logging.INFO
            logger.log(level, "a callback from %s%s was refused: %d %s", peer or "somewhere", call, status, code)

    def _is_new(self, named: str, code: str) -> bool:
        if code == "broken_off" or (named, code) in self._warned:
            return False
        if len(self._warned) >= MOST_REMEMBERED:
            del self._warned[next(iter(self._warned))]
        self._warned[named, code] = None
        return True
