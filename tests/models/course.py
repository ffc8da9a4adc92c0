"""A course of random events in a tree of threads whose models are real adapters before strict fakes.

People speak, with pictures, too, also while the model does; calls are answered in time, late or never; events come;
children are made and report; operators stop, resume, cancel, compact and fork; time passes; processes end and begin
anew; models fail in every way, and give way to others, of any provider, at any moment. After each event, when nothing
more can happen by itself, everything is checked that must hold.

What happens follows from the numbers that a course is made of: one for its setting and one for each event. So a course
that has failed is repeated by its numbers, and some of them can be left out.
"""

import asyncio
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from functools import reduce
from random import Random
from typing import Final

import msgspec

from hibernaut.engine.transcripts import Transcripts
from hibernaut.errors import InputRefused
from hibernaut.handle import ThreadHandle
from hibernaut.kernel.authority import Authority, Rule
from hibernaut.kernel.commit import Disposition
from hibernaut.kernel.fold import added
from hibernaut.kernel.head import Head, decode_head
from hibernaut.kernel.limits import ThreadOptions
from hibernaut.messages.events import Usage
from hibernaut.messages.items import EventItem, NoticeItem, SummaryItem, TextItem, UserItem
from hibernaut.models.configuration import ModelSettings
from hibernaut.models.protocol import ModelRequest
from hibernaut.system import AgentSystem
from hibernaut.testing.clock import ManualClock, SequentialIds
from hibernaut.testing.providers.server import FakeProvider
from hibernaut.tools.outputs import OutputType
from tests.engine.far import PUBLIC
from tests.engine.scenario import MINUTE, SECOND, settle, system
from tests.models.doors import DOORS, Door, Street, street
from tests.models.outside import SHOP, SUBSCRIPTIONS, Outside, RememberingStore, some_content, something_to_say
from tests.models.switchboard import Bill, Switchboard
from tests.models.words import some_text

NAMES: Final = ("root", "root", "größe 🦉 " + "x" * 150)
"""What the root may be called."""


class Build(msgspec.Struct):
    """What a program may ask for."""

    commit: str
    tags: list[str]


FORMS: Final = ("", OutputType(Build).schema, OutputType(dict[str, int]).schema)
"""Of answers that programs wait for."""

MOST_THREADS: Final = 9
"""Above which none is forked."""

MANY: Final = 1_000
"""Threads; more than there ever are."""

RESTS: Final = ("idle", "resting")
"""What a thread does when nothing more happens by itself."""

EVENTS: Final = {
    "say": 12,
    "ask": 3,
    "answer": 9,
    "event": 6,
    "time": 7,
    "switch": 7,
    "cancel": 2,
    "stop": 2,
    "resume": 3,
    "compact": 2,
    "restart": 2,
    "fork": 1,
}
"""What may happen, and how often beside the others."""

WHILE_SPEAKING: Final = {"say": 6, "stop": 2, "go_on": 6, "answer": 1, "event": 1, "switch": 1, "time": 1}
"""The same while a model stands still in the middle of a turn."""

MOMENTS: Final = [SECOND, 10 * SECOND, 3 * MINUTE, 60 * MINUTE]

_NOT_FINAL: Final = (Disposition.DEFERRED, Disposition.HELD, Disposition.DUPLICATE)


