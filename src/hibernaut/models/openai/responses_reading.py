"""The events of the Responses API, as pieces of a turn."""

import json
from collections.abc import Iterable, Iterator
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
from hibernaut.models.dialect import Frame
from hibernaut.models.json_text import read_json
from hibernaut.models.openai.failures import failure_in_stream
from hibernaut.models.openai.responses_writing import reasoned
from hibernaut.models.tool_names import ToolNames

_BETWEEN: Final = "\n\n"
"""What stands between two messages of one turn, and between the parts of a summary."""


class _Text(msgspec.Struct):
    type: str = ""
    text: str = ""
    refusal: str = ""


class _Item(msgspec.Struct):
    type: str = ""
    call_id: str = ""
    id: str = ""
    name: str = ""
    arguments: Any = ""
    status: str | None = None
    content: list[_Text] | None = None
    summary: list[_Text] | None = None


class _CachedTokens(msgspec.Struct):
    cached_tokens: int | None = None
    cache_write_tokens: int | None = None


class _Usage(msgspec.Struct):
    input_tokens: int | None = None
    output_tokens: int | None = None
    input_tokens_details: _CachedTokens | None = None


class _Details(msgspec.Struct):
    reason: str | None = None


class _Response(msgspec.Struct):
    usage: _Usage | None = None
    incomplete_details: _Details | None = None
    error: Any = None
    status: str | None = None


class _Event(msgspec.Struct):
    type: str = ""
    output_index: int = 0
    delta: Any = ""
    arguments: Any = ""
    summary_index: int = 0
    item: _Item | None = None
    response: _Response | None = None
    error: Any = None
    code: Any = None
    message: Any = None


class _Done(msgspec.Struct):
    item: msgspec.Raw


class _Call(msgspec.Struct):
    written: bool = False
    """Whether any of its arguments have come."""
    ended: bool = False


_LAST: Final = frozenset({"response.completed", "response.incomplete", "response.failed"})

_event = msgspec.json.Decoder(_Event)
_done = msgspec.json.Decoder(_Done)


class ResponsesReader:
    """Reads one answer of the Responses API."""

    def __init__(self, provider: str, names: ToolNames) -> None:
        self._provider = provider
        self._names = names
        self._calls: dict[int, _Call] = {}
        self._said: set[int] = set()
        """Messages of which something has come."""
        self._thought: set[int] = set()
        self._refused = False

    def feed(self, frame: Frame) -> Iterable[StreamPiece]:
        """Return the pieces that an event holds."""
        if not frame.data or frame.data == "[DONE]":
            return ()
        event = read_json(frame.data, _event)
        kind = event.type or frame.kind
        if kind == "error" or (event.error and event.response is None):
            raise failure_in_stream(self._provider, event.error or {"code": event.code, "message": event.message})
        if event.item is not None:
            return self._of_item(kind, event.output_index, event.item, frame.data)
        if event.response is not None and kind in _LAST:
            return (self._finish(kind, event.response),)
        return self._of_delta(kind, event)

    def end(self) -> Iterable[StreamPiece]:
        """Return nothing: the last event says that it is the last."""
        return ()

    def _of_delta(self, kind: str, event: _Event) -> Iterable[StreamPiece]:
        match kind:
            case "response.output_text.delta":
                return self._say(event.output_index, event.delta)
            case "response.refusal.delta":
                self._refused = True
                return self._say(event.output_index, event.delta)
            case "response.reasoning_summary_text.delta" | "response.reasoning_text.delta":
                self._thought.add(event.output_index)
                return (ThinkingDelta(event.delta),)
            case "response.reasoning_summary_part.added":
                return (ThinkingDelta(_BETWEEN),) if event.summary_index else ()
            case "response.function_call_arguments.delta":
                return self._write(event.output_index, event.delta)
            case "response.function_call_arguments.done":
                return self._write_once(event.output_index, event.arguments)
            case _:
                return ()

    def _of_item(self, kind: str, index: int, item: _Item, data: str) -> Iterable[StreamPiece]:
        if kind == "response.output_item.added":
            return self._begin(index, item)
        return self._end(index, item, data) if kind == "response.output_item.done" else ()

    def _say(self, index: int, text: Any) -> Iterator[StreamPiece]:
        if not isinstance(text, str) or not text:
            return
        if self._said and index not in self._said:
            yield TextDelta(_BETWEEN)
        self._said.add(index)
        yield TextDelta(text)

    def _begin(self, index: int, item: _Item) -> Iterator[StreamPiece]:
        if item.type == "function_call" and index not in self._calls:
            self._said.clear()
            self._calls[index] = _Call()
            yield CallStarted(index, self._names.of(item.name), item.call_id or item.id)
        elif item.type == "reasoning":
            self._said.clear()

    def _write(self, index: int, arguments: Any) -> Iterator[StreamPiece]:
        call = self._calls.get(index)
        text = arguments if isinstance(arguments, str) else msgspec.json.encode(arguments).decode()
        if call is not None and not call.ended and text:
            call.written = True
            yield CallDelta(index, text)

    def _write_once(self, index: int, arguments: Any) -> Iterable[StreamPiece]:
        call = self._calls.get(index)
        return () if call is None or call.written else self._write(index, arguments)

    def _end(self, index: int, item: _Item, data: str) -> Iterator[StreamPiece]:
        if item.type == "function_call":
            yield from self._begin(index, item)
            yield from self._write_once(index, item.arguments)
            call = self._calls[index]
            if not call.ended and item.status != "incomplete":
                call.ended = True
                yield CallEnded(index)
        elif item.type == "reasoning":
            yield from self._reasoned(index, item, data)
        elif item.type == "message" and index not in self._said:
            for part in item.content or ():
                self._refused = self._refused or bool(part.refusal)
                yield from self._say(index, part.text or part.refusal)

    def _reasoned(self, index: int, item: _Item, data: str) -> Iterator[StreamPiece]:
        text = _BETWEEN.join([part.text for part in item.summary or item.content or ()])
        if text and index not in self._thought:
            yield ThinkingDelta(text)
        block = _raw_item(data)
        if reasoned(block) is not None:
            yield ReasoningBlock(self._provider, block, text)

    def _finish(self, kind: str, response: _Response) -> Finish:
        if kind == "response.failed" or response.status == "failed":
            raise failure_in_stream(self._provider, response.error or {"message": "the response failed"})
        reason: StopReason = "refused" if self._refused else "end"
        if kind == "response.incomplete" or response.status == "incomplete":
            why = response.incomplete_details or _Details()
            reason = "refused" if why.reason == "content_filter" else "length"
        usage = response.usage or _Usage()
        details = usage.input_tokens_details or _CachedTokens()
        counted = Usage(usage.input_tokens or 0, usage.output_tokens or 0, details.cached_tokens or 0)
        return Finish(reason, counted, details.cache_write_tokens or 0)


def _raw_item(data: str) -> bytes:
    """Return the item of an event byte for byte."""
    try:
        return bytes(_done.decode(data).item)
    except msgspec.DecodeError:  # it has half a character in it
        return json.dumps(json.loads(data)["item"], ensure_ascii=False).encode(errors="replace")
