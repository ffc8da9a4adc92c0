"""Compaction at work: asks the model for a summary, as a round of its own, before the completion that needs the room.

See `hibernaut.kernel.compaction` for the rules. Whatever comes of it, the history is as it was or has a summary more.
"""

from collections.abc import Awaitable, Callable, Sequence

import msgspec

from hibernaut.clock import Clock
from hibernaut.engine.history import read_material
from hibernaut.engine.launches import Launch
from hibernaut.engine.live import LiveFeed, LiveTurn
from hibernaut.engine.spending import spent_on
from hibernaut.engine.transcripts import HotTranscript
from hibernaut.errors import ModelError
from hibernaut.kernel.compaction import (
    AGAIN,
    ASK,
    INSTRUCTIONS,
    LARGEST_SHARE,
    NOTHING,
    Cut,
    Pressure,
    begin,
    choose_cut,
    complete,
    facts_of,
    give_up,
    history_room,
    is_due,
    is_request,
    is_worth_it,
    judge,
    pressure_of,
    put_off,
    render,
    take_summary,
    task_of,
    text_of,
    window_of,
)
from hibernaut.kernel.draft import Draft
from hibernaut.kernel.fold import Failure, added, count, fold_failure
from hibernaut.kernel.receipt import TurnCommit
from hibernaut.kernel.seal import Asked
from hibernaut.kernel.sizes import fit_item, items_tokens, text_tokens
from hibernaut.kernel.transcript import validate
from hibernaut.kernel.turn import TurnBuffer
from hibernaut.messages.events import Usage
from hibernaut.messages.items import Item, UserItem, decode_page
from hibernaut.models.errors import ConnectionLost, ContextOverflow, OutputTruncated, Refused
from hibernaut.models.prices import Prices
from hibernaut.models.protocol import ModelInfo, ModelRequest
from hibernaut.stores.protocol import Store

TRIES = 2
"""Summaries that are asked for before it is given up."""

FULL_PERCENT = 90
"""Percent of the window that a prompt may take before large items are shown shorter still;"""

OVERFLOWED_PERCENT = 50
"""the same when it has turned out that the window is smaller than it seems."""

Stream = Callable[[ModelRequest, LiveTurn], Awaitable[str]]
"""Reads a stream into a live turn; returns why it was stopped, "" if it was not."""


class Asking(msgspec.Struct, frozen=True):
    """Whom a round asks: the thread's model, under the name and the number of this completion."""

    name: str
    attempt: int
    stream: Stream
    prices: Prices | None


class _Tries(msgspec.Struct):
    """What the tries of one round came to."""

    text: str = ""
    problem: str = ""
    interrupted: bool = False
    usage: Usage = Usage()
    estimated: int = 0


def pressure_on(draft: Draft, launch: Launch, info: ModelInfo, hot: HotTranscript) -> Pressure | None:
    """Measure the prompt that is coming; `hot` has the draft's items already. None: there is nothing to measure by."""
    head, sizes = draft.head, hot.sizes
    window = window_of(draft.options, info.context_window)
    if not window and not head.overflowed and not draft.compacting:
        return None
    cap = window // LARGEST_SHARE
    return pressure_of(head, window, sizes.shown(cap) + launch.frame, sizes.since(head.measured_items, cap))


def prompt_tokens(draft: Draft, launch: Launch, hot: HotTranscript, pressure: Pressure | None) -> int:
    """Estimate the prompt of a completion; `pressure` where it was measured before it was asked for."""
    if pressure is not None:
        return pressure.tokens
    head, sizes = draft.head, hot.sizes
    return pressure_of(head, 0, sizes.shown() + launch.frame, sizes.since(head.measured_items)).tokens


