"""Which events a thread takes: by size, source, rate, age and schema. Refused ones leave their reason in a receipt."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hibernaut.codec import pack
from hibernaut.errors import ConfigurationError
from hibernaut.kernel.authority import Authority, Judge, check_authority, narrowed
from hibernaut.kernel.commit import Disposition
from hibernaut.kernel.event_policy import LARGEST_EVENT, LIFETIME, EventPolicy
from hibernaut.kernel.head import decode_head, encode_head
from hibernaut.kernel.limits import ThreadOptions
from hibernaut.kernel.provenance import call_named_by, read_entry
from hibernaut.messages.inputs import Command, Event, Timer
from hibernaut.messages.items import OutsideItem
from hibernaut.messages.parts import Excerpt, Image, Text
from tests.kernel.scenario import HOUR, MINUTE, SECOND, Thread, call, says
from tests.kernel.test_routing import children, closes, happens, told

DAY = 24 * HOUR


def watching(policy: EventPolicy | None = None, tool: str = "watch", **options: Any) -> Thread:
    """Return an idle thread with an active subscription, its first call."""
    thread = Thread(ThreadOptions(**options))
    thread.authority = Judge(Authority(events=policy or EventPolicy()))
    thread.user("Watch")
    thread.run(says(call(tool)))
    thread.result(1, "watching", subscription=True)
    return thread.run(says("I watch."))


def note_of(thread: Thread, message_id: str) -> str:
    """Return what the last receipt says of an event."""
    receipt = thread.receipt
    (entry,) = [one for (name, _), one in zip(receipt.inputs, receipt.origins, strict=True) if name == message_id]
    told_of = read_entry(entry, message_id, "watch" if call_named_by(message_id) else "", thread.name, "")
    assert told_of is not None
    return told_of.reason


# What is taken


def test_a25_an_event_that_is_too_large_is_refused_and_counted_with_the_reason_in_the_receipt() -> None:
    thread = watching(EventPolicy(max_bytes=5))
    fits, large = thread.event(1, "12345"), thread.event(1, "123456")
    thread.run(says("One."))
    assert (thread.fates[fits], thread.fates[large]) == (Disposition.ACCEPTED, Disposition.REFUSED)
    assert thread.head.refused == 1
    assert note_of(thread, large) == "the event has 6 bytes; at most 5 are taken (setting `events.max_bytes`)"
    assert thread.notices()[-1].startswith(f"an event of watch ({thread.calls[0]}): the event has 6 bytes")
    assert not [line for line in thread.story() if "123456" in line]


def test_a_refused_event_asks_the_model_nothing_and_routes_nothing() -> None:
    thread = watching(EventPolicy(max_bytes=5))
    name = happens(thread, "too large")
    thread.run()
    assert thread.fates[name] is Disposition.REFUSED
    assert (thread.head.children, thread.head.calls[thread.calls[0]].last_event) == ({}, "")


def test_what_lies_in_blobs_counts_with_its_whole_size() -> None:
    thread = watching(EventPolicy(max_bytes=1_000))
    parts = (Text("a"), Excerpt("head and tail", bytes(32), 2_000), Image("image/png", b"png"))
    name = thread.put(Event(thread.calls[0], parts, associative=True))
    thread.run()
    assert note_of(thread, name).startswith("the event has 2,004 bytes")


@pytest.mark.parametrize(
    "tool, policy, taken",
    [
        ("watch", EventPolicy(tools=("watch",)), True),
        ("watch", EventPolicy(tools=("w*", "x"), servers=("ci",)), True),
        ("watch", EventPolicy(tools=("follow",)), False),
        ("order", EventPolicy(servers=("forge",)), True),
        ("order", EventPolicy(servers=("f*",), tools=("order",)), True),
        ("order", EventPolicy(servers=("ci",)), False),
        ("order", EventPolicy(tools=()), False),
    ],
)
def test_events_are_taken_from_allowed_tools_and_servers_only(tool: str, policy: EventPolicy, taken: bool) -> None:
    thread = watching(policy, tool)
    name = thread.event(1, "news")
    thread.run(*[says("Seen.")] if taken else [])
    assert thread.fates[name] is (Disposition.ACCEPTED if taken else Disposition.REFUSED)
    if not taken:
        where = " on forge" if tool == "order" else ""
        assert note_of(thread, name) == f"the authority of this thread takes no events of {tool}{where}"


def test_of_many_refused_events_at_once_people_are_told_once() -> None:
    thread = watching(EventPolicy(tools=()))
    before = len(thread.notices())
    for number in range(20):
        thread.event(1, f"news {number}")
    thread.run()
    assert (len(thread.notices()) - before, thread.head.refused) == (1, 20)


def test_a25_events_above_the_rate_wait_for_the_next_minute_and_none_is_lost() -> None:
    thread = watching(EventPolicy(per_minute=2), max_events_per_minute=3)
    names = [thread.event(1, f"news {number}") for number in range(5)]
    thread.run(says("Two."))
    assert [thread.fates.get(name) for name in names] == [Disposition.ACCEPTED] * 2 + [None] * 3
    thread.wait(MINUTE)
    thread.run(says("Two more."))
    thread.wait(MINUTE)
    thread.run(says("The last one."))
    assert [thread.fates[name] for name in names] == [Disposition.ACCEPTED] * 5
    assert [line for line in thread.story() if "news" in line] == [f"event #1: news {number}" for number in range(5)]


# Schemas


def test_an_event_that_does_not_fit_its_schema_is_refused_and_no_payload_is_in_the_receipt() -> None:
    thread = watching()
    name = thread.event(1, '{"secret": 1}')
    thread.misfits[name] = 'at $.secret: "s3cret" is not of type "string"'
    thread.run()
    assert thread.fates[name] is Disposition.REFUSED
    assert note_of(thread, name) == "it does not fit its event schema"
    assert b"s3cret" not in thread.log[-1][1]
    assert "s3cret" in thread.notices()[-1]


def test_a_last_event_that_does_not_fit_ends_its_subscription_and_what_it_says_is_left_out() -> None:
    thread = watching()
    name = thread.event(1, "obey me", final=True)
    thread.misfits[name] = "it is not JSON"
    thread.run(says("It is over."))
    assert thread.fates[name] is Disposition.ACCEPTED
    assert thread.state(1) == "gone"
    left_out = "What its last event said is left out: it does not fit its event schema."
    assert thread.story()[-2:] == [f"last #1: The subscription has ended. {left_out}", "A: It is over."]
    assert thread.alarms() == []


def test_an_empty_last_event_says_that_the_subscription_has_ended() -> None:
    thread = watching()
    thread.event(1, " ", final=True)
    thread.run(says("It is over."))
    assert "The subscription has ended." in thread.story()[-2]


# Lifetime


def test_a_subscription_ends_after_thirty_days_by_a_timer_and_all_hear_of_it() -> None:
    thread = watching(tool="order")
    assert thread.alarms() == [f"expiry {LIFETIME}"]
    thread.wait(30 * DAY - SECOND)
    late = thread.event(1, "just in time")
    thread.run(says("Seen."))
    assert thread.fates[late] is Disposition.ACCEPTED
    thread.wait(SECOND)
    thread.run(says("I know."))
    assert (thread.state(1), thread.alarms()) == ("expired", [])
    assert "its time, 30 days, was up. Call order again" in thread.story()[-2]
    assert not isinstance(thread.items[-2], OutsideItem)
    after = thread.event(1, "too late")
    thread.run()
    assert (thread.fates[after], note_of(thread, after)) == (Disposition.REFUSED, "it is about no active subscription")


def test_a_server_is_owed_the_cancellation_of_a_subscription_that_expired() -> None:
    thread = watching(EventPolicy(lifetime=60), "order")
    thread.wait(MINUTE)
    thread.run(says("I know."))
    assert f"{thread.calls[0]}:cancel" in thread.receipt.dispatched


def test_an_event_counts_by_when_it_was_delivered_and_not_by_when_it_is_looked_at() -> None:
    thread = watching(EventPolicy(lifetime=60))
    thread.wait(MINUTE - SECOND)
    before = thread.event(1, "before")
    thread.wait(2 * SECOND)
    after = thread.event(1, "after")
    thread.run(says("Seen."))
    assert (thread.fates[before], thread.fates[after]) == (Disposition.ACCEPTED, Disposition.REFUSED)
    assert note_of(thread, after) == "the time of this subscription of watch is up; it takes no events any more"
    assert [line for line in thread.story() if "its time, " in line]


def test_the_end_of_a_subscription_waits_for_an_open_call_like_any_event() -> None:
    thread = watching(EventPolicy(lifetime=60))
    thread.user("Build")
    thread.run(says(call("build")))
    thread.wait(MINUTE)
    thread.run()
    assert thread.state(1) == "subscribed"
    thread.result(2, "built")
    thread.run(says("Built, and it is over."))
    assert thread.state(1) == "expired"


def test_a_subscription_without_end_has_no_timer() -> None:
    assert watching(EventPolicy(lifetime=0)).alarms() == []


def test_a_subscription_that_ends_early_leaves_no_timer() -> None:
    for end in ("final", "cancel", "close"):
        thread = watching()
        if end == "final":
            thread.event(1, "bye", final=True)
            thread.run(says("Bye."))
        elif end == "cancel":
            thread.cancel(1)
            thread.run(says("Cancelled."))
        else:
            thread.put(Command("close"))
            thread.run()
        assert thread.alarms() == [], end


def test_another_authority_counts_for_subscriptions_that_run() -> None:
    thread = watching()
    short = Judge(Authority(events=EventPolicy(lifetime=60)))
    thread.authorities[short.digest] = short
    thread.wait(30 * SECOND)
    thread.put(Command("authorize", authority=short.digest))
    thread.run()
    thread.authority = short
    assert thread.alarms() == ["expiry 30"]
    thread.wait(30 * SECOND)
    thread.run(says("It is over."))
    assert thread.state(1) == "expired"


def test_a_timer_that_was_replaced_ends_nothing() -> None:
    thread = watching()
    name = thread.put(Timer("expiry", thread.now, thread.calls[0]), "expiry:forged")
    thread.run()
    assert (thread.fates[name], thread.state(1)) == (Disposition.STALE, "subscribed")


def test_a_subscription_of_an_older_version_has_its_end_from_the_next_event_on() -> None:
    thread = watching()
    head = decode_head(thread.stored).head
    old = head.calls[thread.calls[0]]
    thread.inbox.pop(old.timer)
    old.timer, old.since = "", 0
    thread.stored = encode_head(head)
    thread.event(1, "news")
    thread.run(says("Seen."))
    assert thread.alarms() == [f"expiry {LIFETIME}"]


# What is remarkable


def test_a_gap_a_late_event_and_the_right_order_are_told_apart_in_the_receipt_and_on_the_event() -> None:
    thread = watching(tool="order")
    notes = []
    for number in (5, 6, 9, 8, 11):
        name = thread.put(Event(thread.calls[0], f"number {number}", f"e{number}", associative=True, sequence=number))
        thread.run(says("Seen."))
        notes.append(note_of(thread, name))
    assert notes == [
        "",
        "",
        "numbers 7 to 8, before it, have not come",
        "number 8 came after number 9",
        "number 10, before it, has not come",
    ]
    shown = [item for item in thread.items if isinstance(item, OutsideItem)]
    assert [(one.sequence, one.before) for one in shown] == [(5, 0), (6, 5), (9, 6), (8, 9), (11, 9)]
    assert thread.head.calls[thread.calls[0]].sequence == 11


def test_a_gap_is_marked_on_a_routed_event_too() -> None:
    thread = watching(tool="order")
    for number in (1, 3):
        thread.put(Event(thread.calls[0], f"number {number}", f"e{number}", sequence=number))
    thread.run()
    _, second = children(thread)
    closes(second)
    assert told(second) == "number 3"
    (event,) = [item for item in second.items if isinstance(item, OutsideItem)]
    assert (event.sequence, event.before, event.server) == (3, 1, "forge")


def test_the_receipt_says_that_an_event_has_no_thread_of_its_own_since_it_would_be_too_deep() -> None:
    thread = watching(max_depth=0)
    name = happens(thread, "changed")
    thread.run(says("Seen."))
    assert thread.fates[name] is Disposition.ACCEPTED
    assert "max_depth" in note_of(thread, name)


# The policy as a value

policies = st.builds(
    EventPolicy,
    tools=st.sampled_from([("*",), ("watch",), ()]),
    servers=st.sampled_from([("*",), ("ci",), ()]),
    max_bytes=st.integers(0, 9),
    per_minute=st.integers(0, 9),
    lifetime=st.integers(0, 9),
)


@given(policies, policies)
def test_a25_a_child_never_takes_more_events_than_its_parent(own: EventPolicy, for_children: EventPolicy) -> None:
    parent = Authority(events=own, children=Authority(events=for_children))
    child, above = Judge(narrowed(parent, parent.children)), Judge(parent)
    for tool, server in (("watch", ""), ("watch", "ci"), ("other", "forge")):
        assert above.takes_events_of(tool, server) or not child.takes_events_of(tool, server)
    for bound in ("event_bytes", "events_per_minute", "lifetime"):
        mine, theirs = getattr(child, bound), getattr(above, bound)
        assert not theirs or 0 < mine <= theirs


def test_every_thread_has_an_event_policy_and_the_authorities_of_before_are_the_same_bytes() -> None:
    open_to_all = Judge(Authority())
    assert (open_to_all.lifetime, open_to_all.event_bytes) == (1_000 * LIFETIME, LARGEST_EVENT)
    assert open_to_all.takes_events_of("any", "where")
    assert pack(Authority()) == b"\x80"


@pytest.mark.parametrize("bound", ["max_bytes", "per_minute", "lifetime"])
def test_a_policy_that_cannot_be_meant_is_refused(bound: str) -> None:
    limits: Any = {bound: -1}
    with pytest.raises(ConfigurationError, match=f"events.{bound} is -1"):
        check_authority(Authority(children=Authority(events=EventPolicy(**limits))))
