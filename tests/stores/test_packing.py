"""Packed pieces: they say what they need, and what is damaged or too large is refused before it takes memory."""

import tracemalloc
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hibernaut.errors import StoreCorrupt, StoreFormatTooNew
from hibernaut.stores import packing
from hibernaut.stores.packing import Packer, unpack, zstd

TEXT = b"The engine waits for a message; until it comes, the agent is nothing but its stored conversation. " * 5
DICTIONARY = zstd.ZstdDict((Path(packing.__file__).parent / "dictionaries" / "1.zdict").read_bytes())


def packed(data: bytes) -> bytes:
    piece = Packer(3).pack(data)
    assert piece is not None
    return piece


def foreign(data: bytes, dictionary: int) -> bytes:
    """Return a piece that was packed with a dictionary of another number."""
    content = bytearray(DICTIONARY.dict_content)
    content[4:8] = dictionary.to_bytes(4, "little")
    return zstd.compress(data, zstd_dict=zstd.ZstdDict(bytes(content)))


@given(st.binary(max_size=3_000))
def test_what_is_packed_comes_back_and_what_would_not_get_smaller_is_left(data: bytes) -> None:
    piece = Packer(3).pack(data)
    assert piece is None or (len(piece) < len(data) and unpack(piece) == data)


def test_a_piece_that_was_packed_with_the_first_dictionary_is_read_for_ever() -> None:
    fixture = Path(__file__).parent / "fixtures" / "packed-1.zst"
    assert unpack(fixture.read_bytes()) == TEXT


def test_a_piece_names_its_dictionary_in_one_byte() -> None:
    info = zstd.get_frame_info(packed(TEXT))
    assert (info.dictionary_id, info.decompressed_size) == (1, len(TEXT))


def test_a_piece_of_a_later_dictionary_is_refused_with_what_to_do() -> None:
    with pytest.raises(StoreFormatTooNew, match="dictionary 77, which only a newer"):
        unpack(foreign(TEXT, 77))


@pytest.mark.parametrize(
    "damaged",
    [b"", b"no piece", packed(TEXT)[:-1], packed(TEXT) + b"more", zstd.compress(TEXT), packed(TEXT)[:-8] + b"\0" * 8],
)
def test_a_damaged_piece_is_refused(damaged: bytes) -> None:
    with pytest.raises(StoreCorrupt):
        unpack(damaged)


def test_a_piece_that_says_that_it_is_huge_is_refused_before_anything_is_made_of_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bomb = packed(b"\0" * 8_000_000)
    monkeypatch.setattr(packing, "LARGEST", 1_000_000)
    tracemalloc.start()
    try:
        with pytest.raises(StoreCorrupt, match="at most 1,000,000"):
            unpack(bomb)
        assert tracemalloc.get_traced_memory()[1] < 500_000
    finally:
        tracemalloc.stop()
    assert Packer(3).pack(b"\0" * 1_000_001) is None


def test_a_piece_that_does_not_say_how_large_it_is_is_refused() -> None:
    compressor = zstd.ZstdCompressor(zstd_dict=DICTIONARY)
    endless = compressor.compress(TEXT) + compressor.flush()
    assert zstd.get_frame_info(endless).decompressed_size is None
    with pytest.raises(StoreCorrupt, match="None bytes"):
        unpack(endless)
