"""The life of an effect in the outbox."""

import asyncio

import pytest

from hibernaut.errors import StaleClaim
from hibernaut.kernel.commit import Effect
from hibernaut.stores.protocol import DEAD_AFTER, EffectRow, Owner, Store
from tests.store_conformance.scenario import (
    ANNA,
    BERT,
    START,
    StoreFactory,
    a_thread,
    after,
    claim_one,
    invoke,
    owe,
    run,
    user,
)


async def _states(store: Store) -> dict[str, tuple[str, str]]:
    rows = await store.read_effects()
    for thread_id in {"t", *(row.thread_id for row in rows)}:
        assert await store.read_effects(thread_id) == [row for row in rows if row.thread_id == thread_id]
    return {row.effect.request_id: (row.state, row.owner) for row in rows}


def test_a_commit_s_effects_are_pending_and_belong_to_its_engine(open_store: StoreFactory) -> None:
    effects = (
        Effect("r1", "invoke", "call_1", "look_up", '{"what":"ü"}', local=False),
        Effect("r2", "cancel", "call_0", "watch"),
    )

    async def scenario(store: Store) -> None:
        await a_thread(store, user("m1"))
        claim = await claim_one(store)
        await store.commit(claim, after(claim, effects=effects, at=START + 7))
        assert await store.read_effects() == [
            EffectRow(effect, "t", "pending", ANNA.engine_id, START + 7) for effect in effects
        ]

    run(open_store, scenario)


def test_effects_are_read_oldest_first_for_one_thread_or_for_all(open_store: StoreFactory) -> None:
    async def scenario(store: Store) -> None:
        await owe(store, "z", "a", thread_id="t1")
        await owe(store, "m", thread_id="t2")
        await owe(store, "b", thread_id="t1")
        await store.accept_effects(["z"])
        assert [row.effect.request_id for row in await store.read_effects()] == ["z", "a", "m", "b"]
        assert [row.effect.request_id for row in await store.read_effects("t1")] == ["z", "a", "b"]
        assert {row.thread_id for row in await store.read_effects("t1")} == {"t1"}
        assert await store.read_effects("nobody") == []

    run(open_store, scenario)


def test_an_effect_is_begun_once(open_store: StoreFactory) -> None:
    async def scenario(store: Store) -> None:
        await owe(store, "r1", "r2")
        assert await store.start_effects(ANNA, ["r1", "unheard of"]) == ["r1"]
        assert await _states(store) == {"r1": ("sent", ANNA.engine_id), "r2": ("pending", ANNA.engine_id)}
        assert await store.start_effects(ANNA, ["r1", "r2"]) == ["r2"]
        assert await store.start_effects(ANNA, []) == []

    run(open_store, scenario)


def test_of_many_tasks_that_begin_an_effect_one_may(open_store: StoreFactory) -> None:
    async def scenario(store: Store) -> None:
        await owe(store, "r1")
        started = await asyncio.gather(*[store.start_effects(ANNA, ["r1"]) for _ in range(20)])
        assert sorted(map(len, started)) == [0] * 19 + [1]

    run(open_store, scenario)


def test_another_engine_may_not_begin_it(open_store: StoreFactory) -> None:
    async def scenario(store: Store) -> None:
        await owe(store, "r1")
        await store.beat(BERT, START)
        assert await store.start_effects(BERT, ["r1"]) == []
        assert await _states(store) == {"r1": ("pending", ANNA.engine_id)}

    run(open_store, scenario)


def test_an_effect_that_is_over_is_gone(open_store: StoreFactory) -> None:
    async def scenario(store: Store) -> None:
        await owe(store, "r1", "r2", "r3", "r4")
        await store.start_effects(ANNA, ["r2"])
        await store.accept_effects(["r3"])
        await store.settle_effects(["r1", "r2", "r3", "unheard of"])
        assert set(await _states(store)) == {"r4"}
        assert await store.start_effects(ANNA, ["r1"]) == []
        await store.settle_effects(["r1"])
        await store.accept_effects(["r1"])
        assert set(await _states(store)) == {"r4"}

    run(open_store, scenario)


