"""Who is whose child, and what of a tree may be removed: what the stores share, and the index of the one in memory.

A root without children stands in no index.
"""

from collections.abc import Iterable, Iterator, Sequence

import msgspec


class Member(msgspec.Struct, frozen=True, gc=False):
    """A thread of a tree, by whatever names it in its store. `over`: by itself it might go."""

    key: str | int
    parent: str | int | None
    is_closed: bool
    over: bool


def prunable(tree: Sequence[Member]) -> list[str | int]:
    """Return the threads of a tree that may go: over, with all their descendants. Parents stand before children."""
    stays: set[str | int | None] = set()
    for member in reversed(tree):
        if not member.over or member.key in stays:
            stays |= {member.key, member.parent}
    root = tree[0]
    if root.is_closed and root.key in stays:
        return []
    return [member.key for member in tree if member.key not in stays]


class _Tree(msgspec.Struct, gc=False, eq=False):
    root: str
    descendants: dict[str, None]
    """In the order they were made."""
    living: int = 0
    """Those that are not closed."""


class Trees:
    """The trees that have more than a root."""

    __slots__ = ("_forks", "_origins", "_parents", "_trees")

    def __init__(self) -> None:
        self._parents: dict[str, tuple[str, _Tree]] = {}
        self._trees: dict[str, _Tree] = {}
        self._origins: dict[str, str] = {}
        self._forks: dict[str, dict[str, None]] = {}

    def add(self, thread_id: str, parent: str) -> None:
        """Add a new thread below another."""
        above = self._parents.get(parent)
        tree = above[1] if above else self._trees.setdefault(parent, _Tree(parent, {}))
        tree.descendants[thread_id] = None
        tree.living += 1
        self._parents[thread_id] = parent, tree

    def add_fork(self, thread_id: str, origin: str) -> None:
        """Note that a new root shares the beginning of its history with another thread."""
        self._origins[thread_id] = origin
        self._forks.setdefault(origin, {})[thread_id] = None

    def origin(self, thread_id: str) -> str:
        """Return the thread that one is a fork of, "" if it is none."""
        return self._origins.get(thread_id, "")

    def has_forks(self, thread_id: str) -> bool:
        """Tell whether a thread has any."""
        return thread_id in self._forks

    def forks(self, root: str) -> list[str]:
        """Return the forks of the threads in a tree, in the order they were made."""
        found = {fork for member in self.members(root) for fork in self._forks.get(member, ())}
        return [fork for fork in self._origins if fork in found] if found else []

    def place(self, thread_id: str) -> tuple[str, str]:
        """Return a thread's parent and root: two empty names for a root."""
        above = self._parents.get(thread_id)
        return (above[0], above[1].root) if above else ("", "")

    def is_root(self, thread_id: str) -> bool:
        """Tell whether a thread has no parent."""
        return thread_id not in self._parents

    def count_closed(self, thread_id: str, more: int) -> None:
        """Take down that a thread was closed (1), or is closed no more (-1)."""
        if (above := self._parents.get(thread_id)) is not None:
            above[1].living -= more

    def living(self, root: str) -> int:
        """Return how many descendants of a root are not closed."""
        tree = self._trees.get(root)
        return tree.living if tree else 0

    def members(self, root: str) -> Iterator[str]:
        """Yield a root and its descendants, in the order they were made."""
        yield root
        if (tree := self._trees.get(root)) is not None:
            yield from tree.descendants

    def remove(self, thread_ids: Iterable[str], closed: set[str]) -> None:
        """Forget threads, of which some are closed; each with all its descendants."""
        for thread_id in thread_ids:
            self._trees.pop(thread_id, None)
            if (origin := self._origins.pop(thread_id, "")) and (forks := self._forks.get(origin)):
                del forks[thread_id]
                if not forks:
                    del self._forks[origin]
            if (above := self._parents.pop(thread_id, None)) is None:
                continue
            tree = above[1]
            del tree.descendants[thread_id]
            tree.living -= thread_id not in closed
            if not tree.descendants:
                self._trees.pop(tree.root, None)
