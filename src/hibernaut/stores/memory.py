"""A store in memory: for tests, for benchmarks, and for agents that may end with their process.

It is also the reference for what the protocol means. No method suspends, so each is one transaction on its event
loop; whatever can fail is worked out before the first change is made. A waiting thread is one record, its head, its
commits in a few frames, and 16 bytes per message it was ever given; it stands in no queue. Claiming costs by
what is ready, never by how many threads there are; only `list_threads` and `stored_bytes`, which are for people,
look at all of them.
"""

import heapq
import os
import secrets
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from itertools import islice
from operator import attrgetter

import msgspec

from hibernaut.codec import pack
from hibernaut.errors import StaleClaim
from hibernaut.kernel.commit import Blob, NewThread, SliceCommit
from hibernaut.kernel.head import Status
from hibernaut.messages.inputs import EVENT, Delivered, InputMessage, encode_input, urgency
from hibernaut.stores.archive import MessageRecord, ThreadRecord
from hibernaut.stores.known import digest_of as _digest
from hibernaut.stores.known import excluding as _without
from hibernaut.stores.known import has as _has
from hibernaut.stores.known import including as _with
from hibernaut.stores.letters import SHORT, LongInbox, changed, named
from hibernaut.stores.memory_beside import MemoryBeside
from hibernaut.stores.memory_engines import FROZEN, Engine
from hibernaut.stores.memory_logs import MOST_HOT, Logs
from hibernaut.stores.memory_moves import MemoryMoves
from hibernaut.stores.memory_queues import Queues
from hibernaut.stores.memory_threads import Letter, Thread, delivered
from hibernaut.stores.owners import certainly_gone, process_name
from hibernaut.stores.protocol import (
    DEAD_AFTER,
    MOST_WAITING,
    Claim,
    EffectRow,
    LogRow,
    Outcome,
    Owner,
    Round,
    StoreCounts,
    ThreadRow,
    ViewRow,
)
from hibernaut.stores.trees import Trees

_ACCEPTED = Outcome.ACCEPTED

_Made = tuple[Thread, bytes, bytes, str, str]
"""A new thread; digest and body of its configuration; its parent; what it is a fork of."""


