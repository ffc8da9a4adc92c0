"""The chain: whatever is changed, left out, added or moved is found, and the place is named."""

import re
from collections.abc import Callable, Sequence

import msgspec
import pytest

from hibernaut.errors import StoreCorrupt, VerificationFailed
from hibernaut.kernel.chain import verify_chain
from hibernaut.kernel.receipt import Receipt, TurnCommit, decode_receipt, encode_receipt, next_history
from hibernaut.messages.events import Usage
from hibernaut.messages.inputs import ToolResult
from tests.kernel.scenario import Thread, calls, says

Rows = list[tuple[bytes, bytes]]

GOLDEN_RECEIPT = (
    "dc001207c40401010101c404020202029292a26d310092a26d32030192a663616c6c5f61a663616c6c5f62910091a663616c"
    "6c5f3093641450b0616e7468726f7069633a636c6175646503cd010101cf0000018bcfe56800cd05dcc40404040404c40405"
    "050505a5302e312e30"
)


def thread_with_a_log() -> Thread:
    """Return a thread with four receipts; the third has no page."""
    thread = Thread()
    thread.user("Build")
    thread.run(calls("build"))
    thread.result(1, "built")
    thread.run(says("Built."))
    thread.put(ToolResult("call_unknown", "?"))
    thread.run()
    thread.user("Thanks")
    return thread.run(says("Welcome."))


THREAD = thread_with_a_log()
HEAD, LOG = THREAD.head, tuple(THREAD.log)


def failure(rows: Sequence[tuple[bytes, bytes]], history: bytes = HEAD.history, receipts: bytes = HEAD.receipts) -> str:
    """Return how the verification of these rows fails."""
    with pytest.raises(VerificationFailed) as caught:
        verify_chain(rows, history, receipts)
    return str(caught.value)


def test_an_untouched_chain_verifies() -> None:
    assert verify_chain(LOG, HEAD.history, HEAD.receipts) == 4


def test_an_empty_chain_verifies() -> None:
    assert verify_chain([], b"", b"") == 0


def test_a_childs_chain_starts_from_the_digest_of_its_parent() -> None:
    start = b"\x01" * 32
    history = next_history(start, b"page")
    receipt = encode_receipt(Receipt(1, b"", history, (), TurnCommit.NONE))
    head = THREAD.head
    assert verify_chain([(b"page", receipt)], history, next_history(b"", receipt), start) == 1
    with pytest.raises(VerificationFailed, match="history at version 1"):
        verify_chain([(b"page", receipt)], history, head.receipts)


@pytest.mark.parametrize("row", range(4))
@pytest.mark.parametrize("flip", [0x01, 0x80, 0xFF])
def test_a_changed_byte_of_a_page_is_found_where_it_is(row: int, flip: int) -> None:
    page, receipt = LOG[row]
    for place in range(len(page)):
        rows = list(LOG)
        rows[row] = (changed(page, place, flip), receipt)
        assert failure(rows) == f"the history at version {row + 1} is not the one its receipt names"


@pytest.mark.parametrize("row", range(4))
@pytest.mark.parametrize("flip", [0x01, 0x80, 0xFF])
def test_a_changed_byte_of_a_receipt_is_found_there_or_at_the_next(row: int, flip: int) -> None:
    page, receipt = LOG[row]
    for place in range(len(receipt)):
        rows = list(LOG)
        rows[row] = (page, changed(receipt, place, flip))
        assert re.search(rf"\b({row + 1}|{row + 2})\b", failure(rows)), place


def test_a_receipt_that_cannot_be_read_is_named() -> None:
    assert failure([LOG[0], (LOG[1][0], b"\xc1"), *LOG[2:]]) == "receipt 2 cannot be read"


def test_a_page_that_is_left_out_or_shortened_is_found() -> None:
    page, receipt = LOG[1]
    for rest in (b"", page[:-1], page + b"\x00"):
        assert "history at version 2" in failure([LOG[0], (rest, receipt), *LOG[2:]])


def test_a_page_where_none_was_is_found() -> None:
    assert "history at version 3" in failure([*LOG[:2], (b"\x90", LOG[2][1]), LOG[3]])


@pytest.mark.parametrize(
    "tamper, named",
    [
        (lambda rows: rows[1:], "receipt 1 is missing: the next one stored is 2"),
        (lambda rows: [rows[0], *rows[2:]], "receipt 2 is missing: the next one stored is 3"),
        (lambda rows: rows[:3], "the head names another last receipt than number 3"),
        (lambda _: [], "the head names another last receipt than number 0"),
        (lambda rows: [rows[1], rows[0], *rows[2:]], "receipt 1 is missing: the next one stored is 2"),
        (lambda rows: [rows[0], rows[2], rows[1], rows[3]], "receipt 2 is missing: the next one stored is 3"),
        (lambda rows: [rows[0], *rows], "receipt 2 is missing: the next one stored is 1"),
        (lambda rows: [*rows, rows[3]], "receipt 5 is missing: the next one stored is 4"),
    ],
)
def test_rows_that_are_removed_moved_or_repeated_are_found(tamper: Callable[[Rows], Rows], named: str) -> None:
    assert failure(tamper(list(LOG))) == named


