"""Slices of many threads at once, stage by stage.

A slice is stages between which it waits: it reads its head and what came in, and asks the model; it takes in what the
model has said; it hears that this is stored. What a processor has at hand from one slice's stage serves the next one's
best: run one after the other, the same stages of several slices take little more than half of what they take
between others. So threads that were claimed together begin together, and those whose models have answered at the same
time go on together. No slice waits for another one that is not ready.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Collection, Sequence

import msgspec

from hibernaut.engine.core import Engine
from hibernaut.engine.interruptions import Interruptions
from hibernaut.engine.steps import Need, Steps, Stream
from hibernaut.engine.workers import Workers, start
from hibernaut.stores.protocol import Claim, Round

AT_ONCE = 32
"""Slices that begin before others on the event loop have their turn."""


class _Slice(msgspec.Struct, eq=False):
    """A claim whose slice runs, or is about to."""

    claim: Claim
    lost: "_Slice | None" = None
    """What runs under an earlier claim of the thread: this engine was taken for dead meanwhile."""
    steps: Steps[None] | None = None
    """The slice, once it has begun."""
    need: Need | None = None
    """What it waits for."""
    found: object = None
    """That, once it is there;"""
    error: Exception | None = None
    """or why it could not be had; without a `need`, why the slice came to nothing."""
    task: asyncio.Task[None] | None = None
    """Where something is done for it, as long as it is."""
    is_over: bool = False
    over: asyncio.Event | None = None
    """Set at its end, if somebody waits for that."""


class Stages:
    """Runs the slices of one engine. `on_end` is told whenever one is over."""

    def __init__(
        self, engine: Engine, interruptions: Interruptions, tasks: asyncio.TaskGroup, on_end: Callable[[], None]
    ) -> None:
        self._engine = engine
        self._runner = engine.runner
        self._interruptions = interruptions
        self._tasks = tasks
        self._on_end = on_end
        self._slices: dict[str, _Slice] = {}
        self.threads: Collection[str] = self._slices.keys()
        """The threads whose slices run."""
        self._ends = False
        self._streams = Workers(tasks, self._get)
        self._others = Workers(tasks, self._go_on)
        self._answered: list[_Slice] = []
        self._done: list[_Slice] = []
        """Whose rounds are to be stored."""
        self._together: set[asyncio.Task[None]] = set()
        """Where slices go on together."""

    def __len__(self) -> int:
        """Return how many slices run."""
        return len(self._slices)

    async def begin(self, claims: Sequence[Claim]) -> None:
        """Begin the slices of claims; return when the last has begun."""
        new = deque(map(self._register, claims))
        del claims  # while nothing goes on, nobody's messages are held on to
        while new:
            for _ in range(min(AT_ONCE, len(new))):
                one = new.popleft()
                if one.lost is not None or self._runner.is_traced:
                    self._others.put(one)
                else:
                    self._step(one)
            self._store_soon()
            if new:
                await asyncio.sleep(0)

    def cancel(self) -> None:
        """Give up all slices."""
        self._ends = True
        slices = list(self._slices.values())
        self._slices.clear()
        for one in slices:
            if one.task is not None:
                one.task.cancel()
        for task in self._together:
            task.cancel()

    def _register(self, claim: Claim) -> _Slice:
        lost = self._slices.get(claim.thread_id)
        if lost is not None and lost.steps is None and lost.task is None:
            lost = lost.lost
        one = self._slices[claim.thread_id] = _Slice(claim, lost)
        return one

    def _step(self, one: _Slice, *, is_stored: bool = False) -> None:
        """Let a slice go on, with what it has waited for, and see to what it needs next.

        One whose round is stored hears of it, whoever has claimed its thread since: what that owes is its to begin.
        """
        if self._ends or not (is_stored or self._slices.get(one.claim.thread_id) is one):
            self._give_up(one)
            return
        try:
            if one.steps is None:
                one.steps = self._runner.begin(one.claim)
                one.need = next(one.steps)
            elif one.error is not None:
                error, one.error = one.error, None
                one.need = one.steps.throw(error)
            else:
                found, one.found = one.found, None
                # Told by `next` that a slice is over; that `send` raises it instead takes a microsecond.
                one.need = next(one.steps, None) if found is None else one.steps.send(found)
        except StopIteration:
            one.need = None
        except Exception as error:  # noqa: BLE001  # the engine is told
            one.need, one.error = None, error
            self._runner.abandon(one.claim.thread_id)
        if type(one.need) is Stream:
            self._streams.put(one)
        elif type(one.need) is Round:
            self._done.append(one)
        elif one.need is None and one.error is None:
            self._end(one)
        else:
            self._others.put(one)

    def _has_answered(self, one: _Slice) -> None:
        """Let those go on together whose streams end before others have their turn."""
        self._answered.append(one)
        if len(self._answered) == 1:
            try:
                _ = start(self._tasks, self._take_in(), self._together)
            except RuntimeError:  # everything ends
                answered, self._answered = self._answered, []
                for other in answered:
                    self._give_up(other)

    async def _take_in(self) -> None:
        answered, self._answered = self._answered, []
        for one in answered:
            self._step(one)
        await self._store_done()

    def _store_soon(self) -> None:
        if self._done:
            _ = start(self._tasks, self._store_done(), self._together)

    async def _store_done(self) -> None:
        """Have rounds stored that are done, all of them together, and go on with their slices."""
        while self._done:
            done, self._done = self._done, []
            kept, rounds = [], []
            for one in done:
                if isinstance(one.need, Round) and self._slices.get(one.claim.thread_id) is one:
                    kept.append(one)
                    rounds.append(one.need)
                else:
                    self._give_up(one)
            try:
                ends = await self._runner.store(rounds)
            except BaseException:
                for one in kept:
                    self._give_up(one)
                raise
            for one, refused in zip(kept, ends, strict=True):
                one.error = refused
                self._step(one, is_stored=refused is None)

    async def _go_on(self, one: _Slice, task: asyncio.Task[None]) -> None:
        """Do what a slice waits for, and let it go on; or the whole of it, if it is to run by itself."""
        if one.need is not None:
            await self._get(one, task)
            self._step(one)
            self._store_soon()
            return
        if self._slices.get(one.claim.thread_id) is not one:
            self._give_up(one)
            return
        one.task = task
        try:
            if one.error is not None:
                await self._engine.failed(one.claim, one.error)
                return
            if one.lost is not None:
                await _outlive(one.lost)
                one.lost = None
            await self._engine.slice(one.claim)
        finally:
            self._end(one)

    async def _get(self, one: _Slice, task: asyncio.Task[None]) -> None:
        """Get what a slice needs."""
        need = one.need
        if need is not None and self._slices.get(one.claim.thread_id) is one:
            one.task = task
            try:
                one.found = await self._runner.get(need, task)
            except Exception as error:  # noqa: BLE001  # it is the slice that has to know what to do about it
                one.error = error
            except BaseException:
                self._give_up(one)
                raise
            finally:
                one.task = None
        if type(need) is Stream:
            self._has_answered(one)

    def _give_up(self, one: _Slice) -> None:
        if one.steps is not None and not one.is_over:
            one.steps.close()
            self._runner.abandon(one.claim.thread_id)
        self._end(one)

    def _end(self, one: _Slice) -> None:
        thread_id = one.claim.thread_id
        one.task, one.is_over = None, True
        if one.over is not None:
            one.over.set()
        if self._slices.get(thread_id) is one:
            del self._slices[thread_id]
            self._interruptions.forget(thread_id)
        self._on_end()


async def _outlive(lost: _Slice) -> None:
    """Return when a slice whose claim is lost is over."""
    if not lost.is_over:
        if lost.task is not None:
            lost.task.cancel()
        lost.over = asyncio.Event()
        await lost.over.wait()
    if lost.lost is not None:  # it had waited for that itself
        await _outlive(lost.lost)
