"""A tree of threads as records: all that stores keep of it, whatever kind of store that is.

What threads, commits, messages and effects hold is carried as the bytes that were stored, so what a newer version added
to them survives. Whose engine worked on what is not carried: engines belong to a store. The same tree gives the same
records in every store, so that two copies can be compared.

A further kind of record is a class here, a line in `Record`, and a place in the export and the import of each store.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from hashlib import sha256 as hashing
from typing import Annotated, Final

import msgspec
from msgspec.structs import astuple, replace

from hibernaut.codec import decoder_of, pack, sha256
from hibernaut.errors import MalformedInput, NotAtRest, StoreCorrupt, TooLarge
from hibernaut.kernel.commit import Effect
from hibernaut.kernel.head import Status
from hibernaut.messages.inputs import UPKEEP, USER, Event, ToolResult, decode_input
from hibernaut.stores.protocol import EffectState
from hibernaut.stores.references import digests_in

LARGEST_TREE: Final = 1 << 30
"""Bytes of a tree that is moved, at most: it is in memory meanwhile."""

_DIGEST: Final = 16
"""Bytes that a message id is known by; see `hibernaut.stores.known`."""


class _Record(msgspec.Struct, frozen=True, array_like=True, gc=False):
    pass


class ThreadRecord(_Record, frozen=True, tag="thread"):
    """A thread. The records of what belongs to it follow it; its parent stands before it."""

    thread_id: str
    tenant: str
    parent: str
    root: str
    created: int
    updated: int
    version: int
    status: Status
    continues: int | None
    """The moment of its last commit, if that said that the thread continues."""
    asking: int
    head: bytes


class ForkRecord(_Record, frozen=True, tag="fork"):
    """The thread is a fork: its history begins with a part of this one's, which is not carried along."""

    origin: str


class CommitRecord(_Record, frozen=True, tag="commit"):
    """One commit of the thread, as it stands in its log."""

    version: int
    page: bytes
    receipt: bytes


class MessageRecord(_Record, frozen=True, tag="message"):
    """A message in the thread's inbox, in the order they were stored. What is not due yet is a timer."""

    message_id: str
    accepted: int
    due: int
    urgency: Annotated[int, msgspec.Meta(ge=USER, le=UPKEEP)]
    deferred: bool
    body: bytes


class KnownRecord(_Record, frozen=True, tag="known"):
    """The digests of all message ids that the thread knows, sorted, end to end: what comes again is a duplicate."""

    digests: bytes


class EffectRecord(_Record, frozen=True, tag="effect"):
    """An effect of the thread that is not settled. `cancels`: the call that it cancels, "" for an invocation."""

    request_id: str
    state: EffectState
    created: int
    cancels: str
    body: bytes


class ViewRecord(_Record, frozen=True, tag="view"):
    """What people see beside the thread, of one kind."""

    view_type: str
    content: str
    updated: int


class ConfigRecord(_Record, frozen=True, tag="config"):
    """A launch configuration, by its SHA-256."""

    digest: bytes
    body: bytes


class BlobRecord(_Record, frozen=True, tag="blob"):
    """Bytes that something in the tree refers to, by their SHA-256."""

    digest: bytes
    data: bytes


Record = (
    ThreadRecord
    | ForkRecord
    | CommitRecord
    | MessageRecord
    | KnownRecord
    | EffectRecord
    | ViewRecord
    | ConfigRecord
    | BlobRecord
)

_record_decoder: msgspec.msgpack.Decoder[Record] = msgspec.msgpack.Decoder(Record)
_effect_decoder = decoder_of(Effect)


def decode_record(data: bytes) -> Record:
    """Read a record.

    Raises:
        MalformedInput: it is none.
    """
    try:
        return _record_decoder.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise MalformedInput(f"a record of an archive cannot be read: {error}") from error


def kind_of(record: Record) -> str:
    """Return the kind of a record."""
    return str(record.__struct_config__.tag)


def size_of(record: Record) -> int:
    """Return how many bytes a record carries."""
    return sum(len(value) for value in astuple(record) if isinstance(value, bytes | str))


def digest_of(records: Iterable[Record]) -> bytes:
    """Return the SHA-256 of a tree's records. It changes with whatever changes in the tree."""
    digest = hashing()
    for record in records:
        data = pack(record)
        digest.update(len(data).to_bytes(8, "big"))
        digest.update(data)
    return digest.digest()


def bounded(records: Iterable[Record]) -> list[Record]:
    """Return records as a list.

    Raises:
        TooLarge: they hold more than `LARGEST_TREE`.
    """
    kept, size = [], 0
    for record in records:
        size += size_of(record)
        if size > LARGEST_TREE:
            raise TooLarge("the tree", size, LARGEST_TREE, "LARGEST_TREE")
        kept.append(record)
    return kept


class ThreadContents(msgspec.Struct):
    """A thread, and what belongs to it."""

    thread: ThreadRecord
    fork_of: str = ""
    commits: list[CommitRecord] = []
    messages: list[MessageRecord] = []
    known: set[bytes] = set()
    effects: list[EffectRecord] = []
    views: list[ViewRecord] = []


class TreeContents(msgspec.Struct):
    """A tree that is whole: every record is about a thread of it."""

    threads: list[ThreadContents] = []
    """Parents before their children, the root first."""
    configs: list[ConfigRecord] = []
    blobs: list[BlobRecord] = []
    missing: set[bytes] = set()
    """What may be digests of blobs and configurations that it refers to, and does not bring."""

    @property
    def names(self) -> list[str]:
        """The ids of the threads."""
        return [contents.thread.thread_id for contents in self.threads]


