"""Every store against a model that is too simple to be wrong: dictionaries, lists, and a scan for every question."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, Literal

import msgspec
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from hibernaut.errors import StaleClaim
from hibernaut.kernel.commit import Effect, Outgoing, SliceCommit
from hibernaut.kernel.head import Status
from hibernaut.messages.inputs import RESULT, USER, InputMessage, urgency
from hibernaut.stores.protocol import CLAIM_MESSAGES, DEAD_AFTER, URGENCY_PENALTY, Claim, Outcome, Owner, Store
from tests.store_conformance.scenario import (
    START,
    StoreFactory,
    event,
    invoke,
    names,
    new_thread,
    result,
    sent_to,
    timer,
    user,
)

THREADS = ("a", "b", "c")
ENGINES = ("x", "y", "z")
Maker = Callable[[str, str], InputMessage]

MOST_CLAIMS = 8
"""Claims that are remembered, to be used when they may long be over."""


class Waiting(msgspec.Struct):
    message: InputMessage
    due: int
    deferred: bool = False

    @property
    def urgency(self) -> int:
        return urgency(self.message.content)


class Thread(msgspec.Struct):
    inbox: list[Waiting] = []
    known: set[str] = set()
    status: Status = "open"
    version: int = 0
    updated: int = START
    token: int = 0
    tries: int = 0
    owner: str = ""
    not_before: int = 0
    continues: int | None = None

    def places(self) -> list[tuple[int, int]]:
        """When there is something to do, and in which rank, one entry for each reason."""
        if self.status == "closed":
            return []
        waking = [one for one in self.inbox if self.status == "open" or one.urgency == USER]
        places = [(one.due, one.due + URGENCY_PENALTY[one.urgency]) for one in waking]
        if self.continues is not None:
            places.append((self.continues, self.continues + URGENCY_PENALTY[RESULT]))
        return places

    def has_work(self, now: int) -> bool:
        return self.not_before <= now and any(moment <= now for moment, _ in self.places())

    def deliverable(self, now: int) -> list[str]:
        return [one.message.message_id for one in self.inbox if one.due <= now or one.deferred]


class Owed(msgspec.Struct):
    effect: Effect
    thread_id: str
    state: str
    owner: str


class Model:
    """What a store must be seen to do."""

    def __init__(self) -> None:
        self.threads = {name: Thread() for name in THREADS}
        self.seen: dict[str, int] = {}
        self.effects: dict[str, Owed] = {}

    def is_dead(self, engine: str, now: int) -> bool:
        return engine not in self.seen or now - self.seen[engine] >= DEAD_AFTER

    def put(self, message: InputMessage, due: int) -> Outcome:
        thread = self.threads.get(message.thread_id)
        if thread is None:
            return Outcome.UNKNOWN
        if message.message_id in thread.known:
            return Outcome.DUPLICATE
        if thread.status == "closed":
            return Outcome.CLOSED
        thread.known.add(message.message_id)
        thread.inbox.append(Waiting(message, due))
        held = thread.status != "open" and urgency(message.content) != USER
        return Outcome.HELD if held else Outcome.ACCEPTED

    def free(self, engine: str, now: int) -> dict[str, Thread]:
        """Return the threads that this engine might claim if they had something to do."""
        return {
            name: thread
            for name, thread in self.threads.items()
            if not thread.owner or (thread.owner != engine and self.is_dead(thread.owner, now))
        }

    def holds(self, claim: Claim) -> bool:
        thread = self.threads[claim.thread_id]
        return bool(thread.owner) and thread.token == claim.token

    def commit(self, commit: SliceCommit, *, keep: bool) -> None:
        thread = self.threads[commit.thread_id]
        waited = {one.message.message_id for one in thread.inbox}
        thread.known |= set(commit.consumed)
        thread.known -= waited.intersection(commit.dropped).difference(commit.consumed)
        gone = {*commit.consumed, *commit.dropped}
        thread.inbox = [one for one in thread.inbox if one.message.message_id not in gone]
        for one in thread.inbox:
            if one.message.message_id in dict(commit.deferred):
                one.due, one.deferred = dict(commit.deferred)[one.message.message_id], True
        for request_id in commit.settled:
            self.effects.pop(request_id, None)
        for effect in commit.effects:
            self.effects.setdefault(effect.request_id, Owed(effect, commit.thread_id, "pending", thread.owner))
        thread.version, thread.status, thread.updated = commit.version, commit.status, commit.at
        thread.continues = commit.at if commit.continues else None
        thread.not_before, thread.tries = 0, int(keep)
        if not keep:
            thread.owner = ""
        for outgoing in commit.outgoing:
            self.put(outgoing.message, outgoing.due or commit.at)

    def next_due(self, now: int) -> int | None:
        moments = [
            max(thread.not_before, min(moment for moment, _ in thread.places()))
            for thread in self.threads.values()
            if thread.places() and (not thread.owner or self.is_dead(thread.owner, now)) and not thread.has_work(now)
        ]
        return min(moments, default=None)


engines = st.sampled_from(ENGINES)
threads = st.sampled_from(THREADS)
delays = st.sampled_from([0, 0, 0, 1, 300, 1_500, 20_000])
ids = st.integers(0, 11)
indices = st.integers(0, MOST_CLAIMS - 1)
makers: st.SearchStrategy[Maker] = st.sampled_from([user, result, event, timer])
requests = st.integers(0, 4)


class Plan(msgspec.Struct, frozen=True):
    """What a commit does with the inbox as it is then. Messages are chosen by their place in it."""

    consumed: Literal["all", "first", "none"]
    deferred: int | None
    """Delay of the last message that is not consumed."""
    dropped: int | None
    """Place of the timer to drop."""
    outgoing: tuple[Maker, int, str, int] | None
    effects: list[int]
    settled: list[int]
    status: Status
    continues: bool

    def commit(self, thread_id: str, thread: Thread, now: int) -> SliceCommit:
        inbox = [one.message.message_id for one in thread.inbox]
        consumed = {"all": inbox, "first": [*inbox[:1], "unheard of"], "none": []}[self.consumed]
        rest = [name for name in inbox if name not in consumed]
        outgoing: tuple[Outgoing, ...] = ()
        if self.outgoing:
            make, number, receiver, delay = self.outgoing
            outgoing = sent_to(make(f"m{number}", receiver), due=now + delay if delay else 0)
        return SliceCommit(
            thread_id,
            thread.version + 1,
            b"head",
            b"page",
            b"receipt",
            self.status,
            consumed=tuple(consumed),
            deferred=() if self.deferred is None else ((rest[-1] if rest else "m0", now + self.deferred),),
            dropped=() if self.dropped is None else tuple(inbox[self.dropped :][:1]),
            outgoing=outgoing,
            effects=tuple(invoke(f"r{number}") for number in self.effects),
            settled=tuple(f"r{number}" for number in self.settled),
            continues=self.continues,
            at=now,
        )


plans = st.builds(
    Plan,
    consumed=st.sampled_from(["all", "all", "first", "none"]),
    deferred=st.sampled_from([None, None, 0, 300, 20_000]),
    dropped=st.sampled_from([None, None, 0, 1]),
    outgoing=st.none() | st.tuples(makers, ids, threads, delays),
    effects=st.lists(requests, max_size=2),
    settled=st.lists(requests, max_size=2),
    status=st.sampled_from(["open", "open", "open", "open", "open", "stopped", "parked", "closed"]),
    continues=st.sampled_from([False, False, False, True]),
)


class StoreMachine(RuleBasedStateMachine):
    """Does the same to a store and to the model."""

    def __init__(self, open_store: StoreFactory) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.store: Store = self.runner.run(open_store())
        self.model = Model()
        self.now = START
        self.claims: list[Claim] = []

    def teardown(self) -> None:
        for name, thread in self.model.threads.items():
            inbox = self.runner.run(self.store.read_inbox(name))
            assert [one.message for one in inbox] == [one.message for one in thread.inbox]
            log = self.runner.run(self.store.read_log(name))
            assert [row.version for row in log] == list(range(1, thread.version + 1))
        self.runner.run(self.store.close())
        self.runner.close()

    @initialize()
    def make(self) -> None:
        made = [new_thread(name) for name in THREADS]
        assert self.runner.run(self.store.create(made, [], START)) == []

    @rule(milliseconds=st.sampled_from([1, 300, 1_000, DEAD_AFTER // 2, DEAD_AFTER]), beating=st.sets(engines))
    def wait(self, milliseconds: int, beating: set[str]) -> None:
        self.now += milliseconds
        for engine in sorted(beating):
            self.beat(engine)

    def beat(self, engine: str) -> None:
        self.model.seen[engine] = self.now
        self.runner.run(self.store.beat(Owner(engine), self.now))

    @rule(
        makes=st.lists(st.tuples(makers, ids, st.sampled_from((*THREADS, "nobody"))), min_size=1, max_size=3),
        delay=delays,
    )
    def put(self, makes: list[tuple[Any, int, str]], delay: int) -> None:
        messages = [make(f"m{number}", thread_id) for make, number, thread_id in makes]
        due = self.now + delay if delay else 0
        expected = [self.model.put(message, due or self.now) for message in messages]
        assert self.runner.run(self.store.put(messages, self.now, due=due)) == expected

    @rule(engine=engines)
    def leave(self, engine: str) -> None:
        self.model.seen.pop(engine, None)
        for thread in self.model.threads.values():
            if thread.owner == engine:
                thread.owner = ""
        self.runner.run(self.store.leave(Owner(engine)))

    @rule(
        engine=engines,
        limit=st.integers(1, 3),
        named=st.none() | st.lists(threads, max_size=2),
        plan=st.none() | plans,
    )
    def claim(self, engine: str, limit: int, named: list[str] | None, plan: Plan | None) -> None:
        self.beat(engine)
        free = self.model.free(engine, self.now)
        ready = {
            name: thread
            for name, thread in free.items()
            if thread.has_work(self.now) and (named is None or name in named)
        }
        claims = self.runner.run(self.store.claim(Owner(engine), self.now, limit, threads=named))
        order = [claim.thread_id for claim in claims]
        assert len(order) == len(set(order)) == min(limit, len(ready))
        assert set(order) <= set(ready)
        self._check_order(order, [thread for name, thread in ready.items() if name not in order])
        for claim in claims:
            thread = ready[claim.thread_id]
            assert claim.token > thread.token
            thread.token, thread.tries, thread.owner = claim.token, thread.tries + 1, engine
            assert (claim.tries, claim.version) == (thread.tries, thread.version)
            assert names(claim.messages) == thread.deliverable(self.now)
        self.claims = [*claims, *self.claims][:MOST_CLAIMS]
        if plan:
            for index in range(len(claims)):
                self.commit(index, plan, 0, keep=False)

    def _check_order(self, order: Sequence[str], left: Sequence[Thread]) -> None:
        """A message that is not due yet may or may not already speak for the rank of its thread."""
        chosen = [self.model.threads[name] for name in order]
        for place, thread in enumerate(chosen):
            least = min(rank for _, rank in thread.places())
            for later in [*chosen[place + 1 :], *left]:
                assert least <= min(rank for moment, rank in later.places() if moment <= self.now)

    def take(self, claim: Claim) -> None:
        if self.model.holds(claim):
            messages = self.runner.run(self.store.take(claim, self.now))
            assert names(messages) == self.model.threads[claim.thread_id].deliverable(self.now)
        else:
            with pytest.raises(StaleClaim):
                self.runner.run(self.store.take(claim, self.now))

    @precondition(lambda self: self.claims)
    @rule(index=indices, delay=delays)
    def release(self, index: int, delay: int) -> None:
        claim = self.claims[index % len(self.claims)]
        not_before = self.now + delay if delay else 0
        if self.model.holds(claim):
            thread = self.model.threads[claim.thread_id]
            thread.owner, thread.not_before = "", not_before
        self.runner.run(self.store.release(claim, not_before))

    @precondition(lambda self: self.claims)
    @rule(index=indices, plan=plans, skip=st.sampled_from([0, 0, 0, 0, 0, 1]), keep=st.booleans())
    def commit(self, index: int, plan: Plan, skip: int, keep: bool) -> None:
        claim = self.claims[index % len(self.claims)]
        self.take(claim)
        thread = self.model.threads[claim.thread_id]
        commit = plan.commit(claim.thread_id, thread, self.now)
        commit = msgspec.structs.replace(commit, version=commit.version + skip)
        if self.model.holds(claim) and not skip:
            self.runner.run(self.store.commit(claim, commit, keep=keep))
            self.model.commit(commit, keep=keep)
        else:
            with pytest.raises(StaleClaim):
                self.runner.run(self.store.commit(claim, commit, keep=keep))

    @precondition(lambda self: self.model.effects)
    @rule(
        engine=engines,
        numbers=st.lists(requests, min_size=1, max_size=3, unique=True),
        action=st.sampled_from(["start", "start", "accept", "settle"]),
    )
    def move_effects(self, engine: str, numbers: list[int], action: str) -> None:
        requests = [f"r{number}" for number in numbers]
        held = [owed for request in requests if (owed := self.model.effects.get(request))]
        if action == "start":
            self.beat(engine)
            mine = [owed for owed in held if owed.state == "pending" and owed.owner == engine]
            started = self.runner.run(self.store.start_effects(Owner(engine), requests))
            assert started == [owed.effect.request_id for owed in mine]
            for owed in mine:
                owed.state = "sent"
        elif action == "accept":
            self.runner.run(self.store.accept_effects(requests))
            for owed in held:
                owed.state = "accepted"
        else:
            self.runner.run(self.store.settle_effects(requests))
            for owed in held:
                del self.model.effects[owed.effect.request_id]

    @precondition(lambda self: self.model.effects)
    @rule(engine=engines, limit=st.integers(1, 3))
    def adopt_effects(self, engine: str, limit: int) -> None:
        self.beat(engine)
        orphans = [
            owed
            for owed in self.model.effects.values()
            if owed.state != "accepted" and owed.owner != engine and self.model.is_dead(owed.owner, self.now)
        ]
        rows = self.runner.run(self.store.adopt_effects(Owner(engine), self.now, limit))
        assert len(rows) == min(limit, len(orphans))
        for row in rows:
            owed = self.model.effects[row.effect.request_id]
            assert owed in orphans
            assert row.state == owed.state
            owed.owner = engine

    @invariant()
    def what_is_stored_is_what_the_model_holds(self) -> None:
        rows = self.runner.run(self.store.list_threads())
        assert {row.thread_id: (row.status, row.updated, row.waiting) for row in rows} == {
            name: (thread.status, thread.updated, len(thread.inbox))
            for name, thread in self.model.threads.items()
            if rows
        }
        effects = self.runner.run(self.store.read_effects())
        assert {row.effect.request_id: (row.thread_id, row.state) for row in effects} == {
            name: (owed.thread_id, owed.state) for name, owed in self.model.effects.items()
        }
        assert self.runner.run(self.store.next_due(self.now)) == self.model.next_due(self.now)


@pytest.mark.parametrize("open_store", ["memory", "sqlite"], indirect=True)
def test_a_store_does_what_the_model_does(open_store: StoreFactory) -> None:
    class Machine(StoreMachine):
        def __init__(self) -> None:
            super().__init__(open_store)

    assert len(THREADS) * 12 < CLAIM_MESSAGES  # the model hands over everything
    examples = settings().max_examples // 4  # each is a store of its own
    run_state_machine_as_test(Machine, settings=settings(max_examples=examples, stateful_step_count=50))
