"""The framing `application/vnd.amazon.eventstream`: binary messages with headers, each under two checksums.

A message is its length (4 bytes), the length of its headers (4), the CRC-32 of these eight bytes, the headers, the
payload, and the CRC-32 of all before. A header is a name, the number of a type, and a value.
"""

import struct
from collections.abc import Iterable, Iterator, Mapping
from typing import Final
from zlib import crc32

import msgspec

from hibernaut.models.dialect import Frame
from hibernaut.models.errors import OutputTruncated

MEDIA_TYPE: Final = "application/vnd.amazon.eventstream"

ERROR: Final = "error"
"""The kind of a frame that says that the stream failed outside of what its API names: `code` and `message`."""

_PRELUDE: Final = struct.Struct(">III")
_WORD: Final = struct.Struct(">I")
_LENGTH: Final = struct.Struct(">H")
_SIZES: Final[Mapping[int, int]] = {0: 0, 1: 0, 2: 1, 3: 2, 4: 4, 5: 8, 8: 8, 9: 16}
"""Bytes of a value by its type; types 6 and 7 have their length before them."""
_BYTES: Final = 6
_STRING: Final = 7


class EventStreamDecoder:
    """Reads messages from bytes that arrive in pieces, however they are split.

    Args:
        largest: bytes of one message.
    """

    __slots__ = ("_largest", "_waiting")

    def __init__(self, largest: int) -> None:
        self._largest = largest
        self._waiting = bytearray()

    def feed(self, data: bytes) -> Iterator[Frame]:
        """Return the messages that are complete now.

        Raises:
            OutputTruncated: a message is too large. ValueError: this is no such stream, or it was damaged on its way.
        """
        waiting = self._waiting
        waiting += data
        while len(waiting) >= _PRELUDE.size:
            total, headers, check = _PRELUDE.unpack_from(waiting)
            if crc32(waiting[:8]) != check:
                raise ValueError("a message of the event stream has a wrong checksum in front")
            if total > self._largest:
                raise OutputTruncated(f"an event of the answer has no end: more than {self._largest:,} bytes")
            if _PRELUDE.size + headers + _WORD.size > total:
                raise ValueError(f"a message of the event stream has {total:,} bytes, {headers:,} of them headers")
            if len(waiting) < total:
                return
            if crc32(waiting[: total - _WORD.size]) != _WORD.unpack_from(waiting, total - _WORD.size)[0]:
                raise ValueError("a message of the event stream has a wrong checksum")
            begin = _PRELUDE.size + headers
            read = _headers(bytes(waiting[_PRELUDE.size : begin]))
            payload = bytes(waiting[begin : total - _WORD.size])
            del waiting[:total]
            yield _frame(read, payload)

    def end(self) -> None:
        """Check that nothing is left.

        Raises:
            ValueError: the stream ended inside a message.
        """
        if self._waiting:
            raise ValueError("the event stream ends inside a message")


def write_message(headers: Iterable[tuple[str, str]], payload: bytes) -> bytes:
    """Return a message; the headers are all text."""
    head = bytearray()
    for name, value in headers:
        head += bytes((len(name),)) + name.encode() + bytes((_STRING,)) + _LENGTH.pack(len(value.encode()))
        head += value.encode()
    total = _PRELUDE.size + len(head) + len(payload) + _WORD.size
    lengths = struct.pack(">II", total, len(head))
    message = lengths + _WORD.pack(crc32(lengths)) + bytes(head) + payload
    return message + _WORD.pack(crc32(message))


def _frame(headers: Mapping[str, str], payload: bytes) -> Frame:
    kind = headers.get(":message-type", "event")
    if kind == "error":
        said = {"code": headers.get(":error-code", ""), "message": headers.get(":error-message", "")}
        return Frame(ERROR, msgspec.json.encode(said).decode())
    return Frame(headers.get(f":{kind}-type", ""), payload.decode("utf-8", "replace"))


def _headers(data: bytes) -> dict[str, str]:
    """Return the headers that are text."""
    found: dict[str, str] = {}
    place = 0
    try:
        while place < len(data):
            named = place + 1 + data[place]
            name, kind = data[place + 1 : named].decode(), data[named]
            place = named + 1
            if kind in (_BYTES, _STRING):
                size = _LENGTH.unpack_from(data, place)[0]
                place += _LENGTH.size
            else:
                size = _SIZES[kind]
            if kind == _STRING:
                found[name] = data[place : place + size].decode()
            place += size
    except (IndexError, KeyError, struct.error) as error:
        raise ValueError("a header of the event stream cannot be read") from error
    if place != len(data):
        raise ValueError("a header of the event stream goes past the others")
    return found
