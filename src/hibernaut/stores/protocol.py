"""What an engine asks of a store.

The store is the queue. The truth about what is ready lies in its rows: inboxes with due times, a claim with a
token per thread. Every method is one transaction: when it returns, what it did is durable and visible to all
processes; when it raises, nothing of it happened. Methods may be called from any task at any time.

A thread is *ready* when it is not claimed by a living engine, is not frozen, and either has a due message that its
status lets wake it (all for `open` and `closed`; only user text and commands, urgency `USER`, for `stopped` and
`parked`) or its last commit said that it `continues`. A closed one takes no messages any more.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from enum import Enum
from typing import TYPE_CHECKING, Final, Literal, Protocol

import msgspec

from hibernaut.errors import TooLarge
from hibernaut.kernel.commit import Blob, Effect, NewThread, SliceCommit
from hibernaut.kernel.head import Status
from hibernaut.messages.inputs import Delivered, InputMessage

if TYPE_CHECKING:
    from hibernaut.stores.archive import Record

AWAKE: Final[tuple[Status, ...]] = ("open", "closed")
"""Statuses in which every message wakes a thread; in others only what people say does.

A closed thread takes nothing in, but what reached it just before it closed has still to be told so.
"""

URGENCY_PENALTY = (0, 250, 1_000, 4_000)
"""Milliseconds by which each class of urgency (user, result, event, upkeep) is treated as if it had come later.

Ready threads are claimed in the order of (moment at which the message became due + penalty): the urgent go first, and
since the penalty is fixed, whoever waits long enough is first: nothing starves.
"""

DEAD_AFTER = 15_000
"""Milliseconds without a sign of life after which an engine counts as dead and its work is taken over."""


class Outcome(Enum):
    """What the door says to one message."""

    ACCEPTED = "accepted"
    """Stored: nothing can lose it now."""
    DUPLICATE = "duplicate"
    """Its message id is in the thread's inbox or was consumed before. Nothing changed."""
    HELD = "held"
    """Stored, but the thread is stopped, parked or frozen: it is read when the thread goes on."""
    CLOSED = "closed"
    """The thread is closed. Nothing changed."""
    UNKNOWN = "unknown"
    """There is no such thread. Nothing changed."""
    FULL = "full"
    """The inbox is full of events. Nothing changed; the sender may try again later."""


MOST_WAITING = 10_000
"""Messages in an inbox from which on it takes no more events from the door.

What people say, results and upkeep are always taken, and so is what a commit sends: nobody would send it again.
"""


MOST_VIEWS = 32
"""Kinds of views that one thread has at most."""

LARGEST_NOTE = 4 * 1024 * 1024
"""Bytes of one note."""


class Owner(msgspec.Struct, frozen=True):
    """One engine: its name, and what tells others on the same machine that its process is gone.

    `process` is "HOST-BOOT/PID/START" or "" when the platform cannot tell; see `hibernaut.stores.owners`.
    """

    engine_id: str
    process: str = ""


class Claim(msgspec.Struct, frozen=True, gc=False):
    """The right to write one thread, until somebody else claims it.

    `token` grows with every claim of the thread; a commit with an older one is refused. `tries` counts the claims since
    the last commit, this one included: above 1, an earlier one came to nothing.
    """

    thread_id: str
    token: int
    tries: int
    version: int
    head: bytes
    messages: tuple[Delivered, ...]
    """All due messages and all deferred ones, in the order they were stored; at most `CLAIM_MESSAGES`.

    Of too many: above all those that wake the thread, or they might never come, then the oldest deferred ones.
    """


CLAIM_MESSAGES = 256
"""Messages that one claim hands over at most; the others stay for the next."""


class Round(msgspec.Struct, frozen=True, eq=False, gc=False):
    """A round that is to be committed under a claim; with `keep` the claim goes on."""

    claim: Claim
    commit: SliceCommit
    keep: bool = False


class LogRow(msgspec.Struct, frozen=True):
    """One commit of a thread, as stored: the page may be empty."""

    version: int
    page: bytes
    receipt: bytes


class ThreadRow(msgspec.Struct, frozen=True):
    """One thread in a listing."""

    thread_id: str
    tenant: str
    status: Status
    head: bytes
    created: int
    updated: int
    waiting: int
    """Messages in its inbox, due or not."""
    parent: str = ""
    """The thread that made it; "" for a root."""
    root: str = ""
    """The thread at the top of its tree; "" for a root."""
    asking: int = 0
    """Questions of it that wait for a person."""
    frozen: bool = False
    """Nothing runs it, whatever comes, until its tree is thawed."""


