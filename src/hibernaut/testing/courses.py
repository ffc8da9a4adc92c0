"""Runs scenarios through crashes to their end."""

import asyncio
import tempfile
import threading
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from pathlib import Path
from typing import Literal, Self

import msgspec
from msgspec.structs import replace

from hibernaut.engine.asking import answers_of
from hibernaut.engine.auditing import audit
from hibernaut.engine.dispatcher import UNKNOWN_EFFECT
from hibernaut.engine.remote import LOST
from hibernaut.errors import ConfigurationError, HibernautError, StoreBusy
from hibernaut.kernel.commit import Effect
from hibernaut.kernel.head import Head
from hibernaut.kernel.receipt import decode_receipt
from hibernaut.messages.items import Item, decode_page
from hibernaut.stores.memory import MemoryStore
from hibernaut.stores.protocol import DEAD_AFTER, Store
from hibernaut.stores.sqlite import SqliteStore
from hibernaut.testing.faults import FaultPlan, SimulatedCrash
from hibernaut.testing.life import PATIENCE, Life, Scenario
from hibernaut.testing.report import Divergence
from hibernaut.testing.seen import THREAD, Seen, look
from hibernaut.testing.world import World

OpenStore = Callable[[], AbstractAsyncContextManager[Store]]
"""Opens one store, again and again: once for every process."""


class Crash(msgspec.Struct, frozen=True):
    """Where a process dies: at an operation of its own count, before it is performed or after."""

    operation: int
    after: bool

    def __str__(self) -> str:
        return f"{'after' if self.after else 'before'} operation {self.operation}"


class Course(msgspec.Struct):
    """What became of a scenario."""

    seen: Seen
    """Its root, as it was in the end."""
    world: World
    operations: list[str]
    """Of the last life."""
    unknown: dict[str, str]
    """Calls that were begun and not answered when their process died, and whose tool must not be run again.

    With what is told of them.
    """
    broken: list[Divergence] = []
    """Threads that do not verify."""
    exact: bool = True
    """Without a call that is unknown, it goes the same way as the undisturbed one, round by round."""
    killed: int = 0
    """Processes that died."""
    stalled: bool = False
    """A process went on after another had taken over: calls are called unknown that it still ended."""

    @property
    def pages(self) -> list[list[Item]]:
        """The items of the root, by commit."""
        return pages_of(self.seen)


def pages_of(seen: Seen) -> list[list[Item]]:
    """Return the items of a thread, by commit."""
    return [decode_page(row.page) for row in seen.log]


class Lived(msgspec.Struct):
    """How a life ended; what went wrong is noted in its world."""

    operations: list[str]
    end: Literal["done", "died", "failed"] = "done"


def run_course(
    scenario: Scenario,
    open_store: OpenStore,
    crashes: Sequence[Crash] = (),
    *,
    fail_at: int = 0,
    seed: str = "",
    patience: float = PATIENCE,
    prepare: Callable[[Life], object] = lambda _: None,
) -> Course:
    """Run a scenario through crashes, one in each of the first lives, to its end. Every life has a loop of its own.

    In the life after those the store fails at operation `fail_at`. `prepare` may change a life before it begins.
    """
    world, unknown = World(), dict[str, str]()
    plans = [FaultPlan(crash_at=crash.operation, after=crash.after) for crash in crashes]
    failing = FaultPlan(fail_at={fail_at: StoreBusy("the disk is busy")} if fail_at else {})
    course = Course(Seen(Head(THREAD, b"", b""), [], [], (), []), world, [], unknown)
    # One more than what has a reason to die: a store that fails at the start has the process started again.
    for number, plan in enumerate([*plans, failing, FaultPlan()], 1):
        now = world.now + (number - 1) * 2 * DEAD_AFTER

        def make(store: Store, plan: FaultPlan = plan, number: int = number, now: int = now) -> Life:
            life = Life(number, world, store, _mortal(plan, lambda: life), now, seed=seed)
            life.patience = patience
            prepare(life)
            return life

        lived = asyncio.run(live(make, scenario, open_store, hurried=bool(plan.fail_at)))
        course.operations = lived.operations
        course.seen, course.broken = asyncio.run(read_store(open_store))
        if lived.end != "died":
            return course
        course.killed = number
        unknown |= left_unknown(course.seen, world)
    world.note("divergence", "stuck", "it dies without a reason")
    return course


