"""How many callbacks a receiver takes: checked, stored and synced before they are answered.

    python benchmarks/bench_callbacks.py [--connections 64] [--seconds 5] [--threads 500] [--directory DIR] [--json]

A client in a process of its own posts events under genuine tokens over that many connections, each one as soon as the
one before it on its connection is answered. The same client first posts to a bare listener that reads the body and
answers 200, which is what HTTP costs by itself here.
"""

import argparse
import asyncio
import json
import sys
import tempfile
import time
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import msgspec

from hibernaut.clock import SystemClock
from hibernaut.kernel.commit import NewThread
from hibernaut.kernel.config import LaunchConfig, encode_config
from hibernaut.kernel.head import Call, Head, encode_head
from hibernaut.rap.listening import App, Receive, Scope, Send, listening
from hibernaut.rap.receiver import CallbackReceiver
from hibernaut.stores.sqlite import SqliteStore
from hibernaut.tools.tokens import Grant, ring_of, sign

CALL = "call_0123456789abcdef"
TEXT = "Something happened that a subscription watches for. " * 4


class Measured(msgspec.Struct):
    """What the client saw."""

    callbacks: int
    per_second: float
    p50_ms: float
    p99_ms: float
    refused: int


class Result(msgspec.Struct):
    """What was measured."""

    connections: int
    threads: int
    loop: str
    bare: Measured
    receiver: Measured
    stored: int
    callbacks_per_transaction: float
    processor_us_per_callback: float


# The client


class Connection(asyncio.Protocol):
    """Posts one body after the other until the time is up."""

    def __init__(self, number: int, targets: list[tuple[str, str]], until: float, times: list[float]) -> None:
        self.done = asyncio.get_running_loop().create_future()
        self.refused = 0
        self._number = number
        self._targets = targets
        self._until = until
        self._times = times
        self._sent = 0
        self._since = 0.0
        self._answer = b""

    def connection_made(self, transport: Any) -> None:
        """Begin."""
        self._transport = transport
        self._post()

    def data_received(self, data: bytes) -> None:
        """Note how long an answer took; post the next."""
        self._answer += data
        if not self._answer.endswith(b"}"):
            return
        self._times.append(time.perf_counter() - self._since)
        self.refused += not self._answer.startswith(b"HTTP/1.1 200")
        if time.perf_counter() < self._until:
            self._post()
        else:
            self._transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        """End."""
        self._answer = repr(exc).encode()
        self.done.set_result(None)

    def _post(self) -> None:
        path, thread = self._targets[(self._number + self._sent * 64) % len(self._targets)]
        body = json.dumps(
            {
                "type": "subscription_event",
                "group_id": thread,
                "tool_call_id": CALL,
                "text": TEXT,
                "associative": True,
                "event_id": f"{self._number}.{self._sent}",
            }
        )
        self._sent += 1
        self._answer = b""
        self._since = time.perf_counter()
        self._transport.write(
            f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
            f"Content-Length: {len(body)}\r\n\r\n{body}".encode()
        )


async def client(port: int, connections: int, seconds: float, targets: list[tuple[str, str]]) -> None:
    """Post, and print what was measured."""
    loop, times = asyncio.get_running_loop(), list[float]()
    began = time.perf_counter()
    made = [
        await loop.create_connection(
            lambda number=number: Connection(number, targets, began + seconds, times), "127.0.0.1", port
        )
        for number in range(connections)
    ]
    await asyncio.gather(*(connection.done for _, connection in made))
    took = time.perf_counter() - began
    times.sort()
    p50, p99 = times[len(times) // 2] * 1_000, times[len(times) * 99 // 100] * 1_000
    refused = sum(connection.refused for _, connection in made)
    print(json.dumps(msgspec.to_builtins(Measured(len(times), len(times) / took, p50, p99, refused))))


# The server


async def bare(scope: Scope, receive: Receive, send: Send) -> None:
    """Read a body and answer 200."""
    if scope["type"] != "http":
        raise NotImplementedError
    while (await receive()).get("more_body"):
        pass
    headers = [(b"content-type", b"application/json"), (b"content-length", b"2")]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": b"{}"})


async def measure(app: App, options: argparse.Namespace, targets: list[tuple[str, str]]) -> Measured:
    """Let a client post to an app."""
    async with listening(app) as there:
        words = (__file__, "--client", str(there.port), "--connections", options.connections, "--seconds")
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            *map(str, (*words, options.seconds)),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
        )
        said, _ = await process.communicate(json.dumps(targets).encode())
    return msgspec.json.decode(said, type=Measured)


async def bench(options: argparse.Namespace, directory: str) -> Result:
    """Measure a bare listener, then a receiver."""
    store = await SqliteStore.open(Path(directory) / "bench.db")
    clock = SystemClock()
    keys = ring_of(await store.secret())
    names = [f"thread_{number:06d}" for number in range(options.threads)]
    digest, body = encode_config(LaunchConfig())
    for name in names:
        head = Head(name, b"", digest, calls={CALL: Call(CALL, "watch", mode="subscription", state="subscribed")})
        await store.create([NewThread(name, "", encode_head(head), digest, body, clock.now())], [], clock.now())
    grants = [Grant(name, CALL, clock.now() + 3_600_000, ("tool_result", "subscription_event")) for name in names]
    targets = [(f"/rap/callback/{sign(keys, grant)}", grant.thread_id) for grant in grants]
    receiver = CallbackReceiver(store, keys, clock)
    without = await measure(bare, options, targets)
    before, used = store.transactions, time.process_time()
    taken = await measure(receiver, options, targets)
    spent, transactions = time.process_time() - used, store.transactions - before
    stored = sum([len(await store.read_inbox(name)) for name in names])
    await store.close()
    return Result(
        options.connections,
        options.threads,
        type(asyncio.get_running_loop()).__module__,
        without,
        taken,
        stored,
        taken.callbacks / max(transactions, 1),
        spent / max(taken.callbacks, 1) * 1e6,
    )


def run(main: Coroutine[Any, Any, Result | None]) -> Result | None:
    """Run on the fastest event loop that is installed."""
    try:
        import uvloop  # noqa: PLC0415  # an extra
    except ImportError:
        return asyncio.run(main)
    return uvloop.run(main)


def main() -> None:
    """Measure, and print it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--connections", type=int, default=64)
    parser.add_argument("--seconds", type=float, default=5)
    parser.add_argument("--threads", type=int, default=500)
    parser.add_argument("--directory")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--client", type=int, default=0, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.client:
        run(client(options.client, options.connections, options.seconds, json.load(sys.stdin)))
        return
    with tempfile.TemporaryDirectory(dir=options.directory) as directory:
        result = run(bench(options, directory))
    if result is None:
        return
    if options.json:
        print(json.dumps(msgspec.to_builtins(result)))
        return
    print(f"{result.connections} connections, {result.threads} threads, {result.loop}")
    for name, seen in (("bare listener", result.bare), ("receiver", result.receiver)):
        print(
            f"{name:14} {seen.per_second:8,.0f}/s   p50 {seen.p50_ms:6.1f} ms   p99 {seen.p99_ms:6.1f} ms   "
            f"{seen.refused} refused"
        )
    print(
        f"{result.stored:,} stored of {result.receiver.callbacks:,} taken, {result.callbacks_per_transaction:.1f} per "
        f"transaction, {result.processor_us_per_callback:.0f} µs of processor each"
    )


if __name__ == "__main__":
    main()
