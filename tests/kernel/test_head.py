"""The head: small, stable in its stored form, and careful with what a newer version wrote."""

from typing import Any

import msgspec
import pytest

from hibernaut.codec import pack
from hibernaut.errors import StoreCorrupt, StoreFormatTooNew
from hibernaut.kernel.head import (
    Call,
    Child,
    Extra,
    Fork,
    Head,
    Link,
    OpenAsk,
    Pending,
    Registry,
    Standing,
    Summary,
    copy_head,
    decode_head,
    encode_head,
    registry_of,
)
from hibernaut.messages.events import Usage
from hibernaut.messages.items import ResultItem
from tests.kernel.scenario import Thread, calls, says

IDLE_BYTES = 256
"""Bytes of the head of an idle thread, at most: three digests, a salt, counters and their names."""

PER_CALL = 192
"""Bytes that a small open call adds, at most."""

GOLDEN_LATER = (
    "de0005a97468726561645f6964a174a473616c74c400a6636f6e666967c400a563616c6c7381a163de0004a26964a163a474"
    "6f6f6ca57761746368ac6576656e745f736368656d61c40101a573696e636507a6776f726b6564cd05dc"
)
GOLDEN_ESTIMATED = (
    "de0005a97468726561645f6964a174a473616c74c400a6636f6e666967c400a9657374696d61746564cd012cae657374696d"
    "617465645f636f7374cd0fa0"
)
LATER = ("worked", "estimated", "estimated_cost")
"""Fields that were added after the golden head was written."""

GOLDEN_HEAD = (
    "de002aa97468726561645f6964a174a473616c74c40873616c7473616c74a6636f6e666967c40401010101a776657273696f"
    "6e07a6737461747573a67061726b6564a6726561736f6eaa6f7665726c6f61646564a46c696e6b89a5737461636b92a172a1"
    "70a763616c6c5f6964a663616c6c5f70a4746f6f6ca57761746368a9617267756d656e7473a77b2278223a317da56576656e"
    "74c3a56672657368c3a776657273696f6e05a56974656d7303a773756d6d61727983a776657273696f6e04a46b65707402a6"
    "636f7665727309a86368696c6472656e81a87468726561645f6384a763616c6c5f6964a663616c6c5f63a4746f6f6cac7370"
    "61776e5f746872656164a9617267756d656e7473a77b2279223a317da56576656e74c3a97175657374696f6e7381a561736b"
    "5f3189a763616c6c5f6964a663616c6c5f61a670726f6d7074a5537572653fa763686f6963657392a3796573a26e6fa76465"
    "6661756c7401a364756509a375726ca968747470733a2f2f78a561736b656408a6616e7377657201a86f727068616e6564c3"
    "a87265706f72746564c3a77265667573656402a563616c6c7382a663616c6c5f61de000fa26964a663616c6c5f61a4746f6f"
    "6ca56275696c64a9617267756d656e7473a77b2261223a317da57374617465a46f70656ea8646561646c696e65cdea60a574"
    "696d6572af646561646c696e653a63616c6c5f61a776657273696f6e07aa6c6173745f6576656e74a165a873657175656e63"
    "6503a66d696e75746502a574616b656e01a6736572766572a26369ab70726f76696465725f6964a7746f6f6c755f31ab616e"
    "6e6f746174696f6e7391ab6465737472756374697665a8617070726f76616ca561736b5f31a663616c6c5f62de0008a26964"
    "a663616c6c5f62a4746f6f6ca5736c656570a46d6f6465a472657374a57374617465a8616e737765726564a7706173736976"
    "65c3a468656c6495a174a663616c6c5f62a466696e65c3a25b5da564656c617905a364756509a47475726e92a663616c6c5f"
    "61a663616c6c5f62a46f776573c3a8617474656d70747302a57265747279a772657472793a37ad636f6e74696e756174696f"
    "6e7301a77265706561747303a87265706561746564c40402020202a57469746c65a4576f726ba86d65746164617461a27b7d"
    "a56d6f64656caa6f70656e61693a677074a57573616765930a0502a76772616e74656403a56974656d730ca773756d6d6172"
    "7983a776657273696f6e06a46b65707403a6636f766572730aa86d65617375726564cd03e8ae6d656173757265645f697465"
    "6d730ba966727569746c657373cd0384aa6f766572666c6f776564c3a7686973746f7279c40403030303a872656365697074"
    "73c40404040404a56275696c64a5302e312e30a5746f6f6c73c40405050505a9617574686f72697479c40407070707a56265"
    "67756e81a56275696c6402a8746f6f6c7365747381a26369c40406060606a473697a65cd0fa0a57472616365c40408080808"
    "a4636f7374ce001312d0a67072696365640fac6772616e7465645f636f737492ce0003d09005"
)


