"""The life of one process: a system on a store that can die at any operation, and a client who drives it.

The client does what a real one would: after a restart it says everything again, under the same message ids, and waits
for what is still to come. So a scenario is one function that runs from its top in every life. Nothing in it depends on
which life it is.
"""

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextlib import suppress
from itertools import count
from typing import TypeVar

import msgspec

from hibernaut.codec import sha256
from hibernaut.engine.history import chain_start
from hibernaut.errors import AlreadyAnswered, QuestionOver, StoreBusy
from hibernaut.kernel.head import Head, decode_head
from hibernaut.kernel.limits import ThreadOptions
from hibernaut.messages.inputs import Delivered, InputContent, InputMessage, Timer
from hibernaut.messages.items import (
    CallItem,
    Item,
    NoticeItem,
    QuestionItem,
    ResultItem,
    TextItem,
    UserItem,
    decode_page,
)
from hibernaut.models.scripted import ScriptedModel, ScriptFunction
from hibernaut.rap.arrivals import Arrival, arrive
from hibernaut.rap.callbacks import Callback
from hibernaut.rap.manifest import Toolset
from hibernaut.rap.requests import Invocation
from hibernaut.rap.servers import RemoteServer
from hibernaut.rap.wire import CALLBACK_PATH
from hibernaut.reach import Callbacks, Servers
from hibernaut.stores.protocol import EffectRow, LogRow, Store, ThreadRow
from hibernaut.system import AgentSystem
from hibernaut.testing.clock import ManualClock
from hibernaut.testing.faults import FaultPlan, FaultyStore, SimulatedCrash
from hibernaut.testing.faulty_servers import FaultyToolServers
from hibernaut.testing.tool_servers import Received
from hibernaut.tools.context import ToolContext
from hibernaut.tools.tokens import KeyRing, read
from hibernaut.tools.tool import AnyTool
from tests.crash.world import OutsideServers, World

THREAD = "thread"

PATIENCE = 30
"""Seconds of real time after which a life that goes nowhere is a failed test."""

SECOND = 1_000

PUBLIC = Callbacks(public="http://runtime.test", listen=False)

T = TypeVar("T")


class Play(msgspec.Struct):
    """A scenario, set on the stage of one life."""

    answer: ScriptFunction
    drive: Callable[[], Awaitable[None]]
    tools: Sequence[AnyTool] = ()
    options: ThreadOptions = ThreadOptions()
    resident: bool = True
    """An engine runs; otherwise the client drives it step by step."""
    servers: Sequence[Toolset] = ()
    """What tool servers have, by their names."""
    url: str = ""
    """The base URL of a real tool server, instead of those."""
    answering: Callable[[Received], int] = lambda _: 200
    """The status that they answer with."""
    before_acknowledging: Callable[[], Awaitable[object]] | None = None
    """What they do when they have taken a call, before they say so."""


class Seen(msgspec.Struct):
    """What a thread is at one moment."""

    head: Head
    log: list[LogRow]
    items: list[Item]
    inbox: tuple[Delivered, ...]
    effects: list[EffectRow]
    start: bytes = b""
    """The digest that its chain starts from."""
    tree: "dict[str, Seen]" = {}
    """It and all threads below it, in the order they were made."""

    @property
    def children(self) -> "list[Seen]":
        """The threads below it."""
        return list(self.tree.values())[1:]

    def said(self, text: str) -> bool:
        """Tell whether somebody said this to the thread."""
        return any(isinstance(item, UserItem) and item.content == text for item in self.items)

    def says(self, text: str) -> bool:
        """Tell whether the thread's model has said this."""
        return any(isinstance(item, TextItem) and item.text == text for item in self.items)

    def notices(self, kind: str) -> bool:
        return any(isinstance(item, NoticeItem) and item.kind == kind for item in self.items)

    def answered(self, tool: str) -> bool:
        """Tell whether the call of a tool has a result in the history."""
        calls = {item.id for item in self.items if isinstance(item, CallItem) and item.name == tool}
        return any(isinstance(item, ResultItem) and item.call_id in calls for item in self.items)

    def question(self, prompt: str) -> str:
        """Return the id of the question that asked this, "" as long as it was not asked."""
        return next((item.id for item in self.items if isinstance(item, QuestionItem) and item.prompt == prompt), "")

    def timers(self, purpose: str = "") -> list[int]:
        """Return when timers are due: those of a purpose, or all."""
        contents = [arrived.message.content for arrived in self.inbox if arrived.message]
        timers = [content for content in contents if isinstance(content, Timer)]
        return sorted(timer.due for timer in timers if purpose in ("", timer.purpose))


async def look(store: Store) -> Seen:
    """Look at the tree as it is stored. What is seen of its threads belongs to one moment."""
    while True:
        rows = await store.read_tree(THREAD)
        if not rows:
            return Seen(Head(THREAD, b"", b""), [], [], (), [])
        tree = {row.thread_id: await _look_at(store, row) for row in rows}
        if await store.read_tree(THREAD) == rows:
            tree[THREAD].tree = tree
            return tree[THREAD]


