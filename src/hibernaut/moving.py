"""How a tree of threads moves from one store to another, by itself or as a file.

A tree is frozen, its tool servers move what they keep for it, it is made in the destination, and then it is deleted in
the source. Until the last step the source has all of it, and whatever comes there meanwhile is held and brought along.
A crash leaves the tree frozen in the source, and maybe in the destination too; moving it again goes on from there.
"""

import asyncio
from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final, Protocol

import msgspec

from hibernaut.archive_checks import check_records
from hibernaut.clock import Clock
from hibernaut.engine.history import chain_start
from hibernaut.errors import (
    ConfigurationError,
    HasForks,
    MalformedInput,
    MoveUnfinished,
    NotAtRest,
    ServersNotMoved,
    StoreCorrupt,
    StoreError,
    ThreadExists,
    UnknownThread,
    VerificationFailed,
)
from hibernaut.kernel.chain import ChainCheck
from hibernaut.kernel.commit import Blob, Effect
from hibernaut.kernel.head import Fork, Head, decode_head
from hibernaut.messages.inputs import decode_input
from hibernaut.part import SystemPart
from hibernaut.stores.archive import (
    BlobRecord,
    CommitRecord,
    EffectRecord,
    ForkRecord,
    MessageRecord,
    Record,
    ThreadRecord,
    ViewRecord,
    decode_effect,
    digest_of,
    no_origin,
)
from hibernaut.stores.archive_file import (
    Archive,
    Header,
    Progress,
    Readable,
    Writable,
    archive_of,
    read_archive,
    write_archive,
)
from hibernaut.stores.protocol import Outcome, Store, ThreadRow
from hibernaut.stores.references import digests_in
from hibernaut.tools.tokens import KeyRing

if TYPE_CHECKING:
    from hibernaut.rap.tool_servers import ToolServers

MOST_ROUNDS: Final = 100
"""Times that what came late is brought along before a move is given up; each time, something has come meanwhile."""

Reissue = Callable[[Effect], bool]
"""Tells whether a call that a tool server has accepted is to be sent there anew, with a new callback address.

It must be safe: the server does the work of one idempotency key once.
"""


class MigratesServers(Protocol):
    """Has a tool server move what it keeps for a conversation."""

    async def migrate(self, server: str, session_id: str, destination_url: str) -> None:
        """Return when the state has moved. To ask for what has moved already is no error.

        Raises:
            Exception: it has not moved; the text says why.
        """
        ...


class Imported(msgspec.Struct, frozen=True):
    """What came of an archive."""

    thread_id: str
    """The root of the tree."""
    threads: int
    unheard: tuple[str, ...] = ()
    """Calls that wait for a callback whose token was signed with a key that the store does not have."""


def never(_: Effect) -> bool:
    """Send no call anew."""
    return False


async def take_out(store: Store, clock: Clock, root: str) -> Archive:
    """Return a frozen tree as an archive.

    Raises:
        UnknownThread. NotAtRest. TooLarge.
    """
    return archive_of(await store.export_tree(root, clock.now()), await key_ids(store))


async def take_in(store: Store, tenant: str, archive: Archive, reissue: Reissue) -> Imported:
    """Make the tree of an archive; it is frozen.

    Raises:
        MalformedInput: it is another tenant's, or is not whole. StoreFormatTooNew. ThreadExists.
    """
    header = archive.header
    if header.tenant != tenant:
        raise MalformedInput(f"this archive is of the tenant {header.tenant!r}; import it for that one")
    check_records(archive.records, tenant)
    await _check_forks(store, tenant, archive.records)
    anew = _anew(archive.records, reissue)
    count = await store.import_tree(archive.records, reissue=anew)
    known = set(await key_ids(store))
    waiting = [one.request_id for one in _begun(archive.records) if one.state == "accepted"]
    unheard = [] if known.intersection(header.keys) else [name for name in waiting if name not in anew]
    return Imported(header.root, count, tuple(unheard))


async def key_ids(store: Store) -> tuple[str, ...]:
    """Return the ids of the keys whose callback tokens a store can read, its own first."""
    return tuple(KeyRing([secret]).newest for secret in await secrets_of(store))


async def secrets_of(store: Store) -> list[bytes]:
    """Return the secrets whose callback tokens a store can read, its own first."""
    return list(dict.fromkeys([await store.secret(), *await store.old_secrets()]))


