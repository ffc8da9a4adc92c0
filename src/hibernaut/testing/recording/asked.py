"""What a model was asked, as lines: for people to read, to find its answer by, and to say in what a request differs."""

import operator
import re
from collections.abc import Callable, Iterable, Sequence
from typing import ClassVar, Final

from hibernaut.codec import sha256
from hibernaut.errors import ModelError
from hibernaut.messages.items import CallItem, Item, ReasoningItem, ResultItem, TextItem, UserItem
from hibernaut.messages.parts import Content, Image, Part
from hibernaut.messages.tools import ANSWER_TOOL
from hibernaut.models.protocol import ModelRequest
from hibernaut.testing.recording.scrubbing import SCRUBBED, Scrubber
from hibernaut.tools.builtin import BUILT_IN

SHOWN: Final = 160
"""Characters of a line that is different, around the first that is."""

_LEAD: Final = 60
"""How many of them stand before it."""

_MORE: Final = "  "
"""Before a line that goes on with what the line before it has begun."""

_DRAWN: Final = re.compile(r"\b(call|event|thread|msg|q)_([0-9a-hjkmnp-tv-z]{24}|[0-9a-hjkmnp-tv-z]{16})\b")
"""Ids that the runtime draws, or derives from drawn ones (see `hibernaut.ids`)."""

_OWN: Final = frozenset({ANSWER_TOOL, *(entry.__name__ for entry in BUILT_IN)})


class NotRecorded(ModelError, AssertionError):
    """A request came that was not recorded, and there is no model to ask. It parks its thread, and fails a test."""

    code: ClassVar[str] = "not_recorded"


def lines_of(request: ModelRequest, scrubber: Scrubber) -> tuple[str, ...]:
    """Return what a model is shown. Ids that the runtime draws anew in every run are numbered as they come.

    The runtime's own tools are left out: a version of Hibernaut that words them otherwise is asked the same.
    """
    entries = [f"told {request.instructions}"] if request.instructions else []
    tools = [spec for spec in request.tools if spec.name not in _OWN]
    entries += [f"tool {spec.name}: {spec.description}\n{spec.parameters}" for spec in tools]
    # The same whether the model is held to it or answers by a tool.
    forms = [spec.parameters for spec in request.tools if spec.name == ANSWER_TOOL]
    entries += [f"answers as {form}" for form in (forms if request.output is None else [request.output.schema])]
    entries += [_entry(item) for item in request.transcript]
    entries += ["asked for a summary"] if request.purpose == "summary" else []
    order: dict[str, str] = {request.thread_id: "#this"}

    def numbered(found: re.Match[str]) -> str:
        return order.setdefault(found[0], f"#{len(order)}")

    return tuple(
        line
        for entry in entries
        for line in _DRAWN.sub(numbered, scrubber.text(entry)).replace("\n", f"\n{_MORE}").split("\n")
    )


def shared(one: Sequence[str], other: Sequence[str]) -> int:
    """Return with how many equal lines two requests begin."""
    return _alike(one, other, operator.eq)


def fits(asked: Sequence[str], recorded: Sequence[str]) -> bool:
    """Tell whether a request is the recorded one, if it is not known which secrets were scrubbed from that."""
    return len(asked) == len(recorded) and _alike(asked, recorded, _fits) == len(asked)


def difference(asked: Sequence[str], recorded: Iterable[Sequence[str]]) -> str:
    """Return in what a request differs first from the recorded one that begins most like it."""
    alike = [(_alike(asked, lines, _fits), -number, lines) for number, lines in enumerate(recorded, 1)]
    place, number, nearest = max(alike)
    before = nearest[place] if place < len(nearest) else None
    now = asked[place] if place < len(asked) else None
    return (
        f"it begins like completion {-number} there, and differs first in line {place + 1} of what was asked:\n"
        f"- {_around(before, now)}\n+ {_around(now, before)}"
    )


def _alike(one: Sequence[str], other: Sequence[str], equal: Callable[[str, str], bool]) -> int:
    """Return how many entries stand before the first pair that is not equal."""
    pairs = enumerate(zip(one, other, strict=False))
    return next((place for place, pair in pairs if not equal(*pair)), min(len(one), len(other)))


def _fits(line: str, recorded: str) -> bool:
    if line == recorded or SCRUBBED not in recorded:
        return line == recorded
    begin, *between, end = recorded.split(SCRUBBED)
    if len(line) < len(begin) + len(end) or not (line.startswith(begin) and line.endswith(end)):
        return False
    place, last = len(begin), len(line) - len(end)
    for part in between:
        found = line.find(part, place, last)
        if found < 0:
            return False
        place = found + len(part)
    return True


def _around(line: str | None, other: str | None) -> str:
    if line is None:
        return "(nothing more)"
    begin = max(0, shared(line, other or "") - _LEAD) if len(line) > SHOWN else 0
    end = begin + SHOWN
    return f"{'…' if begin else ''}{line[begin:end]}{'…' if end < len(line) else ''}"


def _entry(item: Item) -> str:
    if isinstance(item, UserItem):
        return f"user {_content(item.content)}"
    if isinstance(item, TextItem):
        return f"model {item.text}"
    if isinstance(item, ReasoningItem):
        # Not its data: that is signed or encrypted anew whenever the same is thought.
        return f"thought {item.text}"
    if isinstance(item, CallItem):
        return f"call {item.id} {item.name} {item.arguments}"
    if isinstance(item, ResultItem):
        failed = " failed" if item.is_error else ""
        return f"result {item.call_id}{failed} {_content(item.content)}"
    return f"item {type(item).__name__}"


def _content(content: Content) -> str:
    if isinstance(content, str):
        return content
    return " ".join([_part(part) for part in content])


def _part(part: Part) -> str:
    if isinstance(part, Image):
        return f"[{part.media_type} {(part.blob or sha256(part.data)).hex()[:16]}{part.url}]"
    return part.text
