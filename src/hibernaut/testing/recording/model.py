"""A model that plays back what another one has said.

    model = RecordedModel("tests/fixtures/build.json")

What is recorded is played back; what is not is an error that says in what the request differs. With another model to
ask, that one is asked, and what it says is recorded.
"""

from collections.abc import AsyncGenerator
from contextlib import aclosing
from pathlib import Path

from hibernaut.messages.stream import Finish, StreamPiece
from hibernaut.models.protocol import Model, ModelInfo, ModelRequest
from hibernaut.testing.recording.recording import Recording, recording_in
from hibernaut.testing.recording.said import pieces_of


class RecordedModel:
    """A `Model` that plays back what another one has said.

    Requests are told apart by what a model is shown: instructions, tools and transcript. Ids that the runtime draws
    anew in every run count by their order only. What is asked again gets what was said the next time, and when that is
    all, the last again.

    Args:
        source: the file, which `hibernaut record` makes, or a recording that its owner writes.
        model: who is asked what is not in it; then the file need not be there, and is written after each completion.

    Raises:
        ConfigurationError: there is no such file and nobody to ask, or it is no recording.
    """

    def __init__(self, source: str | Path | Recording, model: Model | None = None) -> None:
        self._writes = not isinstance(source, Recording)
        if isinstance(source, Recording):
            self._recording = source
        else:
            self._recording = recording_in(source) if model is None else Recording(source)
        self._model = model

    @property
    def info(self) -> ModelInfo:
        """What is known of the model that is asked, or was recorded."""
        return self._recording.info if self._model is None else self._model.info

    async def stream(self, request: ModelRequest) -> AsyncGenerator[StreamPiece, None]:
        """Play back what was said to this request, or have it said.

        Raises:
            NotRecorded: nobody knows what is said to it. ConfigurationError: the file cannot be written.
        """
        recording = self._recording
        asked = recording.asked(request)
        said = recording.play(asked)
        if said is None and self._model is None:
            said = recording.play_again(asked)
        if said is not None:
            for piece in pieces_of(said):
                yield piece
        elif self._model is not None:
            async with aclosing(self._ask(self._model, request, asked)) as stream:
                async for piece in stream:
                    yield piece

    def check(self) -> None:
        """Check at the end of a test that all was played that is recorded, and nothing else was asked for.

        Raises:
            NotRecorded: something was. AssertionError: something was not played.
        """
        self._recording.check()

    async def _ask(
        self, model: Model, request: ModelRequest, asked: tuple[str, ...]
    ) -> AsyncGenerator[StreamPiece, None]:
        pieces: list[StreamPiece] = []
        finish: Finish | None = None
        self._recording.begin(asked)
        try:
            async with aclosing(model.stream(request)) as stream:
                async for piece in stream:
                    if isinstance(piece, Finish):
                        finish = piece
                    elif finish is None:
                        pieces.append(piece)
                        yield piece
        except BaseException:
            self._recording.fail(asked)
            raise
        if finish is None:
            self._recording.fail(asked)
            return
        # Told only when the stream has ended well: what failed after all is not recorded.
        self._recording.add(asked, [*pieces, finish], request.model, model.info)
        if self._writes:
            self._recording.write()
        yield finish
