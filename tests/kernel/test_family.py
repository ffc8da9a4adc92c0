"""Children: made, told, heard and closed, each in one commit."""

import json

import pytest

from hibernaut.kernel.commit import Disposition
from hibernaut.kernel.fold import Failure
from hibernaut.kernel.limits import ThreadOptions
from hibernaut.kernel.turn import Turn
from hibernaut.messages.inputs import Command, ParentMessage, Report, Seed
from hibernaut.messages.items import CallItem, EventItem, ResultItem, SpawnItem, UserItem
from hibernaut.messages.parts import plain_text
from tests.kernel.scenario import FAMILY, Thread, call, calls, says, waiting

GRACE = ThreadOptions().event_grace


def asks(tool: str, /, **arguments: object) -> Turn:
    """Return a turn in which the model calls a built-in tool."""
    assert tool in FAMILY
    return says(call(tool, json.dumps(arguments)))


def spawns(thread: Thread, instructions: str = "Count", *, fresh: bool = False) -> Turn:
    return asks("spawn_thread", instructions=instructions, child_of=stack(thread), fresh_context=fresh)


def stack(thread: Thread) -> list[str]:
    link = thread.head.link
    return [*link.stack, thread.name] if link else [thread.name]


def parent(options: ThreadOptions | None = None) -> tuple[Thread, Thread]:
    """Return an idle thread and its child, which has not begun yet."""
    thread = Thread(options)
    thread.user("Go")
    thread.run(spawns(thread), says("It counts."))
    return thread, only_child(thread)


def only_child(thread: Thread) -> Thread:
    (name,) = thread.head.children
    return thread.others[name]


def prompt(thread: Thread) -> list[str]:
    """Return what the model was shown last, as texts."""
    return [
        plain_text(item.content) if isinstance(item, UserItem | ResultItem) else getattr(item, "text", "call")
        for item in thread.prompt
    ]


def reports(thread: Thread) -> list[str]:
    return [
        plain_text(item.content) for item in thread.items if isinstance(item, EventItem) and item.source == "report"
    ]


# Spawning


def test_a_child_is_made_by_the_commit_of_the_turn_that_asks_for_it() -> None:
    thread = Thread()
    thread.user("Go")
    commit = thread.round(spawns(thread))
    (new,) = commit.spawned
    assert (new.parent, new.root, new.config_body) == ("t", "t", b"")
    assert [out.message.thread_id for out in commit.outgoing] == [new.thread_id]
    assert isinstance(commit.outgoing[0].message.content, Seed)
    assert f"Thread {new.thread_id} works on that now" in thread.story()[-1]


def test_a_child_is_shown_what_its_parent_was_and_answers_the_same_call_otherwise() -> None:
    thread, child = parent()
    child.run(asks("close_thread", thread_id=child.name))
    shown = child.prompt
    assert shown[:2] == thread.prompt[:2]
    assert isinstance(shown[2], ResultItem)
    assert shown[2].call_id == thread.calls[0]
    assert stack(child)[-1] in plain_text(shown[2].content)
    assert "Count" in plain_text(shown[2].content)


def test_a_child_answers_all_calls_of_the_turn_that_made_it() -> None:
    thread = Thread(ThreadOptions(parallel_calls=3))
    thread.user("Go")
    spawn = call("spawn_thread", json.dumps({"instructions": "Count", "child_of": ["t"]}))
    thread.run(says("I will.", call("build"), spawn, call("check")))
    child = only_child(thread)
    child.run(says("Counted."))
    results = [item for item in child.prompt if isinstance(item, ResultItem)]
    assert [item.call_id for item in results] == thread.calls
    assert ["belongs to your parent" in plain_text(item.content) for item in results] == [True, False, True]


def test_a_fresh_child_inherits_nothing() -> None:
    thread = Thread()
    thread.user("Secret")
    thread.run(spawns(thread, fresh=True), says("ok"))
    child = only_child(thread)
    assert child.start == b""
    child.run(says("Counted."))
    (said,) = prompt(child)
    assert "Secret" not in said
    assert "Count" in said


def test_a_child_of_a_child_inherits_from_both() -> None:
    _, child = parent()
    child.run(spawns(child, "Count halves"), says("Halves are counted."))
    grandchild = only_child(child)
    grandchild.run(says("Done."))
    assert stack(grandchild) == ["t", child.name, grandchild.name]
    assert prompt(grandchild)[0] == "Go"


