"""What a thread may spend: used up, it is parked and says what was spent on what; and how far its tree may grow."""

from typing import Any

import msgspec
import pytest

from hibernaut.errors import ConfigurationError
from hibernaut.kernel.authority import Authority, Judge, check_authority, narrowed
from hibernaut.kernel.head import decode_head
from hibernaut.messages.inputs import Command
from tests.kernel.scenario import SECOND, Reaction, Thread, call, calls, says
from tests.kernel.test_family import asks, only_child


def bound(**limits: Any) -> Thread:
    thread = Thread()
    thread.authority = Judge(check_authority(Authority(**limits)))
    return thread


def test_a25_working_time_that_is_used_up_parks_the_thread_and_says_what_was_spent_on_what() -> None:
    thread = bound(seconds=10)
    thread.thinking = 6 * SECOND
    thread.user("Build")
    thread.run(calls("build"))
    thread.wait(3_600 * SECOND)
    thread.result(1, "built")
    thread.run(calls("check"))
    thread.result(2, "checked")
    thread.run()
    assert thread.head.status == "parked"
    assert thread.head.reason == (
        "the working time of 10 s is used up (30 tokens used in all, 20 for prompts and 10 for answers; worked 12 s; "
        "calls begun: build 1, check 1); resuming grants as much again"
    )
    thread.put(Command("resume"))
    thread.run(says("Done."))
    assert (thread.head.status, thread.head.worked) == ("open", 6 * SECOND)


def paid(cost: int | None) -> Reaction:
    """Return a turn that calls a tool, and what it has cost in millionths of a dollar."""
    return msgspec.structs.replace(calls("build"), cost=cost)


def test_a25_money_that_is_used_up_parks_the_thread_and_says_what_was_spent_on_what() -> None:
    thread = bound(dollars=0.5)
    thread.user("Build")
    thread.run(paid(300_000))
    thread.result(1, "built")
    thread.run(paid(200_000))
    thread.result(2, "built")
    thread.run()
    assert thread.head.status == "parked"
    assert thread.head.reason.startswith("the budget of $0.5000 is used up (30 tokens used in all, ")
    assert "cost $0.5000" in thread.head.reason
    thread.put(Command("resume"))
    thread.run(paid(499_999))
    thread.result(3, "built")
    thread.run(says("Done."))
    assert thread.story()[-1] == "A: Done."


def test_a25_where_money_is_bounded_a_model_without_a_price_is_asked_no_further() -> None:
    thread = bound(dollars=0.5)
    thread.user("Build")
    thread.run(paid(None))
    thread.result(1, "built")
    thread.run()
    assert thread.head.status == "parked"
    assert thread.head.reason.startswith("what it may cost is bounded, and 15 tokens have no known price")
    thread.put(Command("resume"))
    thread.run(paid(100))
    thread.result(2, "built")
    thread.run(says("Done."))
    assert thread.story()[-1] == "A: Done."


def test_waiting_is_no_work() -> None:
    thread = bound(seconds=1)
    thread.user("Sleep")
    thread.run(calls("sleep"))
    thread.wait(3_600 * SECOND)
    thread.run(says("Awake."))
    assert thread.head.status == "open"


def test_time_is_counted_only_where_it_is_bounded() -> None:
    thread = Thread()
    thread.thinking = 6 * SECOND
    thread.user("Hello")
    thread.run(says("Hello."))
    assert decode_head(thread.stored).head.worked == 0


def test_a25_the_authority_says_how_deep_threads_may_be_nested() -> None:
    thread = bound(max_depth=1)
    thread.user("Delegate")
    thread.run(asks("spawn_thread", instructions="Look", child_of=["t"]), says("It looks."))
    child = only_child(thread)
    child.authority = thread.authority
    child.run(asks("spawn_thread", instructions="Look deeper", child_of=["t", child.name]), says("I cannot."))
    assert "nested 1 deep (max_depth)" in "\n".join(child.story())


def test_a25_the_authority_says_how_many_children_may_live_at_once() -> None:
    thread = bound(max_children=1)
    thread.user("Delegate")
    thread.run(asks("spawn_thread", instructions="Look", child_of=["t"]), says("It looks."))
    thread.user("More")
    thread.run(asks("spawn_thread", instructions="Look", child_of=["t"]), says("I cannot."))
    assert "1 children of this thread live, and 1 may (max_children)" in "\n".join(thread.story())


def test_the_options_count_where_they_are_narrower() -> None:
    thread = bound(max_depth=9, max_children=9)
    thread.options = type(thread.options)(max_children=0)
    thread.user("Delegate")
    thread.run(asks("spawn_thread", instructions="Look", child_of=["t"]), says("I cannot."))
    assert not thread.head.children


def test_a_child_has_no_wider_limits_than_its_parent() -> None:
    parent = Authority(seconds=9, max_depth=1, children=Authority(seconds=60, max_depth=3, max_children=2))
    child = Judge(narrowed(parent, parent.children))
    assert (child.seconds, child.max_depth, child.max_children) == (9, 1, 2)


@pytest.mark.parametrize("limit", ["seconds", "max_depth", "max_children"])
def test_a_limit_that_cannot_be_meant_is_refused(limit: str) -> None:
    with pytest.raises(ConfigurationError, match=f"{limit} is -1"):
        bound(**{limit: -1})


def test_calls_begun_are_counted_by_tool_where_anything_is_bounded() -> None:
    thread = bound(seconds=100)
    thread.user("Build")
    thread.run(says(call("build")))
    assert thread.head.begun == {"build": 1}
