"""The events of a streamed answer, and the pieces of a turn that they hold."""

from collections.abc import Iterable, Iterator
from typing import Any, Final

import msgspec

from hibernaut.codec import to_json
from hibernaut.messages.events import Usage
from hibernaut.messages.stream import (
    CallDelta,
    CallEnded,
    CallStarted,
    Counted,
    Finish,
    ReasoningBlock,
    StopReason,
    StreamPiece,
    TextDelta,
    ThinkingDelta,
)
from hibernaut.messages.text import join_surrogates
from hibernaut.models.anthropic.failures import Said, failure_in_stream
from hibernaut.models.dialect import Frame
from hibernaut.models.json_text import read_json
from hibernaut.models.tool_names import ToolNames

DONE: Final = "[DONE]"
"""With what some servers end a stream."""

REASONS: Final[dict[str, StopReason]] = {
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "pause_turn": "length",
    "refusal": "refused",
}
"""Why a turn ends; for any other reason it is complete. One that was paused is to be gone on with."""


class _Details(msgspec.Struct):
    explanation: str | None = None


class _Usage(msgspec.Struct):
    input_tokens: int | None = None
    output_tokens: int | None = None
    cache_creation_input_tokens: int | None = None
    cache_read_input_tokens: int | None = None


class _Message(msgspec.Struct):
    usage: _Usage | None = None


class _Block(msgspec.Struct):
    type: str = ""
    id: str | None = None
    name: str | None = None
    text: str | None = None
    thinking: str | None = None
    signature: str | None = None
    data: str | None = None
    input: Any = None


class _Delta(msgspec.Struct):
    type: str | None = None
    text: str | None = None
    partial_json: str | None = None
    thinking: str | None = None
    signature: str | None = None
    stop_reason: str | None = None
    stop_details: _Details | None = None


class _Event(msgspec.Struct):
    type: str = ""
    index: int = 0
    message: _Message | None = None
    content_block: _Block | None = None
    delta: _Delta | None = None
    usage: _Usage | None = None
    error: Said | None = None


_events = msgspec.json.Decoder(_Event)


class _Open(msgspec.Struct):
    """A block that has begun."""

    kind: str
    pieces: list[str] = []
    signature: str = ""
    given: Any = None
    """Arguments that came with the beginning of a call."""


class AnthropicReader:
    """Reads one answer.

    The end of a call is held back until something follows that shows that the call is whole: the output limit may have
    cut it off.

    Args:
        dialect: with what reasoning is marked.
        names: how tools are called on the wire.
    """

    def __init__(self, dialect: str, names: ToolNames) -> None:
        self._dialect = dialect
        self._names = names
        self._open: dict[int, _Open] = {}
        self._held: list[CallEnded] = []
        self._spoke = False
        self._reason: StopReason | None = None
        self._finished = False
        self._usage = _Usage()

    def feed(self, frame: Frame) -> Iterable[StreamPiece]:
        """Return the pieces that an event holds."""
        if frame.data == DONE:
            return self.end()
        event = read_json(frame.data, _events)
        match event.type or frame.kind:
            case "message_start" if event.message is not None:
                self._count(event.message.usage)
                return self._begun()
            case "content_block_start" if event.content_block is not None:
                return self._begin(event.index, event.content_block)
            case "content_block_delta" if event.delta is not None:
                return self._go_on(event.index, event.delta)
            case "content_block_stop":
                return self._stop(event.index)
            case "message_delta":
                self._count(event.usage)
                return self._conclude(event.delta or _Delta())
            case "message_stop":
                return self.end()
            case "error":
                raise failure_in_stream(event.error or Said())
            case _:
                pass  # a ping, or something new
        return ()

    def end(self) -> Iterable[StreamPiece]:
        """Return what is still owed when the stream has ended."""
        if self._reason is None or self._finished:
            return ()
        self._finished = True
        ended = self._release() if self._reason == "end" else ()
        return (*ended, Finish(self._reason, self._counted(), self._usage.cache_creation_input_tokens or 0))

    def _begun(self) -> Iterator[StreamPiece]:
        counted = self._counted()
        if counted.input:
            yield Counted(counted, self._usage.cache_creation_input_tokens or 0)

    def _begin(self, index: int, block: _Block) -> Iterator[StreamPiece]:
        yield from self._release()
        opened = self._open[index] = _Open(block.type, [], block.signature or "")
        if block.type == "tool_use":
            self._spoke = True
            opened.given = block.input
            yield CallStarted(index, self._names.of(block.name or ""), block.id or "")
        elif block.type == "redacted_thinking":
            opened.signature = block.data or ""
        elif block.type == "thinking":
            yield from self._more_thinking(opened, block.thinking)
        elif block.type == "text":
            yield from self._more_text(block.text)

    def _go_on(self, index: int, delta: _Delta) -> Iterator[StreamPiece]:
        opened = self._open.get(index)
        if opened is None:
            return
        if opened.kind == "text":
            yield from self._more_text(delta.text)
        elif opened.kind == "thinking":
            opened.signature += delta.signature or ""
            yield from self._more_thinking(opened, delta.thinking)
        elif opened.kind == "tool_use" and delta.partial_json:
            opened.given = None
            opened.pieces.append("")
            yield CallDelta(index, delta.partial_json)

    def _stop(self, index: int) -> Iterator[StreamPiece]:
        opened = self._open.pop(index, None)
        if opened is None:
            return
        if opened.kind == "tool_use":
            if not opened.pieces:
                yield CallDelta(index, to_json(opened.given) if opened.given else "{}")
            self._held.append(CallEnded(index))
        elif opened.kind == "redacted_thinking":
            yield self._block({"type": "redacted_thinking", "data": opened.signature})
        elif opened.kind == "thinking" and opened.signature:
            text = join_surrogates("".join(opened.pieces))
            yield self._block({"type": "thinking", "thinking": text, "signature": opened.signature}, text)

    def _conclude(self, delta: _Delta) -> Iterator[StreamPiece]:
        if delta.stop_reason is None:
            return
        self._reason = REASONS.get(delta.stop_reason, "end")
        explained = delta.stop_details.explanation if delta.stop_details else None
        if self._reason == "refused" and explained and not self._spoke:
            yield TextDelta(explained)

    def _more_text(self, text: str | None) -> Iterator[StreamPiece]:
        if text:
            self._spoke = True
            yield TextDelta(text)

    def _more_thinking(self, opened: _Open, text: str | None) -> Iterator[StreamPiece]:
        if text:
            opened.pieces.append(text)
            yield ThinkingDelta(text)

    def _block(self, block: dict[str, str], text: str = "") -> ReasoningBlock:
        return ReasoningBlock(self._dialect, msgspec.json.encode(block), text)

    def _release(self) -> Iterable[StreamPiece]:
        held, self._held = self._held, []
        return held

    def _count(self, usage: _Usage | None) -> None:
        """Take counts, which are those of the whole answer so far. Some servers say at the end that the input was 0."""
        if usage is None:
            return
        for name in _Usage.__struct_fields__:
            count = getattr(usage, name)
            if count or (count is not None and name == "output_tokens"):
                setattr(self._usage, name, count)

    def _counted(self) -> Usage:
        usage = self._usage
        cached = usage.cache_read_input_tokens or 0
        taken = (usage.input_tokens or 0) + cached + (usage.cache_creation_input_tokens or 0)
        return Usage(taken, usage.output_tokens or 0, cached)
