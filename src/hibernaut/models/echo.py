"""A model that needs no provider: it answers with what it was told. For trying things out."""

from collections.abc import AsyncGenerator

from hibernaut.messages.events import Usage
from hibernaut.messages.items import ResultItem, UserItem
from hibernaut.messages.parts import plain_text
from hibernaut.messages.stream import Finish, StreamPiece, TextDelta
from hibernaut.messages.text import shorten
from hibernaut.models.protocol import ModelInfo, ModelRequest


class EchoModel:
    """Answers "You said: …"."""

    info = ModelInfo(images=False)

    async def stream(self, request: ModelRequest) -> AsyncGenerator[StreamPiece, None]:
        """Say back what came last, word by word."""
        last = request.transcript[-1]
        text = plain_text(last.content) if isinstance(last, UserItem | ResultItem) else ""
        words = (f"So far: {shorten(text, 200)}" if request.purpose == "summary" else f"You said: {text}").split(" ")
        for position, word in enumerate(words):
            yield TextDelta(word if position == 0 else f" {word}")
        yield Finish(usage=Usage(sum(len(str(item)) for item in request.transcript) // 4, len(words)))
