"""Which events a thread takes of its subscriptions, how many, how large, and for how long."""

import msgspec

from hibernaut.errors import ConfigurationError

LIFETIME = 30 * 86_400
"""Seconds that a subscription lasts unless its thread's authority says otherwise."""

LARGEST_EVENT = 1024 * 1024
"""Bytes of one event unless its thread's authority says otherwise."""


class EventPolicy(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True, kw_only=True):
    """The events that a thread takes. Part of its authority.

    `tools` and `servers` are patterns of names in which `*` stands for anything: an event is taken if its tool is of
    one of the first, and, where that works on a tool server, its server of one of the second.
    """

    tools: tuple[str, ...] = ("*",)
    servers: tuple[str, ...] = ("*",)
    max_bytes: int = LARGEST_EVENT
    """Bytes of one event; more is refused. 0: no bound of its own."""
    per_minute: int = 0
    """Events of one subscription that are taken in within a minute; the others wait. 0: no bound of its own."""
    lifetime: int = LIFETIME
    """Seconds after which a subscription ends; 0: never."""


def check_policy(policy: EventPolicy) -> EventPolicy:
    """Return a policy that can be meant.

    Raises:
        ConfigurationError: naming the number that cannot.
    """
    for bound in ("max_bytes", "per_minute", "lifetime"):
        if getattr(policy, bound) < 0:
            raise ConfigurationError(f"events.{bound} is {getattr(policy, bound)}; it must be at least 0 (0: no bound)")
    return policy
