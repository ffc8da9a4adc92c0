"""Processes that are really killed: a program that has imported everything and forks one life after the other.

It reads an `Order` a line and answers each with a `Died` a line.
"""

import asyncio
import os
import signal
import sys
import threading
import time
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import cast

import msgspec

import hibernaut.rap.connections
import hibernaut.rap.receiver  # noqa: F401  # a system imports both when it needs them, in every life anew
from hibernaut.errors import ConfigurationError
from hibernaut.imports import find, split
from hibernaut.reach import Callbacks
from hibernaut.stores.protocol import Store
from hibernaut.testing.courses import live, sqlite_store
from hibernaut.testing.faults import FaultPlan
from hibernaut.testing.life import PATIENCE, Life, Scenario
from hibernaut.testing.quiet import quiet
from hibernaut.testing.world import World


class Order(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One life, or that one which stands still goes on."""

    store: str = ""
    scenario: str = ""
    """Where it is: `module:name` or `file.py:name`, or `module:name:key` of a mapping."""
    number: int = 1
    operation: int = 0
    """The operation at which it is killed; 0: at none."""
    after: bool = False
    """It is killed when that was performed, instead of before."""
    stand_still: bool = False
    """It stands still there, instead."""
    within: float = 0
    """Seconds after which it is killed, wherever it is; 0: never."""
    late: int = 0
    """Milliseconds by which it begins later than the one before has come."""
    seed: str = ""
    disturbed_by: str = ""
    port: int = 0
    """Where it takes callbacks, and"""
    other_port: int = 0
    """the same for a process that takes over from one that stands still, and"""
    public: str = ""
    """where servers are told to post them."""
    patience: float = PATIENCE
    go_on: int = 0
    """The process that goes on; 0: this is a new one."""


class Died(msgspec.Struct, frozen=True):
    """How a process ended: its exit code, or minus the signal; 0 and its id if it stands still."""

    status: int
    stands_still: int = 0


def world_file(store: str) -> Path:
    """Return where the world of a store is."""
    return Path(f"{store}.world")


def scenario_named(name: str) -> Scenario:
    """Return the scenario of a name.

    Raises:
        ConfigurationError: there is none.
    """
    place, rest = split(name)
    attribute, _, key = rest.partition(":")
    if not attribute:
        raise ConfigurationError(f"{name!r} names no scenario; give module:name or path/to/file.py:name")
    found = find(place, attribute.split("."))
    if key:
        found = found.get(key) if isinstance(found, Mapping) else None
    if not callable(found):
        raise ConfigurationError(f"{name} is no scenario: it must be a function that takes a Life and returns a Play")
    return cast("Scenario", found)


async def _live(order: Order) -> None:
    world = World(world_file(order.store))

    def make(store: Store) -> Life:
        def reach(reached: int, _name: str) -> None:
            if reached == order.operation:
                _end_here(order, life)

        plan = FaultPlan(after=order.after, on_operation=reach)
        life = Life(order.number, world, store, plan, world.now + order.late, seed=order.seed)
        life.patience, life.disturbed_by = order.patience, order.disturbed_by
        if order.port:
            life.callbacks = Callbacks(port=order.port, public=order.public)
        return life

    began = time.monotonic()
    lived = await live(make, scenario_named(order.scenario), sqlite_store(Path(order.store)))
    world.note("operations", *lived.operations)
    world.note("took", f"{time.monotonic() - began:.3f}")


def _end_here(order: Order, life: Life) -> None:
    """Be killed, or stand still until told to go on."""
    if not order.stand_still:
        os.kill(os.getpid(), signal.SIGKILL)
    os.kill(os.getpid(), signal.SIGSTOP)
    life.faulty.stood_still()
    life.clock.advance(max(0, life.world.again().now + order.late - life.clock.now()))


def _fork(order: Order) -> int:
    child = os.fork()
    if child:
        return child
    try:
        if order.within:
            kill = threading.Timer(order.within, partial(os.kill, os.getpid(), signal.SIGKILL))
            kill.daemon = True
            kill.start()
        asyncio.run(_live(order))
    except BaseException:  # noqa: BLE001  # the child must not go on as its parent
        sys.excepthook(*sys.exc_info())
        os._exit(1)
    os._exit(0)


def _wait(child: int) -> Died:
    _, status = os.waitpid(child, os.WUNTRACED)
    if os.WIFSTOPPED(status):
        return Died(0, child)
    return Died(os.waitstatus_to_exitcode(status))


def main() -> None:
    """Read orders, and carry them out, until there are no more."""
    with quiet():
        for line in sys.stdin:
            order = msgspec.json.decode(line, type=Order)
            if order.go_on:
                os.kill(order.go_on, signal.SIGCONT)
            died = _wait(order.go_on or _fork(order))
            print(msgspec.json.encode(died).decode(), flush=True)  # noqa: T201  # its output is what it is asked for
