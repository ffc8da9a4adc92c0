"""What tools on servers cost the runtime.

post     one call from the runtime to a server in another process, until it is acknowledged; beside a bare POST of the
         same bytes over the same client
round    a whole round: a message, the call, the acknowledgement, the callback over HTTP, the model's next turn
open     many agents that wait for a server: resident bytes for each, beside agents that wait for nothing, and what
         they do while they wait
"""

import asyncio
import gc
import statistics
import subprocess
import sys
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from hibernaut import AgentSystem, Callbacks
from hibernaut.bench.memory import resident_bytes
from hibernaut.bench.scale import SETTLED
from hibernaut.clock import SystemClock
from hibernaut.messages.items import UserItem
from hibernaut.messages.stream import CallDelta, CallEnded, CallStarted, Finish, StreamPiece, TextDelta
from hibernaut.models.protocol import ModelInfo, ModelRequest
from hibernaut.rap.callbacks import Result
from hibernaut.rap.connections import Connections
from hibernaut.rap.exchange import Exchange
from hibernaut.rap.listening import Receive, Scope, Send, listening
from hibernaut.rap.manifest import RemoteTool, Toolset, write_manifest
from hibernaut.rap.requests import Invocation
from hibernaut.rap.servers import RemoteServer
from hibernaut.rap.wire import decode, encode
from hibernaut.testing.tool_servers import MemoryToolServers

SCHEMA = '{"type":"object","properties":{"commit":{"type":"string"}}}'
WAVE = 500
"""Agents that are spoken to at once."""
WATCHED = 5.0
"""Seconds for which agents that wait are watched."""


def toolset(endpoint: str) -> Toolset:
    """Return what the server has."""
    return Toolset("bench", endpoint, (RemoteTool("build", "Build a commit.", SCHEMA),))


class _Model:
    """Calls a tool when it is spoken to, and says something when the result is there."""

    info = ModelInfo()

    async def stream(self, request: ModelRequest) -> AsyncGenerator[StreamPiece, None]:
        last = request.transcript[-1]
        if isinstance(last, UserItem) and last.content == "Build":
            yield CallStarted(0, "build", "toolu_1")
            yield CallDelta(0, '{"commit":"abc456"}')
            yield CallEnded(0)
        else:
            yield TextDelta("I see.")
        yield Finish()


# The server, in a process of its own


async def serve() -> None:
    """Acknowledge every call; answer it at once if it says where."""
    async with Exchange() as exchange, asyncio.TaskGroup() as answers:
        where = ""

        async def app(scope: Scope, receive: Receive, send: Send) -> None:
            if scope["type"] != "http":
                raise NotImplementedError(scope["type"])
            body, more = b"", True
            while more:
                message = await receive()
                body, more = body + message.get("body", b""), message.get("more_body", False)
            answer = write_manifest(toolset(f"{where}/call")) if scope["method"] == "GET" else b"{}"
            headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(answer))]
            await send({"type": "http.response.start", "status": 200, "headers": headers})
            await send({"type": "http.response.body", "body": answer})
            if scope["path"] == "/call":
                call = decode(Invocation, body)
                if "/rap/callback/" in call.callback_url:
                    result = encode(Result(group_id=call.group_id, id=call.id, text="passed"))
                    answers.create_task(exchange.post(call.callback_url, result))

        async with listening(app) as there:
            where = there.url
            print(where, flush=True)
            await asyncio.to_thread(sys.stdin.read)


@contextmanager
def server() -> Iterator[str]:
    """Run the server; give its address."""
    command = [sys.executable, __file__, "serve"]
    with subprocess.Popen(  # noqa: S603  # this program
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, encoding="utf-8"
    ) as process:
        assert process.stdout is not None
        yield process.stdout.readline().strip()


# Posting


Post = Callable[[], Awaitable[object]]
TURNS = 20


