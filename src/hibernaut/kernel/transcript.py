"""What a model is shown of a history, and the check that it may be shown.

`Transcript` turns stored items into what a provider gets: events become a call of `receive_event__injected` with its
result, notices and what we do not know are left out, and whatever a damaged or foreign history lacks is filled in, so
that no stored history can make a thread unusable. It works item by item and only ever appends, so a thread's next slice
only pays for what is new.

`Validator` is the independent last step before the wire. It knows nothing of how the transcript was made.
"""

from collections import deque
from collections.abc import Iterable

import msgspec

from hibernaut.codec import to_json
from hibernaut.kernel.outside import fenced, who_brought
from hibernaut.messages.items import (
    EVENT_TOOL,
    CallItem,
    EventItem,
    Item,
    OutsideItem,
    ReasoningItem,
    ResultItem,
    TextItem,
    UserItem,
)
from hibernaut.messages.parts import Content, Image, Part

MISSING_RESULT = "No result of this call was recorded. It is unknown whether it happened; check before repeating it."
MISSING_START = "[What came before this is not recorded.]"
EMPTY_CONTENT = "(empty)"
UNNAMED_TOOL = "unnamed"
CUT_SHORT = "\n[the user interrupted here]"


class TranscriptInvalid(AssertionError):
    """A transcript that no provider would take. It is a defect of the runtime, never of the input."""


class Transcript:
    """The items that a model is shown, kept up to date item by item.

    A summary is not shown where it is stored, but first: whoever reads a history that has one begins with it.

    What the model says between two items of the user's side is one turn. Its calls get their results in their own
    order, whatever order those came in: one that is early is held until those before it are there, and one that comes
    when its call has been settled is left out. Reasoning waits for what it leads to, since no provider takes it alone.
    """

    __slots__ = ("_answering", "_held", "_ids", "_open", "_reasoning", "_renamed", "items")

    def __init__(self) -> None:
        self.items: list[Item] = []
        self._ids: set[str] = set()
        self._reasoning: list[ReasoningItem] = []
        self._open: deque[str] = deque()
        self._answering = False
        self._held: dict[str, ResultItem] = {}
        self._renamed: dict[str, str] = {}

    def extend(self, items: Iterable[Item]) -> None:
        """Take the next stored items."""
        for item in items:
            if type(item) is ResultItem:
                if self._open:
                    self._result(item)
            elif type(item) is CallItem:
                self._call(item)
            elif type(item) is TextItem:
                self._text(item)
            elif type(item) is UserItem:
                content = _filled(item.content)
                self._user_says(item if content is item.content else UserItem(content, item.user, item.origin))
            elif type(item) is ReasoningItem:
                self._reasoning.append(item)
            elif isinstance(item, EventItem):
                self._event(item)

    def ready(self) -> list[Item]:
        """Return the transcript as it may be sent now.

        Calls that have no result get one that says so: nothing of it is stored, the real ones may still come.
        """
        return [*self.items, *map(self._answer, self._open)] if self._open else self.items

    def _user_says(self, item: UserItem) -> None:
        self._turn_ends()
        self.items.append(item)

    def _model_says(self, item: TextItem | CallItem) -> None:
        if self._answering:
            self._settle()
        if self._reasoning or not self.items:
            self._lead_in()
        self.items.append(item)

    def _lead_in(self) -> None:
        if not self.items:
            self.items.append(UserItem(MISSING_START, origin="runtime"))
        self.items += self._reasoning
        self._reasoning.clear()

    def _text(self, item: TextItem) -> None:
        if item.interrupted:
            self._model_says(TextItem(item.text + CUT_SHORT))
        elif item.text and not item.text.isspace():
            self._model_says(item)

    def _call(self, call: CallItem) -> None:
        call_id = call.id
        if call_id in self._ids or not call.name:
            name = call.name or UNNAMED_TOOL
            call = CallItem(self._fresh(call_id), name, call.arguments, call.provider_id, call.data)
        self._model_says(call)
        if call.id != call_id:
            self._renamed[call.id] = call_id
        self._ids.add(call.id)
        self._open.append(call.id)

    def _result(self, result: ResultItem) -> None:
        call_id = self._called(result.call_id) if self._renamed else result.call_id
        content = _filled(result.content)
        if content is not result.content or call_id != result.call_id:
            result = ResultItem(call_id, content, result.is_error, result.display)
        if call_id == self._open[0]:
            self._reasoning.clear()
            self.items.append(result)
            self._open.popleft()
            self._release()
        elif call_id in self._open and call_id not in self._held:
            self._reasoning.clear()
            self._held[call_id] = result
            self._answering = True

    def _release(self) -> None:
        while self._held and self._open[0] in self._held:
            self.items.append(self._held.pop(self._open.popleft()))
        self._answering = bool(self._open)

    def _event(self, event: EventItem) -> None:
        call, result = as_call(event)
        if call.id in self._ids:
            call_id = self._fresh(call.id)
            call, result = (
                CallItem(call_id, call.name, call.arguments),
                ResultItem(call_id, result.content, result.is_error),
            )
        self._turn_ends()
        self._model_says(call)
        self._ids.add(call.id)
        self.items.append(result)

    def _turn_ends(self) -> None:
        if self._open:
            self._settle()
        if self._reasoning:
            self._reasoning.clear()

    def _settle(self) -> None:
        self.items += map(self._answer, self._open)
        self._open.clear()
        self._held.clear()
        self._answering = False

    def _answer(self, call_id: str) -> ResultItem:
        return self._held.get(call_id) or ResultItem(call_id, MISSING_RESULT, is_error=True)

    def _called(self, call_id: str) -> str:
        """Return the id under which the first unanswered call with this id is shown."""
        for shown in self._open:
            if shown not in self._held and self._renamed.get(shown, shown) == call_id:
                return shown
        return ""

    def _fresh(self, call_id: str) -> str:
        name, number = call_id, len(self._ids)
        while name in self._ids:
            name = f"{call_id}~{number}"
            number += 1
        return name