def test_a_commit_settles_effects_of_whatever_state(open_store: StoreFactory) -> None:
    async def scenario(store: Store) -> None:
        await owe(store, "r1", "r2", "r3", "r4")
        await store.start_effects(ANNA, ["r2"])
        await store.accept_effects(["r3"])
        await store.put([user("m2")], START)
        claim = await claim_one(store, owner=BERT)
        await store.commit(claim, after(claim, settled=("r1", "r2", "r3", "unheard of"), effects=(invoke("r5"),)))
        assert await _states(store) == {"r4": ("pending", ANNA.engine_id), "r5": ("pending", BERT.engine_id)}

    run(open_store, scenario)


def test_an_effect_that_is_owed_again_stays_what_it_is(open_store: StoreFactory) -> None:
    async def scenario(store: Store) -> None:
        await owe(store, "r1")
        await store.start_effects(ANNA, ["r1"])
        await owe(store, "r1", "r2", owner=BERT)
        assert await _states(store) == {"r1": ("sent", ANNA.engine_id), "r2": ("pending", BERT.engine_id)}

    run(open_store, scenario)


def test_an_effect_that_is_settled_and_owed_in_one_commit_begins_anew(open_store: StoreFactory) -> None:
    async def scenario(store: Store) -> None:
        await owe(store, "r1")
        await store.start_effects(ANNA, ["r1"])
        await store.put([user("m2")], START)
        claim = await claim_one(store, owner=BERT)
        await store.commit(claim, after(claim, settled=("r1",), effects=(invoke("r1"),)))
        assert await _states(store) == {"r1": ("pending", BERT.engine_id)}
        assert await store.start_effects(BERT, ["r1"]) == ["r1"]

    run(open_store, scenario)


def test_the_effects_of_a_living_engine_are_not_adopted(open_store: StoreFactory) -> None:
    async def scenario(store: Store) -> None:
        await owe(store, "r1")
        assert await store.adopt_effects(BERT, START + DEAD_AFTER - 1, 10) == []
        await store.beat(ANNA, START + DEAD_AFTER - 1)
        assert await store.adopt_effects(BERT, START + DEAD_AFTER, 10) == []

    run(open_store, scenario)


def test_an_orphaned_effect_is_adopted_in_the_state_it_had(open_store: StoreFactory) -> None:
    async def scenario(store: Store) -> None:
        await owe(store, "pending", "sent", "accepted", "accepted unsent")
        await store.start_effects(ANNA, ["sent", "accepted"])
        await store.accept_effects(["accepted", "accepted unsent"])
        rows = await store.adopt_effects(BERT, START + DEAD_AFTER, 10)
        assert {row.effect.request_id: row.state for row in rows} == {"pending": "pending", "sent": "sent"}
        assert {row.thread_id for row in rows} == {"t"}
        states = await _states(store)
        assert states["pending"] == ("pending", BERT.engine_id)
        assert states["sent"] == ("sent", BERT.engine_id)
        assert states["accepted"][0] == states["accepted unsent"][0] == "accepted"
        assert await store.start_effects(ANNA, ["pending"]) == []
        assert await store.start_effects(BERT, ["pending", "sent"]) == ["pending"]

    run(open_store, scenario)


def test_adoption_may_be_bound_to_certain_threads(open_store: StoreFactory) -> None:
    async def scenario(store: Store) -> None:
        await owe(store, "r1", "r2", thread_id="t1")
        await owe(store, "r3", thread_id="t2")
        now = START + DEAD_AFTER
        assert await store.adopt_effects(BERT, now, 10, threads=["t3"]) == []
        rows = await store.adopt_effects(BERT, now, 1, threads=["t1"])
        rows += await store.adopt_effects(BERT, now, 10, threads=["t1"])
        assert [row.effect.request_id for row in rows] == ["r1", "r2"]
        assert [row.effect.request_id for row in await store.adopt_effects(BERT, now, 10)] == ["r3"]

    run(open_store, scenario)


def test_an_adopted_effect_is_adopted_again_only_when_its_new_engine_dies(open_store: StoreFactory) -> None:
    async def scenario(store: Store) -> None:
        await owe(store, "r1")
        now = START + DEAD_AFTER
        assert len(await store.adopt_effects(BERT, now, 10)) == 1
        assert await store.adopt_effects(BERT, now, 10) == []
        assert await store.adopt_effects(ANNA, now, 10) == []
        assert len(await store.adopt_effects(ANNA, now + DEAD_AFTER, 10)) == 1
        assert await _states(store) == {"r1": ("pending", ANNA.engine_id)}

    run(open_store, scenario)


