"""One slice: load, ask the model, commit, dispatch at most what it may, end. The same code in every engine."""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec.structs import replace

from hibernaut.clock import Clock
from hibernaut.codec import sha256
from hibernaut.engine.compacting import Asking, Compactor, fit_sizes, pressure_on, prompt_tokens
from hibernaut.engine.counting import count_round, due_since
from hibernaut.engine.dispatcher import Dispatcher
from hibernaut.engine.launches import Launch, Launches
from hibernaut.engine.live import LiveFeed, LiveTurn
from hibernaut.engine.spending import spent_on
from hibernaut.engine.steps import Need, Steps, Stream, got
from hibernaut.engine.streams import STALLED_AFTER, InlineWait, LiveStream, let_go
from hibernaut.engine.transcripts import HotTranscript, Transcripts
from hibernaut.engine.work import Work, work_for
from hibernaut.errors import ConfigurationError, InvariantBroken, ModelError
from hibernaut.kernel.commit import Disposition, Effect
from hibernaut.kernel.compaction import Pressure, give_up
from hibernaut.kernel.draft import Draft, Found
from hibernaut.kernel.fold import Failure, Spent, count, fold_failure, fold_interrupted, fold_turn, spawns
from hibernaut.kernel.forms import Output
from hibernaut.kernel.head import Head, LoadedHead, Status
from hibernaut.kernel.outputs import form_wanted
from hibernaut.kernel.prepare import may_spawn, prepare
from hibernaut.kernel.queue import about_queue
from hibernaut.kernel.receipt import TurnCommit
from hibernaut.kernel.seal import Asked, seal
from hibernaut.kernel.turn import TurnBuffer
from hibernaut.kernel.violations import begun_without_leave, works_though_stopped
from hibernaut.messages.inputs import Command, Delivered, Event, Timer, ToolResult, UserText
from hibernaut.messages.stream import Counted, StreamPiece
from hibernaut.metrics import Metrics
from hibernaut.models.errors import ConnectionLost, ModelDefect, Refused
from hibernaut.models.prices import cost_of
from hibernaut.models.protocol import Model, ModelInfo, ModelRequest, ModelSource, OutputSpec
from hibernaut.stores.protocol import Claim, Round, Store
from hibernaut.tools.event_gate import EventGate
from hibernaut.tools.outputs import Form, form_of
from hibernaut.tools.running import is_asked_to_end
from hibernaut.version import build

if TYPE_CHECKING:
    from hibernaut.engine.toolsets import Toolsets
    from hibernaut.engine.traces import Traces

logger = logging.getLogger(__name__)

_FAILED, _COMPLETE = TurnCommit.FAILED, TurnCommit.COMPLETE

MAX_TRIES = 5
"""Claims of a thread that may come to nothing in a row before it is parked."""


class _Findings(msgspec.Struct, gc=False):
    """What one round found out on the way to its commit."""

    asked: Asked = msgspec.field(default_factory=Asked)
    hot: HotTranscript | None = None
    known: int = 0
    """Items of the draft that the transcript has already."""
    since: int = 0
    """Since when what it answers was due."""


class _Chosen(msgspec.Struct, frozen=True, gc=False):
    """The model that a thread is to be answered by."""

    name: str
    model: Model
    info: ModelInfo


