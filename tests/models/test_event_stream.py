"""The binary framing of Amazon's streams, with botocore's own reader as the judge of what we write."""

import struct
from collections.abc import Callable
from itertools import pairwise
from zlib import crc32

import msgspec
import pytest
from botocore.eventstream import EventStreamBuffer
from hypothesis import given
from hypothesis import strategies as st

from hibernaut.models.dialect import Frame
from hibernaut.models.errors import OutputTruncated
from hibernaut.models.event_stream import ERROR, EventStreamDecoder, write_message

LARGEST = 1024 * 1024


def event(kind: str, payload: bytes) -> bytes:
    return write_message(
        [(":event-type", kind), (":content-type", "application/json"), (":message-type", "event")], payload
    )


def read(*chunks: bytes) -> list[Frame]:
    decoder = EventStreamDecoder(LARGEST)
    frames = [frame for chunk in chunks for frame in decoder.feed(chunk)]
    decoder.end()
    return frames


@given(
    st.lists(st.tuples(st.sampled_from(["messageStart", "x" * 200]), st.binary(max_size=300)), max_size=4), st.data()
)
def test_messages_are_read_however_they_are_cut(messages: list[tuple[str, bytes]], data: st.DataObject) -> None:
    whole = b"".join(event(kind, payload) for kind, payload in messages)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(whole)), max_size=6)))
    places = [0, *cuts, len(whole)]
    chunks = [whole[begin:end] for begin, end in pairwise(places)]
    assert read(*chunks) == [Frame(kind, payload.decode("utf-8", "replace")) for kind, payload in messages]


def test_what_is_written_is_what_botocore_reads() -> None:
    buffer = EventStreamBuffer()
    buffer.add_data(event("metadata", b'{"a":1}') + event("messageStop", b"{}"))
    read_there = [(message.headers[":event-type"], message.payload) for message in buffer]
    assert read_there == [("metadata", b'{"a":1}'), ("messageStop", b"{}")]


def test_headers_of_every_type_are_stepped_over() -> None:
    def header(name: bytes, kind: int, value: bytes) -> bytes:
        return bytes((len(name),)) + name + bytes((kind,)) + value

    head = b"".join(
        [
            header(b"yes", 0, b""),
            header(b"no", 1, b""),
            header(b"byte", 2, b"\x01"),
            header(b"short", 3, b"\x00\x01"),
            header(b"int", 4, b"\x00" * 4),
            header(b"long", 5, b"\x00" * 8),
            header(b"bytes", 6, b"\x00\x02ab"),
            header(b"time", 8, b"\x00" * 8),
            header(b"uuid", 9, b"\x00" * 16),
            header(b":event-type", 7, b"\x00\x04last"),
        ]
    )
    assert read(message(head, b"{}")) == [Frame("last", "{}")]


def message(head: bytes, payload: bytes) -> bytes:
    lengths = struct.pack(">II", 12 + len(head) + len(payload) + 4, len(head))
    begun = lengths + struct.pack(">I", crc32(lengths)) + head + payload
    return begun + struct.pack(">I", crc32(begun))


def test_an_exception_has_its_type_as_kind_and_an_error_its_code_and_words() -> None:
    exception = write_message(
        [(":exception-type", "throttlingException"), (":message-type", "exception")], b'{"message":"slow"}'
    )
    error = write_message([(":message-type", "error"), (":error-code", "Broken"), (":error-message", "oh")], b"")
    first, second = read(exception + error)
    assert first == Frame("throttlingException", '{"message":"slow"}')
    assert second.kind == ERROR
    assert msgspec.json.decode(second.data) == {"code": "Broken", "message": "oh"}


def flipped(place: int) -> Callable[[bytes], bytes]:
    return lambda data: data[:place] + bytes((data[place] ^ 1,)) + data[place + 1 :]


@pytest.mark.parametrize(
    "damage",
    [
        flipped(0),
        flipped(5),
        flipped(9),
        flipped(20),
        flipped(-1),
        lambda data: b"<html>It works!</html>",
        lambda data: message(b"\x05ab", b""),
        lambda data: message(b"\x01a\x07\x00\x09short", b""),
        lambda data: message(b"\x01a\x0f", b""),
    ],
)
def test_what_was_damaged_is_refused(damage: Callable[[bytes], bytes]) -> None:
    with pytest.raises(ValueError, match="event stream"):
        read(damage(event("messageStart", b'{"role":"assistant"}')))


def test_a_stream_that_ends_inside_a_message_is_refused() -> None:
    whole = event("messageStart", b'{"role":"assistant"}')
    for end in range(1, len(whole)):
        with pytest.raises(ValueError, match="ends inside a message"):
            read(whole[:end])


def test_a_message_beyond_the_limit_is_refused_before_it_is_there() -> None:
    begun = event("messageStart", b"x" * (LARGEST + 1))[:12]
    with pytest.raises(OutputTruncated, match=f"has no end: more than {LARGEST:,} bytes"):
        read(begun)
