"""Calls that an operator answers by hand."""

from hibernaut.kernel.commit import Disposition
from hibernaut.messages.inputs import Command, Settlement
from tests.kernel.scenario import Thread, calls, says


def settle(thread: Thread, number: int, text: str = "It ran.", *, is_error: bool = False) -> str:
    name = thread.calls[number - 1]
    return thread.put(Settlement(name, text, is_error, "I looked", "ada"), f"settled:{name}")


def test_an_open_call_is_answered_and_its_effect_is_over() -> None:
    thread = Thread()
    thread.user("Build")
    thread.run(calls("build"))
    (name,) = thread.calls
    message = settle(thread, 1)
    thread.run(says("Good."))
    assert thread.story()[-3:] == ["#1 build", "#1 = It ran.", "A: Good."]
    assert thread.receipt.inputs == ((message, Disposition.ACCEPTED),)
    assert thread.receipt.settled == (name,)
    assert thread.receipt.provenance == (("test", name, "", "settle", "I looked"),)
    assert thread.running() == []
    assert f"build {name} was answered by ada: I looked" in thread.notices()


def test_its_own_result_is_shown_as_an_event_when_it_comes_all_the_same() -> None:
    thread = Thread()
    thread.user("Build")
    thread.run(calls("build"))
    settle(thread, 1, "Nobody knows.", is_error=True)
    thread.run(says("Hm."))
    thread.result(1, "built")
    thread.run(says("So it was."))
    assert thread.story()[-4:] == ["#1 ! Nobody knows.", "A: Hm.", "late #1: built", "A: So it was."]
    assert thread.state(1) == "gone"


def test_a_call_that_goes_on_beside_the_conversation_is_answered_by_an_event() -> None:
    thread = Thread()
    thread.user("Build")
    thread.run(calls("build"))
    thread.user("And?")
    thread.run(says("It runs."))
    settle(thread, 1)
    thread.run(says("It ran."))
    assert thread.story()[-2:] == ["late #1: It ran.", "A: It ran."]
    assert thread.running() == []


def test_a_thread_that_is_parked_takes_it_and_stays_parked() -> None:
    thread = Thread()
    thread.user("Build")
    thread.run(calls("build", "check"))
    thread.put(Command("park"))
    thread.run()
    settle(thread, 1)
    thread.run()
    assert thread.head.status == "parked"
    assert thread.running() == []
    thread.user("Go on")
    thread.run(says("On."))
    assert "#1 = It ran." in thread.story()


def test_a_call_that_is_answered_cancelled_or_a_subscription_is_not_answered_by_hand() -> None:
    thread = Thread()
    thread.user("Build, watch")
    thread.run(calls("build"))
    thread.result(1)
    thread.run(calls("watch"))
    thread.result(2, "watching", subscription=True)
    thread.run(calls("check"))
    thread.cancel(3)
    thread.run(says("Cancelled."))
    before = thread.story()
    for number in (1, 2, 3):
        settle(thread, number)
    thread.run()
    assert thread.story() == before
    assert [fate for _, fate in thread.receipt.inputs] == [Disposition.STALE] * 3
    assert thread.receipt.settled == ()
