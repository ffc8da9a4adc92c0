"""Each rule of OpenAI's APIs."""

import re

import msgspec
import pytest

from hibernaut.messages.parts import Image
from hibernaut.models.openai.pictures import LIMITS, moves, shown
from hibernaut.models.openai.rules import cache_key, effort_of, error_text, merged, object_text, reasons, tool_names
from hibernaut.models.pictures import Album
from hibernaut.models.protocol import About, ModelInfo, Settings
from hibernaut.testing.model_transcripts import GIF, png


@pytest.mark.parametrize(
    "model,wanted",
    [
        ("o3", True),
        ("o4-mini-2025-04-16", True),
        ("gpt-5", True),
        ("gpt-5.2-codex", True),
        ("gpt-6", True),
        ("openai/gpt-5-mini", True),
        ("ft:gpt-5-nano:us", True),
        ("gpt-oss-120b", True),
        ("gpt-5-chat-latest", False),
        ("gpt-4.1", False),
        ("gpt-4o", False),
        ("gpt-35-turbo", False),
        ("chatgpt-4o-latest", False),
        ("omni", False),
    ],
)
def test_an_id_tells_whether_a_model_reasons(model: str, wanted: bool) -> None:
    assert reasons(About(model)) is wanted
    assert reasons(About(model, ModelInfo(reasoning=True)))


@pytest.mark.parametrize(
    "model,effort,wanted",
    [
        ("gpt-5", "", ""),
        ("gpt-5", "high", "high"),
        ("gpt-5", "none", "minimal"),
        ("gpt-5-mini-2025-08-07", "none", "minimal"),
        ("gpt-5.1", "none", "none"),
        ("gpt-5.2-codex", "none", "low"),
        ("gpt-5-pro", "none", "low"),
        ("o3", "none", "low"),
        ("o4-mini", "medium", "medium"),
    ],
)
def test_a_model_that_cannot_but_think_is_asked_for_the_least(model: str, effort: str, wanted: str) -> None:
    assert effort_of(About(model, settings=Settings(effort=effort))) == wanted  # type: ignore[arg-type]


def test_names_on_the_wire_fit_and_stay_different() -> None:
    names = ["look", "fs.read", "fs/read", "größe", "y" * 65, "y" * 66, "", "a b", "x" * 64]
    wire = tool_names()
    made = [wire.on_wire(name) for name in names]
    assert all(re.fullmatch(r"[a-zA-Z0-9_-]{1,64}", name) for name in made)
    assert len(set(made)) == len(names)
    assert [wire.of(name) for name in made] == names
    assert (made[0], made[-1]) == ("look", "x" * 64)


@pytest.mark.parametrize("written", ['{"a":1}', "{}", '{ "a" : [] }'])
def test_arguments_that_are_an_object_stay_as_they_are(written: str) -> None:
    assert object_text(written) == written


@pytest.mark.parametrize("written", ["", "[1]", "null", '{"a', "look at a.txt", '"x"'])
def test_arguments_of_an_old_history_become_an_object(written: str) -> None:
    assert msgspec.json.decode(object_text(written)) == {"arguments": written}


def test_a_key_of_the_cache_is_short() -> None:
    assert cache_key("th_1") == "th_1"
    assert len(cache_key("t" * 65)) == 64
    assert len(cache_key("größe")) == 64


def test_what_a_user_gives_wins_and_objects_are_merged() -> None:
    own = {"a": 1, "reasoning": {"effort": "low"}, "include": ["x"]}
    given = {"a": 2, "reasoning": {"summary": "auto"}, "include": [], "b": {"c": 1}}
    assert merged(own, given) == {
        "a": 2,
        "reasoning": {"effort": "low", "summary": "auto"},
        "include": [],
        "b": {"c": 1},
    }


def test_a_failed_result_says_so_once() -> None:
    assert error_text("not found") == "Error: not found"
    assert error_text("error 404") == "error 404"


# Images

MOVING = GIF[:-1] + GIF[13 + 6 : -1] + b";"


@pytest.mark.parametrize(
    "data,wanted",
    [
        (GIF, False),
        (MOVING, True),
        (b"GIF89a", False),
        (GIF[:30], False),
        (GIF[:35], False),
        (b"GIF89a" + bytes(20), False),
        (b"RIFF\x00\x00\x00\x00WEBPVP8 ", False),
        (b"RIFF\x00\x00\x00\x00WEBPVP8X\x0a\x00\x00\x00\x00" + bytes(9), False),
        (b"RIFF\x00\x00\x00\x00WEBPVP8X\x0a\x00\x00\x00\x02" + bytes(9), True),
        (png(), False),
        (b"", False),
    ],
)
def test_it_is_seen_whether_a_picture_moves(data: bytes, wanted: bool) -> None:
    assert moves(data) is wanted


def test_c25_an_image_that_would_be_refused_is_a_word() -> None:
    album = Album(LIMITS)
    url, word = shown(album, Image("image/tiff", png()))
    assert (url[:22], word) == ("data:image/png;base64,", "")
    assert shown(album, Image("", url="https://pictures.example/a.png")) == ("https://pictures.example/a.png", "")
    for image in (
        Image("image/png", b"no picture"),
        Image("image/gif", MOVING),
        Image("image/png", url="file:///etc/passwd"),
        Image("image/png", png() + bytes(16_000_000)),
    ):
        url, word = shown(album, image)
        assert url == ""
        assert word.startswith("[an image (image/")
