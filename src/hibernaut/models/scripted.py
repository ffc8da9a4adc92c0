"""A model that plays a script. Tests, the demo and benchmarks run on it.

    model = ScriptedModel([
        turn(think("Let me see."), call("read", path="a.txt"), usage=Usage(120, 15)),
        RateLimited("slow down", retry_after=2_000),
        fail(ConnectionLost("reset"), say("The file says hello", chunks=4), after=3),
        turn("The file says ", gate, "hello.", delay=20),
    ])

A script is turns in a row, or turns in a row for each thread, or a function from a request to what is to be played,
which may also be a generator of pieces. Turns are data: made once, played as often as wanted, and parts of other turns.
"""

import inspect
from asyncio import get_running_loop
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import aclosing
from operator import length_hint
from typing import Any, Protocol, TypeAlias

import msgspec

from hibernaut.clock import Clock, SystemClock
from hibernaut.codec import to_json
from hibernaut.kernel.outside import unfenced
from hibernaut.kernel.transcript import validate
from hibernaut.messages.events import Usage
from hibernaut.messages.items import ResultItem, UserItem
from hibernaut.messages.parts import plain_text
from hibernaut.messages.stream import (
    CallDelta,
    CallEnded,
    CallStarted,
    Finish,
    ReasoningBlock,
    StopReason,
    StreamPiece,
    TextDelta,
    ThinkingDelta,
)
from hibernaut.models.protocol import ModelInfo, ModelRequest


class Pause(Protocol):
    """Something that holds a stream up, for a time or for ever, or breaks it by raising."""

    async def pause(self, clock: Clock, /) -> None:
        """Return when the stream may go on."""
        ...


Step: TypeAlias = StreamPiece | Pause
Chunks: TypeAlias = int | Sequence[int]
"""The size of each chunk in characters, or the sizes of the first ones; what is left over is the last one."""


class ScriptedTurn:
    """What is played for one request: the body, which other turns can take over, and how the stream ends."""

    __slots__ = ("body", "ending", "pieces", "plain", "steps")

    def __init__(self, body: Iterable[Step], ending: tuple[Step, ...]) -> None:
        self.body = tuple(map(_checked, body))
        self.ending = ending
        self.steps = self.body + ending
        self.pieces = tuple(step for step in self.steps if isinstance(step, StreamPiece))
        """All that a provider would send, without the pauses."""
        self.plain = len(self.pieces) == len(self.steps)


Part: TypeAlias = str | ScriptedTurn | Step
Playable: TypeAlias = str | ScriptedTurn | Exception
Answer: TypeAlias = Playable | Iterable[Step] | AsyncGenerator[Step, None]
ScriptFunction: TypeAlias = Callable[[ModelRequest], Answer | Awaitable[Answer]]
Script: TypeAlias = Playable | Iterable[Playable] | Mapping[str, Iterable[Playable]] | ScriptFunction


# Turns


def say(*text: str, chunks: Chunks | None = None) -> ScriptedTurn:
    """Say a text, in the pieces given or in chunks."""
    return ScriptedTurn(map(TextDelta, _chunked(text, chunks)), _END)


def think(*text: str, data: bytes = b"", provider: str = "scripted", chunks: Chunks | None = None) -> ScriptedTurn:
    """Think aloud; with `data` the provider's own block follows, to be replayed."""
    block = (ReasoningBlock(provider, data, "".join(text)),) if data else ()
    return ScriptedTurn((*map(ThinkingDelta, _chunked(text, chunks)), *block), _END)


def call(tool: str, arguments: Mapping[str, Any] | None = None, /, **more: Any) -> ScriptedTurn:
    """Call a tool."""
    return call_raw(tool, to_json({**(arguments or {}), **more}))


def call_raw(
    tool: str,
    *arguments: str,
    provider_id: str = "",
    data: bytes = b"",
    ended: bool = True,
    chunks: Chunks | None = None,
) -> ScriptedTurn:
    """Call a tool with arguments as they stand, in the pieces given or in chunks; not `ended` is half a call."""
    deltas = (CallDelta(0, piece) for piece in _chunked(arguments, chunks))
    end = (CallEnded(0, data),) if ended else ()
    return ScriptedTurn((CallStarted(0, tool, provider_id), *deltas, *end), _END)


def turn(
    *parts: Part,
    reason: StopReason | None = None,
    usage: Usage | None = None,
    chunks: int | None = None,
    delay: int = 0,
    first_delay: int = 0,
) -> ScriptedTurn:
    """Put parts together, as one turn. Without parts it is an empty one.

    Args:
        parts: a str is said; the calls of several parts are numbered; a last part that breaks the stream still does.
        reason: why the turn ends, if not because it is complete.
        usage: tokens that it reports.
        chunks: characters in each delta; default: as the parts have them.
        delay: milliseconds before each delta.
        first_delay: milliseconds before anything comes.
    """
    body, ending = _joined(parts)
    if reason is not None or usage is not None:
        finish = ending[-1] if ending else None
        if not isinstance(finish, Finish):
            raise ValueError("a turn that breaks off has neither a reason nor a usage")
        ending = (Finish(reason or finish.reason, usage or finish.usage),)
    if chunks:
        body = [smaller for step in body for smaller in _rechunked(step, chunks)]
    if delay:
        body = [timed for step in body for timed in ((_Wait(delay), step) if isinstance(step, _DELTAS) else (step,))]
    if first_delay:
        body.insert(0, _Wait(first_delay))
    return ScriptedTurn(body, ending)


