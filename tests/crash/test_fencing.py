"""Two engines and one thread: the first stands still at an operation, is taken for dead, and goes on when all is done.

Whatever it then tries to write is refused, and what it does outside is neither lost nor done twice unseen.
"""

import asyncio

import pytest

from hibernaut.testing import crash_matrix
from tests.crash.scenarios import SCENARIOS
from tests.crash.shares import SEED, assert_clean


@pytest.mark.parametrize("name", SCENARIOS)
def test_c32_an_engine_that_was_taken_for_dead_writes_nothing_when_it_goes_on(name: str) -> None:
    matrix = crash_matrix(SCENARIOS[name], stores=["sqlite"], ways=["stalled"], share=2, seed=f"{SEED} {name}")
    assert_clean(asyncio.run(matrix))


@pytest.mark.long
@pytest.mark.parametrize("name", SCENARIOS)
def test_c32_an_engine_that_stands_still_at_any_operation_writes_nothing_when_it_goes_on(name: str) -> None:
    assert_clean(asyncio.run(crash_matrix(SCENARIOS[name], stores=["sqlite"], ways=["stalled"])))
