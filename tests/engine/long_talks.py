"""Conversations that grow too long for their model, and what became of them."""

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from hibernaut.handle import ThreadHandle
from hibernaut.messages.items import (
    CallItem,
    Item,
    NoticeItem,
    ResultItem,
    SummaryItem,
    TextItem,
    UserItem,
)
from hibernaut.messages.parts import plain_text
from hibernaut.models.protocol import ModelInfo, ModelRequest
from hibernaut.models.scripted import (
    Playable,
    ScriptedModel,
    last_user_text,
    say,
)

T = TypeVar("T")

WINDOW = 8_000
"""Tokens, hence 32,000 bytes."""

LONG = "word " * 800
"""About 1,000 tokens."""


def model_of(
    answer: Callable[[ModelRequest], Any] | None = None,
    summaries: Sequence[Playable] | Callable[[ModelRequest], Any] = (),
    window: int = WINDOW,
    **more: Any,
) -> ScriptedModel:
    """A model that answers with a long text, and with these summaries (the last one again and again)."""
    left = list(summaries) if not callable(summaries) else []

    def play(request: ModelRequest) -> Any:
        if request.purpose == "summary":
            if callable(summaries):
                return summaries(request)
            return (left.pop(0) if len(left) > 1 else left[0]) if left else say("They talked at length.")
        return answer(request) if answer else say(f"About {last_user_text(request)[:20]}: {LONG}")

    return ScriptedModel(play, info=ModelInfo(context_window=window), **more)


def asked_for(model: ScriptedModel, purpose: str) -> list[ModelRequest]:
    return [request for request in model.requests if request.purpose == purpose]


async def talk(agent: ThreadHandle, *texts: str) -> None:
    for text in texts:
        await agent.send(text)
        await agent.wait_idle()


async def summaries_of(agent: ThreadHandle) -> list[SummaryItem]:
    return [item for item in await agent.history() if isinstance(item, SummaryItem)]


async def is_compacted(agent: ThreadHandle) -> bool:
    return bool(await summaries_of(agent))


async def notices_of(agent: ThreadHandle, kind: str) -> list[str]:
    return [item.text for item in await agent.history() if isinstance(item, NoticeItem) and item.kind == kind]


def words_of(request: ModelRequest) -> str:
    return "\n".join(_word(item) for item in request.transcript)


def _word(item: Item) -> str:
    if isinstance(item, UserItem | ResultItem):
        return plain_text(item.content)
    return item.text if isinstance(item, TextItem) else item.arguments if isinstance(item, CallItem) else ""


def size_of(request: ModelRequest) -> int:
    return len(words_of(request)) // 4


TALK = [f"Question {number}" for number in range(1, 10)]
