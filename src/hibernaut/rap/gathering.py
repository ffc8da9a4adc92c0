"""Many callers, one piece of work: what is asked for while the work is under way is done together, next."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, TypeVar

from hibernaut.rap.answers import Unavailable

T = TypeVar("T")
R = TypeVar("R")


class _Group(Generic[T, R]):
    """The one who leads has the first item and no future."""

    __slots__ = ("items", "others")

    def __init__(self, first: T) -> None:
        self.items = [first]
        self.others: list[asyncio.Future[R]] = []


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
        if self._next is None:
            return await self._lead(item)
        done: asyncio.Future[R] = asyncio.get_running_loop().create_future()
        self._next.items.append(item)
        self._next.others.append(done)
        return await done

    async def _lead(self, item: T) -> R:
        group = self._next = _Group[T, R](item)
        try:
            async with self._turn:
                self._next = None
                own, *results = await self._work(group.items)
        except BaseException as error:
            if self._next is group:
                self._next = None
            failed = error if isinstance(error, Exception) else Unavailable("the runtime is going down; come again")
            for done in group.others:
                if not done.done():
                    done.set_exception(failed)
            raise
        for done, result in zip(group.others, results, strict=True):
            if not done.done():
                done.set_result(result)
        return own
