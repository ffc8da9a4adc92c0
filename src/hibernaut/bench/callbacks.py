"""How many callbacks a receiver takes: checked, stored and synced before they are answered.

The same client first posts to a bare listener that reads the body and answers 200, which is what HTTP costs by itself
here. Server and client are two processes; both ends are on this machine.
"""

import asyncio
import sys
import time
from collections.abc import Sequence

import msgspec

from hibernaut.bench.callback_client import CALL, Seen, Target
from hibernaut.bench.places import temporary_folder
from hibernaut.clock import SystemClock
from hibernaut.errors import ConfigurationError, StoreError
from hibernaut.kernel.commit import NewThread
from hibernaut.kernel.config import LaunchConfig, encode_config
from hibernaut.kernel.head import Call, Head, encode_head
from hibernaut.rap.listening import App, Receive, Scope, Send, listening
from hibernaut.rap.receiver import CallbackReceiver
from hibernaut.stores.sqlite import SqliteStore
from hibernaut.tools.tokens import Grant, ring_of, sign

AN_HOUR = 3_600_000
"""Milliseconds for which the tokens are good."""


class CallbacksResult(msgspec.Struct, frozen=True):
    """What a run measured; `bare` is the listener that only answers."""

    callbacks: int
    callbacks_per_s: float
    p50_ms: float
    p99_ms: float
    bare_per_s: float
    bare_p50_ms: float
    bare_p99_ms: float
    share_of_bare: float
    callbacks_per_transaction: float
    processor_us_per_callback: float


async def callbacks(threads: int, connections: int, seconds: float, directory: str | None = None) -> CallbacksResult:
    """Measure a bare listener, then a receiver.

    Args:
        threads: threads with a subscription that the callbacks are for, one after the other.
        connections: connections of the client.
        seconds: how long each is measured.
        directory: where the file is made: its disk is what is measured. By default the system's temporary folder.

    Raises:
        StoreError: a callback was refused, or answered and not stored.
    """
    with temporary_folder(directory) as folder:
        store = await SqliteStore.open(folder / "agents.db")
        clock = SystemClock()
        keys = ring_of(await store.secret())
        names = [f"thread_{number:06d}" for number in range(threads)]
        await _subscribe(store, names, clock.now())
        grants = [Grant(name, CALL, clock.now() + AN_HOUR, ("tool_result", "subscription_event")) for name in names]
        targets = [Target(f"/rap/callback/{sign(keys, grant)}", grant.thread_id) for grant in grants]
        bare = await _posted_to(_answer, targets, connections, seconds)
        before, used = store.transactions, time.process_time()
        taken = await _posted_to(CallbackReceiver(store, keys, clock), targets, connections, seconds)
        spent, transactions = time.process_time() - used, store.transactions - before
        stored = sum([len(await store.read_inbox(name)) for name in names])
        await store.close()
    if taken.refused or stored != taken.callbacks:
        raise StoreError(
            f"of {taken.callbacks} callbacks {taken.refused} were refused and {stored} are stored; is it full?"
        )
    return CallbacksResult(
        callbacks=taken.callbacks,
        callbacks_per_s=taken.per_second,
        p50_ms=taken.p50_ms,
        p99_ms=taken.p99_ms,
        bare_per_s=bare.per_second,
        bare_p50_ms=bare.p50_ms,
        bare_p99_ms=bare.p99_ms,
        share_of_bare=taken.per_second / bare.per_second,
        callbacks_per_transaction=taken.callbacks / transactions,
        processor_us_per_callback=spent / taken.callbacks * 1e6,
    )


async def _subscribe(store: SqliteStore, names: Sequence[str], now: int) -> None:
    digest, body = encode_config(LaunchConfig())
    threads = []
    for name in names:
        head = Head(name, b"", digest, calls={CALL: Call(CALL, "watch", mode="subscription", state="subscribed")})
        threads.append(NewThread(name, "", encode_head(head), digest, body, now))
    await store.create(threads, [], now)


async def _answer(scope: Scope, receive: Receive, send: Send) -> None:
    """Read a body and answer 200."""
    if scope["type"] != "http":
        raise NotImplementedError
    while (await receive()).get("more_body"):
        pass
    headers = [(b"content-type", b"application/json"), (b"content-length", b"2")]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": b"{}"})


async def _posted_to(app: App, targets: Sequence[Target], connections: int, seconds: float) -> Seen:
    """Let a client post to an app."""
    async with listening(app) as there:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            *("-m", "hibernaut.bench.callback_client", str(there.port), str(connections), str(seconds)),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
        )
        said, _ = await process.communicate(msgspec.json.encode(targets))
    if process.returncode:
        raise ConfigurationError(f"the client ended with {process.returncode}; what it said stands above")
    return msgspec.json.decode(said, type=Seen)
