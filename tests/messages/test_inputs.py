"""The stored form of an input: it never changes, and what cannot be read is said to be so."""

import msgspec
import pytest

from hibernaut.codec import pack
from hibernaut.errors import StoreCorrupt
from hibernaut.messages.inputs import (
    EVENT,
    RESULT,
    UPKEEP,
    USER,
    Answer,
    Ask,
    Command,
    Drop,
    Edit,
    Event,
    Forked,
    InputContent,
    InputMessage,
    Orphaned,
    ParentMessage,
    Question,
    Report,
    Seed,
    Settlement,
    Timer,
    ToolResult,
    UserText,
    decode_input,
    encode_input,
    is_word,
    urgency,
)
from hibernaut.messages.items import UserItem
from hibernaut.messages.parts import Image, Text

GOLDEN: list[tuple[InputContent, str]] = [
    (
        Ask("Hello", "ada", "{}", "runtime"),
        "95a26d31a17495a361736ba548656c6c6fa3616461a27b7da772756e74696d65a3617069a77b2261223a317d",
    ),
    (UserText("Hello", "ada"), "95a26d31a17493a475736572a548656c6c6fa3616461a3617069a77b2261223a317d"),
    (
        UserText((Text("Look"), Image("image/png", b"\x01", b"\x02", "http://x/y"))),
        "95a26d31a17493a4757365729292a174a44c6f6f6b95a169a9696d6167652f706e67c40101c40102aa687474703a2f2f782f79a0a3617069a77b2261223a317d",
    ),
    (
        ToolResult("call_a", "fine", is_error=True, subscription=True, display="[]", unknown=True),
        "95a26d31a17497a6726573756c74a663616c6c5f61a466696e65c3c3a25b5dc3a3617069a77b2261223a317d",
    ),
    (
        Event("call_a", "a push", "e1", associative=True, final=True, sequence=7),
        "95a26d31a17497a56576656e74a663616c6c5f61a6612070757368a26531c3c307a3617069a77b2261223a317d",
    ),
    (
        Timer("sleep", 1_700_000_000_000, "call_a"),
        "95a26d31a17494a574696d6572a5736c656570cf0000018bcfe56800a663616c6c5f61a3617069a77b2261223a317d",
    ),
    (
        Command("cancel", "call_a", "too slow", b"\x01"),
        "95a26d31a17495a7636f6d6d616e64a663616e63656ca663616c6c5f61a8746f6f20736c6f77c40101a3617069a77b2261223a317d",
    ),
    (
        Settlement("call_a", "It ran.", is_error=True, reason="I looked", user="ada"),
        "95a26d31a17496a6736574746c65a663616c6c5f61a749742072616e2ec3a849206c6f6f6b6564a3616461a3617069a77b2261223a317d",
    ),
    (
        Drop("m2", "said in error"),
        "95a26d31a17493a464726f70a26d32ad7361696420696e206572726f72a3617069a77b2261223a317d",
    ),
    (
        Edit("m2", "Good night", "a slip"),
        "95a26d31a17494a465646974a26d32aa476f6f64206e69676874a66120736c6970a3617069a77b2261223a317d",
    ),
    (
        Forked((UserItem("You are a fork.", "", "runtime"),), owes=True, reason="to try again"),
        "95a26d31a17494a4666f726b9194a175af596f7520617265206120666f726b2ea0a772756e74696d65c3ac746f2074727920616761696ea3617069a77b2261223a317d",
    ),
    (
        Seed((UserItem("Count the files.", "", "runtime"),)),
        "95a26d31a17492a4736565649194a175b0436f756e74207468652066696c65732ea0a772756e74696d65a3617069a77b2261223a317d",
    ),
    (
        Report("thread_c", "Nine.", closed=True),
        "95a26d31a17494a67265706f7274a87468726561645f63a54e696e652ec3a3617069a77b2261223a317d",
    ),
    (ParentMessage("Hurry."), "95a26d31a17492a6706172656e74a648757272792ea3617069a77b2261223a317d"),
    (
        Question("q1", "call_a", "May I?", ("Yes", "No"), 1, 1_700_000_000_000, "http://x/y", "http://x/z"),
        "95a26d31a17499a87175657374696f6ea27131a663616c6c5f61a64d617920493f92a3596573a24e6f01cf0000018bcfe56800aa687474703a2f2f782f79aa687474703a2f2f782f7aa3617069a77b2261223a317d",
    ),
    (Answer("q1", 1, "ada"), "95a26d31a17494a6616e73776572a2713101a3616461a3617069a77b2261223a317d"),
    (Orphaned("call_a"), "95a26d31a17492a86f727068616e6564a663616c6c5f61a3617069a77b2261223a317d"),
]


