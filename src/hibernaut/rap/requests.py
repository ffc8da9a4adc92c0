"""What a runtime sends to a tool server: calls, and notices after them."""

from typing import Annotated, Any

import msgspec
from msgspec import Meta

from hibernaut.rap.limits import (
    DEEPEST_ANCESTRY,
    LONGEST_ADDRESS,
    LONGEST_CALLBACK_URL,
    LONGEST_ID,
    LONGEST_NAME,
)
from hibernaut.rap.reading import LARGEST_INTEGER

Id = Annotated[str, Meta(min_length=1, max_length=LONGEST_ID)]


class Invocation(msgspec.Struct, frozen=True, omit_defaults=True):
    """A call. `id` is the runtime's own and unique for ever, `call_id` the provider's; `group_id` is the thread.

    `thread_ancestors` has the root first and not the thread itself; a root has None.
    """

    operation: Annotated[str, Meta(min_length=1, max_length=LONGEST_NAME)]
    arguments: dict[str, Any]
    id: Id
    call_id: str | None
    callback_url: Annotated[str, Meta(min_length=1, max_length=LONGEST_CALLBACK_URL)]
    group_id: Id
    thread_ancestors: Annotated[tuple[Id, ...], Meta(max_length=DEEPEST_ANCESTRY)] | None
    user_id: Annotated[str, Meta(max_length=LONGEST_ID)] | None = None


class CancelToolCall(msgspec.Struct, frozen=True):
    """A call, or a subscription, is no longer wanted."""

    thread_id: Id
    tool_call_id: Id


class CloseThread(msgspec.Struct, frozen=True):
    """A thread has ended, and with it whatever the server does for it."""

    thread_id: Id


class AskStatus(msgspec.Struct, frozen=True):
    """Is this call still at work?"""

    thread_id: Id
    tool_call_id: Id


class Alive(msgspec.Struct, frozen=True):
    """The server's answer to that."""

    alive: bool


class Migrate(msgspec.Struct, frozen=True):
    """Move the state of a session to another server."""

    session_id: Id
    destination_url: Annotated[str, Meta(max_length=LONGEST_ADDRESS)]


class Selected(msgspec.Struct, frozen=True):
    """A person's answer to a question of call `id`: the number of the choice, the first being 0."""

    id: Id
    selected: Annotated[int, Meta(ge=0, le=LARGEST_INTEGER)]


Request = Invocation | CancelToolCall | CloseThread | AskStatus | Alive | Migrate | Selected
