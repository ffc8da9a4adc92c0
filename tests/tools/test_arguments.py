"""Arguments as models write them, and what is refused."""

import json
import math

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hibernaut.errors import InputRefused
from hibernaut.messages.text import clean
from hibernaut.tools.arguments import (
    JSON,
    LARGEST_INTEGER,
    SMALLEST_INTEGER,
    ArgumentLimits,
    ArgumentsRefused,
    canonical,
    parse_arguments,
    restore_arguments,
)

INTEGERS = st.integers(SMALLEST_INTEGER, LARGEST_INTEGER)
FLOATS = st.floats(allow_nan=False, allow_infinity=False)
TEXT = st.text(st.characters(exclude_characters="\u2400\u241b\x00", exclude_categories=["Cs"]))
VALUES: st.SearchStrategy[JSON] = st.recursive(
    st.none() | st.booleans() | INTEGERS | FLOATS | TEXT | st.sampled_from(['": ', "a:b", '\\":', "{", "]"]),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4),
    max_leaves=8,
)
OBJECTS: st.SearchStrategy[dict[str, JSON]] = st.dictionaries(TEXT, VALUES, max_size=5)


def refusal(raw: str | bytes, limits: ArgumentLimits | None = None) -> str:
    with pytest.raises(ArgumentsRefused) as caught:
        parse_arguments(raw, limits or ArgumentLimits())
    assert isinstance(caught.value, InputRefused)
    text = str(caught.value)
    assert len(text) < 500, "a refusal goes into the prompt"
    assert clean(text) == text
    return text


@given(
    OBJECTS,
    st.booleans(),
    st.sampled_from([None, 1, "\t"]),
    st.sampled_from([(",", ":"), (" , ", " : "), (", ", ":\n")]),
)
def test_c16_whatever_an_encoder_writes_is_read(
    value: dict[str, JSON], ascii_only: bool, indent: int | str | None, separators: tuple[str, str]
) -> None:
    written = json.dumps(value, ensure_ascii=ascii_only, indent=indent, separators=separators)
    assert parse_arguments(written) == value
    assert parse_arguments(written.encode()) == value


@given(OBJECTS)
def test_c16_the_canonical_text_is_valid_json_in_the_order_of_the_model(value: dict[str, JSON]) -> None:
    arguments = parse_arguments(json.dumps(value))
    assert json.loads(canonical(arguments)) == value
    assert list(json.loads(canonical(arguments))) == list(value)


@given(st.text(max_size=60) | st.text(st.sampled_from('{}[]":,\\u0aNnIty1e+-. \n\ud83d'), max_size=60))
def test_c16_any_text_is_read_as_any_json_reader_reads_it_or_refused_with_a_reason(raw: str) -> None:
    reason = ""
    arguments: dict[str, JSON] = {}
    try:
        arguments = parse_arguments(raw)
    except ArgumentsRefused as refused:
        reason = str(refused)
    assert reason != "The arguments are not valid JSON."
    assert canonical(arguments).encode()
    if not reason and raw.isascii() and "\\u" not in raw and raw.strip():
        assert arguments == json.loads(raw)


@pytest.mark.parametrize("raw", ["", "  ", "\n\t", b"", "{}", " { } "])
def test_c16_nothing_written_means_no_arguments(raw: str | bytes) -> None:
    assert parse_arguments(raw) == {}


@pytest.mark.parametrize(
    "raw, kind",
    [
        ("[]", "an array"),
        ("null", "null"),
        ('"str"', "a string"),
        ("1", "a number"),
        ("1.5", "a number"),
        ("true", "true"),
        ("false", "false"),
    ],
)
def test_c16_what_is_not_an_object_is_refused_and_named(raw: str, kind: str) -> None:
    assert refusal(raw) == f"The arguments must be a JSON object, such as {{}}, but they are {kind}."


@pytest.mark.parametrize(
    "raw, reason",
    [
        ("{'a': 1}", "expecting property name enclosed in double quotes, at line 1 column 2"),
        ('{"a" 1}', "expecting ':' delimiter, at line 1 column 6"),
        ('{"a": "say "hi""}', "expecting ',' delimiter, at line 1 column 13"),
        ('{"a": 1}\n{"b": 2}', "extra data, at line 2 column 1"),
        ('{\n "a": tru\n}', "expecting value, at line 2 column 7"),
        ('{"a": "x\ny"}', r"invalid control character in a string (write a newline as \n, a tab as \t), at line 1"),
        (r'{"a": "\d+"}', r"invalid \escape, at line 1 column 8"),
        (r'{"a": "\u12 "}', r"invalid \uXXXX escape, at line 1 column 9"),
    ],
)
def test_c16_bad_syntax_is_refused_with_the_reason_and_the_place(raw: str, reason: str) -> None:
    text = refusal(raw)
    assert f"The arguments are not valid JSON: {reason}" in text
    assert "ends" not in text, "nothing was cut off here"


