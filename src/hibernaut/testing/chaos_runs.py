"""Chaos: an agent, run again and again, killed anywhere and disturbed in every way; in the end nothing may be other.

A run is killed up to five times, and what is handed in to it is delayed, reordered and repeated; callbacks that are
forged, expired, truncated or late come between. What each run does follows from the seed and its number.
"""

import asyncio
import random
import socket
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, nullcontext
from itertools import count
from pathlib import Path
from typing import Protocol, Self

from hibernaut.errors import ConfigurationError
from hibernaut.rap.listening import LOOPBACK
from hibernaut.stores.memory import MemoryStore
from hibernaut.testing.courses import Course, Crash, StoreKind, Stores, run_course
from hibernaut.testing.crashes import counted, name_of, placed
from hibernaut.testing.judging import judge
from hibernaut.testing.life import PATIENCE, Life, Scenario
from hibernaut.testing.nursery import Order, scenario_named, world_file
from hibernaut.testing.postman import Postman, postman
from hibernaut.testing.processes import Kill, Nursery
from hibernaut.testing.quiet import quiet
from hibernaut.testing.report import Report
from hibernaut.testing.world import World

VARIANTS = 16
"""Draws of a scenario that draws from chance: so many undisturbed courses are run to compare with."""

MOST_KILLS = 5
"""Of one run."""

ANYWHERE, STALLED = 0.3, 0.1
"""The shares of kills that come at any moment instead of at an operation, and of processes that stand still instead."""

FAILING = 0.3
"""The share of runs in this process whose store fails once after the crashes."""

Told = Callable[[Report], object]


class Stage(Protocol):
    """Where the runs of a scenario take place."""

    async def plain(self, variant: str) -> Course:
        """Run a variant of the scenario undisturbed."""
        ...

    async def run(self, name: str, variant: str, plain: Course, chance: random.Random) -> tuple[Course, Report]:
        """Run it disturbed; return what became of it, and what was done to it."""
        ...


async def chaos(
    scenario: Scenario | str,
    *,
    minutes: float = 1.0,
    seed: int | str = 0,
    run: int | None = None,
    processes: bool = False,
    stores: Sequence[StoreKind] = ("memory", "sqlite"),
    patience: float = PATIENCE,
    on_run: Told = lambda _: None,
) -> Report:
    """Run a scenario in chaos for so many minutes.

    Args:
        scenario: what is run; with `processes` one that can be imported, or its name: `module:name`, `file.py:name`.
        minutes: after which no further run begins.
        seed: the same one does the same.
        run: the number of one run, which alone is done.
        processes: each life is a process of its own, ended by a real SIGKILL, on a store in a file (Linux only).
        stores: what it is run on without processes.
        patience: seconds after which a process that goes nowhere is taken for stuck.
        on_run: told of the report after every run.

    Raises:
        ConfigurationError: the scenario cannot be run like this.
    """
    if not minutes >= 0:
        raise ConfigurationError(f"minutes is {minutes}; it must be at least 0")
    if isinstance(scenario, str):
        scenario_named(scenario)
    with quiet():
        async with _stage(scenario, processes=processes, stores=stores, patience=patience) as (name, stage):
            return await _runs(name, stage, f"{seed}", run, time.monotonic() + 60 * minutes, on_run)


async def _runs(name: str, stage: Stage, seed: str, only: int | None, until: float, on_run: Told) -> Report:
    report, plains = Report(name), dict[str, Course]()
    number = 1 if only is None else only
    while only is None or number == only:
        variant = f"{seed} {number % VARIANTS}"
        if variant not in plains:
            plains[variant] = await stage.plain(variant)
            problems = judge(plains[variant])
            report.divergences += placed(problems, f"{name}, undisturbed, variant {number % VARIANTS} of seed {seed}")
            if problems:
                break  # there is nothing to compare with
        chance = random.Random(f"{seed} {number}")  # noqa: S311  # what is drawn is to be drawn again
        course, done = await stage.run(f"{seed} {number}", variant, plains[variant], chance)
        done.divergences = placed(judge(course, plains[variant]), f"{done.scenario}; seed {seed}, run {number}")
        report += counted(course, done)
        on_run(report)
        number += 1
        if time.monotonic() >= until:
            break
    return report


@asynccontextmanager
async def _stage(
    scenario: Scenario | str, *, processes: bool, stores: Sequence[StoreKind], patience: float
) -> AsyncIterator[tuple[str, Stage]]:
    if processes:
        reference = scenario if isinstance(scenario, str) else _reference(scenario)
        async with _in_processes(reference, patience) as stage:
            yield reference.rpartition(":")[2], stage
        return
    found = scenario_named(scenario) if isinstance(scenario, str) else scenario
    with _InProcess(found, stores, patience) as here:
        yield name_of(found), here


def _reference(scenario: Scenario) -> str:
    module, name = getattr(scenario, "__module__", ""), getattr(scenario, "__qualname__", "<")
    if not module or "<" in name or module == "__main__":
        raise ConfigurationError(
            f"{name_of(scenario)} cannot be imported by another process: give a function at the top of a module"
        )
    return f"{module}:{name}"


