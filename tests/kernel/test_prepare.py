"""What each input does to a thread that is idle, waits, rests or is being answered, alone and in batches."""

import pytest

from hibernaut.kernel.commit import Disposition
from hibernaut.kernel.limits import ThreadOptions
from hibernaut.kernel.receipt import TurnCommit
from hibernaut.messages.inputs import Command, Event, ToolResult, UserText
from hibernaut.messages.items import CallItem, EventItem, ResultItem, UserItem
from hibernaut.messages.parts import Image
from tests.kernel.scenario import (
    MINUTE,
    OVERLOADED,
    REASONING,
    SECOND,
    Thread,
    call,
    calls,
    cut_short,
    detached,
    ended,
    idle,
    says,
    waiting,
    watching,
)

ACCEPTED = Disposition.ACCEPTED
STALE = Disposition.STALE
REFUSED = Disposition.REFUSED
DEFERRED = Disposition.DEFERRED
GRACE = ThreadOptions().event_grace


# Idle


def test_a_user_text_is_answered() -> None:
    thread = Thread()
    hello = thread.put(UserText("Hello", user="ada"), metadata='{"lang":"en"}')
    thread.run(says("Hi."))
    assert thread.story() == ["U: Hello", "A: Hi."]
    assert thread.items[0] == UserItem("Hello", "ada")
    assert thread.fates == {hello: ACCEPTED}
    assert thread.head.metadata == '{"lang":"en"}'
    assert not thread.ready()


@pytest.mark.parametrize("content", ["", " \n\t", ()])
def test_a_blank_user_text_is_refused_and_wakes_nobody(content: str) -> None:
    thread = idle()
    blank = thread.put(UserText(content))
    thread.run()
    assert thread.fates[blank] == REFUSED
    assert thread.story() == ["U: Hello", "A: Hi."]


def test_a_picture_without_words_is_answered() -> None:
    thread = Thread()
    thread.put(UserText((Image("image/png", b"PNG"),)))
    thread.run(says("A cat."))
    assert thread.story() == ["U: [image: image/png]", "A: A cat."]


def test_a_result_that_nobody_waits_for_is_stale_and_runs_nothing() -> None:
    thread = idle()
    foreign = thread.put(ToolResult("call_of_another_thread", "done"))
    thread.run()
    assert thread.fates[foreign] == STALE
    assert thread.story() == ["U: Hello", "A: Hi."]


def test_an_event_of_a_subscription_is_put_into_the_history_and_answered() -> None:
    thread = watching()
    thread.event(1, "a push")
    thread.run(says("Seen."))
    assert thread.story()[-2:] == ["event #1: a push", "A: Seen."]
    assert thread.state(1) == "subscribed"


def test_a_final_event_ends_its_subscription() -> None:
    thread = watching()
    thread.event(1, "deleted", final=True)
    thread.run(says("It is over."))
    assert thread.story()[-2:] == ["last #1: deleted", "A: It is over."]
    after = thread.event(1, "a ghost")
    thread.run()
    assert thread.fates[after] == REFUSED
    assert thread.state(1) == "gone"


def test_an_event_that_belongs_to_no_active_subscription_is_refused() -> None:
    thread = detached()
    about_a_tool_that_sends_none = thread.event(1, "boo")
    unknown = thread.put(Event("call_unknown", "boo", associative=True))
    thread.run()
    assert thread.fates[about_a_tool_that_sends_none] == thread.fates[unknown] == REFUSED


def test_a09_the_result_of_a_detached_call_arrives_once_as_an_event() -> None:
    thread = detached()
    assert thread.state(1) == "detached"
    first = thread.result(1, "built")
    thread.run(says("It is built."))
    again = thread.result(1, "built")
    thread.run()
    assert thread.story() == [
        "U: Go",
        "#1 build",
        "#1 = STILL_RUNNING",
        "U: Still there?",
        "A: Yes.",
        "late #1: built",
        "A: It is built.",
    ]
    assert (thread.fates[first], thread.fates[again]) == (ACCEPTED, STALE)


@pytest.mark.parametrize("by_stop", [False, True])
def test_a09_the_result_of_a_cancelled_call_arrives_once_as_an_event(by_stop: bool) -> None:
    thread = ended(by_stop=by_stop)
    assert thread.state(1) == "cancelled"
    first = thread.result(1, "built")
    thread.run(says("So it was built."))
    again = thread.result(1, "built")
    thread.run()
    assert thread.story()[-3:] == ["A: Hello.", "late #1: built", "A: So it was built."]
    assert (thread.fates[first], thread.fates[again]) == (ACCEPTED, STALE)


