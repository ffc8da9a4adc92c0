"""What a thread's authority does to its calls: some run, some wait for a person's leave, some are refused."""

from typing import Any

import pytest
from msgspec.structs import replace

from hibernaut.kernel.authority import Authority, Condition, Judge, Rule, digest_of
from hibernaut.kernel.commit import Disposition
from hibernaut.kernel.dispatch import ALLOW, DENY
from hibernaut.kernel.draft import NEVER_BEGUN, WAITS_FOR_LEAVE
from hibernaut.kernel.limits import ThreadOptions
from hibernaut.messages.inputs import Answer, Command, UserText
from hibernaut.messages.items import QuestionEndItem, QuestionItem, ResultItem
from tests.kernel.scenario import Thread, call, calls, says

CAREFUL = Authority(rules=(Rule(decision="ask", annotations=("destructive",), reason="It cannot be undone."),))


def bound(authority: Authority, **options: Any) -> Thread:
    thread = Thread(ThreadOptions(**options))
    thread.authority = Judge(authority)
    return thread


def waiting(*tools: str, authority: Authority = CAREFUL, **options: Any) -> Thread:
    """Return a thread whose model has called these tools."""
    thread = bound(authority, **options)
    thread.user("Go")
    return thread.run(calls(*(tools or ("wipe",))))


def asked(thread: Thread) -> str:
    """Return the question that waits for leave."""
    (name,) = [name for name, one in thread.head.questions.items() if one.approves and one.answer < 0]
    return name


def leave(thread: Thread, choice: int, user: str = "ann") -> Thread:
    name = asked(thread)
    thread.put(Answer(name, choice, user), f"answer:{name}")
    return thread


def test_a_call_that_needs_leave_waits_for_it_and_runs_when_it_is_given() -> None:
    thread = waiting()
    (question,) = [item for item in thread.items if isinstance(item, QuestionItem)]
    assert question.prompt == "May wipe run with {}?\nIt cannot be undone."
    assert (question.choices, question.default) == (("Allow", "Deny"), DENY)
    assert (thread.state(1), thread.running()) == ("open", [])
    leave(thread, ALLOW).run()
    assert (thread.state(1), thread.running()) == ("open", [1])
    thread.result(1, "wiped")
    thread.run(says("Done."))
    assert thread.story()[-2:] == ["#1 = wiped", "A: Done."]
    assert thread.head.questions == {}


def test_a_call_that_is_denied_is_answered_so_and_never_runs() -> None:
    thread = leave(waiting(), DENY).run(says("I see."))
    assert thread.story()[-2:] == ["#1 ! Not run: ann did not allow it.", "A: I see."]
    assert (thread.owed, thread.head.calls, thread.head.questions) == ([], {}, {})


def test_what_is_denied_outright_is_not_asked_and_what_is_allowed_runs_beside_it() -> None:
    rules = (Rule(decision="deny", tools=("wipe",), reason="not on Fridays"),)
    thread = waiting("wipe", "build", authority=Authority(rules=rules))
    assert thread.running() == [2]
    assert thread.story()[-1] == "#1 ! Not run: this thread's authority does not allow it: not on Fridays."
    assert not thread.head.questions


def test_leave_depends_on_what_the_call_would_do() -> None:
    condition = Condition(path="$.amount", above=100)
    thread = bound(Authority(rules=(Rule(decision="ask", tools=("build",), arguments=(condition,)),)), parallel_calls=2)
    thread.user("Pay")
    thread.run(says(call("build", '{"amount":99}'), call("build", '{"amount":101}')))
    assert thread.running() == [1]
    assert '"amount":101' in thread.head.questions[asked(thread)].prompt


def test_an_answer_lands_on_no_other_call() -> None:
    thread = waiting("wipe", "wipe", parallel_calls=2)
    first, second = [name for name, one in thread.head.questions.items() if one.approves]
    thread.put(Answer(second, ALLOW), f"answer:{second}")
    thread.run()
    assert thread.running() == [2]
    again = thread.put(Answer(second, DENY), "again")
    thread.run()
    assert (thread.fates[again], thread.running()) == (Disposition.STALE, [2])
    assert asked(thread) == first


def test_leave_that_was_given_is_held_against_the_authority_of_that_moment() -> None:
    thread = waiting()
    thread.authority = Judge(Authority(rules=(Rule(decision="deny", reason="closed for today"),)))
    leave(thread, ALLOW).run(says("I see."))
    assert thread.story()[-2] == "#1 ! Not run: this thread's authority does not allow it: closed for today."
    assert thread.owed == []


def test_a_queued_call_is_held_against_the_authority_of_the_moment_at_which_it_begins() -> None:
    thread = waiting("build", "check", authority=Authority(), parallel_calls=1)
    thread.authority = Judge(Authority(default="deny"))
    thread.result(1)
    thread.run(says("I see."))
    assert thread.story()[-3:] == [
        "#1 = done",
        "#2 ! Not run: this thread's authority does not allow it.",
        "A: I see.",
    ]


