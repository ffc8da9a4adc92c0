"""Functions at work: how one is called for a call, and what its end means as an answer."""

import asyncio
import inspect
import logging
from collections.abc import AsyncGenerator
from functools import partial
from types import CoroutineType
from typing import Final, cast

import msgspec

from hibernaut.tools.context import Deferred, ToolContext, ToolEvent
from hibernaut.tools.results import Outcome, failure
from hibernaut.tools.results import outcome as outcome_of
from hibernaut.tools.threads import Threads
from hibernaut.tools.tool import AnyTool

logger = logging.getLogger(__name__)

FROM_A_STRANGER: Final = BaseException
"""What a tool may raise and is its answer then: anything, unless it is told to end or Ctrl-C was pressed."""

_NOTHING: Final = object()


class _Exit(msgspec.Struct, frozen=True):
    """A tool wanted the process to exit."""

    error: SystemExit


class Functions:
    """Calls the functions of tools."""

    def __init__(self) -> None:
        self._threads = Threads()
        self._left_alone: set[asyncio.Task[object]] = set()
        """Functions with a time-out; held here so that none is collected while it runs."""

    async def run(self, tool: AnyTool, arguments: str, context: ToolContext | None, call_id: str) -> Outcome | None:
        """Run a function to its end; return how its call ended, None if it goes on and is answered under its token.

        Raises:
            CancelledError: the call was cancelled.
        """
        limit = _limit(tool) if tool.timeout else None
        try:
            keywords = tool.keywords(arguments, context)
            value = await (self._value(tool, keywords) if limit is None else self._in_time(tool, keywords, limit))
            return _ended(value, call_id)
        except FROM_A_STRANGER as error:
            return _how_it_failed(tool, error, limit)

    async def _in_time(self, tool: AnyTool, keywords: dict[str, object], limit: asyncio.Timeout) -> object:
        """Wait for a function no longer than it may run; one that does not heed its cancellation is left to itself."""
        task = asyncio.get_running_loop().create_task(self._value_or_exit(tool, keywords))
        self._left_alone.add(task)
        task.add_done_callback(self._left_alone.discard)
        try:
            async with limit:
                await asyncio.wait([task])
        finally:
            task.cancel()
        value = task.result()
        if isinstance(value, _Exit):
            raise value.error
        return value

    async def _value_or_exit(self, tool: AnyTool, keywords: dict[str, object]) -> object:
        try:
            return await self._value(tool, keywords)
        except SystemExit as error:  # raised in a task of its own it would end the event loop
            return _Exit(error)

    async def _value(self, tool: AnyTool, keywords: dict[str, object]) -> object:
        if tool.threaded:
            return await self._threads.run(partial(tool.function, **keywords))
        value = tool.function(**keywords)
        return await value if isinstance(value, CoroutineType) or inspect.isawaitable(value) else value


class Subscription:
    """What an async generator yields, as events. An error of its own ends it with an event that says so."""

    def __init__(self, tool: AnyTool, arguments: str, context: ToolContext) -> None:
        self.ended: Outcome | None = None
        """How it ended, once it did."""
        self._tool = tool
        self._arguments = arguments
        self._context = context
        self._values: AsyncGenerator[object, None] | None = None

    async def next(self, refused: Exception | None = None) -> ToolEvent | None:
        """Return the next event, the first one within the tool's time-out; None if there is none any more.

        `refused`: why the last one was not taken, which is raised where the function yielded it.

        Raises:
            CancelledError: the subscription was cancelled.
        """
        if self.ended is not None:
            return None
        limit = _limit(self._tool if self._values is None else None)
        try:
            if self._values is None:
                keywords = self._tool.keywords(self._arguments, self._context)
                self._values = cast("AsyncGenerator[object, None]", self._tool.function(**keywords))
            async with limit:
                value = await (anext(self._values, _NOTHING) if refused is None else self._throw(refused))
        except FROM_A_STRANGER as error:
            self.ended = _how_it_failed(self._tool, error, limit)
            return None
        if value is _NOTHING:
            self.ended = Outcome("The subscription has ended.")
            return None
        return value if isinstance(value, ToolEvent) else ToolEvent(value)

    async def _throw(self, refused: Exception) -> object:
        try:
            return await self._values.athrow(refused) if self._values is not None else _NOTHING
        except StopAsyncIteration:
            return _NOTHING

    async def close(self) -> None:
        """Let the generator clean up."""
        if self._values is None:
            return
        try:
            await self._values.aclose()
        except FROM_A_STRANGER as error:
            _how_it_failed(self._tool, error)


def is_asked_to_end() -> bool:
    """Tell whether somebody wants the current task to end; otherwise a cancellation in it is somebody else's."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def _limit(tool: AnyTool | None) -> asyncio.Timeout:
    return asyncio.timeout(tool.timeout / 1_000 if tool is not None and tool.timeout else None)


def _ended(value: object, call_id: str) -> Outcome | None:
    if not isinstance(value, Deferred):
        return outcome_of(value)
    if value.call_id == call_id:
        return None
    return Outcome(
        "Error: the tool deferred another call than its own, so nobody would answer this one.", is_error=True
    )


def _how_it_failed(tool: AnyTool, error: BaseException, limit: asyncio.Timeout | None = None) -> Outcome:
    """Return what a tool's failure is as its answer. A cancellation is one when nobody asked for it."""
    asked = isinstance(error, asyncio.CancelledError) and is_asked_to_end()
    if asked or isinstance(error, KeyboardInterrupt | GeneratorExit):
        raise error
    if isinstance(error, TimeoutError) and limit is not None and limit.expired():
        return Outcome(f"Error: {tool.name} did not answer within {tool.timeout / 1_000:g} s.", is_error=True)
    logger.info("tool %s failed", tool.name, exc_info=error)
    return failure(error)
