"""Courses whose threads and calls are named by their order.

The names of calls follow from the version of the head at which they were made, so that two courses that took their
inputs in together or one by one have other names for the same. Here they have the same ones.
"""

from msgspec.structs import replace

from hibernaut.messages.inputs import Delivered
from hibernaut.messages.items import CallItem, EventItem, decode_page
from hibernaut.stores.protocol import EffectRow, LogRow
from hibernaut.testing.courses import Course
from hibernaut.testing.seen import THREAD, Seen
from hibernaut.testing.world import World

_CALL = "call_"

MOST = 10_000
"""Calls of one thread that have names of their own."""


def canonical(course: Course) -> Course:
    """Return a course with its threads and calls named by their order."""
    names = _Names(course)
    tree = {names.text(name): names.seen(seen) for name, seen in course.seen.tree.items()}
    if THREAD in tree:
        tree[THREAD].tree = tree
    world = World()
    world.servers = course.world.servers
    world.records = [tuple(map(names.text, record)) for record in course.world.records]
    unknown = {names.text(name): told for name, told in course.unknown.items()}
    seen = tree.get(THREAD, course.seen)
    return replace(course, seen=seen, world=world, unknown=unknown)


class _Names:
    """New names of the same lengths, so that they can take the places of the old ones in bytes."""

    def __init__(self, course: Course) -> None:
        self._new: dict[str, str] = {}
        for number, (name, seen) in enumerate(course.seen.tree.items()):
            if name != THREAD:
                self._new[name] = f"thread_{number:0{len(name) - 7}}"
            named = [item for item in seen.items if isinstance(item, CallItem | EventItem)]
            for place, item in enumerate(named):
                # The part that the names of questions have, too.
                own = item.id.removeprefix(_CALL)
                self._new[own] = f"{number * MOST + place:0{len(own)}}"

    def text(self, text: str) -> str:
        """Return a text with new names."""
        for old, new in self._new.items():
            text = text.replace(old, new)
        return text

    def data(self, data: bytes) -> bytes:
        """Return bytes with new names."""
        for old, new in self._new.items():
            data = data.replace(old.encode(), new.encode())
        return data

    def seen(self, seen: Seen) -> Seen:
        """Return a thread with new names in all that is compared."""
        log = [LogRow(row.version, self.data(row.page), self.data(row.receipt)) for row in seen.log]
        inbox = tuple([Delivered(self.text(one.message_id), one.accepted, None) for one in seen.inbox])
        effects = [self._effect(row) for row in seen.effects]
        items = [item for row in log for item in decode_page(row.page)]
        return replace(seen, log=log, items=items, inbox=inbox, effects=effects)

    def _effect(self, row: EffectRow) -> EffectRow:
        return replace(row, effect=replace(row.effect, request_id=self.text(row.effect.request_id)))
