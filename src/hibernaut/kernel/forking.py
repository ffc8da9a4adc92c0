"""Where a thread's history may be forked, and how the fork begins.

A fork shares the pages of its origin by reference, up to a place between two turns at which no call is open: what it
shares is a history that any provider takes. Everything else of it is its own.
"""

from collections.abc import Sequence

import msgspec

from hibernaut.errors import MalformedInput
from hibernaut.kernel.head import Fork, Head, Summary
from hibernaut.messages.items import CallItem, EventItem, Item, ReasoningItem, ResultItem, TextItem, UserItem

FORKED = """\
[An operator has forked this conversation here: what stands above is shared with thread {origin}, and you go on from \
it in a thread of your own, {fork}. What was under way in the other one stays there: nothing comes here of its calls, \
subscriptions, timers and children.]"""

_MODEL_SIDE = (TextItem, ReasoningItem, CallItem)
_USER_SIDE = (UserItem, ResultItem, EventItem)


class Place(msgspec.Struct, frozen=True):
    """Where a thread is forked."""

    fork: Fork
    items: int
    """Items of the origin's own that it shares."""
    owes: bool
    """What it shares ends on the user's side."""


def fork_at(head: Head, inherited: Sequence[Item], pages: Sequence[Sequence[Item]], items: int | None) -> Place:
    """Return the place after so many of a thread's own items; None: as far on as there is one.

    Args:
        head: the origin's.
        inherited: what it inherits itself.
        pages: all its own items, by commit.
        items: how many of them the fork shares.

    Raises:
        MalformedInput: it cannot be forked there; the text names the nearest places.
    """
    allowed = _places(inherited, pages)
    if items is None:
        items = allowed[-1] if allowed else -1
    if items not in allowed:
        raise _no_place(head, items, allowed)
    before, version = 0, 0
    for page in pages:
        if items < before + len(page) or items == before:
            break
        before, version = before + len(page), version + 1
    own = [item for page in pages for item in page]
    shared = [*inherited, *own[:items]]
    last = next((item for item in reversed(shared) if isinstance(item, _USER_SIDE + _MODEL_SIDE)), None)
    fork = Fork(head.thread_id, version, items - before, _summary_at(head, version))
    return Place(fork, items, isinstance(last, _USER_SIDE))


def _places(inherited: Sequence[Item], pages: Sequence[Sequence[Item]]) -> list[int]:
    """Return all places, in order: the numbers of own items before them."""
    unanswered: set[str] = set()
    _follow(unanswered, inherited)
    allowed = [] if unanswered else [0]
    count = 0
    for page in pages:
        for at, item in enumerate(page, 1):
            count += 1
            _follow(unanswered, [item])
            if not unanswered and not _is_inside_turn(page, at):
                allowed.append(count)
    return allowed


def _follow(unanswered: set[str], items: Sequence[Item]) -> None:
    for item in items:
        if isinstance(item, CallItem):
            unanswered.add(item.id)
        elif isinstance(item, ResultItem):
            unanswered.discard(item.call_id)


def _is_inside_turn(page: Sequence[Item], at: int) -> bool:
    """Tell whether what stands before and after a place in a page is one turn: a turn is never in two pages."""
    shown = _USER_SIDE + _MODEL_SIDE
    before = next((item for item in reversed(page[:at]) if isinstance(item, shown)), None)
    after = next((item for item in page[at:] if isinstance(item, shown)), None)
    return isinstance(before, _MODEL_SIDE) and isinstance(after, _MODEL_SIDE)


def _summary_at(head: Head, version: int) -> Summary | None:
    """Return the summary if it stands in what is shared; if not, the model is shown all that is shared."""
    return head.summary if head.summary is not None and head.summary.version <= version else None


def _no_place(head: Head, items: int, allowed: Sequence[int]) -> MalformedInput:
    name = head.thread_id
    if not allowed:
        return MalformedInput(f"thread {name} cannot be forked yet: a call that it inherits is open")
    below = [place for place in allowed if place < items]
    above = [place for place in allowed if place > items]
    nearest = " or ".join(str(place) for place in [*below[-1:], *above[:1]])
    why = "it stands inside a turn, or between a call and its result" if above else "it has not so many items"
    return MalformedInput(f"thread {name} cannot be forked after item {items}: {why}. Fork it after item {nearest}")