def test_a_thread_that_waits_for_leave_listens_meanwhile() -> None:
    thread = waiting()
    thread.user("Still there?")
    thread.run(says("I wait for leave."))
    assert (thread.state(1), thread.story()[-3]) == ("detached", f"#1 = {WAITS_FOR_LEAVE}")
    leave(thread, ALLOW).run()
    assert thread.running() == [1]
    thread.result(1, "wiped")
    thread.run(says("Done."))
    assert "wiped" in thread.story()[-2]


def test_a_refusal_that_comes_after_the_thread_went_on_is_shown_as_an_event() -> None:
    thread = waiting()
    thread.user("Still there?")
    thread.run(says("I wait for leave."))
    leave(thread, DENY).run(says("Then not."))
    assert "Not run: ann did not allow it." in thread.story()[-2]
    assert (thread.state(1), thread.owed, thread.head.questions) == ("cancelled", [], {})


@pytest.mark.parametrize("end", [Command("stop"), Command("close")])
def test_a_call_that_was_never_begun_is_not_cancelled_but_called_off(end: Command) -> None:
    thread = waiting()
    thread.put(end)
    thread.run()
    assert (thread.owed, thread.head.questions) == ([], {})
    (result,) = [item for item in thread.items if isinstance(item, ResultItem)]
    assert result.content == NEVER_BEGUN
    (over,) = [item for item in thread.items if isinstance(item, QuestionEndItem)]
    assert over.outcome == "dismissed"


def test_an_operator_may_cancel_a_call_that_waits_for_leave() -> None:
    thread = waiting()
    thread.cancel(1)
    thread.run(says("I see."))
    assert "#1 ! Not run: cancelled by an operator." in thread.story()
    assert (thread.owed, thread.head.questions) == ([], {})


def test_leave_does_not_wake_a_thread_that_is_stopped() -> None:
    thread = waiting()
    name = asked(thread)
    thread.stop()
    thread.run()
    late = thread.put(Answer(name, ALLOW), f"answer:{name}")
    thread.run()
    assert late in thread.inbox
    thread.put(UserText("Go on"))
    thread.run(says("Yes."))
    assert (thread.fates[late], thread.owed) == (Disposition.STALE, [])


def test_a_thread_begins_as_many_calls_as_it_may_and_is_parked_with_what_it_spent_them_on() -> None:
    thread = waiting("build", "check", "build", authority=Authority(calls=2), parallel_calls=3)
    head = thread.head
    assert (head.status, thread.running()) == ("parked", [1, 2])
    assert head.reason == (
        "its authority lets it begin 2 calls, and it has (build 1, check 1); resuming grants as many"
    )
    thread.put(Command("resume"))
    thread.run()
    assert (thread.head.status, thread.running()) == ("open", [1, 2, 3])


def test_tokens_are_bounded_by_the_authority_too() -> None:
    thread = waiting("build", authority=Authority(tokens=15))
    thread.result(1)
    thread.run()
    assert thread.head.status == "parked"
    assert "calls begun: build 1" in thread.head.reason


def test_an_operator_changes_the_authority_and_the_receipt_names_it() -> None:
    thread = waiting("build", authority=Authority())
    digest = digest_of(CAREFUL)
    thread.authorities[digest] = Judge(CAREFUL)
    thread.put(Command("authorize", reason="for the audit", authority=digest))
    thread.run()
    assert (thread.head.authority, thread.receipt.authority) == (digest, digest)
    assert "for the audit" in thread.notices()
    thread.result(1)
    thread.run(says("Done."))
    assert thread.receipt.authority == b""


def test_a_child_has_its_parents_authority_narrowed_by_what_is_meant_for_children() -> None:
    authority = replace(Authority(), children=Authority(rules=(Rule(decision="deny", tools=("build",)),)))
    thread = bound(authority)
    thread.user("Go")
    thread.run(says(call("spawn_thread", '{"instructions":"Build.","child_of":[]}')), says("It works."))
    (child,) = [other for other in thread.others.values() if other is not thread]
    assert child.head.authority
    assert child.head.authority != digest_of(authority)


def test_an_authority_counts_for_what_comes_after_it_in_the_same_batch() -> None:
    thread = bound(Authority())
    thread.authorities[digest_of(CAREFUL)] = Judge(CAREFUL)
    thread.put(Command("authorize", authority=digest_of(CAREFUL)))
    thread.user("Wipe it")
    thread.run(calls("wipe"))
    assert (thread.running(), bool(asked(thread))) == ([], True)


def test_an_authority_that_nobody_has_is_refused() -> None:
    thread = bound(Authority())
    name = thread.put(Command("authorize", authority=b"x" * 32))
    thread.run()
    assert (thread.fates[name], thread.head.authority) == (Disposition.REFUSED, b"")
