"""Clean text and readable cuts."""

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hibernaut.messages.text import Decoder, clean, decode, excerpt, join_surrogates, restore, shorten

ANY_TEXT = st.text(st.characters(exclude_categories=()))
"""Text with surrogates too."""

AWKWARD = st.text(st.sampled_from("a\x00\u2400\u241b\ud83d\ude00\u0301é\n \\u0"))

CLUSTERS = [
    "e\u0301",
    "👩\u200d👩\u200d👧",
    "❤\ufe0f",
    "👍🏽",
    "🇩🇪",
    "\u1100\u1161\u11a8",
    "क\u094dष",
    "\r\n",
    "🏴\U000e0067\U000e0062\U000e0065\U000e006e\U000e0067\U000e007f",
    "\u241b\u2400",
    "\u241b\u241b",
]
"""Each is one character to a reader."""


@given(ANY_TEXT | AWKWARD)
def test_c17_c19_clean_text_encodes_and_holds_no_nul(text: str) -> None:
    cleaned = clean(text)
    assert "\x00" not in cleaned
    assert cleaned.encode().decode() == cleaned


@given(st.text() | st.text("\x00\u2400\u241ba"))
def test_c19_restore_gives_back_what_clean_took(text: str) -> None:
    assert restore(clean(text)) == text


@given(ANY_TEXT)
def test_cleaning_changes_nothing_but_surrogates_nul_and_the_two_marks(text: str) -> None:
    touched = "\x00\u2400\u241b"
    plain = "".join(
        character for character in text if character not in touched and not "\ud800" <= character <= "\udfff"
    )
    assert clean(plain) is plain


def test_c17_a_lone_surrogate_becomes_the_replacement_character() -> None:
    assert clean("a\ud83db") == "a\ufffdb"
    assert clean("\ude00\ud83d") == "\ufffd\ufffd"


def test_c17_a_surrogate_pair_becomes_the_character_it_means() -> None:
    assert clean("\ud83d\ude00") == "😀"
    assert clean("\ud83d\ud83d\ude00\ude00") == "\ufffd😀\ufffd"


@given(st.text())
def test_c17_utf_16_code_units_are_joined_to_the_text_they_came_from(text: str) -> None:
    data = text.encode("utf-16-le")
    units = "".join(chr(data[at] | data[at + 1] << 8) for at in range(0, len(data), 2))
    assert join_surrogates(units) == text


def test_c19_a_nul_is_made_visible_and_the_six_characters_of_its_escape_stay() -> None:
    assert clean("a\x00b") == "a\u2400b"
    literal = "a\\u0000b"
    assert clean(literal) is literal


def test_a_mark_that_was_in_the_text_is_told_from_a_nul() -> None:
    assert clean("\u2400\x00\u241b") == "\u241b\u2400\u2400\u241b\u241b"


def test_cleaning_twice_makes_the_marks_grow_so_that_only_the_door_may_clean() -> None:
    assert clean(clean("\u2400")) != clean("\u2400")


@pytest.mark.parametrize("data", [b"\xf0", b"a\xffb", "grüße".encode("latin-1"), "中文".encode("gbk")])
def test_c20_bytes_that_are_not_utf_8_are_read_with_replacement_characters(data: bytes) -> None:
    text = decode(data)
    assert "\ufffd" in text
    assert text.encode()


@given(st.lists(st.binary() | st.text().map(str.encode)), st.lists(st.integers(0, 8), min_size=1))
def test_c20_however_bytes_are_split_they_are_read_the_same(pieces: list[bytes], sizes: list[int]) -> None:
    data = b"".join(pieces)
    decoder = Decoder()
    read = ""
    at = 0
    for number in range(len(data) + 1):
        size = sizes[number % len(sizes)] + 1
        read += decoder.feed(data[at : at + size])
        at += size
    assert read + decoder.finish() == decode(data)


def test_c20_half_a_character_at_the_end_is_told_and_forgotten() -> None:
    decoder = Decoder()
    assert decoder.feed(b"a\xf0\x9f") == "a"
    assert decoder.finish() == "\ufffd"
    assert decoder.feed(b"b") == "b"


@given(ANY_TEXT | AWKWARD, st.integers(-1, 400), st.floats(0, 1))
def test_c17_c22_an_excerpt_is_never_larger_than_its_limit(text: str, limit: int, tail: float) -> None:
    cut = excerpt(text, limit, tail=tail)
    size = len(cut.encode("utf-8", "surrogatepass"))
    if len(text.encode("utf-8", "surrogatepass")) <= limit:
        assert cut is text
    else:
        assert size <= max(limit, 0)


