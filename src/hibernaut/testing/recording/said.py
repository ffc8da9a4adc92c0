"""What a model said, as it stands in a file: whole texts and calls instead of the pieces in which they came.

How an answer was cut on the wire, which ids a provider drew for its calls, and what it signed and encrypted for an
account is different every time, and none of it is kept.
"""

import itertools
from collections.abc import Iterable, Iterator, Sequence
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
from hibernaut.testing.recording.scrubbing import Scrubber

Lines = str | list[str]
"""A text; one of several lines as a list of them, so that a change shows where it is."""


ANOTHER: Final = "recorded"
"""The provider of reasoning that is played back: none who could be shown it again."""


class _Said(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True, tag_field="type"):
    pass


class Text(_Said, frozen=True, tag="text"):
    """Visible text."""

    text: Lines


class Thinking(_Said, frozen=True, tag="thinking"):
    """Reasoning that people may read."""

    text: Lines


class Reasoning(_Said, frozen=True, tag="reasoning"):
    """The end of a block of reasoning. `text` is what people may read of it; None: the thinking before it."""

    text: Lines | None = None


class Call(_Said, frozen=True, tag="call"):
    """A tool call. Arguments that are not written like everybody's are a text."""

    name: str
    arguments: dict[str, Any] | str
    id: str = ""
    """The provider's, by its place in the turn; "": it gave none."""
    complete: bool = True


class Counts(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """Tokens."""

    input: int = 0
    output: int = 0
    cached: int = 0
    written: int = 0


_NOT_COUNTED: Final = Counts()


class End(_Said, frozen=True, tag="end"):
    """The turn is complete."""

    reason: StopReason = "end"
    tokens: Counts = _NOT_COUNTED


Said = Text | Thinking | Reasoning | Call | End


def said_in(pieces: Iterable[StreamPiece], scrubber: Scrubber) -> tuple[Said, ...]:
    """Return what the pieces of a complete turn say, without secrets."""
    numbers = itertools.count(1)
    said: list[Said] = []
    for whole in _wholes(pieces):
        one = _kept(whole, numbers, scrubber)
        last = said[-1] if said else None
        if isinstance(one, Reasoning) and isinstance(last, Thinking) and one.text == last.text:
            one = Reasoning()
        said.append(one)
    return tuple(said)


def pieces_of(said: Sequence[Said]) -> Iterator[StreamPiece]:
    """Return pieces that say the same again."""
    thought: Lines = ""
    for index, one in enumerate(said):
        if isinstance(one, Text):
            yield TextDelta(_joined(one.text))
        elif isinstance(one, Thinking):
            thought = one.text
            yield ThinkingDelta(_joined(one.text))
        elif isinstance(one, Reasoning):
            yield ReasoningBlock(ANOTHER, b"", _joined(thought if one.text is None else one.text))
        elif isinstance(one, Call):
            yield CallStarted(index, one.name, one.id)
            yield CallDelta(index, one.arguments if isinstance(one.arguments, str) else to_json(one.arguments))
            if one.complete:
                yield CallEnded(index)
        else:
            tokens = one.tokens
            yield Finish(one.reason, Usage(tokens.input, tokens.output, tokens.cached), tokens.written)


class _Whole(msgspec.Struct):
    """What comes in several pieces: a text, thoughts, or a call with its arguments."""

    first: TextDelta | ThinkingDelta | CallStarted
    texts: list[str] = []
    complete: bool = False

    @property
    def text(self) -> str:
        # As a whole: a character that was cut in two between pieces is one again.
        return join_surrogates("".join(self.texts))


def _wholes(pieces: Iterable[StreamPiece]) -> list[_Whole | ReasoningBlock | Finish]:
    found: list[_Whole | ReasoningBlock | Finish] = []
    calls: dict[int, _Whole] = {}
    for piece in pieces:
        if isinstance(piece, TextDelta | ThinkingDelta):
            whole = found[-1] if found else None
            if not isinstance(whole, _Whole) or type(whole.first) is not type(piece):
                found.append(whole := _Whole(piece))
            whole.texts.append(piece.text)
        elif isinstance(piece, CallStarted):
            found.append(call := _Whole(piece))
            calls[piece.index] = call
        elif isinstance(piece, CallDelta):
            if piece.index in calls:
                calls[piece.index].texts.append(piece.arguments)
        elif isinstance(piece, CallEnded):
            if piece.index in calls:
                calls.pop(piece.index).complete = True
        elif not isinstance(piece, Counted):  # the end of a complete turn says it all
            found.append(piece)
    return found


def _kept(one: _Whole | ReasoningBlock | Finish, numbers: Iterator[int], scrubber: Scrubber) -> Said:
    if isinstance(one, Finish):
        usage = one.usage
        counts = Counts(usage.input, usage.output, usage.cached, one.written)
        return End(one.reason, _NOT_COUNTED if counts == _NOT_COUNTED else counts)
    if isinstance(one, ReasoningBlock):
        return Reasoning(_lines(scrubber.text(join_surrogates(one.text))))
    text = scrubber.text(one.text)
    if isinstance(one.first, CallStarted):
        name = join_surrogates(one.first.name)
        provider_id = f"call_{next(numbers)}" if one.first.provider_id else ""
        return Call(name, _arguments(text), provider_id, one.complete)
    return Text(_lines(text)) if isinstance(one.first, TextDelta) else Thinking(_lines(text))


def _arguments(text: str) -> dict[str, Any] | str:
    """Return arguments as what they hold, where that is written in this way and no other."""
    try:
        value = msgspec.json.decode(text)
        return value if isinstance(value, dict) and to_json(value) == text else text
    except (msgspec.DecodeError, UnicodeError, RecursionError, ValueError):
        return text


def _lines(text: str) -> Lines:
    return text.split("\n") if "\n" in text else text


def _joined(text: Lines) -> str:
    return text if isinstance(text, str) else "\n".join(text)