class Course:
    """One course. `run` plays it to its end.

    Args:
        setting: the number of its setting. Its first model follows from it, all of them in turn.
        events: the number of each event.
    """

    def __init__(self, setting: int, events: Sequence[int]) -> None:
        chance = Random(setting)
        self._setting = setting
        self._events = iter(events)
        self._resident = chance.random() < 0.8
        """Whether an engine runs all the time; otherwise a step is taken after each event."""
        self._options = _some_options(chance)
        self._root = chance.choice(NAMES)
        self._instructions = chance.choice(["Be kind.", "Be kind.", "", some_text(chance)])
        self._denies = chance.random() < 0.2
        self._chunks = chance.choice([None, None, 30, 500])
        self._store = RememberingStore()
        self._clock = ManualClock()
        self._ids = SequentialIds()
        self._outside = Outside(setting, self._store, self._clock)
        self._board = Switchboard(setting, self._store, _some_doors(setting, chance), pauses=self._resident)
        self._system: AgentSystem
        self._fakes: list[FakeProvider] = []
        self._threads: list[str] = []
        self._processes = 0

    @property
    def seen(self) -> Counter[str]:
        """What there was to be checked, by kind."""
        return self._board.watch.seen

    @property
    def story(self) -> Sequence[str]:
        """What has happened."""
        return self._board.story

    async def run(self) -> None:
        """Play the course.

        Raises:
            AssertionError: something does not hold.
        """
        async with street(self._clock) as there:
            for provider in sorted({door.provider for door in self._board.used}):
                await there.serve(provider, self._board.script(provider), self._chunks)
            self._fakes, goes_on = there.fakes, True
            while goes_on:
                async with self._process(there) as self._system:
                    goes_on = await self._live()

    def _process(self, there: Street) -> AgentSystem:
        """Return the system of the next process; models may be asked in another way by then."""
        self._processes += 1
        chance = Random(f"{self._setting} {self._processes}")
        if self._processes == 1 or chance.random() < 0.3:
            self._board.doors = there.doors({door.model: _some_settings(chance) for door in DOORS.values()})
        return system(
            self._board,
            *self._outside.tools(),
            store=self._store,
            clock=self._clock,
            ids=self._ids,
            options=self._options,
            authority=Authority(rules=(Rule(decision="deny", tools=("quick",)),)) if self._denies else None,
            run=self._resident,
            instructions=self._instructions,
            servers=self._outside.servers,
            callbacks=PUBLIC,
        )

    async def _live(self) -> bool:
        """Let events happen in this process; return whether another one shall go on after it."""
        if not self._threads:
            await self._system.send(self._root, "Begin.")
            await self._rest()
        for number in self._events:
            chance = Random(number)
            among = WHILE_SPEAKING if self._board.held else EVENTS
            (kind,) = chance.choices([*among], [*among.values()])
            self._board.story.append(kind)
            if kind == "restart":
                return True
            with suppress(InputRefused):  # the thread has ended meanwhile, or what is said is blank
                await getattr(self, f"_happens_{kind}")(chance)
            await self._rest()
            await self._check()
        await self._come_to_rest()
        await self._check()
        await self._check_everywhere()
        return False

    # What happens

    async def _happens_say(self, chance: Random) -> None:
        await self._system.send(chance.choice([self._root, self._root, *self._threads]), something_to_say(chance))

    async def _happens_ask(self, chance: Random) -> None:
        """A program asks, and leaves."""
        name, form = chance.choice([self._root, *self._threads]), chance.choice(FORMS)
        message, blobs = self._system.user_message(name, something_to_say(chance), None, "", None, form=form)
        await self._system.put(message, blobs)

    async def _happens_answer(self, chance: Random) -> None:
        if self._outside.tokens and chance.random() < 0.4:
            await self._system.deliver(chance.choice(self._outside.tokens), some_content(chance, blank=True))
        elif working := self._outside.at_work():
            await self._outside.come_back(chance.choice(working), chance)

    async def _happens_event(self, chance: Random) -> None:
        if watching := self._outside.at_work(*SUBSCRIPTIONS):
            await self._outside.occur(chance.choice(watching), chance)

    async def _happens_time(self, chance: Random) -> None:
        self._clock.advance(chance.choice(MOMENTS))

    async def _happens_switch(self, chance: Random) -> None:
        self._board.door = chance.choice(self._board.used)

    async def _happens_cancel(self, chance: Random) -> None:
        agent = await self._somebody(chance)
        if calls := (await agent.state()).calls:
            await agent.cancel(chance.choice(calls).call_id)

    async def _happens_stop(self, chance: Random) -> None:
        await (await self._somebody(chance)).stop("for a while", tree=chance.random() < 0.3)

    async def _happens_resume(self, chance: Random) -> None:
        await (await self._somebody(chance)).resume(tree=chance.random() < 0.5)

    async def _happens_compact(self, chance: Random) -> None:
        await (await self._somebody(chance)).compact()

    async def _happens_fork(self, chance: Random) -> None:
        if len(self._threads) < MOST_THREADS:
            agent = await self._somebody(chance)
            await agent.fork(thread_id=f"fork-{len(self._threads)}", message="And what now?")

    async def _happens_go_on(self, chance: Random) -> None:
        self._board.held.pop(chance.choice([*self._board.held])).open()

    async def _somebody(self, chance: Random) -> ThreadHandle:
        return await self._system.thread(chance.choice([*self._board.held] or self._threads))

    # Afterwards

    async def _rest(self) -> None:
        """Return when nothing more happens by itself: all is done, or stands still in the middle of a turn."""
        if self._resident:
            await settle()
            while not self._stands_still():  # noqa: ASYNC110  # no single event says so of all threads
                await asyncio.sleep(0)
        else:
            await self._system.step([])
        self._threads = [state.thread_id for state in await self._system.threads(limit=MANY)]

    def _stands_still(self) -> bool:
        engine = self._system._engine
        assert engine is not None
        at_work = set(engine.slices.threads) - self._board.held.keys()
        return not (at_work or engine._wake.is_set() or engine.engine.dispatcher.running)

    async def _come_to_rest(self) -> None:
        """Let all models answer, and everything be answered, until nothing waits any more."""
        self._board.calm = True
        chance = Random(self._setting)
        for _ in range(100):
            for name in [*self._board.held]:
                self._board.held.pop(name).open()
            for call in self._outside.at_work():
                await self._outside.come_back(call, chance)
            for token in self._outside.tokens:
                with suppress(InputRefused):
                    await self._system.deliver(token, "delivered at last")
            for state in await self._system.threads(limit=MANY):
                if state.status in ("stopped", "parked"):
                    await self._system.send(state.thread_id, "Finish.")
            self._clock.advance(3 * MINUTE)
            await self._rest()
            left = [state for state in await self._system.threads(limit=MANY) if state.activity not in RESTS]
            if not left and not self._board.held:
                return
        raise AssertionError("it comes to no rest")

    # What must hold

    async def _check(self) -> None:
        if self._board.faults:
            raise self._board.faults[0]
        for fake in self._fakes:
            assert fake.refused == [], fake.refused[0].body
        assert {call.operation for call in self._outside.servers.calls} <= {one.name for one in SHOP.tools}
        for name in self._threads:
            await self._check_thread(name)

    async def _check_thread(self, name: str) -> None:
        agent = await self._system.thread(name)
        receipts = await agent.receipts()
        assert await self._system.verify(name) == len(receipts)
        final = Counter(given for one in receipts for given, fate in one.inputs if fate not in _NOT_FINAL)
        assert [given for given, times in final.items() if times > 1] == [], f"{name} has taken them in twice"
        waiting = {one.message_id for one in await agent.inbox()}
        assert self._store.accepted.get(name, set()) - final.keys() - waiting == set(), f"{name} has lost them"
        head, bill = await self._head(name), self._board.bills.get(name, Bill())
        assert head.used - head.estimated == bill.tokens, f"{name} has counted other tokens"
        assert head.cost - head.estimated_cost == bill.cost, f"{name} has counted other costs"
        assert bill.cut_short or not head.estimated, f"{name} has estimated what was told"
        told = reduce(added, [one.usage for one in receipts if one.usage], Usage())
        assert (told, sum(one.estimated for one in receipts)) == (head.usage, head.estimated)

    async def _check_everywhere(self) -> None:
        """Check that every model, of whichever provider, would go on with each thread as it stands."""
        transcripts = Transcripts(self._store)
        for name in self._threads:
            await self._count(name)
            hot = await transcripts.at(await self._head(name))
            hot.extend([UserItem("And now?")])
            request = ModelRequest("", self._instructions, hot.checked(), (), name)
            for door in DOORS.values():
                await self._board.watch.taken_by(self._board.doors, door, request)

    async def _count(self, name: str) -> None:
        for item in await (await self._system.thread(name)).history():
            if isinstance(item, NoticeItem | EventItem):
                self.seen[item.kind if isinstance(item, NoticeItem) else item.source] += 1
            elif isinstance(item, SummaryItem):
                self.seen["summarized"] += 1
            elif isinstance(item, TextItem) and item.interrupted:
                self.seen["interrupted"] += 1

    async def _head(self, name: str) -> Head:
        row = await self._store.read_head(name)
        assert row is not None
        return decode_head(row.head).head


# The setting


def _some_doors(setting: int, chance: Random) -> list[Door]:
    names = [*DOORS]
    first = names.pop(setting % len(names))
    return [DOORS[name] for name in (first, *chance.sample(names, chance.choice([0, 1, 1, 2, 3])))]


def _some_settings(chance: Random) -> ModelSettings:
    return ModelSettings(
        effort=chance.choice(["", "", "none", "low", "high"]),
        max_output=chance.choice([0, 0, 16, 3_000]),
        cache=chance.random() < 0.8,
        images=chance.choice([None, True]),
    )


def _some_options(chance: Random) -> ThreadOptions:
    return ThreadOptions(
        parallel_calls=chance.choice([1, 1, 2, 4]),
        on_user_text=chance.choice(["detach", "detach", "cancel"]),
        context_window=chance.choice([0, 2_500, 6_000, 20_000]),
        call_deadline=chance.choice([0, 0, 10 * MINUTE]),
        max_repeats=100,
        max_attempts=chance.choice([2, 6]),
        max_children=3,
        max_event_children=2,
    )
