"""An answer of the Converse API: blocks that begin, grow and end, then why the turn ended, then what it took."""

from base64 import b64decode, b64encode
from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec

from hibernaut.messages.events import Usage
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
from hibernaut.messages.text import join_surrogates
from hibernaut.models.bedrock.failures import failure_in
from hibernaut.models.dialect import Frame
from hibernaut.models.errors import ContextOverflow, Overloaded
from hibernaut.models.json_text import read_json
from hibernaut.models.tool_names import ToolNames

_REASONS: Final[Mapping[str, StopReason]] = {
    "end_turn": "end",
    "tool_use": "end",
    "stop_sequence": "end",
    "max_tokens": "length",
    "content_filtered": "refused",
    "guardrail_intervened": "refused",
    "refusal": "refused",
}

_FAULTS: Final = frozenset({"malformed_model_output", "malformed_tool_use"})


class _ToolUse(msgspec.Struct, frozen=True, rename="camel"):
    tool_use_id: str = ""
    name: str = ""
    input: str = ""
    type: str | None = None


class _Start(msgspec.Struct, frozen=True, rename="camel"):
    tool_use: _ToolUse | None = None


class _Reasoning(msgspec.Struct, frozen=True, rename="camel"):
    text: str | None = None
    signature: str | None = None
    redacted_content: str | None = None


class _Delta(msgspec.Struct, frozen=True, rename="camel"):
    text: str | None = None
    tool_use: _ToolUse | None = None
    reasoning_content: _Reasoning | None = None


class _Usage(msgspec.Struct, frozen=True, rename="camel"):
    input_tokens: int = 0
    output_tokens: int = 0
    cache_read_input_tokens: int = 0
    cache_write_input_tokens: int = 0


class _Event(msgspec.Struct, frozen=True, rename="camel"):
    """Members of all kinds of events; no two kinds have one with two meanings."""

    content_block_index: int = 0
    start: _Start | None = None
    delta: _Delta | None = None
    stop_reason: str | None = None
    usage: _Usage | None = None


_events = msgspec.json.Decoder(_Event)


class _Thought(msgspec.Struct):
    texts: list[str] = []
    signatures: list[str] = []
    redacted: list[str] = []


class ConverseReader:
    """Reads one answer.

    That a call has ended is told only when something follows it: one that the output limit has cut off is said to have
    ended, too.
    """

    __slots__ = ("_calls", "_dialect", "_ended", "_finish", "_names", "_thoughts")

    def __init__(self, dialect: str, names: ToolNames) -> None:
        self._dialect = dialect
        self._names = names
        self._calls: dict[int, list[str]] = {}
        self._ended: int | None = None
        self._thoughts: dict[int, _Thought] = {}
        self._finish: Finish | None = None

    def feed(self, frame: Frame) -> Iterable[StreamPiece]:
        """Return the pieces that an event holds."""
        failure = failure_in(self._dialect, frame)
        if failure is not None:
            raise failure
        if frame.kind == "contentBlockDelta":
            event = read_json(frame.data, _events)
            yield from self._more(event.content_block_index, event.delta)
        elif frame.kind == "contentBlockStart":
            event = read_json(frame.data, _events)
            yield from self._begin(event.content_block_index, event.start)
        elif frame.kind == "contentBlockStop":
            yield from self._end(read_json(frame.data, _events).content_block_index)
        elif frame.kind == "messageStop":
            yield from self._stop(read_json(frame.data, _events).stop_reason or "")
        elif frame.kind == "metadata":
            usage = read_json(frame.data, _events).usage
            if self._finish is not None and usage is not None:
                yield _counted(self._finish.reason, usage)
                self._finish = None

    def end(self) -> Iterable[StreamPiece]:
        """Return the last piece, if the answer said why it ended and not what it took."""
        if self._finish is not None:
            yield self._finish

    def _begin(self, index: int, start: _Start | None) -> Iterable[StreamPiece]:
        yield from self._told()
        call = start.tool_use if start else None
        if call is not None and not call.type:  # with a type, the server has called something itself
            self._calls[index] = []
            yield CallStarted(index, self._names.of(call.name), call.tool_use_id)

    def _more(self, index: int, delta: _Delta | None) -> Iterable[StreamPiece]:
        if delta is None:
            return
        if self._ended is not None and self._ended != index:
            yield from self._told()
        if delta.text:
            yield TextDelta(delta.text)
        elif delta.tool_use is not None and index in self._calls:
            if delta.tool_use.input:
                self._calls[index].append(delta.tool_use.input)
                yield CallDelta(index, delta.tool_use.input)
        elif delta.reasoning_content is not None:
            yield from self._thinks(self._thoughts.setdefault(index, _Thought()), delta.reasoning_content)

    def _thinks(self, thought: _Thought, more: _Reasoning) -> Iterable[StreamPiece]:
        if more.text:
            thought.texts.append(more.text)
            yield ThinkingDelta(more.text)
        if more.signature:
            thought.signatures.append(more.signature)
        if more.redacted_content:
            thought.redacted.append(more.redacted_content)

    def _end(self, index: int) -> Iterable[StreamPiece]:
        thought = self._thoughts.pop(index, None)
        if thought is not None:
            text = join_surrogates("".join(thought.texts))
            yield ReasoningBlock(self._dialect, _written(thought, text), text)
        elif index in self._calls:
            yield from self._told()
            self._ended = index

    def _told(self) -> Iterable[StreamPiece]:
        """Return the end of the call that has ended."""
        if self._ended is not None:
            yield CallEnded(self._ended)
            self._ended = None

    def _stop(self, reason: str) -> Iterable[StreamPiece]:
        if reason in _FAULTS:
            raise Overloaded(f"{self._dialect}: the model has written what cannot be read ({reason})")
        if reason == "model_context_window_exceeded":
            raise ContextOverflow(f"{self._dialect}: prompt and answer do not fit into the model's window")
        for index in tuple(self._thoughts):
            yield from self._end(index)
        # Reasons that are not known yet are no failures: what was said was said.
        meant = _REASONS.get(reason, "end")
        if meant != "length" or (self._ended is not None and _is_whole("".join(self._calls[self._ended]))):
            yield from self._told()
        self._finish = Finish(meant)


def _written(thought: _Thought, text: str) -> bytes:
    if thought.redacted:
        whole = thought.redacted[0] if len(thought.redacted) == 1 else _joined(thought.redacted)
        return msgspec.json.encode({"redactedContent": whole})
    said: dict[str, Any] = {"text": text}
    if thought.signatures:
        said["signature"] = "".join(thought.signatures)
    return msgspec.json.encode({"reasoningText": said})


def _joined(encoded: list[str]) -> str:
    """Return the Base64 of bytes that came in pieces, each as Base64 of its own."""
    return b64encode(b"".join([b64decode(piece) for piece in encoded])).decode()


def _counted(reason: StopReason, usage: _Usage) -> Finish:
    cached, written = usage.cache_read_input_tokens, usage.cache_write_input_tokens
    return Finish(reason, Usage(usage.input_tokens + cached + written, usage.output_tokens, cached), written)


def _is_whole(arguments: str) -> bool:
    try:
        return isinstance(msgspec.json.decode(arguments), dict)
    except (msgspec.DecodeError, UnicodeEncodeError):
        return False
