"""What a provider has made of a transcript is kept while the transcript only grows."""

from collections.abc import AsyncGenerator, Iterable

import pytest

from hibernaut.codec import sha256
from hibernaut.engine.transcripts import HotTranscript
from hibernaut.kernel.commit import Blob
from hibernaut.kernel.limits import INLINE_CONTENT
from hibernaut.messages.events import Usage
from hibernaut.messages.items import Item, UserItem
from hibernaut.messages.parts import Content, Image, Text
from hibernaut.messages.stream import Finish, StreamPiece, TextDelta
from hibernaut.models.protocol import Memo, ModelInfo, ModelRequest
from hibernaut.stores.memory import MemoryStore
from hibernaut.testing.model_transcripts import png
from tests.engine.scenario import run, system


class Scribe:
    """What a model has written of a transcript: which items it was given, and when."""

    def __init__(self) -> None:
        self.given: list[Item] = []
        self.feeds: list[int] = []

    @property
    def size(self) -> int:
        return 10 * len(self.given)

    def feed(self, items: Iterable[Item]) -> None:
        new = list(items)
        self.given += new
        self.feeds.append(len(new))


class Writing:
    """A model that writes down every transcript, as an adapter does."""

    def __init__(self, info: ModelInfo | None = None) -> None:
        self.info = info or ModelInfo()
        self.scribes: list[Scribe] = []

    def _made(self) -> Scribe:
        self.scribes.append(Scribe())
        return self.scribes[-1]

    async def stream(self, request: ModelRequest) -> AsyncGenerator[StreamPiece, None]:
        memo = request.memo or Memo()
        scribe = memo.get("scribe", self._made)
        scribe.feed(request.transcript[len(scribe.given) :])
        assert scribe.given == list(request.transcript)
        yield TextDelta("I see. " + "x" * 400)
        yield Finish(usage=Usage(len(request.transcript) * 100, 100))


def test_a_hot_thread_writes_only_what_is_new_whatever_its_age() -> None:
    async def scenario() -> None:
        model = Writing()
        async with system(model) as agents:
            agent = await agents.launch()
            for number in range(20):
                await agent.send(f"number {number}")
                await agent.wait_idle()
        assert len(model.scribes) == 1
        assert model.scribes[0].feeds == [1] + [2] * 19

    run(scenario)


@pytest.mark.parametrize("info", [ModelInfo(), ModelInfo(images=False)], ids=["shown", "told of"])
def test_a_hot_thread_with_pictures_writes_only_what_is_new(info: ModelInfo) -> None:
    async def scenario() -> None:
        model = Writing(info)
        async with system(model) as agents:
            agent = await agents.launch()
            for number in range(6):
                large = png(300, 300) + bytes([number]) * INLINE_CONTENT  # it is kept beside the thread
                shown = (Text("See:"), Image("image/png", png()), Image("image/png", large))
                await agent.send(shown if number % 2 else f"number {number}")
                await agent.wait_idle()
        assert len(model.scribes) == 1
        assert model.scribes[0].feeds == [1] + [2] * 5
        shown_images = [part for item in model.scribes[0].given for part in parts_of(item) if isinstance(part, Image)]
        assert len(shown_images) == (6 if info.images else 0)
        assert all(image.data for image in shown_images)

    run(scenario)


def test_pictures_that_were_fetched_count_as_what_is_kept_of_a_hot_thread() -> None:
    async def scenario() -> None:
        store, hot, data = MemoryStore(), HotTranscript(), png(300, 300)
        digest = sha256(data)
        await store.put([], 0, blobs=[Blob(digest, data)])
        hot.extend([UserItem((Image("image/png", blob=digest),))])
        transcripts = [
            await hot.fitted(hot.checked(), info, store) for info in (ModelInfo(), ModelInfo(images=False), ModelInfo())
        ]
        assert all(hot.memo_of(transcript) is hot.memo for transcript in transcripts)
        assert hot.memo_of(list(transcripts[0])) is None, "what is only like it may be anything"
        assert (hot.grown(), hot.grown()) == (len(data), 0)

    run(scenario)


def parts_of(item: Item) -> Content:
    return item.content if isinstance(item, UserItem) and not isinstance(item.content, str) else ()


def test_a_compacted_history_is_written_anew_and_then_grows_again() -> None:
    async def scenario() -> None:
        model = Writing(ModelInfo(context_window=4_000))
        async with system(model) as agents:
            agent = await agents.launch()
            for number in range(30):
                await agent.send(f"number {number} " + "y" * 400)
                await agent.wait_idle()
        assert len(model.scribes) > 2
        assert max(len(scribe.feeds) for scribe in model.scribes) > 3

    run(scenario)


def test_a_thread_that_rests_leaves_nothing_behind() -> None:
    memo = Memo()
    scribe = memo.get("scribe", Scribe)
    scribe.feed([])
    assert memo.grown() == 0
    scribe.given += [None] * 3  # type: ignore[list-item]  # only their number counts
    assert (memo.grown(), memo.grown()) == (30, 0)
    memo.forget("scribe")
    assert memo.grown() == -30
