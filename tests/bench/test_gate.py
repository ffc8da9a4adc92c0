"""The gate: what costs too much is measured again, and fails only if it still does."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from hibernaut.bench.gate import AGAIN, FIRST, Cost, cost, judge


def measuring(*medians: float) -> tuple[Callable[[int], Awaitable[Cost]], list[int]]:
    left, asked = list(medians), list[int]()

    async def measure(pairs: int) -> Cost:
        asked.append(pairs)
        return Cost(left.pop(0), pairs, 0, 0)

    return measure, asked


@pytest.mark.parametrize(
    "medians, passed, pairs",
    [
        ([13.0], True, [FIRST]),
        ([13.1, 12.9], True, [FIRST, AGAIN]),
        ([13.1, 13.1], False, [FIRST, AGAIN]),
    ],
)
def test_the_runtime_may_cost_three_tenths_more_than_is_recorded(
    medians: list[float], passed: bool, pairs: list[int]
) -> None:
    measure, asked = measuring(*medians)
    verdict = asyncio.run(judge(10.0, measure))
    assert (verdict.passed, asked) == (passed, pairs)
    assert verdict.times == medians[-1] / 10


def test_a_completion_costs_more_than_its_floor() -> None:
    measured = asyncio.run(cost(3))
    assert measured.pairs == 3
    assert 1 < measured.low <= measured.median <= measured.high
