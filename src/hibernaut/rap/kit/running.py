"""Functions at work: how one is called for a call, and what its end means."""

import asyncio
import inspect
import logging
from collections.abc import AsyncGenerator
from functools import partial
from typing import Any, Final, cast

from hibernaut.rap.kit.results import failed
from hibernaut.tools.context import Deferred, ToolContext, ToolEvent
from hibernaut.tools.results import Outcome, failure
from hibernaut.tools.results import outcome as outcome_of
from hibernaut.tools.threads import Threads
from hibernaut.tools.tool import AnyTool

logger = logging.getLogger(__name__)

FROM_A_STRANGER: Final = BaseException
"""What a tool may raise and is its answer then: anything, unless it is told to end or Ctrl-C was pressed."""

_NOTHING: Final = object()


async def run_function(tool: AnyTool, arguments: str, context: ToolContext, threads: Threads) -> Outcome | None:
    """Run a function to its end; return how it ended, None if its result is delivered later.

    Raises:
        CancelledError: the call was cancelled.
    """
    limit = _limit(tool)
    try:
        keywords = tool.keywords(arguments, context)
        async with limit:
            value = await _value(tool, keywords, threads)
        if not isinstance(value, Deferred):
            return outcome_of(value)
        if value.call_id == context.call_id:
            return None
        return failed("the tool deferred another call than its own, so nobody would answer this one.")
    except FROM_A_STRANGER as error:
        return _how_it_failed(tool, error, late=limit.expired())


class Subscription:
    """What an async generator yields, as events. An error of its own ends it with an event that says so."""

    def __init__(self, tool: AnyTool, arguments: str, context: ToolContext) -> None:
        self.ended: Outcome | None = None
        """How it ended, once it did."""
        self._tool = tool
        self._arguments = arguments
        self._context = context
        self._values: AsyncGenerator[object, None] | None = None

    async def next(self) -> ToolEvent | None:
        """Return the next event, the first one within the tool's time-out; None if there is none any more.

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
                value = await anext(self._values, _NOTHING)
        except FROM_A_STRANGER as error:
            self.ended = _how_it_failed(self._tool, error, late=limit.expired())
            return None
        if value is _NOTHING:
            self.ended = Outcome("The subscription has ended.")
            return None
        return value if isinstance(value, ToolEvent) else ToolEvent(value)

    async def close(self) -> None:
        """Let the generator clean up."""
        if self._values is None:
            return
        try:
            await self._values.aclose()
        except FROM_A_STRANGER as error:
            _how_it_failed(self._tool, error, late=False)


def _limit(tool: AnyTool | None) -> asyncio.Timeout:
    return asyncio.timeout(tool.timeout / 1_000 if tool is not None and tool.timeout else None)


async def _value(tool: AnyTool, keywords: dict[str, Any], threads: Threads) -> object:
    if tool.threaded:
        return await threads.run(partial(tool.function, **keywords))
    value = tool.function(**keywords)
    return await value if inspect.isawaitable(value) else value


def _how_it_failed(tool: AnyTool, error: BaseException, *, late: bool) -> Outcome:
    """Return what a tool's failure is as its answer. A cancellation is one when nobody asked for it."""
    task = asyncio.current_task()
    asked = isinstance(error, asyncio.CancelledError) and task is not None and task.cancelling() > 0
    if asked or isinstance(error, KeyboardInterrupt | GeneratorExit):
        raise error
    if late and isinstance(error, TimeoutError):
        return failed(f"{tool.name} did not answer within {tool.timeout / 1_000:g} s.")
    logger.info("tool %s failed", tool.name, exc_info=error)
    return failure(error)
