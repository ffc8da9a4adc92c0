"""Moments and spans as people write them. Moments are milliseconds since 1970."""

from datetime import datetime

_NOW = 2_000
"""Milliseconds that are called now."""

_UNITS = ((86_400, "d"), (3_600, "h"), (60, "min"), (1, "s"))


def moment(at: int) -> str:
    """Return a moment in local time, to the second."""
    return datetime.fromtimestamp(at / 1000).astimezone().strftime("%Y-%m-%d %H:%M:%S")


def clock_time(at: int) -> str:
    """Return the time of day of a moment, in local time."""
    return datetime.fromtimestamp(at / 1000).astimezone().strftime("%H:%M:%S")


def span(milliseconds: int) -> str:
    """Return how long that is, in the largest unit that gives at least two."""
    seconds = abs(milliseconds) // 1000
    for size, unit in _UNITS:
        if seconds >= 2 * size:
            return f"{seconds // size} {unit}"
    return f"{seconds} s"


def ago(at: int, now: int) -> str:
    """Return how long ago a moment was, or in how long it will be."""
    if abs(now - at) < _NOW:
        return "now"
    return f"{span(now - at)} ago" if at < now else f"in {span(at - now)}"
