"""The stored form of a history: it never changes, and an older version reads round what a newer one wrote."""

from collections.abc import Sequence

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hibernaut.codec import pack
from hibernaut.errors import StoreCorrupt
from hibernaut.messages.items import (
    CallItem,
    EventItem,
    Item,
    NoticeItem,
    OutputItem,
    OutsideItem,
    QuestionEndItem,
    QuestionItem,
    ReasoningItem,
    ResultItem,
    SpawnItem,
    SummaryItem,
    TextItem,
    Unknown,
    UserItem,
    decode_page,
    encode_page,
)
from hibernaut.messages.parts import Excerpt, Image, Text

GOLDEN: list[tuple[Item, str]] = [
    (UserItem("Hello", "ada"), "94a175a548656c6c6fa3616461a0"),
    (
        UserItem((Text("Look"), Image("image/png", b"\x01", b"\x02", "http://x/y")), "", "runtime"),
        "94a1759292a174a44c6f6f6b95a169a9696d6167652f706e67c40101c40102aa687474703a2f2f782f79a0a772756e74696d65",
    ),
    (TextItem("Hi", interrupted=True), "93a161a24869c3"),
    (OutputItem("m1", '{"a":1}', "no"), "94a176a26d31a77b2261223a317da26e6f"),
    (ReasoningItem("anthropic", b"\x00\xff", "Hm."), "94a172a9616e7468726f706963c40200ffa3486d2e"),
    (
        CallItem("call_a", "build", '{"a":1}', "toolu_1", b"\x07", "build a"),
        "97a163a663616c6c5f61a56275696c64a77b2261223a317da7746f6f6c755f31c40107a76275696c642061",
    ),
    (
        ResultItem("call_a", (Excerpt("head\u2026tail", b"\x08", 99),), is_error=True, display="[]"),
        "95a174a663616c6c5f619194a178ab68656164e280a67461696cc4010863c3a25b5d",
    ),
    (
        EventItem("call_e", "call_a", "watch", "{}", "a push", "report", True, True, "[]", "thread_c"),
        "9ba165a663616c6c5f65a663616c6c5f61a57761746368a27b7da6612070757368a67265706f7274c3c3a25b5da87468726561645f63",
    ),
    (
        OutsideItem("call_e", "call_a", "watch", "{}", "a push", final=True, server="ci", sequence=7, before=4),
        "9ea16fa663616c6c5f65a663616c6c5f61a57761746368a27b7da6612070757368a56576656e74c3c2a0a0a263690704",
    ),
    (SummaryItem("So far.", 12, 9000, 80), "95a173a7536f206661722e0ccd232850"),
    (SpawnItem("thread_c", "call_a", event=True), "94a162a87468726561645f63a663616c6c5f61c3"),
    (
        QuestionItem("q1", "call_a", "May I?", ("Yes", "No"), 1, 1_700_000_000_000, "http://x/y"),
        "98a171a27131a663616c6c5f61a64d617920493f92a3596573a24e6f01cf0000018bcfe56800aa687474703a2f2f782f79",
    ),
    (
        QuestionEndItem("q1", "call_a", "answered", 0, "Yes", "ada"),
        "97a164a27131a663616c6c5f61a8616e73776572656400a3596573a3616461",
    ),
    (NoticeItem("retry", "overloaded"), "93a16ea57265747279aa6f7665726c6f61646564"),
    (Unknown(b"\x91\xa1z"), "92a13fc40391a17a"),
]

ids = st.text("abc", min_size=1)
parts = st.one_of(
    st.builds(Text, st.text()),
    st.builds(Image, ids, st.binary(), st.binary(), ids),
    st.builds(Excerpt, st.text(), st.binary(), st.integers(0, 2**40)),
)
contents = st.one_of(st.text(), st.lists(parts).map(tuple))
items = st.one_of(
    st.builds(UserItem, contents, ids, ids),
    st.builds(TextItem, st.text(), st.booleans()),
    st.builds(ReasoningItem, ids, st.binary(), st.text()),
    st.builds(CallItem, ids, ids, ids, ids, st.binary(), ids),
    st.builds(ResultItem, ids, contents, st.booleans(), ids),
    st.builds(EventItem, ids, ids, ids, ids, contents, ids, st.booleans(), st.booleans(), ids, ids),
    st.builds(SummaryItem, st.text(), st.integers(0, 2**40), st.integers(0, 2**40), st.integers(0, 2**40)),
    st.builds(SpawnItem, ids, ids, st.booleans()),
    st.builds(QuestionItem, ids, ids, st.text(), st.lists(ids).map(tuple), st.integers(0, 9), st.integers(0, 2**40)),
    st.builds(QuestionEndItem, ids, ids, ids, st.integers(-1, 9), st.text(), ids),
    st.builds(NoticeItem, ids, st.text()),
)


