"""What is not to be exceeded with one provider, by all threads of an engine together."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Final

from hibernaut.clock import Clock
from hibernaut.messages.events import Usage
from hibernaut.models.errors import Throttled

PATIENCE: Final = 2_000
"""Milliseconds for which a completion waits in its slice; for longer the thread rests, and the slice is free."""

BYTES_PER_TOKEN: Final = 4
"""How many bytes of a request are taken for a token before the provider has counted them."""

MINUTE: Final = 60_000


class Throttle:
    """Limits of one provider: completions at a time, and requests and tokens in a minute. 0: no limit.

    The allowance of a minute may be used at once, and comes back evenly. Tokens are estimated before a completion and
    set right after it.
    """

    def __init__(self, *, concurrency: int = 0, requests_per_minute: int = 0, tokens_per_minute: int = 0) -> None:
        self._slots = asyncio.Semaphore(concurrency) if concurrency else None
        self._requests = _Allowance(requests_per_minute)
        self._tokens = _Allowance(tokens_per_minute)

    @asynccontextmanager
    async def admitted(self, size: int, clock: Clock) -> AsyncIterator[Callable[[Usage], None]]:
        """Wait until a completion may begin whose request has `size` bytes. It is told what it took in the end.

        Raises:
            Throttled: it would have to wait for long.
        """
        estimate = size // BYTES_PER_TOKEN
        while True:
            now = clock.now()
            wait = max(self._requests.wait(1, now), self._tokens.wait(estimate, now))
            if not wait:
                break
            if wait > PATIENCE:
                raise Throttled("more than is allowed in a minute", wait)
            await clock.sleep(wait)
        self._requests.take(1)
        self._tokens.take(estimate)

        def spent(usage: Usage) -> None:
            if usage.input or usage.output:
                self._tokens.take(usage.input + usage.output - estimate)

        if self._slots is None:
            yield spent
            return
        try:
            async with asyncio.timeout(PATIENCE / 1_000):
                await self._slots.acquire()
        except TimeoutError:
            raise Throttled("more than is allowed at a time", PATIENCE) from None
        try:
            yield spent
        finally:
            self._slots.release()


class _Allowance:
    def __init__(self, per_minute: int) -> None:
        self._per_minute = per_minute
        self._left = float(per_minute)
        self._at = 0

    def wait(self, amount: int, now: int) -> int:
        """Return for how many milliseconds there is not enough left. More than there ever is needs a full allowance."""
        if not self._per_minute:
            return 0
        self._left = min(self._per_minute, self._left + (now - self._at) * self._per_minute / MINUTE)
        self._at = now
        missing = min(amount, self._per_minute) - self._left
        return 0 if missing <= 0 else int(missing * MINUTE / self._per_minute) + 1

    def take(self, amount: int) -> None:
        self._left -= amount
