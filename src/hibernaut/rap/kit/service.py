"""What lives while a tool server runs, put together."""

import asyncio
import logging
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Final

import msgspec

from hibernaut.clock import Clock
from hibernaut.errors import StoreError
from hibernaut.rap.exchange import Exchange
from hibernaut.rap.kit.alarms import Alarms
from hibernaut.rap.kit.calls import Calls
from hibernaut.rap.kit.delivery import Delivery
from hibernaut.rap.kit.questions import Questions
from hibernaut.rap.kit.state import Owed, State
from hibernaut.tools.tool import AnyTool

logger = logging.getLogger(__name__)

UPKEEP_EVERY: Final = 3_600_000
"""Milliseconds between two looks for calls that can be forgotten."""


class Service(msgspec.Struct, frozen=True):
    """The parts of a running server that its face speaks to."""

    calls: Calls
    questions: Questions


@asynccontextmanager
async def serving(tools: Mapping[str, AnyTool], path: str, clock: Clock, deliver_within: int) -> AsyncIterator[Service]:
    """Run the parts of a server: take up what the last process left, and at the end leave what is not done to the next.

    Raises:
        StoreError: the state file cannot be had.
    """
    state = await State.open(path)
    try:
        async with Exchange() as exchange:
            alarms = Alarms(clock)

            async def refused(key: str, owed: Owed, why: str) -> None:
                await calls.refused(key, owed, why)

            delivery = Delivery(state, exchange, alarms, clock, within=deliver_within, refused=refused)
            questions = Questions(state, delivery, alarms, clock)
            calls = Calls(tools, state, delivery, questions, alarms, clock)
            await delivery.begin()
            await calls.resume()
            # Not a group around the context: the program's own errors would come out of it in a group.
            running = asyncio.create_task(_run(alarms, delivery, state, clock))
            running.add_done_callback(_tell)
            try:
                yield Service(calls, questions)
            finally:
                await calls.stop()
                running.cancel()
                await asyncio.wait([running])
    finally:
        await state.close()


async def _run(alarms: Alarms, delivery: Delivery, state: State, clock: Clock) -> None:
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(alarms.run())
        tasks.create_task(delivery.run())
        tasks.create_task(_keep_up(state, clock))


async def _keep_up(state: State, clock: Clock) -> None:
    while True:
        try:
            await state.forget(clock.now())
        except StoreError:
            logger.exception("calls that are long over could not be forgotten; trying again")
        await clock.sleep(UPKEEP_EVERY)


def _tell(running: "asyncio.Task[None]") -> None:
    if not running.cancelled() and (error := running.exception()) is not None:
        logger.critical("the tool server does no work any more: start it anew", exc_info=error)
