"""The built-in agent of a chaos run: it uses everything that a thread can wait for.

Each run draws some chores. Whatever becomes of a call, the agent says the same about it, so that a crash may change
nothing but the result of a call that is unknown.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable, Coroutine, Sequence
from typing import Any

from hibernaut.kernel.limits import ThreadOptions
from hibernaut.kernel.outside import unfenced
from hibernaut.messages.items import CallItem, Item, ResultItem, TextItem, UserItem
from hibernaut.messages.parts import plain_text
from hibernaut.models.errors import ConnectionLost
from hibernaut.models.protocol import ModelRequest
from hibernaut.models.scripted import Playable, ScriptedTurn, call, fail, last_user_text, say, turn
from hibernaut.rap import ToolServer
from hibernaut.testing.life import Life
from hibernaut.testing.play import Play
from hibernaut.testing.seen import THREAD, Seen
from hibernaut.tools.context import Deferred, ToolContext
from hibernaut.tools.tool import AnyTool, tool

CHORES: dict[str, Callable[[], ScriptedTurn]] = {
    "work": lambda: call("work"),
    "look": lambda: call("look"),
    "count": lambda: call("count"),
    "stamp": lambda: call("stamp"),
    "both": lambda: turn("I do both. ", call("work"), call("look")),
    "sleep": lambda: call("sleep", seconds=60),
    "defer": lambda: call("defer"),
    "ask": lambda: call("ask"),
    "hire": lambda: call("spawn_thread", instructions="Work", child_of=[]),
    "order": lambda: call("order"),
    "follow": lambda: call("follow"),
    "stutter": lambda: say("Once more."),
}
"""What the agent can be told to do, and what it does first."""

FAR = ("order", "follow")
"""Those that a tool server does."""

DRAWN = 4
"""Chores of one run."""

EVENTS = 3
"""Events of what is followed."""

POLL = 0.005
"""Seconds between two looks at what another process has noted."""


def chores(life: Life) -> Play:
    """Do some chores, one after the other, a tool server among those who help."""
    drawn = life.chance.sample(sorted(CHORES), DRAWN)
    return _play(life, drawn, _server(life))


def chores_at_home(life: Life) -> Play:
    """Do some chores without a tool server."""
    return _play(life, life.chance.sample(sorted(set(CHORES) - set(FAR)), DRAWN), None)


def _play(life: Life, drawn: Sequence[str], server: ToolServer | None) -> Play:
    async def drive() -> None:
        async with asyncio.TaskGroup() as group:
            # At once: a process that comes after a crash finds a thread that waits for help with a later chore.
            for chore in set(drawn) & _HELPED.keys():
                group.create_task(_HELPED[chore](life))
            for chore in drawn:
                await life.say(chore, chore)
                await life.settle()

    return Play(
        lambda request: _answer(life, request),
        drive,
        _tools(life),
        ThreadOptions(parallel_calls=2),
        server=server,
        check=lambda seen: _check(drawn, seen),
    )


def _check(drawn: Sequence[str], seen: Seen) -> None:
    for chore in drawn:
        if not seen.says(f"Done: {chore}."):
            raise AssertionError(f"the chore {chore!r} was not done")


# The model


async def _answer(life: Life, request: ModelRequest) -> Playable:
    if request.thread_id != THREAD:
        await life.gate("children").wait()
        return _child(request)
    chore, since = last_user_text(request), _since_the_user(request)
    if chore == "stutter":
        seen = await life.look()
        return say(f"Done: {chore}.") if seen.notices("retry") else fail(ConnectionLost("reset"), "Half a tu")
    # An event is a result, too, between two lines that say where it comes from.
    heard = [unfenced(plain_text(item.content)) for item in since if isinstance(item, ResultItem)]
    if not heard:
        return CHORES[chore]()
    if chore == "follow" and f"event {EVENTS}" not in heard[-_new(since) :]:
        return say(f"Heard: {heard[-1]}.")
    if chore == "hire" and len(heard) == 1:
        return say("It is in hand.")
    return say(f"Done: {chore}.")


def _new(since: Sequence[Item]) -> int:
    """Return how many results the model has not spoken to yet: events may come together."""
    spoken = max((place for place, item in enumerate(since) if isinstance(item, TextItem)), default=-1)
    return sum(isinstance(item, ResultItem) for item in since[spoken + 1 :])


def _since_the_user(request: ModelRequest) -> Sequence[Item]:
    items = list(request.transcript)
    last = max(place for place, item in enumerate(items) if isinstance(item, UserItem))
    return items[last + 1 :]


def _child(request: ModelRequest) -> ScriptedTurn:
    items = list(request.transcript)
    hired = [place for place, item in enumerate(items) if isinstance(item, ResultItem) and "of your own" in str(item)]
    own = [item for item in items[hired[-1] :] if isinstance(item, CallItem)]
    return (
        call("close_thread", thread_id=request.thread_id, report_to_parent="The work is done.") if own else call("work")
    )


# Its tools


def _tools(life: Life) -> list[AnyTool]:
    @tool
    async def work(context: ToolContext) -> str:
        """Do what must not be done twice."""
        await asyncio.sleep(0)
        life.did(context)
        return "worked"

    @tool(idempotent=True)
    async def look(context: ToolContext) -> str:
        """Do what may be done twice."""
        life.did(context)
        return "looked"

    @tool(idempotent=True)
    def count() -> str:
        """Work in a thread of its own."""
        return "counted"

    @tool(inline=True)
    async def stamp(context: ToolContext) -> str:
        """Work within the slice."""
        life.did(context)
        return "stamped"

    @tool(idempotent=True)
    async def defer(context: ToolContext) -> Deferred:
        """Leave the answer to somebody else."""
        deferred = context.defer()
        life.handed_out(context, deferred.token)
        return deferred

    @tool(idempotent=True)
    async def ask(context: ToolContext) -> str:
        """Ask a person."""
        return await context.ask("Where?", ["here", "there"])

    return [work, look, count, stamp, defer, ask]


def _server(life: Life) -> ToolServer:
    server = ToolServer("far")

    @server.tool
    async def order(context: ToolContext) -> str:
        """Order."""
        life.did(context)
        return "ordered"

    @server.tool(events="associative")
    async def follow() -> AsyncGenerator[str, None]:
        """Follow what happens."""
        yield "subscribed"
        for number in range(1, EVENTS + 1):
            await _until_heard(life, number)
            yield f"event {number}"

    return server


async def _until_heard(life: Life, number: int) -> None:
    """Return when the thread has heard what came before: the process that says so is another one."""
    while ("heard", str(number)) not in life.world.again().records:  # noqa: ASYNC110  # nobody else could tell
        await asyncio.sleep(POLL)


# Those who help it


async def _deliver(life: Life) -> None:
    await life.until(lambda seen: bool(life.world.of("token")) or seen.answered("defer"))
    for _, token in life.world.of("token")[:1]:
        await life.deliver(token, "done elsewhere")


async def _reply(life: Life) -> None:
    await life.answer("Where?", "there", tool="ask")


async def _let_the_child_work(life: Life) -> None:
    await life.until(lambda seen: seen.says("It is in hand."))
    life.gate("children").set()
    await life.until(lambda seen: seen.says("Done: hire."))


async def _let_events_come(life: Life) -> None:
    heard = "subscribed"
    for number in range(1, EVENTS + 1):
        await life.until(lambda seen, heard=heard: seen.says(f"Heard: {heard}."))  # type: ignore[misc]
        life.world.note("heard", str(number))
        heard = f"event {number}"
    await life.until(lambda seen: seen.says("Done: follow."))


_HELPED: dict[str, Callable[[Life], Coroutine[Any, Any, None]]] = {
    "defer": _deliver,
    "ask": _reply,
    "hire": _let_the_child_work,
    "follow": _let_events_come,
}
