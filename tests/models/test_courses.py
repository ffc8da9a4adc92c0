"""Whatever a thread lives through, and with whichever models, every strict fake takes every request.

`make courses` runs many more courses than `make test`. COURSES says how many, FIRST_COURSE where their numbers begin:
`COURSES=1 FIRST_COURSE=4711 make courses` repeats one.
"""

import asyncio
import os
from collections import Counter
from random import Random

import pytest

from tests.models.course import Course
from tests.models.doors import DOORS

EVENTS = 30
"""Of a course."""

SHARES = 3

PATIENCE = 60
"""Seconds of real time after which a course that goes nowhere has failed."""

TO_BE_SEEN = (
    *(
        "turn",
        "summary",
        "in a form",
        "goes on",
        "begins like another thread",
        "inherited",
        "from a memo",
        "with images",
    ),
    *("pictures given way", "reasoning replayed", "switched", "switched within a turn", "interrupted", "late_result"),
    *("event", "report", "retry", "summarized", "compaction_failed", "stopped", "empty_turn", "parked", "cancelled"),
)
"""What has to be among what there is to check, or the courses do not show what they are for."""


def play(numbers: range) -> Counter[str]:
    """Play the courses of these numbers, and return what there was to check."""
    seen: Counter[str] = Counter()
    for number in numbers:
        chance = Random(number)
        course = Course(number, [chance.randrange(2**32) for _ in range(EVENTS)])
        try:
            asyncio.run(bounded(course))
        except Exception as error:
            error.add_note(f"course {number}:\n" + "\n".join(course.story))
            raise
        seen += course.seen
    return seen


async def bounded(course: Course) -> None:
    async with asyncio.timeout(PATIENCE):
        await course.run()


@pytest.mark.timeout(600)
@pytest.mark.parametrize("share", range(SHARES))
def test_every_strict_fake_takes_every_history(share: int) -> None:
    seen = play(range(share, len(DOORS), SHARES))
    assert [what for what in TO_BE_SEEN if not seen[what]] == []


FIRST, COURSES = int(os.environ.get("FIRST_COURSE", "1000")), int(os.environ.get("COURSES", "1000"))
BATCH = 20


@pytest.mark.long
@pytest.mark.parametrize("first", range(FIRST, FIRST + COURSES, BATCH))
def test_every_strict_fake_takes_every_history_of_many(first: int) -> None:
    play(range(first, min(first + BATCH, FIRST + COURSES)))