def full_head() -> Head:
    """Return a head in which every field says something."""
    held = ResultItem("call_b", "fine", is_error=True, display="[]")
    return Head(
        thread_id="t",
        salt=b"saltsalt",
        config=b"\x01" * 4,
        version=7,
        status="parked",
        reason="overloaded",
        link=Link(
            ("r", "p"),
            "call_p",
            "watch",
            '{"x":1}',
            event=True,
            fresh=True,
            version=5,
            items=3,
            summary=Summary(4, 2, 9),
        ),
        children={"thread_c": Child("call_c", "spawn_thread", '{"y":1}', event=True)},
        questions={"ask_1": Pending("call_a", "Sure?", ("yes", "no"), 1, 9, "https://x", 8, 1, orphaned=True)},
        reported=True,
        refused=2,
        summary=Summary(6, 3, 10),
        measured=1000,
        measured_items=11,
        fruitless=900,
        overflowed=True,
        calls={
            "call_a": Call(
                "call_a",
                "build",
                '{"a":1}',
                state="open",
                deadline=60_000,
                timer="deadline:call_a",
                version=7,
                last_event="e",
                sequence=3,
                minute=2,
                taken=1,
                server="ci",
                provider_id="toolu_1",
                annotations=("destructive",),
                approval="ask_1",
            ),
            "call_b": Call("call_b", "sleep", mode="rest", state="answered", passive=True, held=held, delay=5, due=9),
        },
        turn=("call_a", "call_b"),
        owes=True,
        attempts=2,
        retry="retry:7",
        continuations=1,
        repeats=3,
        repeated=b"\x02" * 4,
        build="0.1.0",
        granted=3,
        title="Work",
        metadata="{}",
        model="openai:gpt",
        usage=Usage(10, 5, 2),
        items=12,
        history=b"\x03" * 4,
        receipts=b"\x04" * 4,
        tools=b"\x05" * 4,
        authority=b"\x07" * 4,
        begun={"build": 2},
        toolsets={"ci": b"\x06" * 4},
        size=4_000,
        trace=b"\x08" * 4,
        cost=1_250_000,
        priced=15,
        granted_cost=(250_000, 5),
    )


def tree(data: bytes) -> Any:
    return msgspec.msgpack.decode(data)


# The stored form


def test_the_stored_form_of_a_head_does_not_change() -> None:
    assert encode_head(full_head()).hex() == GOLDEN_HEAD
    assert decode_head(bytes.fromhex(GOLDEN_HEAD)).head == full_head()


def test_every_field_of_the_golden_head_says_something() -> None:
    head = full_head()
    new = Head("", b"", b"")
    same = [name for name in Head.__struct_fields__ if getattr(head, name) == getattr(new, name)]
    assert {*same} == {"format", "fork", "asks", *LATER}  # a thread has a link or a fork


