"""How the store in memory freezes trees, and how it takes them in and gives them away as records."""

from abc import abstractmethod
from collections.abc import Collection, Container, Iterator, Sequence

from msgspec.structs import replace

from hibernaut.codec import pack
from hibernaut.errors import MalformedInput, StoreCorrupt, ThreadExists, UnknownThread
from hibernaut.kernel.commit import Effect
from hibernaut.messages.inputs import InputMessage, decode_input, encode_input
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
    ViewRecord,
    bounded,
    check_brings,
    check_rest,
    contents_of,
    decode_effect,
    digest_of,
    no_origin,
    not_frozen,
    packed_known,
)
from hibernaut.stores.known import digest_of as message_digest
from hibernaut.stores.known import digests_of, including
from hibernaut.stores.memory_beside import size_of_view
from hibernaut.stores.memory_engines import FROZEN, Engine
from hibernaut.stores.memory_threads import Thread
from hibernaut.stores.memory_trees import MemoryTrees
from hibernaut.stores.protocol import EffectRow, ViewRow
from hibernaut.stores.references import digests_in


class MemoryMoves(MemoryTrees):
    """The part of a store in memory that moves trees; the rest is `hibernaut.stores.memory`."""

    _engines: dict[str, Engine]
    _effects: dict[str, EffectRow]
    _cancels: dict[str, str]
    _old_secrets: dict[bytes, None]
    _views: dict[str, dict[str, ViewRow]]

    @abstractmethod
    def _schedule(self, thread: Thread, now: int = 0) -> None: ...

    @abstractmethod
    def _tell(self) -> None: ...

    @abstractmethod
    def _find_silent(self, now: int) -> None: ...

    @abstractmethod
    def _let_go(self, row: EffectRow) -> None: ...

    @abstractmethod
    def _keep(self, shelf: dict[bytes, bytes], digest: bytes, data: bytes) -> None: ...

    @abstractmethod
    def _restored(self, record: ThreadRecord, inbox: Sequence[tuple[MessageRecord, InputMessage]]) -> Thread: ...

    async def freeze(self, root: str, *, tenant: str | None = None) -> int:
        frozen = [thread for thread in self._tree(root, tenant) if thread.owner is not FROZEN]
        for thread in frozen:
            self._withdraw(thread)
            if thread.owner is not None:
                thread.owner.claims.discard(thread.thread_id)
            thread.owner = FROZEN
            thread.token += 1
            thread.tries = thread.not_before = 0
            for request_id in thread.effects:
                row = self._effects[request_id]
                if row.state == "pending":
                    self._let_go(row)
                    self._orphan(request_id, row)
        return len(frozen)

    async def thaw(self, root: str, *, tenant: str | None = None) -> int:
        frozen = [thread for thread in self._tree(root, tenant) if thread.owner is FROZEN]
        for thread in frozen:
            thread.owner = None
            self._schedule(thread)
        self._tell()
        return len(frozen)

    async def export_tree(self, root: str, now: int) -> list[Record]:
        self._find_silent(now)
        threads = self._tree(root)
        if not threads:
            raise UnknownThread(root)
        for thread in threads:
            if thread.owner is not FROZEN:
                raise not_frozen(thread.thread_id)
            rows = map(self._effects.__getitem__, thread.effects)
            performed = [
                (row.effect.request_id, row.effect.tool)
                for row in rows
                if row.state == "sent" and row.owner in self._engines and not self._engines[row.owner].silent
            ]
            check_rest(thread.thread_id, performed, (encode_input(one.message) for one in thread.inbox or ()))
        return bounded(self._records(threads))

    async def import_tree(self, records: Sequence[Record], *, reissue: Collection[str] = ()) -> int:
        tree = contents_of(records, reissue)
        for name in tree.names:
            if name in self._threads:
                raise ThreadExists(name)
        for one in tree.threads:
            if one.fork_of and not self._has_origin(one.fork_of, one.thread.tenant):
                raise no_origin(one.thread.thread_id, one.fork_of)
        made = [
            (contents, self._restored(contents.thread, _readable(contents)), list(map(decode_effect, contents.effects)))
            for contents in tree.threads
        ]
        if taken := [effect.request_id for _, _, some in made for effect in some if effect.request_id in self._effects]:
            raise MalformedInput(f"the effect {taken[0]} is that of another thread here")
        check_brings(tree.missing & (self._blobs.keys() | self._configs.keys()))
        # All that can fail stands above; from here on it is only moved to its place.
        for config in tree.configs:
            self._keep(self._configs, config.digest, config.body)
        for blob in tree.blobs:
            self._keep(self._blobs, blob.digest, blob.data)
        for contents, thread, effects in made:
            self._place_thread(contents, thread, effects)
        return len(made)

    async def old_secrets(self) -> list[bytes]:
        return list(self._old_secrets)

    async def keep_secret(self, secret: bytes) -> None:
        self._old_secrets[secret] = None

    def _tree(self, root: str, tenant: str | None = None) -> list[Thread]:
        if not self._is_root(root, tenant):
            return []
        return [self._threads[name] for name in self._trees.members(root)]

    def _is_unchanged(self, root: str, digest: bytes) -> bool:
        threads = self._tree(root)
        return all(thread.owner is FROZEN for thread in threads) and digest_of(self._records(threads)) == digest

    def _may_be_adopted(self, thread_id: str, among: Container[str] | None, tenant: str | None) -> bool:
        thread = self._threads[thread_id]
        is_meant = (among is None or thread_id in among) and tenant in (None, thread.tenant)
        return is_meant and thread.owner is not FROZEN

    def _orphan(self, request_id: str, row: EffectRow) -> None:
        """Let an effect be nobody's."""
        self._effects[request_id] = replace(row, owner="")
        nobody = self._engines.setdefault("", Engine("", "", 0, set(), {}, silent=True))
        nobody.effects[request_id] = None

    def _records(self, threads: Sequence[Thread]) -> Iterator[Record]:
        for thread in threads:
            parent, root = self._trees.place(thread.thread_id)
            yield ThreadRecord(
                thread.thread_id,
                thread.tenant,
                parent,
                root,
                thread.created,
                thread.updated,
                thread.version,
                thread.status,
                thread.continues,
                self._asking.get(thread.thread_id, 0),
                self._logs.head(thread),
            )
            if origin := self._trees.origin(thread.thread_id):
                yield ForkRecord(origin)
            log = reversed(list(self._logs.back(thread)))
            yield from (CommitRecord(version, *parts) for version, parts in enumerate(log, 1))
            for letter in thread.inbox or ():
                body = encode_input(letter.message)
                name, moments = letter.message.message_id, (letter.accepted, letter.due)
                yield MessageRecord(name, *moments, letter.urgency, letter.deferred, body)
            if known := self._logs.known(thread):
                yield packed_known(digests_of(known))
            for request_id in thread.effects:
                row = self._effects[request_id]
                cancels = row.effect.call_id if row.effect.kind == "cancel" else ""
                yield EffectRecord(request_id, row.state, row.created, cancels, pack(row.effect))
            views = self._views.get(thread.thread_id, {})
            yield from (ViewRecord(kind, row.content, row.updated) for kind, row in sorted(views.items()))
        referred = sorted(digests_in(self._contents(threads)))
        yield from (ConfigRecord(name, self._configs[name]) for name in referred if name in self._configs)
        yield from (BlobRecord(name, self._blobs[name]) for name in referred if name in self._blobs)

    def _place_thread(self, contents: ThreadContents, thread: Thread, effects: Sequence[Effect]) -> None:
        record, name = contents.thread, contents.thread.thread_id
        self._threads[name] = thread
        self._logs.begin(thread)
        thread.owner, thread.token = FROZEN, self._first_token
        if record.parent:
            self._trees.add(name, record.parent)
        if contents.fork_of:
            self._trees.add_fork(name, contents.fork_of)
        self._set_status(thread, record.status)
        self._ask(thread, record.asking)
        for digest in sorted(contents.known.union(message_digest(one.message_id) for one in contents.messages)):
            thread.known = including(thread.known, digest)
            self._bytes += len(digest)
        self._bytes += len(thread.head)
        for stored, effect in zip(contents.effects, effects, strict=True):
            row = EffectRow(effect, name, stored.state, "", stored.created)
            self._effects[stored.request_id] = row
            if stored.state != "accepted":
                self._orphan(stored.request_id, row)
            if stored.cancels:
                self._cancels[stored.request_id] = stored.cancels
        for seen in contents.views:
            view = ViewRow(seen.view_type, seen.content, seen.updated)
            self._views.setdefault(name, {})[seen.view_type] = view
            self._bytes += size_of_view(view)
        thread.effects = tuple(stored.request_id for stored in contents.effects)
        for commit in contents.commits:
            self._logs.append(thread, commit.page, commit.receipt)
            self._logs.make_room(thread)


def _readable(contents: ThreadContents) -> list[tuple[MessageRecord, InputMessage]]:
    try:
        return [(record, decode_input(record.body)) for record in contents.messages]
    except StoreCorrupt as error:
        raise MalformedInput(f"an input of thread {contents.thread.thread_id!r} cannot be read: {error}") from error
