"""What reaches a thread that is stopped, parked or closed, and what sets it going again."""

import pytest

from hibernaut.kernel.commit import Disposition
from hibernaut.kernel.prepare import prepare
from hibernaut.messages.inputs import Command, Delivered
from tests.kernel.scenario import (
    MINUTE,
    OVERLOADED,
    Thread,
    calls,
    idle,
    says,
    waiting,
    watching,
)

ACCEPTED = Disposition.ACCEPTED
STALE = Disposition.STALE
REFUSED = Disposition.REFUSED
HELD = Disposition.HELD
CLOSED = Disposition.CLOSED


# Stopped


def test_what_reaches_a_stopped_thread_is_held_and_read_when_the_user_speaks() -> None:
    thread = watching()
    thread.stop()
    thread.run()
    push = thread.event(1, "a push")
    assert not thread.ready()
    again = thread.stop()
    thread.run()
    assert thread.receipt.inputs == ((again, STALE), (push, HELD))
    thread.user("Go on")
    thread.run(says("Seen."))
    assert thread.story()[-3:] == ["event #1: a push", "U: Go on", "A: Seen."]
    assert thread.fates[push] == ACCEPTED


def test_an_operator_resumes_a_stopped_thread_and_the_model_answers_what_it_owes() -> None:
    thread = waiting("build")
    thread.stop()
    thread.run()
    thread.put(Command("resume"))
    thread.run(says("It was stopped."))
    assert thread.story(notices=True)[1:] == [
        "#1 build",
        "#1 ! STOPPED",
        "(stopped)",
        "(resumed)",
        "A: It was stopped.",
    ]


def test_a_blank_text_does_not_resume_a_stopped_thread() -> None:
    thread = idle()
    thread.stop()
    thread.run()
    blank = thread.user(" ")
    thread.run()
    assert (thread.head.status, thread.fates[blank]) == ("stopped", REFUSED)


def test_a_text_behind_a_stop_resumes_the_thread_in_the_next_round() -> None:
    thread = waiting("build")
    thread.stop()
    text = thread.user("No, go on")
    thread.round()
    assert thread.receipt.inputs[1] == (text, HELD)
    thread.run(says("Sorry."))
    assert thread.story()[2:] == ["#1 ! STOPPED", "U: No, go on", "A: Sorry."]


def test_a_retry_of_a_stopped_thread_is_over() -> None:
    thread = Thread()
    thread.user("Go")
    thread.run(OVERLOADED)
    assert thread.alarms() == ["retry 0"]
    thread.stop()
    thread.run()
    assert thread.inbox == {}
    thread.put(Command("resume"))
    thread.run(says("Here."))
    assert thread.story() == ["U: Go", "A: Here."]


# Parked


def test_a_parked_thread_reads_the_results_that_came_meanwhile_when_it_is_resumed() -> None:
    thread = waiting("build")
    thread.put(Command("park", reason="maintenance"))
    thread.run()
    assert (thread.head.status, thread.head.reason) == ("parked", "maintenance")
    result = thread.result(1, "built")
    assert not thread.ready()
    again = thread.put(Command("park"))
    thread.run()
    assert thread.receipt.inputs == ((again, STALE), (result, HELD))
    thread.put(Command("resume"))
    thread.run(says("Built."))
    assert thread.story() == ["U: Go", "#1 build", "#1 = built", "A: Built."]


def test_a_sleep_that_ends_while_the_thread_is_parked_is_read_when_it_is_resumed() -> None:
    thread = waiting("sleep")
    thread.put(Command("park"))
    thread.run()
    thread.wait(MINUTE)
    assert not thread.ready()
    thread.user("And?")
    thread.run(says("I slept."))
    assert thread.story()[1:] == [
        "#1 sleep",
        "#1 = Slept until the time set. It was noticed 50 s late.",
        "U: And?",
        "A: I slept.",
    ]


def test_a_call_of_a_parked_thread_can_be_cancelled() -> None:
    thread = waiting("build")
    thread.put(Command("park"))
    thread.cancel(1)
    thread.run()
    assert (thread.head.status, thread.head.reason) == ("parked", "parked by an operator")
    assert thread.running() == []


# Closed


def test_a_closed_thread_ends_its_work_and_takes_nothing_more() -> None:
    thread = watching()
    thread.user("Build, then sleep")
    thread.run(calls("build", "sleep"))
    push = thread.event(1, "a push")
    thread.put(Command("close", reason="done"))
    late = thread.stop()
    thread.run()
    assert (thread.head.status, thread.head.reason) == ("closed", "done")
    assert thread.story()[-2:] == ["#2 ! STOPPED", "#3 ! NOT_RUN"]
    assert (thread.fates[push], thread.fates[late]) == (CLOSED, CLOSED)
    assert (thread.running(), thread.inbox) == ([], {})


def test_a_stopped_thread_can_be_closed_and_what_was_cancelled_is_not_cancelled_again() -> None:
    thread = waiting("build")
    thread.stop()
    thread.run()
    thread.put(Command("close"))
    thread.run()
    assert thread.head.status == "closed"
    assert thread.owed == [thread.calls[0], f"{thread.calls[0]}:cancel"]


@pytest.mark.parametrize("action", ["stop", "resume", "park", "close"])
def test_nothing_opens_a_closed_thread(action: str) -> None:
    thread = idle()
    thread.put(Command("close"))
    thread.put(Command(action))  # type: ignore[arg-type]  # what the parameter lists
    text = thread.user("Hello?")
    thread.run()
    assert (thread.head.status, thread.fates[text]) == ("closed", CLOSED)


def test_what_reaches_a_closed_thread_all_the_same_is_disposed_of() -> None:
    thread = idle()
    thread.put(Command("close"))
    thread.run()
    draft = prepare(thread.head, [Delivered("x", 0, None, "torn")], thread.options, thread.now)
    assert draft.dispositions == [("x", CLOSED)]


def test_a_thread_that_is_stopped_is_not_compacted_and_says_so() -> None:
    thread = idle()
    thread.stop()
    thread.run()
    name = thread.put(Command("compact"))
    thread.run()
    assert thread.fates[name] is Disposition.STALE
    assert thread.notices()[-1] == "the thread is stopped; resume it, then compact it"
