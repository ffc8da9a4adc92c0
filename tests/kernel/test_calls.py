"""The calls of a turn: several at once or one after the other, their deadlines, and the ends that come too late."""

import pytest

from hibernaut.kernel.commit import Disposition
from hibernaut.kernel.limits import REMEMBERED_CALLS, ThreadOptions
from hibernaut.messages.inputs import Command, Timer
from hibernaut.messages.items import EventItem
from tests.kernel.scenario import MINUTE, SECOND, Thread, call, calls, says

TIMED_OUT = "Timed out: no result within 60 s. It may still happen."
GRACE = ThreadOptions().event_grace


def three(parallel_calls: int, call_deadline: int = 0) -> Thread:
    """Return a thread whose model has made three calls in one turn."""
    thread = Thread(ThreadOptions(parallel_calls=parallel_calls, call_deadline=call_deadline))
    thread.user("Go")
    return thread.run(calls("build", "check", "publish"))


def deployed() -> Thread:
    """Return a thread that waits for a call with a deadline of a minute."""
    thread = Thread()
    thread.user("Deploy")
    return thread.run(calls("deploy"))


# Several calls in one turn


def test_a08_calls_run_one_after_the_other_without_asking_the_model_between() -> None:
    thread = three(1)
    assert thread.running() == [1]
    thread.result(1, "built")
    thread.run()
    assert thread.running() == [2]
    thread.result(2, "fine")
    thread.run()
    assert thread.running() == [3]
    thread.result(3, "out")
    thread.run(says("Published."))
    assert thread.story() == [
        "U: Go",
        "#1 build",
        "#2 check",
        "#3 publish",
        "#1 = built",
        "#2 = fine",
        "#3 = out",
        "A: Published.",
    ]


def test_a08_calls_that_may_run_together_are_all_dispatched_at_once() -> None:
    thread = three(3)
    assert thread.running() == [1, 2, 3]
    assert thread.receipt.dispatched == tuple(thread.calls)


def test_a08_a_free_place_is_taken_by_the_next_call() -> None:
    thread = three(2)
    assert thread.running() == [1, 2]
    thread.result(2, "fine")
    thread.run()
    assert thread.running() == [1, 3]


def test_a08_results_out_of_order_end_in_the_order_of_the_calls() -> None:
    thread = three(3)
    thread.result(3, "out")
    thread.result(2, "broken", is_error=True)
    thread.run()
    assert thread.story()[-1] == "#3 publish"
    thread.result(1, "built")
    thread.run(says("Almost."))
    assert thread.story()[-4:] == ["#1 = built", "#2 ! broken", "#3 = out", "A: Almost."]
    assert thread.head.calls == {}


@pytest.mark.parametrize("parallel_calls", [1, 3])
def test_a08_a_failed_call_does_not_stop_the_others(parallel_calls: int) -> None:
    thread = three(parallel_calls)
    for number in (1, 2, 3):
        thread.result(number, f"end {number}", is_error=number == 1)
        thread.run(*([says("Well.")] if number == 3 else []))
    assert thread.story()[-4:] == ["#1 ! end 1", "#2 = end 2", "#3 = end 3", "A: Well."]


def test_a_turn_that_is_cut_short_does_not_run_what_was_still_queued() -> None:
    thread = three(1)
    thread.result(1, "built")
    thread.run()
    thread.user("Wait")
    thread.run(says("Yes?"))
    assert thread.story()[4:] == ["#1 = built", "#2 = STILL_RUNNING", "#3 ! NOT_RUN", "U: Wait", "A: Yes?"]
    assert (thread.running(), thread.state(3)) == ([2], "gone")


def test_a_result_that_is_held_when_the_turn_is_cut_short_is_kept() -> None:
    thread = three(3)
    thread.result(2, "fine")
    thread.run()
    thread.user("Wait")
    thread.run(says("Yes?"))
    assert thread.story()[4:] == ["#1 = STILL_RUNNING", "#2 = fine", "#3 = STILL_RUNNING", "U: Wait", "A: Yes?"]


