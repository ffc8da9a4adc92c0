import asyncio
import dataclasses
import datetime as dt
import enum
import hashlib
import json
from pathlib import Path
from typing import Any

import msgspec
import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hibernaut.codec import pack
from hibernaut.errors import MalformedInput, TooLarge, ToolError
from hibernaut.kernel.limits import EXCERPT, INLINE_CONTENT, LARGEST_CONTENT
from hibernaut.messages.parts import Content, Excerpt, Image, Part, Text
from hibernaut.messages.text import restore
from hibernaut.tools.context import Deferred
from hibernaut.tools.results import DONE, LONGEST_ERROR, MOST_PARTS, Outcome, failure, fit, outcome


class Colour(enum.StrEnum):
    RED = "red"


class OldColour(str, enum.Enum):  # noqa: UP042  # the kind that prints as its name
    RED = "red"


class Precise(float):
    pass


class Count(int):
    pass


class Name(str):
    __slots__ = ()


@dataclasses.dataclass
class Point:
    x: int
    y: list[str]


class Struct(msgspec.Struct):
    name: str


class Model(pydantic.BaseModel):
    when: dt.date
    names: set[str]


def spilled(content: Content) -> Excerpt:
    assert isinstance(content, tuple)
    (part,) = content
    assert isinstance(part, Excerpt)
    return part


@pytest.mark.parametrize(
    "value,content",
    [
        ("plain", "plain"),
        ("", ""),
        (None, DONE),
        (True, "true"),
        (0, "0"),
        (-1.5, "-1.5"),
        (10**30, "1" + "0" * 30),
        (float("nan"), "nan"),
        (float("-inf"), "-inf"),
        (Precise(2.5), "2.5"),
        (Colour.RED, "red"),
        (OldColour.RED, "red"),
        (b"bytes", "bytes"),
        (bytearray(b"bytes"), "bytes"),
        (memoryview(b"bytes"), "bytes"),
        ([], "[]"),
        (["a", 1, None], '["a",1,null]'),
        (("a", "b"), '["a","b"]'),
        ({"ü": [1, {"b": False}]}, '{"ü":[1,{"b":false}]}'),
        ({1: 2}, '{"1":2}'),
        (Count(7), "7"),
        (Name("plain"), "plain"),
        ([float("nan"), Precise(1.0), Count(7), Name("plain")], '[null,1.0,7,"plain"]'),
        (Point(1, ["a"]), '{"x":1,"y":["a"]}'),
        ([Struct("a")], '[{"name":"a"}]'),
        (Model(when=dt.date(2026, 3, 1), names={"a"}), '{"when":"2026-03-01","names":["a"]}'),
        ({"model": Model(when=dt.date(2026, 3, 1), names=set())}, '{"model":{"when":"2026-03-01","names":[]}}'),
        (Path("/tmp/a"), '"/tmp/a"'),
        (dt.date(2026, 3, 1), '"2026-03-01"'),
    ],
)
def test_what_a_tool_returns_is_written_as_a_model_can_read_it(value: object, content: str) -> None:
    assert outcome(value) == Outcome(content)


def test_parts_are_kept_as_parts() -> None:
    image = Image("image/png", b"png")
    assert outcome(image).content == (image,)
    assert outcome(["see", image, Text("this"), 5]).content == (Text("see"), image, Text("this"), Text("5"))


@pytest.mark.parametrize(
    "value", [object(), [object()], {"a": object()}, lambda: None, range(3), Deferred("s3cret", "c")]
)
def test_what_cannot_be_written_is_an_error_that_names_its_type(value: object) -> None:
    result = outcome(value)
    assert result.is_error
    assert f"a {type(value).__name__}, cannot be written" in str(result.content)
    assert "s3cret" not in str(result.content)


def test_the_type_deep_inside_that_cannot_be_written_is_named_too() -> None:
    assert "a complex is nothing that JSON can write" in str(outcome({"a": [1j]}).content)


def test_a_value_that_contains_itself_is_an_error() -> None:
    value: list[object] = []
    value.append(value)
    assert outcome(value).is_error


def test_a_value_whose_own_code_fails_is_an_error() -> None:
    class Broken:
        def model_dump(self, mode: str) -> dict[str, str]:
            raise LookupError(f"no {mode} today")

    result = outcome(Broken())
    assert result.is_error
    assert "LookupError: no json today" in str(result.content)


