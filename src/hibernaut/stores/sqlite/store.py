"""The embedded store: everything in one SQLite file, for one process or for several on one machine.

What a method did is synced to the disk before it returns. One thread writes, whatever is waiting in one transaction;
another reads. After a crash the file holds every transaction that was acknowledged, and the others whole or not at all.
A waiting thread costs its rows and stands in no index but the one that finds it.
"""

import asyncio
import logging
import os
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from hashlib import blake2b
from typing import Any, Self, TypeVar

import apsw

from hibernaut.codec import decoder_of, pack, sha256, unpack
from hibernaut.errors import StoreBusy, StoreCorrupt, StoreError
from hibernaut.kernel.commit import Blob, Effect, NewThread, SliceCommit
from hibernaut.kernel.head import Status
from hibernaut.messages.inputs import Delivered, InputMessage, decode_input, encode_input, urgency
from hibernaut.stores.archive import Record, contents_of
from hibernaut.stores.protocol import (
    Claim,
    EffectRow,
    LogRow,
    Outcome,
    Owner,
    Round,
    StoreCounts,
    ThreadRow,
    ViewRow,
    check_note,
)
from hibernaut.stores.sqlite import beside, claims, commits, deliveries, effects, moves, reads, trees
from hibernaut.stores.sqlite.claims import DeadFinder, Granted, StoredMessage
from hibernaut.stores.sqlite.commits import Digested
from hibernaut.stores.sqlite.deliveries import Letter, Put
from hibernaut.stores.sqlite.lanes import STATUSES
from hibernaut.stores.sqlite.moves import STATES
from hibernaut.stores.sqlite.opening import Opened, open_file
from hibernaut.stores.sqlite.reader import Reader
from hibernaut.stores.sqlite.transaction import Transaction
from hibernaut.stores.sqlite.writer import Part, Writer

logger = logging.getLogger(__name__)

BUSY_TIMEOUT = 10_000
"""Milliseconds that a write waits for other processes before it is refused as `StoreBusy`."""

_effect_decoder = decoder_of(Effect)

T = TypeVar("T")