def message(content: InputContent) -> InputMessage:
    return InputMessage("m1", "t", content, "api", '{"a":1}')


@pytest.mark.parametrize("content, stored", GOLDEN, ids=lambda value: type(value).__name__)
def test_the_stored_form_of_an_input_does_not_change(content: InputContent, stored: str) -> None:
    assert encode_input(message(content)).hex() == stored
    assert decode_input(bytes.fromhex(stored)) == message(content)


def test_there_is_a_golden_form_of_every_kind_of_input() -> None:
    assert {type(content) for content, _ in GOLDEN} == set(InputContent.__args__)


@pytest.mark.parametrize("content, stored", GOLDEN, ids=lambda value: type(value).__name__)
def test_fields_that_a_newer_version_added_to_an_input_are_left_aside(content: InputContent, stored: str) -> None:
    fields = msgspec.msgpack.decode(bytes.fromhex(stored))
    fields[2] += ["added", 1]
    assert decode_input(pack([*fields, {"added": True}])) == message(content)


@pytest.mark.parametrize(
    "stored, content",
    [
        (["user", "Hello"], UserText("Hello")),
        (["result", "call_a", "fine"], ToolResult("call_a", "fine")),
        (["event", "call_a", "a push"], Event("call_a", "a push")),
        (["timer", "retry", 5], Timer("retry", 5)),
        (["command", "stop"], Command("stop")),
        (["command", "cancel", "call_a", "too slow"], Command("cancel", "call_a", "too slow")),
        (["report", "thread_c"], Report("thread_c")),
        (["question", "q1", "call_a", "May I?", ["Yes"]], Question("q1", "call_a", "May I?", ("Yes",))),
        (
            ["question", "q1", "c", "Go?", ["Yes"], 0, 5, "http://x"],
            Question("q1", "c", "Go?", ("Yes",), 0, 5, "http://x"),
        ),
        (["answer", "q1", 0], Answer("q1", 0)),
    ],
)
def test_fields_that_an_older_version_did_not_write_have_their_defaults(
    stored: list[object], content: InputContent
) -> None:
    assert decode_input(pack(["m1", "t", stored])) == InputMessage("m1", "t", content)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\xc1",
        b"\x90",
        pack(["m1", "t", ["telepathy", "boo"]]),
        pack(["m1", "t", ["command", "explode"]]),
        pack(["m1", "t", ["timer", "sleep", "soon"]]),
        b"\x93\xa2m1\xa1t\x92\xa4user\xa1\xff",
    ],
)
def test_a22_an_input_that_cannot_be_read_is_corrupt(data: bytes) -> None:
    with pytest.raises(StoreCorrupt, match="an input message cannot be read"):
        decode_input(data)


def test_an_input_that_was_cut_off_anywhere_is_corrupt() -> None:
    data = encode_input(message(UserText("Héllo")))
    for end in range(len(data)):
        with pytest.raises(StoreCorrupt, match="an input message cannot be read"):
            decode_input(data[:end])


@pytest.mark.parametrize(
    "content, expected",
    [
        (UserText("Hello"), USER),
        (Command("stop"), USER),
        (Drop("m2"), USER),
        (Edit("m2", "Hello"), USER),
        (Forked(()), RESULT),
        (ToolResult("call_a", "fine"), RESULT),
        (Timer("sleep", 5, "call_a"), RESULT),
        (Event("call_a", "a push"), EVENT),
        (Timer("deadline", 5, "call_a"), UPKEEP),
        (Timer("retry", 5), UPKEEP),
    ],
)
def test_users_come_before_results_before_events_before_upkeep(content: InputContent, expected: int) -> None:
    assert urgency(content) == expected


def test_classes_of_urgency_are_in_order() -> None:
    assert USER < RESULT < EVENT < UPKEEP


@pytest.mark.parametrize(
    "content, expected",
    [
        (UserText("Hello"), True),
        (ParentMessage("Hurry."), True),
        (Report("thread_c", "Nine."), True),
        (Report("thread_c", closed=True), False),
        (Event("call_a", "a push"), True),
        (Event("call_a", "the last", final=True), False),
        (ToolResult("call_a", "fine"), False),
        (Timer("sleep", 5, "call_a"), False),
        (Command("stop"), False),
        (Seed(()), False),
    ],
)
def test_what_somebody_says_can_be_changed_and_what_ends_something_cannot(
    content: InputContent, expected: bool
) -> None:
    assert is_word(content) == expected