def test_c02_a_stop_answers_every_open_call_in_order() -> None:
    thread = three(2)
    thread.stop()
    thread.run()
    thread.user("hi")
    thread.run(says("Hello."))
    assert thread.story()[4:] == ["#1 ! STOPPED", "#2 ! STOPPED", "#3 ! NOT_RUN", "U: hi", "A: Hello."]
    assert [name.rpartition(":")[2] for name in thread.owed[2:]] == ["cancel", "cancel"]


def test_a_text_in_the_same_batch_as_a_result_does_not_begin_the_next_call() -> None:
    thread = three(1)
    thread.result(1, "built")
    thread.user("Wait")
    thread.run(says("Yes?"))
    assert thread.story()[4:] == ["#1 = built", "#2 ! NOT_RUN", "#3 ! NOT_RUN", "U: Wait", "A: Yes?"]
    assert thread.owed == [thread.calls[0]]


def test_an_event_in_the_same_batch_as_a_result_waits_for_the_next_call() -> None:
    thread = Thread()
    thread.user("Watch")
    thread.run(calls("watch"))
    thread.result(1, "watching", subscription=True)
    thread.run(calls("build", "check"))
    thread.event(1, "a push")
    thread.result(2, "built")
    thread.run()
    assert thread.running() == [1, 3]
    thread.result(3, "fine")
    thread.run(says("All."))
    assert thread.story()[-4:] == ["#2 = built", "#3 = fine", "event #1: a push", "A: All."]


def test_an_event_waits_for_a_call_that_works_beside_one_that_rests() -> None:
    thread = Thread(ThreadOptions(parallel_calls=2))
    thread.user("Watch")
    thread.run(calls("watch"))
    thread.result(1, "watching", subscription=True)
    thread.run(calls("sleep", "build"))
    push = thread.event(1, "a push")
    thread.run()
    assert thread.receipt.inputs == ((push, Disposition.DEFERRED),)


def test_a_confirmed_subscription_lets_the_next_call_begin() -> None:
    thread = Thread()
    thread.user("Watch and build")
    thread.run(calls("watch", "build"))
    thread.result(1, "watching", subscription=True)
    thread.run()
    assert (thread.state(1), thread.running()) == ("subscribed", [1, 2])


def test_a_subscription_that_fails_is_none() -> None:
    thread = Thread()
    thread.user("Watch")
    thread.run(calls("watch"))
    thread.result(1, "no such topic", is_error=True, subscription=True)
    thread.run(says("Pity."))
    assert thread.state(1) == "gone"
    ghost = thread.event(1, "boo")
    thread.run()
    assert thread.fates[ghost] == Disposition.REFUSED


def test_an_event_may_overtake_the_confirmation_of_its_subscription() -> None:
    thread = Thread()
    thread.user("Watch")
    thread.run(calls("watch"))
    thread.event(1, "a push")
    thread.run()
    thread.wait(GRACE)
    thread.run(says("Already."))
    thread.result(1, "watching", subscription=True)
    thread.run(says("Good."))
    assert thread.story()[2:] == [
        "#1 = STILL_RUNNING",
        "event #1: a push",
        "A: Already.",
        "late #1: watching",
        "A: Good.",
    ]
    assert thread.state(1) == "subscribed"


def test_a_late_confirmation_that_failed_is_no_subscription() -> None:
    thread = Thread()
    thread.user("Watch")
    thread.run(calls("watch"))
    thread.user("Well?")
    thread.run(says("I wait."))
    thread.result(1, "no such topic", is_error=True, subscription=True)
    thread.run(says("Pity."))
    assert thread.state(1) == "gone"


