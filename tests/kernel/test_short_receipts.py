"""Receipts that are kept together: what follows from the rows before is left out, and comes back byte for byte."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from hibernaut.codec import sha256
from hibernaut.errors import StoreCorrupt
from hibernaut.kernel.receipt import Receipt, TurnCommit, encode_receipt, next_history
from hibernaut.kernel.short_receipts import in_full, shorten


def chain(pages: list[bytes], *, first: int = 1, **fields: Any) -> list[tuple[bytes, bytes]]:
    rows, history, previous = [], b"", b""
    for version, page in enumerate(pages, first):
        history = next_history(history, page)
        made = Receipt(version, previous, history, ((f"msg_{version}", 0),), TurnCommit.COMPLETE)
        receipt = encode_receipt(replace(made, **fields))
        previous = sha256(receipt)
        rows.append((page, receipt))
    return rows


def back(rows: list[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    return in_full(zip([page for page, _ in rows], shorten(rows), strict=True))


def test_all_receipts_but_the_first_lose_their_version_and_both_digests() -> None:
    rows = chain([b"a page", b"", b"another", b"and more"], first=127)
    short = shorten(rows)
    assert [len(receipt) - len(one) for (_, receipt), one in zip(rows, short, strict=True)] == [-1, 69, 69, 69]
    assert back(rows) == rows


def test_a_receipt_with_all_its_fields_is_shortened_too() -> None:
    rows = chain([b"page"] * 3, edited=(("msg_1", b"before", b"after"),), authority=b"a" * 32)
    assert len(shorten(rows)[1]) < len(rows[1][1]) - 60
    assert back(rows) == rows


CALLS = [f"call_{number:016d}" for number in range(3)]


def test_the_ids_of_calls_that_stand_in_the_page_are_left_out() -> None:
    called = "made {} and {}".format(*CALLS).encode()
    rows = chain([b"hello", called, b"nothing"], calls=tuple(CALLS[:2]), settled=(f"{CALLS[0]}:cancel",))
    short = shorten(rows)
    assert not any(call.encode() in short[1] for call in CALLS)
    assert len(short[2]) - len(short[1]) == 3 * (21 - 3)
    assert back(rows) == rows


@given(
    st.lists(st.sampled_from([*CALLS, "call_", "call_0", "x" * 300]), max_size=300),
    st.lists(st.sampled_from([*CALLS, "call_0", "y" * 40_000]), max_size=5),
)
def test_ids_of_calls_come_back_wherever_they_stand(named: list[str], said: list[str]) -> None:
    rows = chain([b"hello", "|".join(said).encode(), b""], settled=tuple(named))
    assert back(rows) == rows


def test_what_does_not_follow_is_kept_whole_and_what_follows_it_is_shortened_again() -> None:
    rows = chain([b"one", b"two", b"three", b"four"])
    altered = [rows[0], (b"altered", rows[1][1]), rows[2], rows[3]]
    short = shorten(altered)
    assert [one[0] == 0xFF for one in short] == [True, True, False, False]
    assert back(altered) == altered


@given(st.lists(st.tuples(st.binary(max_size=8), st.binary(max_size=90)), max_size=6), st.integers(0, 5))
def test_any_bytes_come_back(noise: list[tuple[bytes, bytes]], at: int) -> None:
    rows = chain([b"one", b"", b"three", b"four", b"five"])
    rows[at:at] = noise
    assert back(rows) == rows


def test_a_shortened_receipt_without_those_before_it_is_refused() -> None:
    rows = chain([b"one", b"two"])
    with pytest.raises(StoreCorrupt, match="nothing stands before it"):
        in_full([(b"two", shorten(rows)[1])])
    with pytest.raises(StoreCorrupt, match="nothing stands before it"):
        in_full([(b"one", b"")])


def test_what_was_not_made_by_shortening_is_refused() -> None:
    rows = chain([b"one", b"two"])
    first = shorten(rows)[0]
    with pytest.raises(StoreCorrupt, match="cannot be read"):
        in_full([(b"one", first), (b"two", bytes((22, 5, 1)))])