@pytest.mark.parametrize("believed", [["x"], [], ["t", "t"]])
def test_c44_a_child_that_takes_itself_for_another_thread_makes_none(believed: list[str]) -> None:
    _, child = parent()
    child.run(asks("spawn_thread", instructions="Again", child_of=believed), says("I see."))
    assert child.head.children == {}
    assert "you are not" in child.story()[-2]
    assert f'"t", "{child.name}"' in child.story()[-2]


def test_the_root_need_not_know_its_id() -> None:
    thread = Thread()
    thread.user("Go")
    thread.run(asks("spawn_thread", instructions="Count", child_of=[]), says("ok"))
    assert len(thread.head.children) == 1


def test_a25_c44_depth_is_bounded() -> None:
    thread = Thread(ThreadOptions(max_depth=2))
    thread.user("Go")
    for _ in range(2):
        thread.run(spawns(thread), says("ok"))
        thread = only_child(thread)
    thread.run(spawns(thread), says("ok"))
    assert thread.head.children == {}
    assert "2 deep (max_depth)" in thread.story()[-2]


def test_a25_living_children_are_bounded_and_an_ended_one_makes_room() -> None:
    thread, child = parent(ThreadOptions(max_children=1))
    thread.user("More")
    thread.run(spawns(thread), says("ok"))
    assert "max_children" in thread.story()[-2]
    child.run(asks("close_thread", thread_id=child.name, report_to_parent="One."))
    thread.run(spawns(thread), says("ok"))
    assert list(thread.head.children) != [child.name]
    assert len(thread.head.children) == 1


def test_a25_c44_a_child_that_spawns_itself_for_ever_meets_the_bound_of_the_tree() -> None:
    root = Thread(ThreadOptions(max_descendants=3, max_depth=100))
    root.user("Go")
    thread = root
    for _ in range(3):
        thread.run(spawns(thread), says("ok"))
        thread = only_child(thread)
    thread.run(spawns(thread), says("ok"))
    assert "max_descendants" in thread.story()[-2]
    assert len(root.others) == 4


@pytest.mark.parametrize("instructions", ["", " \n"])
def test_a_child_without_instructions_is_not_made(instructions: str) -> None:
    thread = Thread()
    thread.user("Go")
    thread.run(spawns(thread, instructions), says("ok"))
    assert thread.head.children == {}


def test_children_of_one_turn_have_names_of_their_own() -> None:
    thread = Thread(ThreadOptions(parallel_calls=2))
    thread.user("Go")
    spawn = call("spawn_thread", json.dumps({"instructions": "Count", "child_of": ["t"]}))
    thread.run(says(spawn, spawn), says("Two of them."))
    assert len(thread.head.children) == 2
    assert [isinstance(item, SpawnItem) for item in thread.items].count(True) == 2


# Talking


def test_a_report_reaches_the_parent_as_an_event_of_the_call_that_made_the_child() -> None:
    thread, child = parent()
    child.run(asks("report_to_parent", report="Half way"), says("Going on."))
    thread.run(says("Good."))
    (event,) = [item for item in thread.items if isinstance(item, EventItem)]
    assert (event.call_id, event.tool, event.source, event.thread_id) == (
        thread.calls[0],
        "spawn_thread",
        "report",
        child.name,
    )
    assert json.loads(event.arguments)["instructions"] == "Count"
    assert reports(thread) == [f"Thread {child.name} reports:\nHalf way"]


def test_a_report_and_its_confirmation_are_one_commit() -> None:
    _, child = parent()
    commit = child.round(asks("report_to_parent", report="Half way"))
    assert [type(out.message.content) for out in commit.outgoing] == [Report]
    assert child.story()[-1] == "#1 = Told to your parent thread, t."


@pytest.mark.parametrize("report", ["", "  "])
def test_a_report_without_text_is_not_sent(report: str) -> None:
    thread, child = parent()
    child.run(asks("report_to_parent", report=report), says("Well."))
    assert "the report is empty" in child.story()[-2]
    assert len(thread.due()) == 1  # the plain text, which the runtime reports


def test_the_root_has_nobody_to_report_to() -> None:
    thread = Thread()
    thread.user("Go")
    thread.run(asks("report_to_parent", report="Hm"), says("ok"))
    assert "no parent" in thread.story()[-2]


def test_a14_a_child_that_ends_in_plain_text_is_reported() -> None:
    thread, child = parent()
    child.run(says("It is 7."))
    thread.run(says("Seven."))
    assert reports(thread) == [
        f"Thread {child.name} reports:\nIt ended its turn without a report, with these words:\nIt is 7."
    ]
    assert child.name in thread.head.children


