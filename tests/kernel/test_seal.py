"""What a commit says, and that its receipt says the same."""

import hashlib

from hibernaut.kernel.commit import Disposition, Effect
from hibernaut.kernel.limits import ThreadOptions
from hibernaut.kernel.receipt import Receipt, TurnCommit, decode_receipt
from hibernaut.kernel.seal import Asked, seal
from hibernaut.messages.events import Usage
from hibernaut.messages.inputs import ToolResult
from hibernaut.messages.items import decode_page
from tests.kernel.scenario import MINUTE, OVERLOADED, SECOND, START, Thread, call, calls, cut_short, says


def test_a_receipt_says_what_the_round_did() -> None:
    thread = Thread()
    thread.thinking = 2 * SECOND
    hello = thread.user("Build")
    commit = thread.round(says("I build.", call("build"), call("note"), usage=Usage(100, 20, 80)))
    assert thread.receipt == Receipt(
        version=1,
        previous=b"",
        history=hashlib.sha256(commit.page).digest(),
        inputs=((hello, Disposition.ACCEPTED),),
        turn=TurnCommit.COMPLETE,
        calls=tuple(thread.calls),
        owes=(0,),
        usage=Usage(100, 20, 80),
        attempt=1,
        started=START,
        took=2 * SECOND,
        config=bytes(32),
        build="test",
        provenance=(("test",),),
    )


def test_a_receipt_follows_the_one_before_it() -> None:
    thread = Thread()
    thread.user("Build")
    first = thread.round(calls("build"))
    thread.result(1, "built")
    second = thread.round(says("Built."))
    receipt = decode_receipt(second.receipt)
    assert receipt.previous == hashlib.sha256(first.receipt).digest()
    assert receipt.history == hashlib.sha256(decode_receipt(first.receipt).history + second.page).digest()
    assert (receipt.version, receipt.settled, receipt.config) == (2, (thread.calls[0],), b"")
    assert (thread.head.history, thread.head.receipts) == (receipt.history, hashlib.sha256(second.receipt).digest())


def test_a_commit_says_what_the_store_is_to_do() -> None:
    thread = Thread()
    hello = thread.user("Deploy")
    commit = thread.round(calls("deploy"))
    (deploy,) = thread.calls
    assert (commit.thread_id, commit.version, commit.at, commit.status) == ("t", 1, START, "open")
    assert (commit.consumed, commit.continues) == ((hello,), False)
    assert commit.effects == (Effect(deploy, "invoke", deploy, "deploy", "{}"),)
    assert [(out.message.message_id, out.due) for out in commit.outgoing] == [(f"deadline:{deploy}", START + MINUTE)]
    result = thread.result(1)
    commit = thread.round(says("Good."))
    assert (commit.consumed, commit.settled, commit.dropped) == ((result,), (deploy,), (f"deadline:{deploy}",))


def test_what_stays_in_the_inbox_is_not_consumed() -> None:
    thread = Thread()
    thread.user("Watch")
    thread.run(calls("watch"))
    thread.result(1, "watching", subscription=True)
    thread.run(calls("build"))
    push = thread.event(1, "a push")
    commit = thread.round()
    assert (commit.consumed, commit.deferred) == ((), ((push, START + ThreadOptions().event_grace),))
    stop = thread.stop()
    commit = thread.round()
    assert (commit.consumed, commit.deferred) == ((stop,), ())
    assert thread.receipt.inputs == ((stop, Disposition.ACCEPTED), (push, Disposition.HELD))


def test_a_round_without_items_has_no_page_and_the_history_stays() -> None:
    thread = Thread()
    thread.user("Hello")
    thread.run(says("Hi."))
    before = thread.head
    thread.put(ToolResult("call_unknown", "?"))
    commit = thread.round()
    assert commit.page == b""
    assert (thread.head.history, thread.head.items) == (before.history, before.items)
    assert thread.head.receipts != before.receipts


def test_a_thread_continues_when_it_owes_an_answer_and_nothing_holds_it_up() -> None:
    thread = Thread()
    thread.user("Note, then build")
    assert thread.round(calls("note")).continues
    assert not thread.round(calls("build")).continues
    thread.result(2)
    assert not thread.round(OVERLOADED).continues
    thread.wait(MINUTE)
    assert thread.round(cut_short()).continues
    assert not thread.round(says("Done.")).continues


def test_an_interrupted_and_a_failed_turn_are_told_apart_from_none() -> None:
    thread = Thread()
    thread.user("Hello")
    assert decode_receipt(thread.round(OVERLOADED).receipt).turn is TurnCommit.FAILED
    assert thread.receipt.failures == 1
    thread.wait(MINUTE)
    assert decode_receipt(thread.round(cut_short("Hi")).receipt).turn is TurnCommit.INTERRUPTED
    assert decode_receipt(thread.round().receipt).turn is TurnCommit.NONE


def test_changed_tools_are_named_once() -> None:
    thread = Thread()
    head = thread.head
    named = []
    for tools in (b"one", b"one", b"two", b""):
        draft = thread.draft()
        draft.head = head
        commit = seal(draft, Asked(TurnCommit.COMPLETE, tools=tools), started=START, now=START, build="test")
        named.append(decode_receipt(commit.receipt).tools)
    assert named == [b"one", b"", b"two", b""]
    assert head.tools == b"two"


def test_the_page_holds_the_items_of_the_round_and_no_others() -> None:
    thread = Thread()
    thread.user("Hello")
    thread.round(says("Hi."))
    thread.user("Again")
    commit = thread.round(says("Hi again."))
    assert decode_page(commit.page) == thread.items[2:]


def test_the_same_round_comes_to_the_same_bytes() -> None:
    thread = Thread()
    thread.user("Hello")
    one, two = (seal(thread.draft(), Asked(), started=START, now=START + 5, build="test") for _ in range(2))
    assert one == two
