"""Trees at random: children that have children, bursts of events, operators, time and deaths. In the end all rest.

CHAOS_SEEDS says how many courses are run on each store.
"""

import asyncio
import os
import random
from collections.abc import AsyncGenerator
from contextlib import suppress
from hashlib import sha256
from pathlib import Path

import pytest

from hibernaut.errors import InputRefused, StoreError
from hibernaut.kernel.family import stack_of
from hibernaut.kernel.head import decode_head
from hibernaut.kernel.limits import ThreadOptions
from hibernaut.messages.inputs import Command, InputMessage
from hibernaut.models.protocol import ModelRequest
from hibernaut.models.scripted import ScriptedModel, ScriptedTurn, call, say, turn
from hibernaut.stores.memory import MemoryStore
from hibernaut.stores.protocol import Store, ThreadRow
from hibernaut.stores.sqlite import SqliteStore
from hibernaut.system import AgentSystem
from hibernaut.testing.clock import ManualClock, SequentialIds
from hibernaut.tools.context import ToolContext, ToolEvent
from hibernaut.tools.tool import AnyTool, tool
from tests.engine.lives import Lives
from tests.engine.scenario import MINUTE, SECOND, MortalStore, run, system

SEEDS = int(os.environ.get("CHAOS_SEEDS", "30"))

