"""Everything at once, at random: people, tools, servers, operators, time, failures, deaths. In the end nothing is lost.

CHAOS_SEEDS says how many courses are run.
"""

import asyncio
import os
import random
from collections import Counter
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, suppress
from hashlib import sha256
from typing import Any, Literal

import pytest
from msgspec.structs import replace

from hibernaut.errors import InputRefused, StoreBusy, StoreError
from hibernaut.handle import ThreadHandle
from hibernaut.kernel.limits import ThreadOptions
from hibernaut.messages.items import CallItem, ResultItem, UserItem
from hibernaut.models.errors import ConnectionLost, RateLimited
from hibernaut.models.protocol import ModelRequest
from hibernaut.models.scripted import ScriptedModel, ScriptedTurn, call, fail, think, turn
from hibernaut.rap.manifest import RemoteTool, Toolset
from hibernaut.rap.replies import NoAnswer
from hibernaut.rap.requests import Invocation
from hibernaut.stores.memory import MemoryStore
from hibernaut.system import AgentSystem
from hibernaut.testing.clock import ManualClock, SequentialIds
from hibernaut.testing.faulty_servers import FaultyToolServers
from hibernaut.testing.tool_servers import Received
from hibernaut.tools.context import Deferred, ToolContext
from hibernaut.tools.tool import AnyTool, tool
from tests.engine.far import PUBLIC, Far
from tests.engine.lives import Lives
from tests.engine.scenario import MINUTE, SECOND, FailingStore, MortalStore, Watcher, retell, run, settle, system

SEEDS = int(os.environ.get("CHAOS_SEEDS", "30"))

THREADS = ("t0", "t1", "t2")

OPERATIONS = ("claim", "take", "commit", "put", "read_head", "read_log", "start_effects", "settle_effects", "next_due")

ACTIONS = {
    "say": 8,
    "wait": 12,
    "time": 6,
    "deliver": 5,
    "arrive": 5,
    "stop": 1,
    "resume": 2,
    "cancel": 2,
    "fail": 3,
    "kill": 1,
    "restart": 1,
    "die": 1,
    "watch": 4,
}
"""What may happen, and how often in comparison."""

SHOP = Toolset(
    "shop",
    "http://shop.test/call",
    (
        RemoteTool("order", "Order.", '{"type":"object"}'),
        RemoteTool("find", "Find.", '{"type":"object"}', '{"idempotent":true}', idempotent=True),
    ),
)

OPTIONS = ThreadOptions(parallel_calls=2, call_deadline=10 * MINUTE, max_attempts=50, max_repeats=1_000)
"""Bounded so that everything comes to an end, and not so that it gives up."""


class CommonStore(MortalStore):
    """A store that another process may have written to at any time."""

    async def changed_elsewhere(self) -> bool:
        return True


