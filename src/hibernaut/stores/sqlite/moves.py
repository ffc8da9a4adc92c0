"""How the store freezes trees, and how it takes them in and gives them away as records, inside a transaction."""

from array import array
from collections.abc import Iterator, Sequence

import apsw

from hibernaut.codec import decoder_of, unpack
from hibernaut.errors import MalformedInput, ThreadExists, UnknownThread
from hibernaut.kernel.commit import Effect
from hibernaut.stores.archive import (
    BlobRecord,
    CommitRecord,
    ConfigRecord,
    EffectRecord,
    ForkRecord,
    MessageRecord,
    Record,
    ThreadContents,
    ThreadRecord,
    TreeContents,
    ViewRecord,
    bounded,
    check_brings,
    check_rest,
    digest_of,
    no_origin,
    not_frozen,
    packed_known,
)
from hibernaut.stores.known import digest_of as message_digest
from hibernaut.stores.protocol import URGENCY_PENALTY, EffectState
from hibernaut.stores.references import digests_in
from hibernaut.stores.sqlite import pages
from hibernaut.stores.sqlite.claims import DeadFinder
from hibernaut.stores.sqlite.commits import NOWHERE
from hibernaut.stores.sqlite.deliveries import find_origin
from hibernaut.stores.sqlite.lanes import NOBODY, STATUSES, reschedule
from hibernaut.stores.sqlite.transaction import Transaction
from hibernaut.stores.sqlite.trees import contents, delete, members

STATES: tuple[EffectState, ...] = ("pending", "sent", "accepted")

PIECE = 200
"""Commits that are read in one go."""

_effect_decoder = decoder_of(Effect)


def freeze(tx: Transaction, root: str, tenant: str | None) -> int:
    """Let nothing run in a tree; return how many threads were not frozen before."""
    threads = members(tx, root, tenant)
    if not threads:
        return 0
    numbers = apsw.carray(array("q", threads))
    tx.run("freeze", (numbers,))
    frozen: int = tx.changes()
    tx.run("orphan_pending", (numbers,))
    return frozen


def thaw(tx: Transaction, root: str, tenant: str | None) -> int:
    """Let a frozen tree go on; return how many threads were frozen."""
    threads = members(tx, root, tenant)
    frozen = tx.rows("frozen", (apsw.carray(array("q", threads)),)) if threads else []
    for thread, status, continues, thread_id in frozen:
        urgency = reschedule(tx, thread, status, continues)
        if urgency is not None:
            tx.hints.append((thread_id, urgency))
    return len(frozen)


def export_tree(tx: Transaction, root: str, now: int, find_dead: DeadFinder) -> list[Record]:
    """Return the records of a tree at rest."""
    threads = members(tx, root)
    if not threads:
        raise UnknownThread(root)
    if (moving := tx.first("not_frozen", (apsw.carray(array("q", threads)),))) is not None:
        raise not_frozen(moving[0])
    dead = apsw.carray(array("q", [NOBODY, *find_dead(tx, "performers", NOBODY, now)]))
    for thread in threads:
        effects = [unpack(data, _effect_decoder, "an effect") for (data,) in tx.rows("begun", (thread, dead))]
        if effects:
            performed = [(effect.request_id, effect.tool) for effect in effects]
            check_rest(root, performed, (row[-1] for row in tx.rows("export_inbox", (thread,))))
    return bounded(_records(tx, threads))


def delete_unchanged(
    tx: Transaction, root: str, digest: bytes, tenant: str | None, note: tuple[str, bytes] | None
) -> int:
    """Remove a tree that is frozen and whose records have this digest; return how many threads went."""
    threads = members(tx, root, tenant)
    if not threads or tx.first("not_frozen", (apsw.carray(array("q", threads)),)) is not None:
        return 0
    return delete(tx, root, tenant, note) if digest_of(_records(tx, threads)) == digest else 0


