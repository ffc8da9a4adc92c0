"""Questions to people: each is shown once, settled once, and gone with its call."""

import pytest

from hibernaut.kernel.commit import Disposition
from hibernaut.kernel.limits import ThreadOptions
from hibernaut.kernel.questions import LOST
from hibernaut.messages.inputs import Answer, Command, Orphaned, Question, ToolResult, UserText
from hibernaut.messages.items import Item, QuestionEndItem, QuestionItem, ResultItem
from tests.kernel.scenario import MINUTE, SECOND, Thread, calls, detached, says, waiting

NOT_DONE = "what was to follow has not been done"


def ask(thread: Thread, name: str = "q1", *, call: int = 1, due: int = 0, default: int = 1) -> str:
    """Let a call ask; return the id of the message."""
    question = Question(name, thread.calls[call - 1], f"{name}?", ("yes", "no"), default, due and thread.now + due)
    return thread.put(question, f"ask:{name}")


def asking(*names: str, options: ThreadOptions | None = None) -> Thread:
    """Return a thread that waits for a call which asks."""
    thread = waiting("build", options=options)
    for name in names or ("q1",):
        ask(thread, name)
    return thread.run()


def answer(thread: Thread, name: str = "q1", choice: int = 0, *, again: bool = False) -> str:
    return thread.put(Answer(name, choice, "ann"), f"answer:{name}{' again' if again else ''}")


def ends(thread: Thread) -> list[tuple[str, str, int, str]]:
    return [(one.id, one.outcome, one.choice, one.text) for one in thread.items if isinstance(one, QuestionEndItem)]


def waits(thread: Thread) -> list[str]:
    return [name for name, one in thread.head.questions.items() if one.answer < 0]


def last_result(thread: Thread) -> str:
    return str([item.content for item in thread.items if isinstance(item, ResultItem)][-1])


def orphan(thread: Thread) -> str:
    return thread.put(Orphaned(thread.calls[0]), "orphaned")


def test_a_question_is_kept_and_shown_to_people_and_not_to_the_model() -> None:
    thread = waiting("build")
    name = ask(thread, due=MINUTE)
    thread.run()
    assert thread.fates[name] is Disposition.SURFACED
    (shown,) = [item for item in thread.items if isinstance(item, QuestionItem)]
    assert (shown.id, shown.prompt, shown.choices, shown.default) == ("q1", "q1?", ("yes", "no"), 1)
    assert thread.head.questions["q1"].asked == thread.now
    assert thread.alarms() == ["question 60"]
    assert thread.state(1) == "open"
    thread.result(1)
    thread.run(says("Done."))
    assert not any(isinstance(item, QuestionItem | QuestionEndItem) for item in thread.prompt)


def test_an_answer_is_kept_for_the_tool_until_its_call_ends() -> None:
    thread = asking()
    name = answer(thread)
    thread.run()
    assert thread.fates[name] is Disposition.SURFACED
    assert (thread.head.questions["q1"].answer, ends(thread)) == (0, [("q1", "answered", 0, "yes")])
    assert thread.state(1) == "open"
    thread.result(1)
    thread.run(says("Done."))
    assert thread.head.questions == {}
    assert len(ends(thread)) == 1


def test_c37_the_first_answer_counts() -> None:
    thread = asking()
    answer(thread, choice=0)
    second = answer(thread, choice=1, again=True)
    thread.run()
    third = thread.put(Answer("q1", 1))
    thread.run()
    assert thread.fates[second] is thread.fates[third] is Disposition.STALE
    assert thread.head.questions["q1"].answer == 0


def test_c37_answers_go_to_the_questions_that_they_name() -> None:
    thread = asking("q1", "q2", "q3")
    for name, choice in (("q3", 1), ("q2", 0), ("q1", 1)):
        answer(thread, name, choice)
    thread.run()
    assert {name: one.answer for name, one in thread.head.questions.items()} == {"q1": 1, "q2": 0, "q3": 1}


@pytest.mark.parametrize("content", [Answer("q2", 0), Answer("q1", 2), Answer("q1", -1)])
def test_what_is_no_answer_changes_nothing(content: Answer) -> None:
    thread = asking()
    name = thread.put(content)
    thread.run()
    assert thread.fates[name] in (Disposition.STALE, Disposition.REFUSED)
    assert waits(thread) == ["q1"]


def test_the_timer_of_a_question_is_taken_back_when_it_is_answered() -> None:
    thread = waiting("build")
    ask(thread, due=MINUTE)
    thread.run()
    answer(thread)
    thread.run()
    assert thread.alarms() == []


