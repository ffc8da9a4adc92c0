"""What a request to a provider costs before its first byte is on the wire, by the age of the thread.

For each API: a thread with so many items makes one more turn. `hot`: its transcript was written before, and only what
is new is written now. `cold`: all of it is written. `floor`: the same texts, encoded as one JSON array and nothing
else.

    python benchmarks/bench_models.py [--items 10 1000 10000] [--runs 20]
"""

import argparse
import gc
import statistics
import time
from collections.abc import Callable

import msgspec

from hibernaut.messages.items import CallItem, Item, ResultItem, TextItem, UserItem
from hibernaut.messages.parts import plain_text
from hibernaut.messages.tools import ToolSpec
from hibernaut.models.configuration import Configuration, ProviderSettings
from hibernaut.models.http_model import HttpModel
from hibernaut.models.protocol import Memo, ModelRequest
from hibernaut.models.providers import Providers

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


def ask(items: list[Item], memo: Memo | None) -> ModelRequest:
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


def hot(model: HttpModel, count: int, runs: int) -> float:
    """Return the median time of a hot thread's next turn."""
    items, memo, times = transcript(count), Memo(), []
    model.sent(ask(items, memo))
    for number in range(runs):
        items += [*turn(10**9 + number)[1:], UserItem("And now?")]
        request = ask(items, memo)
        times.append(timed(lambda request=request: model.sent(request)))  # type: ignore[misc]  # one for each
    return statistics.median(times)


def main() -> None:
    """Print the table."""
    options = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    options.add_argument("--items", type=int, nargs="+", default=[10, 1_000, 10_000])
    options.add_argument("--runs", type=int, default=20)
    given = options.parse_args()
    settings = ProviderSettings(key="none", options={"region": "eu-central-1"})
    providers = Providers(Configuration(providers={"bedrock": settings}))
    print(f"{'model':<12} {'items':>7} {'body':>11} {'hot':>10} {'cold':>10} {'floor':>10}  {'hot/floor':>9}")
    for name in MODELS:
        model = providers.resolve(name)
        assert isinstance(model, HttpModel)
        for count in given.items:
            items = transcript(count)
            body = len(model.sent(ask(items, None)).body)
            cold = statistics.median(timed(lambda: model.sent(ask(items, None))) for _ in range(given.runs))  # noqa: B023
            texts = [text_of(item) for item in items]
            floor = statistics.median(timed(lambda: msgspec.json.encode(texts)) for _ in range(given.runs))  # noqa: B023
            warm = hot(model, count, given.runs)
            print(
                f"{name.partition(':')[0]:<12} {len(items):>7,} {body:>9,} B {warm:>7,.0f} µs {cold:>7,.0f} µs "
                f"{floor:>7,.0f} µs  {warm / floor:>9.2f}"
            )


if __name__ == "__main__":
    main()