def test_a_child_that_has_reported_is_not_reported_again() -> None:
    thread, child = parent()
    child.run(asks("report_to_parent", report="7"), says("Done."))
    assert len(thread.due()) == 1


def test_a_child_is_reported_again_when_it_was_woken_again() -> None:
    thread, child = parent()
    child.run(says("It is 7."))
    thread.run(asks("send_message_to_child", thread_id=child.name, message="Sure?"), says("I asked."))
    child.run(says("Yes."))
    thread.run(says("Fine."))
    assert len(reports(thread)) == 2


def test_a_message_of_the_parent_reaches_the_child_as_an_event() -> None:
    thread, child = parent()
    child.run(says("It is 7."))
    thread.run(asks("send_message_to_child", thread_id=child.name, message="Twice"), says("I asked."))
    child.run(says("14."))
    (event,) = [item for item in child.items if isinstance(item, EventItem)]
    assert (event.source, event.thread_id, event.call_id) == ("parent_message", "t", thread.calls[0])
    assert event.content == "Your parent thread, t, says:\nTwice"


def test_only_children_that_live_are_told_anything() -> None:
    thread, child = parent()
    child.run(asks("close_thread", thread_id=child.name))
    thread.run(
        asks("send_message_to_child", thread_id=child.name, message="Still there?"),
        asks("send_message_to_child", thread_id="t", message="Me?"),
        says("Nobody there."),
    )
    assert [line.count("no living child") for line in thread.story()[-5:]] == [0, 1, 0, 1, 0]


def test_a_report_waits_for_a_working_call_and_then_detaches_it() -> None:
    thread, child = parent()
    thread.user("Build")
    thread.run(calls("build"))
    child.run(asks("report_to_parent", report="7"), says("ok"))
    thread.run()
    assert reports(thread) == []
    thread.wait(GRACE)
    thread.run(says("I see."))
    assert thread.state(2) == "detached"
    assert len(reports(thread)) == 1


def test_a_report_of_a_thread_that_is_no_child_is_refused_and_counted() -> None:
    thread = Thread()
    thread.user("Go")
    thread.run(says("ok"))
    name = thread.put(Report("thread_x", "Believe me"))
    thread.run()
    assert thread.fates[name] is Disposition.REFUSED
    assert thread.head.refused == 1


def test_a_message_of_a_parent_that_there_is_none_of_is_refused() -> None:
    thread = Thread()
    thread.user("Go")
    thread.run(says("ok"))
    name = thread.put(ParentMessage("Do it"))
    thread.run()
    assert thread.fates[name] is Disposition.REFUSED


# Ending


def test_a02_closing_and_its_report_are_one_commit() -> None:
    thread, child = parent()
    commit = child.round(asks("close_thread", thread_id=child.name, report_to_parent="7"))
    assert commit.status == "closed"
    (out,) = commit.outgoing
    assert out.message.content == Report(child.name, "7", closed=True)
    thread.run(says("Good."))
    assert thread.head.children == {}
    assert reports(thread) == [f"Thread {child.name} has ended. Its report:\n7"]


def test_a_child_that_closes_without_a_report_is_still_heard_of() -> None:
    thread, child = parent()
    child.run(asks("close_thread", thread_id=child.name))
    thread.run(says("Hm."))
    assert reports(thread) == [f"Thread {child.name} has ended without a report."]


def test_the_root_is_closed_by_people_only() -> None:
    thread = Thread()
    thread.user("Go")
    thread.run(asks("close_thread", thread_id="t"), says("ok"))
    assert thread.head.status == "open"


def test_a_thread_closes_itself_and_its_children_and_no_other() -> None:
    thread, child = parent()
    child.run(asks("close_thread", thread_id="t"), says("ok"))
    assert (thread.head.status, child.head.status) == ("open", "open")
    assert "no living child" in child.story()[-2]


def test_a_parent_may_close_a_child() -> None:
    thread, child = parent()
    child.run(spawns(child), says("ok"))
    grandchild = only_child(child)
    thread.run(asks("close_thread", thread_id=child.name), says("Enough."))
    child.run()
    grandchild.run()
    thread.run()
    assert [child.head.status, grandchild.head.status] == ["closed", "closed"]
    assert thread.head.children == {}


def test_a14_closing_cascades() -> None:
    thread, child = parent()
    child.run(spawns(child), says("ok"))
    grandchild = only_child(child)
    thread.put(Command("close"))
    thread.run()
    for below in (child, grandchild):
        below.run()
        assert below.head.status == "closed"
    assert thread.head.children == {}