async def _look_at(store: Store, row: ThreadRow) -> Seen:
    head, log = decode_head(row.head).head, await store.read_log(row.thread_id)
    items = [item for entry in log for item in decode_page(entry.page)]
    inbox, effects = await store.read_inbox(row.thread_id), await store.read_effects(row.thread_id)
    return Seen(head, log, items, inbox, effects, await chain_start(store, head.base))


class Life:
    """One process, from its start to its end or its death."""

    def __init__(self, number: int, world: World, store: Store, plan: FaultPlan, now: int) -> None:
        self.world = world
        self.clock = ManualClock(now)
        self.faulty = _Watched(store, plan)
        self.over = False
        """The process is dead: nothing of it reaches the world any more."""
        self.started = False
        self._number = number
        self._store = store
        self._gates: defaultdict[str, asyncio.Event] = defaultdict(asyncio.Event)
        self._system: AgentSystem | None = None

    # What tools do

    def began(self, context: ToolContext) -> None:
        """Note that a tool is at work."""
        self._note("began", context.tool, context.call_id)

    def did(self, context: ToolContext) -> None:
        """Do what cannot be undone."""
        self._note("did", context.tool, context.call_id)

    def handed_out(self, context: ToolContext, token: str) -> None:
        """Give somebody outside the token of a deferred call."""
        self._note("token", context.call_id, token)

    def gate(self, name: str) -> asyncio.Event:
        """Return a gate at which a tool waits for the client to open it."""
        return self._gates[name]

    def _note(self, *words: str) -> None:
        if self.over:
            raise SimulatedCrash("a dead process does nothing")
        self.world.note(*words)
        self.faulty.moved.set()

    # What the client does

    @property
    def system(self) -> AgentSystem:
        assert self._system is not None
        return self._system

    async def say(self, message_id: str, text: str) -> None:
        """Say something, again and again until it is accepted."""
        await _insist(lambda: self.system.send(THREAD, text, message_id=message_id))

    async def order(self, message_id: str, command: InputContent) -> None:
        """Steer the thread, or put anything else into its inbox."""
        message = InputMessage(message_id, THREAD, command, "operator")
        await _insist(lambda: self.system.store.put([message], self.clock.now()))

    async def step(self, *messages: InputMessage) -> None:
        """Take a step, and those that its result asks for."""
        result = await _insist(lambda: self.system.step(messages))
        while result.next_due is not None:
            self.pass_to(result.next_due)
            result = await _insist(lambda: self.system.step([]))

    async def deliver(self, token: str, result: str) -> None:
        """Bring the result of a deferred call; that somebody did it before is as good."""
        with suppress(AlreadyAnswered):
            await _insist(lambda: self.system.deliver(token, result))

    async def answer(self, prompt: str, choice: str, *, tool: str = "work") -> None:
        """Answer a question of a tool when it is asked; that somebody did it before, or that it is over, is as good."""
        seen = await self.until(lambda seen: _question(seen, prompt) != "" or seen.answered(tool))
        if name := _question(seen, prompt):
            with suppress(AlreadyAnswered, QuestionOver):
                await _insist(lambda: self.system.answer(name, choice))

    # What tool servers do

    @property
    def servers(self) -> OutsideServers:
        """The tool servers of the world."""
        assert self.world.servers is not None
        return self.world.servers

    async def taken(self, tool: str = "work") -> Invocation | None:
        """Return a call of a tool when its server has taken it and is known to; None if it has its result instead."""
        await self.until(lambda seen: any(_is_taken(one, tool) for one in seen.tree.values()))
        taken = [call for call in self.servers.work.values() if call.operation == tool]
        return taken[0] if taken else None

    async def bring(self, callback: Callback, call: Invocation, *, final: bool = True) -> None:
        """Bring a callback to whoever receives it in this process, as a server does: until it is stored, then no more.

        When it is the `final` one the server has nothing more to do for the call.
        """
        delivery = sha256(repr(callback).encode()).hex()
        if [delivery] in [list(words) for words in self.world.of("brought")]:
            return
        await self.bring_again(callback, call)
        self.world.note("brought", delivery)
        if final:
            self.servers.finish(call.id)

    async def bring_again(self, callback: Callback, call: Invocation) -> None:
        """Bring a callback, whether that was done before or not."""
        token = call.callback_url.rpartition(CALLBACK_PATH)[2]
        grant = read(KeyRing([await self._store.secret()]), token, self.clock.now())
        arrival = arrive(callback, grant, delivery=sha256(repr(callback).encode()).hex())
        assert isinstance(arrival, Arrival)
        store, messages = self.system.store, [arrival.message]
        await _insist(lambda: store.put(messages, self.clock.now(), blobs=arrival.blobs))

    # What anybody sees

    async def look(self) -> Seen:
        """Look at the tree, past everything that can die."""
        return await look(self._store)

    async def until(self, condition: Callable[[Seen], bool]) -> Seen:
        """Return when the tree is so far; the condition is told of its root."""
        while True:
            self.faulty.moved.clear()
            seen = await self.look()
            if condition(seen):
                return seen
            await self.faulty.moved.wait()

    async def wait_out(self, condition: Callable[[Seen], bool]) -> Seen:
        """Return when the tree is so far. Time passes until then, since something waits for it that nobody sees."""
        while not condition(seen := await self.look()):
            self.pass_to(self.clock.now() + SECOND)
            await asyncio.sleep(0.001)
        return seen

    async def settle(self) -> None:
        """Let the tree go on until it rests for good. Time passes when nothing else can happen."""
        while True:
            seen = await self.until(self._rests)
            timers = [due for one in seen.tree.values() if one.head.status == "open" for due in one.timers()]
            if not timers:
                return
            self.pass_to(min(timers))

    def pass_to(self, moment: int) -> None:
        """Let time pass up to a moment."""
        self.world.note("clock", str(moment))
        self.clock.advance(moment - self.clock.now())

    def _rests(self, seen: Seen) -> bool:
        return bool(seen.tree) and all(map(self._nothing_now, seen.tree.values()))

    def _nothing_now(self, seen: Seen) -> bool:
        head, now = seen.head, self.clock.now()
        if seen.effects or any(due <= now for due in seen.timers()) or len(seen.inbox) > len(seen.timers()):
            return False
        resting = all(head.calls[name].mode == "rest" for name in head.turn)
        return head.status != "open" or (resting if head.turn else not head.owes or head.attempts > 0)

    # Its course

    async def run(self, scenario: "Scenario", *, hurried: bool = False) -> None:
        """Run a scenario from its top to its end. When `hurried`, time passes by itself, and fast.

        Raises:
            SimulatedCrash: the process died, as planned (in an exception group).
        """
        play = scenario(self)
        model = ScriptedModel(play.answer, clock=self.clock, record=False)
        servers, callbacks = self._servers_of(play)
        self._system = AgentSystem(
            model=model,
            tools=play.tools,
            store=self.faulty,
            options=play.options,
            servers=servers,
            callbacks=callbacks,
            run=play.resident,
            clock=self.clock,
            ids=_LifeIds(self._number),
        )
        hurry = asyncio.create_task(self._hurry()) if hurried else None
        try:
            async with asyncio.timeout(PATIENCE), self._system as system:
                self.started = True
                await _insist(lambda: system.launch("You are tested.", thread_id=THREAD))
                await play.drive()
        finally:
            if hurry is not None:
                hurry.cancel()

    def _servers_of(self, play: Play) -> tuple[Servers, Callbacks]:
        if play.url:
            return [RemoteServer(url=play.url, name="far")], Callbacks()
        if not play.servers:
            return (), PUBLIC
        if self.world.servers is None:
            self.world.servers = OutsideServers({one.name: one for one in play.servers})
        servers = self.world.servers
        servers.answering, servers.before_acknowledging = play.answering, play.before_acknowledging
        return FaultyToolServers(servers, self.faulty), PUBLIC

    async def _hurry(self) -> None:
        while True:
            await asyncio.sleep(0.001)
            self.clock.advance(100)