def fit_sizes(items: Sequence[Item], hot: HotTranscript, pressure: Pressure | None, frame: int) -> Sequence[Item]:
    """Return a transcript in which an excerpt stands for every item that alone would fill a good part of the window."""
    if pressure is None or not pressure.window:
        return items
    room = pressure.window * (OVERFLOWED_PERCENT if pressure.overflowed else FULL_PERCENT) // 100
    cap = hot.sizes.cap_for(pressure.window // LARGEST_SHARE, room - frame)
    return [fit_item(item, cap) for item in items] if hot.sizes.largest > cap else items


class Compactor:
    """Compacts histories."""

    def __init__(self, store: Store, feed: LiveFeed, clock: Clock) -> None:
        self._store = store
        self._feed = feed
        self._clock = clock

    async def compact(self, draft: Draft, launch: Launch, pressure: Pressure, asking: Asking) -> Asked | None:
        """Compact the history if that is due or wanted. None: it was not, or cannot be; the round goes on.

        Otherwise the round is over: the next one finds the history compacted, or as it was.
        """
        head = draft.head
        due = draft.wants_completion and is_due(head, draft.options, pressure)
        if not due and not draft.compacting:
            return None
        forced = draft.compacting or head.overflowed
        cut = choose_cut(draft, await read_material(self._store, head), pressure)
        if cut is None or not (forced or is_worth_it(cut, pressure)):
            if forced:
                give_up(draft, NOTHING, pressure.tokens if head.overflowed else 0)
            else:
                put_off(head, pressure)
            return None
        facts = facts_of(head, await self._task(draft), await self._request(head.thread_id, cut))
        begin(draft, pressure)
        live = LiveTurn(head.thread_id, head.version, asking.attempt, tuple(draft.items), speaks=False)
        self._feed.begin(live)
        tries, failed = _Tries(), None
        try:
            await self._ask(tries, draft, cut, pressure, facts, asking)
        except ModelError as error:
            failed = error
        draft.now = self._clock.now()
        self._fold(draft, tries, failed, due=due, tokens=pressure.tokens)
        if tries.text:
            take_summary(draft, cut, complete(tries.text, facts), pressure, launch.frame)
        turn = TurnCommit.SUMMARIZED if tries.text else TurnCommit.NOT_SUMMARIZED
        name = "" if asking.name == launch.config.model else asking.name
        return Asked(turn, name, attempt=asking.attempt, usage=tries.usage, estimated=tries.estimated)

    def _fold(self, draft: Draft, tries: _Tries, failed: ModelError | None, *, due: bool, tokens: int) -> None:
        """Take in that there is no summary, if there is none."""
        if failed is not None and failed.retryable and due:
            fold_failure(draft, Failure.of(failed))
        elif failed is not None:
            give_up(draft, f"{failed.code}: {failed}", 0 if failed.retryable else tokens)
        elif tries.interrupted:
            draft.forget_failures()
            if not due:
                draft.notice("compaction_failed", "it was interrupted")
        elif not tries.text:
            give_up(draft, f"the model gave no summary that can be used: {tries.problem}", tokens)

    async def _ask(
        self, tries: _Tries, draft: Draft, cut: Cut, pressure: Pressure, facts: Sequence[str], asking: Asking
    ) -> None:
        room = history_room(pressure)
        added = text_tokens(complete("", facts))
        for _ in range(TRIES):
            again = AGAIN.format(problem=tries.problem) if tries.problem else ""
            request = ModelRequest(
                asking.name,
                INSTRUCTIONS,
                [UserItem(ASK.format(history=render(cut.items, room)) + again, origin="runtime")],
                (),
                draft.head.thread_id,
                "summary",
            )
            validate(request.transcript)
            try:
                tries.problem = await self._try(tries, draft, request, asking, cut.tokens - added, pressure.window)
            except (Refused, OutputTruncated) as error:
                tries.problem = f"{error.code}: {error}"
            except ContextOverflow as error:
                tries.problem = f"{error.code}: {error}"
                room //= 4
            if tries.interrupted or not tries.problem:
                return

    async def _try(
        self, tries: _Tries, draft: Draft, request: ModelRequest, asking: Asking, covered: int, window: int
    ) -> str:
        """Ask once; return what is wrong with the answer."""
        unseen = LiveTurn(request.thread_id, draft.head.version, asking.attempt, ())
        try:
            reason = await asking.stream(request, unseen)
        finally:
            spent = spent_on(unseen.pieces, lambda: _tokens(request), asking.prices)
            count(draft, spent)
            tries.usage = added(tries.usage, spent.usage)
            tries.estimated += spent.estimated
        if reason == "interrupted":
            tries.interrupted = True
            return ""
        buffer = TurnBuffer()
        buffer.feed_all(unseen.pieces)
        if reason or buffer.finish is None:
            raise ConnectionLost("the stream of the summary broke off")
        turn = buffer.turn()
        problem = judge(turn, covered, window)
        if not problem:
            tries.text = text_of(turn)
        return problem

    async def _task(self, draft: Draft) -> str:
        """Return what a child was made for: it is in its first page, or comes with this round."""
        head = draft.head
        if head.link is None:
            return ""
        rows = await self._store.read_log(head.thread_id, 0, 1) if head.version else []
        return task_of(head, decode_page(rows[0].page) if rows else draft.items)

    async def _request(self, thread_id: str, cut: Cut) -> Item | None:
        """Return the last request, where only a summary would have it."""
        if cut.request is not None or not cut.summary.asked:
            return cut.request
        rows = await self._store.read_log(thread_id, cut.summary.asked - 1, 1)
        return next((item for row in rows for item in reversed(decode_page(row.page)) if is_request(item)), None)


def _tokens(request: ModelRequest) -> int:
    return text_tokens(request.instructions) + items_tokens(request.transcript)