def test_pages_that_change_places_are_found() -> None:
    rows = [(LOG[1][0], LOG[0][1]), (LOG[0][0], LOG[1][1]), *LOG[2:]]
    assert "history at version 1" in failure(rows)


def test_a_receipt_that_is_forged_whole_is_found_at_the_next() -> None:
    forged = decode_receipt(LOG[1][1])
    rows = [
        LOG[0],
        (LOG[1][0], encode_receipt(Receipt(2, forged.previous, forged.history, (), TurnCommit.NONE))),
        *LOG[2:],
    ]
    assert failure(rows) == "receipt 3 does not follow the one stored before it"


@pytest.mark.parametrize("digest", ["history", "receipts"])
def test_a_head_of_another_chain_is_found(digest: str) -> None:
    other = {digest: bytes(32)}
    named = {"history": "another history than receipt 4", "receipts": "another last receipt than number 4"}
    assert named[digest] in failure(LOG, **other)


def test_the_stored_form_of_a_receipt_does_not_change() -> None:
    receipt = Receipt(
        version=7,
        previous=b"\x01" * 4,
        history=b"\x02" * 4,
        inputs=(("m1", 0), ("m2", 3)),
        turn=TurnCommit.COMPLETE,
        calls=("call_a", "call_b"),
        owes=(0,),
        settled=("call_0",),
        usage=Usage(100, 20, 80),
        model="anthropic:claude",
        shown=3,
        attempt=257,
        failures=1,
        started=1_700_000_000_000,
        took=1_500,
        tools=b"\x04" * 4,
        config=b"\x05" * 4,
        build="0.1.0",
    )
    assert encode_receipt(receipt).hex() == GOLDEN_RECEIPT
    assert decode_receipt(bytes.fromhex(GOLDEN_RECEIPT)) == receipt


def test_a_receipt_of_a_newer_version_is_read_without_what_it_added() -> None:
    stored = encode_receipt(msgspec.structs.replace(decode_receipt(LOG[0][1]), estimated=3))
    assert stored[:3] == b"\xdc\x00\x16"
    newer = b"\xdc\x00\x17" + stored[3:] + b"\xa5added"
    assert decode_receipt(newer) == decode_receipt(stored)


def test_the_stored_form_of_what_was_added_does_not_change() -> None:
    before = decode_receipt(bytes.fromhex(GOLDEN_RECEIPT))
    receipt = msgspec.structs.replace(before, authority=b"\x06" * 4, provenance=(4, ("", "call_b", "", "stop", "why")))
    added = "c404060606069204 95a0a663616c6c5f62a0a473746f70a3776879".replace(" ", "")
    assert encode_receipt(receipt).hex() == "dc0014" + GOLDEN_RECEIPT.removeprefix("dc0012") + added
    assert decode_receipt(encode_receipt(receipt)) == receipt
    receipt = msgspec.structs.replace(receipt, edited=(("m1", b"\x07", b"\x08"),))
    added += "9193a26d31c40107c40108"
    assert encode_receipt(receipt).hex() == "dc0015" + GOLDEN_RECEIPT.removeprefix("dc0012") + added
    assert decode_receipt(encode_receipt(receipt)) == receipt
    receipt = msgspec.structs.replace(receipt, estimated=300)
    added += "cd012c"
    assert encode_receipt(receipt).hex() == "dc0016" + GOLDEN_RECEIPT.removeprefix("dc0012") + added
    assert decode_receipt(encode_receipt(receipt)) == receipt


def test_what_a_receipt_has_nothing_to_say_of_at_its_end_takes_no_bytes() -> None:
    receipt = Receipt(1, b"", b"", (), TurnCommit.NONE)
    assert encode_receipt(receipt).hex() == "9501c400c4009000"
    assert encode_receipt(msgspec.structs.replace(receipt, took=7))[:1] == b"\x9f"
    assert decode_receipt(bytes.fromhex("9501c400c4009000")) == receipt


@pytest.mark.parametrize("data", [b"", b"\x90", b"\xc1", b"\x80", b"not a receipt"])
def test_what_is_not_a_receipt_is_corrupt(data: bytes) -> None:
    with pytest.raises(StoreCorrupt, match="a receipt cannot be read"):
        decode_receipt(data)


def changed(data: bytes, place: int, flip: int) -> bytes:
    return data[:place] + bytes([data[place] ^ flip]) + data[place + 1 :]
