"""Images as OpenAI's APIs take them. One that would be refused is left out, since it would be refused in every turn."""

from base64 import b64encode
from typing import Final

import msgspec

from hibernaut.messages.parts import Image

MEGABYTE: Final = 1024 * 1024

_GIF_HEADER: Final = 13
_TABLE_FOLLOWS: Final = 0x80


class ImageLimits(msgspec.Struct, frozen=True):
    """What images a request may hold. Sizes are those of the encoded images, in bytes."""

    count: int = 500
    each: int = 20 * MEGABYTE
    together: int = 45 * MEGABYTE
    """A request of 50 MB is refused; the rest is for text."""


class Pictures:
    """Turns the images of one transcript into URLs, as many as a request may hold."""

    __slots__ = ("_bytes", "_count", "_limits")

    def __init__(self, limits: ImageLimits) -> None:
        self._limits = limits
        self._count = 0
        self._bytes = 0

    def url(self, image: Image) -> str:
        """Return the image as a URL; "" if it would be refused."""
        url = _url(image)
        size = self._bytes + len(url)
        if not url or len(url) > self._limits.each or size > self._limits.together or self._count >= self._limits.count:
            return ""
        self._count += 1
        self._bytes = size
        return url


def word_for(image: Image) -> str:
    """Return what stands in the place of an image that is left out."""
    return f"[image: {image.media_type}, which cannot be shown]"


def media_type_of(data: bytes) -> str:
    """Return what an image is by its bytes, whatever it is said to be; "" if it is none that can be taken.

    Taken are PNG, JPEG, WebP and GIF, the last two only if they stand still.
    """
    if data.startswith(b"\x89PNG\r\n\x1a\n"):
        return "image/png"
    if data.startswith(b"\xff\xd8\xff"):
        return "image/jpeg"
    if data.startswith((b"GIF87a", b"GIF89a")):
        return "" if _frames(data) > 1 else "image/gif"
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        moves = data[12:16] == b"VP8X" and len(data) > 20 and data[20] & 2  # noqa: PLR2004  # the container's flags
        return "" if moves else "image/webp"
    return ""


def _url(image: Image) -> str:
    if not image.data:
        return image.url if image.url.startswith("https://") else ""
    media_type = media_type_of(image.data)
    return f"data:{media_type};base64,{b64encode(image.data).decode()}" if media_type else ""


def _frames(data: bytes) -> int:
    """Count the pictures in a GIF; 0 where it breaks off before the first."""
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