def test_a_subscription_that_was_cancelled_before_its_confirmation_stays_cancelled() -> None:
    thread = Thread(ThreadOptions(on_user_text="cancel"))
    thread.user("Watch")
    thread.run(calls("watch"))
    thread.user("No")
    thread.run(says("Good."))
    ghost = thread.event(1, "boo")
    thread.result(1, "watching", subscription=True)
    thread.run(says("Too late."))
    assert (thread.state(1), thread.fates[ghost]) == ("gone", Disposition.REFUSED)


def test_a_queued_call_that_is_cancelled_is_not_run() -> None:
    thread = three(1)
    thread.cancel(2)
    thread.result(1, "built")
    thread.run()
    assert thread.running() == [3]
    assert thread.story()[4:] == ["#1 = built", "#2 ! Not run: cancelled by an operator."]


def test_a_call_whose_result_is_there_cannot_be_cancelled() -> None:
    thread = three(3)
    thread.result(2, "fine")
    thread.run()
    cancel = thread.cancel(2)
    thread.run()
    assert (thread.fates[cancel], thread.state(2)) == (Disposition.STALE, "answered")


def test_a_sleep_that_is_over_has_its_result_when_the_turn_is_stopped() -> None:
    thread = Thread(ThreadOptions(parallel_calls=2))
    thread.user("Build and sleep")
    thread.run(calls("build", "sleep"))
    thread.wait(10 * SECOND)
    thread.run()
    thread.stop()
    thread.run()
    assert thread.story()[-2:] == ["#1 ! STOPPED", "#2 = Slept until the time set."]


def test_an_open_call_that_is_cancelled_makes_room_for_the_next() -> None:
    thread = three(1)
    thread.cancel(1)
    thread.run()
    assert thread.running() == [2]
    late = thread.result(1, "built all the same")
    thread.result(2, "fine")
    thread.run()
    assert thread.running() == [3]
    thread.result(3, "out")
    thread.run(says("All."))
    assert thread.story()[-3:] == ["#3 = out", "late #1: built all the same", "A: All."]
    assert thread.fates[late] == Disposition.ACCEPTED


def test_a_result_for_a_call_that_is_still_queued_is_stale() -> None:
    thread = three(1)
    forged = thread.result(2, "trust me")
    thread.run()
    assert (thread.fates[forged], thread.state(2)) == (Disposition.STALE, "queued")


def test_a_sleep_takes_its_place_among_the_calls() -> None:
    thread = Thread()
    thread.user("Sleep, then build")
    thread.run(calls("sleep", "build"))
    assert (thread.running(), thread.alarms()) == ([], ["sleep 10"])
    thread.wait(10 * SECOND)
    thread.run()
    assert thread.running() == [2]


def test_a_sleep_until_a_moment_ends_at_that_moment() -> None:
    thread = Thread()
    thread.wait(4 * SECOND)
    thread.user("Sleep")
    thread.run(calls("sleep_until"))
    assert thread.alarms() == ["sleep 6"]


def test_a_queued_sleep_counts_from_its_beginning() -> None:
    thread = Thread()
    thread.user("Build, then sleep")
    thread.run(calls("build", "sleep"))
    thread.wait(MINUTE)
    thread.result(1, "built")
    thread.run()
    assert thread.alarms() == ["sleep 10"]


def test_a_turn_cut_short_by_parking_goes_on_when_it_is_resumed() -> None:
    thread = three(1)
    thread.put(Command("park"))
    thread.run()
    thread.result(1, "built")
    thread.put(Command("resume"))
    thread.run()
    assert thread.running() == [2]


# Deadlines


def test_a15_a_call_without_a_result_times_out() -> None:
    thread = deployed()
    assert thread.alarms() == ["deadline 60"]
    thread.wait(MINUTE)
    thread.run(says("It hangs."))
    assert thread.story() == ["U: Deploy", "#1 deploy", f"#1 ! {TIMED_OUT}", "A: It hangs."]
    assert (thread.running(), thread.state(1)) == ([], "expired")


