"""Moments at which something is to be done, however many of them were called off."""

import asyncio

from hibernaut.rap.kit.alarms import LONGEST_NAP, MOST_OFF, Alarms
from tests.rap.kit.runtime import HeardClock


async def test_alarms_ring_in_the_order_of_their_moments_unless_they_are_called_off() -> None:
    clock, rung = HeardClock(), list[str]()
    alarms = Alarms(clock)
    now = clock.now()
    alarms.at(now + 20, lambda: rung.append("second"))
    off = alarms.at(now + 5, lambda: rung.append("never"))
    alarms.at(now + 10, lambda: rung.append("first"))
    alarms.call_off(off)
    alarms.call_off(off)
    running = asyncio.create_task(alarms.run())
    assert await clock.nap() == 10
    done = asyncio.Event()
    alarms.at(now + LONGEST_NAP + 20, lambda: rung.append("third"))
    alarms.at(now + LONGEST_NAP + 21, done.set)
    clock.advance(10)
    assert await clock.nap() == 10
    assert rung == ["first"]
    clock.advance(10)
    assert await clock.nap() == LONGEST_NAP
    alarms.at(now + 21, lambda: rung.append("between"))
    assert await clock.nap() == 1
    clock.advance(LONGEST_NAP + 1)
    await done.wait()
    assert rung == ["first", "second", "between", "third"]
    running.cancel()
    await asyncio.wait([running])


def test_alarms_that_were_called_off_are_not_held_for_long() -> None:
    alarms, rung = Alarms(HeardClock()), list[str]()
    for due in range(10 * MOST_OFF):
        alarms.call_off(alarms.at(due, rung.clear))
    assert len(alarms._heap) <= MOST_OFF + 1