def refuse(*parts: Part) -> ScriptedTurn:
    """Decline to answer, in these words."""
    return turn(*parts, reason="refused")


def cut(*parts: Part, after: int | None = None, usage: Usage | None = None) -> ScriptedTurn:
    """Reach the output limit, `after` so many pieces. By default at the end: half a call, if that is where it ends."""
    body = _first(_joined(parts)[0], after)
    if after is None and body and isinstance(body[-1], CallEnded):
        body.pop()
    return ScriptedTurn(body, (Finish("length", usage or Usage()),))


def fail(error: Exception, *parts: Part, after: int | None = None) -> ScriptedTurn:
    """Raise, `after` so many pieces of the parts or after all of them."""
    return ScriptedTurn(_first(_joined(parts)[0], after), (_Raise(error),))


def drop(*parts: Part, after: int | None = None) -> ScriptedTurn:
    """Let the stream end without its last piece, `after` so many pieces of the parts or after all of them."""
    return ScriptedTurn(_first(_joined(parts)[0], after), ())


def stall(*parts: Part, after: int | None = None) -> ScriptedTurn:
    """Fall silent for ever, `after` so many pieces of the parts or after all of them."""
    return ScriptedTurn(_first(_joined(parts)[0], after), (_Stall(),))


def pieces(steps: Iterable[Step]) -> ScriptedTurn:
    """Play exactly these pieces (and pauses), whatever they are."""
    body = list(steps)
    ending = (body.pop(),) if body and isinstance(body[-1], Finish) else ()
    return ScriptedTurn(body, ending)


# What a function of requests wants to know


def last_user_text(request: ModelRequest) -> str:
    """Return what a person said last; "" if nobody did. Notes of the runtime do not count."""
    said = (item for item in reversed(request.transcript) if isinstance(item, UserItem) and not item.origin)
    item = next(said, None)
    return plain_text(item.content) if item else ""


def results(request: ModelRequest) -> list[str]:
    """Return the texts of all results, events included, in order."""
    return [plain_text(item.content) for item in request.transcript if isinstance(item, ResultItem)]


def last_result(request: ModelRequest) -> str:
    """Return the text of the last result, of an event what it says itself; "" if there is none."""
    found = (item for item in reversed(request.transcript) if isinstance(item, ResultItem))
    item = next(found, None)
    return unfenced(plain_text(item.content)) if item else ""


# The model


class ScriptExhausted(AssertionError):
    """A request came for which the script has no turn."""


class ScriptedModel:
    """A `Model` that plays a script, and remembers what it was asked.

    With `record` it keeps the requests, each with its own copy of the transcript. With `check` it refuses a transcript
    that no provider would take (`TranscriptInvalid`). Both cost time that grows with the transcript.
    """

    def __init__(
        self,
        script: Script,
        *,
        clock: Clock | None = None,
        info: ModelInfo | None = None,
        record: bool = True,
        check: bool = True,
    ) -> None:
        self.info = info or ModelInfo()
        self.requests: list[ModelRequest] = []
        self.streaming = 0
        """Streams that were begun and have neither ended nor been closed."""
        self._clock = clock or SystemClock()
        self._record = record
        self._check = check
        self._queues: Mapping[str, _Queue] = {}
        self._answer = self._reader(script)

    @property
    def left(self) -> int:
        """Turns that were not played yet; of an iterator and a function it is unknown and counts as none."""
        return sum(queue.left() for queue in self._queues.values())

    async def stream(self, request: ModelRequest) -> AsyncGenerator[StreamPiece, None]:
        """Play the next turn."""
        self.streaming += 1
        try:
            if self._record:
                self.requests.append(msgspec.structs.replace(request, transcript=tuple(request.transcript)))
            if self._check:
                validate(request.transcript)
            answer = self._answer(request)
            if type(answer) is not ScriptedTurn:
                answer = await _settled(answer)
            if isinstance(answer, ScriptedTurn) and answer.plain:
                for piece in answer.pieces:
                    yield piece
                return
            async with aclosing(_each(answer)) as steps:
                async for step in steps:
                    if isinstance(step, StreamPiece):
                        yield step
                    else:
                        await step.pause(self._clock)
        finally:
            self.streaming -= 1

    def _reader(self, script: Script) -> ScriptFunction:
        if isinstance(script, str | ScriptedTurn | Exception):
            script = [script]
        if isinstance(script, Mapping):
            self._queues = {thread_id: _Queue(turns) for thread_id, turns in script.items()}
            return self._of_thread
        if callable(script):
            return script
        self._queues = {"": _Queue(script)}
        return self._queues[""].next

    def _of_thread(self, request: ModelRequest) -> ScriptedTurn:
        queue = self._queues.get(request.thread_id)
        if queue is None:
            raise ScriptExhausted(f"no script for thread {request.thread_id!r}, only for {sorted(self._queues)}")
        return queue.next(request)


