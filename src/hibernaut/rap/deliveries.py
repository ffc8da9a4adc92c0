"""Which deliveries are one and the same, where the wire does not say so itself.

An event without an id goes by the identity of its delivery. A server that sends the same body again may mean a second
event that happens to be equal, or may not have heard that the first was taken. It is a repeat if the delivery before
it is in doubt: its sender was gone before it was answered, or it was answered with something else than success. All
this is remembered in this process and for a while only; who wants more certainty sends an `event_id`, or an
`Idempotency-Key`.
"""

from collections import OrderedDict, deque
from typing import Final

import msgspec

from hibernaut.codec import sha256
from hibernaut.ids import Ids

RETRY_WINDOW: Final = 60_000
"""Milliseconds in which the same body counts as a repeat of a delivery that is in doubt."""

MOST_DOUBTFUL: Final = 4_096
"""Deliveries in doubt that are remembered."""

MOST_RESULTS: Final = 4_096
"""Results that are remembered, to know a repeat from a second one."""


class Delivery(msgspec.Struct):
    """One POST of an event without an id."""

    digest: bytes
    identity: str
    doubtful: bool = False


class Deliveries:
    """What is remembered of deliveries."""

    def __init__(self, ids: Ids) -> None:
        self._ids = ids
        self._doubtful: OrderedDict[bytes, deque[tuple[int, str]]] = OrderedDict()
        self._results: OrderedDict[str, bytes] = OrderedDict()

    def begin(self, scope: str, body: bytes, now: int, key: str = "") -> Delivery:
        """Give a delivery to `scope` its identity: that of one in doubt with the same body, else one of its own.

        With a `key`, which its sender gave it, it goes by that.
        """
        if key:
            return Delivery(b"", sha256(b"key|", scope.encode(), b"|", key.encode()).hex())
        digest = sha256(scope.encode(), b"|", body)
        waiting = self._doubtful.get(digest)
        while waiting:
            until, identity = waiting.popleft()
            if not waiting:
                del self._doubtful[digest]
            if now < until:
                return Delivery(digest, identity)
        return Delivery(digest, self._ids.new("delivery"))

    def doubt(self, delivery: Delivery, now: int) -> None:
        """Say that a sender may not have heard that its delivery was taken."""
        if delivery.doubtful or not delivery.digest:
            return
        delivery.doubtful = True
        self._doubtful.setdefault(delivery.digest, deque()).append((now + RETRY_WINDOW, delivery.identity))
        self._doubtful.move_to_end(delivery.digest)
        while len(self._doubtful) > MOST_DOUBTFUL:
            self._doubtful.popitem(last=False)

    def note_result(self, scope: str, body: bytes) -> None:
        """Remember the result that was taken for a call."""
        self._results[scope] = sha256(body)
        if len(self._results) > MOST_RESULTS:
            self._results.popitem(last=False)

    def is_repeat(self, scope: str, body: bytes) -> bool:
        """Tell whether this is, byte for byte, the result that was taken for a call."""
        return self._results.get(scope) == sha256(body)
