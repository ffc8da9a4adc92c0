"""What receipts keep of where inputs came from: all of it, in next to no bytes."""

import pytest

from hibernaut.kernel.head import Head, Link
from hibernaut.kernel.provenance import Entry, Provenance, entry_of, provenance_of, read_entry
from hibernaut.messages.inputs import (
    Answer,
    Command,
    Event,
    InputContent,
    InputMessage,
    Report,
    Seed,
    Settlement,
    Timer,
    ToolResult,
    UserText,
)

HEAD = Head("t", b"saltsalt", bytes(32), link=Link(("root", "above"), "call_x", "spawn_thread"))


@pytest.mark.parametrize(
    "message_id, sender, content, entry",
    [
        ("msg_1", "api", UserText("Hello"), 0),
        ("anything", "cli", UserText("Hello"), 7),
        ("result:call_a", "tool:build", ToolResult("call_a", "done"), 0),
        ("result:call_a", "rap", ToolResult("call_a", "done"), 4),
        ("result:call_a", "token", ToolResult("call_a", "done"), 5),
        ("unknown:call_a", "engine", ToolResult("call_a", "?", unknown=True), 0),
        ("event:call_a:e:1", "tool:build", Event("call_a", "a push", "e:1"), 0),
        ("event:call_a:#1", "rap:unsigned", Event("call_a", "a push", "#1"), 8),
        ("sleep:call_a", "engine", Timer("sleep", 5, "call_a"), 0),
        ("question:q1", "engine", Timer("question", 5, "q1"), 0),
        ("retry:7", "engine", Timer("retry", 5), 0),
        ("answer:q1", "api", Answer("q1", 0), 0),
        ("cancelled:call_a", "thread:t", ToolResult("call_a", "Stopped."), 0),
        ("seed:t", "thread:above", Seed(()), 0),
        ("closed:thread_c", "thread:thread_c", Report("thread_c", closed=True), 0),
        ("report:call_b", "thread:thread_c", Report("thread_c", "Nine."), ("thread:thread_c",)),
        ("cmd_1", "operator", Command("cancel", "call_a", "slow"), ("operator", "call_a", "", "cancel", "slow")),
        (
            "settled:call_a",
            "operator:ada",
            Settlement("call_a", "It ran.", reason="I looked"),
            ("operator:ada", "call_a", "", "settle", "I looked"),
        ),
    ],
)
def test_it_is_kept_in_few_bytes_and_read_as_it_was(
    message_id: str, sender: str, content: InputContent, entry: Entry
) -> None:
    message = InputMessage(message_id, "t", content, sender)
    assert entry_of(message, "build", HEAD) == entry
    assert read_entry(entry, message_id, "build", "t", "above") == provenance_of(message)


@pytest.mark.parametrize("message_id", ["result:call_a", "event:call_a:1", "answer:q1", "seed:t", "unknown:x", "a:b"])
def test_an_id_that_looks_like_another_kind_does_not_forge_where_a_text_came_from(message_id: str) -> None:
    message = InputMessage(message_id, "t", UserText("Hello"), "api")
    entry = entry_of(message, "build", HEAD)
    assert read_entry(entry, message_id, "build", "t", "above") == Provenance("api")


def test_a_sender_that_a_newer_version_has_given_a_number_is_left_open() -> None:
    assert read_entry(99, "result:call_a", "build", "t", "") == Provenance("", "call_a")


def test_what_cannot_be_read_came_from_nobody_knows() -> None:
    assert read_entry(("?",), "m1", "", "t", "") is None