def test_a13_a_subscription_confirmed_late_is_known_and_can_be_cancelled() -> None:
    thread = waiting("watch")
    thread.user("Still there?")
    thread.run(says("Yes."))
    thread.result(1, "watching", subscription=True)
    thread.run(says("Now I watch."))
    thread.event(1, "a push")
    thread.run(says("Seen."))
    thread.cancel(1)
    thread.run(says("Good."))
    assert thread.story()[-5:] == [
        "A: Now I watch.",
        "event #1: a push",
        "A: Seen.",
        "late #1: Cancelled by an operator. It is unknown how far it got.",
        "A: Good.",
    ]
    assert thread.running() == []
    late = thread.event(1, "a ghost")
    thread.run()
    assert thread.fates[late] == REFUSED


# Waiting


def test_a_result_is_recorded_and_answered() -> None:
    thread = waiting("build")
    assert (thread.running(), thread.ready()) == ([1], False)
    thread.result(1, "built")
    thread.run(says("Done."))
    assert thread.story() == ["U: Go", "#1 build", "#1 = built", "A: Done."]
    assert thread.head.calls == {}


def test_a_user_text_detaches_the_open_call() -> None:
    thread = detached()
    assert thread.story() == ["U: Go", "#1 build", "#1 = STILL_RUNNING", "U: Still there?", "A: Yes."]
    assert thread.running() == [1]


def test_a_user_text_cancels_the_open_call_where_that_is_wanted() -> None:
    thread = ended(by_stop=False)
    assert thread.story() == ["U: Go", "#1 build", "#1 ! INTERRUPTED", "U: hi", "A: Hello."]
    assert thread.owed == [thread.calls[0], f"{thread.calls[0]}:cancel"]


def test_an_event_waits_for_the_open_call_then_the_call_is_detached() -> None:
    thread = watching()
    thread.user("Build")
    thread.run(calls("build"))
    push = thread.event(1, "a push")
    thread.wait(1)
    thread.run()
    assert thread.receipt.inputs == ((push, DEFERRED),)
    thread.wait(GRACE - 2)
    assert not thread.ready()
    thread.wait(1)
    thread.run(says("Seen."))
    assert thread.story()[-4:] == ["#2 build", "#2 = STILL_RUNNING", "event #1: a push", "A: Seen."]
    assert thread.running() == [1, 2]


def test_an_event_does_not_wait_for_a_call_that_stands_for_waiting() -> None:
    thread = watching()
    thread.user("Linger")
    thread.run(calls("linger"))
    thread.event(1, "a push")
    thread.run(says("Seen."))
    assert thread.story()[-4:] == ["#2 linger", "#2 = STILL_RUNNING", "event #1: a push", "A: Seen."]


def test_a_late_result_waits_for_the_open_call_too() -> None:
    thread = detached()
    thread.user("Check")
    thread.run(calls("check"))
    thread.result(1, "built")
    thread.run()
    thread.wait(SECOND)
    thread.result(2, "fine")
    thread.run(says("Both."))
    assert thread.story()[-4:] == ["#2 check", "#2 = fine", "late #1: built", "A: Both."]


def test_c02_a_stop_cancels_the_open_call_and_the_next_text_follows_its_result() -> None:
    thread = waiting("build")
    thread.stop()
    thread.run()
    assert (thread.head.status, thread.running()) == ("stopped", [])
    assert f"{thread.calls[0]}:cancel" in thread.owed
    thread.user("hi")
    thread.run(says("Hello."))
    assert thread.story() == ["U: Go", "#1 build", "#1 ! STOPPED", "U: hi", "A: Hello."]


@pytest.mark.parametrize("by_stop", [False, True])
def test_c12_a_call_that_was_cut_off_stays_visible_and_the_model_is_told_to_check(by_stop: bool) -> None:
    thread = ended(by_stop=by_stop)
    _, made, answer, *_ = thread.prompt
    assert isinstance(made, CallItem)
    assert isinstance(answer, ResultItem)
    assert (made.name, answer.call_id, answer.is_error) == ("build", made.id, True)
    assert "unknown how far it got; check before repeating" in str(answer.content)