def _mortal(plan: FaultPlan, life: Callable[[], Life]) -> FaultPlan:
    def reach(operation: int, _name: str) -> None:
        life().over |= operation == plan.crash_at

    return replace(plan, on_operation=reach)


async def live(
    make: Callable[[Store], Life], scenario: Scenario, open_store: OpenStore, *, hurried: bool = False
) -> Lived:
    """Run one life on a store to its end, whatever that is."""
    async with open_store() as store:
        life = make(store)
        lived = Lived([])
        try:
            await life.run(scenario, hurried=hurried)
        except (SimulatedCrash, Exception, BaseExceptionGroup) as error:  # noqa: BLE001  # a defect is what is looked for
            lived.end = await _ended(life, error, store)
        lived.operations = life.faulty.operations
        return lived


async def _ended(life: Life, error: BaseException, store: Store) -> Literal["died", "failed"]:
    errors = list(_leaves(error))
    if any(isinstance(one, SimulatedCrash) for one in errors):
        return "died"
    if not life.started and all(isinstance(one, StoreBusy) for one in errors):
        return "died"  # whoever watches over the process starts it again
    if any(isinstance(one, KeyboardInterrupt | SystemExit) for one in errors):
        raise error
    first = next((one for one in errors if not isinstance(one, TimeoutError)), None)
    if isinstance(first, ConfigurationError):
        raise first
    if first is None:
        life.world.note("divergence", "stuck", describe_waiting(await look(store)))
    else:
        life.world.note("divergence", "error", f"{type(first).__name__}: {first}")
    return "failed"


