"""C25: pictures are known by their bytes, and none is shown that would be refused."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hibernaut.messages.parts import Image
from hibernaut.models.pictures import Album, Picture, PictureLimits, encoded_size, look_at, word_for
from hibernaut.testing.model_transcripts import GIF, png

JPEG = (
    b"\xff\xd8\xff\xe0\x00\x10JFIF\x00\x01\x01\x00\x00\x01\x00\x01\x00\x00"
    b"\xff\xff\xc0\x00\x0b\x08\x00\x02\x00\x03\x01\x01\x11\x00"
)
LOSSY = b"RIFF\x00\x00\x00\x00WEBPVP8 \x00\x00\x00\x00\x00\x00\x00\x9d\x01\x2a" + struct.pack("<HH", 640, 480)
LOSSLESS = b"RIFF\x00\x00\x00\x00WEBPVP8L\x00\x00\x00\x00\x2f" + struct.pack("<I", 639 | 479 << 14)
EXTENDED = b"RIFF\x00\x00\x00\x00WEBPVP8X" + b"\0" * 8 + (639).to_bytes(3, "little") + (479).to_bytes(3, "little")


@pytest.mark.parametrize(
    "data,picture",
    [
        (png(3, 2), Picture("image/png", 3, 2)),
        (GIF, Picture("image/gif", 1, 1)),
        (JPEG, Picture("image/jpeg", 3, 2)),
        (b"\xff\xd8\xff\xe0\x00\x02nothing that is a marker", Picture("image/jpeg")),
        (LOSSY, Picture("image/webp", 640, 480)),
        (LOSSLESS, Picture("image/webp", 640, 480)),
        (EXTENDED, Picture("image/webp", 640, 480)),
        (b"", None),
        (b"<svg/>", None),
        (b"BM....", None),
        (png()[:20], None),
        (b"\xff\xd8\xff", None),
        (b"GIF89a", None),
        (LOSSY[:-1], None),
    ],
)
def test_a_picture_is_what_its_bytes_say(data: bytes, picture: Picture | None) -> None:
    assert look_at(data) == picture


@given(
    st.binary(max_size=60),
    st.sampled_from([b"", b"\x89PNG\r\n\x1a\n", b"GIF89a", b"\xff\xd8\xff", JPEG[:4], LOSSY[:16]]),
)
def test_no_bytes_are_too_odd_to_be_looked_at(data: bytes, head: bytes) -> None:
    look_at(head + data)


@pytest.mark.parametrize(
    "image,why",
    [
        (Image("image/png", png(101)), "too large: 101 × 1 pixels"),
        (Image("image/png", png() + b"\0" * 900), "too large: 967 bytes"),
        (Image("image/svg+xml", b"<svg/>"), "of a kind that cannot be shown"),
        (Image("image/png"), "not to be had"),
        (Image("image/png", url="http://pictures.example/a.png"), "not to be had"),
        (Image("image/png", url="file:///etc/passwd"), "not to be had"),
    ],
)
def test_c25_a_picture_that_would_be_refused_has_a_word_in_its_place(image: Image, why: str) -> None:
    assert Album(PictureLimits(size=1_000, side=100)).look(image) == why
    assert word_for(image, why) == f"[an image ({image.media_type}), {why}]"


def test_c25_the_size_that_counts_is_that_of_the_text() -> None:
    image = Image("image/png", png() + b"\0" * 683)
    assert encoded_size(image.data) == 1_000
    assert Album(PictureLimits(size=1_000)).look(image) == Picture("image/png", 1, 1)
    assert Album(PictureLimits(size=999)).look(image) == f"too large: {len(image.data)} bytes"


def test_an_address_is_taken_only_where_the_provider_fetches_it() -> None:
    image = Image("image/png", url="https://pictures.example/a.png")
    assert Album(PictureLimits()).look(image) == Picture("image/png")
    assert Album(PictureLimits(addresses=False)).look(image) == "not to be had"


def shown(images: list[Image], limits: PictureLimits, pieces: int = 1) -> list[bool]:
    """Which pictures are shown in the end, when they come in so many pieces and all is written anew where needed."""
    album = Album(limits)
    size = max(1, -(-len(images) // pieces))
    done: list[Image] = []
    found: list[bool] = []
    for start in range(0, len(images), size):
        part = images[start : start + size]
        done += part
        found += [isinstance(album.look(image), Picture) for image in part]
        if album.stale:
            album.begin()
            found = [isinstance(album.look(image), Picture) for image in done]
            assert not album.stale
    return found


def test_c25_with_many_pictures_the_large_ones_give_way() -> None:
    images = [Image("image/png", png(2_001)), *[Image("image/png", png())] * 20]
    assert shown(images[:-1], PictureLimits()) == [True] * 20
    assert shown(images, PictureLimits()) == [False, *[True] * 20]
    assert shown([*images, images[0]], PictureLimits()) == [False, *[True] * 20, False]


def test_where_there_are_too_many_the_older_half_gives_way() -> None:
    images = [Image("image/png", png())] * 11
    assert shown(images[:10], PictureLimits(count=10)) == [True] * 10
    assert shown(images, PictureLimits(count=10)) == [False] * 6 + [True] * 5
    assert shown(images, PictureLimits(together=1_000)) == [False] * 6 + [True] * 5


SIZES = st.sampled_from([Image("image/png", png()), Image("image/png", png(2_001)), Image("image/png", b"?")])
LIMITS = PictureLimits(count=7, crowd=4, together=700)


@given(st.lists(SIZES, max_size=30), st.integers(1, 30))
def test_which_pictures_are_shown_does_not_depend_on_how_they_came(images: list[Image], pieces: int) -> None:
    found = shown(images, LIMITS, pieces)
    assert found == shown(images, LIMITS)
    kept = [image for image, is_shown in zip(images, found, strict=True) if is_shown]
    assert len(kept) <= LIMITS.count
    assert sum(encoded_size(image.data) for image in kept) <= LIMITS.together
    assert len(kept) <= LIMITS.crowd or all(len(image.data) == len(png()) for image in kept)
