"""What becomes of what the model says, of a turn that was cut short, and of a completion that failed."""

from itertools import pairwise

import pytest

from hibernaut.kernel.fold import CUT_CALL, GO_ON, HALF_CALL, Failure, backoff
from hibernaut.kernel.limits import BACKOFF_FIRST, BACKOFF_MOST, RETRY_AFTER_MOST, ThreadOptions
from hibernaut.kernel.receipt import TurnCommit
from hibernaut.messages.events import Usage
from hibernaut.messages.inputs import Command
from hibernaut.messages.items import CallItem, ReasoningItem, TextItem
from tests.kernel.scenario import (
    HOUR,
    MINUTE,
    OVERLOADED,
    REASONING,
    SECOND,
    Reaction,
    Thread,
    call,
    calls,
    cut_short,
    says,
)

INVALID = Failure("invalid_request", "messages.0: no", retryable=False)


def asked(*reactions: Reaction, options: ThreadOptions | None = None) -> Thread:
    """Return a thread whose user said something, after the model reacted."""
    thread = Thread(options)
    thread.user("Go")
    return thread.run(*reactions)


# Calls


@pytest.mark.parametrize(
    "tool, reason",
    [
        ("no_such_tool", "there is no tool no_such_tool"),
        ("receive_event__injected", "receive_event__injected is a reserved name"),
        ("__harness_begin_compaction__", "__harness_begin_compaction__ is a reserved name"),
    ],
)
def test_c15_a_call_that_cannot_be_run_is_answered_and_the_model_asked_again(tool: str, reason: str) -> None:
    thread = asked(says("I try.", call(tool)), says("Then not."))
    assert thread.story() == ["U: Go", "A: I try.", f"#1 {tool}", f"#1 ! {reason}", "A: Then not."]
    assert (thread.owed, thread.head.calls) == ([], {})


def test_c53_a_half_call_is_never_run_and_its_arguments_are_not_kept() -> None:
    half = call("build", '{"command": "rm -rf /', complete=False)
    thread = asked(says(half, reason="length"), says("Shorter, then."))
    assert thread.story() == ["U: Go", "#1 build", f"#1 ! {CUT_CALL}", "A: Shorter, then."]
    assert [item.arguments for item in thread.items if isinstance(item, CallItem)] == ["{}"]
    assert thread.owed == []


def test_c16_a_half_call_in_a_turn_that_was_not_too_long_is_not_blamed_on_its_length() -> None:
    thread = asked(says(call("build", '{"a', complete=False)), says("Again, then."))
    assert thread.story()[2] == f"#1 ! {HALF_CALL}"
    assert thread.owed == []


def test_c53_the_whole_calls_before_a_half_one_are_run() -> None:
    thread = asked(says(call("build"), call("check", '{"x', complete=False), reason="length"))
    assert thread.running() == [1]
    thread.result(1, "built")
    thread.run(says("One of two."))
    assert thread.story()[-3:] == ["#1 = built", f"#2 ! {CUT_CALL}", "A: One of two."]


def test_calls_above_the_bound_are_refused_and_the_others_run() -> None:
    options = ThreadOptions(max_calls_per_turn=2, parallel_calls=8)
    thread = asked(calls("build", "check", "publish"), options=options)
    assert thread.running() == [1, 2]
    thread.result(1, "built")
    thread.result(2, "fine")
    thread.run(says("Two of three."))
    refusal = "#3 ! Not run: a turn may make at most 2 calls."
    assert thread.story()[4:] == ["#1 = built", "#2 = fine", refusal, "A: Two of three."]


def test_verdicts_of_every_kind_in_one_turn_end_in_order() -> None:
    everything = says(
        REASONING, "I begin.", call("note"), call("broken"), call("sleep"), call("build"), call("title", '"Work"')
    )
    thread = asked(everything, options=ThreadOptions(parallel_calls=2))
    assert (thread.running(), thread.alarms(), thread.head.title) == ([4], ["sleep 10"], '"Work"')
    assert thread.story()[-2:] == ["#1 = Noted.", "#2 ! broken needs a path"]
    thread.result(4, "built")
    thread.run()
    thread.wait(10 * SECOND)
    thread.run(says("Done."))
    assert thread.story()[2:] == [
        "A: I begin.",
        "#1 note",
        "#2 broken",
        "#3 sleep",
        "#4 build",
        "#5 title",
        "#1 = Noted.",
        "#2 ! broken needs a path",
        "#3 = Slept until the time set.",
        "#4 = built",
        "#5 = Renamed.",
        "A: Done.",
    ]


