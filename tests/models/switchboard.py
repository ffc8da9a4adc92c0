"""The models of a course: which one threads have now, what it says, and where it stands still.

What is said to a request is decided before it is sent, by its thread and its number. The fake finds it by the bytes
that arrive, which are to be the same as if all of them were written for this request alone.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from random import Random
from typing import Final

import msgspec

from hibernaut.codec import sha256
from hibernaut.kernel.family import stack_of
from hibernaut.kernel.head import decode_head, living
from hibernaut.messages.events import Usage
from hibernaut.messages.items import ResultItem
from hibernaut.messages.stream import Counted, Finish, StreamPiece
from hibernaut.models.prices import cost
from hibernaut.models.protocol import Model, ModelInfo, ModelRequest
from hibernaut.models.scripted import ScriptedTurn, as_turn, turn
from hibernaut.stores.protocol import Store
from hibernaut.testing.gates import Gate
from hibernaut.testing.providers.server import FakeScript, Played
from hibernaut.testing.providers.wire import Asked, Raw
from tests.engine.scenario import settle
from tests.models.doors import DOORS, Door, Doors
from tests.models.speaking import Facts, Speaker, usage
from tests.models.watching import Broken, Watch

LONGEST_SHOWN: Final = 300
"""Characters of a turn in a story."""


class Bill(msgspec.Struct):
    """What the providers have told of what a thread took."""

    tokens: int = 0
    cost: int = 0
    cut_short: int = 0
    """Completions that never told all of it."""

    def add(self, pieces: Sequence[StreamPiece], info: ModelInfo) -> None:
        """Add what was told of a completion of which these pieces came."""
        told = next((piece for piece in reversed(pieces) if isinstance(piece, Counted | Finish)), None)
        self.cut_short += bool(pieces) and not isinstance(told, Finish)
        if told is not None:
            taken = told.usage
            self.tokens += taken.input + taken.output
            if info.prices is not None and (taken.input or taken.output):
                self.cost += cost(info.prices, taken, told.written)


class Switchboard:
    """A `ModelSource` that has one model for all threads, another one whenever the course wants it.

    Args:
        setting: the number of the course's setting.
        store: where the threads are.
        used: the models that it switches between.
        pauses: whether they may stand still in the middle of a turn.
    """

    def __init__(self, setting: int, store: Store, used: Sequence[Door], *, pauses: bool) -> None:
        self.used = used
        self.door = used[0]
        """The model that threads have now."""
        self.doors: Doors
        self.held: dict[str, Gate] = {}
        """Threads whose model stands still in the middle of a turn."""
        self.calm = False
        """Whether models bring all to an end."""
        self.faults: list[Exception] = []
        """What is not as it must be."""
        self.bills: dict[str, Bill] = {}
        """By thread."""
        self.watch = Watch(store)
        self.story: list[str] = []
        """What has happened, for who has to find out why it failed."""
        self._setting = setting
        self._store = store
        self._pauses = pauses
        self._requests: Counter[str] = Counter()
        self._said: dict[bytes, list[ScriptedTurn]] = {}
        """What is said to a request, by the digest of its body."""
        self._last: dict[str, Door] = {}
        """Who was asked last, by thread."""

    def resolve(self, _name: str) -> Model:
        """Return the model that threads have now."""
        return _Speaking(self, self.door)

    def script(self, provider: str) -> FakeScript:
        """Return what the fake of a provider plays."""

        def answer(asked: Asked) -> Played:
            waiting = self._said.get(sha256(asked.raw), [])
            if waiting:
                return waiting.pop(0)
            self.faults.append(Broken(f"{provider} gets other bytes than if all were written anew"))
            return Raw(500)

        return answer

    async def ask(self, door: Door, request: ModelRequest) -> AsyncGenerator[StreamPiece, None]:
        """Make a completion."""
        model, thread_id = self.doors.model(door), request.thread_id
        self._requests[thread_id] += 1
        name = f"{thread_id} {self._requests[thread_id]}"
        chance = Random(f"{self._setting} {name}")
        try:
            body = await self.watch.check(self.doors, door, chance.choice([*DOORS.values()]), request)
            told = model._dialect._names.on_wire  # type: ignore[attr-defined]  # all of our dialects have names
            speaker = Speaker(chance, door, name, told, calm=self.calm, pauses=self._pauses)
            said, gate = await self._says(speaker, request)
        except Exception as error:
            self.faults.append(error)
            raise
        said = _with_usage(said, usage(chance, len(body)), early=chance.random() < 0.5)
        self._said.setdefault(sha256(body), []).append(said)
        self._tell(door, request, said)
        holding = asyncio.create_task(self._hold(thread_id, gate)) if gate is not None else None
        heard: list[StreamPiece] = []
        try:
            async with aclosing(model.stream(request)) as pieces:
                async for piece in pieces:
                    heard.append(piece)
                    self.watch.heard(door, piece)
                    if isinstance(piece, Finish):
                        self._finished(door, piece, said)
                    yield piece
        finally:
            self.bills.setdefault(thread_id, Bill()).add(heard, model.info)
            self.held.pop(thread_id, None)
            if holding is not None:
                holding.cancel()

    async def _says(self, speaker: Speaker, request: ModelRequest) -> tuple[ScriptedTurn, Gate | None]:
        if request.purpose == "summary":
            return as_turn(speaker.summary()), None
        row = await self._store.read_head(request.thread_id)
        assert row is not None
        head = decode_head(row.head).head
        said, gate = speaker.turn(request, Facts(stack_of(head), tuple(living(head))))
        return as_turn(said), gate

    def _tell(self, door: Door, request: ModelRequest, said: ScriptedTurn) -> None:
        words = repr(said.steps)[:LONGEST_SHOWN]
        self.story.append(f"{request.thread_id} asks {door.model} for a {request.purpose}, which says {words}")
        if request.purpose == "turn":
            if self._last.setdefault(request.thread_id, door) != door:
                self.watch.seen["switched"] += 1
                self.watch.seen["switched within a turn"] += isinstance(request.transcript[-1], ResultItem)
            self._last[request.thread_id] = door

    async def _hold(self, thread_id: str, gate: Gate) -> None:
        await gate.reached()
        await settle()  # what was said before reaches the thread
        self.held[thread_id] = gate

    def _finished(self, door: Door, finish: Finish, said: ScriptedTurn) -> None:
        told = said.ending[-1]
        if not isinstance(told, Finish) or finish.usage != (told.usage if door.tells_usage else Usage()):
            self.faults.append(Broken(f"{finish} was read where the provider told {told}"))


class _Speaking:
    """A model of the switchboard's."""

    def __init__(self, board: Switchboard, door: Door) -> None:
        self._board = board
        self._door = door

    @property
    def info(self) -> ModelInfo:
        return self._board.doors.model(self._door).info

    def stream(self, request: ModelRequest) -> AsyncGenerator[StreamPiece, None]:
        return self._board.ask(self._door, request)


def _with_usage(said: ScriptedTurn, taken: Usage, *, early: bool) -> ScriptedTurn:
    """Return a turn that tells at its end what it took; `early`: at its beginning, too, what is known of it then."""
    before = [Counted(Usage(taken.input, 1, taken.cached))] if early and said.pieces else []
    ends = said.ending[-1] if said.ending else None
    return turn(*before, said, reason=ends.reason, usage=taken) if isinstance(ends, Finish) else turn(*before, said)
