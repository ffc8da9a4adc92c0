"""Money as people read it."""


def dollars(cost: int, unpriced: int = 0) -> str:
    """Return a sum in words: `cost` in millionths of a dollar, at least, if there are tokens without a price."""
    amount = cost / 1_000_000
    text = f"${amount:,.2f}" if amount >= 1 else f"${amount:.4f}"
    return f"at least {text} ({unpriced:,} tokens have no known price)" if unpriced else text