@pytest.mark.parametrize("item, stored", GOLDEN, ids=lambda value: type(value).__name__)
def test_the_stored_form_of_an_item_does_not_change(item: Item, stored: str) -> None:
    assert pack(item).hex() == stored
    assert decode_page(b"\x91" + bytes.fromhex(stored)) == [item]


def test_there_is_a_golden_form_of_every_kind_of_item() -> None:
    assert {type(item) for item, _ in GOLDEN} == set(Item.__args__)


@given(st.lists(items))
def test_a_page_reads_as_it_was_written(page: Sequence[Item]) -> None:
    assert decode_page(encode_page(page)) == page


def test_no_items_are_no_bytes() -> None:
    assert (encode_page([]), decode_page(b"")) == (b"", [])


def test_c19_nul_and_what_looks_like_it_are_kept_apart() -> None:
    page: list[Item] = [TextItem("a\x00b"), TextItem("a\\u0000b"), UserItem("\U0001f9ca\u2028\x85")]
    assert decode_page(encode_page(page)) == page


# What a newer version wrote


def test_an_item_of_an_unknown_kind_is_kept_as_it_is_and_its_neighbours_are_read() -> None:
    strange = pack(["poll", "question", {"a": 1}])
    page = b"\x93" + pack(UserItem("One")) + strange + pack(TextItem("Two"))
    assert decode_page(page) == [UserItem("One"), Unknown(strange), TextItem("Two")]


def test_an_item_with_a_part_of_an_unknown_kind_is_kept_as_it_is() -> None:
    strange = pack(["u", [["video", b"MP4"]], "ada", ""])
    assert decode_page(b"\x92" + strange + pack(TextItem("Nice."))) == [Unknown(strange), TextItem("Nice.")]


@pytest.mark.parametrize("item, stored", GOLDEN, ids=lambda value: type(value).__name__)
def test_fields_that_a_newer_version_added_to_an_item_are_left_aside(item: Item, stored: str) -> None:
    fields = msgspec.msgpack.decode(bytes.fromhex(stored))
    assert decode_page(pack([[*fields, "added", {"b": 2}]])) == [item]


@pytest.mark.parametrize(
    "stored, item",
    [
        (["u", "Hello"], UserItem("Hello")),
        (["a", "Hi"], TextItem("Hi")),
        (["s", "So far.", 12], SummaryItem("So far.", 12)),
        (
            ["e", "call_e", "call_a", "watch", "{}", "a push", "report", True, True, "[]"],
            EventItem("call_e", "call_a", "watch", "{}", "a push", "report", True, True, "[]"),
        ),
        (["r", "anthropic", b""], ReasoningItem("anthropic", b"")),
        (["c", "call_a", "build"], CallItem("call_a", "build")),
        (["c", "call_a", "build", "{}", "toolu_1", b""], CallItem("call_a", "build", "{}", "toolu_1")),
        (["t", "call_a", "fine"], ResultItem("call_a", "fine")),
        (["e", "call_e", "call_a", "watch", "{}", "x"], EventItem("call_e", "call_a", "watch", "{}", "x")),
        (["n", "stopped"], NoticeItem("stopped")),
    ],
)
def test_fields_that_an_older_version_did_not_write_have_their_defaults(stored: list[object], item: Item) -> None:
    assert decode_page(pack([stored])) == [item]


def test_an_item_that_lacks_a_field_is_kept_as_it_is() -> None:
    strange = pack(["c", "call_a"])
    assert decode_page(b"\x91" + strange) == [Unknown(strange)]


# Damage


def test_c64_a_page_that_was_cut_off_anywhere_is_corrupt() -> None:
    page = encode_page([UserItem("Héllo"), CallItem("call_a", "build"), ResultItem("call_a", "fine")])
    for end in range(1, len(page)):
        with pytest.raises(StoreCorrupt, match="a page of history cannot be read"):
            decode_page(page[:end])


@pytest.mark.parametrize(
    "page",
    [
        b"\x80",
        b"\xc0",
        b"\x01",
        b"\xc1",
        pack("page"),
        encode_page([TextItem("x")]) + b"\x90",
        b"\x91\x92\xa1a\xa2\xff\xfe",
    ],
)
def test_what_is_not_a_page_is_corrupt(page: bytes) -> None:
    with pytest.raises(StoreCorrupt, match="a page of history cannot be read"):
        decode_page(page)