def test_a_stop_tells_the_model_that_a_detached_call_was_cancelled() -> None:
    thread = detached()
    thread.stop()
    thread.run()
    assert thread.running() == []
    thread.user("hi")
    thread.run(says("Hello."))
    assert thread.story()[-4:] == ["A: Yes.", "late #1: STOPPED", "U: hi", "A: Hello."]


@pytest.mark.parametrize("while_stopped", [False, True])
def test_a09_the_result_of_a_detached_call_that_a_stop_cancelled_is_shown_all_the_same(while_stopped: bool) -> None:
    thread = detached()
    thread.stop()
    thread.run()
    if while_stopped:
        thread.result(1, "built")
    thread.user("hi")
    thread.run(says("Hello."))
    if not while_stopped:
        thread.result(1, "built")
        thread.run(says("Built, then."))
    assert [line for line in thread.story() if line.startswith("late")] == ["late #1: STOPPED", "late #1: built"]
    again = thread.result(1, "built")
    thread.run()
    assert thread.fates[again] == STALE


def test_a_late_result_stays_behind_a_text_that_came_first() -> None:
    thread = detached()
    thread.user("One more")
    thread.result(1, "built")
    thread.run(says("Both."))
    assert thread.story()[-3:] == ["U: One more", "late #1: built", "A: Both."]


def test_the_result_of_a_cancelled_call_makes_the_word_of_its_cancellation_needless() -> None:
    thread = detached()
    thread.result(1, "built")
    thread.cancel(1)
    thread.run(says("Built."))
    assert thread.story()[-2:] == ["late #1: built", "A: Built."]


def test_an_operator_cancels_one_call() -> None:
    thread = waiting("build")
    thread.put(Command("cancel", thread.calls[0], "too slow"))
    thread.run(says("Then not."))
    assert thread.story()[1:] == [
        "#1 build",
        "#1 ! Cancelled by an operator (too slow). It is unknown how far it got.",
        "A: Then not.",
    ]
    assert thread.running() == []


def test_an_operator_cancels_a_detached_call_and_the_model_learns_it() -> None:
    thread = detached()
    thread.cancel(1)
    thread.run(says("Pity."))
    assert thread.notices() == [f"build {thread.calls[0]} was cancelled by an operator"]
    assert thread.story()[-2:] == ["late #1: Cancelled by an operator. It is unknown how far it got.", "A: Pity."]
    again = thread.cancel(1)
    thread.run()
    assert thread.fates[again] == STALE


# Resting


def test_a_sleep_ends_at_its_time_and_says_how_late_it_was() -> None:
    thread = waiting("sleep")
    assert (thread.running(), thread.alarms()) == ([], ["sleep 10"])
    thread.wait(9 * SECOND)
    assert not thread.ready()
    thread.wait(61 * SECOND)
    thread.run(says("Awake."))
    assert thread.story()[1:] == ["#1 sleep", "#1 = Slept until the time set. It was noticed 60 s late.", "A: Awake."]


def test_a_sleep_until_a_moment_that_has_passed_ends_at_once() -> None:
    thread = Thread()
    thread.wait(11 * SECOND)
    thread.user("Sleep")
    thread.run(calls("sleep_until"), says("Awake."))
    assert thread.story()[1:] == ["#1 sleep_until", "#1 = Slept until the time set.", "A: Awake."]


def test_a_sleep_counts_from_the_end_of_the_completion_that_asked_for_it() -> None:
    thread = Thread()
    thread.thinking = 40 * SECOND
    thread.user("Sleep")
    thread.run(calls("sleep"))
    assert thread.alarms() == ["sleep 10"]


@pytest.mark.parametrize("tool", ["sleep", "rest"])
def test_c28_a_user_text_wakes_a_sleep_and_its_timer_is_gone(tool: str) -> None:
    thread = waiting(tool)
    thread.user("Wake up")
    thread.run(says("Yes?"))
    assert thread.story()[1:] == [f"#1 {tool}", "#1 = WOKEN", "U: Wake up", "A: Yes?"]
    assert (thread.alarms(), thread.inbox) == ([], {})


