"""What operators do to messages that wait, and to a thread that has given up."""

import hashlib

import pytest

from hibernaut.kernel.commit import Disposition
from hibernaut.kernel.draft import Found
from hibernaut.kernel.fold import Failure
from hibernaut.kernel.prepare import prepare
from hibernaut.kernel.queue import digest_of
from hibernaut.messages.inputs import Command, Delivered, Drop, Edit, InputMessage, UserText
from hibernaut.messages.parts import Text
from tests.kernel.scenario import OVERLOADED, Thread, idle, says, waiting, watching

ACCEPTED = Disposition.ACCEPTED
STALE = Disposition.STALE
REFUSED = Disposition.REFUSED
HELD = Disposition.HELD
DROPPED = Disposition.DROPPED


# Messages that wait


def test_a_message_that_is_dropped_before_it_is_read_never_was_and_the_receipt_says_so() -> None:
    thread = idle()
    said = thread.user("Wipe it all")
    drop = thread.put(Drop(said, "said in error"))
    thread.run()
    assert thread.story(notices=True)[2:] == ["(dropped)"]
    assert thread.notices() == [f"message {said} was dropped by an operator: said in error"]
    assert thread.receipt.inputs == ((said, DROPPED), (drop, ACCEPTED))
    assert thread.fates[said] == DROPPED


def test_what_was_read_before_is_history_and_a_drop_of_it_changes_nothing() -> None:
    thread = idle()
    said = thread.user("Build it")
    thread.run(says("Built."))
    drop, edit = thread.put(Drop(said)), thread.put(Edit(said, "Wipe it"))
    thread.run()
    assert (thread.fates[drop], thread.fates[edit]) == (STALE, STALE)
    assert thread.story(notices=True)[2:] == ["U: Build it", "A: Built."]


def test_a_text_that_is_dropped_does_not_resume_a_stopped_thread() -> None:
    thread = idle()
    thread.stop()
    thread.run()
    said = thread.user("Go on")
    thread.put(Drop(said))
    thread.run()
    assert (thread.head.status, thread.fates[said]) == ("stopped", DROPPED)


def test_what_was_edited_is_read_as_it_is_then_and_the_receipt_has_both_digests() -> None:
    thread = idle()
    said = thread.user("Build abc")
    edit = thread.put(Edit(said, "Build déf", "a slip"))
    thread.run(says("Built."))
    assert thread.story()[2:] == ["U: Build déf", "A: Built."]
    digests = [hashlib.sha256(text.encode()).digest() for text in ("Build abc", "Build déf")]
    assert thread.receipt.edited == ((said, *digests),)
    assert thread.receipt.inputs == ((edit, ACCEPTED), (said, ACCEPTED))


def test_what_is_edited_while_a_thread_is_stopped_stays_in_its_place_and_is_read_so_later() -> None:
    thread = watching()
    thread.stop()
    thread.run()
    first, second = thread.event(1, "a push"), thread.event(1, "another")
    edit = thread.put(Edit(first, "a pull"))
    thread.run()
    assert thread.receipt.inputs == ((edit, ACCEPTED), (first, HELD), (second, HELD))
    (edited,) = thread.receipt.edited
    assert edited == (first, digest_of("a push"), digest_of("a pull"))
    thread.put(Command("resume"))
    thread.run(says("Seen."))
    assert thread.story()[-3:] == ["event #1: a pull", "event #1: another", "A: Seen."]
    assert not thread.receipt.edited


def test_several_decisions_about_one_message_are_carried_out_in_their_order() -> None:
    thread = idle()
    said = thread.user("One")
    thread.put(Edit(said, "Two"))
    thread.put(Edit(said, "Three"))
    thread.run(says("Yes."))
    assert thread.receipt.edited == (
        (said, digest_of("One"), digest_of("Two")),
        (said, digest_of("Two"), digest_of("Three")),
    )
    said = thread.user("Four")
    thread.put(Edit(said, "Five"))
    thread.put(Drop(said))
    late = thread.put(Edit(said, "Six"))
    thread.run()
    assert thread.story()[2:] == ["U: Three", "A: Yes."]
    assert (thread.fates[said], thread.fates[late]) == (DROPPED, STALE)


def test_what_ends_a_call_can_neither_be_dropped_nor_edited() -> None:
    thread = waiting("build")
    result = thread.result(1, "built")
    drop, edit = thread.put(Drop(result)), thread.put(Edit(result, "failed"))
    thread.run(says("Good."))
    assert (thread.fates[drop], thread.fates[edit]) == (REFUSED, REFUSED)
    assert thread.story()[1:] == ["#1 build", "#1 = built", "A: Good."]


@pytest.mark.parametrize("blank", ["", "  \n", ()])
def test_a_message_cannot_be_made_blank(blank: str | tuple[()]) -> None:
    thread = idle()
    said = thread.user("Hello again")
    edit = thread.put(Edit(said, blank))
    thread.run(says("Hi."))
    assert thread.fates[edit] == REFUSED
    assert thread.story()[2:] == ["U: Hello again", "A: Hi."]


def test_a_message_that_was_not_handed_over_is_dropped_or_edited_where_it_stands() -> None:
    thread = idle()
    first, second = (
        Delivered(name, thread.now, InputMessage(name, "t", UserText("far away"))) for name in ("far", "farther")
    )
    decisions: list[Drop | Edit] = [Drop("far"), Edit("farther", (Text("nearer"),))]
    inputs = [
        Delivered(f"d{number}", thread.now, InputMessage(f"d{number}", "t", one, "operator"))
        for number, one in enumerate(decisions)
    ]
    queued = {"far": first, "farther": second}
    draft = prepare(thread.head, inputs, thread.options, thread.now, found=Found(queued=queued))
    assert draft.dispositions == [("far", DROPPED), ("d0", ACCEPTED), ("d1", ACCEPTED)]
    assert [*draft.edited] == ["farther"]
    assert not draft.wants_completion


# Trying again


def test_a_parked_thread_tries_again_when_an_operator_says_so_and_the_notice_says_why() -> None:
    thread = Thread()
    thread.user("Go")
    thread.run(Failure("authentication_failed", "no key", retryable=False))
    retry = thread.put(Command("retry", reason="the key is there now"))
    thread.run(says("Done."))
    assert thread.notices()[-1] == "was parked: the key is there now"
    assert (thread.fates[retry], thread.head.status) == (ACCEPTED, "open")
    assert thread.story()[-1] == "A: Done."


def test_a_thread_that_waits_to_try_again_does_so_at_once() -> None:
    thread = Thread()
    thread.user("Go")
    thread.run(OVERLOADED)
    assert thread.alarms()
    retry = thread.put(Command("retry"))
    thread.run(says("Done."))
    assert (thread.fates[retry], thread.alarms()) == (ACCEPTED, [])


@pytest.mark.parametrize("stopped", [False, True])
def test_there_is_nothing_to_try_again_where_nothing_failed(*, stopped: bool) -> None:
    thread = idle()
    if stopped:
        thread.stop()
        thread.run()
    retry = thread.put(Command("retry"))
    thread.run()
    assert (thread.fates[retry], thread.head.status) == (STALE, "stopped" if stopped else "open")