async def _check_forks(store: Store, tenant: str, records: Sequence[Record]) -> None:
    """Check that threads begin with no history but what they may inherit here.

    Raises:
        MalformedInput: one does not.
    """
    for at, record in enumerate(records):
        if isinstance(record, ThreadRecord):
            head = decode_head(record.head).head
            following = records[at + 1 : at + 3]
            noted = [one.origin for one in following[:1] if isinstance(one, ForkRecord)]
            if noted != ([head.fork.origin] if head.fork else []):
                raise MalformedInput(f"the tree is not whole: {record.thread_id!r} is a fork of another thread")
            if head.fork is not None:
                first = next((one for one in following if isinstance(one, CommitRecord)), None)
                await _check_fork(store, tenant, head, head.fork, first)


async def _check_fork(store: Store, tenant: str, head: Head, fork: Fork, first: CommitRecord | None) -> None:
    """Check that a fork goes on from the history that its origin has here."""
    origin = await store.read_head(fork.origin)
    if origin is None or origin.tenant != tenant:
        raise no_origin(head.thread_id, fork.origin)
    try:
        start = await chain_start(store, fork)
        history = ChainCheck(start).take(first.page, first.receipt).history if first else start
    except (StoreCorrupt, VerificationFailed) as error:
        raise MalformedInput(
            f"thread {head.thread_id!r} does not go on from the history that {fork.origin!r} has here: {error}"
        ) from error
    if first is None and history != head.history:
        raise MalformedInput(f"thread {head.thread_id!r} does not go on from the history that {fork.origin!r} has here")


def _begun(records: Iterable[Record]) -> list[EffectRecord]:
    """Return the invocations that had been begun."""
    begun = [one for one in records if isinstance(one, EffectRecord) and one.state != "pending"]
    return [one for one in begun if decode_effect(one).kind == "invoke"]


def _anew(records: Iterable[Record], reissue: Reissue) -> set[str]:
    begun = [(one.request_id, decode_effect(one)) for one in _begun(records)]
    return {name for name, effect in begun if not effect.local and reissue(effect)}


