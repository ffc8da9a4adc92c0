"""What a commit owes to a tool server, as what is sent to it."""

from collections.abc import Sequence
from typing import Any, Final

import msgspec

from hibernaut.kernel.commit import Effect
from hibernaut.rap.requests import CancelToolCall, Invocation
from hibernaut.rap.wire import CALLBACK_PATH, VERSION
from hibernaut.tools.arguments import restore_arguments

_arguments: Final = msgspec.json.Decoder(dict[str, Any])


def invocation(
    effect: Effect,
    thread_id: str,
    callback_url: str,
    *,
    provider_id: str = "",
    ancestors: Sequence[str] = (),
    user: str = "",
) -> Invocation:
    """Return the call that an "invoke" effect owes. The arguments are as the model wrote them, NULs included.

    `ancestors` are the threads above this one, the root first; `provider_id` is the call's id on the model's wire.
    """
    arguments = restore_arguments(_arguments.decode(effect.arguments), effect.arguments)
    above = tuple(ancestors) or None
    return Invocation(
        effect.tool, arguments, effect.call_id, provider_id or None, callback_url, thread_id, above, user or None
    )


def cancellation(effect: Effect, thread_id: str) -> CancelToolCall:
    """Return the notice that a "cancel" effect owes."""
    return CancelToolCall(thread_id, effect.call_id)


def headers(effect: Effect) -> dict[str, str]:
    """Return the headers of an invocation: the same at every try, so that a server does the work once."""
    return {"Content-Type": "application/json", "Idempotency-Key": effect.request_id, "RAP-Version": VERSION}


def callback_url(public: str, token: str) -> str:
    """Return where the answer to a call is posted, below the runtime's public URL."""
    return public.rstrip("/") + CALLBACK_PATH + token
