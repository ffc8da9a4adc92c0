"""Pictures on their way to a provider: what they are by their bytes, and which of them it is shown.

A picture that is refused once is refused with every later turn, so none is sent that would be.
"""

import struct
from typing import Final

import msgspec

from hibernaut.messages.parts import Image


class Picture(msgspec.Struct, frozen=True):
    """What a picture is. Sides are in pixels, 0 where they cannot be told."""

    media_type: str
    width: int = 0
    height: int = 0

    @property
    def side(self) -> int:
        """Its longer side."""
        return max(self.width, self.height)


class PictureLimits(msgspec.Struct, frozen=True):
    """What a provider takes. Sizes are those of the Base64 text, in bytes; sides are in pixels."""

    media_types: frozenset[str] = frozenset({"image/gif", "image/jpeg", "image/png", "image/webp"})
    size: int = 5_000_000
    side: int = 8_000
    count: int = 100
    """Pictures of one request."""
    together: int = 20_000_000
    """Bytes of all pictures of one request."""
    crowd: int = 20
    """With more pictures than this in a request, none may have a side longer than `crowd_side`."""
    crowd_side: int = 2_000
    addresses: bool = True
    """Whether it fetches pictures itself."""


class _Shown(msgspec.Struct):
    number: int
    size: int
    side: int


class Album:
    """The pictures of one transcript, as they come.

    Where there are too many, the oldest give way, half of them at once: so what was written before has to be written
    anew only rarely (`stale`). Which are shown follows from the transcript alone, in however many pieces it came.
    """

    __slots__ = ("_gone", "_limits", "_number", "_seen", "_shown", "stale")

    def __init__(self, limits: PictureLimits) -> None:
        self._limits = limits
        self._shown: list[_Shown] = []
        self._gone: set[int] = set()
        self._number = 0
        self._seen = 0
        self.stale = False
        """Whether a picture that was shown has given way since."""

    def begin(self) -> None:
        """Go through the same transcript again from its start."""
        self._number = 0
        self.stale = False

    def look(self, image: Image) -> Picture | str:
        """Take the next picture: return what it is if it is shown, else why not, in a few words."""
        number = self._number
        self._number += 1
        found = self._fit(image)
        if isinstance(found, str):
            self._seen = max(self._seen, self._number)
            return found
        if number >= self._seen:
            self._seen = self._number
            self._shown.append(_Shown(number, encoded_size(image.data), found.side))
            self._make_room()
        return "no longer shown" if number in self._gone else found

    def _fit(self, image: Image) -> Picture | str:
        limits = self._limits
        if not image.data:
            fetched = limits.addresses and image.url.startswith("https://")
            return Picture(image.media_type) if fetched else "not to be had"
        picture = look_at(image.data)
        if picture is None or picture.media_type not in limits.media_types:
            return "of a kind that cannot be shown"
        if encoded_size(image.data) > limits.size:
            return f"too large: {len(image.data):,} bytes"
        if picture.side > limits.side:
            return f"too large: {picture.width} × {picture.height} pixels"
        return picture

    def _make_room(self) -> None:
        limits = self._limits
        if len(self._shown) > limits.crowd:
            self._drop([each for each in self._shown if each.side > limits.crowd_side])
        if len(self._shown) > limits.count or sum(each.size for each in self._shown) > limits.together:
            kept = self._shown[-max(1, limits.count // 2) :]
            while len(kept) > 1 and sum(each.size for each in kept) > limits.together // 2:
                del kept[0]
            self._drop(self._shown[: len(self._shown) - len(kept)])

    def _drop(self, dropped: list[_Shown]) -> None:
        if dropped:
            gone = {each.number for each in dropped}
            self._gone |= gone
            self._shown = [each for each in self._shown if each.number not in gone]
            self.stale = True


def word_for(image: Image, why: str) -> str:
    """Return what stands in the place of a picture that is not shown."""
    return f"[an image ({image.media_type or 'of unknown type'}), {why}]"


def encoded_size(data: bytes) -> int:
    """Return how long data is in Base64."""
    return (len(data) + 2) // 3 * 4


_PNG: Final = b"\x89PNG\r\n\x1a\n"
_FRAMES: Final = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}
"""Markers of a JPEG after which its size stands."""


def look_at(data: bytes) -> Picture | None:
    """Tell what a picture is by its bytes, whatever it is said to be; None if it is none of the four common kinds."""
    try:
        if data.startswith(_PNG):
            return Picture("image/png", *struct.unpack_from(">II", data, 16))
        if data.startswith((b"GIF87a", b"GIF89a")):
            return Picture("image/gif", *struct.unpack_from("<HH", data, 6))
        if data.startswith(b"\xff\xd8\xff"):
            return _jpeg(data)
        if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
            return _webp(data)
    except struct.error:
        return None  # it breaks off within its head
    return None


def _jpeg(data: bytes) -> Picture:
    place = 2
    while True:
        mark, kind, length = struct.unpack_from(">BBH", data, place)
        if mark != 0xFF:  # noqa: PLR2004  # what every marker begins with
            return Picture("image/jpeg")
        if kind in _FRAMES:
            height, width = struct.unpack_from(">HH", data, place + 5)
            return Picture("image/jpeg", width, height)
        place += 1 if kind == 0xFF else 2 + length  # noqa: PLR2004  # fill bytes


def _webp(data: bytes) -> Picture:
    kind = data[12:16]
    if kind == b"VP8X":
        width, height = (int.from_bytes(data[place : place + 3], "little") + 1 for place in (24, 27))
    elif kind == b"VP8L":
        (bits,) = struct.unpack_from("<I", data, 21)
        width, height = (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
    else:
        width, height = (side & 0x3FFF for side in struct.unpack_from("<HH", data, 26))
    return Picture("image/webp", width, height)
