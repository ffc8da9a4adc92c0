"""Where events go: into the thread, into threads of their own, or (for a while) nowhere."""

import json
from collections.abc import Sequence

import pytest

from hibernaut.kernel.commit import Disposition
from hibernaut.kernel.event_intake import TREE_FULL
from hibernaut.kernel.limits import ThreadOptions
from hibernaut.messages.inputs import Event, Timer, ToolResult
from hibernaut.messages.items import CallItem, EventItem, ResultItem, SpawnItem, UserItem
from hibernaut.messages.parts import plain_text
from tests.kernel.scenario import MINUTE, Thread, call, calls, says
from tests.kernel.test_family import asks, only_child, reports

GRACE = ThreadOptions().event_grace


def watching(options: ThreadOptions | None = None) -> Thread:
    """Return an idle thread with an active subscription, its first call."""
    thread = Thread(options)
    thread.user("Watch")
    thread.run(says(call("watch", '{"path": "/tmp"}')))
    thread.result(1, "watching", subscription=True)
    thread.run(says("I watch."))
    return thread


def happens(thread: Thread, text: str, *, final: bool = False, event_id: str = "") -> str:
    """Let a threaded event arrive; return its message id."""
    return thread.put(Event(thread.calls[0], text, event_id or text, final=final))


def children(thread: Thread) -> list[Thread]:
    """Return the threads that were made for events, in the order they were made, ended ones too."""
    return [thread.others[item.thread_id] for item in thread.items if isinstance(item, SpawnItem)]


def told(thread: Thread) -> str:
    """Return the event that a temporary thread was made for."""
    (event,) = [item for item in thread.items if isinstance(item, EventItem) and item.source == "event"]
    return plain_text(event.content)


def closes(thread: Thread, report: str = "") -> None:
    """Let a temporary thread deal with its event."""
    more = {"report_to_parent": report} if report else {}
    thread.run(asks("close_thread", thread_id=thread.name, **more))


def test_a_threaded_event_gets_a_thread_and_its_parent_is_not_asked() -> None:
    thread = watching()
    name = happens(thread, "changed")
    thread.run()
    assert thread.fates[name] is Disposition.ROUTED
    child = only_child(thread)
    assert child.head.link is not None
    assert child.head.link.event
    child.run(says("Nothing of interest."))
    assert told(child) == "changed"


def test_an_event_is_paired_with_the_call_of_its_subscription_from_the_registry() -> None:
    thread = watching()
    happens(thread, "changed")
    thread.run()
    child = only_child(thread)
    child.run(says("ok"))
    (event,) = [item for item in child.items if isinstance(item, EventItem)]
    assert (event.call_id, event.tool, json.loads(event.arguments)) == (thread.calls[0], "watch", {"path": "/tmp"})
    *_, pretended, result = child.prompt
    assert isinstance(pretended, CallItem)
    assert pretended.name == "receive_event__injected"
    assert isinstance(result, ResultItem)


def test_a17_a_threaded_event_is_dealt_with_at_once_while_the_thread_works_and_an_associative_one_waits() -> None:
    thread = watching()
    thread.user("Build")
    thread.run(calls("build"))
    threaded = happens(thread, "changed")
    associative = thread.event(1, "news")
    thread.run()
    assert thread.fates[threaded] is Disposition.ROUTED
    assert associative not in thread.fates
    assert thread.state(2) == "open"
    child = only_child(thread)
    child.run(says("Seen."))
    elsewhere = [item for item in child.prompt if isinstance(item, ResultItem) and item.call_id == thread.calls[1]]
    assert ["belongs to your parent" in plain_text(item.content) for item in elsewhere] == [True]
    thread.wait(GRACE)
    thread.run(says("News."))
    assert thread.state(2) == "detached"


def test_a_threaded_event_leaves_a_sleep_alone() -> None:
    thread = watching()
    thread.user("Sleep")
    thread.run(calls("sleep"))
    happens(thread, "changed")
    thread.run()
    assert thread.state(2) == "open"
    assert thread.alarms() == ["expiry 2592000", "sleep 10"]


def test_what_came_in_the_same_batch_is_not_the_childs_to_answer() -> None:
    thread = watching()
    thread.user("Something else")
    happens(thread, "changed")
    thread.run(says("Else."))
    child = only_child(thread)
    child.run(says("ok"))
    said = [item.content for item in child.prompt if isinstance(item, UserItem)]
    assert "Something else" not in said


def test_a_temporary_thread_that_has_nothing_to_say_leaves_no_trace_in_its_parent() -> None:
    thread = watching()
    happens(thread, "changed")
    thread.run()
    before = len(thread.items)
    closes(only_child(thread))
    thread.run()
    assert thread.head.children == {}
    assert thread.items[before:] == []


def test_a_temporary_thread_reports_and_ends_in_one_commit() -> None:
    thread = watching()
    happens(thread, "changed")
    thread.run()
    child = only_child(thread)
    closes(child, "It matters")
    assert child.head.status == "closed"
    thread.run(says("I see."))
    assert reports(thread) == [
        f"Thread {child.name}, made for an event of this subscription, has ended. Its report:\nIt matters"
    ]