def test_a_call_that_the_runtime_answers_itself_is_answered_in_the_same_commit() -> None:
    thread = Thread()
    thread.user("Note it")
    commit = thread.round(calls("note"))
    assert thread.story() == ["U: Note it", "#1 note", "#1 = Noted."]
    assert commit.continues
    thread.run(says("Noted it."))


def test_what_the_model_says_between_calls_stays_where_it_was() -> None:
    thread = asked(says(call("build"), "and", REASONING, call("check")), options=ThreadOptions(parallel_calls=2))
    thread.result(2, "fine")
    thread.result(1, "built")
    thread.run(says("Both."))
    assert thread.story() == [
        "U: Go",
        "#1 build",
        "A: and",
        "reasoning",
        "#2 check",
        "#1 = built",
        "#2 = fine",
        "A: Both.",
    ]


# Empty, blank, truncated


@pytest.mark.parametrize("turn", [says(), says(""), says(" \n"), says(REASONING), says(REASONING, " ")])
def test_a_turn_that_says_nothing_leaves_a_notice_and_nothing_else(turn: Reaction) -> None:
    thread = asked(turn)
    assert thread.story(notices=True) == ["U: Go", "(empty_turn)"]
    assert not thread.ready()
    thread.user("Well?")
    thread.run(says("Yes."))
    assert thread.story() == ["U: Go", "U: Well?", "A: Yes."]


def test_a_blank_text_beside_others_is_left_out() -> None:
    assert asked(says("\n", REASONING, "Yes.")).story() == ["U: Go", "reasoning", "A: Yes."]


def test_a23_reasoning_is_kept_byte_for_byte() -> None:
    thread = asked(says(REASONING, "Yes."))
    assert thread.items[1:] == [ReasoningItem("anthropic", b"signed", "Let me think."), TextItem("Yes.")]


def test_c53_an_answer_cut_by_the_output_limit_is_continued() -> None:
    thread = asked(says("One, two,", reason="length"), says("three."))
    assert thread.story() == ["U: Go", "A: One, two,", f"note: {GO_ON}", "A: three."]
    assert thread.head.continuations == 0


def test_an_answer_is_continued_only_so_many_times() -> None:
    thread = asked(
        *[says(f"part {number}", reason="length") for number in range(3)], options=ThreadOptions(max_continuations=2)
    )
    assert thread.story() == ["U: Go", "A: part 0", f"note: {GO_ON}", "A: part 1", f"note: {GO_ON}", "A: part 2"]
    assert thread.notices() == ["the answer was cut by the output limit and continued 2 times"]
    assert not thread.ready()


def test_an_answer_that_was_given_up_does_not_count_against_the_next() -> None:
    thread = asked(calls("watch"), options=ThreadOptions(max_continuations=1))
    thread.result(1, "watching", subscription=True)
    thread.run(says("a", reason="length"), says("b", reason="length"))
    thread.event(1, "a push")
    thread.run(says("c", reason="length"), says("d"))
    assert thread.story()[-3:] == ["A: c", f"note: {GO_ON}", "A: d"]


def test_a_user_text_grants_new_continuations() -> None:
    thread = Thread(ThreadOptions(max_continuations=1))
    thread.user("Go")
    thread.round(says("a", reason="length"))
    thread.user("More")
    thread.run(says("b", reason="length"), says("c"))
    assert thread.story()[-3:] == ["A: b", f"note: {GO_ON}", "A: c"]


@pytest.mark.parametrize("turn", [says(reason="length"), says(REASONING, reason="length"), says(" ", reason="length")])
def test_c53_a_limit_reached_before_the_first_word_parks_the_thread(turn: Reaction) -> None:
    thread = asked(turn)
    assert thread.head.status == "parked"
    assert thread.head.reason.startswith("output_truncated: ")
    assert thread.story() == ["U: Go"]
    thread.put(Command("resume"))
    thread.run(says("Short."))
    assert thread.story() == ["U: Go", "A: Short."]


# Interrupted


def test_an_interrupted_turn_keeps_its_visible_text_and_no_call_runs() -> None:
    thread = Thread()
    thread.user("Go")
    commit = thread.round(cut_short(REASONING, "I will ", call("build"), "build", REASONING))
    assert thread.story() == ["U: Go", "A: I will build|"]
    assert (thread.owed, commit.continues, thread.receipt.turn) == ([], False, TurnCommit.INTERRUPTED)


# Failures


