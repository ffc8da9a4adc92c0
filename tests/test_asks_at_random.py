"""Whatever happens meanwhile, a program that asks has the answer to its own question, or is told why there is none.

`make courses` runs many more courses than `make test`. COURSES says how many, FIRST_COURSE where their numbers begin:
`COURSES=1 FIRST_COURSE=4711 make courses` repeats one.
"""

import asyncio
import os
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import pytest

from tests.asking_course import Course
from tests.asking_model import FORMS, Form

PATIENCE: Final = 20
"""Seconds of real time after which somebody waits for what does not come."""

STORES: Final = ("memory", "sqlite")

SHARE: Final = (*range(7), 107, 130, 159, 195, 288)
"""Courses of every run; the last ones show in memory what others have not shown of how questions are told apart."""

TO_BE_SEEN: Final = (
    *(
        "answered",
        "unfit",
        "closed",
        "stands",
        "ask_again",
        "leave",
        "say",
        "drop",
        "edit",
        "deliver",
        "cancel",
        "step",
    ),
    *("stop", "park", "freeze", "resume", "retry", "compact", "calls", "beside", "event", "fail", "misfit", "cut"),
)
"""What has to happen in them, or they do not show what they are for."""


def play(number: int, store: str, folder: Path, forms: Mapping[str, Form] = FORMS) -> Counter[str]:
    """Play a course, and return what there was in it."""
    course = Course(number, folder / f"{number}.db" if store == "sqlite" else None, forms)
    try:
        asyncio.run(bounded(course))
    except (Exception, BaseExceptionGroup) as error:
        error.add_note(f"course {number}, store {store}:\n{course.story}")
        raise
    return course.seen


async def bounded(course: Course) -> None:
    async with asyncio.timeout(PATIENCE):
        await course.run()


@pytest.mark.parametrize("store", STORES)
def test_whoever_asks_has_the_answer_to_its_own_question(store: str, tmp_path: Path) -> None:
    seen: Counter[str] = Counter()
    for number in SHARE:
        seen += play(number, store, tmp_path)
    if store == "memory":  # a file's courses are shorter, and not the same every time
        assert [what for what in TO_BE_SEEN if not seen[what]] == []


def test_so_has_whoever_asks_for_pydantic_models(tmp_path: Path) -> None:
    pydantic = pytest.importorskip("pydantic")
    model = pydantic.create_model("Named", number=(int, ...), names=(list[str], ...))
    named = Form(model, lambda number: {"number": number, "names": [f"Q{number}"]})
    for number in range(3):
        play(number, "memory", tmp_path, {"named": named})


FIRST, COURSES = int(os.environ.get("FIRST_COURSE", "1000")), int(os.environ.get("COURSES", "600"))
BATCH = 20


@pytest.mark.long
@pytest.mark.parametrize("store", STORES)
@pytest.mark.parametrize("first", range(FIRST, FIRST + COURSES, BATCH))
def test_whoever_asks_has_the_answer_to_its_own_question_in_many_courses(
    first: int, store: str, tmp_path: Path
) -> None:
    for number in range(first, min(first + BATCH, FIRST + COURSES)):
        play(number, store, tmp_path)
