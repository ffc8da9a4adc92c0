"""What trees cost: waking one of many listeners, a burst of events, and children.

wake     10,000 resting threads, each with a subscription, get one event each: from the door to the model's call
burst    1,000 events of one subscription, each in a thread of its own
spawn    1,000 children of a thread with a long history: what each adds to the store
"""

import asyncio
import statistics
import sys
import time
from collections.abc import AsyncGenerator
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec

from hibernaut import AgentSystem, Deferred, ThreadOptions, ToolContext, tool
from hibernaut.kernel.head import decode_head
from hibernaut.messages.inputs import Event, InputMessage, ToolResult, event_message
from hibernaut.messages.items import ResultItem, UserItem
from hibernaut.messages.stream import CallDelta, CallEnded, CallStarted, Finish, StreamPiece, TextDelta
from hibernaut.models.protocol import ModelInfo, ModelRequest

AT_ONCE = 200
"""Threads that are made ready at the same time."""

PAUSE = 0.002
"""Seconds between two events."""


class _Model:
    """Subscribes, spawns or closes its thread as it is asked; notes when it is asked."""

    info = ModelInfo()

    def __init__(self) -> None:
        self.asked: dict[str, float] = {}
        self.closes = True

    async def stream(self, request: ModelRequest) -> AsyncGenerator[StreamPiece, None]:
        self.asked[request.thread_id] = time.perf_counter()
        last = request.transcript[-1]
        name, arguments = "", "{}"
        if isinstance(last, UserItem) and last.content == "watch":
            name = "watch"
        elif isinstance(last, UserItem) and last.content == "spawn":
            name, arguments = "spawn_thread", '{"instructions":"Count to seven.","child_of":[]}'
        elif request.thread_id.startswith("thread_") and self.closes:
            name, arguments = "close_thread", f'{{"thread_id":"{request.thread_id}"}}'
        if name:
            yield CallStarted(0, name, "toolu_1")
            yield CallDelta(0, arguments)
            yield CallEnded(0)
        else:
            yield TextDelta("I see." if isinstance(last, ResultItem) else "Yes.")
        yield Finish()


@tool
async def watch(context: ToolContext) -> Deferred:
    """Watch something elsewhere."""
    return context.defer()


class _Stage:
    """A system, and what its agents are brought from outside."""

    def __init__(self, system: AgentSystem, model: _Model) -> None:
        self.system = system
        self.model = model

    async def listen(self, names: list[str]) -> dict[str, str]:
        """Make threads that rest with an active subscription; return its call id by thread."""
        calls: dict[str, str] = {}
        for first in range(0, len(names), AT_ONCE):
            some = names[first : first + AT_ONCE]
            await asyncio.gather(*[self.system.launch(thread_id=name, message="watch") for name in some])
            await self.system.wait_idle()
            for name in some:
                row = await self.system.row(name)
                (calls[name],) = decode_head(row.head).head.calls
            confirmed = [
                InputMessage(f"result:{calls[name]}", name, ToolResult(calls[name], "watching", subscription=True))
                for name in some
            ]
            await self.system.store.put(confirmed, self.system.clock.now())
            await self.system.wait_idle()
        return calls

    async def tell(self, name: str, event: Event) -> None:
        """Bring an event."""
        await self.system.store.put([event_message(name, event, "bench")], self.system.clock.now())


async def wake(stage: _Stage, threads: int) -> dict[str, float]:
    """Measure the time from the door to the model's call, for events that come one by one."""
    names = [f"listener-{number:06d}" for number in range(threads)]
    calls = await stage.listen(names)
    stage.model.asked.clear()
    told: dict[str, float] = {}
    for name in names:
        told[name] = time.perf_counter()
        await stage.tell(name, Event(calls[name], "something happened", "1", associative=True))
        await asyncio.sleep(PAUSE)
    await stage.system.wait_idle()
    late = sorted((stage.model.asked[name] - told[name]) * 1000 for name in names)
    return {"threads": threads, "p50_ms": statistics.median(late), "p99_ms": late[int(len(late) * 0.99)]}


async def burst(stage: _Stage, events: int) -> dict[str, float]:
    """Measure how long a burst of threaded events takes from the first to the end of its last thread."""
    calls = await stage.listen(["burst"])
    began = time.perf_counter()
    for number in range(events):
        await stage.tell("burst", Event(calls["burst"], f"event {number}", str(number)))
    accepted = time.perf_counter() - began
    await stage.system.wait_idle()
    seconds = time.perf_counter() - began
    tree = await (await stage.system.thread("burst")).tree()
    ended = sum(state.status == "closed" for state in tree)
    if ended != events:
        raise AssertionError(f"{ended} of {events} threads have dealt with their event")
    return {"events": events, "accepted_s": accepted, "seconds": seconds, "events_per_s": events / seconds}


async def spawn(stage: _Stage, children: int, items: int) -> dict[str, float]:
    """Measure what a child adds to the store, whatever it inherits."""
    stage.model.closes = False
    agent = await stage.system.launch(thread_id="spawner", options=ThreadOptions(max_children=children + 1))
    for _ in range(items // 2):
        await agent.send("Hello. " * 100)
        await stage.system.wait_idle()
    before = await stage.system.store.stored_bytes()
    began = time.perf_counter()
    for _ in range(children):
        await agent.send("spawn")
        await stage.system.wait_idle()
    seconds = time.perf_counter() - began
    stored = await stage.system.store.stored_bytes() - before
    stage.model.closes = True
    return {
        "children": children,
        "inherited_items": items,
        "stored_bytes_per_child": stored / children,
        "children_per_s": children / seconds,
    }


async def measure(store: str, size: float) -> None:
    """Measure everything on one store and print it, a line of JSON each."""
    with TemporaryDirectory() as folder:
        where = ":memory:" if store == "memory" else str(Path(folder) / "agents.db")
        model = _Model()
        options = ThreadOptions(max_events_per_minute=0, max_descendants=100_000, compact_at=0)
        async with AgentSystem(model=model, tools=[watch], store=where, options=options) as system:
            stage = _Stage(system, model)
            for name, figures in (
                ("wake", await wake(stage, int(10_000 * size))),
                ("burst", await burst(stage, int(1_000 * size))),
                ("spawn", await spawn(stage, int(1_000 * size), 1_000)),
            ):
                print(msgspec.json.encode({"bench": name, "store": store} | figures).decode(), flush=True)


if __name__ == "__main__":
    share = float(sys.argv[1]) if len(sys.argv) > 1 else 1.0
    for kind in ("memory", "sqlite"):
        asyncio.run(measure(kind, share))
