"""The chunks of the Chat Completions API, as pieces of a turn, from whichever server they come."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

import msgspec

from hibernaut.codec import to_json
from hibernaut.messages.events import Usage
from hibernaut.messages.stream import (
    Counted,
    Finish,
    ReasoningBlock,
    StopReason,
    StreamPiece,
    TextDelta,
    ThinkingDelta,
)
from hibernaut.models.dialect import Frame
from hibernaut.models.json_text import read_json
from hibernaut.models.openai.chat_calls import Calls
from hibernaut.models.openai.failures import failure_in_stream
from hibernaut.models.tool_names import ToolNames

DETAILS: Final = "reasoning_details"
"""The field of reasoning in parts, some of them signed or encrypted."""

_DONE: Final = "[DONE]"

_REASONS: Final[Mapping[str, StopReason]] = {
    "length": "length",
    "max_tokens": "length",
    "model_length": "length",
    "content_filter": "refused",
    "refusal": "refused",
}
"""What is not simply the end."""

_FAILURES: Final = frozenset({"error", "insufficient_system_resource", "abort"})
"""Reasons that are none: the completion failed."""

_GROWING: Final = ("text", "summary", "data")


class _Choice(msgspec.Struct):
    index: Any = 0
    delta: dict[str, Any] | None = None
    message: dict[str, Any] | None = None
    finish_reason: Any = None
    error: Any = None


class _Chunk(msgspec.Struct):
    choices: list[_Choice] | None = None
    usage: dict[str, Any] | None = None
    error: Any = None
    object: Any = None
    message: Any = None
    code: Any = None
    x_groq: Any = None


_chunk = msgspec.json.Decoder(_Chunk)


class ChatReader:
    """Reads one answer of the Chat Completions API.

    Args:
        provider: what reasoning is marked with.
        thinking: the field under which reasoning is sent back; "": it is not, so it is only shown.
        names: how tools are called on the wire.
    """

    def __init__(self, provider: str, thinking: str, names: ToolNames) -> None:
        self._provider = provider
        self._thinking = thinking
        self._calls = Calls(names)
        self._thoughts: list[str] = []
        self._details: list[dict[str, Any]] = []
        self._reason: StopReason | None = None
        self._refused = False
        self._usage = Usage()
        self._cached_anew = 0
        self._finished = False

    def feed(self, frame: Frame) -> Iterable[StreamPiece]:
        """Return the pieces that an event holds."""
        data = frame.data.strip()
        if not data:
            return ()
        if data == _DONE:
            self._reason = self._reason or "end"
            return self.end()
        return self._read(read_json(data, _chunk), frame.kind)

    def end(self) -> Iterator[StreamPiece]:
        """Return what is owed when the stream has ended: usage comes after the reason, and [DONE] not always."""
        if self._reason is None or self._finished:
            return
        self._finished = True
        yield from self._thought()
        yield from self._calls.end(cut=self._reason == "length")
        refused = self._refused and self._reason == "end"
        yield Finish("refused" if refused else self._reason, self._usage, self._cached_anew)

    def _read(self, chunk: _Chunk, kind: str) -> Iterator[StreamPiece]:
        groq = chunk.x_groq if isinstance(chunk.x_groq, Mapping) else {}
        error = chunk.error or groq.get("error")
        if not error and (kind == "error" or chunk.object == "error"):
            error = {"code": chunk.code, "message": chunk.message}
        if error:
            raise failure_in_stream(self._provider, error)
        usage = chunk.usage or groq.get("usage")
        if isinstance(usage, Mapping):
            self._usage, self._cached_anew = _counted(usage)
        for choice in chunk.choices or ():
            if not choice.index:
                yield from self._of_choice(choice)
        if isinstance(usage, Mapping):
            if self._reason is None:
                yield Counted(self._usage, self._cached_anew)
            else:
                yield from self.end()  # nothing more is owed, and not every server ends its stream

    def _of_choice(self, choice: _Choice) -> Iterator[StreamPiece]:
        if choice.error:
            raise failure_in_stream(self._provider, choice.error)
        delta = choice.delta or choice.message or {}
        yield from self._think(delta)
        yield from self._say(delta.get("content"))
        if delta.get("refusal"):
            self._refused = True
            yield from self._say(delta["refusal"])
        calls = delta.get("tool_calls")
        if calls or delta.get("function_call"):
            yield from self._thought()
            for call in calls if isinstance(calls, list) else ():
                yield from self._calls.feed(call)
            yield from self._calls.feed_old(delta.get("function_call"))
        if isinstance(choice.finish_reason, str) and choice.finish_reason:
            if choice.finish_reason in _FAILURES:
                raise failure_in_stream(self._provider, {"message": f"it ended with {choice.finish_reason!r}"})
            self._reason = _REASONS.get(choice.finish_reason, "end")

    def _say(self, content: Any) -> Iterator[StreamPiece]:
        if isinstance(content, str):
            if content:
                yield from self._thought()
                yield TextDelta(content)
        elif isinstance(content, list):
            for part in content:
                if isinstance(part, str):
                    yield from self._say(part)
                elif isinstance(part, Mapping):
                    yield from self._of_part(part)

    def _of_part(self, part: Mapping[str, Any]) -> Iterator[StreamPiece]:
        if part.get("type") in ("thinking", "reasoning"):
            inner = part.get("thinking") or part.get("text")
            pieces = inner if isinstance(inner, list) else [{"text": inner}]
            for piece in pieces:
                text = piece.get("text") if isinstance(piece, Mapping) else None
                if isinstance(text, str) and text:
                    yield ThinkingDelta(text)
        else:
            yield from self._say(part.get("text"))

    def _think(self, delta: Mapping[str, Any]) -> Iterator[StreamPiece]:
        text = delta.get("reasoning_content") or delta.get("reasoning")
        details = delta.get(DETAILS)
        if isinstance(details, list):
            parts = [dict(part) for part in details if isinstance(part, Mapping)]
            text = text or "".join([part.get("text") or part.get("summary") or "" for part in parts])
            if self._thinking == DETAILS:
                for part in parts:
                    _add(self._details, part)
        if isinstance(text, str) and text:
            self._thoughts.append(text)
            yield ThinkingDelta(text)

    def _thought(self) -> Iterator[StreamPiece]:
        """Return the block of what was thought so far: what comes now is what it led to."""
        text = "".join(self._thoughts)
        fields: dict[str, Any] = {}
        if self._details:
            fields = {DETAILS: self._details}
        elif text and self._thinking:
            fields = {"reasoning" if self._thinking == DETAILS else self._thinking: text}
        self._thoughts, self._details = [], []
        if fields:
            yield ReasoningBlock(self._provider, to_json(fields).encode(), text)


def _add(details: list[dict[str, Any]], part: dict[str, Any]) -> None:
    """Add a part of reasoning, or a piece of the last one."""
    last = details[-1] if details else {}
    if last.get("type") != part.get("type") or last.get("index") != part.get("index") or "index" not in part:
        details.append(part)
        return
    for name, value in part.items():
        if name in _GROWING and isinstance(value, str) and isinstance(last.get(name), str):
            last[name] += value
        elif value is not None:
            last[name] = value


def _counted(usage: Mapping[str, Any]) -> tuple[Usage, int]:
    """Return the tokens, and how many of them were put into the provider's cache."""
    details = usage.get("prompt_tokens_details")
    details = details if isinstance(details, Mapping) else {}
    cached = details.get("cached_tokens") or usage.get("prompt_cache_hit_tokens") or usage.get("cached_tokens")
    counted = Usage(_number(usage.get("prompt_tokens")), _number(usage.get("completion_tokens")), _number(cached))
    return counted, _number(details.get("cache_write_tokens"))


def _number(value: Any) -> int:
    return int(value) if isinstance(value, int | float) else 0