class ViewRow(msgspec.Struct, frozen=True):
    """What people see beside a thread, of one kind (JSON text), and the moment at which it became so."""

    view_type: str
    content: str
    updated: int


EffectState = Literal["pending", "sent", "accepted"]


class EffectRow(msgspec.Struct, frozen=True, gc=False):
    """One effect in the outbox. Settled effects are not kept.

    States: `pending` (certainly not begun), `sent` (begun by `owner`, or about to be), `accepted` (whoever works on it
    will answer by itself, no process of ours is needed for it).
    """

    effect: Effect
    thread_id: str
    state: EffectState
    owner: str
    created: int


class StoreCounts(msgspec.Struct, frozen=True):
    """What there is in a store at one moment, of all tenants together, and what was ever counted of it."""

    threads: Mapping[str, int]
    """Threads by status, those that are frozen included."""
    frozen: int
    ready: int
    """Threads that are ready, and claimed by nobody,"""
    ready_since: int
    """and since when the first of them is (milliseconds since 1970); 0: none is."""
    claimed: int
    waiting: int
    """Messages in all inboxes, due or not."""
    effects: Mapping[str, int]
    """Effects in the outbox, by state."""
    counted: Mapping[str, int]
    """What was added by `add_counts`, and "duplicates": the messages that were there before."""


def check_note(key: str, value: bytes) -> None:
    """Check that a note can be kept.

    Raises:
        TooLarge: it cannot.
    """
    if len(value) > LARGEST_NOTE:
        raise TooLarge(f"the note {key!r}", len(value), LARGEST_NOTE, "LARGEST_NOTE")


