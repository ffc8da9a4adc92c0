"""What a request to a provider costs before its first byte is on the wire, by the age of the thread.

For each API: a thread with so many items makes one more turn. `hot`: its transcript was written before, and only what
is new is written now. `cold`: all of it is written. `floor`: the same texts and pictures, encoded as one JSON array
and nothing else. What the runtime does with the transcript before the adapter gets it is part of both. Where there are
pictures, they are of 200 KB, lie at equal distances, and are kept beside the thread in its store. `takes` is the memory
that a hot turn takes at its peak, the body included, in bodies; `keeps` what it leaves behind, in KB.

    python benchmarks/bench_models.py [--items 10 1000 10000] [--images 0 4] [--runs 20]
"""

import argparse
import gc
import itertools
import statistics
import time
import tracemalloc
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, TypeVar, cast

import msgspec

from hibernaut.codec import sha256
from hibernaut.engine.transcripts import HotTranscript
from hibernaut.kernel.commit import Blob
from hibernaut.messages.items import CallItem, Item, ResultItem, TextItem, UserItem
from hibernaut.messages.parts import Image, Text, plain_text
from hibernaut.messages.tools import ToolSpec
from hibernaut.models.configuration import Configuration, ProviderSettings
from hibernaut.models.http_model import HttpModel
from hibernaut.models.protocol import Memo, ModelRequest
from hibernaut.models.providers import Providers
from hibernaut.stores.memory import MemoryStore

T = TypeVar("T")

MODELS = (
    "anthropic:claude-sonnet-4-6",
    "openai:gpt-5",
    "openai-chat:gpt-4o",
    "google:gemini-2.5-flash",
    "bedrock:us.anthropic.claude-sonnet-4-5-20250929-v1:0",
)

TOOLS = tuple(
    ToolSpec(f"tool_{number}", "Does something. " * 10, '{"type":"object","properties":{"path":{"type":"string"}}}')
    for number in range(20)
)
INSTRUCTIONS = "You watch our builds. " * 100
PER_TURN = 4
"""Items of one turn: what the user says, a call, its result, an answer."""


def turn(number: int) -> list[Item]:
    """Return the items of one turn."""
    call = f"call_{number:016d}"
    return [
        UserItem(f"Question {number}: " + "what do you see there? " * 5),
        CallItem(call, "tool_1", '{"path":"src/main.py"}'),
        ResultItem(call, f"Result {number}: " + "some lines of a file " * 10),
        TextItem(f"Answer {number}: " + "this is what I see " * 5),
    ]


def transcript(items: int) -> list[Item]:
    """Return a transcript of about so many items, which ends on the user's side."""
    return [item for number in range(items // PER_TURN) for item in turn(number)] + [UserItem("And now?")]


def ask(items: Sequence[Item], memo: Memo | None) -> ModelRequest:
    """Return the request of a turn."""
    return ModelRequest("m", INSTRUCTIONS, items, TOOLS, "thread", memo=memo)


def text_of(item: Item) -> str:
    """Return what an item says."""
    if isinstance(item, UserItem | ResultItem):
        return plain_text(item.content)
    return item.arguments if isinstance(item, CallItem) else item.text if isinstance(item, TextItem) else ""


def timed(action: Callable[[], object]) -> float:
    """Return the microseconds that something takes."""
    gc.collect()
    began = time.perf_counter()
    action()
    return (time.perf_counter() - began) * 1e6


def finish(work: Coroutine[Any, Any, T]) -> T:
    """Return what a coroutine returns that suspends nowhere, as with a store in memory."""
    try:
        work.send(None)
    except StopIteration as end:
        return cast("T", end.value)
    raise RuntimeError("it suspends")


class Thread:
    """A thread at work, as the engine has it."""

    def __init__(self, model: HttpModel, items: list[Item], store: MemoryStore) -> None:
        self._model = model
        self._store = store
        self._hot = HotTranscript()
        self._hot.extend(items)

    def sent(self) -> bytes:
        """Return the body of the request for its next turn."""
        transcript = self._hot.checked()
        if self._hot.has_images:
            transcript = finish(self._hot.fitted(transcript, self._model.info, self._store))
        return self._model.sent(ask(transcript, self._hot.memo_of(transcript))).body

    def goes_on(self, number: int) -> None:
        """Take one more turn."""
        self._hot.extend([*turn(number)[1:], UserItem("And now?")])


def illustrated(items: list[Item], images: int, store: MemoryStore) -> tuple[list[Item], list[bytes]]:
    """Return items with so many pictures among them, and what these are."""
    made = [b"\x89PNG\r\n\x1a\n" + number.to_bytes(200_000 - 8, "big") for number in range(images)]
    blobs = [Blob(sha256(data), data) for data in made]
    finish(store.put([], 0, blobs=blobs))
    every = len(items) // max(images, 1) // PER_TURN * PER_TURN
    items = list(items)
    for number, blob in enumerate(blobs):
        items[number * every] = UserItem((Text("Look at this."), Image("image/png", blob=blob.digest)))
    return items, made


def hot(model: HttpModel, items: list[Item], store: MemoryStore, runs: int) -> float:
    """Return the median time of a hot thread's next turn."""
    thread, times = Thread(model, items, store), []
    thread.sent()
    for number in range(runs):
        thread.goes_on(10**9 + number)
        times.append(timed(thread.sent))
    return statistics.median(times)


def allocated(model: HttpModel, items: list[Item], store: MemoryStore) -> tuple[float, float]:
    """Return what a hot thread's next turn takes at its peak, in bodies, and what it leaves behind, in KB."""
    thread = Thread(model, items, store)
    thread.sent()
    thread.goes_on(10**9)
    gc.collect()
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    body = len(thread.sent())
    left, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return (peak - before) / body, (left - before) / 1024


def main() -> None:
    """Print the table."""
    options = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    options.add_argument("--items", type=int, nargs="+", default=[10, 1_000, 10_000])
    options.add_argument("--images", type=int, nargs="+", default=[0, 4])
    options.add_argument("--runs", type=int, default=20)
    given = options.parse_args()
    settings = ProviderSettings(key="none", options={"region": "eu-central-1"})
    providers = Providers(Configuration(providers={"bedrock": settings}))
    heads = f"{'hot':>10} {'cold':>10} {'floor':>10}  {'hot/floor':>9} {'takes':>6} {'keeps':>7}"
    print(f"{'model':<12} {'items':>7} {'images':>6} {'body':>11} {heads}")
    for name in MODELS:
        model = providers.resolve(name)
        assert isinstance(model, HttpModel)
        for count, images in itertools.product(given.items, given.images):
            store = MemoryStore()
            items, pictures = illustrated(transcript(count), images, store)
            body = len(Thread(model, items, store).sent())
            cold = statistics.median(timed(Thread(model, items, store).sent) for _ in range(given.runs))
            texts = [text_of(item) for item in items]
            floor = statistics.median(timed(lambda: msgspec.json.encode([texts, pictures])) for _ in range(given.runs))  # noqa: B023
            warm = hot(model, items, store, given.runs)
            takes, keeps = allocated(model, items, store)
            print(
                f"{name.partition(':')[0]:<12} {len(items):>7,} {images:>6} {body:>9,} B {warm:>7,.0f} µs "
                f"{cold:>7,.0f} µs {floor:>7,.0f} µs  {warm / floor:>9.2f} {takes:>6.2f} {keeps:>7.1f}"
            )


if __name__ == "__main__":
    main()