def test_the_stored_form_of_what_came_later_does_not_change() -> None:
    head = Head("t", b"", b"", calls={"c": Call("c", "watch", event_schema=b"\x01", since=7)}, worked=1_500)
    assert encode_head(head).hex() == GOLDEN_LATER
    assert decode_head(bytes.fromhex(GOLDEN_LATER)).head == head
    head = Head("t", b"", b"", estimated=300, estimated_cost=4_000)
    assert encode_head(head).hex() == GOLDEN_ESTIMATED
    assert decode_head(bytes.fromhex(GOLDEN_ESTIMATED)).head == head


def test_the_stored_form_of_a_fork_does_not_change() -> None:
    head = Head("t", b"salt", b"config", fork=Fork("above", 5, 3, Summary(4, 2, 9)))
    stored = encode_head(head)
    assert stored.hex() == (
        "de0004a97468726561645f6964a174a473616c74c40473616c74a6636f6e666967c406636f6e666967a4666f726b84a66f72"
        "6967696ea561626f7665a776657273696f6e05a56974656d7303a773756d6d61727983a776657273696f6e04a46b65707402a6636f7665727309"
    )
    assert decode_head(stored).head == head
    assert (head.base, full_head().base) == (head.fork, full_head().link)


def test_the_stored_form_of_what_waits_for_an_answer_does_not_change() -> None:
    head = Head("t", b"", b"", asks=(OpenAsk("m1", "{}", "q", 7, tried=True, aside=True, said="a"),))
    stored = encode_head(head)
    assert stored.hex() == (
        "de0004a97468726561645f6964a174a473616c74c400a6636f6e666967c400a461736b739187a26964a26d31a4666f726da2"
        "7b7da87175657374696f6ea171a573696e636507a57472696564c3a56173696465c3a473616964a161"
    )
    assert decode_head(stored).head == head


def test_a_head_that_was_only_created_has_no_more_than_its_own() -> None:
    assert set(tree(encode_head(Head("t", b"salt", b"config")))) == {"thread_id", "salt", "config"}


@pytest.mark.parametrize("data", [b"", b"\x80", b"\xc1", b"\x90", pack({"thread_id": 1}), pack("head")])
def test_what_is_not_a_head_is_corrupt(data: bytes) -> None:
    with pytest.raises(StoreCorrupt, match="a thread's head cannot be read"):
        decode_head(data)


# Its size


def test_the_head_of_an_idle_thread_is_small_however_long_it_lived() -> None:
    thread = Thread()
    for number in range(50):
        thread.user("x" * 1_000)
        thread.run(calls("build"))
        thread.result(number + 1, "y" * 1_000)
        thread.run(says("z" * 1_000))
    assert len(thread.stored) < IDLE_BYTES


def test_an_open_call_adds_little() -> None:
    thread = Thread()
    thread.user("Go")
    thread.run(calls("build"))
    assert len(thread.stored) < IDLE_BYTES + PER_CALL


# What a newer version wrote


def newer(**added: Any) -> bytes:
    """Return the full head as format 2 would write it, with what it added."""
    return pack({**tree(encode_head(full_head())), "format": 2, **added})


def test_fields_that_a_newer_version_added_survive_a_read_and_a_write() -> None:
    data = newer(budget={"spent": [1, 2.5]}, flag=None)
    loaded = decode_head(data)
    assert loaded.head == msgspec.structs.replace(full_head(), format=2)
    written = tree(encode_head(loaded.head, loaded.extra))
    assert written == {**tree(data), **written}
    assert (written["budget"], written["flag"], written["format"]) == ({"spent": [1, 2.5]}, None, 2)


def test_what_a_newer_version_added_inside_a_field_survives_too() -> None:
    data = tree(newer())
    data["calls"]["call_a"]["approved_by"] = "ada"
    data["calls"]["call_b"]["held"].append("added")
    data["link"]["span"] = 3
    data["usage"] += [80, {"thinking": 4}]
    loaded = decode_head(pack(data))
    loaded.head.usage = Usage(20, 10, 4)
    loaded.head.calls["call_a"].state = "detached"
    written = tree(encode_head(loaded.head, loaded.extra))
    assert written["calls"]["call_a"]["approved_by"] == "ada"
    assert written["calls"]["call_a"]["state"] == "detached"
    assert written["calls"]["call_b"]["held"][-1] == "added"
    assert written["link"]["span"] == 3
    assert written["usage"] == [20, 10, 4, 80, {"thinking": 4}]