def test_a15_the_result_of_a_call_that_timed_out_arrives_once_as_an_event() -> None:
    thread = deployed()
    thread.wait(MINUTE)
    thread.run(says("It hangs."))
    first = thread.result(1, "deployed")
    thread.run(says("Late, but good."))
    again = thread.result(1, "deployed")
    thread.run()
    assert thread.story()[-3:] == ["A: It hangs.", "late #1: deployed", "A: Late, but good."]
    assert (thread.fates[first], thread.fates[again]) == (Disposition.ACCEPTED, Disposition.STALE)


def test_a15_a_result_in_time_takes_the_deadline_back() -> None:
    thread = deployed()
    thread.result(1, "deployed")
    thread.run(says("Good."))
    assert thread.inbox == {}


def test_a15_a_result_that_is_there_wins_over_the_deadline() -> None:
    thread = deployed()
    thread.wait(MINUTE)
    thread.result(1, "deployed")
    thread.run(says("Good."))
    assert thread.story()[1:] == ["#1 deploy", "#1 = deployed", "A: Good."]
    assert thread.owed == [thread.calls[0]]


def test_a15_a_deadline_is_told_before_what_the_user_says_next() -> None:
    thread = deployed()
    thread.wait(MINUTE)
    thread.user("Well?")
    thread.run(says("It hangs."))
    assert thread.story()[1:] == ["#1 deploy", f"#1 ! {TIMED_OUT}", "U: Well?", "A: It hangs."]


def test_a15_a_detached_call_times_out_as_an_event() -> None:
    thread = deployed()
    thread.user("Meanwhile?")
    thread.run(says("It runs."))
    assert thread.alarms() == ["deadline 60"]
    thread.wait(MINUTE)
    thread.run(says("It hangs."))
    assert thread.story()[-3:] == ["A: It runs.", f"late #1: {TIMED_OUT}", "A: It hangs."]
    assert (thread.running(), thread.state(1)) == ([], "expired")


def test_a15_the_deadline_of_a_detached_call_waits_for_the_open_one() -> None:
    thread = deployed()
    thread.user("Build")
    thread.run(calls("build"))
    thread.wait(MINUTE)
    thread.run()
    assert thread.running() == [1, 2]
    thread.result(2, "built")
    thread.run(says("It hangs."))
    assert thread.story()[-4:] == ["#2 build", "#2 = built", f"late #1: {TIMED_OUT}", "A: It hangs."]


def test_a15_the_deadline_of_a_detached_call_waits_no_longer_than_an_event() -> None:
    thread = deployed()
    thread.user("Build")
    thread.run(calls("build"))
    thread.wait(MINUTE)
    thread.run()
    thread.wait(GRACE)
    thread.run(says("It hangs."))
    assert thread.story()[-3:] == ["#2 = STILL_RUNNING", f"late #1: {TIMED_OUT}", "A: It hangs."]


def test_a15_the_late_result_of_a_detached_call_wins_over_its_deadline() -> None:
    thread = deployed()
    thread.user("Build")
    thread.run(calls("build"))
    thread.wait(MINUTE)
    thread.result(1, "deployed")
    thread.result(2, "built")
    thread.run(says("Both."))
    assert thread.story()[-4:] == ["#2 build", "#2 = built", "late #1: deployed", "A: Both."]
    assert thread.owed == thread.calls


def test_a15_a_late_result_takes_the_deadline_back() -> None:
    thread = deployed()
    thread.user("Meanwhile?")
    thread.run(says("It runs."))
    thread.result(1, "deployed")
    thread.run(says("Good."))
    assert thread.inbox == {}


def test_a15_every_call_has_the_deadline_of_its_thread_unless_its_tool_has_one() -> None:
    thread = three(3, 5 * SECOND)
    assert thread.alarms() == ["deadline 5"] * 3
    thread.wait(5 * SECOND)
    thread.run(calls("deploy"))
    assert thread.story()[4:7] == [f"#{n} ! Timed out: no result within 5 s. It may still happen." for n in (1, 2, 3)]
    assert thread.alarms() == ["deadline 60"]


