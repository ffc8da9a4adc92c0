"""A tree of threads as one file.

The file begins with a line that says what it is. Then come frames, each a length of four bytes and so many bytes of
msgpack: first the header, then the records, last a frame of length 0. It ends with the SHA-256 of all before. This form
stays; what may change is the format of the records, which the header has a number for.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from hashlib import sha256 as hashing
from typing import Final, Protocol

import msgspec

from hibernaut.codec import decoder_of, pack
from hibernaut.errors import MalformedInput, StoreFormatTooNew, TooLarge
from hibernaut.stores.archive import LARGEST_TREE, Record, ThreadRecord, decode_record, kind_of

FORMAT: Final = 1
"""The format of the records that this version writes."""

FIRST_LINE: Final = b"hibernaut archive of a tree of threads\n"

LARGEST_RECORD: Final = 1 << 28
"""Bytes of one record."""

LARGEST_ARCHIVE: Final = 2 * LARGEST_TREE
"""Bytes of a file. What is more than the tree is what the records have beside its bytes."""

_LENGTH: Final = 4
_SHA256: Final = 32
_DAMAGED: Final = "this archive is damaged ({why}); nothing was imported, make it anew where it came from"

Progress = Callable[[int, int], None]
"""Is told how many records are done, and of how many."""


class Writable(Protocol):
    """What an archive is written to."""

    def write(self, data: bytes, /) -> object:
        """Write bytes, all of them."""
        ...


class Readable(Protocol):
    """What an archive is read from."""

    def read(self, size: int, /) -> bytes:
        """Return so many bytes, or fewer if there are no more."""
        ...


class Header(msgspec.Struct, frozen=True):
    """What an archive says about itself."""

    root: str
    tenant: str
    records: int
    counts: dict[str, int]
    """How many records there are of each kind."""
    keys: tuple[str, ...] = ()
    """Ids of the keys that sign the callback tokens of the store it comes from; the keys themselves stay there."""
    format: int = FORMAT


class Archive(msgspec.Struct, frozen=True):
    """A tree that was taken out of a store."""

    header: Header
    records: Sequence[Record]


class _Format(msgspec.Struct):
    format: int = FORMAT


_header_decoder = decoder_of(Header)
_format_decoder = decoder_of(_Format)


def archive_of(records: Sequence[Record], keys: Sequence[str] = ()) -> Archive:
    """Return the records of a tree as an archive."""
    first = records[0]
    if not isinstance(first, ThreadRecord):
        raise MalformedInput(f"a tree begins with its root, and not with a {kind_of(first)}")
    counts = Counter(map(kind_of, records))
    return Archive(Header(first.thread_id, first.tenant, len(records), dict(counts), tuple(keys)), records)


def pieces_of(archive: Archive, progress: Progress = lambda done, total: None) -> Iterator[bytes]:
    """Yield the bytes of an archive, record by record."""
    digest = hashing(FIRST_LINE)
    yield FIRST_LINE
    total = len(archive.records)
    for number, value in enumerate((archive.header, *archive.records)):
        data = pack(value)
        if len(data) > LARGEST_RECORD:
            raise TooLarge("a record", len(data), LARGEST_RECORD, "LARGEST_RECORD")
        frame = len(data).to_bytes(_LENGTH, "big") + data
        digest.update(frame)
        yield frame
        progress(number, total)
    end = bytes(_LENGTH)
    digest.update(end)
    yield end + digest.digest()


def write_archive(archive: Archive, file: Writable, progress: Progress = lambda done, total: None) -> int:
    """Write an archive, and return how many bytes it has.

    Raises:
        TooLarge: a record is above its bound.
    """
    size = 0
    for piece in pieces_of(archive, progress):
        file.write(piece)
        size += len(piece)
    return size


def read_archive(file: Readable, progress: Progress = lambda done, total: None) -> Archive:
    """Read an archive that must be whole to its last byte.

    Raises:
        MalformedInput: it is none, or is cut off or altered anywhere.
        StoreFormatTooNew: a newer version has written it.
        TooLarge: it is above a bound.
    """
    if file.read(len(FIRST_LINE)) != FIRST_LINE:
        raise MalformedInput("this is no archive of threads")
    frames = _frames(file)
    if not frames:
        raise MalformedInput(_DAMAGED.format(why="it has no header"))
    header = _header(frames[0])
    if len(frames) - 1 != header.records:
        raise MalformedInput(_DAMAGED.format(why=f"it has {len(frames) - 1} of {header.records} records"))
    records = []
    for number, frame in enumerate(frames[1:], 1):
        records.append(decode_record(frame))
        progress(number, header.records)
    first = records[0] if records else None
    if not isinstance(first, ThreadRecord) or (first.thread_id, first.tenant) != (header.root, header.tenant):
        raise MalformedInput(_DAMAGED.format(why="its header is about another thread"))
    return Archive(header, records)


def _frames(file: Readable) -> list[bytes]:
    """Return what the frames hold, once all of it is proved."""
    digest, frames, total = hashing(FIRST_LINE), [], len(FIRST_LINE)
    while True:
        length = _exactly(file, _LENGTH)
        digest.update(length)
        size = int.from_bytes(length, "big")
        if not size:
            break
        total += _LENGTH + size
        if size > LARGEST_RECORD:
            raise TooLarge("a record of this archive", size, LARGEST_RECORD, "LARGEST_RECORD")
        if total > LARGEST_ARCHIVE:
            raise TooLarge("this archive", total, LARGEST_ARCHIVE, "LARGEST_ARCHIVE")
        frame = _exactly(file, size)
        digest.update(frame)
        frames.append(frame)
    if _exactly(file, _SHA256) != digest.digest():
        raise MalformedInput(_DAMAGED.format(why="its checksum does not fit"))
    if file.read(1):
        raise MalformedInput(_DAMAGED.format(why="something follows its end"))
    return frames


def _exactly(file: Readable, size: int) -> bytes:
    data = file.read(size)
    if len(data) < size:
        raise MalformedInput(_DAMAGED.format(why="its end is missing"))
    return data


def _header(data: bytes) -> Header:
    try:
        found = _format_decoder.decode(data).format
        if found > FORMAT:
            raise StoreFormatTooNew(
                f"this archive has format {found} and this version reads up to {FORMAT}; import it with the version "
                "that wrote it, or a newer one"
            )
        return _header_decoder.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise MalformedInput(_DAMAGED.format(why=f"its header cannot be read: {error}")) from error