def test_what_was_not_begun_yet_is_not_run_when_the_thread_closes_itself() -> None:
    _, child = parent()
    close = call("close_thread", json.dumps({"thread_id": child.name}))
    child.run(says(call("build"), close))
    assert child.story()[-2:] == ["#1 ! NOT_RUN", "#2 = This thread is closed."]
    assert child.outbox == {}


def test_a_child_that_cannot_go_on_or_is_stopped_is_no_silent_one() -> None:
    thread, child = parent()
    child.run(Failure("invalid_request", "no", retryable=False))
    thread.run(says("Oh."))
    assert reports(thread) == [
        f"Thread {child.name} reports:\nIt cannot go on, and waits for people: invalid_request: no"
    ]
    thread, child = parent()
    child.stop()
    child.run()
    thread.run(says("Why?"))
    assert reports(thread) == [f"Thread {child.name} reports:\nIt was stopped by an operator."]


def test_a_report_to_a_stopped_parent_is_held() -> None:
    thread, child = parent()
    thread.stop()
    thread.run()
    child.run(asks("report_to_parent", report="7"), says("ok"))
    thread.run()
    assert reports(thread) == []
    thread.put(Command("resume"))
    thread.run(says("Seven."))
    assert len(reports(thread)) == 1


# Subscriptions


def test_a_subscription_can_be_cancelled_and_its_events_are_refused_then() -> None:
    thread = waiting("watch")
    thread.result(1, "watching", subscription=True)
    thread.run(asks("cancel_subscription", tool_call_id=thread.calls[0]), says("No more."))
    assert thread.state(1) == "cancelled"
    assert thread.outbox == {}
    name = thread.event(1, "news")
    thread.run()
    assert thread.fates[name] is Disposition.REFUSED
    assert thread.head.refused == 1


def test_a13_a_subscription_whose_confirmation_is_missing_can_be_cancelled() -> None:
    thread = waiting("watch")
    thread.user("Never mind")
    thread.run(asks("cancel_subscription", tool_call_id=thread.calls[0]), says("No more."))
    assert thread.state(1) == "cancelled"


def test_what_is_no_subscription_cannot_be_cancelled() -> None:
    thread = waiting("build")
    thread.user("Stop that")
    thread.run(asks("cancel_subscription", tool_call_id=thread.calls[0]), says("I cannot."))
    assert "no active subscription" in thread.story()[-2]
    assert thread.state(1) == "detached"


def test_calls_of_children_have_ids_that_no_other_thread_makes() -> None:
    thread, child = parent()
    child.run(calls("build"))
    ids = [item.id for one in (thread, child) for item in one.items if isinstance(item, CallItem)]
    assert len(set(ids)) == len(ids)


# What would be lost or left


def test_a14_a_child_that_answers_with_nothing_is_reported() -> None:
    thread, child = parent()
    child.run(says())
    thread.run(says("Odd."))
    assert reports(thread) == [f"Thread {child.name} reports:\nIt ended its turn without a report, and without a word."]


def test_a14_a_child_whose_answer_is_cut_too_often_is_reported() -> None:
    thread, child = parent(ThreadOptions(max_continuations=1))
    child.run(says("One ", reason="length"), says("two", reason="length"))
    thread.run(says("I see."))
    assert ["two" in report for report in reports(thread)] == [True]


def test_what_a_child_reported_before_it_heard_that_it_is_closed_reaches_its_parent() -> None:
    thread, child = parent()
    thread.user("Close it")
    thread.round(asks("close_thread", thread_id=child.name))
    del child.inbox[f"close:{child.name}"]  # it is on its way
    child.run(asks("close_thread", thread_id=child.name, report_to_parent="Seven."))
    thread.run(says("Seven, then."))
    assert reports(thread) == [f"Thread {child.name} has ended. Its report:\nSeven."]
    assert thread.head.children == {}


def test_a_child_that_its_parent_closed_ends_without_a_word_and_is_no_living_child_meanwhile() -> None:
    thread, child = parent(ThreadOptions(max_children=1))
    thread.user("Close it, and have it counted again")
    thread.run(asks("close_thread", thread_id=child.name), spawns(thread), says("Again."))
    assert len(thread.head.children) == 2
    thread.user("Tell the first one")
    thread.run(asks("send_message_to_child", thread_id=child.name, message="Hello"), says("It is gone."))
    assert "no living child" in thread.story()[-2]
    child.run()
    thread.run()
    assert child.name not in thread.head.children
    assert reports(thread) == []