class SliceRunner:
    """Runs slices. All it keeps of a thread is what a cache may lose."""

    def __init__(
        self,
        store: Store,
        launches: Launches,
        models: ModelSource,
        dispatcher: Dispatcher,
        feed: LiveFeed,
        clock: Clock,
        note_due: Callable[[int], None],
        toolsets: "Toolsets | None" = None,
        metrics: Metrics | None = None,
        traces: "Traces | None" = None,
    ) -> None:
        self._store = store
        self._metrics = metrics or Metrics()
        self._traces = traces
        self.is_traced = traces is not None
        """Whether slices run in spans: from their beginning to their end in one task, then."""
        self._stream = self._plain_stream if traces is None else self._traced_stream
        """Reads a stream into the pieces of a live turn; returns why it was stopped, "" if it was not."""
        self._toolsets = toolsets
        self._launches = launches
        self._models = models
        self._dispatcher = dispatcher
        self._feed = feed
        self._clock = clock
        self._note_due = note_due
        self._compactor = Compactor(store, feed, clock)
        self._gate = EventGate(store)
        self.transcripts = Transcripts(store)
        self.streams: dict[str, LiveStream | InlineWait] = {}
        """Completions and inline tools under way, by thread."""
        self._chosen: _Chosen | None = None
        """The model that was asked last; most threads have the same."""
        self._unborn: dict[str, tuple[str, int]] = {}
        """Root and number of the threads that rounds under way are about to make, by the thread that makes them."""
        self.on_stream: Callable[[str], None] = lambda thread_id: None
        """Told whenever a completion of a thread is under way, or inline tools that its slice waits for."""
        self.completions = 0
        """Turns that were completed and stored."""

    def begin(self, claim: Claim) -> Steps[None]:
        """Return the slice that a claim stands for. Once it has failed, or is given up, `abandon` it.

        Raises:
            StoreCorrupt, StoreFormatTooNew: the thread's head cannot be read.
        """
        return self._slice(claim, self.transcripts.head(claim.thread_id, claim.head))

    def abandon(self, thread_id: str) -> None:
        """Forget what a slice that came to nothing has left in memory."""
        self.transcripts.drop(thread_id)
        self._feed.end(thread_id)
        self._unborn.pop(thread_id, None)

    async def run(self, claim: Claim) -> None:
        """Run the slice that a claim stands for.

        Raises:
            StoreError: the store did not take it. Nothing changed that the next claim would not do again.
        """
        try:
            if self._traces is None:
                await self._alone(self.begin(claim))
            else:
                loaded = self.transcripts.head(claim.thread_id, claim.head)
                with self._traces.slice(claim, loaded.head) as span:
                    await self._alone(self._slice(claim, loaded))
                    span.note("hibernaut.status", loaded.head.status)
        except BaseException:
            self.abandon(claim.thread_id)
            raise

    async def _alone(self, steps: Steps[None]) -> None:
        """Run a slice from its beginning to its end, in this task."""
        try:
            need = next(steps)
            while True:
                try:
                    found = await self.get(need)
                except BaseException as error:  # noqa: BLE001  # it is the slice that has to know what to do about it
                    need = steps.throw(error)
                else:
                    need = steps.send(found)
        except StopIteration:
            return

    def get(self, need: Need, task: "asyncio.Task[None] | None" = None) -> Awaitable[Any]:
        """Get what a slice needs, in the current task."""
        if isinstance(need, Stream):
            return self._stream(need, task)
        if isinstance(need, Round):
            return self._store.commit(need.claim, need.commit, keep=need.keep)
        return need()

    async def store(self, rounds: Sequence[Round]) -> Sequence[Exception | None]:
        """Have the rounds of several slices stored; return for each why it was not, None if it was."""
        try:
            return await self._store.commit_all(rounds) if rounds else ()
        except Exception as error:  # noqa: BLE001  # it is handed to all of them
            return [error] * len(rounds)

    def _slice(self, claim: Claim, loaded: LoadedHead) -> Steps[None]:
        head = loaded.head
        launch = self._launches.ready(head) or (yield from got(self._launches.get, head))
        inputs: Sequence[Delivered] = claim.messages
        metrics = self._metrics
        due = due_since(head.status, inputs)
        rounds = launch.config.options.max_rounds
        for number in range(1, rounds + 1):
            started, was = self._clock.now(), head.status
            draft = (
                prepare(head, inputs, launch.config.options, started, authority=launch.authority)
                if claim.tries <= MAX_TRIES and _are_plain(inputs)
                else (yield from got(self._prepare, head, inputs, launch, started, claim.tries))
            )
            one = _Findings(since=due)
            if draft.wants_completion or (draft.compacting and head.status == "open"):
                yield from self._ask(one, draft, launch, claim.token << 8 | number)
            if head.status == "closed":
                yield from got(self._dispose_of_the_rest, draft)
            if was != "open" or head.status == "stopped":
                self._check_stopped(was, inputs, draft, one.asked.turn)
            if draft.effects and not draft.authority.is_open:
                self._check_leave(draft)
            commit = seal(draft, one.asked, started=started, now=draft.now, build=build(), extra=loaded.extra)
            owed: Sequence[Effect] = commit.effects
            inline = _inline(draft, owed) if owed and number < rounds else ()
            again = number < rounds and (commit.continues or bool(inline))
            yield Round(claim, commit, again)
            if self._unborn:
                self._unborn.pop(head.thread_id, None)
            self._follow(one, draft, len(commit.page))
            count_round(metrics, was, draft, one.asked, claim.tries > MAX_TRIES)
            if due:
                metrics.resumed.observe(self._clock.now() - due)
                due = 0
            if owed:
                self._dispatcher.perform(self._work(owed, draft, launch, without=inline))
            if not again:
                self.transcripts.keep(loaded, commit.head)
                metrics.slices += 1
                return
            if inline:
                yield from got(self._perform_inline, self._work(inline, draft, launch), draft)
            claim = replace(claim, version=commit.version, tries=1)
            inputs = yield from got(self._store.take, claim, self._clock.now())
            if draft.reauthorized:
                launch = yield from got(self._launches.get, head)

    async def _prepare(
        self, head: Head, inputs: Sequence[Delivered], launch: Launch, started: int, tries: int
    ) -> Draft:
        """Fold inputs into a thread of which something must be looked up, or whose slices came to nothing."""
        found = await self._look_up(head, inputs) if tries <= MAX_TRIES + 1 else Found()
        draft = _give_up(head, inputs, tries, launch, started, found) if tries > MAX_TRIES else None
        family = await self._family(head) if any(map(_may_spawn, inputs)) else 0
        draft = draft or prepare(head, inputs, launch.config.options, started, family, launch.authority, found)
        self._expect(draft)
        return draft

    async def _look_up(self, head: Head, inputs: Sequence[Delivered]) -> Found:
        """Look up what a round needs to know of its inputs."""
        authorities = await self._launches.authorities(head, inputs) if any(map(_authorizes, inputs)) else {}
        misfits = await self._gate.misfits(head.calls, inputs) if any(map(_is_event, inputs)) else {}
        queued = await self._queued(head.thread_id, inputs) if any(map(_about_queue, inputs)) else {}
        return Found(authorities, misfits, queued)

    async def _queued(self, thread_id: str, inputs: Sequence[Delivered]) -> dict[str, Delivered]:
        """Return what operators want to change of the messages that wait and were not handed over."""
        wanted = set(map(_about_queue, inputs)) - {one.message_id for one in inputs}
        waiting = await self._store.read_inbox(thread_id) if wanted else ()
        return {one.message_id: one for one in waiting if one.message_id in wanted}

    def _check_stopped(self, was: Status, inputs: Sequence[Delivered], draft: Draft, turn: TurnCommit) -> None:
        """Refuse to commit work in a thread that is stopped, whatever the rules say.

        Raises:
            InvariantBroken: there is such work.
        """
        if works_though_stopped(was, inputs, draft, turn):
            self._metrics.stop_violations += 1
            thread = draft.head.thread_id
            raise InvariantBroken(f"thread {thread} is {was}, and its slice would have worked all the same")

    def _check_leave(self, draft: Draft) -> None:
        """Refuse to begin calls that need leave and have none, whatever the rules say.

        Raises:
            InvariantBroken: there are such calls.
        """
        if calls := begun_without_leave(draft):
            self._metrics.approval_misbindings += len(calls)
            thread = draft.head.thread_id
            raise InvariantBroken(f"thread {thread} would have begun {', '.join(calls)} without leave")

    async def _dispose_of_the_rest(self, draft: Draft) -> None:
        """Give what still waits in the inbox of a thread that ends its disposition; nobody will come for it."""
        named = {name for name, disposition in draft.dispositions if disposition is not Disposition.DEFERRED}
        named.update(draft.dropped)
        rest = [one for one in await self._store.read_inbox(draft.head.thread_id) if one.message_id not in named]
        if rest:
            names = {one.message_id for one in rest}
            draft.dispositions = [entry for entry in draft.dispositions if entry[0] not in names]
            draft.dispose_all(rest, Disposition.CLOSED)
            draft.deferred = ()

    async def _perform_inline(self, work: Sequence[Work], draft: Draft) -> None:
        thread_id, scope = draft.head.thread_id, asyncio.timeout(None)
        inputs = frozenset([name for name, _ in draft.dispositions])
        self.streams[thread_id] = InlineWait(scope, self._clock.now(), inputs)
        try:
            with suppress(TimeoutError):
                async with scope:
                    self.on_stream(thread_id)
                    await self._dispatcher.perform_here(work)
        finally:
            self.streams.pop(thread_id, None)

    def _work(
        self, effects: Sequence[Effect], draft: Draft, launch: Launch, without: Sequence[Effect] = ()
    ) -> list[Work]:
        return [work_for(effect, draft.head, launch.config) for effect in effects if effect not in without]

    def _follow(self, one: _Findings, draft: Draft, size: int) -> None:
        """Bring what is kept in memory up to a commit that the store has taken."""
        head = draft.head
        if one.hot is not None:
            self.transcripts.advance(head, one.hot, draft.items[one.known :], size)
        if one.asked.turn is _COMPLETE:
            self.completions += 1
        self._feed.end(head.thread_id)
        for outgoing in draft.outgoing:
            self._note_due(outgoing.due)
        for _, due in draft.deferred:
            self._note_due(due)

    # The completion

    def _ask(self, one: _Findings, draft: Draft, launch: Launch, attempt: int) -> Steps[None]:
        """Ask the model for what is due: a summary of the history, if it has grown too long, or the next turn."""
        head, name = draft.head, draft.head.model or launch.config.model
        if self._toolsets is not None:
            yield from got(self._equip, self._toolsets, draft, launch)
        if head.toolsets or head.authority:
            launch = yield from got(self._launches.equipped, head)
            for clash in launch.clashes if draft.blobs else ():
                draft.notice("tool_refused", str(clash))
        hot = one.hot = self.transcripts.ready(head) or (yield from got(self.transcripts.at, head))
        hot.extend(draft.items)
        one.known = len(draft.items)
        try:
            chosen = self._model(name)
        except (ModelError, ConfigurationError) as error:
            if draft.wants_completion:
                self._note(one.asked, name, attempt, launch, one.known)
                self._failed(draft, error)
            else:
                give_up(draft, str(error), 0)
            return
        pressure = pressure_on(draft, launch, chosen.info, hot)
        if pressure is not None:
            asking = Asking(name, attempt, partial(self._stream_for, chosen.model, draft), chosen.info.prices)
            compacted = yield from got(self._compactor.compact, draft, launch, pressure, asking)
            if compacted is not None:
                one.asked = compacted
                return
        if pressure is None or draft.wants_completion:
            self._note(one.asked, name, attempt, launch, one.known)
            yield from self._complete(one, draft, launch, chosen, pressure, hot)

    async def _equip(self, toolsets: "Toolsets", draft: Draft, launch: Launch) -> None:
        """Ask the servers for their tools that the thread has nothing of yet."""
        head = draft.head
        wanted = toolsets.wanted(launch.config.servers, head.toolsets)
        if not wanted:
            return
        found = await toolsets.find(wanted)
        draft.now = self._clock.now()
        draft.blobs += tuple(found.manifests.values())
        head.toolsets = head.toolsets | {name: blob.digest for name, blob in found.manifests.items()}
        if not head.items:
            for name, why in found.problems.items():
                draft.notice("server_down", f"{name}: {why}")

    def _note(self, asked: Asked, name: str, attempt: int, launch: Launch, shown: int) -> None:
        """Note for the receipt what is asked; unless more is heard of it, it has failed."""
        asked.turn, asked.model = _FAILED, "" if name == launch.config.model else name
        asked.shown, asked.attempt, asked.tools = shown, attempt, launch.table.digest

    def _complete(
        self,
        one: _Findings,
        draft: Draft,
        launch: Launch,
        chosen: _Chosen,
        pressure: Pressure | None,
        hot: HotTranscript,
    ) -> Steps[None]:
        head, asked = draft.head, one.asked
        buffer = TurnBuffer()
        pieces: Sequence[StreamPiece] = ()

        try:
            form = form_of(wanted) if head.asks and (wanted := form_wanted(head)) else None
            transcript = hot.checked()
            if hot.has_images:
                transcript = yield from got(hot.fitted, transcript, chosen.info, self._store)
            if pressure is not None:
                transcript = fit_sizes(transcript, hot, pressure, launch.frame)
            request = ModelRequest(
                chosen.name,
                launch.config.instructions,
                transcript,
                launch.table.specs,
                head.thread_id,
                memo=hot.memo_of(transcript),
                tree_id=_root_of(head),
            )
            if form is not None:
                draft.output = Output(form)
                request = _in_form(request, form, chosen.info)
                asked.tools = sha256(launch.table.digest, form.schema.encode())
            live = LiveTurn(head.thread_id, head.version, asked.attempt, tuple(draft.items), since=one.since)
            self._feed.begin(live)
            pieces = live.pieces
            reason: str = yield Stream(chosen.model, request, live, draft)
            draft.now = self._clock.now()
            buffer.feed_all(live.pieces)
            if reason == "stalled":
                raise ConnectionLost(f"no answer for {STALLED_AFTER / 1000:.0f} s")
            if reason == "interrupted":
                _spend(asked, draft, pieces, partial(prompt_tokens, draft, launch, hot, pressure), chosen.info)
                fold_interrupted(draft, buffer.interrupted())
                asked.turn = TurnCommit.INTERRUPTED
                return
            if buffer.finish is None:
                raise ConnectionLost("the stream ended before the turn was complete")
            turn = buffer.turn(cost_of(chosen.info.prices, buffer.finish))
            if turn.reason == "refused":
                raise Refused(buffer.visible() or "the model declined to answer")
        except (ModelError, ConfigurationError) as error:
            _spend(asked, draft, pieces, partial(prompt_tokens, draft, launch, hot, pressure), chosen.info)
            self._failed(draft, error)
            return
        if spawns(turn):
            draft.family = (yield from got(self._family, head)) + len(draft.spawned)
        fold_turn(draft, turn, launch.table)
        self._expect(draft)
        asked.turn, asked.usage = _COMPLETE, turn.usage

    def _failed(self, draft: Draft, error: ModelError | ConfigurationError) -> None:
        draft.now = self._clock.now()
        fold_failure(draft, Failure.of(error))

    async def _family(self, head: Head) -> int:
        """Count the threads that live below the root of a tree, with those that other slices are about to make."""
        root = _root_of(head)
        before = self._expected_in(root, head.thread_id)
        living = await self._store.count_living(root)
        # What was committed while it was counted may be counted twice, but is never left out.
        return living + max(before, self._expected_in(root, head.thread_id))

    def _expect(self, draft: Draft) -> None:
        """Note what a round is about to make, so that others of its tree count it."""
        if draft.spawned:
            self._unborn[draft.head.thread_id] = draft.spawned[0].root, len(draft.spawned)

    def _expected_in(self, root: str, without: str) -> int:
        return sum(count for name, (tree, count) in self._unborn.items() if tree == root and name != without)

    def _model(self, name: str) -> _Chosen:
        model = self._models.resolve(name)
        info, last = getattr(model, "info", None), self._chosen
        if last is not None and last.model is model and last.info is info and last.name == name:
            return last
        if not isinstance(info, ModelInfo) or not hasattr(model, "stream"):
            raise ConfigurationError(f"{model!r} is no model: it needs an `info` (a ModelInfo) and a method `stream`")
        self._chosen = _Chosen(name, model, info)
        return self._chosen

    def _stream_for(self, model: Model, draft: Draft, request: ModelRequest, live: LiveTurn) -> Awaitable[str]:
        return self._stream(Stream(model, request, live, draft), None)

    async def _traced_stream(self, need: Stream, task: "asyncio.Task[None] | None") -> str:
        """Do the same as `_plain_stream`, in a span."""
        if self._traces is None:
            return await self._plain_stream(need, task)
        with self._traces.completion(need.request, need.model.info) as span:
            reason = await self._plain_stream(need, task)
            span.finish(need.live.pieces, reason)
            return reason

    async def _plain_stream(self, need: Stream, task: "asyncio.Task[None] | None") -> str:
        """Read the stream into `live.pieces`; return why it was stopped, "" if it was not."""
        live, draft = need.live, need.draft
        thread_id, feed, received = live.thread_id, self._feed, live.pieces
        observers = feed.observers
        stream = self.streams[thread_id] = LiveStream(
            received, draft.now, draft.dispositions, task or asyncio.current_task()
        )
        whole = False
        pieces: AsyncIterator[StreamPiece] | None = None
        try:
            pieces = need.model.stream(need.request)
            self.on_stream(thread_id)
            waiting = bool(live.since)
            async for piece in pieces:
                if waiting and type(piece) is not Counted:
                    waiting = False
                    self._metrics.first_piece.observe(self._clock.now() - live.since)
                received.append(piece)
                if observers:
                    feed.moved(thread_id)
                if stream.reason:  # the provider swallowed the cancellation and goes on
                    break
            whole = not stream.reason
        except asyncio.CancelledError as error:
            if not stream.was_stopped():
                if is_asked_to_end():
                    raise
                raise ConnectionLost("the provider cancelled the stream") from error
        except TimeoutError as error:
            raise ConnectionLost(f"the provider gave up: {str(error) or 'it took too long'}") from error
        except (ModelError, ConfigurationError):
            raise
        except Exception as error:
            # A model is a stranger too: what its code raises parks its thread, with the words of the error.
            logger.exception("the model of thread %s failed", thread_id)
            raise ModelDefect(f"{type(error).__name__}: {error}") from error
        finally:
            del self.streams[thread_id]
            if not whole:
                await let_go(pieces)
        stream.was_stopped()
        return stream.reason