async def times_of(post: Post, count: int, at_once: int) -> list[float]:
    """Return the milliseconds that each of so many took, with so many under way."""
    taken: list[float] = []

    async def work(number: int) -> None:
        for _ in range(number):
            began = time.perf_counter()
            await post()
            taken.append((time.perf_counter() - began) * 1_000)

    await asyncio.gather(*[work(max(count // at_once, 1)) for _ in range(at_once)])
    return taken


async def bench_post(url: str, count: int) -> None:
    """Post calls, one at a time and many; bare ones and ours take turns."""
    call = Invocation("build", {"commit": "abc456"}, "call_1", None, "http://127.0.0.1:9/none", "thread_1", None)
    body = encode(call)
    servers = {"bench": RemoteServer(url=url, name="bench")}
    async with Connections(servers, SystemClock()) as connections, Exchange() as exchange:
        posts: list[Post] = [
            lambda: exchange.post(f"{url}/call", body),
            lambda: connections.invoke("bench", call, {}, f"{url}/call"),
        ]
        for at_once in (1, 64):
            bare, ours = [], []
            for _ in range(TURNS + 1):
                bare += await times_of(posts[0], count // TURNS, at_once)
                ours += await times_of(posts[1], count // TURNS, at_once)
            first = len(bare) // (TURNS + 1)  # a warm-up
            show(f"post, {at_once} at once, bare", bare[first:])
            show(f"post, {at_once} at once", ours[first:], bare[first:])


async def bench_round(url: str, store: str, count: int) -> None:
    """Let agents call and hear the answer, one after the other and all at once."""
    async with AgentSystem(model=_Model(), store=store, servers=[RemoteServer(url=url, name="bench")]) as system:
        agents = [await system.launch() for _ in range(count)]
        taken = []
        for agent in agents:
            began = time.perf_counter()
            await agent.send("Build")
            await agent.wait_idle()
            taken.append((time.perf_counter() - began) * 1_000)
        show(f"round, {'memory' if store == ':memory:' else 'SQLite'}, one at a time", taken[len(taken) // 10 :])
        agents = [await system.launch() for _ in range(count)]
        began = time.perf_counter()
        for agent in agents:
            await agent.send("Build")
        for agent in agents:
            await agent.wait_idle()
        print(f"  {count / (time.perf_counter() - began):10.0f} rounds/s with {count} at once")


def show(what: str, taken: list[float], baseline: list[float] | None = None) -> None:
    """Print how long something took."""
    cuts = statistics.quantiles(taken, n=100)
    beside = ""
    if baseline is not None:
        bare = statistics.quantiles(baseline, n=100)
        beside = f"   {cuts[49] - bare[49]:+.2f} / {cuts[98] - bare[98]:+.2f} beside the bare POST"
    print(f"  {what:28} p50 {cuts[49]:7.2f} ms   p99 {cuts[98]:7.2f} ms{beside}")


# Open calls


async def bench_open(store: str, agents: int, text: str) -> None:
    """Say something to many agents and watch them wait, for nothing ("Hello") or for a server ("Build")."""
    named, kind = "memory" if store == ":memory:" else "SQLite", "open calls" if text == "Build" else "idle agents"
    servers = MemoryToolServers({"bench": toolset("http://bench.test/call")})
    callbacks = Callbacks(public="http://runtime.test", listen=False)
    async with AgentSystem(model=_Model(), store=store, servers=servers, callbacks=callbacks) as system:

        async def speak(numbers: range) -> int:
            """Speak to agents, and return what the process has when they are at rest."""
            for wave in (numbers[first : first + WAVE] for first in range(0, len(numbers), WAVE)):
                await asyncio.gather(*[system.launch(thread_id=f"t{number}", message=text) for number in wave])
                await system.wait_idle()
                servers.received.clear()
                servers.alive.clear()
            await asyncio.sleep(SETTLED)  # the engine lets go of what it held of them
            gc.collect()
            return resident_bytes()

        before = await speak(range(WAVE))  # what the first agents of a process cost is not theirs
        resident = (await speak(range(WAVE, agents)) - before) / (agents - WAVE)
        stored = await system.store.stored_bytes() / agents
        busy = time.process_time()
        await asyncio.sleep(WATCHED)
        percent = (time.process_time() - busy) / WATCHED * 100
    print(
        f"  {named}, {agents:,} {kind:11} {resident:9,.0f} resident B   {stored:9,.0f} stored B each"
        f"   {percent:5.1f} % of a core while they wait"
    )


async def bench_server(scale: float, folder: str) -> None:
    """Measure posts and rounds."""
    with server() as url:
        await bench_post(url, int(4_000 * scale))
        for store in (":memory:", str(Path(folder) / "round.db")):
            await bench_round(url, store, int(500 * scale))


def main(scale: float) -> None:
    """Measure everything."""
    agents = str(max(int(100_000 * scale), 2 * WAVE))
    with TemporaryDirectory() as folder:
        asyncio.run(bench_server(scale, folder))
        for text in ("Hello", "Build"):
            for store in (":memory:", str(Path(folder) / f"open.{text}.db")):  # each in a process that has kept nothing
                command = [sys.executable, __file__, "open", store, agents, text]
                subprocess.run(command, check=True)  # noqa: S603  # this program


if __name__ == "__main__":
    if sys.argv[1:] == ["serve"]:
        asyncio.run(serve())
    elif sys.argv[1:2] == ["open"]:
        asyncio.run(bench_open(sys.argv[2], int(sys.argv[3]), sys.argv[4]))
    else:
        main(float(sys.argv[1]) if len(sys.argv) > 1 else 0.1)
