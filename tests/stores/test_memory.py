"""What only the store in memory promises: few bytes for a thread that waits, and no work for it."""

import asyncio
import gc
import sys
import tracemalloc
from collections.abc import Awaitable, Callable
from random import Random
from types import FrameType
from typing import Any

from hibernaut.codec import sha256
from hibernaut.kernel.commit import NewThread, Outgoing, SliceCommit
from hibernaut.messages.inputs import InputMessage, Timer, UserText
from hibernaut.stores.known import excluding, has, including
from hibernaut.stores.memory import MemoryStore
from hibernaut.stores.protocol import DEAD_AFTER, Owner

START = 1_700_000_000_000
ANNA = Owner("engine_anna")
BODY = b"a launch configuration that all threads share"
HEAD = b"h" * 250
PAGE = b"p" * 1_000
RECEIPT = b"r" * 200


def _new(number: int) -> NewThread:
    return NewThread(f"thread_{number:024}", "", HEAD, sha256(BODY), BODY, START)


def _text(number: int, name: str) -> InputMessage:
    return InputMessage(f"{name}_{number:020}", f"thread_{number:024}", UserText("hello"))


async def _round(store: MemoryStore, number: int, version: int = 1) -> None:
    """Let one message come and be answered."""
    await store.put([_text(number, f"message {version}")], START)
    (claim,) = await store.claim(ANNA, START, 1)
    commit = SliceCommit(
        claim.thread_id, version, HEAD, PAGE, RECEIPT, "open", (claim.messages[0].message_id,), at=START + version
    )
    await store.commit(claim, commit)


def _bytes_per_thread(count: int, work: Callable[[MemoryStore, int], Awaitable[None]]) -> float:
    """Return what a thread takes up after some work was done with it."""

    async def measure() -> float:
        store = MemoryStore()
        await work(store, count)
        gc.collect()
        tracemalloc.start()
        try:
            for number in range(count):
                await work(store, number)
            gc.collect()
            return tracemalloc.get_traced_memory()[0] / count
        finally:
            tracemalloc.stop()

    return asyncio.run(measure())


def test_a_thread_that_waits_is_little_more_than_its_bytes() -> None:
    async def make(store: MemoryStore, number: int) -> None:
        await store.create([_new(number)], [], START)

    assert _bytes_per_thread(2_000, make) < len(HEAD) + 450


def test_a_commit_is_little_more_than_its_bytes() -> None:
    async def make(store: MemoryStore, number: int) -> None:
        await store.create([_new(number)], [], START)
        for version in range(1, 41):
            await _round(store, number, version)

    ids = 40 * 16
    assert _bytes_per_thread(50, make) < len(HEAD) + ids + 650  # pages and receipts are not in the heap

    async def scenario() -> None:
        store = MemoryStore()
        for number in range(50):
            await make(store, number)
        while await store.rest():
            pass
        assert await store.stored_bytes() < 50 * (40 * (len(PAGE) + len(RECEIPT) + 8) + len(HEAD) + ids)
        assert sum(store._logs._cold._written) + sum(store._logs._hot._written) <= await store.stored_bytes()

    asyncio.run(scenario())


def test_a_thread_that_was_put_away_leaves_next_to_nothing_on_the_heap() -> None:
    async def make(store: MemoryStore, number: int) -> None:
        await store.create([_new(number)], [], START)
        for version in range(1, 41):
            await _round(store, number, version)
        while await store.rest():
            pass

    assert _bytes_per_thread(50, make) < 700


def test_a_thread_with_an_alarm_set_is_little_more_than_its_bytes() -> None:
    async def make(store: MemoryStore, number: int) -> None:
        await store.create([_new(number)], [_text(number, "first")], START)
        (claim,) = await store.claim(ANNA, START, 1)
        alarm = InputMessage(f"timer_{number:020}", claim.thread_id, Timer("sleep", START + 10**6, f"call_{number}"))
        outgoing = (Outgoing(alarm, START + 10**6),)
        commit = SliceCommit(
            claim.thread_id, 1, HEAD, b"", b"", "open", (f"first_{number:020}",), outgoing=outgoing, at=START
        )
        await store.commit(claim, commit)

    assert _bytes_per_thread(2_000, make) < len(HEAD) + 1_450


def test_an_encoder_s_bytes_are_not_kept_for_long() -> None:
    async def scenario() -> None:
        store = MemoryStore()
        new = _new(0)
        await store.create([new], [_text(0, "m")], START)
        (claim,) = await store.claim(ANNA, START, 1)
        commit = SliceCommit(claim.thread_id, 1, b"".join([HEAD, b"."]), PAGE, RECEIPT, "open", at=START)
        assert claim.head == new.head
        assert claim.head is not new.head
        await store.commit(claim, commit)
        row = await store.read_head(claim.thread_id)
        assert row is not None
        assert row.head == commit.head
        assert row.head is not commit.head

    asyncio.run(scenario())


