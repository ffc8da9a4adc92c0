"""What a provider has made of a transcript is kept while the transcript only grows."""

from collections.abc import AsyncGenerator, Iterable

from hibernaut.messages.events import Usage
from hibernaut.messages.items import Item
from hibernaut.messages.stream import Finish, StreamPiece, TextDelta
from hibernaut.models.protocol import Memo, ModelInfo, ModelRequest
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
