"""Calls put together from the pieces in which servers of the Chat Completions API send them.

A piece should have the index of its call, and the first also its id and name. Servers leave each of these out, repeat
them, or give several calls the same; some send whole calls, or their arguments as an object.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from hibernaut.messages.stream import CallDelta, CallEnded, CallStarted, StreamPiece
from hibernaut.models.tool_names import ToolNames


class _Call(msgspec.Struct):
    number: int
    index: Any
    id: str = ""
    name: str = ""
    written: list[str] = []
    begun: bool = False

    def is_whole(self) -> bool:
        """Tell whether its arguments are a JSON value."""
        try:
            msgspec.json.decode("".join(self.written))
        except (msgspec.DecodeError, UnicodeEncodeError):
            return False
        return True


class Calls:
    """The calls of one answer. `names`: how tools are called on the wire."""

    def __init__(self, names: ToolNames) -> None:
        self._names = names
        self._calls: list[_Call] = []
        self._ended = False

    def __bool__(self) -> bool:
        return bool(self._calls)

    def feed(self, piece: Any) -> Iterator[StreamPiece]:
        """Take a piece of a call, and return what can be told of it."""
        if not isinstance(piece, Mapping):
            return
        function = piece.get("function")
        if not isinstance(function, Mapping):
            function = piece  # a few servers have its members here
        yield from self._take(piece.get("index"), _text(piece.get("id")), _text(function.get("name")), function)

    def feed_old(self, function: Any) -> Iterator[StreamPiece]:
        """Take a piece of a `function_call`, of which there is one only."""
        if isinstance(function, Mapping):
            yield from self._take(0, "", _text(function.get("name")), function)

    def end(self, *, cut: bool) -> Iterator[StreamPiece]:
        """Return what is owed at the end. Of an answer that was cut off, calls with half their arguments stay open."""
        if self._ended:
            return
        self._ended = True
        for call in self._calls:
            yield from self._begun(call)
            if not cut or call.is_whole():
                yield CallEnded(call.number)

    def _take(self, index: Any, call_id: str, name: str, function: Mapping[str, Any]) -> Iterator[StreamPiece]:
        call = self._found(index, call_id, name)
        if call is None:
            call = _Call(len(self._calls), index)
            self._calls.append(call)
        call.id = call.id or call_id
        call.name = call.name or name
        text = _arguments(function.get("arguments"))
        if call.begun and text:
            yield CallDelta(call.number, text)
        if text:
            call.written.append(text)
        if call.name:
            yield from self._begun(call)

    def _begun(self, call: _Call) -> Iterator[StreamPiece]:
        if call.begun:
            return
        call.begun = True
        yield CallStarted(call.number, self._names.of(call.name), call.id)
        for text in call.written:
            yield CallDelta(call.number, text)

    def _found(self, index: Any, call_id: str, name: str) -> _Call | None:
        """Return the call that a piece belongs to; None: it begins another one."""
        named = [call for call in self._calls if call_id and call.id == call_id]
        placed = [call for call in self._calls if index is not None and call.index == index]
        if named:
            call = named[-1]
            if name and index is not None and index != call.index:
                return None  # the same id for another call
            return None if _begins_another(call, name) else call
        if placed:
            call = placed[-1]
            if call_id and call.id:
                return None  # the same place for another call
            return None if _begins_another(call, name) else call
        if index is not None or call_id or not self._calls:
            return None
        call = self._calls[-1]
        return None if _begins_another(call, name) else call


def _begins_another(call: _Call, name: str) -> bool:
    """Tell whether a name that comes again is that of another call."""
    if not name or not call.name:
        return False
    return call.is_whole() if call.written else name != call.name


def _arguments(value: Any) -> str:
    if value is None or isinstance(value, str):
        return value or ""
    return msgspec.json.encode(value).decode()


def _text(value: Any) -> str:
    return value if isinstance(value, str) else str(value) if isinstance(value, int) else ""