def contents_of(records: Iterable[Record], reissue: Collection[str] = ()) -> TreeContents:
    """Put records together; effects of the request ids in `reissue` that had been begun are pending again.

    Raises:
        MalformedInput: they are not one whole tree.
    """
    tree, names = TreeContents(), dict[str, None]()
    for record in records:
        if isinstance(record, ThreadRecord):
            _check_place(record, names)
            names[record.thread_id] = None
            tree.threads.append(ThreadContents(record))
        elif isinstance(record, ConfigRecord):
            _check_digest("a launch configuration", record.digest, record.body)
            tree.configs.append(record)
        elif isinstance(record, BlobRecord):
            _check_digest("a blob", record.digest, record.data)
            tree.blobs.append(record)
        elif not tree.threads:
            raise MalformedInput(f"the tree is not whole: a {kind_of(record)} stands before any thread")
        elif isinstance(record, EffectRecord):
            tree.threads[-1].effects.append(_reissued(record) if record.request_id in reissue else record)
        else:
            _add(tree.threads[-1], record)
    if not tree.threads:
        raise MalformedInput("the tree is not whole: it has no thread")
    for contents in tree.threads:
        name, version, commits = contents.thread.thread_id, contents.thread.version, contents.commits
        if [commit.version for commit in commits] != list(range(1, version + 1)):
            raise MalformedInput(f"the tree is not whole: thread {name!r} has {len(commits)} of {version} commits")
    brought = {record.digest for record in tree.configs} | {record.digest for record in tree.blobs}
    tree.missing = digests_in(_referring(tree)) - brought
    return tree


def check_brings(there: Iterable[bytes]) -> None:
    """Refuse a tree that refers to what it does not bring and the store has: it would be handed somebody else's.

    Raises:
        MalformedInput: there is such a digest.
    """
    if (digest := next(iter(there), None)) is not None:
        raise MalformedInput(f"the tree is not whole: it refers to {digest.hex()[:12]} and does not bring it")


def _referring(tree: TreeContents) -> Iterator[bytes]:
    for contents in tree.threads:
        yield contents.thread.head
        yield from (commit.page for commit in contents.commits)
        yield from (message.body for message in contents.messages)


def _add(
    contents: ThreadContents, record: ForkRecord | CommitRecord | MessageRecord | KnownRecord | ViewRecord
) -> None:
    if isinstance(record, ForkRecord):
        contents.fork_of = record.origin
    elif isinstance(record, CommitRecord):
        contents.commits.append(record)
    elif isinstance(record, MessageRecord):
        contents.messages.append(record)
    elif isinstance(record, ViewRecord):
        contents.views.append(record)
    else:
        digests = record.digests
        contents.known.update(digests[at : at + _DIGEST] for at in range(0, len(digests), _DIGEST))


def _check_place(record: ThreadRecord, names: Mapping[str, None]) -> None:
    name, root = record.thread_id, next(iter(names), None)
    fits = record.parent in names and record.root == root if names else not (record.parent or record.root)
    if name in names or not fits:
        raise MalformedInput(f"the tree is not whole: thread {name!r} has no place in it")


def _check_digest(what: str, digest: bytes, data: bytes) -> None:
    if sha256(data) != digest:
        raise MalformedInput(f"the tree is not whole: {what} is not what its digest says")


def _reissued(record: EffectRecord) -> EffectRecord:
    return record if record.state == "pending" else replace(record, state="pending")


def decode_effect(record: EffectRecord) -> Effect:
    """Read an effect.

    Raises:
        MalformedInput: it cannot be read.
    """
    try:
        return _effect_decoder.decode(record.body)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise MalformedInput(f"the effect {record.request_id} cannot be read: {error}") from error


def packed_known(digests: Iterable[bytes]) -> KnownRecord:
    """Return the record of what a thread knows."""
    return KnownRecord(b"".join(sorted(digests)))


def check_rest(thread_id: str, performed: Sequence[tuple[str, str]], inbox: Iterable[bytes]) -> None:
    """Check that nothing works for a thread any more inside a living engine.

    `performed`: request id and tool of the effects that such an engine has begun; one whose result has come is over.

    Raises:
        NotAtRest: a tool is at work.
    """
    if not performed:
        return
    over = set()
    for body in inbox:
        try:
            content = decode_input(body).content
        except StoreCorrupt:
            continue
        if (isinstance(content, ToolResult) and not content.subscription) or (
            isinstance(content, Event) and content.final
        ):
            over.add(content.call_id)
    working = [f"{tool} ({request_id})" for request_id, tool in performed if request_id not in over]
    if working:
        raise NotAtRest(
            f"for thread {thread_id!r} something is at work in an engine: {', '.join(working)}; wait until it is done, "
            "or stop that engine"
        )


def no_origin(thread_id: str, origin: str) -> MalformedInput:
    """Return the error for a fork without the thread whose history it begins with."""
    return MalformedInput(
        f"thread {thread_id!r} is a fork of {origin!r}, which this tenant does not have here; import that one before it"
    )


def not_frozen(thread_id: str) -> NotAtRest:
    """Return the error for a tree that was not frozen before it was to be taken away."""
    return NotAtRest(f"thread {thread_id!r} is not frozen, so what it holds may still change; freeze its tree first")
