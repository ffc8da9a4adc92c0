"""A model that answers at once with a few words, and notes when it was asked."""

import time
from collections.abc import AsyncGenerator

from hibernaut.messages.events import Usage
from hibernaut.messages.stream import Finish, StreamPiece, TextDelta
from hibernaut.models.protocol import ModelInfo, ModelRequest


class Answering:
    """Such a model."""

    info = ModelInfo()

    def __init__(self) -> None:
        self.asked: dict[str, float] = {}
        """When each thread's model was last asked (`time.monotonic`)."""

    def stream(self, request: ModelRequest) -> AsyncGenerator[StreamPiece, None]:
        """Note the moment; answer."""
        self.asked[request.thread_id] = time.monotonic()
        return self._answer()

    async def _answer(self) -> AsyncGenerator[StreamPiece, None]:
        yield TextDelta("I have seen it.")
        yield Finish(usage=Usage(200, 10))