class Move:
    """One tree on its way from a store to another.

    `urls`: where the state of each tool server that has any goes, by the server's name. With `hand_over`, the
    destination is given the secrets of the source, so that callbacks which are out find it.
    """

    def __init__(
        self,
        source: Store,
        destination: Store,
        clock: Clock,
        root: str,
        *,
        servers: MigratesServers | None = None,
        urls: Mapping[str, str] | None = None,
        reissue: Reissue = never,
        hand_over: bool = False,
    ) -> None:
        self._source = source
        self._destination = destination
        self._clock = clock
        self._root = root
        self._servers = servers
        self._urls = dict(urls or {})
        self._reissue = reissue
        self._hand_over = hand_over
        self._importing = False

    async def run(self) -> int:
        """Move the tree; return how many threads it has. It is frozen in the destination.

        Raises:
            NotAtRest, HasForks, ServersNotMoved, ThreadExists, StoreError: it stays, with the status it had.
            MoveUnfinished: it is in both places, and frozen. Moving it again ends that.
        """
        self._check_servers()
        if await self._source.secret() == await self._destination.secret():
            raise ConfigurationError("the destination is the store that the thread is in, or a copy of its file")
        froze = await self._source.freeze(self._root)
        try:
            digest = await self._transfer()
        except (Exception, asyncio.CancelledError):
            await self._roll_back(thaw=bool(froze))
            raise
        try:
            return await self._clean(digest)
        except UnknownThread as error:
            # Perhaps by another move, to another place: then only one of the two may go on.
            raise MoveUnfinished(
                f"thread {self._root!r} is in the destination, and somebody else has removed it where it was; make "
                "sure that it goes on in one place only"
            ) from error
        except NotAtRest:
            # It was thawed, so it is the one that goes on.
            if all(row.frozen for row in await self._destination.read_tree(self._root)):
                await self._destination.delete(self._root)
            raise
        except (StoreError, HasForks) as error:
            raise MoveUnfinished(
                f"thread {self._root!r} is in the destination, but could not be removed where it was: {error}"
            ) from error

    def _check_servers(self) -> None:
        missing = [name for name, url in self._urls.items() if not url]
        if missing:
            raise ConfigurationError(f"nothing in the destination takes the state of: {', '.join(missing)}")
        if self._urls and self._servers is None:
            raise ConfigurationError(f"nobody was named who moves the state of: {', '.join(self._urls)}")

    async def _transfer(self) -> bytes:
        """Make the tree in the destination, and return the digest of what it was made from."""
        await self._export()
        if forks := await self._source.read_forks(self._root):
            raise HasForks(self._root, forks)
        if not await self._is_there():
            await self._move_servers()
            # What came meanwhile goes along.
            records = await self._export()
            if any(isinstance(record, ForkRecord) for record in records):
                tenants = [record.tenant for record in records if isinstance(record, ThreadRecord)]
                await _check_forks(self._destination, tenants[0], records)
            self._importing = True
            await self._destination.import_tree(records, reissue=_anew(records, self._reissue))
        else:
            records = []
        if self._hand_over:
            for secret in await secrets_of(self._source):
                await self._destination.keep_secret(secret)
        return digest_of(records)

    async def _export(self) -> list[Record]:
        return await self._source.export_tree(self._root, self._clock.now())

    async def _is_there(self) -> bool:
        """Tell whether an earlier move has made the tree already.

        Raises:
            ThreadExists: what is there is something else, or goes on already.
        """
        there = await self._destination.read_tree(self._root)
        if there and not (all(row.frozen for row in there) and await self._is_a_copy(there)):
            raise ThreadExists(self._root)
        for row in await self._source.read_tree(self._root) if not there else ():
            if await self._destination.read_head(row.thread_id) is not None:
                raise ThreadExists(row.thread_id)
        return bool(there)

    async def _is_a_copy(self, there: Sequence[ThreadRow]) -> bool:
        # A head has the digests of the thread's history and receipts, and a salt that no other thread has.
        here = await self._source.read_tree(self._root)
        return [(row.thread_id, row.head) for row in here] == [(row.thread_id, row.head) for row in there]

    async def _move_servers(self) -> None:
        failures: dict[str, Exception] = {}
        moved: list[str] = []
        servers = self._servers
        if servers is None:
            return

        async def move(name: str, url: str) -> None:
            try:
                await servers.migrate(name, self._root, url)
            except Exception as error:  # noqa: BLE001 - all that failed are named together
                failures[name] = error
            else:
                moved.append(name)

        async with asyncio.TaskGroup() as tasks:
            for name, url in self._urls.items():
                tasks.create_task(move(name, url))
        if failures:
            raise ServersNotMoved(dict(sorted(failures.items())), sorted(moved))

    async def _roll_back(self, *, thaw: bool) -> None:
        """Leave nothing in the destination, and the source as it was.

        Raises:
            MoveUnfinished: that cannot be made sure, so the source stays frozen.
        """
        try:
            await self._put_back(thaw=thaw)
        except StoreError as error:
            raise MoveUnfinished(
                f"thread {self._root!r} was not moved, and could not be set going again where it is: {error}"
            ) from error

    async def _put_back(self, *, thaw: bool) -> None:
        if self._importing:  # it may have been made all the same
            there = await self._destination.read_tree(self._root)
            if there and all(row.frozen for row in there) and await self._is_a_copy(there):
                await self._destination.delete(self._root)
        if thaw:
            await self._source.thaw(self._root)

    async def _clean(self, digest: bytes) -> int:
        """Delete the tree in the source once the destination has all of it."""
        for _ in range(MOST_ROUNDS):
            if count := await self._source.delete(self._root, unchanged=digest):
                return count
            records = await self._export()
            await self._bring(records)
            digest = digest_of(records)
        raise MoveUnfinished(f"thread {self._root!r} is in the destination, but where it was more and more came for it")

    async def _bring(self, records: Sequence[Record]) -> None:
        """Put into the destination what it has not got yet; a message that it knows is a duplicate there."""
        thread_id = ""
        blobs = {one.digest: Blob(one.digest, one.data) for one in records if isinstance(one, BlobRecord)}
        for record in records:
            if isinstance(record, ThreadRecord):
                thread_id = record.thread_id
            elif isinstance(record, ViewRecord):
                await self._destination.put_view(thread_id, record.view_type, record.content, record.updated)
            elif isinstance(record, MessageRecord):
                referred = [blobs[digest] for digest in digests_in([record.body]) if digest in blobs]
                message = decode_input(record.body)
                (outcome,) = await self._destination.put([message], record.accepted, due=record.due, blobs=referred)
                if outcome not in (Outcome.HELD, Outcome.ACCEPTED, Outcome.DUPLICATE):
                    raise MoveUnfinished(
                        f"thread {self._root!r} is in the destination, which did not take message "
                        f"{record.message_id} ({outcome.value})"
                    )