def test_c28_an_event_wakes_a_sleep_at_once_and_its_timer_is_gone() -> None:
    thread = watching()
    thread.user("Sleep")
    thread.run(calls("sleep"))
    thread.event(1, "a push")
    thread.run(says("Awake."))
    assert thread.story()[-4:] == ["#2 sleep", "#2 = WOKEN", "event #1: a push", "A: Awake."]
    assert thread.alarms() == ["expiry 2592000"]


def test_a_late_result_wakes_a_sleep() -> None:
    thread = detached()
    thread.user("Sleep")
    thread.run(calls("sleep"))
    thread.result(1, "built")
    thread.run(says("Built."))
    assert thread.story()[-4:] == ["#2 sleep", "#2 = WOKEN", "late #1: built", "A: Built."]


def test_an_event_wakes_a_sleep_though_a_call_stands_behind_it() -> None:
    thread = watching()
    thread.user("Sleep, then build")
    thread.run(calls("sleep", "build"))
    thread.event(1, "a push")
    thread.run(says("Awake."))
    assert thread.story()[-4:] == ["#2 = WOKEN", "#3 ! NOT_RUN", "event #1: a push", "A: Awake."]


def test_a_stop_ends_a_sleep() -> None:
    thread = waiting("sleep")
    thread.stop()
    thread.run()
    assert thread.story()[1:] == ["#1 sleep", "#1 = WOKEN"]
    assert (thread.inbox, thread.head.status) == ({}, "stopped")


def test_an_operator_wakes_a_sleep() -> None:
    thread = waiting("sleep")
    thread.cancel(1)
    thread.run(says("Yes?"))
    assert thread.story()[1:] == ["#1 sleep", "#1 = Woken early by an operator.", "A: Yes?"]
    assert thread.inbox == {}


# Streaming


def test_a_user_text_cuts_the_answer_short_and_its_visible_text_stays() -> None:
    thread = Thread()
    thread.user("Tell me a story")
    thread.round(cut_short(REASONING, "Once upon", call("build", '{"a', complete=False)))
    thread.user("Shorter")
    thread.run(says("The end."))
    assert thread.story() == ["U: Tell me a story", "A: Once upon|", "U: Shorter", "A: The end."]
    assert thread.calls == []


def test_an_answer_cut_short_before_its_first_word_leaves_nothing() -> None:
    thread = Thread()
    thread.user("Tell me a story")
    thread.round(cut_short(REASONING, "  \n"))
    thread.user("Never mind")
    thread.run(says("Good."))
    assert thread.story() == ["U: Tell me a story", "U: Never mind", "A: Good."]


def test_a_stop_cuts_the_answer_short_and_its_visible_text_stays() -> None:
    thread = Thread()
    thread.user("Tell me a story")
    thread.round(cut_short("Once upon"))
    thread.stop()
    thread.run()
    assert (thread.story(), thread.head.status) == (["U: Tell me a story", "A: Once upon|"], "stopped")


# Batches


def test_a06_an_event_and_the_result_in_one_batch_interrupt_nothing() -> None:
    thread = watching()
    thread.user("Build")
    thread.run(calls("build"))
    thread.event(1, "a push")
    thread.result(2, "built")
    thread.run(says("Both."))
    assert thread.story()[-4:] == ["#2 build", "#2 = built", "event #1: a push", "A: Both."]


def test_c03_a_result_is_applied_before_a_text_that_came_first() -> None:
    thread = waiting("build")
    thread.user("Well?")
    thread.result(1, "built")
    thread.run(says("Built."))
    assert thread.story() == ["U: Go", "#1 build", "#1 = built", "U: Well?", "A: Built."]


def test_a_result_and_a_text_in_order_are_answered_together() -> None:
    thread = waiting("build")
    thread.result(1, "built")
    thread.user("Well?")
    thread.run(says("Built."))
    assert thread.story() == ["U: Go", "#1 build", "#1 = built", "U: Well?", "A: Built."]


def test_two_texts_in_one_batch_are_answered_together() -> None:
    thread = Thread()
    thread.user("One")
    thread.user("Two")
    thread.run(says("Both."))
    assert thread.story() == ["U: One", "U: Two", "A: Both."]


def test_a_text_before_a_stop_is_answered_when_the_thread_is_resumed() -> None:
    thread = idle()
    thread.user("One")
    thread.stop()
    thread.run()
    thread.put(Command("resume"))
    thread.run(says("Two."))
    assert thread.story()[-2:] == ["U: One", "A: Two."]