def _records(tx: Transaction, threads: Sequence[int]) -> Iterator[Record]:
    referred: set[bytes] = set()
    for number, fork_of, *facts in tx.rows("export_threads", (apsw.carray(array("q", threads)),)):
        thread_id, tenant, parent, root, created, updated, version, status, continues, asking, head = facts
        place, moments = (parent or "", root or ""), (created, updated)
        yield ThreadRecord(thread_id, tenant, *place, *moments, version, STATUSES[status], continues, asking, head)
        if fork_of is not None:
            yield ForkRecord(fork_of)
        yield from _commits(tx, number)
        for message_id, accepted, due, urgency, deferred, body in tx.rows("export_inbox", (number,)):
            yield MessageRecord(message_id, accepted, due, urgency, bool(deferred), body)
        if known := [digest for (digest,) in tx.rows("export_known", (number,))]:
            yield packed_known(known)
        for request_id, state, made, cancels, body in tx.rows("export_effects", (number,)):
            yield EffectRecord(request_id, STATES[state], made, cancels, body)
        yield from (ViewRecord(*row) for row in tx.rows("export_views", (number,)))
        referred |= digests_in((head,))
        referred |= digests_in(contents(tx, number))
    for digest in sorted(referred):
        if (row := tx.first("read_config", (digest,))) is not None:
            yield ConfigRecord(digest, row[0])
    for digest in sorted(referred):
        if (row := tx.first("read_blob", (digest,))) is not None:
            yield BlobRecord(digest, row[0])


def _commits(tx: Transaction, thread: int) -> Iterator[CommitRecord]:
    version = 0
    while rows := pages.read(tx.rows("export_log", (thread, version, PIECE))):
        yield from (CommitRecord(*row) for row in rows)
        version = rows[-1][0]


def import_tree(tx: Transaction, tree: TreeContents) -> int:
    """Make a tree from its records, frozen; return how many threads it has."""
    names = apsw.carray(tuple(name.encode() for name in tree.names))
    if (there := tx.first("existing_thread", (names,))) is not None:
        raise ThreadExists(there[0])
    effects = [record.request_id.encode() for one in tree.threads for record in one.effects]
    if effects and (there := tx.first("existing_effect", (apsw.carray(tuple(effects)),))) is not None:
        raise MalformedInput(f"the effect {there[0]} is that of another thread here")
    if tree.missing:
        missing = apsw.carray(tuple(tree.missing))
        check_brings(digest for (digest,) in tx.rows("configs_of", (missing,)) + tx.rows("blobs_of", (missing,)))
    for config in tree.configs:
        tx.run("add_config", (config.digest, config.body))
    for blob in tree.blobs:
        tx.run("add_blob", (blob.digest, blob.data))
    numbers: dict[str, int] = {}
    for one in tree.threads:
        _add(tx, one, numbers)
    return len(numbers)


def _add(tx: Transaction, one: ThreadContents, numbers: dict[str, int]) -> None:
    record = one.thread
    place = (numbers.get(record.parent), numbers.get(record.root))
    state = (record.version, STATUSES.index(record.status), record.continues, record.asking)
    moments = (record.created, record.updated)
    number: int = tx.first("import_thread", (record.thread_id, record.tenant, *moments, *state, *place))[0]
    numbers[record.thread_id] = number
    if one.fork_of:
        if (origin := find_origin(tx, one.fork_of, record.tenant)) is None:
            raise no_origin(record.thread_id, one.fork_of)
        tx.run("set_fork", (number, origin))
    tx.run("add_head", (number, record.head))
    pages = [(commit, *tx.pages.written(commit.page)) for commit in one.commits]
    tx.many("add_commit", [(number, commit.version, page, packed, commit.receipt) for commit, page, packed in pages])
    messages, known = [], []
    for spot, message in enumerate(one.messages, (number << 32) + 1):
        rank = message.due + URGENCY_PENALTY[message.urgency]
        arrived = (message.urgency, int(message.deferred), message.accepted, message.message_id, message.body)
        messages.append((spot, message.due, rank, *arrived))
        known.append((number, message_digest(message.message_id), spot))
    tx.many("import_message", messages)
    tx.many("learn_message", [*known, *[(number, digest, NOWHERE) for digest in one.known]])
    for view in one.views:
        tx.run("put_view", (number, view.view_type, view.content, view.updated))
    for effect in one.effects:
        owed = (effect.created, effect.request_id, effect.cancels or None, effect.body)
        tx.run("import_effect", (number, STATES.index(effect.state), *owed))