def _leaves(error: BaseException) -> list[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        return [leaf for part in error.exceptions for leaf in _leaves(part)]
    return [error]


def describe_waiting(seen: Seen) -> str:
    """Say what a tree that does not come to rest waits for."""
    if not seen.tree:
        return "it does not come to rest: there is no thread yet"
    told = []
    for name, one in seen.tree.items():
        head = one.head
        waits = [f"{head.calls[call].tool} ({head.calls[call].state})" for call in head.turn if call in head.calls]
        waits += [f"the question {pending.prompt!r}" for pending in head.questions.values() if pending.answer < 0]
        waits += [f"the effect {row.effect.kind} {row.effect.tool} ({row.state})" for row in one.effects]
        waits += [f"the input {arrived.message_id}" for arrived in one.inbox]
        if waits or head.status != "open" or head.owes:
            told.append(f"{name} is {head.status}{', owes an answer' if head.owes else ''}: {', '.join(waits) or '-'}")
    return f"it does not come to rest: {'; '.join(told) or 'the client waits for something that does not happen'}"


# A process that is taken for dead, and is not


def run_stalled(
    scenario: Scenario, open_store: OpenStore, place: Crash, *, seed: str = "", patience: float = PATIENCE
) -> Course:
    """Run a scenario in a process that stands still at one place until another one has taken over and is done.

    The store must be one that two processes can have open, each in a thread of its own here.
    """
    first = _Stalling(scenario, open_store, place, seed, patience)
    world = first.world
    stalled = threading.Thread(target=first.run)
    stalled.start()
    try:
        first.reached.wait(patience)
        lived = asyncio.run(live(_next(2, world, seed, patience), scenario, open_store))
    finally:
        first.may_go_on.set()
        stalled.join()
    # What the first one brought at its end may need somebody who takes it in.
    asyncio.run(live(_next(3, world, seed, patience), scenario, open_store))
    seen, broken = asyncio.run(read_store(open_store))
    return Course(seen, world, lived.operations, told_unknown(seen), broken, exact=False, stalled=True)


def _next(number: int, world: World, seed: str, patience: float) -> Callable[[Store], Life]:
    def make(store: Store) -> Life:
        life = Life(number, world, store, FaultPlan(), world.now + number * DEAD_AFTER, seed=seed)
        life.patience = patience
        return life

    return make


def told_unknown(seen: Seen) -> dict[str, str]:
    """Return the calls that were given up as unknown."""
    inputs = [name for one in seen.tree.values() for row in one.log for name, _ in decode_receipt(row.receipt).inputs]
    return {name.removeprefix("unknown:"): "" for name in inputs if name.startswith("unknown:")}


class _Stalling:
    """A life in a thread of its own, whose loop stands still at one operation."""

    def __init__(self, scenario: Scenario, open_store: OpenStore, place: Crash, seed: str, patience: float) -> None:
        self.world = World()
        self.reached = threading.Event()
        self.may_go_on = threading.Event()
        self._scenario, self._open, self._place, self._seed = scenario, open_store, place, seed
        self._patience = patience

    def run(self) -> None:
        """Live it."""
        try:
            asyncio.run(live(self._make, self._scenario, self._open))
        finally:
            self.reached.set()

    def _make(self, store: Store) -> Life:
        def reach(operation: int, _name: str) -> None:
            if operation == self._place.operation:
                self.reached.set()
                self.may_go_on.wait()
                life.faulty.stood_still()
                life.clock.advance(max(0, self.world.now + 2 * DEAD_AFTER - life.clock.now()))

        plan = FaultPlan(after=self._place.after, on_operation=reach)
        life = Life(1, self.world, store, plan, self.world.now, seed=self._seed)
        life.patience = 3 * self._patience
        return life


# Looking at the end


async def read_store(open_store: OpenStore) -> tuple[Seen, list[Divergence]]:
    """Return what a store holds of the tree, and what of it does not verify."""
    async with open_store() as store:
        return await look(store), [problem async for problem in _unverified(store)]


async def _unverified(store: Store) -> AsyncIterator[Divergence]:
    for row in await store.read_tree(THREAD):
        try:
            await audit(store, row)
        except HibernautError as error:
            yield Divergence("verify", f"{row.thread_id}: {error}")


def left_unknown(seen: Seen, world: World) -> dict[str, str]:
    """Return the calls of which nobody can tell any more whether they happened, with what is told of them."""
    return {name: told for one in seen.tree.values() for name, told in _left_unknown(one, world).items()}


def _left_unknown(seen: Seen, world: World) -> dict[str, str]:
    repeatable = {tool for (tool,) in world.of("repeatable")}
    answers = {arrived.message_id for arrived in seen.inbox}
    at_work = world.servers.alive if world.servers is not None else set[str]()
    sent = {row.effect.call_id: row.effect for row in seen.effects if row.state == "sent" and row.effect.call_id}
    waited_for = {call.id for call in seen.head.calls.values() if call.state in ("open", "detached")}
    return {
        name: _words_for(effect, seen)
        for name, effect in sent.items()
        if effect.kind == "invoke" and name in waited_for and effect.tool not in repeatable
        if f"result:{name}" not in answers and name not in at_work
    }


def _words_for(effect: Effect, seen: Seen) -> str:
    if effect.server:
        return LOST.format(tool=effect.tool, server=effect.server)
    return UNKNOWN_EFFECT.format(tool=effect.tool) + answers_of(seen.head, effect.call_id)


# Stores


def memory_store() -> OpenStore:
    """Return what opens one store in memory, again and again."""
    store = MemoryStore()

    @asynccontextmanager
    async def open_it() -> AsyncIterator[Store]:
        yield store

    return open_it


def sqlite_store(path: Path) -> OpenStore:
    """Return what opens the store in a file."""

    @asynccontextmanager
    async def open_it() -> AsyncIterator[Store]:
        store = await SqliteStore.open(path)
        try:
            yield store
        finally:
            await store.close()

    return open_it


class Stores:
    """Makes new stores of one kind; those in files are gone at its end."""

    def __init__(self, kind: "StoreKind") -> None:
        self.name = kind if isinstance(kind, str) else getattr(kind, "__name__", "its own")
        self.shared = kind != "memory"
        """Whether two processes can have one of them open."""
        self._kind = kind
        self._folder = tempfile.TemporaryDirectory(prefix="hibernaut-")
        self._made = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Remove what is in files."""
        with suppress(OSError):
            self._folder.cleanup()

    def new(self) -> OpenStore:
        """Return what opens a new store."""
        self._made += 1
        if not isinstance(self._kind, str):
            return self._kind()
        return memory_store() if self._kind == "memory" else sqlite_store(Path(self._folder.name) / f"{self._made}.db")


StoreKind = Literal["memory", "sqlite"] | Callable[[], OpenStore]
"""A kind of store: one of ours, or a function that makes what opens a new one."""
