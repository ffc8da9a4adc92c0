"""Money as people read it."""

from hibernaut.messages.text import dollars


def about(cost: int, estimated: int) -> str:
    """Return a sum in millionths of a dollar, marked if some of it is `estimated`."""
    return f"~{dollars(cost)}" if estimated else dollars(cost)


def at_least(cost: int, unpriced: int, estimated: int) -> str:
    """Return a sum in words: `cost` in millionths of a dollar, at least, if there are tokens without a price."""
    told = about(cost, estimated)
    return f"at least {told} ({unpriced:,} tokens have no known price)" if unpriced else told
