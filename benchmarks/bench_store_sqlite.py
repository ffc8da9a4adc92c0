"""How much the embedded store takes: put, claim, commit and start_effects, many threads at a time, all of it durable.

    python benchmarks/bench_store_sqlite.py [--threads 500] [--seconds 5] [--idle 0] [--directory DIR] [--json]

Every thread goes round: a message is put, the thread is claimed (one claimer asks for all that are ready), the
commit consumes the message, settles the effect of the round before, appends a page and owes one effect, and the effect
is started. One round is what one completion costs the store. `--idle` threads more lie in the same file.
"""

import argparse
import asyncio
import os
import sys
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path

import msgspec

from hibernaut.codec import sha256
from hibernaut.kernel.commit import Effect, NewThread, SliceCommit
from hibernaut.messages.inputs import InputMessage, UserText
from hibernaut.stores.protocol import Claim, Owner
from hibernaut.stores.sqlite import SqliteStore

HEAD, PAGE, RECEIPT, TEXT = os.urandom(400), os.urandom(800), os.urandom(250), "x" * 200
"""What a small thread writes in a round."""

OWNER = Owner("engine_bench")


class Result(msgspec.Struct):
    """What was measured."""

    threads: int
    idle: int
    seconds: float
    rounds: int
    rounds_per_second: float
    processor_us_per_round: float
    operations_per_transaction: float
    transactions_per_second: float
    put_ms: tuple[float, float]
    claim_ms: tuple[float, float]
    commit_ms: tuple[float, float]
    start_ms: tuple[float, float]
    stored_bytes: int
    single_put_ms: tuple[float, float]


def now() -> int:
    """Return the present moment as the store wants it."""
    return time.time_ns() // 1_000_000


class Bench:
    """The threads going round."""

    def __init__(self, store: SqliteStore, threads: int) -> None:
        self.store = store
        self.names = [f"thread_{number:06d}" for number in range(threads)]
        self.rounds = 0
        self.operations = 0
        self.times: dict[str, list[float]] = {"put": [], "claim": [], "commit": [], "start": []}
        self._claims: dict[str, asyncio.Future[Claim]] = {}
        self._hinted = asyncio.Event()
        self._over = False

    async def run(self, seconds: float) -> float:
        """Go round for a time; return how long it really was."""
        end_hints = self.store.on_change(lambda _, __: self._hinted.set())
        claimer = asyncio.create_task(self._claim())
        began = time.perf_counter()
        asyncio.get_running_loop().call_later(seconds, self._stop)
        await asyncio.gather(*(self._go_round(name) for name in self.names))
        took = time.perf_counter() - began
        self._hinted.set()
        await claimer
        end_hints()
        return took

    def _stop(self) -> None:
        self._over = True

    async def _claim(self) -> None:
        while not self._over or self._claims:
            await self._hinted.wait()
            self._hinted.clear()
            began = time.perf_counter()
            claims = await self.store.claim(OWNER, now(), len(self.names))
            self._took("claim", began)
            for claim in claims:
                self._claims.pop(claim.thread_id).set_result(claim)

    async def _go_round(self, name: str) -> None:
        settled: tuple[str, ...] = ()
        number = 0
        while not self._over:
            number += 1
            claimed = self._claims[name] = asyncio.get_running_loop().create_future()
            began = time.perf_counter()
            await self.store.put([InputMessage(f"message_{number:012d}", name, UserText(TEXT))], now())
            self._took("put", began)
            claim = await claimed
            call = f"call_{name}_{number}"
            commit = SliceCommit(
                name,
                claim.version + 1,
                HEAD,
                PAGE,
                RECEIPT,
                "open",
                consumed=(claim.messages[0].message_id,),
                effects=(Effect(call, "invoke", call, "look_up", '{"what": "weather"}'),),
                settled=settled,
                at=now(),
            )
            began = time.perf_counter()
            await self.store.commit(claim, commit)
            self._took("commit", began)
            began = time.perf_counter()
            await self.store.start_effects(OWNER, [call])
            self._took("start", began)
            settled = (call,)
            self.rounds += 1

    def _took(self, what: str, began: float) -> None:
        self.operations += 1
        self.times[what].append((time.perf_counter() - began) * 1000)


def middle_and_slow(times: Iterable[float]) -> tuple[float, float]:
    """Return the median and the 99th percentile."""
    ordered = sorted(times) or [0.0]
    return round(ordered[len(ordered) // 2], 2), round(ordered[len(ordered) * 99 // 100], 2)


async def fill(store: SqliteStore, names: list[str]) -> None:
    """Make threads."""
    body = b"the launch configuration"
    for start in range(0, len(names), 1_000):
        part = names[start : start + 1_000]
        await store.create([NewThread(name, "", HEAD, sha256(body), body, now()) for name in part], [], now())


async def single_puts(store: SqliteStore, name: str, count: int = 200) -> list[float]:
    """Put one message after the other, each durable before the next."""
    times = []
    for number in range(count):
        began = time.perf_counter()
        await store.put([InputMessage(f"single_{number}", name, UserText(TEXT))], now())
        times.append((time.perf_counter() - began) * 1000)
    return times


async def measure(directory: str, threads: int, idle: int, seconds: float) -> Result:
    """Run the benchmark on a new store."""
    store = await SqliteStore.open(Path(directory) / "bench.db")
    await store.beat(OWNER, now())
    await fill(store, [f"idle_{number:08d}" for number in range(idle)])
    bench = Bench(store, threads)
    await fill(store, bench.names)
    single = await single_puts(store, bench.names[0])
    for claim in await store.claim(OWNER, now(), threads):
        consumed = tuple(message.message_id for message in claim.messages)
        await store.commit(claim, SliceCommit(claim.thread_id, 1, HEAD, PAGE, RECEIPT, "open", consumed, at=now()))
    commits, processor = store.transactions, time.process_time()
    took = await bench.run(seconds)
    commits, processor = store.transactions - commits, time.process_time() - processor
    result = Result(
        threads,
        idle,
        round(took, 2),
        bench.rounds,
        round(bench.rounds / took, 1),
        round(processor / bench.rounds * 1e6, 1),
        round(bench.operations / commits, 1),
        round(commits / took, 1),
        *(middle_and_slow(bench.times[what]) for what in ("put", "claim", "commit", "start")),
        await store.stored_bytes(),
        middle_and_slow(single),
    )
    await store.close()
    return result


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--threads", type=int, default=500)
    parser.add_argument("--seconds", type=float, default=5)
    parser.add_argument("--idle", type=int, default=0)
    parser.add_argument("--directory", help="where the file is made; default: a temporary directory")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.directory) as directory:
        result = asyncio.run(measure(directory, options.threads, options.idle, options.seconds))
    if options.json:
        sys.stdout.write(msgspec.json.encode(result).decode() + "\n")
        return
    for name, value in msgspec.structs.asdict(result).items():
        print(
            f"{name.replace('_', ' '):28} {value if not isinstance(value, tuple) else f'{value[0]} (99 %: {value[1]})'}"
        )


if __name__ == "__main__":
    main()
