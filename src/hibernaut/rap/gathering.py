"""Many callers, one piece of work: what is asked for while the work is under way is done together, next."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, TypeVar

from hibernaut.rap.answers import Unavailable

T = TypeVar("T")
R = TypeVar("R")


class _Group(Generic[T, R]):
    __slots__ = ("done", "items")

    def __init__(self) -> None:
        self.items: list[T] = []
        self.done: asyncio.Future[Sequence[R]] = asyncio.get_running_loop().create_future()


class Gathering(Generic[T, R]):
    """Does some work for groups of items, one group after the other. It has no task of its own.

    Args:
        work: returns a result for every item, in their order; what it raises is raised to everybody in the group.
    """

    def __init__(self, work: Callable[[Sequence[T]], Awaitable[Sequence[R]]]) -> None:
        self._work = work
        self._turn = asyncio.Lock()
        self._next: _Group[T, R] | None = None

    async def join(self, item: T) -> R:
        """Have the work done for one item; the first of a group does it for all.

        Raises:
            Unavailable: whoever did the work was cancelled.
        """
        group, leads = self._next, False
        if group is None:
            group = self._next = _Group()
            leads = True
        place = len(group.items)
        group.items.append(item)
        if not leads:
            return (await asyncio.shield(group.done))[place]
        try:
            async with self._turn:
                self._next = None
                results = await self._work(group.items)
        except BaseException as error:
            if self._next is group:
                self._next = None
            failed = error if isinstance(error, Exception) else Unavailable("the runtime is going down; come again")
            group.done.set_exception(failed)
            group.done.exception()  # there may be nobody else to hear of it
            raise
        group.done.set_result(results)
        return results[place]