def test_what_a_newer_version_added_goes_with_what_it_belonged_to() -> None:
    data = tree(newer())
    data["calls"]["call_a"]["approved_by"] = "ada"
    data["calls"]["call_b"]["held"].append("added")
    loaded = decode_head(pack(data))
    del loaded.head.calls["call_a"]
    loaded.head.calls["call_b"].held = None
    written = tree(encode_head(loaded.head, loaded.extra))
    assert set(written["calls"]) == {"call_b"}
    assert "held" not in written["calls"]["call_b"]


def test_a_default_that_a_newer_version_wrote_out_does_not_stand_in_the_way() -> None:
    data = tree(newer())
    data["calls"]["call_b"]["deadline"] = 0
    data["owes"] = False
    loaded = decode_head(pack(data))
    loaded.head.calls["call_b"].deadline = 5
    loaded.head.owes = True
    again = decode_head(encode_head(loaded.head, loaded.extra)).head
    assert (again.calls["call_b"].deadline, again.owes) == (5, True)


def test_a_whole_slice_of_an_older_version_keeps_what_a_newer_one_added() -> None:
    thread = Thread()
    thread.user("Build")
    thread.run(calls("build"))
    data = tree(thread.stored)
    data |= {"format": 2, "added": "kept"}
    data["calls"][thread.calls[0]]["approved_by"] = "ada"
    thread.stored = pack(data)
    thread.user("Meanwhile?")
    thread.run(says("It builds."))
    written = tree(thread.stored)
    assert (written["format"], written["added"]) == (2, "kept")
    assert written["calls"][thread.calls[0]]["approved_by"] == "ada"
    thread.result(1, "built")
    thread.run(says("Built."))
    assert (tree(thread.stored)["added"], thread.head.calls) == ("kept", {})


def test_a_state_that_only_a_newer_version_knows_is_refused_and_not_called_damage() -> None:
    data = tree(newer())
    data["calls"]["call_a"]["state"] = "approving"
    with pytest.raises(StoreFormatTooNew, match="approving"):
        decode_head(pack(data))


def test_a_state_that_nobody_knows_is_damage() -> None:
    data = tree(encode_head(full_head()))
    data["status"] = "dozing"
    with pytest.raises(StoreCorrupt, match="dozing"):
        decode_head(pack(data))


def test_a_head_of_this_version_carries_nothing_along() -> None:
    extra: Extra = {}
    assert decode_head(encode_head(full_head())).extra == extra


def test_a_copied_head_changes_alone() -> None:
    head = full_head()
    copy = copy_head(head)
    copy.calls["call_a"].state = "detached"
    copy.calls.pop("call_b")
    copy.owes = False
    assert head == full_head()


def test_a_door_reads_how_far_calls_are_without_the_rest_of_the_head() -> None:
    known = registry_of(bytes.fromhex(GOLDEN_HEAD))
    assert known.calls == {"call_a": Standing("build", "open", "ci"), "call_b": Standing("sleep", "answered")}
    subscribed = Call("c", "watch", server="ci", event_schema=b"\x01", since=7)
    head = Head("t", b"", b"\x02", calls={"c": subscribed}, authority=b"\x03")
    standing = Standing("watch", "queued", "ci", b"\x01", 7)
    assert registry_of(encode_head(head)) == Registry(b"\x02", {"c": standing}, b"\x03")
    assert registry_of(encode_head(Head("t", b"", b""))).calls == {}
    with pytest.raises(StoreCorrupt):
        registry_of(b"no head")