class Stage(Lives):
    """One course: what is outside of the processes, and the process that runs now."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.on_user_text: Literal["detach", "cancel"] = self.chance.choice(["detach", "cancel"])
        self.calm = False
        """Tool servers are in no trouble."""
        self.clock = ManualClock()
        self.ids = SequentialIds()
        self.store = MemoryStore()
        self.failing = FailingStore(self.store)
        self.paid: Counter[str] = Counter()
        self.tokens: dict[str, str] = {}
        self.watchers: dict[str, Watcher] = {}
        self.said: Counter[tuple[str, str]] = Counter()
        self.mortal = CommonStore(self.failing)
        self.far = Far(self.store, self.clock, SHOP)
        self.far.servers.answering = self._answering
        self.system: AgentSystem = self.make_system()

    # The process

    def make_system(self) -> AgentSystem:
        self.mortal = CommonStore(self.failing)
        return self._system(self.mortal)

    def neighbour(self) -> AgentSystem:
        """Return a second engine on the same store, which nothing happens to."""
        return self._system(CommonStore(self.store))

    def _system(self, store: MortalStore) -> AgentSystem:
        model = ScriptedModel(self.answer, clock=self.clock, record=False)
        options = replace(OPTIONS, on_user_text=self.on_user_text)
        more: dict[str, Any] = {"ids": self.ids, "options": options, "max_slices": 2}
        more |= {"servers": FaultyToolServers(self.far.servers, store), "callbacks": PUBLIC}
        return system(model, *self._tools(), store=store, clock=self.clock, **more)

    # What runs in it

    def answer(self, request: ModelRequest) -> ScriptedTurn | Exception:
        """Answer by what was asked, mostly with calls; sooner or later with an end, and sometimes with a failure."""
        if not self.chance.randrange(12):
            limited = self.chance.randrange(2)
            return RateLimited("slow down", 5_000) if limited else fail(ConnectionLost("reset"), "half a tu")
        digest = sha256(f"{request.thread_id} {len(request.transcript)} {request.transcript[-1]}".encode()).digest()
        choice, more = digest[0] % 14, digest[1] % 3
        if len(request.transcript) > 120:
            choice = 0
        names = ["pay", "look", "ask", "watch", "quick", "hang", "no_such_tool", "sync", "order", "find"]
        if choice <= 3:
            return turn(think("hm", data=b"hm"), f"I say {digest.hex()[:6]}.")
        if choice <= 11:
            picked = [names[digest[2 + place] % len(names)] for place in range(more + 1)]
            return turn("Calling. ", *[call(name) for name in picked])
        if choice == 12:
            return call("sleep", seconds=digest[1])
        return turn()

    def _tools(self) -> list[AnyTool]:
        chance = self.chance

        async def dawdle() -> None:
            for _ in range(chance.randrange(30)):
                await asyncio.sleep(0)

        @tool
        async def pay(context: ToolContext) -> str:
            """Pay."""
            await dawdle()
            self.paid[context.call_id] += 1
            await dawdle()
            return "paid"

        @tool(idempotent=True)
        async def look() -> str:
            """Look."""
            await dawdle()
            if not chance.randrange(3):
                raise ValueError("nothing to see")
            return "seen"

        @tool
        async def ask(context: ToolContext) -> Deferred:
            """Ask."""
            await dawdle()
            deferred = context.defer()
            self.tokens[context.call_id] = deferred.token
            return deferred

        @tool(events="associative")
        async def watch() -> AsyncGenerator[str, None]:
            """Watch."""
            await dawdle()
            yield "subscribed"
            for number in range(chance.randrange(4)):
                await dawdle()
                yield f"event {number}"

        @tool(inline=True)
        async def quick() -> str:
            """Be quick."""
            return "quick"

        @tool
        async def hang() -> str:
            """Hang."""
            await asyncio.Event().wait()
            return "never"

        @tool(inline=True)
        async def sync() -> str:
            """Dawdle inline."""
            await dawdle()
            return "in step"

        return [pay, look, ask, watch, quick, hang, sync]

    def _answering(self, _received: Received) -> int | NoAnswer:
        if self.calm:
            return 200
        unsent = NoAnswer("shop", "connection refused", reached=False)
        answers: list[int | NoAnswer] = [200, 503, 422, unsent]
        return self.chance.choices(answers, [12, 2, 1, 2])[0]

    # What happens to it

    async def act(self) -> None:
        (action,) = self.chance.choices([*ACTIONS], [*ACTIONS.values()])
        with suppress(StoreError, InputRefused):
            await getattr(self, f"_{action}")()

    async def _say(self) -> None:
        name, words = self.chance.choice(THREADS), f"words {self.chance.randrange(10**6)}"
        for _ in range(10):  # as a client does: under the same id, until it is accepted
            with suppress(StoreError):
                await self.system.send(name, words, message_id=words)
                self.said[name, words] = 1
                return

    async def _wait(self) -> None:
        for _ in range(self.chance.randrange(40)):
            await asyncio.sleep(0)

    async def _time(self) -> None:
        self.clock.advance(self.chance.choice([100, SECOND, 10 * SECOND, MINUTE]))

    async def _deliver(self) -> None:
        if self.tokens:
            call_id = self.chance.choice(sorted(self.tokens))
            await self.system.deliver(self.tokens[call_id], f"delivered {call_id}")

    async def _arrive(self) -> None:
        at_work = self._at_work()
        if at_work:
            await self._bring(self.chance.choice(at_work))

    def _at_work(self) -> list[Invocation]:
        """Return the calls that servers work on."""
        servers = self.far.servers
        return [one for one in servers.work.values() if one.id in servers.alive]

    async def _bring(self, invocation: Invocation) -> None:
        await self.far.answer(f"did {invocation.operation}", invocation)
        self.far.servers.finish(invocation.id)

    async def _stop(self) -> None:
        await (await self._somebody()).stop("for a while")

    async def _resume(self) -> None:
        await (await self._somebody()).resume()

    async def _cancel(self) -> None:
        agent = await self._somebody()
        calls = (await agent.state()).calls
        if calls:
            await agent.cancel(self.chance.choice(calls).call_id)

    async def _fail(self) -> None:
        self.failing.failures[self.chance.choice(OPERATIONS)] = [StoreBusy("busy")] * self.chance.randrange(1, 3)

    async def _kill(self) -> None:
        await self._again(gracefully=False)

    async def _restart(self) -> None:
        await self._again(gracefully=True)

    async def _die(self) -> None:
        self.mortal.die_after(self.chance.choice(OPERATIONS), self.chance.randrange(1, 4))
        await self._wait()
        await self._again(gracefully=False)

    async def _watch(self) -> None:
        agent = await self._somebody()
        watcher = self.watchers.setdefault(agent.thread_id, Watcher(agent))
        if watcher.reads:
            await watcher.detach()
        else:
            watcher.attach(agent)

    async def _again(self, *, gracefully: bool) -> None:
        await self.end(gracefully=gracefully)
        for watcher in self.watchers.values():
            await watcher.detach()
        self.failing.failures.clear()
        await self.begin()

    async def _somebody(self) -> ThreadHandle:
        return await self.system.thread(self.chance.choice(THREADS))

    # The end

    async def come_to_rest(self) -> None:
        """Let nothing disturb it any more, answer what is asked, and let time pass."""
        self.calm = True
        await self._again(gracefully=self.chance.random() < 0.5)
        for name in THREADS:
            with suppress(InputRefused):
                await (await self.system.thread(name)).resume()
        for _ in range(1_000):
            await settle()
            for token in list(self.tokens.values()):
                with suppress(InputRefused):
                    await self.system.deliver(token, "delivered at last")
            for invocation in self._at_work():
                await self._bring(invocation)
            if await self._rests():
                return
            self.clock.advance(20 * SECOND)
        raise AssertionError("it comes to no rest")

    async def _rests(self) -> bool:
        waiting = [await self.store.read_inbox(name) for name in THREADS]
        idle = [state.activity == "idle" for state in await self.system.threads()]
        owed = [row for row in await self.store.read_effects() if row.state != "accepted"]
        return all(idle) and not any(waiting) and not owed

    async def check(self) -> None:
        assert max(self.paid.values(), default=1) == 1
        taken = [one for one in self.far.servers.received if isinstance(one.message, Invocation) and one.taken]
        ordered = Counter(one.key for one in taken if getattr(one.message, "operation", "") == "order")
        assert max(ordered.values(), default=1) == 1
        for name in THREADS:
            with suppress(InputRefused):
                await self._check(await self.system.thread(name))

    async def _check(self, agent: ThreadHandle) -> None:
        state, items = await agent.state(), await agent.history()
        assert (state.activity, state.status) == ("idle", "open")
        assert await self.store.read_inbox(agent.thread_id) == ()
        words = Counter(item.content for item in items if isinstance(item, UserItem) and not item.origin)
        assert words == Counter(words for name, words in self.said if name == agent.thread_id)
        calls = [item.id for item in items if isinstance(item, CallItem)]
        answers = [item.call_id for item in items if isinstance(item, ResultItem)]
        assert calls == answers
        assert await self.system.verify(agent.thread_id) == state.version
        watcher = self.watchers.setdefault(agent.thread_id, Watcher(agent))
        await watcher.detach()
        watcher.attach(agent)
        await settle()
        assert retell(watcher.events) == retell([event async for event in agent.events(follow=False)])
        await watcher.detach()


@pytest.mark.parametrize("seed", range(SEEDS))
def test_in_the_end_nothing_is_lost_done_twice_or_left_hanging(seed: int) -> None:
    stage = Stage(seed)
    alone = bool(seed % 3)

    async def scenario() -> None:
        async with AsyncExitStack() as stack:
            if not alone:
                await stack.enter_async_context(stage.neighbour())
            await stage.begin()
            for _ in range(stage.chance.randrange(20, 120)):
                await stage.act()
            await stage.come_to_rest()
            await stage.check()
            await stage.end(gracefully=True)

    run(scenario)