def test_a_coroutine_that_was_not_awaited_is_an_error_and_leaves_no_warning() -> None:
    async def work() -> None:
        await asyncio.sleep(0)

    result = outcome(work())
    assert result.is_error
    assert "async def" in str(result.content)


def test_a_future_that_was_not_awaited_is_an_error() -> None:
    async def work() -> Outcome:
        return outcome(asyncio.get_running_loop().create_future())

    assert asyncio.run(work()).is_error


@pytest.mark.parametrize("data", [b"\xf0", b"a\xff\xfeb", bytes(range(256)) * 16])
def test_c20_bytes_that_are_no_text_are_delivered_with_replacement_characters(data: bytes) -> None:
    content = outcome(data).content
    assert isinstance(content, str)
    assert "\ufffd" in content
    assert restore(content) == data.decode("utf-8", "replace")


def test_c17_lone_surrogates_become_replacement_characters_wherever_they_are() -> None:
    assert outcome("a\ud83d").content == "a\ufffd"
    assert outcome({"k\ud83d": ["\ude42", {"n": ("x\ud83d",)}]}).content == '{"k\ufffd":["\ufffd",{"n":["x\ufffd"]}]}'
    assert outcome(Point(1, ["\ud83d\ude42"])).content == '{"x":1,"y":["🙂"]}'
    assert outcome([Text("\ud83d"), Image("\ud83d", url="\ud83d")]).content == (
        Text("\ufffd"),
        Image("\ufffd", url="\ufffd"),
    )


def test_c19_nul_is_escaped_and_its_written_form_is_left_alone() -> None:
    assert restore(str(outcome("a\x00b").content)) == "a\x00b"
    assert "\x00" not in str(outcome("a\x00b").content)
    assert outcome("a\\u0000b").content == "a\\u0000b"
    assert outcome({"a": "\x00"}).content == '{"a":"\\u0000"}'


