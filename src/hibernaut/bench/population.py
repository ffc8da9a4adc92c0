"""Many stored agents that have talked once and wait, made through the store's own API without running a model.

Each is whole: a head, a page with what was said, a receipt, a digest of its message, all by the kernel's rules, so
`verify` finds nothing wrong with it. What is left out is only the engine's work around them.
"""

import asyncio
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from hibernaut.clock import SystemClock
from hibernaut.errors import ConfigurationError
from hibernaut.ids import RandomIds
from hibernaut.kernel.commit import NewThread, SliceCommit
from hibernaut.kernel.config import LaunchConfig, encode_config
from hibernaut.kernel.fold import fold_turn
from hibernaut.kernel.head import Head, decode_head, encode_head
from hibernaut.kernel.limits import ThreadOptions
from hibernaut.kernel.prepare import prepare
from hibernaut.kernel.receipt import TurnCommit
from hibernaut.kernel.seal import Asked, seal
from hibernaut.kernel.turn import Turn, TurnText
from hibernaut.messages.events import Usage
from hibernaut.messages.inputs import InputMessage, UserText
from hibernaut.stores.owners import this_owner
from hibernaut.stores.protocol import Claim, Outcome
from hibernaut.stores.sqlite import SqliteStore
from hibernaut.tools.table import ToolTable
from hibernaut.version import build

AT_ONCE = 2_000
"""Agents of one transaction."""

TOLD_EVERY = 5.0
"""Seconds between two words about how far it is."""

_ASKED = (
    "Tell me when the nightly build of the planner has gone through, and what was in it that we did not expect; ticket "
)
_ANSWER = "I will. Until then there is nothing to do, so I wait; write to me if you want to know earlier. My note is "


def name_of(number: int) -> str:
    """Return the name of one of the agents."""
    return f"agent-{number:09d}"


async def populate(path: Path, agents: int) -> float:
    """See to it that a store's file has that many agents; return how many a second were made, 0 if they were there.

    A file that is there is kept and filled up. How far it is, is told on stderr.

    Raises:
        ConfigurationError: it holds threads that are none of these, or more.
    """
    began = time.perf_counter()
    store = await SqliteStore.open(path)
    try:
        counts = await store.read_counts(SystemClock().now())
        there = sum(counts.threads.values())
        if there > agents or (there and await store.read_head(name_of(there - 1)) is None):
            raise ConfigurationError(
                f"{path} holds {there:,} threads that are not the first of {agents:,} agents of a benchmark; "
                "name another file, or ask for as many agents as it has"
            )
        await _Maker(store).fill(there, agents)
    finally:
        await store.close()
    return (agents - there) / (time.perf_counter() - began)


class _Maker:
    def __init__(self, store: SqliteStore) -> None:
        self._store = store
        self._clock, self._ids = SystemClock(), RandomIds()
        self._config, self._body = encode_config(LaunchConfig(model="default", tools=()))
        self._table = ToolTable(())
        self._options, self._build = ThreadOptions(), build()

    async def fill(self, first: int, end: int) -> None:
        """Make the agents of these numbers."""
        began = told = time.perf_counter()
        owner = this_owner(self._ids)
        await self._store.beat(owner, self._clock.now())
        for start in range(first, end, AT_ONCE):
            numbers = range(start, min(start + AT_ONCE, end))
            now = self._clock.now()
            threads, messages = [self._thread(number, now) for number in numbers], list(self._messages(numbers))
            outcomes = await self._store.create(threads, messages, now)
            if any(outcome is not Outcome.ACCEPTED for outcome in outcomes):
                raise AssertionError("an agent could not be made")
            claims = await self._store.claim(owner, now, len(numbers))
            await asyncio.gather(*[self._store.commit(claim, self._turn(claim, now)) for claim in claims])
            if time.perf_counter() - told > TOLD_EVERY:
                told = time.perf_counter()
                rate = (numbers[-1] + 1 - first) / (told - began)
                sys.stderr.write(f"{numbers[-1] + 1:,} of {end:,} agents are made, {rate:,.0f} a second\n")
                await self._store.beat(owner, self._clock.now())
        await self._store.leave(owner)

    def _thread(self, number: int, now: int) -> NewThread:
        name = name_of(number)
        head = Head(name, self._ids.salt(), self._config)
        return NewThread(name, "", encode_head(head), self._config, self._body, now)

    def _messages(self, numbers: range) -> Iterator[InputMessage]:
        for number in numbers:
            yield InputMessage(self._ids.new("msg"), name_of(number), UserText(f"{_ASKED}{number}"), "api")

    def _turn(self, claim: Claim, now: int) -> SliceCommit:
        """Return the commit of a turn in which the model says something and calls nothing."""
        head = decode_head(claim.head).head
        draft = prepare(head, claim.messages, self._options, now)
        said = TurnText(f"{_ANSWER}{head.salt.hex()}.")
        fold_turn(draft, Turn((said,), "end", Usage(200, 30)), self._table)
        asked = Asked(TurnCommit.COMPLETE, shown=1, attempt=1, usage=Usage(200, 30), tools=self._table.digest)
        return seal(draft, asked, started=now, now=now, build=self._build)