def _give_up(
    head: Head, inputs: Sequence[Delivered], tries: int, launch: Launch, now: int, found: Found
) -> Draft | None:
    """Park a thread whose slices came to nothing, first with its inputs taken in, then (if that fails too) without."""
    if head.status != "open":
        return None
    if tries > MAX_TRIES + 1:
        draft = Draft(head, launch.config.options, now)
        draft.dispose_all(inputs, Disposition.REFUSED)
    else:
        draft = prepare(head, inputs, launch.config.options, now, authority=launch.authority, found=found)
    draft.park(f"{tries - 1} slices in a row came to nothing; the engine's log says why")
    return draft


def _spend(
    asked: Asked, draft: Draft, pieces: Sequence[StreamPiece], prompt: Callable[[], int], info: ModelInfo
) -> None:
    """Count what a completion took that came to nothing. `prompt` estimates the tokens that it was asked with."""
    spent = spent_on(pieces, prompt, info.prices)
    if spent != Spent():
        asked.usage, asked.estimated = spent.usage, spent.estimated
        count(draft, spent)


def _in_form(request: ModelRequest, form: Form, info: ModelInfo) -> ModelRequest:
    """Return a request whose answer is to have a form."""
    if info.structured:
        return replace(request, output=OutputSpec(form.schema, form.tool))
    return replace(request, tools=(*request.tools, form.tool))