@given(
    st.recursive(
        st.text() | st.binary() | st.integers() | st.floats() | st.none(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
        max_leaves=8,
    )
)
def test_whatever_is_returned_can_be_stored(value: object) -> None:
    result = outcome(value)
    assert not result.is_error
    assert pack(result)
    assert "\x00" not in str(result.content)


def test_c23_a_text_up_to_the_limit_stays_and_one_byte_more_goes_to_a_blob() -> None:
    text = "x" * INLINE_CONTENT
    assert outcome(text) == Outcome(text)
    result = outcome(text + "x")
    assert not result.is_error
    excerpt = spilled(result.content)
    (blob,) = result.blobs
    assert blob.data == (text + "x").encode()
    assert blob.digest == hashlib.sha256(blob.data).digest() == excerpt.blob
    assert excerpt.size == INLINE_CONTENT + 1
    assert len(excerpt.text.encode()) <= EXCERPT


def test_the_limit_counts_bytes_and_not_characters() -> None:
    assert outcome("ü" * (INLINE_CONTENT // 2)).blobs == ()
    assert len(outcome("ü" * (INLINE_CONTENT // 2) + "x").blobs) == 1


def test_c22_a_long_result_keeps_its_verdict_and_says_how_much_is_missing_and_where() -> None:
    log = "ok\n" * 40_000 + "FAILED\n"
    result = outcome(log)
    text = spilled(result.content).text
    assert text.startswith("ok\nok\n")
    assert text.endswith("ok\nFAILED\n")
    assert "left out" in text
    assert f"blob {result.blobs[0].digest.hex()}" in text


def test_c22_one_long_line_keeps_its_ends() -> None:
    text = spilled(outcome("<" + "x" * 10_000_000 + ">").content).text
    assert (text[0], text[-1]) == ("<", ">")
    assert len(text) <= EXCERPT


def test_c23_what_is_above_the_largest_content_is_an_error_that_says_so() -> None:
    result = outcome(b"x" * (LARGEST_CONTENT + 1))
    assert result.is_error
    assert result.blobs == ()
    assert "67,108,865 bytes" in str(result.content)


def test_a_large_image_goes_to_a_blob_and_a_small_one_stays() -> None:
    small, large = Image("image/png", b"s" * 100), Image("image/png", b"l" * (INLINE_CONTENT + 1))
    digest = hashlib.sha256(large.data).digest()
    content, blobs = fit((small, large))
    assert content == (small, Image("image/png", blob=digest))
    assert [(blob.digest, blob.data) for blob in blobs] == [(digest, large.data)]


def test_what_is_small_stays_beside_what_is_large() -> None:
    icon, note = Image("image/png", b"icon"), Text("x" * EXCERPT)
    content, blobs = fit((icon, note, Text("y" * INLINE_CONTENT)))
    assert content[:2] == (icon, note)
    assert len(blobs) == 1


def test_parts_that_are_too_much_together_do_not_stay_either() -> None:
    parts: tuple[Part, ...] = tuple(Text(str(n) * 20_000) for n in range(9))
    content, blobs = fit(parts)
    assert len(blobs) == 9
    assert sum(len(part.text) for part in content if isinstance(part, Excerpt)) <= 9 * EXCERPT


def test_the_same_bytes_are_one_blob() -> None:
    image = Image("image/png", b"x" * INLINE_CONTENT)
    content, blobs = fit((image, image))
    assert len(content) == 2
    assert len(blobs) == 1


def test_a_content_of_too_many_parts_is_refused() -> None:
    assert len(fit((Text("a"),) * MOST_PARTS)[0]) == MOST_PARTS
    with pytest.raises(MalformedInput, match="at most 100 parts"):
        fit((Text("a"),) * (MOST_PARTS + 1))
    assert outcome([Text("a")] * (MOST_PARTS + 1)).is_error


def test_a_content_that_is_too_large_is_refused() -> None:
    with pytest.raises(TooLarge, match="LARGEST_CONTENT"):
        fit((Image("image/png", b"x" * LARGEST_CONTENT), Text("x")))


@pytest.mark.parametrize("part", [Excerpt("x", b"d" * 32, 5_000_000), Image("image/png", blob=b"d" * 32)])
def test_a_part_that_only_names_a_blob_is_refused(part: Part) -> None:
    with pytest.raises(MalformedInput, match="only names a blob"):
        fit((Text("Look:"), part))
    assert outcome(part).is_error


def test_an_error_of_a_tool_says_its_kind_and_its_text() -> None:
    assert failure(ValueError("no such build")) == Outcome("Error: ValueError: no such build", is_error=True)


def test_an_error_that_says_nothing_is_named() -> None:
    assert failure(TimeoutError()).content == "Error: TimeoutError"
    assert failure(ToolError()).content == "Error: ToolError"
    assert failure(ToolError(" ")).content == "Error: ToolError"


def test_a_tool_error_is_what_the_tool_wanted_to_say() -> None:
    assert failure(ToolError("The build is frozen.")) == Outcome("The build is frozen.", is_error=True)


def test_a_group_of_errors_says_what_went_wrong_in_it() -> None:
    inner: list[Exception] = [ExceptionGroup("deep", [ValueError("a")]), *(KeyError(n) for n in range(6))]
    text = str(failure(ExceptionGroup("unhandled errors in a TaskGroup", inner)).content)
    assert text.splitlines()[:2] == ["Error: ValueError: a", "Error: KeyError: 0"]
    assert text.splitlines()[-1] == "and 2 more errors"


def test_c22_a_long_error_keeps_its_ends_within_the_bound() -> None:
    text = str(failure(RuntimeError("start " + "x" * 1_000_000 + " end")).content)
    assert text.startswith("Error: RuntimeError: start xx")
    assert text.endswith("xx end")
    assert len(text.encode()) <= LONGEST_ERROR
    assert len(str(failure(ToolError("x" * 1_000_000)).content).encode()) <= LONGEST_ERROR


def test_c17_an_error_text_is_cleaned() -> None:
    assert failure(ValueError("a\ud83d")).content == "Error: ValueError: a\ufffd"
    assert pack(failure(ToolError("\ud83d\x00")))


def test_an_error_that_cannot_be_printed_is_an_error_all_the_same() -> None:
    class Broken(Exception):
        def __str__(self) -> str:
            raise ValueError

    assert failure(Broken()).content == "Error: Broken"


def test_json_of_a_result_can_be_read_back() -> None:
    value: dict[str, Any] = {"a": [1, "ü", None, {"b": 1.5}]}
    assert json.loads(str(outcome(value).content)) == value
