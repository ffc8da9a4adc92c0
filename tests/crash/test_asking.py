"""A tool that asks people and must not be run again, killed at every operation. See `test_crashes` and `test_kills`."""

import asyncio
import sys
from pathlib import Path

import pytest

from hibernaut.engine.dispatcher import UNKNOWN_EFFECT
from hibernaut.messages.items import EventItem, QuestionEndItem, QuestionItem, ResultItem, TextItem
from hibernaut.testing.courses import Course, Crash, memory_store, run_course
from hibernaut.testing.crashes import draw, every_crash
from hibernaut.testing.processes import Kill, Nursery
from tests.crash.scenarios import asking
from tests.crash.shares import SEED
from tests.crash.test_kills import order

NOT_DONE = "what was to follow has not been done"
UNKNOWN = UNKNOWN_EFFECT.format(tool="work")


def check(course: Course) -> None:
    """Check that what the tool did before it asked was done once, and that the model is told the truth of the rest."""
    items = [item for page in course.pages for item in page]
    results = [str(item.content) for item in items if isinstance(item, ResultItem)]
    late = [item for item in items if isinstance(item, EventItem)]
    asked = [item.prompt for item in items if isinstance(item, QuestionItem)]
    ended = [(item.outcome, item.text) for item in items if isinstance(item, QuestionEndItem)]
    followed = course.world.of("followed")
    assert len(course.world.of("did")) <= 1
    assert len(results) == 1
    assert late == []
    assert asked == ["Where?", "When?"][: len(asked)]
    assert ended == [("answered", "there"), ("answered", "now")][: len(asked)]
    assert isinstance(items[-1], TextItem)
    assert course.seen.effects == []
    assert course.seen.head.questions == {}
    if results[0] == "there and now":
        assert [list(words) for words in followed] == [["there", "now"]]
    elif results[0].startswith(UNKNOWN):
        assert len(asked) != 1 or followed == []
        told = results[0].removeprefix(UNKNOWN)
        answers = [("Where?", "there"), ("When?", "now")]
        assert told in ["".join([f"\nA person was asked: {q}\nAnswer: {a}" for q, a in answers[:n]]) for n in range(3)]
    else:
        assert NOT_DONE in results[0]
        assert asked
        assert followed == []


def test_c11_c38_c39_a_crash_anywhere_asks_once_and_tells_the_truth() -> None:
    plain = run_course(asking, memory_store())
    told = set()
    for crash in every_crash(plain):
        course = run_course(asking, memory_store(), [crash])
        try:
            check(course)
        except AssertionError as error:
            error.add_note(f"killed {crash} ({plain.operations[crash.operation - 1]})")
            raise
        told.add(_result(course)[:20])
    assert len(told) > 2, "it comes to every one of its ends"


def _result(course: Course) -> str:
    return next(str(item.content) for page in course.pages for item in page if isinstance(item, ResultItem))


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="a dead process is known at once by /proc")
def test_c38_c39_a_kill_anywhere_asks_once_and_tells_the_truth(tmp_path: Path) -> None:
    plain = run_course(asking, memory_store())
    crashes = [*draw(f"{SEED} asking killed", every_crash(plain), 8), _while_it_asks(plain)]

    async def kill_each() -> list[Course]:
        async with Nursery() as nursery:
            return [
                await nursery.course(order(tmp_path, "asking", number=number), [Kill(crash)])
                for number, crash in enumerate(crashes)
            ]

    for crash, course in zip(crashes, asyncio.run(kill_each()), strict=True):
        try:
            check(course)
        except AssertionError as error:
            error.add_note(f"killed {crash}")
            raise
    assert NOT_DONE in _result(course)


def _while_it_asks(plain: Course) -> Crash:
    """Return the place after the commit that takes the first question in."""
    first = next(n for n, page in enumerate(plain.pages, 1) if any(isinstance(item, QuestionItem) for item in page))
    commits = [n for n, name in enumerate(plain.operations, 1) if name == "commit"]
    return Crash(commits[first - 1], after=True)