def test_c52_a_failure_that_may_pass_is_tried_again_later_and_the_thread_is_idle_meanwhile() -> None:
    thread = asked(Failure("rate_limited", "slow down", retryable=True, retry_after=HOUR))
    assert (thread.alarms(), thread.ready()) == (["retry 3600"], False)
    assert thread.notices() == ["rate_limited: slow down; attempt 2 of 6 in 3600 s"]
    thread.wait(HOUR)
    thread.run(says("Here."))
    assert thread.story(notices=True) == ["U: Go", "(retry)", "A: Here."]
    assert (thread.head.attempts, thread.inbox) == (0, {})


def test_c52_attempts_are_bounded_and_each_is_visible() -> None:
    thread = asked(OVERLOADED, options=ThreadOptions(max_attempts=3))
    for _ in range(2):
        thread.wait(10 * MINUTE)
        thread.run(OVERLOADED)
    assert thread.head.status == "parked"
    assert thread.head.reason == "overloaded: try later (gave up after 3 attempts)"
    assert thread.story(notices=True) == ["U: Go", "(retry)", "(retry)", "(parked)"]
    assert (thread.inbox, thread.receipt.failures) == ({}, 3)


def test_c52_a_failure_that_cannot_pass_parks_the_thread_at_once_with_the_providers_words() -> None:
    thread = asked(INVALID)
    assert (thread.head.status, thread.head.reason) == ("parked", "invalid_request: messages.0: no")
    assert (thread.inbox, thread.ready()) == ({}, False)


def test_what_our_own_limits_hold_up_is_no_attempt_and_tells_nobody() -> None:
    held_up = Failure("throttled", "enough for now", retryable=True, retry_after=MINUTE, counted=False)
    thread = asked(held_up, options=ThreadOptions(max_attempts=2))
    for _ in range(5):
        assert (thread.head.status, thread.head.attempts, thread.ready()) == ("open", 1, False)
        thread.wait(2 * MINUTE)
        thread.run(held_up)
    thread.wait(2 * MINUTE)
    thread.run(says("Here."))
    assert thread.story(notices=True) == ["U: Go", "A: Here."]


def test_c52_a_provider_that_wants_more_than_a_day_is_not_waited_for() -> None:
    thread = asked(Failure("rate_limited", "come back in May", retryable=True, retry_after=RETRY_AFTER_MOST + 1))
    assert (thread.head.status, thread.inbox) == ("parked", {})


@pytest.mark.parametrize("by_user", [True, False])
def test_c52_a_parked_thread_tries_anew_when_somebody_asks(by_user: bool) -> None:
    thread = asked(INVALID)
    if by_user:
        thread.user("Again")
    else:
        thread.put(Command("resume"))
    thread.run(OVERLOADED)
    assert thread.notices()[-1].startswith("overloaded: try later; attempt 2 of 6")
    thread.wait(MINUTE)
    thread.run(says("Here."))
    assert thread.story()[-1] == "A: Here."


def test_c52_what_arrives_while_a_retry_is_set_does_not_shorten_the_wait() -> None:
    thread = asked(calls("watch"))
    thread.result(1, "watching", subscription=True)
    thread.run(Failure("rate_limited", "slow down", retryable=True, retry_after=HOUR))
    for number in range(10):
        thread.event(1, f"push {number}")
        thread.run()
    thread.wait(HOUR)
    thread.run(says("Ten pushes."))
    assert thread.story()[-2:] == ["event #1: push 9", "A: Ten pushes."]


def test_c52_a_user_text_is_tried_at_once_and_only_one_retry_is_set_afterwards() -> None:
    thread = asked(OVERLOADED)
    for number in range(5):
        thread.user(f"text {number}")
        thread.run(OVERLOADED)
    assert thread.alarms() == ["retry 0"]
    assert thread.head.attempts == 1


def test_the_wait_is_counted_from_the_failure_not_from_the_question() -> None:
    thread = Thread()
    thread.thinking = 2 * MINUTE
    thread.user("Go")
    thread.run(Failure("connection_lost", "no answer for 120 s", retryable=True, retry_after=30 * SECOND))
    assert thread.alarms() == ["retry 30"]


