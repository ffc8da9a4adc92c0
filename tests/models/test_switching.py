"""A thread goes from provider to provider, and each takes what the others have said."""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from itertools import permutations

import pytest

from hibernaut.kernel.transcript import Transcript
from hibernaut.kernel.turn import TurnBuffer, TurnCall, TurnText
from hibernaut.messages.items import CallItem, Item, ReasoningItem, ResultItem, TextItem, UserItem
from hibernaut.messages.parts import Image, Text
from hibernaut.models.google.rules import VERTEX
from hibernaut.models.protocol import Memo, Model
from hibernaut.models.scripted import call, think, turn
from hibernaut.testing.model_transcripts import png
from hibernaut.testing.providers.server import FakeScript
from tests.models.anthropic.setting import BUDGET, elsewhere
from tests.models.bedrock.converse import CLAUDE, LLAMA, bedrock
from tests.models.google.gemini import NEWEST, OLDER, gemini
from tests.models.histories import request

Opener = Callable[[FakeScript], AbstractAsyncContextManager[Model]]

PROVIDERS: dict[str, Opener] = {
    "anthropic": lambda script: elsewhere("vertex", script, BUDGET),
    "claude": lambda script: bedrock(script, CLAUDE, effort="low"),
    "llama": lambda script: bedrock(script, LLAMA),
    "gemini": lambda script: gemini(script, model_id=NEWEST),
    "older gemini": lambda script: gemini(script, model_id=OLDER),
    "vertex": lambda script: gemini(script, VERTEX),
}

ROUND = [
    turn(think("I look.", data=b"1"), "Let me look. ", call("look", path="a"), call("look", path="b")),
    turn(think("So.", data=b"2"), "They say hello."),
]


@pytest.mark.parametrize("order", [*permutations(PROVIDERS, 2)], ids=" then ".join)
def test_each_provider_goes_on_from_every_other_and_comes_back(order: Sequence[str]) -> None:
    async def scenario() -> None:
        history: list[Item] = []
        async with AsyncExitStack() as stack:
            models = [await stack.enter_async_context(PROVIDERS[name](ROUND * 2)) for name in order]
            memos = [Memo() for _ in models]
            for model, memo in [*zip(models, memos, strict=True)] * 2:
                history.append(UserItem("Look."))
                for _ in ROUND:
                    await _goes_on(model, memo, history)

    asyncio.run(scenario())


async def _goes_on(model: Model, memo: Memo, history: list[Item]) -> None:
    shown = Transcript()
    shown.extend(history)
    buffer = TurnBuffer()
    buffer.feed_all([piece async for piece in model.stream(request(*shown.ready(), memo=memo))])
    calls: list[CallItem] = []
    for part in buffer.turn().parts:
        if isinstance(part, TurnText):
            history.append(TextItem(part.text))
        elif isinstance(part, TurnCall):
            name = f"c{sum(isinstance(item, CallItem) for item in history)}"
            calls.append(CallItem(name, part.name, part.arguments or "{}", part.provider_id, part.data))
            history.append(calls[-1])
        else:
            history.append(ReasoningItem(part.provider, part.data, part.text))
    history += [ResultItem(made.id, (Text("hello"), Image("image/png", png()))) for made in calls]