class _Queue:
    def __init__(self, turns: Iterable[Playable]) -> None:
        ready = map(as_turn, turns)
        self._turns = iter(tuple(ready)) if isinstance(turns, Sequence) else ready
        self._played = 0

    def next(self, request: ModelRequest) -> ScriptedTurn:
        following = next(self._turns, None)
        if following is None:
            last = repr(request.transcript[-1]) if request.transcript else "nothing"
            raise ScriptExhausted(
                f"the script ended after {self._played} turns; now thread {request.thread_id!r} asks {last:.200}"
            )
        self._played += 1
        return following

    def left(self) -> int:
        return length_hint(self._turns)


# How it is done


class _Wait(msgspec.Struct, frozen=True):
    milliseconds: int

    async def pause(self, clock: Clock, /) -> None:
        await clock.sleep(self.milliseconds)


class _Raise(msgspec.Struct, frozen=True):
    error: Exception

    async def pause(self, _clock: Clock, /) -> None:
        raise self.error.with_traceback(None)


class _Stall(msgspec.Struct, frozen=True):
    async def pause(self, _clock: Clock, /) -> None:
        await get_running_loop().create_future()


_DELTAS = (TextDelta, ThinkingDelta, CallDelta)
_END = (Finish(),)


def _checked(step: Step) -> Step:
    if not isinstance(step, StreamPiece) and not hasattr(step, "pause"):
        raise TypeError(f"{step!r} is neither a piece of a stream nor a pause")
    return step


def as_turn(turn: Playable) -> ScriptedTurn:
    """Return what is played as a turn: a str is said, an error is how the turn fails from the start."""
    if isinstance(turn, str):
        return say(turn)
    return fail(turn) if isinstance(turn, Exception) else turn


def _joined(parts: Iterable[Part]) -> tuple[list[Step], tuple[Step, ...]]:
    body: list[Step] = []
    ending: tuple[Step, ...] = _END
    calls = 0
    for part in parts:
        if ending != _END:
            raise ValueError("nothing can follow a part that says how the stream ends")
        if not isinstance(part, str | ScriptedTurn):
            body.append(part)
            continue
        taken = as_turn(part)
        ending = taken.ending
        body += (_numbered(step, calls) for step in taken.body)
        calls += sum(isinstance(step, CallStarted) for step in taken.body)
    return body, ending


def _numbered(step: Step, first: int) -> Step:
    if first and isinstance(step, CallStarted | CallDelta | CallEnded):
        return msgspec.structs.replace(step, index=first + step.index)
    return step


def _first(body: list[Step], after: int | None) -> list[Step]:
    """Return the body up to its piece number `after`."""
    if after is None:
        return body
    ends = [place for place, step in enumerate(body, 1) if isinstance(step, StreamPiece)]
    if not 0 <= after <= len(ends):
        raise ValueError(f"there are {len(ends)} pieces, so none can be the last after {after}")
    return body[: ends[after - 1]] if after else []


def _chunked(text: tuple[str, ...], chunks: Chunks | None) -> Iterable[str]:
    return text if chunks is None else _slices("".join(text), chunks)


def _slices(text: str, chunks: Chunks) -> Iterator[str]:
    if isinstance(chunks, int):
        yield from (text[place : place + chunks] for place in range(0, len(text), chunks))
        return
    for size in chunks:
        yield text[:size]
        text = text[size:]
    if text:
        yield text


def _rechunked(step: Step, chunks: int) -> Iterable[Step]:
    if isinstance(step, CallDelta):
        return [CallDelta(step.index, piece) for piece in _slices(step.arguments, chunks)]
    if isinstance(step, TextDelta | ThinkingDelta):
        return [type(step)(piece) for piece in _slices(step.text, chunks)]
    return (step,)


async def _settled(answer: Answer | Awaitable[Answer]) -> ScriptedTurn | Iterable[Step] | AsyncGenerator[Step, None]:
    if inspect.isawaitable(answer):
        answer = await answer
    return as_turn(answer) if isinstance(answer, str | Exception) else answer


async def _each(answer: ScriptedTurn | Iterable[Step] | AsyncGenerator[Step, None]) -> AsyncGenerator[Step, None]:
    if isinstance(answer, AsyncGenerator):
        async with aclosing(answer):
            async for step in answer:
                yield _checked(step)
    else:
        for step in answer.steps if isinstance(answer, ScriptedTurn) else answer:
            yield _checked(step)
