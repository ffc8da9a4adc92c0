"""The numbers that are policy: each with its unit, its default and what it is for."""

from typing import Literal

import msgspec

from hibernaut.errors import ConfigurationError


class ThreadOptions(msgspec.Struct, frozen=True, omit_defaults=True):
    """How a thread behaves. Part of its launch configuration, so it survives restarts."""

    parallel_calls: int = 1
    """Calls of one turn that may be open at once; the others wait their turn."""

    on_user_text: Literal["detach", "cancel"] = "detach"
    """What becomes of open calls when the user speaks: they go on and report later, or are cancelled."""

    event_grace: int = 5_000
    """Milliseconds that an event waits for an open call before it is shown to the model anyway."""

    max_attempts: int = 6
    """Completions that may fail in a row before the thread is parked."""

    max_rounds: int = 16
    """Rounds in one slice before the thread goes to the back of the queue."""

    max_repeats: int = 5
    """Times the same call may fail the same way in a row before the thread is parked."""

    max_continuations: int = 3
    """Times in a row an answer cut by the output limit is continued."""

    token_budget: int = 0
    """Tokens (input and output) that the thread may use before it is parked; resuming grants it anew. 0: no bound."""

    max_calls_per_turn: int = 64
    """Calls of one turn; those above it are answered with a refusal."""

    call_deadline: int = 0
    """Milliseconds after which an open call is answered as timed out, unless its tool says otherwise; 0: never."""

    max_depth: int = 4
    """Threads between a child and its root, the root included."""

    max_children: int = 16
    """Children made by `spawn_thread` that may live at once."""

    max_descendants: int = 256
    """Threads below one root that may live at once."""

    max_event_children: int = 8
    """Events of one subscription that may be at work at once, each in its thread; the others wait in the inbox."""

    max_events_per_minute: int = 600
    """Events of one subscription that are taken in within a minute; the others wait in the inbox. 0: no bound."""

    max_questions: int = 64
    """Questions to a person that a thread may have open at once."""

    context_window: int = 0
    """Tokens of the model's window, where the model does not say or says too much; 0: what the model says."""

    compact_at: int = 75
    """Percent of the window above which the beginning of the history is replaced by a summary; 0: never by itself."""


_LEAST = {
    "parallel_calls": 1,
    "max_attempts": 1,
    "max_rounds": 1,
    "max_repeats": 1,
    "max_calls_per_turn": 1,
    "max_event_children": 1,
}


_ALL = 100
"""Percent."""


def check_options(options: ThreadOptions) -> None:
    """Check that options can be lived with.

    Raises:
        ConfigurationError: naming the first that cannot.
    """
    for name in options.__struct_fields__:
        value = getattr(options, name)
        if isinstance(value, int) and value < (least := _LEAST.get(name, 0)):
            raise ConfigurationError(f"option {name} is {value}; it must be at least {least}")
    if options.compact_at > _ALL:
        raise ConfigurationError(f"option compact_at is {options.compact_at}; it is a percentage, at most {_ALL}")
    if options.on_user_text not in ("detach", "cancel"):
        raise ConfigurationError(f'option on_user_text is {options.on_user_text!r}; it is "detach" or "cancel"')


BACKOFF_FIRST = 1_000
"""Milliseconds before the second attempt of a completion."""

BACKOFF_MOST = 300_000
"""Milliseconds between two attempts, at most, unless the provider asks for longer."""

RETRY_AFTER_MOST = 24 * 3_600_000
"""Milliseconds: a provider that asks for more is not waited for; the thread is parked with its words."""

REMEMBERED_CALLS = 64
"""Calls that were cancelled or timed out and whose late result would still be shown; the oldest are forgotten."""

REMEMBERED_ARGUMENTS = 512
"""Bytes of the arguments that are kept of such a call: they stand in the head, which is written with every commit."""

INLINE_CONTENT = 64 * 1024
"""Bytes of a text or image above which it goes to a blob and an excerpt stays."""

EXCERPT = 16 * 1024
"""Bytes of the excerpt that stays of a text that went to a blob."""

LARGEST_CONTENT = 64 * 1024 * 1024
"""Bytes of one input's content; more is refused."""