@pytest.mark.parametrize(
    "raw, reason",
    [
        ('{"path": "a', 'the text ends inside a string, at line 1 column 10, near: {"path": "a'),
        ('{"path": "a\\', "the text ends inside a string"),
        ('{"path": "a\\u00', "the text ends inside a string"),
        ('{"path": "a\\ud83d', "the text ends inside a string"),
        ('{"a": [1, 2', "the text ends before the object is complete (expecting ',' delimiter)"),
        ('{"a": ', "the text ends before the object is complete (expecting value)"),
        ('{"a": 1', "the text ends before the object is complete (expecting ',' delimiter)"),
        ("{\n", "the text ends before the object is complete (expecting property name"),
    ],
)
def test_c16_text_that_was_cut_off_is_told_to_be(raw: str, reason: str) -> None:
    assert reason in refusal(raw)


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity"])
def test_c16_numbers_that_json_does_not_have_are_refused(number: str) -> None:
    assert f"{number} is not JSON, at line 1 column 7" in refusal(f'{{"n": {number}}}')
    assert parse_arguments(f'{{"n": "{number}"}}') == {"n": number}


def test_c16_a_float_that_is_not_finite_is_refused() -> None:
    assert "the number -1e400 is too large, at line 1 column 16" in refusal('{"a":1e308,"b":-1e400}')


@pytest.mark.parametrize("number", [LARGEST_INTEGER + 1, SMALLEST_INTEGER - 1, 2**64, 10**25])
@pytest.mark.parametrize("around", ['{"n": %s}', '{"x": [{"n": [1, %s]}]}'])
def test_c16_integers_beyond_64_bits_are_refused_with_the_bound(number: int, around: str) -> None:
    text = refusal(around % number)
    assert f"the integer {number} (" in text
    assert f"is outside {SMALLEST_INTEGER} to {LARGEST_INTEGER}; pass it as a string" in text


def test_c16_an_integer_of_5000_digits_is_refused_shortly() -> None:
    text = refusal('{"n": -' + "9" * 5_000 + "}")
    assert "(5,000 digits)" in text


@pytest.mark.parametrize("number", [LARGEST_INTEGER, SMALLEST_INTEGER, 0, -1])
def test_c16_integers_of_64_bits_are_kept_exactly(number: int) -> None:
    assert parse_arguments(f'{{"n": {number}}}') == {"n": number}


@pytest.mark.parametrize("raw", ["[" * 100_000, '{"a":' * 100_000, '{"a": ' + "[" * 64 + "]" * 64 + "}"])
def test_c16_deep_nesting_is_refused(raw: str) -> None:
    assert refusal(raw) == "The arguments are nested deeper than 64 levels. Make them flatter."


def test_c16_nesting_up_to_the_limit_and_brackets_in_strings_are_taken() -> None:
    deep = '{"a": ' + "[" * 63 + "]" * 63 + "}"
    assert json.loads(canonical(parse_arguments(deep))) == json.loads(deep)
    assert parse_arguments(json.dumps({"a": "[{" * 200})) == {"a": "[{" * 200}
    wide: dict[str, JSON] = {"a": [{} for _ in range(500)]}
    assert parse_arguments(json.dumps(wide)) == wide


@pytest.mark.parametrize(
    "raw, key, column",
    [
        ('{"cmd":"ls","cmd":"rm"}', "cmd", 13),
        ('{"cmd":"ls","\\u0063md":"rm"}', "cmd", 13),
        ('{"x":[{"a":1},{"a":1,"a":1}]}', "a", 22),
        ('{"a":1,"b":{"a":2},"a":3}', "a", 20),
        ('{"":1,"":2}', "", 7),
        ('{"a" :1,"a" :2}', "a", 9),
        ('{"a\\\\":1,"a\\\\":2,"b\\":":3}', "a\\", 10),
        ('{"u":"x:y:z","\\ud800":1,"\\ud801":2}', "\ufffd", 25),
    ],
)
def test_c16_duplicate_keys_are_refused(raw: str, key: str, column: int) -> None:
    text = refusal(raw)
    assert f"the key {json.dumps(key, ensure_ascii=False)} is there twice in one object" in text
    assert f"line 1 column {column}," in text