class SqliteStore:
    """Keeps threads in one file. Made by `open`; belongs to the event loop on which it was opened."""

    def __init__(self, opened: Opened, busy_timeout: int, *, compress: bool = True) -> None:
        self.path = opened.path
        self._hints: dict[object, Callable[[str, int], None]] = {}
        self._writer = Writer(opened.writer, opened.path, busy_timeout / 1000, self._tell, compress=compress)
        self._reader = Reader(opened.reader, opened.path, busy_timeout / 1000)
        self._find_dead = DeadFinder()
        self._secret = b""
        self._seen: int | None = None
        self._closing: asyncio.Task[None] | None = None

    @classmethod
    async def open(
        cls, path: str | os.PathLike[str], *, busy_timeout: int = BUSY_TIMEOUT, compress: bool = True
    ) -> Self:
        """Open the store in a file, making it when there is none; its directory must exist.

        With `compress`, pages that are written from now on are packed. What is there is read however it was written.

        Raises:
            StoreFormatTooNew: a newer version of Hibernaut has written it.
            StoreCorrupt: it is damaged, or no store.
            StoreError: it cannot be had, or is another program's.
        """
        opened = await asyncio.to_thread(open_file, path, busy_timeout)
        store = cls(opened, busy_timeout, compress=compress)
        await store.changed_elsewhere()
        return store

    @property
    def transactions(self) -> int:
        """Transactions that this store has made durable."""
        return self._writer.transactions

    async def create(
        self,
        threads: Sequence[NewThread],
        messages: Sequence[InputMessage],
        now: int,
        *,
        blobs: Sequence[Blob] = (),
        tenant: str | None = None,
    ) -> list[Outcome]:
        threads, letters = tuple(threads), [_letter(message, now, now) for message in messages]
        blobs = tuple(blobs)
        return await self._write(lambda tx: deliveries.create(tx, threads, letters, blobs, tenant))

    async def put(
        self,
        messages: Sequence[InputMessage],
        now: int,
        *,
        due: int = 0,
        blobs: Sequence[Blob] = (),
        tenant: str | None = None,
    ) -> list[Outcome]:
        letters, blobs = [_letter(message, now, due or now) for message in messages], tuple(blobs)
        return await self._write(Part(deliveries.put_all, Put(letters, blobs, tenant)))

    async def knows(self, thread_id: str, message_id: str) -> bool:
        known = await self._read(lambda tx: tx.first("knows", (thread_id, _digest(message_id))))
        return known is not None

    async def put_view(self, thread_id: str, view_type: str, content: str, now: int) -> Outcome:
        return await self._write(lambda tx: beside.put_view(tx, thread_id, view_type, content, now))

    async def read_views(self, thread_id: str) -> list[ViewRow]:
        return [ViewRow(*row) for row in await self._read(lambda tx: tx.rows("read_views", (thread_id,)))]

    async def claim(
        self, owner: Owner, now: int, limit: int, *, threads: Sequence[str] | None = None, tenant: str | None = None
    ) -> list[Claim]:
        among = None if threads is None else tuple(threads)
        granted: list[Granted] = await self._write(
            lambda tx: claims.claim(tx, owner, now, limit, among, tenant, self._find_dead),
            abandoned=self._give_back,
        )
        return [_claim(one) for one in granted]

    async def take(self, claim: Claim, now: int) -> tuple[Delivered, ...]:
        return _delivered(await self._read(lambda tx: claims.take(tx, claim, now)))

    async def commit(self, claim: Claim, commit: SliceCommit, *, keep: bool = False) -> None:
        (refused,) = await self.commit_all([Round(claim, commit, keep)])
        if refused is not None:
            raise refused

    async def commit_all(self, rounds: Sequence[Round]) -> list[Exception | None]:
        ready = [(one.claim, _digested(one.commit), one.keep) for one in rounds]
        try:
            return await self._write(Part(commits.commit_several, ready))
        except StoreBusy as busy:  # all have waited as long as one may
            return [busy] * len(ready)
        except Exception as error:  # noqa: BLE001  # it is handed to whose rounds these were
            if len(ready) == 1:
                return [error]
        # One of them fails the others: each by itself, and none after the other.
        alone = [self._write(Part(commits.commit_several, [one])) for one in ready]
        ends = await asyncio.gather(*alone, return_exceptions=True)
        return [end[0] if isinstance(end, list) else _as_refusal(end) for end in ends]

    async def release(self, claim: Claim, not_before: int = 0) -> None:
        await self._write(lambda tx: claims.release(tx, claim, not_before))

    async def beat(self, owner: Owner, now: int) -> None:
        await self._write(lambda tx: claims.beat(tx, owner, now))

    async def leave(self, owner: Owner) -> None:
        await self._write(lambda tx: claims.leave(tx, owner))

    async def living_engines(self, now: int) -> list[str]:
        return await self._read(lambda tx: reads.living_engines(tx, now, self._find_dead))

    async def start_effects(self, owner: Owner, request_ids: Sequence[str]) -> list[str]:
        return await self._write(Part(effects.start_effects, (owner, tuple(request_ids))))

    async def accept_effects(self, request_ids: Sequence[str]) -> None:
        ids = tuple(request_ids)
        await self._write(lambda tx: effects.accept_effects(tx, ids))

    async def settle_effects(self, request_ids: Sequence[str], *, thread_id: str | None = None) -> None:
        ids = tuple(request_ids)
        await self._write(lambda tx: effects.settle_effects(tx, ids, thread_id))

    async def adopt_effects(
        self, owner: Owner, now: int, limit: int, *, threads: Sequence[str] | None = None, tenant: str | None = None
    ) -> list[EffectRow]:
        rows = await self._write(
            lambda tx: effects.adopt_effects(tx, owner, now, limit, threads, tenant, self._find_dead)
        )
        return [_effect_row(row, owner.engine_id) for row in rows]

    async def next_due(self, now: int) -> int | None:
        return await self._read(lambda tx: reads.next_due(tx, now, self._find_dead))

    async def read_head(self, thread_id: str) -> ThreadRow | None:
        row = await self._read(lambda tx: tx.first("read_thread", (thread_id,)))
        return None if row is None else _thread_row(row)

    async def read_heads(self, thread_ids: Sequence[str]) -> dict[str, tuple[Status, bytes]]:
        names = tuple({thread_id.encode() for thread_id in thread_ids})
        rows = await self._read(lambda tx: tx.rows("read_heads", (apsw.carray(names),))) if names else []
        return {thread_id: (STATUSES[status], head) for thread_id, status, head in rows}

    async def read_log(self, thread_id: str, after: int = 0, limit: int = 0) -> list[LogRow]:
        return [LogRow(*row) for row in await self._read(lambda tx: reads.read_log(tx, thread_id, after, limit))]

    async def read_inbox(self, thread_id: str) -> tuple[Delivered, ...]:
        return _delivered(await self._read(lambda tx: reads.read_inbox(tx, thread_id)))

    async def read_effects(self, thread_id: str | None = None) -> list[EffectRow]:
        rows = await self._read(lambda tx: reads.read_effects(tx, thread_id))
        return [_effect_row(row, row[4] or "") for row in rows]

    async def accepted_effects(
        self, before: int, after: str = "", limit: int = 1_000, *, tenant: str | None = None
    ) -> list[EffectRow]:
        rows = await self._read(lambda tx: reads.accepted_effects(tx, before, after, limit, tenant))
        return [_effect_row(row, row[4] or "") for row in rows]

    async def cancellations(self, owner: Owner) -> list[EffectRow]:
        rows = await self._read(lambda tx: tx.rows("cancellations", (owner.engine_id,)))
        return [_effect_row(row, row[4] or "") for row in rows]

    async def read_config(self, digest: bytes) -> bytes | None:
        return await self._read(lambda tx: reads.read_content(tx, "read_config", digest))

    async def read_blob(self, digest: bytes) -> bytes | None:
        return await self._read(lambda tx: reads.read_content(tx, "read_blob", digest))

    async def list_threads(
        self,
        tenant: str | None = None,
        *,
        limit: int = 100,
        before: tuple[int, str] | None = None,
        roots: bool = False,
    ) -> list[ThreadRow]:
        rows = await self._read(lambda tx: reads.list_threads(tx, tenant, limit, before, roots=roots))
        return [_thread_row(row) for row in rows]

    async def list_asking(
        self, tenant: str | None = None, *, root: str | None = None, limit: int = 100
    ) -> list[ThreadRow]:
        rows = await self._read(lambda tx: trees.list_asking(tx, tenant, root, limit))
        return [_thread_row(row) for row in rows]

    async def read_tree(self, root: str, *, living: bool = False) -> list[ThreadRow]:
        return [_thread_row(row) for row in await self._read(lambda tx: trees.read_tree(tx, root, living=living))]

    async def read_forks(self, root: str) -> list[str]:
        return await self._read(lambda tx: trees.read_forks(tx, root))

    async def count_living(self, root: str) -> int:
        row = await self._read(lambda tx: tx.first("count_living", (root,)))
        return int(row[0])

    async def freeze(self, root: str, *, tenant: str | None = None) -> int:
        return await self._write(lambda tx: moves.freeze(tx, root, tenant))

    async def thaw(self, root: str, *, tenant: str | None = None) -> int:
        return await self._write(lambda tx: moves.thaw(tx, root, tenant))

    async def export_tree(self, root: str, now: int) -> list[Record]:
        return await self._read(lambda tx: moves.export_tree(tx, root, now, self._find_dead))

    async def import_tree(self, records: Sequence[Record], *, reissue: Collection[str] = ()) -> int:
        tree = await asyncio.to_thread(contents_of, records, reissue)
        return await self._write(lambda tx: moves.import_tree(tx, tree))

    async def delete(
        self,
        root: str,
        *,
        unchanged: bytes = b"",
        tenant: str | None = None,
        note: tuple[str, bytes] | None = None,
    ) -> int:
        if note is not None:
            check_note(*note)
        if unchanged:
            return await self._write(lambda tx: moves.delete_unchanged(tx, root, unchanged, tenant, note))
        return await self._write(lambda tx: trees.delete(tx, root, tenant, note))

    async def prune(self, before: int, *, tenant: str | None = None) -> int:
        return await self._write(lambda tx: trees.prune(tx, before, tenant))

    async def write_note(self, key: str, value: bytes) -> None:
        check_note(key, value)
        await self._write(lambda tx: tx.run("write_note", (key, value)))

    async def read_note(self, key: str) -> bytes | None:
        return await self._read(lambda tx: reads.read_value(tx, "read_note", key))

    async def add_counts(self, added: Mapping[str, int], greatest: Mapping[str, int]) -> None:
        sums, most = dict(added), dict(greatest)
        await self._write(lambda tx: beside.add_counts(tx, sums, most))

    async def read_counts(self, now: int) -> StoreCounts:
        return await self._read(lambda tx: reads.read_counts(tx, now, self._find_dead))

    async def secret(self) -> bytes:
        if not self._secret:
            secret = await self._read(lambda tx: reads.read_value(tx, "read_meta", "secret"))
            if not secret:
                raise StoreCorrupt(f"{self.path} has lost its secret; put back a copy of it")
            self._secret = secret
        return self._secret

    async def old_secrets(self) -> list[bytes]:
        return [secret for (secret,) in await self._read(lambda tx: tx.rows("old_secrets"))]

    async def keep_secret(self, secret: bytes) -> None:
        name = sha256(secret).hex()
        await self._write(lambda tx: tx.run("keep_secret", (name, secret)))

    async def stored_bytes(self) -> int:
        return await self._read(lambda _: reads.stored_bytes(self.path))

    def on_change(self, hint: Callable[[str, int], None]) -> Callable[[], None]:
        key = object()
        self._hints[key] = hint

        def end() -> None:
            self._hints.pop(key, None)

        return end

    async def changed_elsewhere(self) -> bool:
        seen, self._seen = self._seen, await self._write(reads.data_version, writes=False)
        return seen != self._seen

    async def rest(self) -> bool:
        if self._closing is None:
            await self._writer.rest()
        return False

    async def close(self) -> None:
        if self._closing is None:
            self._closing = asyncio.create_task(self._close())
        await asyncio.shield(self._closing)

    async def _close(self) -> None:
        await self._reader.close()
        await self._writer.close()

    async def _write(
        self,
        work: Callable[[Transaction], T] | Part[Any, T],
        *,
        writes: bool = True,
        abandoned: Callable[[T], None] | None = None,
    ) -> T:
        self._check_open()
        return await self._writer.submit(work, writes=writes, abandoned=abandoned)

    async def _read(self, read: Callable[[Transaction], T]) -> T:
        self._check_open()
        return await self._reader.submit(read)

    def _check_open(self) -> None:
        if self._closing is not None:
            raise StoreError(f"the store {self.path} is closed")

    def _give_back(self, granted: Iterable[Granted]) -> None:
        """Release claims that nobody waited for: whoever asked for them was cancelled."""
        if self._closing is not None:
            return
        for one in granted:
            claim = _claim(one)
            future = self._writer.submit(partial(claims.release, claim=claim, not_before=0))
            future.add_done_callback(_log_failure)

    def _tell(self, thread_id: str, level: int) -> None:
        for hint in tuple(self._hints.values()):
            hint(thread_id, level)