class MemoryStore(MemoryBeside, MemoryMoves):
    """Keeps threads in this process. See the module's text.

    With `compress`, the commits of threads that wait are packed: about a quarter of the memory, for a fifth of the
    speed (docs/performance.md has the figures). `hot`: bytes that are kept as they came, over all threads.
    """

    def __init__(self, *, compress: bool = False, hot: int = MOST_HOT) -> None:
        self._threads: dict[str, Thread] = {}
        self._queues = Queues()
        self._engines: dict[str, Engine] = {}
        self._effects: dict[str, EffectRow] = {}
        self._configs: dict[bytes, bytes] = {}
        self._blobs: dict[bytes, bytes] = {}
        self._hints: dict[object, Callable[[str, int], None]] = {}
        self._news: list[tuple[str, int]] = []
        self._bytes = 0
        self._logs = Logs(compress=compress, most_hot=hot)
        self._trees = Trees()
        self._asking: dict[str, int] = {}
        self._cancels: dict[str, str] = {}
        """The calls that "cancel" effects are about, by the effects' request ids."""
        self._views: dict[str, dict[str, ViewRow]] = {}
        self._notes: dict[str, bytes] = {}
        self._counted = {"duplicates": 0}
        self._first_token = 0
        self._secret = secrets.token_bytes(32)
        self._old_secrets: dict[bytes, None] = {}
        self._process = process_name(os.getpid())

    async def create(
        self,
        threads: Sequence[NewThread],
        messages: Sequence[InputMessage],
        now: int,
        *,
        blobs: Sequence[Blob] = (),
        tenant: str | None = None,
    ) -> list[Outcome]:
        made = [_new(thread) for thread in threads]
        letters = [_letter(message, now, 0) for message in messages]
        kept = [(blob.digest, _exact(blob.data)) for blob in blobs]
        self._add(made)
        return self._put(letters, kept, now, tenant)

    async def put(
        self,
        messages: Sequence[InputMessage],
        now: int,
        *,
        due: int = 0,
        blobs: Sequence[Blob] = (),
        tenant: str | None = None,
    ) -> list[Outcome]:
        letters = [_letter(message, now, due) for message in messages]
        kept = [(blob.digest, _exact(blob.data)) for blob in blobs] if blobs else ()
        return self._put(letters, kept, now, tenant)

    def _put(
        self,
        letters: Iterable[tuple[Letter, bytes]],
        kept: Iterable[tuple[bytes, bytes]],
        now: int,
        tenant: str | None,
    ) -> list[Outcome]:
        for digest, data in kept:
            self._keep(self._blobs, digest, data)
        outcomes = [self._deliver(letter, digest, now, tenant) for letter, digest in letters]
        self._tell()
        return outcomes

    async def claim(
        self, owner: Owner, now: int, limit: int, *, threads: Sequence[str] | None = None, tenant: str | None = None
    ) -> list[Claim]:
        engine = self._register(owner, now)
        self._find_silent(now)
        chosen = (
            self._queues.most_urgent(now, limit, tenant)
            if threads is None
            else self._among(threads, now, limit, tenant)
        )
        return [self._grant(thread, engine, now) for thread in chosen]

    async def take(self, claim: Claim, now: int) -> tuple[Delivered, ...]:
        return self._held(claim)[0].hand_over(now)

    async def commit(self, claim: Claim, commit: SliceCommit, *, keep: bool = False) -> None:
        thread, owner = self._held(claim)
        if commit.version != thread.version + 1 or commit.thread_id != thread.thread_id:
            raise StaleClaim(f"{thread.thread_id!r} has version {thread.version}; {commit.version} does not follow it")
        at = commit.at
        head = _exact(commit.head)
        inbox = named(thread.inbox, commit)
        found = tuple(inbox)
        learned = [_digest(name) for name in commit.consumed if inbox.pop(name, None) is None]
        forgotten = [_digest(name) for name in commit.dropped if inbox.pop(name, None)] if commit.dropped else ()
        deferred = [(inbox[name], moment) for name, moment in commit.deferred if name in inbox] if inbox else []
        made = [_new(new) for new in commit.spawned] if commit.spawned else ()
        letters = [_letter(out.message, at, out.due) for out in commit.outgoing] if commit.outgoing else ()
        owed = _owed(commit, owner) if commit.effects else ()
        kept = [(blob.digest, _exact(blob.data)) for blob in commit.blobs] if commit.blobs else ()
        self._logs.append(thread, commit.page, commit.receipt)
        # All that can fail stands above; from here on it is only moved to its place.
        thread.version = commit.version
        self._bytes += len(head) - len(thread.head)
        thread.head = head
        if thread.status != commit.status:
            self._set_status(thread, commit.status)
        if commit.asking or self._asking:
            self._ask(thread, commit.asking)
        thread.updated = at
        _rewrite(inbox, commit.rewritten)
        thread.inbox = changed(thread.inbox, found, inbox, deferred)
        if learned or forgotten:
            self._learn(thread, learned, forgotten)
        for digest, data in kept:
            self._keep(self._blobs, digest, data)
        for request_id in commit.settled:
            self._settle(request_id, thread.thread_id)
        for request_id, row in owed:
            self._owe(thread, owner, request_id, row)
        if made:
            self._add(made, thread.tenant)
        thread.continues = at if commit.continues else None
        thread.not_before = 0
        thread.tries = 1 if keep else 0
        if not keep:
            owner.claims.discard(thread.thread_id)
            thread.owner = None
        self._schedule(thread, at)
        self._logs.make_room(thread)
        for letter, digest in letters:
            self._deliver(letter, digest, at, thread.tenant, sent=True)
        if self._news:
            self._tell()

    async def commit_all(self, rounds: Sequence[Round]) -> list[Exception | None]:
        refused: list[Exception | None] = []
        for one in rounds:
            try:
                await self.commit(one.claim, one.commit, keep=one.keep)
            except Exception as error:  # noqa: BLE001  # it is handed to whose round it was
                refused.append(error)
            else:
                refused.append(None)
        return refused

    def _learn(self, thread: Thread, learned: Iterable[bytes], forgotten: Iterable[bytes]) -> None:
        for digest in learned:
            if not _has(thread.known, digest):
                thread.known = _with(thread.known, digest)
                self._bytes += len(digest)
        for digest in forgotten:
            thread.known = _without(thread.known, digest)
            self._bytes -= len(digest)

    async def release(self, claim: Claim, not_before: int = 0) -> None:
        with suppress(StaleClaim):
            thread, owner = self._held(claim)
            owner.claims.discard(thread.thread_id)
            thread.owner = None
            thread.not_before = not_before
            self._schedule(thread)
            self._tell()

    async def beat(self, owner: Owner, now: int) -> None:
        self._register(owner, now)

    async def leave(self, owner: Owner) -> None:
        if (engine := self._engines.get(owner.engine_id)) is not None:
            for thread in map(self._threads.__getitem__, engine.claims):
                thread.owner = None
                self._schedule(thread)
            engine.claims.clear()
            engine.silent = True
            self._tell()

    async def living_engines(self, now: int) -> list[str]:
        self._find_silent(now)
        return [engine.engine_id for engine in self._engines.values() if not engine.silent]

    async def start_effects(self, owner: Owner, request_ids: Sequence[str]) -> list[str]:
        started = []
        for request_id in request_ids:
            row = self._effects.get(request_id)
            if row is not None and row.state == "pending" and row.owner == owner.engine_id:
                self._effects[request_id] = msgspec.structs.replace(row, state="sent")
                started.append(request_id)
        return started

    async def accept_effects(self, request_ids: Sequence[str]) -> None:
        for request_id in request_ids:
            if (row := self._effects.get(request_id)) is not None:
                self._effects[request_id] = msgspec.structs.replace(row, state="accepted")
                self._let_go(row)

    async def settle_effects(self, request_ids: Sequence[str], *, thread_id: str | None = None) -> None:
        for request_id in request_ids:
            self._settle(request_id, thread_id)

    async def adopt_effects(
        self, owner: Owner, now: int, limit: int, *, threads: Sequence[str] | None = None, tenant: str | None = None
    ) -> list[EffectRow]:
        adopter = self._register(owner, now)
        self._find_silent(now)
        adopted: list[EffectRow] = []
        among = None if threads is None else self._with_trees(threads)
        for engine in [engine for engine in self._engines.values() if engine.silent]:
            wanted = (
                one for one in engine.effects if self._may_be_adopted(self._effects[one].thread_id, among, tenant)
            )
            for request_id in list(islice(wanted, max(limit - len(adopted), 0))):
                row = msgspec.structs.replace(self._effects[request_id], owner=adopter.engine_id)
                self._effects[request_id] = row
                del engine.effects[request_id]
                adopter.effects[request_id] = None
                adopted.append(row)
        return adopted

    async def next_due(self, now: int) -> int | None:
        self._find_silent(now)
        return self._queues.next_due(now)

    async def read_head(self, thread_id: str) -> ThreadRow | None:
        thread = self._threads.get(thread_id)
        return None if thread is None else self._row(thread)

    async def read_heads(self, thread_ids: Sequence[str]) -> dict[str, tuple[Status, bytes]]:
        found = filter(None, map(self._threads.get, thread_ids))
        return {thread.thread_id: (thread.status, self._logs.head(thread)) for thread in found}

    async def read_log(self, thread_id: str, after: int = 0, limit: int = 0) -> list[LogRow]:
        thread = self._threads.get(thread_id)
        if thread is None or after >= thread.version:
            return []
        last = min(after + limit, thread.version) if limit else thread.version
        wanted = islice(self._logs.back(thread, thread.version - last), last - after)
        rows = [LogRow(version, *parts) for version, parts in zip(range(last, after, -1), wanted, strict=True)]
        return rows[::-1]

    async def read_inbox(self, thread_id: str) -> tuple[Delivered, ...]:
        thread = self._threads.get(thread_id)
        return () if thread is None else delivered(thread.inbox or ())

    async def read_effects(self, thread_id: str | None = None) -> list[EffectRow]:
        if thread_id is None:
            return list(self._effects.values())
        thread = self._threads.get(thread_id)
        return [] if thread is None else [self._effects[request_id] for request_id in thread.effects]

    async def accepted_effects(
        self, before: int, after: str = "", limit: int = 1_000, *, tenant: str | None = None
    ) -> list[EffectRow]:
        wanted = (
            name
            for name, row in self._effects.items()
            if row.state == "accepted"
            and row.created < before
            and name > after
            and (tenant is None or self._threads[row.thread_id].tenant == tenant)
        )
        return [self._effects[name] for name in heapq.nsmallest(limit, wanted)]

    async def read_config(self, digest: bytes) -> bytes | None:
        return self._configs.get(digest)

    async def read_blob(self, digest: bytes) -> bytes | None:
        return self._blobs.get(digest)

    async def cancellations(self, owner: Owner) -> list[EffectRow]:
        return [
            self._effects[request_id]
            for request_id, call_id in self._cancels.items()
            if (work := self._effects.get(call_id)) is not None
            and work.owner == owner.engine_id
            and work.thread_id == self._effects[request_id].thread_id
        ]

    async def list_threads(
        self,
        tenant: str | None = None,
        *,
        limit: int = 100,
        before: tuple[int, str] | None = None,
        roots: bool = False,
    ) -> list[ThreadRow]:
        age = attrgetter("updated", "thread_id")
        found = (
            thread
            for thread in self._threads.values()
            if (tenant is None or thread.tenant == tenant)
            and (before is None or age(thread) < before)
            and not (roots and not self._trees.is_root(thread.thread_id))
        )
        return [self._row(thread) for thread in heapq.nlargest(limit, found, age)]

    async def read_counts(self, now: int) -> StoreCounts:
        self._find_silent(now)
        threads = self._threads.values()
        ready = [one.wake.moment for one in threads if one.wake is not None and one.wake.moment <= now]
        return StoreCounts(
            threads=Counter[str](thread.status for thread in threads),
            frozen=sum(thread.owner is FROZEN for thread in threads),
            ready=len(ready),
            ready_since=min(ready, default=0),
            claimed=sum(len(engine.claims) for engine in self._engines.values() if not engine.silent),
            waiting=sum(len(thread.inbox or ()) for thread in threads),
            effects=Counter[str](row.state for row in self._effects.values()),
            counted=dict(self._counted),
        )

    async def secret(self) -> bytes:
        return self._secret

    async def stored_bytes(self) -> int:
        waiting = (letter for thread in self._threads.values() for letter in thread.inbox or ())
        messages = sum(len(encode_input(letter.message)) for letter in waiting)
        return self._bytes + self._logs.size + messages + sum(len(pack(row.effect)) for row in self._effects.values())

    def on_change(self, hint: Callable[[str, int], None]) -> Callable[[], None]:
        key = object()
        self._hints[key] = hint

        def end() -> None:
            self._hints.pop(key, None)

        return end

    async def changed_elsewhere(self) -> bool:
        return False

    async def rest(self) -> bool:
        return self._logs.put_away_some()

    async def close(self) -> None:
        """Do nothing: what is kept stays for whoever still holds the store."""

    def _add(self, made: Iterable[_Made], tenant: str | None = None) -> None:
        for thread, digest, config, parent, fork_of in made:
            above = self._threads.get(parent) if parent and parent != thread.thread_id else None
            if above is not None:
                thread.tenant = above.tenant
            elif tenant is not None:
                thread.tenant = tenant
            if fork_of and not self._has_origin(fork_of, thread.tenant):
                continue
            if self._threads.setdefault(thread.thread_id, thread) is thread:
                self._bytes += len(thread.head)
                self._logs.begin(thread)
                thread.token = self._first_token
                if config:
                    self._keep(self._configs, digest, config)
                if above is not None:
                    self._trees.add(thread.thread_id, parent)
                if fork_of:
                    self._trees.add_fork(thread.thread_id, fork_of)

    def _restored(self, record: ThreadRecord, inbox: Sequence[tuple[MessageRecord, InputMessage]]) -> Thread:
        letters = [Letter(message, one.accepted, one.due, one.urgency, one.deferred) for one, message in inbox]
        return Thread(
            record.thread_id,
            sys.intern(record.tenant),
            _exact(record.head),
            record.created,
            record.updated,
            record.version,
            inbox=(LongInbox(letters) if len(letters) > SHORT else letters) or None,
            continues=record.continues,
        )

    def _keep(self, shelf: dict[bytes, bytes], digest: bytes, data: bytes) -> None:
        if shelf.setdefault(digest, data) is data:
            self._bytes += len(data)

    def _deliver(self, letter: Letter, digest: bytes, now: int, tenant: str | None, *, sent: bool = False) -> Outcome:
        thread = self._threads.get(letter.message.thread_id)
        if thread is None or (tenant is not None and thread.tenant != tenant):
            return Outcome.UNKNOWN
        if thread.asleep:
            self._logs.wake(thread)
        if _has(thread.known, digest):
            self._counted["duplicates"] += 1
            return Outcome.DUPLICATE
        if thread.status == "closed":
            return Outcome.CLOSED
        if thread.inbox is None:
            thread.inbox = [letter]
        elif len(thread.inbox) < SHORT:
            thread.inbox.append(letter)
        elif len(thread.inbox) >= MOST_WAITING and letter.urgency == EVENT and not sent:
            return Outcome.FULL
        else:
            if not isinstance(thread.inbox, LongInbox):
                thread.inbox = LongInbox(thread.inbox)
            thread.inbox.append(letter)
        thread.known = _with(thread.known, digest)
        self._bytes += len(digest)
        if not thread.is_woken_by(letter):
            return Outcome.HELD
        if self._hints:
            self._news.append((thread.thread_id, letter.urgency))
        if thread.owner is None or thread.owner.silent:
            self._queues.bring_forward(thread, letter, now)
        return _ACCEPTED

    def _tell(self) -> None:
        for thread_id, level in self._news:
            for hint in tuple(self._hints.values()):
                hint(thread_id, level)
        self._news.clear()

    def _schedule(self, thread: Thread, now: int = 0) -> None:
        """Find the place of a thread in the queues anew."""
        level = self._queues.schedule(thread, now)
        if level is not None and self._hints:
            self._news.append((thread.thread_id, level))

    def _withdraw(self, thread: Thread) -> None:
        self._queues.withdraw(thread)

    def _among(self, names: Sequence[str], now: int, limit: int, tenant: str | None) -> list[Thread]:
        found = [
            (thread.wake.rank, thread.wake.ticket, thread)
            for thread in map(self._threads.get, self._with_trees(names))
            if thread is not None
            and thread.wake is not None
            and thread.wake.moment <= now
            and (tenant is None or thread.tenant == tenant)
        ]
        return [thread for _, _, thread in heapq.nsmallest(limit, found)]

    # Engines and what they hold.

    def _grant(self, thread: Thread, engine: Engine, now: int) -> Claim:
        self._withdraw(thread)
        if thread.asleep:
            self._logs.wake(thread)
        if thread.owner is not None:
            thread.owner.claims.discard(thread.thread_id)
        thread.owner = engine
        engine.claims.add(thread.thread_id)
        thread.token += 1
        thread.tries += 1
        return Claim(thread.thread_id, thread.token, thread.tries, thread.version, thread.head, thread.hand_over(now))

    def _held(self, claim: Claim) -> tuple[Thread, Engine]:
        thread = self._threads.get(claim.thread_id)
        if thread is None or thread.owner is None or thread.token != claim.token:
            raise StaleClaim(f"the claim {claim.token} on {claim.thread_id!r} is over")
        if thread.asleep:
            self._logs.wake(thread)
        return thread, thread.owner

    def _register(self, owner: Owner, now: int) -> Engine:
        engine = self._engines.get(owner.engine_id)
        if engine is None:
            engine = Engine(owner.engine_id, owner.process, now, set(), {})
            self._engines[owner.engine_id] = engine
        engine.seen = now
        if engine.silent:
            engine.silent = False
            for thread_id in engine.claims:
                self._withdraw(self._threads[thread_id])
        return engine

    def _find_silent(self, now: int) -> None:
        """Let the claims of engines that have died be had again."""
        for engine in list(self._engines.values()):
            ended = engine.process != self._process and certainly_gone(engine.process)
            if not engine.silent and (ended or now - engine.seen >= DEAD_AFTER):
                engine.silent = True
                for thread_id in engine.claims:
                    self._schedule(self._threads[thread_id], now)
            if engine.silent and not engine.claims and not engine.effects:
                del self._engines[engine.engine_id]
        self._tell()

    def _owe(self, thread: Thread, owner: Engine, request_id: str, row: EffectRow) -> None:
        if request_id not in self._effects:
            self._effects[request_id] = row
            owner.effects[request_id] = None
            thread.effects = (*thread.effects, request_id)
            if row.effect.kind == "cancel":
                self._cancels[request_id] = row.effect.call_id

    def _settle(self, request_id: str, thread_id: str | None) -> None:
        row = self._effects.get(request_id)
        if row is not None and thread_id in (None, row.thread_id):
            self._drop_effect(request_id)
            thread = self._threads[row.thread_id]
            left = thread.effects != (request_id,)
            thread.effects = tuple([other for other in thread.effects if other != request_id]) if left else ()

    def _drop_effect(self, request_id: str) -> EffectRow | None:
        if (row := self._effects.pop(request_id, None)) is not None:
            self._cancels.pop(request_id, None)
            self._let_go(row)
        return row

    def _let_go(self, row: EffectRow) -> None:
        if (engine := self._engines.get(row.owner)) is not None:
            engine.effects.pop(row.effect.request_id, None)


def _exact(data: bytes) -> bytes:
    """Copy bytes once to their size: an encoder's output was cut from a larger piece, whose rest would stay taken."""
    return memoryview(data).tobytes()


def _new(new: NewThread) -> _Made:
    thread = Thread(new.thread_id, sys.intern(new.tenant), _exact(new.head), new.created, new.created)
    return thread, new.config, _exact(new.config_body), new.parent, new.fork_of


def _letter(message: InputMessage, now: int, due: int) -> tuple[Letter, bytes]:
    return Letter(message, now, due or now, urgency(message.content)), _digest(message.message_id)


def _owed(commit: SliceCommit, owner: Engine) -> list[tuple[str, EffectRow]]:
    return [
        (one.request_id, EffectRow(one, commit.thread_id, "pending", owner.engine_id, commit.at))
        for one in commit.effects
    ]


def _rewrite(inbox: Mapping[str, Letter], messages: Iterable[InputMessage]) -> None:
    for message in messages:
        if message.message_id in inbox:
            inbox[message.message_id].message = message
