"""Money as people read it."""

from hibernaut.messages.text import dollars


def at_least(cost: int, unpriced: int) -> str:
    """Return a sum in words: `cost` in millionths of a dollar, at least, if there are tokens without a price."""
    return f"at least {dollars(cost)} ({unpriced:,} tokens have no known price)" if unpriced else dollars(cost)
