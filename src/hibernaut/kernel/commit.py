"""The one atomic write that a slice round makes, as a value."""

from enum import IntEnum
from typing import Literal

import msgspec

from hibernaut.kernel.head import Status
from hibernaut.messages.inputs import InputMessage


class Disposition(IntEnum):
    """What became of one input. `DEFERRED` is the only one that is not final: the input stays in the inbox."""

    ACCEPTED = 0
    """It went into the history, or did what it is for."""
    DUPLICATE = 1
    """The same input had been consumed before."""
    STALE = 2
    """What it is about is over: an answered call, a timer that no longer matters."""
    DEFERRED = 3
    """It waits in the inbox for an open call, for a bounded time."""
    ROUTED = 4
    """It was given to another thread."""
    SURFACED = 5
    """It was kept in the head and shown to people."""
    HELD = 6
    """It stays in the inbox until the thread is resumed."""
    REFUSED = 7
    """It is about nothing this thread has, or cannot be read."""
    CLOSED = 8
    """The thread is closed."""
    DROPPED = 9
    """An operator took it back before the thread had read it."""


EffectKind = Literal["invoke", "cancel", "answer", "close"]


class Effect(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Something that a commit owes to the outside.

    `request_id` is stable over crashes and is the idempotency key. An "invoke" has its call's id; a "cancel" says that
    the invocation of `call_id` is no longer wanted. These two are worked on inside an engine's process when they are
    `local`, else by the tool server `server`, which also gets the others: an "answer" brings a person's choice (its
    `arguments` are a `Chosen`), a "close" says that the thread has ended.
    """

    request_id: str
    kind: EffectKind
    call_id: str
    tool: str
    arguments: str = "{}"
    local: bool = True
    server: str = ""
    provider_id: str = ""
    """The id of the call on the model's wire, which a tool server may want to know."""


def kind_of_request(request_id: str) -> EffectKind:
    """Return the kind of the effect that has this request id."""
    if request_id.endswith(":cancel"):
        return "cancel"
    if request_id.startswith("answer:"):
        return "answer"
    return "close" if request_id.startswith("close:") else "invoke"


class Chosen(msgspec.Struct, frozen=True):
    """What a person has chosen, and where the tool server wants to hear of it."""

    url: str
    selected: int


class Outgoing(msgspec.Struct, frozen=True, gc=False):
    """A message that a commit puts into an inbox; with a `due` time (milliseconds since 1970) it is a timer."""

    message: InputMessage
    due: int = 0


class NewThread(msgspec.Struct, frozen=True):
    """A thread to be made: its head and its launch configuration (by digest).

    One that a commit spawns belongs to the tenant of the thread that spawns it, whatever `tenant` says; its
    `config_body` is empty, since the store has that configuration.
    """

    thread_id: str
    tenant: str
    head: bytes
    config: bytes
    config_body: bytes
    created: int
    parent: str = ""
    """The thread that spawns it; "" for a root."""
    root: str = ""
    """The thread at the top of its tree; "" for a root."""
    fork_of: str = ""
    """The thread with which a root shares the beginning of its history; "" if with none."""


class Blob(msgspec.Struct, frozen=True):
    """Bytes kept under their SHA-256."""

    digest: bytes
    data: bytes


class SliceCommit(msgspec.Struct, frozen=True, gc=False):
    """All that one round of a slice changes. It becomes visible together or not at all."""

    thread_id: str
    version: int
    """The version of the new head; the store refuses any but the next one."""
    head: bytes
    page: bytes
    """The items appended; empty when there are none."""
    receipt: bytes
    status: Status
    consumed: tuple[str, ...] = ()
    """Message ids that have their final disposition: they leave the inbox and are known from now on."""
    deferred: tuple[tuple[str, int], ...] = ()
    """Messages that stay in the inbox, with the moment at which they wake the thread themselves."""
    dropped: tuple[str, ...] = ()
    """Timers (message ids) that no longer matter."""
    rewritten: tuple[InputMessage, ...] = ()
    """Messages that stay in the inbox, where they stand, and say something else from now on."""
    spawned: tuple[NewThread, ...] = ()
    outgoing: tuple[Outgoing, ...] = ()
    effects: tuple[Effect, ...] = ()
    settled: tuple[str, ...] = ()
    """Request ids of effects that are over."""
    continues: bool = False
    """The thread has something to do without any further input: it stays ready."""
    blobs: tuple[Blob, ...] = ()
    """Bytes that the new head refers to."""
    asking: int = 0
    """Questions of the thread that wait for a person, from now on."""
    at: int = 0
    """The moment of the commit."""