def _root_of(head: Head) -> str:
    return head.link.root if head.link else head.thread_id


_PLAIN = frozenset({UserText, ToolResult, Timer})


def _are_plain(inputs: Sequence[Delivered]) -> bool:
    """Tell that nothing has to be looked up for inputs."""
    for one in inputs:  # noqa: SIM110  # it is asked for every round, and a generator takes four times as long
        if one.message is None or type(one.message.content) not in _PLAIN:
            return False
    return True


def _is_event(delivered: Delivered) -> bool:
    return delivered.message is not None and isinstance(delivered.message.content, Event)


def _authorizes(delivered: Delivered) -> bool:
    content = delivered.message.content if delivered.message else None
    return isinstance(content, Command) and content.action == "authorize"


def _about_queue(arrived: Delivered) -> str:
    return about_queue(arrived.message.content) if arrived.message else ""


def _may_spawn(arrived: Delivered) -> bool:
    return arrived.message is not None and may_spawn(arrived.message.content)


def _inline(draft: Draft, effects: Sequence[Effect]) -> list[Effect]:
    """Return those that are performed within the slice."""
    calls = {name for name, call in draft.head.calls.items() if call.mode == "inline"}
    return [effect for effect in effects if effect.kind == "invoke" and effect.call_id in calls]
