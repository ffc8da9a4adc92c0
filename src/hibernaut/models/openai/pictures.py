"""Pictures as OpenAI's APIs take them."""

from base64 import b64encode
from typing import Final

import msgspec

from hibernaut.messages.parts import Image
from hibernaut.models.pictures import Album, PictureLimits, word_for

LIMITS: Final = PictureLimits(
    size=20_000_000, side=65_535, count=500, together=45_000_000, crowd=500, crowd_side=65_535
)
"""A request of 50 MB is refused; the rest is for text."""

NO_PICTURES: Final = msgspec.structs.replace(LIMITS, media_types=frozenset(), addresses=False)

_GIF_HEADER: Final = 13
_TABLE_FOLLOWS: Final = 0x80
_FLAGS: Final = 20


def shown(album: Album, image: Image) -> tuple[str, str]:
    """Return the URL of an image, or else "" and the word that stands in its place."""
    if image.data and moves(image.data):
        return "", word_for(image, "which moves")
    picture = album.look(image)
    if isinstance(picture, str):
        return "", word_for(image, picture)
    return (f"data:{picture.media_type};base64,{b64encode(image.data).decode()}" if image.data else image.url), ""


def moves(data: bytes) -> bool:
    """Tell whether a picture is an animation, which is refused."""
    if data.startswith((b"GIF87a", b"GIF89a")):
        return _frames(data) > 1
    return data[:4] == b"RIFF" and data[8:16] == b"WEBPVP8X" and len(data) > _FLAGS and bool(data[_FLAGS] & 2)


def _frames(data: bytes) -> int:
    """Count the pictures in a GIF."""
    if len(data) < _GIF_HEADER:
        return 0
    place = _GIF_HEADER + _table(data[10])
    frames = 0
    while place + 1 < len(data):
        kind = data[place]
        if kind == ord(","):
            frames += 1
            if place + 9 >= len(data):
                break
            place = _after_blocks(data, place + 11 + _table(data[place + 9]))
        elif kind == ord("!"):
            place = _after_blocks(data, place + 2)
        else:
            break
    return frames


def _table(flags: int) -> int:
    return 3 << ((flags & 7) + 1) if flags & _TABLE_FOLLOWS else 0


def _after_blocks(data: bytes, place: int) -> int:
    while place < len(data) and data[place]:
        place += data[place] + 1
    return place + 1
