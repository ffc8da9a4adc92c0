"""Brings callbacks to runtimes: those of one call in their order, again and again until they are taken or refused.

What waits, waits in the state file; in memory there is a number for each call. A callback that is refused is not
brought again, and whoever made it hears of that.
"""

import asyncio
import logging
import random
from collections.abc import Callable
from typing import Final, Protocol

from hibernaut.clock import Clock
from hibernaut.errors import StoreError
from hibernaut.rap.answers import fate_of_callback, wait_before
from hibernaut.rap.exchange import Exchange, NoAnswer
from hibernaut.rap.kit.alarms import Alarm, Alarms
from hibernaut.rap.kit.state import Owed, State
from hibernaut.rap.origins import origin
from hibernaut.rap.wire import VERSION

logger = logging.getLogger(__name__)

FIRST_PAUSE: Final = 500
"""Milliseconds before a callback that was not taken is brought again, the first time; it doubles from there."""

LONGEST_PAUSE: Final = 300_000
"""Milliseconds between two tries, at most, unless the runtime asks for more."""

MOST_AT_ONCE: Final = 64
"""Callbacks that are under way at the same time."""

MOST_WAITING: Final = 32
"""Callbacks of one call that may wait; a subscription that has as many goes on when one is taken."""

_KNOWN: Final = 409
"""What a runtime answers that has the confirmation of a subscription already: it wants the events all the same."""

_HEADERS: Final = {"RAP-Version": VERSION}


class Refused(Protocol):
    """Hears that a callback is not taken, and why. What waits behind it is brought all the same."""

    async def __call__(self, key: str, owed: Owed, why: str) -> None:
        """Hear of it."""
        ...


class _Lane:
    """What one call owes."""

    __slots__ = ("alarm", "busy", "moved", "room", "tries", "url", "waiting")

    def __init__(self, url: str) -> None:
        self.url = url
        self.waiting = 0
        self.tries = 0
        self.busy = False
        self.moved = False
        self.alarm: Alarm | None = None
        self.room = asyncio.Event()
        self.room.set()


class Delivery:
    """Brings callbacks for as long as `run` runs.

    Args:
        state: where callbacks wait.
        exchange: how they are sent.
        alarms: when one is tried again.
        clock: the time.
        within: milliseconds after which a callback that nobody took is given up.
        refused: who hears of those that are not taken.
        spread: between 0.5 and 1, drawn for each pause, so that callers who failed together do not come together.
    """

    def __init__(
        self,
        state: State,
        exchange: Exchange,
        alarms: Alarms,
        clock: Clock,
        *,
        within: int,
        refused: Refused,
        spread: Callable[[], float] = lambda: random.uniform(0.5, 1),  # noqa: S311  # nobody is kept from guessing it
    ) -> None:
        self._state = state
        self._exchange = exchange
        self._alarms = alarms
        self._clock = clock
        self._within = within
        self._refused = refused
        self._spread = spread
        self._lanes: dict[str, _Lane] = {}
        self._ready: asyncio.Queue[tuple[str, _Lane]] = asyncio.Queue()

    async def begin(self) -> None:
        """Take up what is owed from before."""
        for key, count, url in await self._state.waiting():
            lane = self._lanes[key] = _Lane(url)
            lane.waiting = count
            self._call(key, lane)

    async def run(self) -> None:
        """Bring callbacks until it is cancelled."""
        async with asyncio.TaskGroup() as senders:
            for _ in range(MOST_AT_ONCE):
                senders.create_task(self._send_ready())

    def note(self, key: str, url: str) -> None:
        """Hear that a call owes one callback more."""
        lane = self._lanes.get(key)
        if lane is None:
            lane = self._lanes[key] = _Lane(url)
        lane.moved = True
        lane.waiting += 1
        if lane.waiting >= MOST_WAITING:
            lane.room.clear()
        if lane.alarm is None:
            self._call(key, lane)

    def readdress(self, key: str, url: str, again: int = 0) -> None:
        """Bring what a call owes to another address, at once; `again` counts what is to be brought once more."""
        lane = self._lanes.get(key)
        if lane is None:
            if not again:
                return
            lane = self._lanes[key] = _Lane(url)
        lane.url, lane.tries, lane.moved = url, 0, True
        lane.waiting = max(lane.waiting, again)
        if lane.alarm is not None:
            self._alarms.call_off(lane.alarm)
            lane.alarm = None
        self._call(key, lane)

    def drop(self, key: str) -> None:
        """Bring nothing more of a call."""
        lane = self._lanes.pop(key, None)
        if lane is not None:
            lane.room.set()
            if lane.alarm is not None:
                self._alarms.call_off(lane.alarm)

    async def room(self, key: str) -> None:
        """Return when a call owes so little that it may owe more."""
        while (lane := self._lanes.get(key)) is not None and not lane.room.is_set():
            await lane.room.wait()

    # One call

    def _call(self, key: str, lane: _Lane) -> None:
        if not lane.busy:
            lane.busy = True
            self._ready.put_nowait((key, lane))

    async def _send_ready(self) -> None:
        while True:
            key, lane = await self._ready.get()
            try:
                await self._send_all(key, lane)
            except StoreError:
                logger.exception("callbacks of call %s could not be looked at; trying again", key)
                self._put_off(key, lane, {})
            finally:
                lane.busy = False

    async def _send_all(self, key: str, lane: _Lane) -> None:
        owed: Owed | None = None
        while self._lanes.get(key) is lane:
            if owed is None:
                lane.moved = False
                owed = await self._state.next_callback(key)
            if owed is None:
                if lane.moved:
                    continue
                self.drop(key)
                return
            url = lane.url
            status, headers, why = await self._post(url, owed)
            if self._lanes.get(key) is not lane:
                return
            is_known = status == _KNOWN and owed.kind == "confirmation"
            fate = "taken" if is_known else fate_of_callback(status)
            if fate != "taken" and lane.url != url:
                continue
            if fate == "again" and self._clock.now() - owed.made < self._within:
                self._put_off(key, lane, headers)
                return
            owed = await self._settle(key, lane, owed, "" if fate == "taken" else why)

    async def _settle(self, key: str, lane: _Lane, owed: Owed, why: str) -> Owed | None:
        """Note that a callback is not owed any more, and if it was given up (`why`) say so; return the next one."""
        lane.tries = 0
        lane.waiting, following = await self._state.settle(key, owed)
        if lane.waiting < MOST_WAITING:
            lane.room.set()
        if why:
            logger.warning("a callback of call %s to %s is given up: %s", key, origin(lane.url), why)
            await self._refused(key, owed, why)
        return following

    async def _post(self, url: str, owed: Owed) -> tuple[int | None, dict[str, str], str]:
        try:
            reply = await self._exchange.post(url, owed.body, _HEADERS)
        except NoAnswer as error:
            # What stands in a log, or is read by a model, must not hold the token that the address ends with.
            return None, {}, str(error).replace(url, origin(url))
        return reply.status, dict(reply.headers), f"it was answered with status {reply.status}"

    def _put_off(self, key: str, lane: _Lane, headers: dict[str, str]) -> None:
        now = self._clock.now()
        pause = min(FIRST_PAUSE * 2 ** min(lane.tries, 20), LONGEST_PAUSE)
        lane.tries += 1
        due = now + max(round(pause * self._spread()), wait_before(headers, now))

        def again() -> None:
            lane.alarm = None
            if self._lanes.get(key) is lane:
                self._call(key, lane)

        lane.alarm = self._alarms.at(due, again)