class MovesTrees(SystemPart):
    """The part of an `AgentSystem` that takes trees out of its store and into it."""

    @property
    @abstractmethod
    def tool_servers(self) -> "ToolServers | None":
        """How it reaches tool servers; None if it does not."""

    @property
    @abstractmethod
    def server_places(self) -> Mapping[str, str]:
        """The base URLs of its tool servers that have one, by name."""

    async def export(self, thread_id: str, file: Writable, progress: Progress = lambda done, total: None) -> Header:
        """Write a frozen tree, named by its root, into a binary file; see `hibernaut.stores.archive_file`.

        The tree stays here, frozen: delete it once it goes on elsewhere, or thaw it.

        Raises:
            UnknownThread. MalformedInput: it is no root. NotAtRest: it is not frozen, or a tool is at work. TooLarge.
        """
        row = await self._root(thread_id)
        archive = await take_out(self.store, self.clock, row.thread_id)
        await asyncio.to_thread(write_archive, archive, file, progress)
        return archive.header

    async def import_(
        self, file: Readable | Archive, *, reissue: Reissue = never, progress: Progress = lambda done, total: None
    ) -> Imported:
        """Make the tree that `export` wrote. It is frozen: `ThreadHandle.thaw` or `resume(tree=True)` lets it go on.

        What tools worked on when it was exported is taken over as after a crash.

        Args:
            file: an archive that was read, or the binary file, which is read to its end before anything is made.
            reissue: which calls that a tool server has accepted are sent there anew, with a callback address here.
            progress: is told how many records were read, and of how many.

        Raises:
            MalformedInput: it is no archive, is not whole, or is another tenant's. StoreFormatTooNew. TooLarge.
            ThreadExists: a thread of it is here.
        """
        archive = file if isinstance(file, Archive) else await asyncio.to_thread(read_archive, file, progress)
        return await take_in(self.store, self.tenant, archive, reissue)

    async def migrate(
        self,
        thread_id: str,
        destination: "MovesTrees | Store",
        *,
        servers: MigratesServers | None = None,
        urls: Mapping[str, str] | None = None,
        reissue: Reissue | None = None,
        hand_over_secrets: bool = False,
    ) -> int:
        """Move a tree, named by its root, to another store; returns how many threads it has.

        It is frozen there: `ThreadHandle.thaw` or `resume(tree=True)` lets it go on. If it cannot be moved it goes on
        here, with the status it had. After a crash it is frozen; moving it again finishes that.

        Args:
            thread_id: the root.
            destination: where to.
            servers: has tool servers move what they keep for it; by default this system's own connections do.
            urls: where the state of each of them goes, by the server's name; by default to the server of that name that
                the destination has, for every one whose manifest says that it keeps state.
            reissue: which calls that a tool server has accepted are sent there anew, with a callback address there; by
                default those of servers that say that a repeat under one key is one call, if the destination has them.
            hand_over_secrets: let the destination read the callback tokens that are out.

        Raises:
            UnknownThread. MalformedInput: it is no root, or a fork of what the destination does not have.
            ThreadExists: the destination has such a thread. HasForks: forks share its history.
            NotAtRest: a tool is at work in an engine of this store. ServersNotMoved: naming each.
            MoveUnfinished: it is in both places, and frozen; move it again. ConfigurationError: the destination is no
                other store, or another tenant's, or a server has no place to move to.
        """
        row = await self._root(thread_id)
        if isinstance(destination, MovesTrees) and destination.tenant != self.tenant:
            raise ConfigurationError(
                f"a thread stays with its tenant, which is {self.tenant!r} here and {destination.tenant!r} there"
            )
        store = destination.store if isinstance(destination, MovesTrees) else destination
        there = destination.server_places if isinstance(destination, MovesTrees) else {}
        if self.tool_servers is not None:
            from hibernaut.moving_servers import MovingServers, servers_of_tree  # noqa: PLC0415  # seldom needed

            used = await servers_of_tree(self.store, row.thread_id)
            servers = servers or MovingServers(self.tool_servers)
            urls = used.to_move(there) if urls is None else urls
            reissue = reissue or (used.may_repeat if there else never)
        move = Move(
            self.store,
            store,
            self.clock,
            row.thread_id,
            servers=servers,
            urls=urls,
            reissue=reissue or never,
            hand_over=hand_over_secrets,
        )
        return await move.run()

    async def _root(self, thread_id: str) -> ThreadRow:
        row = await self.row(thread_id)
        if row.root:
            raise MalformedInput(f"thread {thread_id} is part of the tree of {row.root}; a tree moves as a whole")
        return row