def test_the_wait_doubles_up_to_a_bound_and_varies_from_thread_to_thread() -> None:
    waits = [backoff(b"a", 1, attempts) for attempts in range(1, 40)]
    assert BACKOFF_FIRST * 3 // 4 <= waits[0] <= BACKOFF_FIRST
    assert all(BACKOFF_MOST * 3 // 4 <= wait <= BACKOFF_MOST for wait in waits[9:])
    assert all(1.9 < later / wait < 2.1 for wait, later in pairwise(waits[:8]))
    assert len({backoff(salt.to_bytes(8, "big"), 1, 1) for salt in range(64)}) > 32


def test_c55_the_same_call_failing_the_same_way_parks_the_thread() -> None:
    thread = asked(calls("build"))
    for _ in range(4):
        thread.result(len(thread.calls), "exit 1", is_error=True)
        thread.run(calls("build"))
    thread.result(5, "exit 1", is_error=True)
    thread.run()
    assert thread.head.status == "parked"
    assert thread.head.reason == "build failed the same way 5 times in a row: exit 1"
    thread.put(Command("resume"))
    thread.run(calls("build"))
    thread.result(6, "exit 1", is_error=True)
    thread.run(says("Once more, then."))
    assert thread.head.reason == ""


def test_c55_a_call_that_is_refused_again_and_again_parks_the_thread() -> None:
    thread = asked(*[calls("broken")] * 4, calls("broken", "broken"))
    assert thread.story(notices=True)[-4:] == [
        "#6 broken",
        "(parked)",
        "#5 ! broken needs a path",
        "#6 ! broken needs a path",
    ]
    assert thread.head.reason == "broken failed the same way 5 times in a row: broken needs a path"


def test_c55_a_call_that_times_out_again_and_again_parks_the_thread() -> None:
    thread = asked(calls("deploy"), options=ThreadOptions(max_repeats=2))
    thread.wait(MINUTE)
    thread.run(calls("deploy"))
    thread.wait(MINUTE)
    thread.run()
    assert thread.head.reason.startswith("deploy failed the same way 2 times in a row: Timed out")


@pytest.mark.parametrize("between", ["another failure", "a success", "other arguments"])
def test_c55_only_the_same_failure_in_a_row_counts(between: str) -> None:
    thread = asked(calls("build"), options=ThreadOptions(max_repeats=2))
    thread.result(1, "exit 1", is_error=True)
    thread.run(says(call("build", '{"a": 1}')) if between == "other arguments" else calls("build"))
    thread.result(2, "exit 2" if between == "another failure" else "exit 1", is_error=between != "a success")
    thread.run(calls("build"))
    thread.result(3, "exit 1", is_error=True)
    thread.run(says("I give up."))
    assert thread.head.status == "open"


def test_a_thread_parked_by_a_refusal_does_not_begin_the_other_calls_of_the_turn() -> None:
    thread = asked(calls("broken", "build"), options=ThreadOptions(max_repeats=1))
    assert (thread.head.status, thread.owed) == ("parked", [])
    thread.put(Command("resume"))
    thread.run()
    assert thread.running() == [2]


# Tokens


def test_tokens_are_counted() -> None:
    thread = asked(says("a", usage=Usage(100, 10, 80), reason="length"), says("b", usage=Usage(120, 5, 100)))
    assert thread.head.usage == Usage(220, 15, 180)
    assert thread.receipt.usage == Usage(120, 5, 100)


def test_c55_a_thread_that_used_up_its_tokens_is_parked_before_it_asks_again() -> None:
    thread = asked(says("Yes.", usage=Usage(90, 10)), options=ThreadOptions(token_budget=100))
    assert thread.head.reason == ""
    thread.user("More")
    thread.run()
    assert thread.head.status == "parked"
    assert thread.head.reason.startswith("the token budget of 100 is used up (100 tokens used in all, 90 for prompts")


def test_c55_resuming_a_thread_that_used_up_its_tokens_grants_as_many_again() -> None:
    thread = asked(says("Yes.", usage=Usage(90, 10)), options=ThreadOptions(token_budget=100))
    thread.user("More")
    thread.run()
    thread.put(Command("resume"))
    thread.run(says("More.", usage=Usage(90, 9)))
    assert (thread.head.status, thread.story()[-1]) == ("open", "A: More.")
    thread.user("And more")
    thread.run(says("Last.", usage=Usage(1, 1)))
    thread.user("And more")
    thread.run()
    assert thread.head.status == "parked"


def test_c55_a_thread_without_tokens_still_takes_what_its_calls_bring() -> None:
    spent = says(call("build"), call("check"), usage=Usage(90, 10))
    thread = asked(spent, options=ThreadOptions(token_budget=100))
    thread.result(1, "built")
    thread.run()
    assert (thread.head.reason, thread.running()) == ("", [2])
    thread.result(2, "fine")
    thread.run()
    assert thread.head.status == "parked"


def test_c55_a_thread_below_its_budget_goes_on() -> None:
    thread = asked(says("Yes.", usage=Usage(90, 9)), options=ThreadOptions(token_budget=100))
    thread.user("More")
    thread.run(says("More.", usage=Usage(90, 9)))
    assert thread.story()[-1] == "A: More."