def test_a15_a_queued_call_has_its_whole_time_from_its_beginning() -> None:
    thread = Thread()
    thread.user("Build, then deploy")
    thread.run(calls("build", "deploy"))
    thread.wait(50 * SECOND)
    thread.result(1, "built")
    thread.run()
    assert thread.alarms() == ["deadline 60"]


def test_a_deadline_ends_when_a_subscription_is_confirmed() -> None:
    thread = Thread()
    thread.user("Follow")
    thread.run(calls("follow"))
    assert thread.alarms() == ["deadline 60"]
    thread.result(1, "following", subscription=True)
    thread.run(says("I follow."))
    assert (thread.alarms(), thread.state(1)) == (["expiry 2592000"], "subscribed")


def test_a_deadline_ends_when_its_detached_call_is_stopped() -> None:
    thread = deployed()
    thread.user("Meanwhile?")
    thread.run(says("It runs."))
    thread.stop()
    thread.run()
    assert thread.alarms() == []


def test_a_deadline_ends_with_the_last_event() -> None:
    thread = Thread()
    thread.user("Follow")
    thread.run(calls("follow"))
    thread.user("Meanwhile?")
    thread.run(says("I wait."))
    thread.event(1, "all there was", final=True)
    thread.run(says("Good."))
    assert (thread.inbox, thread.state(1)) == ({}, "gone")


def test_a_timer_of_a_call_that_is_over_is_stale() -> None:
    thread = deployed()
    thread.cancel(1)
    thread.run(says("Then not."))
    forged = thread.put(Timer("deadline", thread.now, thread.calls[0]))
    thread.run()
    assert (thread.fates[forged], thread.state(1)) == (Disposition.STALE, "cancelled")


@pytest.mark.parametrize("purpose", ["sleep", "deadline", "retry"])
def test_a_timer_that_nobody_set_is_stale(purpose: str) -> None:
    thread = deployed()
    forged = thread.put(Timer(purpose, thread.now, "call_unknown"), "forged")  # type: ignore[arg-type]
    thread.round()
    assert thread.fates.pop(forged) == Disposition.STALE
    assert thread.state(1) == "open"


def test_only_so_many_ended_calls_are_remembered() -> None:
    thread = Thread(ThreadOptions(on_user_text="cancel"))
    for number in range(REMEMBERED_CALLS + 2):
        thread.user(f"Try {number}")
        thread.run(calls("build"))
    thread.user("Enough")
    thread.run(says("Yes."))
    assert len(thread.head.calls) == REMEMBERED_CALLS
    forgotten, remembered = thread.result(2), thread.result(3)
    thread.run(says("Oh."))
    assert thread.fates[forgotten] == Disposition.STALE
    assert thread.fates[remembered] == Disposition.ACCEPTED


def test_an_ended_call_is_remembered_with_little_however_large_its_arguments_were() -> None:
    thread = Thread(ThreadOptions(on_user_text="cancel"))
    thread.user("Write")
    thread.run(says(call("build", '{"content": "' + "x" * 10_000 + '"}')))
    assert len(thread.stored) > 10_000
    thread.user("Stop that")
    thread.run(says("Yes."))
    assert len(thread.stored) < 1_024
    thread.result(1, "written")
    thread.run(says("Too late."))
    (event,) = [item for item in thread.items if isinstance(item, EventItem)]
    assert event.arguments.startswith('{"content": "xxx')
    assert event.arguments.endswith('xxx"}')


def test_call_ids_are_the_threads_own_and_the_providers_are_kept_beside_them() -> None:
    thread = Thread()
    thread.user("Read it twice")
    thread.run(says(call("read"), call("read")))
    thread.result(1)
    thread.run()
    thread.result(2)
    thread.run(says("Read."))
    first, second = thread.calls
    assert first != second
    assert [getattr(item, "provider_id", None) for item in thread.items[1:3]] == ["toolu_read", "toolu_read"]