@given(OBJECTS.filter(bool), st.data())
def test_c16_a_key_written_twice_is_found_wherever_it_is(value: dict[str, JSON], data: st.DataObject) -> None:
    twice = data.draw(st.sampled_from(sorted(value)))
    pairs = [*value.items(), (twice, data.draw(VALUES))]
    order = data.draw(st.permutations(pairs))
    colon = data.draw(st.sampled_from([":", " :", "\n:", ": "]))
    inner = ",".join(json.dumps(key) + colon + json.dumps(item) for key, item in order)
    assert "is there twice" in refusal(f'{{"outer": [{{{inner}}}]}}')


@given(OBJECTS)
def test_c16_the_same_key_in_different_objects_is_no_duplicate(value: dict[str, JSON]) -> None:
    nested: JSON = {"a": value, "b": [value, value]}
    assert parse_arguments(json.dumps(nested)) == nested


def test_c16_megabytes_are_refused_by_their_bytes() -> None:
    limits = ArgumentLimits(max_bytes=100)
    fits = '{"a":"' + "é" * 46 + '"}'
    assert len(fits.encode()) == 100
    assert parse_arguments(fits, limits) == {"a": "é" * 46}
    for raw in (fits + " ", (fits + " ").encode()):
        assert "The arguments have 101 bytes; at most 100 are taken." in refusal(raw, limits)
    assert "at most 1,048,576 are taken" in refusal('{"a":"' + "x" * 1_048_576 + '"}')


@pytest.mark.parametrize("raw", ['"' + '\\"' * 500_000, '{"a":"' + '\\"' * 400_000, '"a":' * 200_000, "[]" * 400_000])
def test_c16_a_megabyte_of_nonsense_is_refused_in_linear_time(raw: str) -> None:
    assert refusal(raw)


@pytest.mark.parametrize("raw", ['{"s":"\\ud83d"}', '{"s":"\\ude00"}', '{"s":"\ud83d"}', '{"s":"\\uD83D"}'])
def test_c17_a_lone_surrogate_in_arguments_becomes_the_replacement_character(raw: str) -> None:
    assert parse_arguments(raw) == {"s": "\ufffd"}


@pytest.mark.parametrize("raw", ['{"s":"\\ud83d\\ude00"}', '{"s":"\ud83d\ude00"}'])
def test_c17_a_surrogate_pair_in_arguments_is_the_character_it_means(raw: str) -> None:
    assert parse_arguments(raw) == {"s": "😀"}


def test_c17_an_escaped_backslash_before_a_surrogate_is_text() -> None:
    assert parse_arguments('{"a":"\\\\ud83d","\\ud83d":"\\\\\\ud83d"}') == {"a": "\\ud83d", "\ufffd": "\\\ufffd"}


def test_c19_a_nul_in_arguments_is_made_visible_and_its_six_characters_stay() -> None:
    arguments = parse_arguments('{"a\\u0000":"\\u0000","b":"\\\\u0000"}')
    assert arguments == {"a\u2400": "\u2400", "b": "\\u0000"}
    assert restore_arguments(arguments) == {"a\x00": "\x00", "b": "\\u0000"}


@given(st.dictionaries(st.text("\x00\u2400\u241ba"), st.lists(st.text("\x00\u2400\u241ba")), max_size=3))
def test_c19_a_tool_gets_the_text_that_the_model_wrote(value: dict[str, list[str]]) -> None:
    arguments = parse_arguments(json.dumps(value))
    assert "\x00" not in canonical(arguments)
    assert restore_arguments(msgspec.json.decode(canonical(arguments))) == value


def test_arguments_without_nul_are_handed_on_as_they_are() -> None:
    arguments = parse_arguments('{"a": ["é"]}')
    assert restore_arguments(arguments) is arguments


@pytest.mark.parametrize(
    "raw, place", [(b'{"s":"\xf0"}', 6), (b"\xff\xfe{}", 0), (b'{"s":"\xed\xa0\x80"}', 6), (b'{"s":"\xc3', 6)]
)
def test_c20_arguments_that_are_not_utf_8_are_refused_with_the_place(raw: bytes, place: int) -> None:
    assert f"The arguments are not UTF-8: byte 0x{raw[place]:02x} at offset {place} (" in refusal(raw)


@given(FLOATS)
def test_finite_floats_are_kept(number: float) -> None:
    kept = parse_arguments(f'{{"n": {number!r}}}')["n"]
    assert isinstance(kept, float | int)
    assert math.isclose(kept, number, rel_tol=0)