def _log_failure(future: "asyncio.Future[None]") -> None:
    if not future.cancelled() and future.exception() is not None:
        logger.warning("a claim that nobody waited for could not be given back", exc_info=future.exception())


def _as_refusal(error: BaseException) -> Exception:
    """Return why a round was not committed.

    Raises:
        BaseException: it was cancelled, or the like.
    """
    if isinstance(error, Exception):
        return error
    raise error


def _digest(message_id: str) -> bytes:
    return blake2b(message_id.encode(), digest_size=16).digest()


def _letter(message: InputMessage, now: int, due: int) -> Letter:
    name, level = message.message_id, urgency(message.content)
    return Letter(message.thread_id, name, _digest(name), level, due, now, encode_input(message))


def _digested(commit: SliceCommit) -> Digested:
    at = commit.at
    return Digested(
        commit,
        [(name, _digest(name)) for name in commit.consumed],
        [(name, _digest(name)) for name in commit.dropped],
        [(name, _digest(name), moment) for name, moment in commit.deferred],
        [(one.message_id, _digest(one.message_id), encode_input(one)) for one in commit.rewritten],
        [_letter(out.message, at, out.due or at) for out in commit.outgoing],
        [(one.request_id, pack(one), one.call_id if one.kind == "cancel" else None) for one in commit.effects],
    )


def _claim(granted: Granted) -> Claim:
    messages = _delivered(granted.messages)
    return Claim(granted.thread_id, granted.token, granted.tries, granted.version, granted.head, messages)


def _delivered(rows: Iterable[StoredMessage]) -> tuple[Delivered, ...]:
    return tuple([_read_message(*row) for row in rows])


def _read_message(message_id: str, accepted: int, body: bytes, due: int) -> Delivered:
    try:
        return Delivered(message_id, accepted, decode_input(body), due=due)
    except StoreCorrupt as problem:
        return Delivered(message_id, accepted, None, str(problem), due)


def _thread_row(row: Any) -> ThreadRow:
    thread_id, tenant, status, head, created, updated, waiting, parent, root, asking, frozen = row
    place = (parent or "", root or "")
    return ThreadRow(thread_id, tenant, STATUSES[status], head, created, updated, waiting, *place, asking, bool(frozen))


def _effect_row(row: Any, owner: str) -> EffectRow:
    _, effect, thread_id, state, _, created = row
    return EffectRow(unpack(effect, _effect_decoder, "an effect"), thread_id, STATES[state], owner, created)