def as_call(event: EventItem) -> tuple[CallItem, ResultItem]:
    """Return an event as a model sees it."""
    said = {
        "original_tool_name": event.tool,
        "original_tool_call_id": event.call_id,
        "original_args": _as_object(event.arguments),
    }
    content = _filled(event.content)
    if isinstance(event, OutsideItem):
        said["data_from_outside"] = who_brought(event)
        if event.sequence:
            said["sequence"] = event.sequence
        content = fenced(event, content)
    return CallItem(event.id, EVENT_TOOL, to_json(said)), ResultItem(event.id, content, event.is_error)


def _as_object(arguments: str) -> object:
    """Return arguments as the object they are; those of a call that ended long ago may be an excerpt only."""
    try:
        return msgspec.json.decode(arguments)
    except msgspec.DecodeError:
        return arguments


def _filled(content: Content) -> Content:
    """Return the content without what is blank in it; the content itself where nothing is."""
    if isinstance(content, str):
        return content if content and not content.isspace() else EMPTY_CONTENT
    parts = tuple(part for part in content if isinstance(part, Image) or (part.text and not part.text.isspace()))
    if not parts:
        return EMPTY_CONTENT
    return content if len(parts) == len(content) else parts


class Validator:
    """Checks a transcript as it grows.

    The rules, which every provider's own are built on: it begins with the user; what the model says between two items
    of the user's side is one turn, and never ends in reasoning; the results of the turn's calls follow it at once, each
    once, in the order of the calls; no call id occurs twice; nothing is blank; it ends on the user's side.
    """

    __slots__ = ("_answered", "_calls", "_ids", "_last")

    def __init__(self) -> None:
        self._last: type[Item] | None = None
        self._ids: set[str] = set()
        self._calls: list[str] = []
        self._answered = 0

    def feed(self, items: Iterable[Item]) -> None:
        """Check the next items.

        Raises:
            TranscriptInvalid: naming the rule that is broken.
        """
        calls = self._calls
        for item in items:
            kind = type(item)
            if kind not in _SHOWN or (self._last in _MAY_FOLLOW and kind not in _MAY_FOLLOW[self._last]):
                raise TranscriptInvalid(f"{_name(kind)} after {_name(self._last)}")
            if type(item) is ResultItem:
                content = item.content
                self._result(item)
            elif calls and (self._answered or kind is UserItem):
                raise TranscriptInvalid(f"{_name(kind)} before the result of {calls[self._answered]}")
            elif type(item) is CallItem:
                content = item.name
                self._call(item)
            elif type(item) is UserItem:
                content = item.content
            else:
                content = item.text if type(item) is TextItem else "reasoning, which is opaque"
            if not content or (content.isspace() if isinstance(content, str) else _has_blank(content)):
                raise TranscriptInvalid(f"{_name(kind)} is blank, wholly or in part")
            self._last = kind

    def finish(self) -> None:
        """Check that the transcript may be sent as it stands.

        Raises:
            TranscriptInvalid: naming the rule that is broken.
        """
        if self._calls:
            raise TranscriptInvalid(f"call {self._calls[self._answered]} has no result")
        if self._last is not UserItem and self._last is not ResultItem:
            raise TranscriptInvalid(f"it ends on {_name(self._last)}")

    def _call(self, item: CallItem) -> None:
        if item.id in self._ids:
            raise TranscriptInvalid(f"call id {item.id} occurs twice")
        self._ids.add(item.id)
        self._calls.append(item.id)

    def _result(self, item: ResultItem) -> None:
        calls = self._calls
        if not calls:
            raise TranscriptInvalid(f"result of {item.call_id} where none belongs")
        if item.call_id != calls[self._answered]:
            raise TranscriptInvalid(f"result of {item.call_id} where the one of {calls[self._answered]} belongs")
        self._answered += 1
        if self._answered == len(calls):
            calls.clear()
            self._answered = 0


_MODEL_SIDE: frozenset[type[Item]] = frozenset({TextItem, ReasoningItem, CallItem})
_SHOWN: frozenset[type[Item]] = _MODEL_SIDE | {UserItem, ResultItem}
_MAY_FOLLOW: dict[type[Item] | None, frozenset[type[Item]]] = {None: frozenset({UserItem}), ReasoningItem: _MODEL_SIDE}


def _name(kind: type[Item] | None) -> str:
    return kind.__name__ if kind else "nothing"


def _has_blank(parts: Iterable[Part]) -> bool:
    return any(not isinstance(part, Image) and not part.text.strip() for part in parts)


def validate(transcript: Iterable[Item]) -> None:
    """Check a whole transcript.

    Raises:
        TranscriptInvalid: naming the rule that is broken.
    """
    validator = Validator()
    validator.feed(transcript)
    validator.finish()