class Store(Protocol):
    """Keeps threads. See the module's text for what every method guarantees."""

    async def create(
        self,
        threads: Sequence[NewThread],
        messages: Sequence[InputMessage],
        now: int,
        *,
        blobs: Sequence[Blob] = (),
        tenant: str | None = None,
    ) -> list[Outcome]:
        """Make the threads that do not exist yet, then put the messages, all in one transaction.

        A thread that exists already is left as it is (its tenant too). One whose parent is there belongs to its
        parent's tree and tenant; a parent that is not there is none. A fork of a thread that is not there, or is
        another tenant's, is not made. `tenant`: as in `put`.
        """
        ...

    async def put(
        self,
        messages: Sequence[InputMessage],
        now: int,
        *,
        due: int = 0,
        blobs: Sequence[Blob] = (),
        tenant: str | None = None,
    ) -> list[Outcome]:
        """Store messages in their inboxes, in order; each gets its own outcome. `due` 0 is now.

        With `tenant`, a thread of another tenant is `UNKNOWN`.
        """
        ...

    async def knows(self, thread_id: str, message_id: str) -> bool:
        """Tell whether a message of that id was ever accepted: another one would be a duplicate."""
        ...

    async def put_view(self, thread_id: str, view_type: str, content: str, now: int) -> Outcome:
        """Keep what people see beside a thread, of one kind; it replaces what was there of that kind.

        It is no input: the inbox and the head stay as they are, and nobody is woken. The same content again changes
        nothing and is `ACCEPTED`. `FULL`: the thread would have more than `MOST_VIEWS` kinds.
        """
        ...

    async def read_views(self, thread_id: str) -> list[ViewRow]:
        """Return the views of a thread in the order of their kinds; they go with it."""
        ...

    async def claim(
        self, owner: Owner, now: int, limit: int, *, threads: Sequence[str] | None = None, tenant: str | None = None
    ) -> list[Claim]:
        """Claim up to `limit` ready threads, the most urgent first; of `threads`, if given, and those below them.

        With `tenant`, only its threads.

        A thread whose claim belongs to a dead engine is ready too. Claiming bumps its token and its tries.
        """
        ...

    async def take(self, claim: Claim, now: int) -> tuple[Delivered, ...]:
        """Return what a claim at this moment would hand over: for a further round under the same claim.

        Raises:
            StaleClaim: the claim was lost.
        """
        ...

    async def commit(self, claim: Claim, commit: SliceCommit, *, keep: bool = False) -> None:
        """Apply a round: head, page, receipt, what becomes of messages, spawned, outgoing, effects, settled, blobs.

        A message to a thread of another tenant goes nowhere, and an effect of another thread is not settled.

        Effects become `pending` rows owned by the claiming engine. Unless `keep`, the claim ends; with `keep` it goes
        on (with the new version). The thread's tries are set to 0 (1 with `keep`).

        Raises:
            StaleClaim: the claim was lost, or the version is not the next one. Nothing was written.
        """
        ...

    async def commit_all(self, rounds: Sequence[Round]) -> list[Exception | None]:
        """Apply rounds of different threads, each by itself as `commit` would: most cheaply in one write.

        Returns:
            For each what `commit` would have raised, None where it was applied.
        """
        ...

    async def release(self, claim: Claim, not_before: int = 0) -> None:
        """Give a claim back without a commit; the thread is not ready before that moment. A lost claim is ignored."""
        ...

    async def beat(self, owner: Owner, now: int) -> None:
        """Say that this engine lives. The first beat registers it."""
        ...

    async def leave(self, owner: Owner) -> None:
        """Say that this engine ends: its claims are free at once, its effects are orphans."""
        ...

    async def living_engines(self, now: int) -> list[str]:
        """Return the ids of the engines that live."""
        ...

    async def start_effects(self, owner: Owner, request_ids: Sequence[str]) -> list[str]:
        """Mark `pending` effects that this owner holds as `sent`; return those it may now perform.

        An effect that is gone, begun, held by another living engine, or of a frozen thread is left out.
        """
        ...

    async def accept_effects(self, request_ids: Sequence[str]) -> None:
        """Mark effects as `accepted`."""
        ...

    async def settle_effects(self, request_ids: Sequence[str], *, thread_id: str | None = None) -> None:
        """Remove effects that are over; with `thread_id`, only those of that thread."""
        ...

    async def adopt_effects(
        self, owner: Owner, now: int, limit: int, *, threads: Sequence[str] | None = None, tenant: str | None = None
    ) -> list[EffectRow]:
        """Take over up to `limit` effects (`pending` or `sent`) whose owner is dead, each returned in the state it had.

        With `threads` (roots), only effects of those and of the threads below them; with `tenant`, only of its threads.

        Their owner is the adopter from now on; `accepted` ones and those of frozen threads are left alone.
        """
        ...

    async def next_due(self, now: int) -> int | None:
        """Return the moment at which the next thread that is not ready now becomes ready by time alone."""
        ...

    async def read_head(self, thread_id: str) -> ThreadRow | None:
        """Return one thread, or None."""
        ...

    async def read_heads(self, thread_ids: Sequence[str]) -> dict[str, tuple[Status, bytes]]:
        """Return status and head of those of many threads that there are."""
        ...

    async def read_log(self, thread_id: str, after: int = 0, limit: int = 0) -> list[LogRow]:
        """Return the commits of a thread after head version `after`, oldest first (`limit` 0: all)."""
        ...

    async def read_inbox(self, thread_id: str) -> tuple[Delivered, ...]:
        """Return everything in an inbox, due or not, in the order it was stored."""
        ...

    async def read_effects(self, thread_id: str | None = None) -> list[EffectRow]:
        """Return the outbox, of one thread or of all, oldest first."""
        ...

    async def accepted_effects(
        self, before: int, after: str = "", limit: int = 1_000, *, tenant: str | None = None
    ) -> list[EffectRow]:
        """Return `accepted` effects that were made before that moment, by request id, those after the id `after`.

        With `tenant`, only those of its threads.
        """
        ...

    async def cancellations(self, owner: Owner) -> list[EffectRow]:
        """Return the "cancel" effects of calls that this owner works on: it holds their "invoke", which is not over.

        Both are of one thread.
        """
        ...

    async def read_config(self, digest: bytes) -> bytes | None:
        """Return a launch configuration by its digest.

        Raises:
            StoreCorrupt: what is kept under it has another digest.
        """
        ...

    async def read_blob(self, digest: bytes) -> bytes | None:
        """Return a blob by its digest.

        Raises:
            StoreCorrupt: what is kept under it has another digest.
        """
        ...

    async def list_threads(
        self,
        tenant: str | None = None,
        *,
        limit: int = 100,
        before: tuple[int, str] | None = None,
        roots: bool = False,
    ) -> list[ThreadRow]:
        """Return threads, the last updated first; `before` = (updated, thread_id) of the last row seen.

        With `roots`, only those without a parent.
        """
        ...

    async def list_asking(
        self, tenant: str | None = None, *, root: str | None = None, limit: int = 100
    ) -> list[ThreadRow]:
        """Return threads (of one tree, if given) that wait for a person's answer, the longest untouched first."""
        ...

    async def read_tree(self, root: str, *, living: bool = False) -> list[ThreadRow]:
        """Return a root and all its descendants in the order they were made; `living`: without the closed ones."""
        ...

    async def read_forks(self, root: str) -> list[str]:
        """Return the threads that are forks of those in a tree, in the order they were made."""
        ...

    async def count_living(self, root: str) -> int:
        """Return how many descendants of a root are not closed. Cheap: it is asked before a thread is made."""
        ...

    async def freeze(self, root: str, *, tenant: str | None = None) -> int:
        """Let nothing run in a tree until it is thawed; return how many of its threads were not frozen before.

        Nothing in it ends: calls, questions, subscriptions and timers stay as they are, and what comes is held, what
        people say too. A claim on one of its threads is lost. Its `pending` effects are nobody's; those that were begun
        go on. What is no root is left as it is; with `tenant`, so is a root of another one.
        """
        ...

    async def thaw(self, root: str, *, tenant: str | None = None) -> int:
        """Let a frozen tree go on where it was; return how many of its threads were frozen.

        `tenant`: as in `freeze`.
        """
        ...

    async def export_tree(self, root: str, now: int) -> "list[Record]":
        """Return all that is kept of a frozen tree, in the order in which `import_tree` takes it.

        Raises:
            UnknownThread: there is no such root.
            NotAtRest: it is not frozen, or a living engine works on an effect of it.
            TooLarge: it holds more than `hibernaut.stores.archive.LARGEST_TREE`.
        """
        ...

    async def import_tree(self, records: "Sequence[Record]", *, reissue: Collection[str] = ()) -> int:
        """Make a tree from what `export_tree` gave; return how many threads it has.

        It is frozen, and nobody owns its effects; those of the request ids in `reissue` that had been begun are
        `pending` again.

        Raises:
            ThreadExists: one of its threads is there. Nothing was written.
            MalformedInput: it is not whole, or a fork of what is not there, or refers to a blob or a configuration that
                is here and that it does not bring. Nothing was written.
        """
        ...

    async def delete(
        self,
        root: str,
        *,
        unchanged: bytes = b"",
        tenant: str | None = None,
        note: tuple[str, bytes] | None = None,
    ) -> int:
        """Remove a root with all its descendants and whatever belongs to them; return how many threads went.

        With `unchanged`, only a frozen tree whose records have this digest (`hibernaut.stores.archive.digest_of`): so
        nothing is lost that came after it was exported.

        Blobs and configurations go too, unless what is left refers to them. A claim on one of the threads is lost. A
        thread that is made again under one of the names starts from nothing. What is no root is left as it is; with
        `tenant`, so is a root of another one.

        If anything was removed, the `note` (its key and value) is kept.

        Raises:
            HasForks: others share the history of one of its threads. Nothing was written.
            TooLarge: the note is above `LARGEST_NOTE`. Nothing was written.
        """
        ...

    async def prune(self, before: int, *, tenant: str | None = None) -> int:
        """Remove what is over: threads that are closed and were last updated before that moment; return how many.

        Each goes only with all its descendants, of which none may be open, be younger, or have a question, an effect
        or a fork left; and under a closed root all go together, or none.
        """
        ...

    async def write_note(self, key: str, value: bytes) -> None:
        """Keep something that is about no thread, such as what an engine should know again after a restart.

        Raises:
            TooLarge: it is above `LARGEST_NOTE`.
        """
        ...

    async def read_note(self, key: str) -> bytes | None:
        """Return a note, or None."""
        ...

    async def add_counts(self, added: Mapping[str, int], greatest: Mapping[str, int]) -> None:
        """Add to what is counted of this store: sums, and values of which the greatest is kept."""
        ...

    async def read_counts(self, now: int) -> StoreCounts:
        """Return what there is. It looks at every thread's place in the queue, and at no head, page or body."""
        ...

    async def secret(self) -> bytes:
        """Return the 32 random bytes, made with the store, that sign its callback tokens."""
        ...

    async def old_secrets(self) -> list[bytes]:
        """Return the secrets of other stores that have signed callback tokens for threads that are here now."""
        ...

    async def keep_secret(self, secret: bytes) -> None:
        """Keep the secret of another store, from which a thread came with callback tokens out."""
        ...

    async def stored_bytes(self) -> int:
        """Return how many bytes the store holds: for memory the sum of what it keeps, else the size of its files."""
        ...

    def on_change(self, hint: Callable[[str, int], None]) -> Callable[[], None]:
        """Call `hint(thread_id, urgency)` whenever a thread of this process's store gets something to do.

        A hint may be lost or false. It is called on the event loop. Returns what ends it.
        """
        ...

    async def changed_elsewhere(self) -> bool:
        """Tell whether another process has written since the last call; always False where none can."""
        ...

    async def rest(self) -> bool:
        """Put away a part of what is hot: an engine says so, again and again, while nothing goes on.

        The event loop is held up for some milliseconds at most. Tells whether anything is left to do.
        """
        ...

    async def close(self) -> None:
        """Finish what is under way and let go of the store."""
        ...
