"""What bounds a thread, in lines for people: of what its authority and its options say, the lesser counts."""

from typing import Any

from hibernaut.kernel.authority import Judge, least
from hibernaut.kernel.limits import ThreadOptions
from hibernaut.messages.text import dollars, duration


def limits(judge: Judge, options: ThreadOptions) -> str:
    """Return what a thread may spend, and how many children it may have."""
    tokens = least((options.token_budget, judge.tokens))
    depth, children = judge.max_depth, judge.max_children
    deep = options.max_depth if depth is None else min(depth, options.max_depth)
    many = options.max_children if children is None else min(children, options.max_children)
    return ", ".join(
        (
            f"{_count(judge.calls)} calls",
            f"{_count(tokens)} tokens",
            *((f"{dollars(judge.cost)} for its model",) if judge.cost else ()),
            f"{duration(1_000 * judge.seconds) if judge.seconds else 'any time'} of work",
            f"{many:,} children at once",
            f"threads nested {deep:,} deep",
        )
    )


def events(judge: Judge, options: ThreadOptions) -> str:
    """Return which events it takes."""
    per_minute = least((options.max_events_per_minute, judge.events_per_minute))
    size = f"up to {judge.event_bytes:,} bytes" if judge.event_bytes else "of any size"
    lasts = f"for {duration(judge.lifetime)}" if judge.lifetime else "without end"
    return f"{size}, {_count(per_minute)} a minute; a subscription lasts {lasts}"


def events_of(judge: Judge, options: ThreadOptions, tool: str, server: str) -> str:
    """Return what would become of events of a tool."""
    if not judge.takes_events_of(tool, server):
        return "its events are refused"
    return f"its events are taken: {events(judge, options)}"


def events_record(judge: Judge, options: ThreadOptions, tool: str, server: str) -> dict[str, Any]:
    """Return the same as plain values, fit for JSON; 0 is no bound, `lifetime` in seconds."""
    return {
        "taken": judge.takes_events_of(tool, server),
        "max_bytes": judge.event_bytes,
        "per_minute": least((options.max_events_per_minute, judge.events_per_minute)),
        "lifetime": judge.lifetime // 1_000,
    }


def _count(bound: int) -> str:
    return f"{bound:,}" if bound else "any number of"