def test_the_default_counts_when_nobody_answers_in_time() -> None:
    thread = waiting("build")
    ask(thread, due=MINUTE)
    thread.run()
    thread.wait(MINUTE)
    thread.run()
    assert ends(thread) == [("q1", "expired", 1, "no")]
    assert thread.head.questions["q1"].answer == 1
    late = answer(thread)
    thread.run()
    assert thread.fates[late] is Disposition.STALE
    assert len(ends(thread)) == 1


@pytest.mark.parametrize("after, outcome", [(MINUTE - 1, "answered"), (MINUTE, "expired"), (MINUTE + 1, "expired")])
def test_an_answer_counts_that_came_in_time_though_it_is_read_late(after: int, outcome: str) -> None:
    thread = waiting("build")
    ask(thread, due=MINUTE)
    thread.run()
    thread.wait(after)
    answer(thread)
    thread.wait(MINUTE)
    thread.run()
    assert [end[1] for end in ends(thread)] == [outcome]
    assert thread.alarms() == []
    assert thread.inbox == {}


def test_where_a_tool_server_wants_the_answer_is_kept_with_the_question() -> None:
    thread = asking()
    thread.put(Question("remote", thread.calls[0], "Which?", ("a",), reply_url="https://tools.example/choice/1"))
    thread.run()
    assert thread.head.questions["remote"].reply_url == "https://tools.example/choice/1"


def test_the_same_question_again_is_a_duplicate() -> None:
    thread = asking()
    again = thread.put(Question("q1", thread.calls[0], "Other?", ("a",)))
    thread.run()
    assert thread.fates[again] is Disposition.DUPLICATE
    assert thread.head.questions["q1"].prompt == "q1?"


@pytest.mark.parametrize(
    "question",
    [
        Question("q", "call_unknown", "?", ("a",)),
        Question("q", "", "?", ()),
        Question("q", "", "?", ("a",), 1),
        Question("q", "", "?", ("a",), -1),
    ],
)
def test_a_question_that_nobody_can_ask_is_refused_and_counted(question: Question) -> None:
    thread = waiting("build")
    call = question.call_id or thread.calls[0]
    name = thread.put(Question("q", call, question.prompt, question.choices, question.default))
    thread.run()
    assert thread.fates[name] is Disposition.REFUSED
    assert (thread.head.refused, thread.head.questions) == (1, {})


def test_a_thread_has_room_for_so_many_questions() -> None:
    thread = asking("q1", "q2", "q3", options=ThreadOptions(max_questions=2))
    assert waits(thread) == ["q1", "q2"]
    answer(thread)
    thread.run()
    ask(thread, "q4")
    thread.run()
    assert waits(thread) == ["q2", "q4"]


# The end of its call


def test_c40_a_question_stays_when_the_user_speaks_and_its_call_goes_on() -> None:
    thread = asking()
    thread.user("Hello?")
    thread.run(says("Hi."))
    assert thread.state(1) == "detached"
    assert waits(thread) == ["q1"]
    answer(thread)
    thread.run()
    assert thread.head.questions["q1"].answer == 0


@pytest.mark.parametrize(
    "end, why",
    [
        ("cancel", "the call was cancelled"),
        ("stop", "the thread was stopped"),
        ("close", "the thread was closed"),
        ("result", "the call has ended"),
        ("deadline", "the call timed out"),
        ("user", "the call was cancelled"),
    ],
)
def test_c40_a_question_is_dismissed_with_its_call(end: str, why: str) -> None:
    thread = waiting("deploy", options=ThreadOptions(on_user_text="cancel"))
    ask(thread, due=10 * MINUTE)
    thread.run()
    reactions = [says("Well.")]
    if end == "cancel":
        thread.cancel(1)
    elif end in ("stop", "close"):
        thread.put(Command(end))  # type: ignore[arg-type]
        reactions = []
    elif end == "result":
        thread.result(1)
    elif end == "deadline":
        thread.wait(MINUTE)
    else:
        thread.put(UserText("Enough"))
    thread.run(*reactions)
    assert ends(thread) == [("q1", "dismissed", -1, why)]
    assert thread.head.questions == {}
    assert thread.alarms() == []


def test_an_answer_that_comes_with_the_end_of_its_call_is_no_defect() -> None:
    thread = asking()
    thread.result(1)
    answer(thread)
    thread.run(says("Done."))
    assert thread.head.questions == {}
    assert len(ends(thread)) == 1


# The end of its process


@pytest.mark.parametrize("expires", [False, True])
def test_c38_the_answer_is_the_result_when_the_process_has_ended(expires: bool) -> None:
    thread = waiting("build")
    ask(thread, due=MINUTE)
    thread.run()
    orphan(thread)
    thread.run()
    assert (thread.state(1), waits(thread), thread.running()) == ("open", ["q1"], [1])
    if expires:
        thread.wait(MINUTE)
    else:
        answer(thread)
    thread.run(says("I see."))
    told = "Nobody answered in time, so that this counts: no" if expires else "The answer: yes"
    assert last_result(thread).startswith(f"A person was asked: q1?\n{told}\n")
    assert NOT_DONE in last_result(thread)
    assert (thread.head.questions, thread.running()) == ({}, [])