def test_events_keep_their_order_and_each_other() -> None:
    thread = watching()
    thread.user("Build")
    thread.run(calls("build"))
    for number in range(3):
        thread.event(1, f"push {number}")
        thread.run()
        thread.wait(SECOND)
    thread.wait(GRACE - 3 * SECOND)
    thread.run(says("Seen."))
    assert len({item.id for item in thread.items if isinstance(item, EventItem)}) == 3
    assert thread.story()[-5:] == [
        "#2 = STILL_RUNNING",
        "event #1: push 0",
        "event #1: push 1",
        "event #1: push 2",
        "A: Seen.",
    ]


def test_events_keep_their_order_when_a_text_between_them_makes_room() -> None:
    thread = watching()
    thread.user("Build")
    thread.run(calls("build"))
    thread.event(1, "first")
    thread.user("And?")
    thread.event(1, "second")
    thread.run(says("Seen."))
    assert thread.story()[-5:] == [
        "#2 = STILL_RUNNING",
        "U: And?",
        "event #1: first",
        "event #1: second",
        "A: Seen.",
    ]


@pytest.mark.parametrize("apart", [False, True])
def test_c06_a_result_that_comes_twice_under_two_ids_is_answered_once(apart: bool) -> None:
    thread = waiting("build")
    first = thread.result(1, "built")
    if apart:
        thread.run(says("Done."))
    second = thread.result(1, "built again")
    thread.run(*([] if apart else [says("Done.")]))
    assert thread.story() == ["U: Go", "#1 build", "#1 = built", "A: Done."]
    assert (thread.fates[first], thread.fates[second]) == (ACCEPTED, STALE)


def test_c06_a_result_that_comes_twice_under_one_id_is_one_input() -> None:
    thread = waiting("build")
    for _ in range(2):
        thread.put(ToolResult(thread.calls[0], "built"), "result-1")
    thread.run(says("Done."))
    thread.put(ToolResult(thread.calls[0], "built"), "result-1")
    assert not thread.ready()


def test_a_stale_result_does_not_let_an_event_through() -> None:
    thread = watching()
    thread.user("Build")
    thread.run(calls("build"))
    push = thread.event(1, "a push")
    thread.put(ToolResult("call_unknown", "done"))
    thread.run()
    assert (push, DEFERRED) in thread.receipt.inputs
    assert thread.story()[-1] == "#2 build"


def test_a_stale_or_refused_input_does_not_change_the_metadata() -> None:
    thread = idle()
    thread.put(UserText("Hello", "ada"), metadata='{"a":1}')
    thread.run(says("Hi."))
    thread.put(ToolResult("call_unknown", "done"), metadata='{"a":2}')
    thread.put(UserText(" "), metadata='{"a":3}')
    thread.run()
    assert thread.head.metadata == '{"a":1}'


def test_metadata_that_is_not_given_leaves_the_old() -> None:
    thread = Thread()
    thread.put(UserText("Hello"), metadata='{"a":1}')
    thread.run(says("Hi."))
    thread.user("Again")
    thread.run(says("Hi again."))
    assert thread.head.metadata == '{"a":1}'


@pytest.mark.parametrize("status", ["open", "stopped"])
def test_an_input_that_cannot_be_read_is_refused_visibly_and_the_thread_lives_on(status: str) -> None:
    thread = waiting("build")
    if status == "stopped":
        thread.stop()
        thread.run()
    torn = thread.put_unreadable()
    thread.round()
    assert thread.fates[torn] == REFUSED
    assert thread.notices()[-1] == f"input {torn} cannot be read: torn"
    assert (thread.head.status, thread.story()[-1]) == (status, "#1 build" if status == "open" else "#1 ! STOPPED")


# Nothing arrives


def test_c13_a_thread_that_owes_an_answer_runs_without_any_input() -> None:
    thread = waiting("build")
    thread.result(1, "built")
    interrupted = thread.draft()
    assert interrupted.wants_completion
    thread.round(OVERLOADED)
    thread.wait(MINUTE)
    thread.run(says("Built."))
    assert thread.story()[-2:] == ["#1 = built", "A: Built."]


def test_a_thread_that_owes_nothing_asks_nobody() -> None:
    thread = idle()
    assert not thread.draft().wants_completion
    thread.round()
    assert thread.receipt.turn is TurnCommit.NONE
