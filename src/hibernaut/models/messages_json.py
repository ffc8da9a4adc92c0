"""Messages of two sides as JSON text, each a list of blocks. What was written is never written anew."""

from typing import Final, Literal

Side = Literal["user", "model"]


MOST_CHUNKS: Final = 256
"""Pieces that are kept apart before they are made one."""


class MessageList:
    """A JSON array of messages that take turns, open at its end.

    The last block is kept without its closing brace, so that a mark can still be added to it: what stands before the
    mark is the same, byte for byte, however long the list becomes.

    Args:
        user, model: what a message of this side begins with, up to the first of its blocks.
        end: what it ends with, after the last.
    """

    __slots__ = ("_chunks", "_end", "_heads", "_place", "_side", "size")

    def __init__(self, user: bytes, model: bytes, end: bytes = b"]}") -> None:
        self._heads = {"user": user, "model": model}
        self._end = end
        self._side: Side | None = None
        self._chunks: list[bytes] = [b"["]
        self._place = 0
        self.size = 1

    @property
    def side(self) -> Side | None:
        """Who spoke last."""
        return self._side

    def add(self, side: Side, block: bytes) -> None:
        """Add a block, a JSON object, to the message of a side. It begins one unless that side spoke last."""
        if side == self._side:
            opening = b"},"
        elif self._side is None:
            opening = self._heads[side]
        else:
            opening = b"}" + self._end + b"," + self._heads[side]
            if side == "model":
                self._place = len(self._chunks)
        self._side = side
        self._chunks += (opening, block[:-1])
        self.size += len(opening) + len(block) - 1

    def extend(self, members: bytes) -> None:
        """Add members to the last block for good, with a comma before them."""
        self._chunks.append(members)
        self.size += len(members)

    def text(self, mark: bytes = b"", *, twice: bool = False) -> bytes:
        """Return the whole array. `mark` is added as `pieces` does it."""
        return b"".join(self.pieces(mark, twice=twice))

    def pieces(self, mark: bytes = b"", *, twice: bool = False) -> list[bytes]:
        """Return the whole array in pieces, so that who puts it into something copies it only once.

        `mark` is added to the last block: further members, with a comma before them. With `twice` it is also added to
        the last block that the user's side had when the model was last asked.
        """
        if self._side is None:
            return [b"[]"]
        if len(self._chunks) > MOST_CHUNKS:
            before, after = self._chunks[: self._place], self._chunks[self._place :]
            self._chunks = [b"".join(part) for part in (before, after) if part]
            self._place = min(self._place, 1)
        place = self._place if twice else 0
        earlier = [*self._chunks[:place], mark] if place else []
        return [*earlier, *self._chunks[place:], mark, b"}", self._end, b"]"]
