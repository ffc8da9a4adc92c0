"""The life of one process: a system on a store that can die at any operation, and a client who drives it.

The client does what a real one would: after a restart it says everything again, under the same message ids, and waits
for what is still to come. So a scenario is one function that runs from its top in every life. Nothing in it depends on
which life it is.
"""

import asyncio
import dataclasses
import inspect
import random
from collections import defaultdict
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextlib import suppress
from itertools import count
from typing import TYPE_CHECKING, Any, TypeVar, cast

from msgspec.structs import replace

from hibernaut.codec import sha256
from hibernaut.errors import AlreadyAnswered, ConfigurationError, QuestionOver, StoreBusy
from hibernaut.messages.inputs import Command, InputContent, InputMessage
from hibernaut.models.protocol import Model
from hibernaut.models.scripted import Script, ScriptedModel
from hibernaut.rap.arrivals import Arrival, arrive
from hibernaut.rap.callbacks import Callback
from hibernaut.rap.requests import Invocation
from hibernaut.rap.servers import RemoteServer
from hibernaut.rap.wire import CALLBACK_PATH
from hibernaut.reach import Callbacks, Servers
from hibernaut.stores.protocol import Store
from hibernaut.system import AgentSystem
from hibernaut.testing.clock import ManualClock
from hibernaut.testing.disturbing import Disturbance
from hibernaut.testing.faults import FaultPlan, SimulatedCrash
from hibernaut.testing.faulty_servers import FaultyToolServers
from hibernaut.testing.play import Play, Said
from hibernaut.testing.seen import THREAD, Seen, look
from hibernaut.testing.watched import WatchedStore
from hibernaut.testing.world import OutsideServers, World
from hibernaut.tools.context import Deferred, ToolContext
from hibernaut.tools.results import outcome
from hibernaut.tools.tokens import KeyRing, read
from hibernaut.tools.tool import AnyTool

if TYPE_CHECKING:
    from hibernaut.rap.kit.server import ToolServer

PATIENCE = 30
"""Seconds of real time after which a life that goes nowhere is taken for stuck."""

SECOND = 1_000

FASTER = 100
"""Milliseconds that pass in each of real time, in a life that is hurried."""

PUBLIC = Callbacks(public="http://runtime.test", listen=False)

T = TypeVar("T")


