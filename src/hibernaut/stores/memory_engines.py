"""What the store in memory knows of engines."""

from typing import Final

import msgspec


class Engine(msgspec.Struct, eq=False):
    """What the store knows of an engine. `silent`: it left or counts as dead; its claims stand in the queues again."""

    engine_id: str
    process: str
    seen: int
    claims: set[str]
    effects: dict[str, None]
    """Request ids of the `pending` and `sent` effects that it holds."""
    silent: bool = False


FROZEN: Final = Engine("", "", 0, set(), {})
"""Stands for an owner in the threads that nothing may run."""
