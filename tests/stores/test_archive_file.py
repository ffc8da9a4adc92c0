"""Trees as files: whole to the last byte, or refused."""

import io
from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace

from hibernaut.codec import pack, sha256
from hibernaut.errors import MalformedInput, StoreFormatTooNew, TooLarge
from hibernaut.kernel.commit import Blob
from hibernaut.messages.inputs import InputMessage, UserText
from hibernaut.messages.parts import Excerpt
from hibernaut.stores import archive, archive_file
from hibernaut.stores.archive import CommitRecord, EffectRecord, ThreadRecord, bounded, decode_effect, decode_record
from hibernaut.stores.archive_file import FIRST_LINE, Archive, Header, archive_of, read_archive, write_archive
from hibernaut.stores.memory import MemoryStore
from tests.store_conformance.scenario import START, after, claim_one, invoke, names, new_thread, user


async def an_archive() -> Archive:
    store = MemoryStore()
    blob = Blob(sha256(b"blob"), b"blob")
    said = InputMessage("large", "t", UserText((Excerpt("…", blob.digest, 4),)))
    await store.create([new_thread(tenant="x")], [user("m1")], START)
    claim = await claim_one(store)
    await store.commit(claim, after(claim, effects=(invoke("r1"),)))
    await store.put([said], START, blobs=[blob])
    await store.freeze("t")
    return archive_of(await store.export_tree("t", START), ["a key"])


def written(tree: Archive) -> bytes:
    file = io.BytesIO()
    assert write_archive(tree, file) == len(file.getvalue())
    return file.getvalue()


def framed(*values: object) -> bytes:
    """Write a file that is proper as far as its checksum goes."""
    data = FIRST_LINE
    for body in map(pack, values):
        data += len(body).to_bytes(4, "big") + body
    data += bytes(4)
    return data + sha256(data)


async def test_an_archive_is_read_as_it_was_written() -> None:
    tree = await an_archive()
    told: list[tuple[int, int]] = []
    data = written(tree)
    assert read_archive(io.BytesIO(data), lambda done, total: told.append((done, total))) == tree
    count = len(tree.records)
    assert told == [(number, count) for number in range(1, count + 1)]
    assert (tree.header.root, tree.header.tenant, tree.header.keys) == ("t", "x", ("a key",))
    assert tree.header.counts == {"thread": 1, "commit": 1, "message": 1, "known": 1, "effect": 1, "blob": 1}
    assert data == framed(tree.header, *tree.records)


async def test_an_archive_of_format_1_is_read_for_ever() -> None:
    old = read_archive(io.BytesIO((Path(__file__).parent / "fixtures" / "format-1.archive").read_bytes()))
    new = await an_archive()
    assert old.header == new.header
    for was, now in zip(old.records, new.records, strict=True):
        if isinstance(was, EffectRecord) and isinstance(now, EffectRecord):  # effects may have more fields now
            assert decode_effect(was) == decode_effect(now)
        else:
            assert was == now
    store = MemoryStore()
    assert await store.import_tree(old.records) == 1
    assert await store.thaw("t") == 1
    assert names((await claim_one(store)).messages) == ["large"]


async def test_an_archive_that_is_cut_off_anywhere_is_refused() -> None:
    data = written(await an_archive())
    for size in range(len(data)):
        with pytest.raises(MalformedInput):
            read_archive(io.BytesIO(data[:size]))


async def test_an_archive_with_a_byte_altered_anywhere_is_refused() -> None:
    data = written(await an_archive())
    for place in range(len(data)):
        altered = bytearray(data)
        altered[place] ^= 0x20
        with pytest.raises((MalformedInput, TooLarge)):
            read_archive(io.BytesIO(bytes(altered)))


async def test_an_archive_that_something_follows_is_refused() -> None:
    with pytest.raises(MalformedInput, match="something follows its end"):
        read_archive(io.BytesIO(written(await an_archive()) + b"\n"))


@pytest.mark.parametrize("data", [b"", b"SQLite format 3\0", b"{}" * 100])
def test_what_is_no_archive_is_refused(data: bytes) -> None:
    with pytest.raises(MalformedInput, match="no archive"):
        read_archive(io.BytesIO(data))


async def test_an_archive_of_a_newer_version_is_refused_by_its_name() -> None:
    tree = await an_archive()
    newer = {**msgspec.structs.asdict(tree.header), "format": 2, "root": 7}
    with pytest.raises(StoreFormatTooNew, match="format 2"):
        read_archive(io.BytesIO(framed(newer, ["what is that", 1])))


async def test_what_a_newer_version_added_to_the_header_or_a_record_is_left_aside() -> None:
    tree = await an_archive()
    header = {**msgspec.structs.asdict(tree.header), "made": "yesterday"}
    records = [msgspec.msgpack.decode(pack(record)) for record in tree.records]
    records[0].append("more")
    assert read_archive(io.BytesIO(framed(header, *records))) == tree


async def test_an_archive_whose_header_does_not_fit_is_refused() -> None:
    tree = await an_archive()
    broken: list[tuple[object, ...]] = [
        (),
        ("no header",),
        (tree.header, *tree.records[:-1]),
        (tree.header, *tree.records, tree.records[-1]),
        (replace(tree.header, root="other"), *tree.records),
        (replace(tree.header, tenant=""), *tree.records),
        (Header("t", "x", 0, {}),),
        (replace(tree.header, records=1), ["unheard of"]),
        (replace(tree.header, records=1), CommitRecord(1, b"", b"")),
    ]
    for values in broken:
        with pytest.raises(MalformedInput):
            read_archive(io.BytesIO(framed(*values)))


async def test_lengths_are_bounded_before_anything_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(TooLarge, match="LARGEST_RECORD"):
        read_archive(io.BytesIO(FIRST_LINE + b"\xff\xff\xff\xff"))
    tree = await an_archive()
    data = written(tree)
    monkeypatch.setattr(archive_file, "LARGEST_ARCHIVE", len(data) - 40)
    with pytest.raises(TooLarge, match="LARGEST_ARCHIVE"):
        read_archive(io.BytesIO(data))
    monkeypatch.setattr(archive_file, "LARGEST_RECORD", 10)
    with pytest.raises(TooLarge, match="LARGEST_RECORD"):
        written(tree)


def test_a_tree_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archive, "LARGEST_TREE", 10)
    assert len(bounded([CommitRecord(1, b"12345", b"12345")])) == 1
    with pytest.raises(TooLarge, match="LARGEST_TREE"):
        bounded([CommitRecord(1, b"12345", b"12345"), CommitRecord(2, b"1", b"")])


def test_a_record_with_a_status_or_an_urgency_that_there_is_not_is_refused() -> None:
    thread = ThreadRecord("t", "", "", "", 1, 1, 0, "open", None, 0, b"")
    assert decode_record(pack(thread)) == thread
    for data in (
        pack(["thread", "t", "", "", "", 1, 1, 0, "merry", None, 0, b""]),
        pack(["message", "m", 1, 1, 9, False, b""]),
        b"\xc1",
    ):
        with pytest.raises(MalformedInput):
            decode_record(data)
    with pytest.raises(MalformedInput, match="begins with its root"):
        archive_of([CommitRecord(1, b"", b"")])