@given(st.text(st.sampled_from("aé中😀\n"), min_size=400, max_size=900), st.integers(150, 390), st.floats(0, 1))
def test_c22_an_excerpt_says_exactly_how_much_is_missing(text: str, limit: int, tail: float) -> None:
    head, _, rest = excerpt(text, limit, tail=tail).partition("[… ")
    counts, _, end = rest.partition(" left out here …]\n")
    characters, size = counts.replace(",", "").removesuffix(" bytes)").split(" characters (")
    start = len(text) - len(end)
    missing = text[start - int(characters) : start]
    kept = text[: start - int(characters)]
    assert text.endswith(end)
    assert head in (kept, kept + "\n")
    assert len(missing.encode()) == int(size)


def test_c22_a_verdict_in_the_last_of_many_lines_is_kept() -> None:
    log = "".join(f"test number {number} ... ok\n" for number in range(20_000)) + "FAILED"
    cut = excerpt(log, 4_000)
    lines = cut.splitlines()
    assert lines[0] == "test number 0 ... ok"
    assert lines[-1] == "FAILED"
    assert set(lines) - set(log.splitlines()) == {line for line in lines if line.startswith("[…")}
    assert 3_500 < len(cut.encode()) <= 4_000


def test_c22_one_line_of_ten_megabytes_keeps_both_ends() -> None:
    line = "START" + "x" * 10_000_000 + "END"
    cut = excerpt(line, 1_000)
    assert cut.startswith("START")
    assert cut.endswith("xEND")
    assert len(cut) <= 1_000
    assert "\n[… 9,999,0" in cut


def test_c22_the_marker_says_where_the_whole_text_is() -> None:
    cut = excerpt("x" * 1_000, 300, whole="blob 3fa9")
    assert "bytes) left out here; the whole text: blob 3fa9 …]" in cut
    assert len(cut.encode()) <= 300


def test_c22_the_room_can_be_given_to_the_tail() -> None:
    text = "".join(f"{number:04}\n" for number in range(1_000))
    assert excerpt(text, 400, tail=1.0).startswith("[… ")
    assert excerpt(text, 400, tail=0.0).endswith("left out here …]\n")


def test_without_room_for_a_marker_the_head_is_kept_with_an_ellipsis() -> None:
    assert excerpt("abcdefghij" * 10, 8) == "abcde…"
    assert excerpt("abc", 2) == ""


@pytest.mark.parametrize("cluster", CLUSTERS)
def test_c17_no_cut_goes_through_what_a_reader_sees_as_one_character(cluster: str) -> None:
    text = cluster * 200
    for limit in range(110, 180):
        cut = excerpt(text, limit)
        head, _, rest = cut.partition("[… ")
        end = rest.partition(" …]\n")[2]
        # The line break before the marker is part of a cluster of its own kind.
        head = head if cluster == "\r\n" else head.removesuffix("\n")
        assert head == cluster * (len(head) // len(cluster))
        assert end == cluster * (len(end) // len(cluster))


@pytest.mark.parametrize("cluster", [each for each in CLUSTERS if each != "\r\n"])
def test_c17_a_title_ends_between_what_a_reader_sees_as_characters(cluster: str) -> None:
    for limit in range(2, 40):
        line = shorten(cluster * 100, limit)
        assert line.endswith("…")
        assert len(line) <= limit
        assert line[:-1] == cluster * (len(line[:-1]) // len(cluster))


def test_a_surrogate_pair_that_nobody_cleaned_is_not_split_either() -> None:
    text = "\ud83d\ude00" * 100
    for limit in range(110, 150):
        assert "😀" * 2 in join_surrogates(excerpt(text, limit))
        assert "\ufffd" not in join_surrogates(excerpt(text, limit))


def test_a_heap_of_combining_marks_is_cut_all_the_same() -> None:
    text = "a" + "\u0301" * 10_000
    assert len(excerpt(text, 1_000).encode()) > 900
    assert len(shorten(text, 200)) == 200


@given(ANY_TEXT, st.integers(0, 60))
def test_a_title_is_one_line_within_its_limit(text: str, limit: int) -> None:
    line = shorten(text, limit)
    assert len(line) <= limit
    assert line == line.strip()
    assert not any(unicodedata.category(character) in ("Cc", "Zl", "Zp") for character in line)


@given(st.text(st.sampled_from("ab c"), max_size=60))
def test_a_title_that_fits_keeps_its_words(text: str) -> None:
    assert shorten(text, 60) == " ".join(text.split())


def test_a_title_flattens_lines_and_control_characters() -> None:
    assert shorten("  one\r\n\ttwo\x1b[31m\u2028three\n\n", 40) == "one two [31m three"


def test_blanks_at_the_end_are_nothing_left_out() -> None:
    assert shorten("abc" + "\n" * 5_000, 10) == "abc"
    assert shorten("abc" + "\n" * 5_000 + "d", 10) == "abc…"
    assert shorten(" \n ", 10) == ""


def test_a_title_of_one_character_is_an_ellipsis() -> None:
    assert shorten("abc", 1) == "…"
    assert shorten("a", 1) == "a"
