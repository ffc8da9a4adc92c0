"""An answer of the Gemini API: each event is a piece of the one candidate, the last says why it ended."""

import json
from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec

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
from hibernaut.models.dialect import Frame
from hibernaut.models.errors import Overloaded, Refused
from hibernaut.models.google.failures import failure_in
from hibernaut.models.google.writing import call_data
from hibernaut.models.json_text import read_json
from hibernaut.models.tool_names import ToolNames

_REASONS: Final[Mapping[str, StopReason]] = {"STOP": "end", "MAX_TOKENS": "length"}

_REFUSALS: Final = frozenset(
    {
        "BLOCKLIST", "IMAGE_PROHIBITED_CONTENT", "IMAGE_RECITATION", "IMAGE_SAFETY", "LANGUAGE", "MODEL_ARMOR",
        "PROHIBITED_CONTENT", "RECITATION", "SAFETY", "SPII",
    }
)  # fmt: skip
"""Why the API stops a model that may not say more. All other reasons are failures, which may not come again."""


class _Call(msgspec.Struct, frozen=True):
    name: str = ""
    id: str | None = None
    args: dict[str, Any] | None = None


class _Part(msgspec.Struct, frozen=True, rename="camel"):
    text: str | None = None
    thought: bool | None = None
    thought_signature: str | None = None
    function_call: _Call | None = None


class _Content(msgspec.Struct, frozen=True):
    parts: list[_Part] | None = None


class _Candidate(msgspec.Struct, frozen=True, rename="camel"):
    content: _Content | None = None
    finish_reason: str | None = None
    finish_message: str | None = None
    index: int = 0


class _Feedback(msgspec.Struct, frozen=True, rename="camel"):
    block_reason: str | None = None
    block_reason_message: str | None = None


class _Usage(msgspec.Struct, frozen=True, rename="camel"):
    prompt_token_count: int | None = None
    tool_use_prompt_token_count: int | None = None
    cached_content_token_count: int | None = None
    candidates_token_count: int | None = None
    thoughts_token_count: int | None = None

    def counted(self) -> Usage:
        return Usage(
            (self.prompt_token_count or 0) + (self.tool_use_prompt_token_count or 0),
            (self.candidates_token_count or 0) + (self.thoughts_token_count or 0),
            self.cached_content_token_count or 0,
        )


class _Event(msgspec.Struct, frozen=True, rename="camel"):
    candidates: list[_Candidate] | None = None
    prompt_feedback: _Feedback | None = None
    usage_metadata: _Usage | None = None
    error: Any = None


_decoder = msgspec.json.Decoder(_Event)


class GeminiReader:
    """Reads one answer. Calls come whole; the turn is over when the stream is, since counts may follow the end."""

    __slots__ = ("_calls", "_dialect", "_finish", "_names", "_said", "_signature", "_thoughts", "_usage")

    def __init__(self, dialect: str, names: ToolNames) -> None:
        self._dialect = dialect
        self._names = names
        self._calls = 0
        self._thoughts: list[str] = []
        self._said = False
        self._signature = ""
        self._finish: StopReason | None = None
        self._usage = Usage()

    def feed(self, frame: Frame) -> Iterable[StreamPiece]:
        """Return the pieces that an event holds."""
        if not frame.data.strip() or frame.data == "[DONE]":
            return
        event = read_json(frame.data, _decoder)
        if event.error:
            raise failure_in(self._dialect, event.error)
        if event.usage_metadata is not None:
            self._usage = event.usage_metadata.counted()
            yield Counted(self._usage)  # first of all, since what follows may be a refusal or a failure
        if event.prompt_feedback is not None and event.prompt_feedback.block_reason:
            feedback = event.prompt_feedback
            raise Refused(_words(self._dialect, "the prompt", feedback.block_reason, feedback.block_reason_message))
        for candidate in event.candidates or ():
            if candidate.index:
                continue
            for part in (candidate.content.parts if candidate.content else None) or ():
                yield from self._part(part)
            if candidate.finish_reason:
                yield from self._ended(candidate.finish_reason, candidate.finish_message)

    def end(self) -> Iterable[StreamPiece]:
        """Return the last piece, if the answer said why it ended."""
        if self._finish is not None:
            yield from self._thought()
            yield from self._signed()
            yield Finish(self._finish, self._usage)

    def _part(self, part: _Part) -> Iterable[StreamPiece]:
        signature = part.thought_signature or ""
        if part.function_call is not None:
            yield from self._thought()
            yield from self._signed()
            yield from self._call(part.function_call, signature)
        elif part.thought:
            if part.text:
                yield from self._signed()
                self._thoughts.append(part.text)
                yield ThinkingDelta(part.text)
        elif part.text is not None:
            if part.text:
                yield from self._thought()
                self._said = True
                yield TextDelta(part.text)
            # Told when the text is: in the middle it would make two of it.
            self._signature = signature or self._signature

    def _thought(self) -> Iterable[StreamPiece]:
        """Return what was thought so far, for people to read."""
        if self._thoughts:
            yield ReasoningBlock(self._dialect, b"", "".join(self._thoughts))
            self._thoughts.clear()

    def _signed(self) -> Iterable[StreamPiece]:
        """Return the signature of the text that was said."""
        if self._signature:
            yield ReasoningBlock(self._dialect, self._signature.encode())
            self._signature = ""

    def _call(self, call: _Call, signature: str) -> Iterable[StreamPiece]:
        index = self._calls
        self._calls += 1
        yield CallStarted(index, self._names.of(call.name), call.id or "")
        # ASCII only: half a surrogate pair stays an escape, which whoever reads the arguments mends.
        yield CallDelta(index, json.dumps(call.args or {}, separators=(",", ":")))
        yield CallEnded(index, call_data(self._dialect, signature))

    def _ended(self, reason: str, message: str | None) -> Iterable[StreamPiece]:
        if reason in _REASONS:
            self._finish = _REASONS[reason]
        elif reason not in _REFUSALS:
            raise Overloaded(_words(self._dialect, "the answer", reason, message))
        elif not self._said:
            raise Refused(_words(self._dialect, "the answer", reason, message))
        else:
            yield TextDelta(f" [{_words(self._dialect, 'the answer', reason, message)}]")
            self._finish = "refused"


def _words(who: str, what: str, reason: str | None, message: str | None) -> str:
    return f"{who} stopped {what}: {reason}" + (f": {message}" if message else "")