Scenario = Callable[[Life], Play]


def _is_taken(seen: Seen, tool: str) -> bool:
    """Tell whether a server is known to have taken a call, or it has a result already."""
    accepted = any(row.state == "accepted" and row.effect.tool == tool for row in seen.effects)
    return accepted or seen.answered(tool) or any(call.tool == tool and call.held for call in seen.head.calls.values())


def _question(seen: Seen, prompt: str) -> str:
    return next(filter(None, [one.question(prompt) for one in seen.tree.values()]), "")


async def _insist(attempt: Callable[[], Coroutine[object, object, T]]) -> T:
    """Do something as a client does: again, when the store did not take it."""
    try:
        return await attempt()
    except StoreBusy:
        return await attempt()


class _Watched(FaultyStore):
    """A store that says when something may have changed."""

    def __init__(self, inner: Store, plan: FaultPlan) -> None:
        super().__init__(inner, plan)
        self.moved = asyncio.Event()

    async def _perform(self, name: str, operation: Callable[[], Awaitable[T]]) -> T:
        try:
            return await super()._perform(name, operation)
        finally:
            self.moved.set()


class _LifeIds:
    """Names that no other life draws, and the same salt in every life."""

    def __init__(self, life: int) -> None:
        self._life = life
        self._names = count(1)

    def new(self, prefix: str) -> str:
        return f"{prefix}_{self._life}_{next(self._names)}"

    def salt(self) -> bytes:
        return b"the salt"