class Life:
    """One process, from its start to its end or its death.

    Args:
        number: which one of its run, the first being 1.
        world: what is outside of it.
        store: where its threads are.
        plan: where it dies.
        now: the moment at which it begins.
        seed: of what is left to chance in the scenario; the same in all lives that are compared.
    """

    def __init__(
        self, number: int, world: World, store: Store, plan: FaultPlan | None = None, now: int = 0, *, seed: str = ""
    ) -> None:
        self.world = world
        self.clock = ManualClock(now or world.now)
        self.chance = random.Random(seed)  # noqa: S311  # what is drawn is to be drawn again
        """What a scenario may draw from: it falls the same in every life, and in the undisturbed run."""
        self.faulty = WatchedStore(store, plan or FaultPlan(), world)
        self.over = False
        """The process is dead: nothing of it reaches the world any more."""
        self.started = False
        self.patience: float = PATIENCE
        self.callbacks = Callbacks()
        """Where real tool servers post to."""
        self.disturbed_by = ""
        """The seed of what disturbs it; "" for nothing."""
        self._number = number
        self._store = store
        self._gates: defaultdict[str, asyncio.Event] = defaultdict(asyncio.Event)
        self._system: AgentSystem | None = None

    # What tools do

    def did(self, context: ToolContext) -> None:
        """Do what cannot be undone."""
        self._note("did", context.tool, context.call_id)

    def handed_out(self, context: ToolContext, token: str) -> None:
        """Give somebody outside the token of a deferred call."""
        self._note("token", context.call_id, token)

    def has_begun(self, tool: str) -> bool:
        """Tell whether a tool was begun, in this life or an earlier one."""
        return any(name == tool for name, _ in self.world.of("began"))

    def gate(self, name: str) -> asyncio.Event:
        """Return a gate at which a tool waits for the client to open it."""
        return self._gates[name]

    def _note(self, *words: str, wake: bool = True) -> None:
        if self.over:
            raise SimulatedCrash("a dead process does nothing")
        self.world.note(*words)
        if wake:  # which only the loop's own thread may do
            self.faulty.moved.set()

    # What the client does

    @property
    def system(self) -> AgentSystem:
        """The system that runs in it."""
        if self._system is None:
            raise ConfigurationError("the process has not begun: use its system in `drive`, and in tools")
        return self._system

    async def say(self, message_id: str, text: str) -> None:
        """Say something, again and again until it is accepted."""
        await _insist(lambda: self.system.send(THREAD, text, message_id=message_id))

    async def order(self, message_id: str, command: Command) -> None:
        """Steer the thread."""
        await self.hand_in(message_id, command)

    async def hand_in(self, message_id: str, content: InputContent) -> None:
        """Hand something in as an operator, again and again until it is accepted."""
        message = InputMessage(message_id, THREAD, content, "operator")
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
        if self.world.servers is None:
            raise ConfigurationError("this scenario has no `servers`")
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
        if not isinstance(arrival, Arrival):
            raise TypeError(f"{type(callback).__name__} is no input")
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

    async def pass_slowly(self, milliseconds: int, step: int = 5 * SECOND) -> None:
        """Let time pass in steps, so that whoever waits for a moment in between acts at it."""
        for _ in range(0, milliseconds, step):
            self.pass_to(self.clock.now() + step)
            await asyncio.sleep(0)
            await self.look()

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
            TimeoutError: it does not come to its end.
        """
        play = scenario(self)
        for name in sorted(play.repeatable()):
            self.world.note("repeatable", name)
        if play.untimely:
            self.world.note("untimely")
        servers, callbacks = self._servers_of(play)
        if self.disturbed_by:
            secret = await self._store.secret()
            self.faulty.disturbing = Disturbance(self.disturbed_by, self._store, secret, self.world, self.clock)
        self._system = AgentSystem(
            model=self._model_of(play.model),
            tools=[self._watched(tool) for tool in play.tools],
            store=self.faulty,
            options=play.options,
            authority=play.authority,
            servers=servers,
            callbacks=callbacks,
            run=play.resident,
            clock=self.clock,
            ids=_LifeIds(self._number),
        )
        hurry = asyncio.create_task(self._hurry()) if hurried else None
        try:
            async with asyncio.timeout(self.patience), self._system as system:
                self.started = True
                await _insist(lambda: system.launch(play.instructions, thread_id=THREAD))
                await (play.drive() if play.drive is not None else self.say_all(play.inputs))
                if play.check is not None:
                    self._check(play.check, await self.look())
                if self.faulty.disturbing is not None:
                    await self._disturb_at_the_end(self.faulty.disturbing)
        finally:
            if hurry is not None:
                hurry.cancel()

    async def say_all(self, inputs: Sequence[str | Said]) -> None:
        """Say one thing after the other, each when the tree rests."""
        await self.settle()
        for number, given in enumerate(inputs, 1):
            said = Said(given) if isinstance(given, str) else given
            name = f"m{number}"
            if said.after and not await self._store.knows(THREAD, name):
                self.pass_to(self.clock.now() + said.after)
            await self.say(name, said.text)
            await self.settle()

    async def _disturb_at_the_end(self, disturbance: Disturbance) -> None:
        """Check that nothing that comes when all is over changes anything."""
        before = await self._store.read_tree(THREAD)
        await disturbance.at_the_end()
        for old, new in zip(before, await self._store.read_tree(THREAD), strict=True):
            if (old.head, old.waiting) != (new.head, new.waiting):
                self.world.note("divergence", "refusal", f"{old.thread_id} was changed when all was over")

    def _check(self, check: Callable[[Seen], object], seen: Seen) -> None:
        try:
            check(seen)
        except AssertionError as error:
            self.world.note("divergence", "check", str(error) or "the check of the scenario failed")

    def _model_of(self, model: Model | Script) -> Model:
        if hasattr(model, "stream"):
            return cast("Model", model)
        return ScriptedModel(model, clock=self.clock, record=False)

    def _watched(self, tool: AnyTool) -> AnyTool:
        """Return a tool that notes for which call it is begun, whenever it is, and what it returned."""
        signature = tool.signature
        parameter = signature.context_parameter or "_context"

        def begin(**keywords: Any) -> Any:
            own = signature.context_parameter is not None
            context = keywords[parameter] if own else keywords.pop(parameter)
            self._note("began", tool.name, context.call_id, wake=not tool.threaded)
            value = tool.function(**keywords)
            return self._returning(context.call_id, value) if inspect.isawaitable(value) else value

        return replace(tool, function=begin, signature=dataclasses.replace(signature, context_parameter=parameter))

    async def _returning(self, call_id: str, result: Awaitable[object]) -> object:
        value = await result
        if not isinstance(value, Deferred) and isinstance(content := outcome(value).content, str):
            self._note("returned", call_id, content)
        return value

    def _servers_of(self, play: Play) -> tuple[Servers, Callbacks]:
        if play.url:
            return [RemoteServer(url=play.url, name="far")], self.callbacks
        if play.server is not None:
            return [RemoteServer(url=self._url_of(play.server), name=play.server.name)], self.callbacks
        if not play.servers:
            return (), PUBLIC
        if self.world.servers is None:
            self.world.servers = OutsideServers({one.name: one for one in play.servers})
        servers = self.world.servers
        servers.answering, servers.before_acknowledging = play.answering, play.before_acknowledging
        return FaultyToolServers(servers, self.faulty), PUBLIC

    def _url_of(self, server: "ToolServer") -> str:
        """Return where a tool server runs beside the processes."""
        running = self.world.of("server")
        if not running:
            raise ConfigurationError(f"the server {server.name} runs only beside processes: chaos(…, processes=True)")
        return running[-1][0]

    async def _hurry(self) -> None:
        while True:
            await asyncio.sleep(0.001)
            self.pass_to(self.clock.now() + FASTER)


Scenario = Callable[[Life], Play]
"""Sets a play on the stage of a process. It runs from its top in every one of them."""


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


class _LifeIds:
    """Names that no other life draws, and the same salt in every life."""

    def __init__(self, life: int) -> None:
        self._life = life
        self._names = count(1)

    def new(self, prefix: str) -> str:
        return f"{prefix}_{self._life}_{next(self._names)}"

    def salt(self) -> bytes:
        return b"the salt"
