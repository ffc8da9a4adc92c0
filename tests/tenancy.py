"""Two tenants on one store: acme, whose thread "t" has what a thread can have, and other, who is after it."""

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from hibernaut.codec import sha256
from hibernaut.kernel.commit import Blob
from hibernaut.kernel.head import decode_head
from hibernaut.kernel.limits import INLINE_CONTENT, ThreadOptions
from hibernaut.messages.items import CallItem
from hibernaut.models.protocol import ModelRequest
from hibernaut.models.scripted import ScriptedTurn, call, say, turn
from hibernaut.stores.memory import MemoryStore
from hibernaut.stores.protocol import Store
from hibernaut.stores.sqlite import SqliteStore
from hibernaut.system import AgentSystem
from hibernaut.testing.clock import ManualClock
from hibernaut.tools.context import Deferred, ToolContext
from hibernaut.tools.tool import tool
from tests.engine.scenario import START, system

SECRET = "the plan of acme"
"""Stands in all that acme has: whoever reads it has crossed."""

LARGE = SECRET + "x" * INLINE_CONTENT
"""What is so large that it is kept as a blob."""

BLOB = Blob(sha256(LARGE.encode()), LARGE.encode())

ALL_AT_ONCE = ThreadOptions(parallel_calls=8)


class Acme:
    """The tools and the model of acme's thread, which defers, asks, subscribes and has a child."""

    def __init__(self) -> None:
        self.token = ""

        @tool
        async def ask_outside(what: str, context: ToolContext) -> Deferred:
            """Ask somebody outside."""
            deferred = context.defer()
            self.token = deferred.token
            return deferred

        @tool
        async def ask_people(what: str, context: ToolContext) -> str:
            """Ask people."""
            return await context.ask(what, ["yes", "no"])

        @tool(events="associative")
        async def watch(what: str) -> AsyncGenerator[str, None]:
            """Watch something."""
            yield f"watching {what}"
            await asyncio.Event().wait()

        self.tools = (ask_outside, ask_people, watch)

    def answer(self, request: ModelRequest) -> ScriptedTurn:
        if request.thread_id != "t":
            return call("sleep_until_event_or_input")
        if any(isinstance(item, CallItem) for item in request.transcript):
            return say(f"It is {SECRET}.")
        return turn(
            call("ask_outside", what=SECRET),
            call("ask_people", what=SECRET),
            call("watch", what=SECRET),
            call("spawn_thread", instructions=SECRET, child_of=[]),
            call("set_title", title=SECRET),
        )


class World:
    """Both of them, as clients of a store on which no engine runs."""

    def __init__(self, store: Store, clock: ManualClock, acme: AgentSystem, other: AgentSystem) -> None:
        self.store = store
        self.clock = clock
        self.acme = acme
        self.other = other
        self.token = ""
        self.question = ""
        self.calls: dict[str, str] = {}
        """The ids of acme's calls, by their tools."""


@asynccontextmanager
async def both(store: Store) -> AsyncIterator[World]:
    """Give the two tenants, of whom acme has lived for a while."""
    clock, tools = ManualClock(), Acme()
    running = system(tools.answer, *tools.tools, store=store, clock=clock, tenant="acme", options=ALL_AT_ONCE)
    async with running:
        agent = await running.launch(SECRET, thread_id="t", message=LARGE, user="ann", metadata={"note": SECRET})

        async def is_all_there() -> bool:
            states = {call.tool: call.state for call in (await agent.state()).calls}
            (*_, last) = await agent.tree()
            return (
                (states.get("ask_outside"), states.get("watch"), last.activity) == ("open", "subscribed", "resting")
                and bool(tools.token)
                and len(await running.questions()) == 1
            )

        while not await is_all_there():  # noqa: ASYNC110  # the end of the child's slice is nothing that the agent is told
            await asyncio.sleep(0)
        (question,) = await running.questions()
        calls = {call.tool: call.call_id for call in (await agent.state()).calls}
    await store.put_view("t", "plan", json.dumps(SECRET), START)
    more: dict[str, Any] = {"store": store, "clock": clock, "run": False}
    async with system([], tenant="acme", **more) as acme, system([], tenant="other", **more) as other:
        await other.launch("Nothing.", thread_id="o")
        world = World(store, clock, acme, other)
        world.token, world.question, world.calls = tools.token, question.question_id, calls
        yield world


@asynccontextmanager
async def opened(kind: str, folder: Path) -> AsyncIterator[Store]:
    """Open a store of a kind."""
    store: Store = MemoryStore() if kind == "memory" else await SqliteStore.open(folder / "agents.db")
    try:
        yield store
    finally:
        await store.close()


async def belongings(store: Store, tenant: str) -> dict[str, object]:
    """Return all that a tenant has in a store."""
    rows = await store.list_threads(tenant, limit=1_000)
    names = [row.thread_id for row in rows]
    return {
        "threads": rows,
        "logs": [await store.read_log(name) for name in names],
        "inboxes": [await store.read_inbox(name) for name in names],
        "effects": [await store.read_effects(name) for name in names],
        "views": [await store.read_views(name) for name in names],
        "configs": [await store.read_config(decode_head(row.head).head.config) for row in rows],
        "blob": await store.read_blob(BLOB.digest),
    }