def test_c38_all_questions_of_an_orphaned_call_are_told_once_all_are_settled() -> None:
    thread = asking("q1", "q2", "q3")
    answer(thread, "q2", 1)
    orphan(thread)
    answer(thread, "q3", 1)
    thread.run()
    assert waits(thread) == ["q1"]
    answer(thread, "q1", 0)
    thread.run(says("I see."))
    lines = last_result(thread).split("\n")
    assert lines[:6:2] == ["A person was asked: q1?", "A person was asked: q2?", "A person was asked: q3?"]
    assert lines[1:6:2] == ["The answer: yes", "The answer: no", "The answer: no"]


def test_the_answer_to_an_orphaned_call_that_was_detached_comes_as_an_event() -> None:
    thread = detached()
    ask(thread)
    orphan(thread)
    thread.run()
    answer(thread)
    thread.run(says("I see."))
    (event,) = [line for line in thread.story() if line.startswith("late")]
    assert "The answer: yes" in event
    assert thread.running() == []


@pytest.mark.parametrize("dismissed", [False, True])
def test_an_orphaned_call_whose_question_was_refused_is_answered_all_the_same(dismissed: bool) -> None:
    thread = waiting("build", options=ThreadOptions(max_questions=0))
    if dismissed:
        ask(thread)
    orphan(thread)
    thread.run(says("I see."))
    assert last_result(thread) == LOST.format(tool="build")
    assert thread.running() == []


def test_the_word_that_a_process_has_ended_changes_nothing_of_a_call_that_is_over() -> None:
    thread = asking()
    thread.result(1)
    name = orphan(thread)
    thread.run(says("Done."))
    assert thread.fates[name] is Disposition.STALE
    assert last_result(thread) == "done"


# What nobody knows


def unknown(thread: Thread, text: str = "who knows") -> str:
    return thread.put(ToolResult(thread.calls[0], text, is_error=True, unknown=True), "unknown")


def test_a_result_that_comes_after_it_was_called_unknown_is_shown_once() -> None:
    thread = waiting("build")
    unknown(thread)
    thread.run(says("Oh."))
    assert (thread.state(1), thread.running()) == ("expired", [])
    thread.result(1, "done after all")
    thread.result(1, "and again")
    thread.run(says("Fine."))
    assert thread.story()[-4:] == ["#1 ! who knows", "A: Oh.", "late #1: done after all", "A: Fine."]
    assert thread.state(1) == "gone"


def test_a_detached_call_may_be_unknown_and_answered_later() -> None:
    thread = detached()
    unknown(thread)
    thread.run(says("Oh."))
    assert (thread.state(1), thread.running()) == ("expired", [])
    thread.result(1, "done after all")
    thread.run(says("Fine."))
    assert [line for line in thread.story() if line.startswith("late")] == [
        "late #1: who knows",
        "late #1: done after all",
    ]


@pytest.mark.parametrize("first", ["result", "cancel"])
def test_what_is_known_is_not_unknown(first: str) -> None:
    thread = waiting("build")
    if first == "result":
        thread.result(1)
    else:
        thread.cancel(1)
        thread.run(says("Well."))
    name = unknown(thread)
    thread.run(*[says("Well.")] * (first == "result"))
    assert thread.fates[name] is Disposition.STALE
    assert "who knows" not in str(thread.items)


def _texts(items: list[Item]) -> list[str]:
    return [str(getattr(item, "content", "")) for item in items]


def test_an_event_waits_for_a_call_that_asks_no_longer_than_for_any_other() -> None:
    thread = waiting("watch")
    thread.result(1, "watching", subscription=True)
    thread.run(says("I watch."))
    thread.user("Build")
    thread.run(calls("build"))
    ask(thread, call=2)
    thread.run()
    thread.event(1, "news")
    thread.run()
    assert "news" not in _texts(thread.items)
    thread.wait(5 * SECOND)
    thread.run(says("News."))
    assert "news" in _texts(thread.items)
    assert waits(thread) == ["q1"]


def test_a_question_that_comes_with_the_end_of_its_call_leaves_no_timer() -> None:
    thread = waiting("build", options=ThreadOptions(on_user_text="cancel"))
    thread.put(Question("q", thread.calls[0], "Which?", ("a", "b"), due=thread.now + MINUTE))
    thread.user("Never mind")
    thread.run(says("Well."))
    assert thread.alarms() == []