SEEDS_ON_DISK = max(SEEDS // 10, 2)

ROOTS = ("r0", "r1")

EVENTS = 6
"""Of one subscription."""

LONGEST_PROMPT = 60
"""Items after which a model comes to an end."""


class Stage(Lives):
    """One course: what is outside of the processes, and the process that runs now."""

    def __init__(self, seed: int, store: Store) -> None:
        self.chance = random.Random(seed)
        self.options = ThreadOptions(
            parallel_calls=self.chance.randint(1, 2),
            max_depth=self.chance.randint(1, 3),
            max_children=self.chance.randint(1, 3),
            max_descendants=self.chance.randint(4, 12),
            max_event_children=self.chance.randint(1, 2),
            max_events_per_minute=self.chance.choice([0, 2]),
            max_repeats=1_000,
        )
        self.clock = ManualClock()
        self.ids = SequentialIds()
        self.store = store
        self.calm = False
        """Models and tools come to their ends."""
        self.mortal = MortalStore(store)
        self.system = self.make_system()

    def make_system(self) -> AgentSystem:
        self.mortal = MortalStore(self.store)
        model = ScriptedModel(self.answer, clock=self.clock, record=False)
        return system(model, *self._tools(), store=self.mortal, clock=self.clock, ids=self.ids, options=self.options)

    # What runs

    def answer(self, request: ModelRequest) -> ScriptedTurn:
        digest = sha256(f"{request.thread_id} {len(request.transcript)} {request.transcript[-1]}".encode()).digest()
        own = request.thread_id
        if self.calm or len(request.transcript) > LONGEST_PROMPT:
            return say("It is done.")
        choice = digest[0] % 12
        if choice <= 2:
            return say("Well.")
        if choice <= 5:
            return turn(
                *[call("spawn_thread", instructions=f"Task {n}", child_of=self._stack(request)) for n in (1, 2)]
            )
        if choice <= 7 and own not in ROOTS:
            return call("close_thread", thread_id=own, report_to_parent=f"report {digest.hex()[:6]}")
        return {
            6: call("watch"),
            7: call("work"),
            8: call("watch"),
            9: call("report_to_parent", report="Half way"),
            10: turn(call("work"), call("sleep", seconds=digest[1])),
        }.get(choice, turn())

    def _stack(self, request: ModelRequest) -> list[str]:
        told = [part for part in str(request.transcript).split("stack of threads is [") if request.thread_id in part]
        return told[-1].split("]")[0].replace('"', "").split(", ") if told and request.thread_id not in ROOTS else []

    def _tools(self) -> list[AnyTool]:
        async def dawdle() -> None:
            for _ in range(self.chance.randrange(20)):
                await asyncio.sleep(0)

        @tool(resumable=True)
        async def watch(context: ToolContext) -> AsyncGenerator[object, None]:
            """Watch."""
            yield "subscribed"
            for number in range(int(context.last_event_id or "0") + 1, EVENTS + 1):
                await dawdle()
                yield ToolEvent(f"event {number}", str(number), final=number == EVENTS)

        @tool
        async def work() -> str:
            """Work."""
            await dawdle()
            return "worked"

        return [watch, work]

    # What happens to it

    async def pause(self) -> None:
        for _ in range(self.chance.randrange(40)):
            await asyncio.sleep(0)
        if not isinstance(self.store, MemoryStore):
            await self.store.read_head(ROOTS[0])  # the writer's thread takes its turn

    async def settle(self) -> None:
        """Let everything come as far as it can without time passing, however slow the disk is."""
        with suppress(TimeoutError):
            async with asyncio.timeout(1):  # an engine that waits to try again after a failure has more to do
                await self.system.wait_idle()

    async def act(self) -> None:
        action = self.chance.choices(["say", "wait", "time", "command", "die"], [3, 8, 4, 2, 1])[0]
        if action == "say":
            with suppress(StoreError, InputRefused):
                await self.system.send(self.chance.choice(ROOTS), f"Go on {self.chance.randrange(10**6)}")
        elif action == "time":
            self.clock.advance(self.chance.choice([SECOND, 10 * SECOND, MINUTE]))
        elif action == "command":
            if rows := [row for row in await self.rows() if row.status != "closed"]:
                kind = self.chance.choices(["stop", "resume", "close", "compact"], [2, 4, 1, 2])[0]
                await self.order(self.chance.choice(rows), Command(kind))  # type: ignore[arg-type]
        elif action == "die":
            await self.end(gracefully=self.chance.random() < 0.5)
            await self.begin()
        await self.pause()

    async def rows(self) -> list[ThreadRow]:
        return [row for root in ROOTS for row in await self.store.read_tree(root)]

    async def order(self, row: ThreadRow, command: Command) -> None:
        message = InputMessage(self.ids.new("cmd"), row.thread_id, command, "operator")
        await self.store.put([message], self.clock.now())

    # The end

    async def come_to_rest(self) -> None:
        self.calm = True
        await self.end(gracefully=False)
        await self.begin()
        for turn_number in range(400):
            await self.settle()
            rows = [row for row in await self.rows() if row.status != "closed"]
            if turn_number % 20 == 19:
                await self.make_room(rows)
            if not any(row.waiting for row in rows) and not await self.store.read_effects() and self.all_open(rows):
                return
            for row in rows:
                if row.status in ("stopped", "parked"):
                    await self.order(row, Command("resume"))
            self.clock.advance(MINUTE)
        raise AssertionError(f"it comes to no rest: {[(row.thread_id, row.status) for row in await self.rows()]}")

    def all_open(self, rows: list[ThreadRow]) -> bool:
        heads = [decode_head(row.head).head for row in rows]
        return all(head.status == "open" and not head.turn and not head.owes for head in heads)

    async def make_room(self, rows: list[ThreadRow]) -> None:
        """Close a child of a tree that is full: its events wait for that, and people would see it."""
        for root in ROOTS:
            alive = [row for row in rows if row.root == root]
            if len(alive) >= self.options.max_descendants:
                await self.order(alive[-1], Command("close"))

    async def check(self) -> None:
        rows = {row.thread_id: decode_head(row.head).head for row in await self.rows()}
        for name, head in rows.items():
            assert len(stack_of(head)) <= self.options.max_depth + 1
            assert await self.system.verify(name) == head.version
            if head.link is None:
                continue
            above = rows[head.link.parent]
            assert (head.status != "closed") == (name in above.children)
            assert head.status == "closed" or (above.status != "closed" and not head.link.event)


async def play(stage: Stage) -> None:
    await stage.begin()
    for name in ROOTS:
        await stage.system.send(name, "Go")
    for _ in range(stage.chance.randrange(20, 80)):
        await stage.act()
    await stage.come_to_rest()
    await stage.check()
    await stage.end(gracefully=True)


@pytest.mark.parametrize("seed", range(SEEDS))
def test_in_the_end_a_tree_rests_and_nobody_in_it_waits_for_ever(seed: int) -> None:
    run(lambda: play(Stage(seed, MemoryStore())))


@pytest.mark.parametrize("seed", range(SEEDS_ON_DISK))
def test_in_the_end_a_tree_on_disk_rests_and_nobody_in_it_waits_for_ever(seed: int, tmp_path: Path) -> None:
    async def scenario() -> None:
        store = await SqliteStore.open(tmp_path / "agents.db")
        try:
            await play(Stage(seed, store))
        finally:
            await store.close()

    run(scenario)
