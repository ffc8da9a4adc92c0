"""Every store against a model that is too simple to be wrong: dictionaries, lists, and a scan for every question.

Hypothesis chooses the rules and gives each a seed; what a rule does in detail it throws with these dice. So a rule may
do much at little cost, and what fails is still repeated, and cut down to few rules.
"""

import asyncio
from collections.abc import Sequence
from random import Random

import msgspec
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test
from msgspec.structs import replace

from hibernaut.errors import NotAtRest, StaleClaim
from hibernaut.kernel.commit import Effect, Outgoing, SliceCommit
from hibernaut.kernel.head import Status
from hibernaut.messages.inputs import RESULT, USER, InputMessage, urgency
from hibernaut.stores.archive import digest_of
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

THREADS = {"a": "red", "b": "red", "c": "red", "d": "blue", "e": "blue"}
"""Threads, and whose they are."""

NAMES = tuple(THREADS)
TENANTS = (None, None, None, "red", "blue")
ENGINES = ("x", "y", "z")
REQUESTS = ("r0", "r1", "r2", "r3", "r4")
DELAYS = (0, 0, 0, 1, 300, 1_500, 20_000)
WAITS = (0, 1, 300, 1_000, DEAD_AFTER // 2, DEAD_AFTER)
STATUSES: tuple[Status, ...] = (*("open",) * 20, *("stopped", "parked") * 2, "closed")

MESSAGES = 200
"""Different message ids; those that come often come again."""

MOST_CLAIMS = 6
"""Claims that are remembered, to be used when they may long be over."""


class Waiting(msgspec.Struct):
    message: InputMessage
    due: int
    deferred: bool = False

    @property
    def urgency(self) -> int:
        return urgency(self.message.content)


class Thread(msgspec.Struct):
    tenant: str = ""
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
    frozen: bool = False

    def places(self) -> list[tuple[int, int]]:
        """When there is something to do, and in which rank, one entry for each reason."""
        waking = [one for one in self.inbox if self.status in ("open", "closed") or one.urgency == USER]
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
        self.threads = {name: Thread(tenant) for name, tenant in THREADS.items()}
        self.seen: dict[str, int] = {}
        self.effects: dict[str, Owed] = {}

    def is_dead(self, engine: str, now: int) -> bool:
        return engine not in self.seen or now - self.seen[engine] >= DEAD_AFTER

    def put(self, message: InputMessage, due: int, tenant: str | None) -> Outcome:
        thread = self.threads.get(message.thread_id)
        if thread is None or tenant not in (None, thread.tenant):
            return Outcome.UNKNOWN
        if message.message_id in thread.known:
            return Outcome.DUPLICATE
        if thread.status == "closed":
            return Outcome.CLOSED
        thread.known.add(message.message_id)
        thread.inbox.append(Waiting(message, due))
        held = thread.frozen or (thread.status != "open" and urgency(message.content) != USER)
        return Outcome.HELD if held else Outcome.ACCEPTED

    def free(self, engine: str, now: int) -> dict[str, Thread]:
        """Return the threads that this engine might claim if they had something to do."""
        return {
            name: thread
            for name, thread in self.threads.items()
            if not thread.frozen and (not thread.owner or (thread.owner != engine and self.is_dead(thread.owner, now)))
        }

    def freeze(self, name: str) -> None:
        thread = self.threads[name]
        thread.frozen, thread.owner, thread.tries, thread.not_before = True, "", 0, 0
        for owed in self.effects.values():
            if owed.thread_id == name and owed.state == "pending":
                owed.owner = ""

    def is_at_work(self, name: str, now: int) -> bool:
        owed = [one for one in self.effects.values() if one.thread_id == name and one.state == "sent"]
        return any(not self.is_dead(one.owner, now) for one in owed)

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
            if request_id in self.effects and self.effects[request_id].thread_id == commit.thread_id:
                del self.effects[request_id]
        for effect in commit.effects:
            self.effects.setdefault(effect.request_id, Owed(effect, commit.thread_id, "pending", thread.owner))
        thread.version, thread.status, thread.updated = commit.version, commit.status, commit.at
        thread.continues = commit.at if commit.continues else None
        thread.not_before, thread.tries = 0, int(keep)
        if not keep:
            thread.owner = ""
        for outgoing in commit.outgoing:
            self.put(outgoing.message, outgoing.due or commit.at, thread.tenant)

    def next_due(self, now: int) -> int | None:
        moments = [
            max(thread.not_before, min(moment for moment, _ in thread.places()))
            for thread in self.threads.values()
            if thread.places()
            and not thread.frozen
            and (not thread.owner or self.is_dead(thread.owner, now))
            and not thread.has_work(now)
        ]
        return min(moments, default=None)


dice = st.integers(0, 2**32).map(Random)


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
        made = [new_thread(name, tenant=tenant) for name, tenant in THREADS.items()]
        assert self.runner.run(self.store.create(made, [], START)) == []

    @rule(dice=dice)
    def put(self, dice: Random) -> None:
        messages = [self._message(dice, dice.choice((*NAMES, "nobody"))) for _ in range(dice.randint(1, 4))]
        due, tenant = self._later(dice), dice.choice(TENANTS)
        expected = [self.model.put(message, due or self.now, tenant) for message in messages]
        assert self.runner.run(self.store.put(messages, self.now, due=due, tenant=tenant)) == expected

    @rule(dice=dice)
    def wait(self, dice: Random) -> None:
        self.now += dice.choice(WAITS)
        for engine in ENGINES:
            if dice.random() < 0.5:
                self._beat(engine)

    @rule(dice=dice)
    def leave(self, dice: Random) -> None:
        engine = dice.choice(ENGINES)
        self.model.seen.pop(engine, None)
        for thread in self.model.threads.values():
            if thread.owner == engine:
                thread.owner = ""
        self.runner.run(self.store.leave(Owner(engine)))

    @rule(dice=dice)
    def claim(self, dice: Random) -> None:
        engine, limit = dice.choice(ENGINES), dice.randint(1, 3)
        named, tenant = dice.choice((None, None, dice.choices(NAMES, k=2))), dice.choice(TENANTS)
        self._beat(engine)
        ready = {
            name: thread
            for name, thread in self.model.free(engine, self.now).items()
            if thread.has_work(self.now) and (named is None or name in named) and tenant in (None, thread.tenant)
        }
        claims = self.runner.run(self.store.claim(Owner(engine), self.now, limit, threads=named, tenant=tenant))
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

    def _check_order(self, order: Sequence[str], left: Sequence[Thread]) -> None:
        """A message that is not due yet may or may not already speak for the rank of its thread."""
        chosen = [self.model.threads[name] for name in order]
        for place, thread in enumerate(chosen):
            least = min(rank for _, rank in thread.places())
            for later in [*chosen[place + 1 :], *left]:
                assert least <= min(rank for moment, rank in later.places() if moment <= self.now)

    @rule(dice=dice)
    def commit(self, dice: Random) -> None:
        if not self.claims:
            return
        claim, keep = dice.choice(self.claims), dice.random() < 0.3
        thread = self.model.threads[claim.thread_id]
        commit = self._commit(dice, claim.thread_id, thread)
        if dice.random() < 0.1:
            commit = replace(commit, version=commit.version + dice.choice((-1, 1)))
        if self.model.holds(claim) and commit.version == thread.version + 1:
            assert names(self.runner.run(self.store.take(claim, self.now))) == thread.deliverable(self.now)
            self.runner.run(self.store.commit(claim, commit, keep=keep))
            self.model.commit(commit, keep=keep)
        else:
            with pytest.raises(StaleClaim):
                self.runner.run(self.store.commit(claim, commit, keep=keep))

    @rule(dice=dice)
    def release(self, dice: Random) -> None:
        if not self.claims:
            return
        claim, not_before = dice.choice(self.claims), self._later(dice)
        if self.model.holds(claim):
            thread = self.model.threads[claim.thread_id]
            thread.owner, thread.not_before = "", not_before
        self.runner.run(self.store.release(claim, not_before))

    @rule(dice=dice)
    def perform(self, dice: Random) -> None:
        engine, requests = dice.choice(ENGINES), dice.sample(REQUESTS, 2)
        held = [owed for request in requests if (owed := self.model.effects.get(request))]
        action = dice.choice(("start", "start", "accept", "settle"))
        if action == "start":
            self._beat(engine)
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
            name = dice.choice((None, *NAMES))
            self.runner.run(self.store.settle_effects(requests, thread_id=name))
            for owed in held:
                if name in (None, owed.thread_id):
                    del self.model.effects[owed.effect.request_id]

    @rule(dice=dice)
    def adopt(self, dice: Random) -> None:
        engine, limit, tenant = dice.choice(ENGINES), dice.randint(1, 3), dice.choice(TENANTS)
        self._beat(engine)
        orphans = [
            owed
            for owed in self.model.effects.values()
            if owed.state != "accepted"
            and owed.owner != engine
            and self.model.is_dead(owed.owner, self.now)
            and not self.model.threads[owed.thread_id].frozen
            and tenant in (None, self.model.threads[owed.thread_id].tenant)
        ]
        rows = self.runner.run(self.store.adopt_effects(Owner(engine), self.now, limit, tenant=tenant))
        assert len(rows) == min(limit, len(orphans))
        for row in rows:
            owed = self.model.effects[row.effect.request_id]
            assert owed in orphans
            assert row.state == owed.state
            owed.owner = engine

    @rule(dice=dice)
    def freeze(self, dice: Random) -> None:
        name = dice.choice(NAMES)
        thread = self.model.threads[name]
        tenant = dice.choice((None, thread.tenant, "nobody's"))
        mine = tenant in (None, thread.tenant)
        if thread.frozen and dice.random() < 0.8:
            assert self.runner.run(self.store.thaw(name, tenant=tenant)) == int(mine)
            thread.frozen = not mine
        else:
            assert self.runner.run(self.store.freeze(name, tenant=tenant)) == int(mine and not thread.frozen)
            if mine and not thread.frozen:
                self.model.freeze(name)

    @rule(dice=dice)
    def move(self, dice: Random) -> None:
        """Take a frozen thread out of the store and put it back: nobody could tell, but for who works for it."""
        frozen = [name for name, thread in self.model.threads.items() if thread.frozen]
        if not frozen:
            return
        name = dice.choice(frozen)
        if self.model.is_at_work(name, self.now):
            with pytest.raises(NotAtRest):
                self.runner.run(self.store.export_tree(name, self.now))
            return
        records = self.runner.run(self.store.export_tree(name, self.now))
        assert self.runner.run(self.store.delete(name, unchanged=digest_of(records))) == 1
        assert self.runner.run(self.store.import_tree(records)) == 1
        for owed in self.model.effects.values():
            if owed.thread_id == name:
                owed.owner = ""

    @rule(dice=dice, count=st.integers(10, 80))
    def live(self, dice: Random, count: int) -> None:
        """Do much, and most of what is done most."""
        often = (self.put, self.claim, self.commit)
        seldom = (self.wait, self.perform, self.adopt, self.release, self.freeze)
        for _ in range(count):
            dice.choice((*often, *often, *often, *seldom))(dice)

    @invariant()
    def what_is_stored_is_what_the_model_holds(self) -> None:
        rows = self.runner.run(self.store.list_threads())
        assert {row.thread_id: (row.status, row.updated, row.waiting, row.frozen) for row in rows} == {
            name: (thread.status, thread.updated, len(thread.inbox), thread.frozen)
            for name, thread in self.model.threads.items()
            if rows
        }
        effects = self.runner.run(self.store.read_effects())
        assert {row.effect.request_id: (row.thread_id, row.state) for row in effects} == {
            name: (owed.thread_id, owed.state) for name, owed in self.model.effects.items()
        }
        assert self.runner.run(self.store.next_due(self.now)) == self.model.next_due(self.now)

    def _beat(self, engine: str) -> None:
        self.model.seen[engine] = self.now
        self.runner.run(self.store.beat(Owner(engine), self.now))

    def _later(self, dice: Random) -> int:
        delay = dice.choice(DELAYS)
        return self.now + delay if delay else 0

    def _message(self, dice: Random, thread_id: str) -> InputMessage:
        make = dice.choice((user, result, event, timer))
        return make(f"m{dice.randrange(dice.choice((6, MESSAGES)))}", thread_id)

    def _commit(self, dice: Random, thread_id: str, thread: Thread) -> SliceCommit:
        inbox = [one.message.message_id for one in thread.inbox]
        some = [name for name in inbox if dice.random() < 0.7]
        outgoing: tuple[Outgoing, ...] = ()
        if dice.random() < 0.4:
            outgoing = sent_to(self._message(dice, dice.choice(NAMES)), due=self._later(dice))
        return SliceCommit(
            thread_id,
            thread.version + 1,
            b"head",
            dice.choice((b"", b"page")),
            b"receipt",
            dice.choice(STATUSES),
            consumed=tuple(dice.choice((inbox, inbox, some, [*some, "unheard of"]))),
            deferred=tuple((name, self.now + dice.choice(DELAYS)) for name in inbox if dice.random() < 0.4),
            dropped=tuple(name for name in [*inbox, "m0"] if dice.random() < 0.2),
            outgoing=outgoing,
            effects=tuple(map(invoke, dice.sample(REQUESTS, dice.choice((0, 0, 1, 2))))),
            settled=tuple(dice.sample(REQUESTS, dice.choice((0, 0, 1)))),
            continues=dice.random() < 0.2,
            at=self.now,
        )


@pytest.mark.parametrize("open_store", ["memory", "sqlite", "memory, compressed", "sqlite, compressed"], indirect=True)
def test_a_store_does_what_the_model_does(open_store: StoreFactory) -> None:
    class Machine(StoreMachine):
        def __init__(self) -> None:
            super().__init__(open_store)

    assert MESSAGES < CLAIM_MESSAGES  # the model hands over everything
    examples = settings().max_examples // 4  # each is a store of its own
    run_state_machine_as_test(Machine, settings=settings(max_examples=examples, stateful_step_count=25))