def test_a14_a_temporary_thread_that_ends_in_plain_text_is_reported_and_over() -> None:
    thread = watching()
    happens(thread, "changed")
    thread.run()
    child = only_child(thread)
    child.run(says("It was README."))
    assert child.head.status == "closed"
    thread.run(says("ok"))
    assert thread.head.children == {}
    assert "It was README." in reports(thread)[0]


def test_a_temporary_thread_that_waits_for_something_is_not_over() -> None:
    thread = watching()
    happens(thread, "changed")
    thread.run()
    child = only_child(thread)
    child.run(calls("build"))
    child.user("Tell me")
    child.run(says("It builds."))
    assert child.head.status == "open"


def test_events_of_one_subscription_get_their_threads_in_order_and_so_many_at_once() -> None:
    thread = watching(ThreadOptions(max_event_children=2))
    for number in range(5):
        happens(thread, str(number))
    thread.run()
    assert [thread.fates.get(f"m{n}") for n in range(3, 8)] == [Disposition.ROUTED] * 2 + [None] * 3
    for number in range(5):
        child = children(thread)[number]
        closes(child)
        assert told(child) == str(number)
        thread.run()
    assert all(name.startswith("expiry:") for name in thread.inbox)
    assert thread.head.children == {}


def test_a_full_subscription_does_not_hold_up_another() -> None:
    thread = Thread(ThreadOptions(max_event_children=1, parallel_calls=2))
    thread.user("Watch")
    thread.run(calls("watch", "watch"))
    for number in (1, 2):
        thread.result(number, "watching", subscription=True)
    thread.run(says("I watch."))
    for _ in range(2):
        thread.put(Event(thread.calls[0], "first", ""))
        thread.put(Event(thread.calls[1], "second", ""))
    thread.run()
    assert len(thread.head.children) == 2


def test_a_full_subscription_does_not_hold_up_its_thread() -> None:
    thread = watching(ThreadOptions(max_event_children=1))
    for number in range(3):
        happens(thread, str(number))
    thread.run()
    thread.user("Hello")
    thread.run(says("Hi."))
    assert thread.story()[-2:] == ["U: Hello", "A: Hi."]


def test_a25_events_beyond_so_many_a_minute_wait_for_the_next() -> None:
    thread = watching(ThreadOptions(max_events_per_minute=2))
    names = [happens(thread, str(number)) for number in range(3)]
    thread.run()
    assert [name in thread.fates for name in names] == [True, True, False]
    thread.wait(MINUTE)
    thread.run()
    assert names[2] in thread.fates


def test_a25_a_tree_that_is_full_leaves_events_in_the_inbox() -> None:
    thread = watching(ThreadOptions(max_descendants=1))
    names = [happens(thread, str(number)) for number in range(2)]
    thread.run()
    assert [name in thread.fates for name in names] == [True, False]
    closes(only_child(thread))
    thread.run()
    assert names[1] in thread.fates


def test_an_event_that_would_be_too_deep_is_put_into_its_thread() -> None:
    thread = watching(ThreadOptions(max_depth=0))
    happens(thread, "changed")
    thread.run(says("Changed."))
    assert thread.story()[-2:] == ["event #1: changed", "A: Changed."]


@pytest.mark.parametrize("texts", [["news"], ["news", "more", "even more"]])
def test_the_last_event_ends_the_subscription_once_it_has_its_thread(texts: Sequence[str]) -> None:
    thread = watching(ThreadOptions(max_event_children=1))
    for text in texts:
        happens(thread, text, final=text == texts[-1])
    for number in range(len(texts)):
        thread.run()
        closes(children(thread)[number])
    thread.run()
    assert thread.state(1) == "gone"
    late = happens(thread, "too late")
    thread.run()
    assert thread.fates[late] is Disposition.REFUSED


@pytest.mark.parametrize("call_id", ["", "call_of_somebody_else"])
def test_an_event_for_an_unknown_call_is_refused_and_counted(call_id: str) -> None:
    thread = watching()
    name = thread.put(Event(call_id, "news"))
    thread.run()
    assert thread.fates[name] is Disposition.REFUSED
    assert thread.head.refused == 1


def test_a13_events_of_a_cancelled_subscription_are_refused_and_counted() -> None:
    thread = watching()
    thread.cancel(1)
    thread.run(says("It is over."))
    for number in range(3):
        happens(thread, str(number))
    thread.run()
    assert thread.head.refused == 3
    assert children(thread) == []


def test_events_for_a_closed_thread_say_so() -> None:
    thread = watching()
    happens(thread, "changed")
    thread.run()
    child = only_child(thread)
    closes(child)
    assert child.put(Timer("sleep", 0)) not in child.inbox


def test_the_registry_remembers_which_event_came_last() -> None:
    thread = watching()
    thread.put(Event(thread.calls[0], "changed", "offset 7", sequence=3))
    thread.run()
    one = thread.head.calls[thread.calls[0]]
    assert (one.last_event, one.sequence) == ("offset 7", 3)