def _crashes(plain: Course, chance: random.Random) -> list[Crash]:
    """Draw places at which lives end: early ones in later lives, which find much done already."""
    most = max(len(plain.operations), 1)
    return [
        Crash(chance.randint(1, max(most // life, 1)), after=chance.random() < 0.5)  # noqa: PLR2004  # a coin
        for life in range(1, chance.randint(1, MOST_KILLS) + 1)
    ]


class _InProcess:
    """Runs in this process: a crash is an exception that no code survives."""

    def __init__(self, scenario: Scenario, stores: Sequence[StoreKind], patience: float) -> None:
        self._scenario = scenario
        self._stores = [Stores(kind) for kind in stores]
        self._patience = patience

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for stores in self._stores:
            stores.close()

    async def plain(self, variant: str) -> Course:
        store = self._stores[0].new()
        return await asyncio.to_thread(run_course, self._scenario, store, seed=variant, patience=self._patience)

    async def run(self, name: str, variant: str, plain: Course, chance: random.Random) -> tuple[Course, Report]:
        crashes, stores, lives = _crashes(plain, chance), chance.choice(self._stores), count(1)
        fail_at = chance.randint(1, len(plain.operations)) if chance.random() < FAILING else 0

        def disturb(life: Life) -> None:
            life.disturbed_by = f"{name} {next(lives)}"

        course = await asyncio.to_thread(
            run_course,
            self._scenario,
            stores.new(),
            crashes,
            fail_at=fail_at,
            seed=variant,
            patience=self._patience,
            prepare=disturb,
        )
        course.exact = False
        told = f"{name_of(self._scenario)} on {stores.name}, killed {', then '.join(map(str, crashes))}"
        told += f", then failing at operation {fail_at}" if fail_at else ""
        return course, Report(told, runs=1, kills=course.killed, failures=bool(fail_at))


class _Processes:
    """Runs in processes that are killed, with a tool server beside them that is not."""

    def __init__(
        self,
        reference: str,
        nursery: Nursery,
        folder: Path,
        post: tuple[Postman, str],
        ports: tuple[int, int],
        patience: float,
    ) -> None:
        self._reference = reference
        self._scenario = scenario_named(reference)
        self._nursery = nursery
        self._folder = folder
        self._postman, self._public = post
        self._ports = ports
        self._server_port = _free_port()
        """The same in all runs, since what a thread knows of a server says where it is."""
        self._patience = patience
        self._made = 0

    async def plain(self, variant: str) -> Course:
        order = self._order(variant)
        async with self._beside(order):
            return await self._nursery.course(order)

    async def run(self, name: str, variant: str, plain: Course, chance: random.Random) -> tuple[Course, Report]:
        kills = self._kills(plain, chance)
        order = self._order(variant, disturbed_by=name)
        async with self._beside(order, chance):
            course = await self._nursery.course(order, kills)
        self._forget(order)
        told = f"{self._reference}, {', then '.join(map(str, kills))}"
        return course, Report(told, runs=1, kills=course.killed, stalls=course.stalled)

    def _order(self, variant: str, *, disturbed_by: str = "") -> Order:
        self._made += 1
        return Order(
            store=str(self._folder / f"{self._made}.db"),
            scenario=self._reference,
            seed=variant,
            disturbed_by=disturbed_by,
            port=self._ports[0],
            other_port=self._ports[1],
            public=self._public,
            patience=self._patience,
        )

    def _kills(self, plain: Course, chance: random.Random) -> list[Kill]:
        took = max([float(time) for (time,) in plain.world.of("took")], default=1.0)
        kills = []
        for place in _crashes(plain, chance):
            fate = chance.random()
            if fate < ANYWHERE:
                kills.append(Kill(within=chance.uniform(0, took)))
            else:
                kills.append(Kill(place, stand_still=fate > 1 - STALLED))
        return kills

    @asynccontextmanager
    async def _beside(self, order: Order, chance: random.Random | None = None) -> AsyncIterator[None]:
        """Run the scenario's tool server, if it has one, and let the postman work for it."""
        world = World(world_file(order.store))
        self._postman.world = world
        self._postman.disturbs = chance is not None
        self._postman.chance = random.Random(order.disturbed_by)  # noqa: S311  # what is drawn is to be drawn again
        server = self._scenario(Life(0, world, MemoryStore(), seed=order.seed)).server
        running = server.running(port=self._server_port) if server is not None else nullcontext()
        async with running as address:
            if address is not None:
                world.note("server", address.url)
            yield

    def _forget(self, order: Order) -> None:
        for file in self._folder.glob(f"{Path(order.store).name}*"):
            file.unlink(missing_ok=True)


@asynccontextmanager
async def _in_processes(reference: str, patience: float) -> AsyncIterator[_Processes]:
    async with AsyncExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="hibernaut-", ignore_cleanup_errors=True))
        ports = _free_port(), _free_port()
        nursery = await stack.enter_async_context(Nursery())
        post = await stack.enter_async_context(postman(ports[1], ports[0]))
        yield _Processes(reference, nursery, Path(folder), post, ports, patience)


def _free_port() -> int:
    with socket.socket() as free:
        free.bind((LOOPBACK, 0))
        return int(free.getsockname()[1])
