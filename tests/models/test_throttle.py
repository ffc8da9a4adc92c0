import asyncio

import pytest

from hibernaut.messages.events import Usage
from hibernaut.models.errors import Throttled
from hibernaut.models.throttle import PATIENCE, Throttle
from hibernaut.testing.clock import ManualClock

MINUTE = 60_000


async def begin(throttle: Throttle, clock: ManualClock, size: int = 0, usage: Usage | None = None) -> None:
    async with throttle.admitted(size, clock) as spent:
        if usage is not None:
            spent(usage)


def test_without_limits_everything_begins_at_once() -> None:
    async def scenario() -> None:
        for _ in range(1_000):
            await begin(Throttle(), ManualClock(), 1_000_000)

    asyncio.run(scenario())


def test_the_allowance_of_a_minute_can_be_used_at_once_and_comes_back_evenly() -> None:
    async def scenario() -> None:
        throttle, clock = Throttle(requests_per_minute=10), ManualClock()
        for _ in range(10):
            await begin(throttle, clock)
        with pytest.raises(Throttled) as refused:
            await begin(throttle, clock)
        assert 6_000 <= refused.value.retry_after <= 6_001
        clock.advance(6_001)
        await begin(throttle, clock)
        with pytest.raises(Throttled):
            await begin(throttle, clock)
        clock.advance(10 * MINUTE)
        for _ in range(10):
            await begin(throttle, clock)
        with pytest.raises(Throttled):
            await begin(throttle, clock)

    asyncio.run(scenario())


def test_a_short_wait_is_waited_for() -> None:
    async def scenario() -> None:
        throttle, clock = Throttle(requests_per_minute=60), ManualClock()
        for _ in range(60):
            await begin(throttle, clock)
        waiting = asyncio.create_task(begin(throttle, clock))
        await asyncio.sleep(0)
        assert not waiting.done()
        clock.advance(PATIENCE)
        await waiting

    asyncio.run(scenario())


def test_tokens_are_estimated_first_and_set_right_afterwards() -> None:
    async def scenario() -> None:
        throttle, clock = Throttle(tokens_per_minute=1_000), ManualClock()
        await begin(throttle, clock, size=2_000, usage=Usage(100, 50))
        await begin(throttle, clock, size=3_400)  # 850 are left
        with pytest.raises(Throttled):
            await begin(throttle, clock, size=400)

    asyncio.run(scenario())


def test_a_prompt_above_a_whole_allowance_goes_when_the_allowance_is_full() -> None:
    async def scenario() -> None:
        throttle, clock = Throttle(tokens_per_minute=1_000), ManualClock()
        await begin(throttle, clock, size=40_000)
        with pytest.raises(Throttled) as refused:
            await begin(throttle, clock, size=4)
        assert refused.value.retry_after > 9 * MINUTE  # it has to be paid back

    asyncio.run(scenario())


def test_so_many_at_a_time_and_a_slot_is_free_again_after_an_error() -> None:
    async def scenario() -> None:
        throttle, clock = Throttle(concurrency=1), ManualClock()
        for _ in range(3):
            with pytest.raises(RuntimeError):
                async with throttle.admitted(0, clock):
                    raise RuntimeError
        async with throttle.admitted(0, clock):
            second = asyncio.create_task(begin(throttle, clock))
            await asyncio.sleep(0)
            assert not second.done()
        await second

    asyncio.run(scenario())
