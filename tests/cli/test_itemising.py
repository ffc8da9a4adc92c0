"""Items of a history, for people and for programs."""

import pytest

from hibernaut.cli.itemising import kind_of, text_of
from hibernaut.messages.item_records import item_record
from hibernaut.messages.items import (
    CallItem,
    EventItem,
    Item,
    NoticeItem,
    ReasoningItem,
    ResultItem,
    SummaryItem,
    TextItem,
    Unknown,
    UserItem,
)
from hibernaut.messages.parts import Image, Text

ITEMS: list[tuple[Item, str, str]] = [
    (UserItem("hello"), "user", "hello"),
    (UserItem("hello", "ann"), "user ann", "hello"),
    (UserItem((Text("see"), Image("image/png", b"1"))), "user", "see\n[image: image/png]"),
    (UserItem("go on", origin="runtime"), "runtime", "go on"),
    (TextItem("Hi"), "agent", "Hi"),
    (TextItem("Hi", interrupted=True), "agent, interrupted", "Hi"),
    (ReasoningItem("x", b"\xff", "hm"), "reasoning", "hm"),
    (CallItem("c1", "build", '{"a":1}'), "call build", '{"a":1}'),
    (ResultItem("c0", "ok"), "result watch", "ok"),
    (ResultItem("c9", "no", is_error=True), "error", "no"),
    (EventItem("e1", "c1", "build", "{}", "late", "late_result"), "late result build", "late"),
    (SummaryItem("in short", 3, 12_345, 20), "summary", "compacted: 12,345 -> 20 tokens\nin short"),
    (NoticeItem("parked", "no key"), "notice parked", "no key"),
    (Unknown(b"\x91\x01"), "unknown", "(written by a newer version)"),
]


@pytest.mark.parametrize("item, kind, text", ITEMS)
def test_an_item_is_told_in_a_word_and_its_text(item: Item, kind: str, text: str) -> None:
    assert (kind_of(item, {"c0": "watch"}), text_of(item)) == (kind, text)


def test_a_result_is_told_by_the_tool_of_its_call() -> None:
    tools: dict[str, str] = {}
    assert [kind_of(item, tools) for item in (CallItem("c1", "build"), ResultItem("c1", "ok"))] == [
        "call build",
        "result build",
    ]
    assert tools == {}


def test_opaque_bytes_are_kept_in_the_record() -> None:
    assert item_record(ReasoningItem("x", b"\xff", "hm")) == {
        "type": "reasoning",
        "provider": "x",
        "data": "/w==",
        "text": "hm",
    }


def test_an_image_is_recorded_as_its_type_and_size() -> None:
    record = item_record(UserItem((Text("see"), Image("image/png", b"123"))))
    assert record["content"] == [
        {"type": "text", "text": "see"},
        {"type": "image", "media_type": "image/png", "bytes": 3, "blob": "", "url": ""},
    ]