def test_children_for_events_are_not_counted_among_those_that_the_model_made() -> None:
    thread = watching(ThreadOptions(max_children=1))
    happens(thread, "changed")
    thread.run()
    thread.user("Help")
    thread.run(asks("spawn_thread", instructions="Count", child_of=["t"]), says("ok"))
    assert len(thread.head.children) == 2


def test_a_temporary_thread_that_waited_for_one_of_its_own_ends_when_that_ends_without_a_report() -> None:
    thread = watching()
    happens(thread, "changed")
    thread.run()
    child = only_child(thread)
    child.run(calls("watch"))
    child.put(ToolResult(child.calls[0], "watching", is_error=False, subscription=True))
    child.run(says("I watch, too."))
    child.put(Event(child.calls[0], "the last one", "1", final=True))
    child.run()
    assert thread.fates.get(f"closed:{child.name}") is None
    before = child.head.status
    closes(only_child(child))
    child.run()
    assert (before, child.head.status) == ("open", "closed")
    thread.run(says("I see."))
    assert thread.head.children == {}


def test_events_behind_one_that_waits_for_a_call_wait_no_longer_than_it() -> None:
    thread = watching()
    thread.user("Build")
    thread.run(calls("build"))
    names = [thread.event(1, f"news {number}") for number in range(3)]
    thread.run()
    assert {thread.inbox[name].due for name in names} == {thread.now + GRACE}


def test_an_event_that_may_be_shown_keeps_its_place_behind_one_that_waits_for_room() -> None:
    thread = watching(ThreadOptions(max_event_children=1))
    happens(thread, "one")
    happens(thread, "two")
    thread.run()
    behind = thread.event(1, "three")
    thread.wait(GRACE)
    thread.run()
    assert thread.inbox[behind].due > thread.now
    closes(only_child(thread))
    thread.run(says("Three."))
    assert [told(child) for child in children(thread) if child.items] == ["one"]
    assert thread.fates[behind] is Disposition.ACCEPTED


def test_the_end_of_a_temporary_thread_does_not_overtake_what_it_reported() -> None:
    thread = watching()
    happens(thread, "changed")
    thread.user("Build")
    thread.run(calls("build"))
    child = only_child(thread)
    child.run(asks("report_to_parent", report="It matters"), asks("close_thread", thread_id=child.name))
    thread.run()
    assert child.name in thread.head.children
    thread.wait(GRACE)
    thread.run(says("I see."))
    assert len(reports(thread)) == 1
    assert thread.head.children == {}


def test_what_a_temporary_thread_has_others_do_ends_with_its_turn_so_that_both_end() -> None:
    thread = watching(ThreadOptions(max_event_children=1))
    happens(thread, "one")
    happens(thread, "two")
    thread.run()
    child = only_child(thread)
    stack = [thread.name, child.name]
    child.run(asks("spawn_thread", instructions="Look", child_of=stack), says("It is being looked at."))
    below = only_child(child)
    below.run(says("All is well."))
    assert below.head.status == "closed"
    child.run(says("All is well."))
    assert child.head.status == "closed"
    thread.run(says("Good."))
    assert len(children(thread)) == 2


def test_a_final_event_answers_a_subscription_that_was_never_confirmed() -> None:
    thread = Thread()
    thread.user("Watch")
    thread.run(calls("watch"))
    happens(thread, "over", final=True)
    thread.run(says("It is over."))
    assert "without having been confirmed" in thread.story()[-2]
    assert thread.head.calls == {}
    assert thread.running() == []


def test_a_subscription_that_ends_while_its_confirmation_waits_for_calls_before_it_is_forgotten_with_them() -> None:
    thread = Thread(ThreadOptions(parallel_calls=2))
    thread.user("Go")
    thread.run(calls("build", "watch"))
    thread.result(2, "watching", subscription=True)
    thread.put(Event(thread.calls[1], "over", "1", final=True))
    thread.run()
    thread.result(1)
    thread.run(says("Done."))
    assert thread.head.calls == {}


def test_what_waited_for_room_and_is_too_fast_now_comes_with_the_next_minute() -> None:
    thread = watching(ThreadOptions(max_event_children=2, max_events_per_minute=4))
    thread.wait(MINUTE - thread.now % MINUTE)
    names = [happens(thread, str(number)) for number in range(6)]
    thread.run()
    for number in range(4):
        closes(children(thread)[number])
        thread.run()
    assert [name in thread.fates for name in names] == [True] * 4 + [False] * 2
    thread.wait(MINUTE)
    thread.run()
    assert all(name in thread.fates for name in names)


def test_an_event_that_waits_for_room_in_its_tree_is_looked_at_soon() -> None:
    thread = watching(ThreadOptions(max_descendants=1))
    happens(thread, "first")
    name = happens(thread, "second")
    thread.run()
    assert thread.inbox[name].due - thread.now == TREE_FULL