def _steps(work: Callable[[], Awaitable[Any]]) -> int:
    """Count the bytecode instructions that some work takes: unlike time, they are always the same."""
    steps = 0

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal steps
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        steps += event == "opcode"
        return trace

    async def count() -> None:
        before = sys.gettrace()
        gc.collect()
        gc.disable()  # what others have called at a collection would be counted
        sys.settrace(trace)
        try:
            await work()
        finally:
            sys.settrace(before)
            gc.enable()

    asyncio.run(count())
    return steps


def test_threads_that_wait_cost_the_others_nothing() -> None:
    def cost(idle: int) -> int:
        store = MemoryStore()

        async def prepare() -> None:
            await store.create([_new(number) for number in range(idle)], [], START)
            alarms = [
                InputMessage("alarm", f"thread_{number:024}", Timer("sleep", START)) for number in range(0, idle, 2)
            ]
            await store.put(alarms, START, due=START + 10**9)
            await store.create([_new(idle)], [], START)
            await _round(store, idle, 1)

        async def work() -> None:
            await _round(store, idle, 2)
            await store.next_due(START)
            await store.adopt_effects(ANNA, START, 10)

        asyncio.run(prepare())
        return _steps(work)

    assert cost(3_000) == cost(30)


def test_threads_that_other_engines_run_cost_a_claim_nothing() -> None:
    def cost(claimed: int) -> int:
        store = MemoryStore()

        async def prepare() -> None:
            numbers = range(claimed)
            await store.create([_new(number) for number in numbers], [_text(number, "m") for number in numbers], START)
            assert len(await store.claim(Owner("engine_bert"), START, claimed)) == claimed
            await store.create([_new(claimed)], [], START)
            await _round(store, claimed, 1)

        asyncio.run(prepare())
        return _steps(lambda: _round(store, claimed, 2))

    assert cost(500) == cost(5)


def test_a_claim_from_a_long_queue_takes_no_more_steps_than_from_a_short_one() -> None:
    def cost(waiting: int) -> int:
        store = MemoryStore()

        async def prepare() -> None:
            numbers = range(waiting)
            await store.create([_new(number) for number in numbers], [_text(number, "m") for number in numbers], START)

        asyncio.run(prepare())
        return _steps(lambda: store.claim(ANNA, START, 1))

    assert cost(2_000) == cost(20)


def test_alarms_that_are_set_and_dropped_leave_nothing_in_the_queues() -> None:
    async def scenario() -> None:
        store = MemoryStore()
        await store.create([_new(0)], [], START)
        dropped: tuple[str, ...] = ()
        for version in range(1, 1_001):
            await store.put([_text(0, f"m {version}")], START)
            (claim,) = await store.claim(ANNA, START, 1, threads=[_new(0).thread_id])
            alarm = InputMessage(f"alarm {version}", claim.thread_id, Timer("sleep", START))
            commit = SliceCommit(
                claim.thread_id,
                version,
                HEAD,
                b"",
                b"",
                "open",
                (claim.messages[0].message_id,),
                dropped=dropped,
                outgoing=(Outgoing(alarm, START + version),),
                at=START,
            )
            await store.commit(claim, commit)
            dropped = (alarm.message_id,)
        assert len(store._queues) < 100
        assert await store.next_due(START) == START + 1_000

    asyncio.run(scenario())


def test_engines_that_are_gone_and_left_nothing_are_forgotten() -> None:
    async def scenario() -> None:
        store = MemoryStore()
        for number in range(50):
            left, died = Owner(f"engine_left_{number}"), Owner(f"engine_died_{number}")
            await store.beat(left, START)
            await store.beat(died, START)
            await store.leave(left)
        await store.claim(ANNA, START + DEAD_AFTER, 1)
        assert list(store._engines) == [ANNA.engine_id]

    asyncio.run(scenario())


def test_a_clock_that_goes_back_delays_a_thread_and_loses_nothing() -> None:
    async def scenario() -> None:
        store = MemoryStore()
        await store.create([_new(0)], [_text(0, "m")], START + 100)
        assert await store.claim(ANNA, START + 99, 1) == []
        assert await store.claim(ANNA, START + 99, 1) == []
        assert len(await store.claim(ANNA, START + 100, 1)) == 1

    asyncio.run(scenario())


def test_a_set_of_digests_is_a_set_however_large_it_grows() -> None:
    chance = Random(7)
    digests = [chance.randbytes(16) for _ in range(3_000)]
    known: bytes | bytearray = b""
    members: set[bytes] = set()
    for digest in digests:
        assert not has(known, digest)
        known = including(known, digest)
        members.add(digest)
        if chance.random() < 0.3:
            gone = chance.choice(digests)
            known = excluding(known, gone)
            members.discard(gone)
        if len(members) % 97 == 0:
            assert all(has(known, one) == (one in members) for one in digests)
    assert all(has(known, one) == (one in members) for one in digests)
    assert len(known) < len(members) * 64


def test_a_digest_is_found_only_where_one_begins() -> None:
    first, second, across = b"a" * 8 + b"b" * 8, b"c" * 8 + b"d" * 8, b"b" * 8 + b"c" * 8
    known = including(including(b"", first), second)
    assert has(known, first)
    assert has(known, second)
    assert not has(known, across)
    assert excluding(known, across) == known
    assert has(including(known, across), across)