def test_adoption_takes_no_more_than_asked_for_and_goes_on_from_there(open_store: StoreFactory) -> None:
    async def scenario(store: Store) -> None:
        await owe(store, "r1", "r2", "r3", thread_id="t1")
        await owe(store, "r4", "r5", owner=BERT, thread_id="t2")
        cora, now = Owner("engine_cora"), START + DEAD_AFTER
        adopted = [len(await store.adopt_effects(cora, now, 2)) for _ in range(4)]
        assert adopted == [2, 2, 1, 0]
        assert {owner for _, owner in (await _states(store)).values()} == {"engine_cora"}
        assert await store.adopt_effects(cora, now, 0) == []

    run(open_store, scenario)


def test_the_effects_of_an_engine_that_left_are_orphans_at_once(open_store: StoreFactory) -> None:
    async def scenario(store: Store) -> None:
        await owe(store, "r1", "r2", "r3")
        await store.start_effects(ANNA, ["r2"])
        await store.accept_effects(["r3"])
        await store.leave(ANNA)
        rows = await store.adopt_effects(BERT, START, 10)
        assert [(row.effect.request_id, row.state) for row in rows] == [("r1", "pending"), ("r2", "sent")]

    run(open_store, scenario)


def test_an_engine_does_not_adopt_from_itself(open_store: StoreFactory) -> None:
    async def scenario(store: Store) -> None:
        await owe(store, "r1")
        assert await store.adopt_effects(ANNA, START + 10 * DEAD_AFTER, 10) == []
        assert await store.start_effects(ANNA, ["r1"]) == ["r1"]

    run(open_store, scenario)


def test_a_kept_claim_s_effects_can_be_begun_between_its_rounds(open_store: StoreFactory) -> None:
    async def scenario(store: Store) -> None:
        await a_thread(store, user("m1"))
        claim = await claim_one(store)
        await store.commit(claim, after(claim, effects=(invoke("r1"),)), keep=True)
        assert await store.start_effects(ANNA, ["r1"]) == ["r1"]
        await store.commit(claim, after(claim, version=2, consumed=(), settled=("r1",)))
        assert await store.read_effects() == []

    run(open_store, scenario)


def test_a_stale_commit_owes_and_settles_nothing(open_store: StoreFactory) -> None:
    async def scenario(store: Store) -> None:
        await owe(store, "r1")
        await store.put([user("m2")], START)
        claim = await claim_one(store)
        await store.release(claim)
        before = await _states(store)
        with pytest.raises(StaleClaim):
            await store.commit(claim, after(claim, effects=(invoke("r2"),), settled=("r1",)))
        assert await _states(store) == before

    run(open_store, scenario)


def test_accepted_effects_are_read_page_by_page_without_those_that_are_young_or_under_way(
    open_store: StoreFactory,
) -> None:
    async def scenario(store: Store) -> None:
        await owe(store, "d", "a", "c", "b", thread_id="t1")
        await store.accept_effects(["a", "c", "d"])
        made = {row.effect.request_id: row.created for row in await store.read_effects()}
        later = max(made.values()) + 1
        first = await store.accepted_effects(later, limit=2)
        assert [row.effect.request_id for row in first] == ["a", "c"]
        assert {(row.state, row.thread_id) for row in first} == {("accepted", "t1")}
        assert [row.effect.request_id for row in await store.accepted_effects(later, "c", 2)] == ["d"]
        assert await store.accepted_effects(min(made.values())) == []

    run(open_store, scenario)


def test_an_engine_lives_until_it_leaves_or_has_been_silent_for_too_long(open_store: StoreFactory) -> None:
    async def scenario(store: Store) -> None:
        assert await store.living_engines(START) == []
        await store.beat(ANNA, START)
        await store.beat(BERT, START + DEAD_AFTER - 1)
        both = {ANNA.engine_id, BERT.engine_id}
        assert set(await store.living_engines(START + DEAD_AFTER - 1)) == both
        assert await store.living_engines(START + DEAD_AFTER) == [BERT.engine_id]
        await store.leave(BERT)
        assert await store.living_engines(START + DEAD_AFTER) == []

    run(open_store, scenario)
