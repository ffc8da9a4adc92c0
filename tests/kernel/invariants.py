"""What holds for a thread after every commit."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from hibernaut.kernel.chain import verify_chain
from hibernaut.messages.inputs import (
    Timer,
)
from hibernaut.messages.items import (
    ResultItem,
)

if TYPE_CHECKING:
    from tests.kernel.scenario import Thread

LARGEST_HEAD = 16_384
"""Bytes that a head of these tests never reaches: 64 remembered calls of 100 bytes, one turn, and the rest."""

_FINAL_STATES = ("cancelled", "expired")


def check(thread: "Thread") -> None:
    """Check the invariants of a thread."""
    for invariant in INVARIANTS:
        invariant(thread)


def results_stand_in_the_order_of_their_calls_and_once(thread: "Thread") -> None:
    made = set(thread.calls)
    results = [item.call_id for item in thread.items if isinstance(item, ResultItem) and item.call_id in made]
    assert results + list(thread.head.turn) == thread.calls


def every_dispatched_call_is_under_way_or_answered(thread: "Thread") -> None:
    head = thread.head
    answered = {item.call_id for item in thread.items if isinstance(item, ResultItem)}
    for name in thread.owed:
        if name in head.calls:
            assert head.calls[name].state != "queued"
        else:
            assert name.removesuffix(":cancel") in answered or name.endswith(":cancel")


def every_invocation_that_runs_belongs_to_a_call_that_wants_it(thread: "Thread") -> None:
    calls = thread.head.calls
    wanted = [name for name, one in calls.items() if one.state in ("open", "detached", "subscribed")]
    assert set(thread.outbox) == {name for name in wanted if calls[name].mode != "rest" and not calls[name].approval}


def every_call_that_waits_for_leave_has_its_question(thread: "Thread") -> None:
    head = thread.head
    waiting = {name: one.approval for name, one in head.calls.items() if one.approval}
    asked = {one.call_id: name for name, one in head.questions.items() if one.approves and one.answer < 0}
    assert waiting == asked
    assert not set(waiting) & set(thread.owed)


def a_thread_is_never_stuck(thread: "Thread") -> None:
    head = thread.head
    if head.status != "open":
        assert not thread.continues
        return
    turn = [head.calls[name] for name in head.turn]
    if turn:
        assert any(one.state == "open" and one.held is None for one in turn)
        assert turn[0].held is None
        assert not thread.continues
    else:
        assert thread.continues == (head.owes and not head.attempts)
        assert bool(head.attempts) == (head.retry in thread.inbox)


def every_timer_is_wanted_and_every_wanted_timer_is_there(thread: "Thread") -> None:
    head = thread.head
    wanted = {one.timer for one in head.calls.values() if one.timer} | ({head.retry} if head.retry else set())
    wanted |= {f"question:{name}" for name, one in head.questions.items() if one.due and one.answer < 0}
    timers = {name for name, letter in thread.inbox.items() if isinstance(letter.content, Timer) and letter.is_ours}
    assert wanted == timers


def what_is_remembered_is_bounded(thread: "Thread") -> None:
    head = thread.head
    assert len(thread.stored) < LARGEST_HEAD
    assert sum(one.state in _FINAL_STATES for one in head.calls.values()) <= 64 + len(head.turn)
    assert set(head.turn) <= set(head.calls)
    for name, one in head.calls.items():
        assert name in head.turn or one.held is None
        assert name in head.turn or one.state not in ("queued", "open", "answered")


def the_chain_verifies(thread: "Thread") -> None:
    head = thread.head
    assert verify_chain(thread.log, head.history, head.receipts, thread.start) == head.version == len(thread.log)
    assert head.items == len(thread.items)


INVARIANTS: tuple[Callable[["Thread"], None], ...] = (
    results_stand_in_the_order_of_their_calls_and_once,
    every_dispatched_call_is_under_way_or_answered,
    every_invocation_that_runs_belongs_to_a_call_that_wants_it,
    every_call_that_waits_for_leave_has_its_question,
    a_thread_is_never_stuck,
    every_timer_is_wanted_and_every_wanted_timer_is_there,
    what_is_remembered_is_bounded,
    the_chain_verifies,
)
