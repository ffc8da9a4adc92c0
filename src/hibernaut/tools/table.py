"""The tools of one thread: what the model is shown, and what becomes of each call it makes.

A table is made from what the program has and what the thread was launched with. History is data: a tool that a thread
names and the program no longer has is not in its table, and a call of it is refused like that of any unknown one.
"""

import difflib
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import msgspec

from hibernaut.codec import pack, sha256
from hibernaut.errors import MalformedInput, ToolDefinitionError
from hibernaut.kernel.fold import Judged, Refusal, Run, Verdict
from hibernaut.messages.parts import plain_text
from hibernaut.messages.text import clean, shorten
from hibernaut.messages.tools import ToolSpec
from hibernaut.tools.arguments import canonical, parse_arguments
from hibernaut.tools.builtin import BUILT_IN, Now
from hibernaut.tools.results import failure
from hibernaut.tools.schema import ToolSignature, signature_of
from hibernaut.tools.tool import AnyTool, is_reserved

MOST_NAMED = 20
"""Tools that a refusal names."""

_SHOWN_NAME = 64


class Entry(Protocol):
    """A tool that may be called."""

    @property
    def spec(self) -> ToolSpec:
        """What the model is shown."""
        ...

    @property
    def annotations(self) -> tuple[str, ...]:
        """What the tool says of itself; see `hibernaut.kernel.authority`."""
        ...

    def judge(self, values: dict[str, Any], written: str, now: int) -> Verdict:
        """Say what becomes of a call with these arguments, which are `written` as JSON."""
        ...

    def display(self, values: dict[str, Any]) -> str:
        """Return such a call as people read it; "" for its name and arguments."""
        ...


class _Entry(msgspec.Struct, frozen=True):
    """A tool of this process: it is run, or (a built-in one) says itself what becomes of the call."""

    spec: ToolSpec
    signature: ToolSignature
    where: str
    verdict: Run | Callable[..., Verdict]
    annotations: tuple[str, ...] = ()

    def judge(self, values: dict[str, Any], written: str, now: int) -> Verdict:
        """Say what becomes of a call with these arguments."""
        try:
            keywords = self.signature.decode(values, written)
        except MalformedInput as error:
            return Refusal(f"Not run. {error}")
        except Exception as error:  # noqa: BLE001  # types of the program convert and check values with code of their own
            return Refusal(f"Not run: the arguments do not fit. {plain_text(failure(error).content)}")
        if isinstance(self.verdict, Run):
            return self.verdict
        if self.signature.context_parameter:
            keywords[self.signature.context_parameter] = Now(now)
        return self.verdict(**keywords)

    def display(self, values: dict[str, Any]) -> str:  # noqa: ARG002
        """Leave it to its name and arguments."""
        return ""


class ToolTable:
    """The tools of a thread; a `CallJudge`.

    Args:
        tools: What the program has.
        names: What the thread was launched with, in the order that the model is shown; None for all.
        shows: Whether the thread may know of a tool of that name. The built-in tools do nothing outside of the thread;
            it always has them.
        builtins: Whether the thread has the built-in tools. They are shown after its own.
        others: Tools that work elsewhere, by names that none of its own has. They are shown last: they may become more
            while the thread lives.

    Raises:
        ToolDefinitionError: two tools have one name.
    """

    __slots__ = ("_denied", "_entries", "digest", "missing", "specs")

    def __init__(
        self,
        tools: Sequence[AnyTool],
        names: Sequence[str] | None = None,
        shows: Callable[[str], bool] = lambda _: True,
        *,
        builtins: bool = True,
        others: Mapping[str, Entry] | None = None,
    ) -> None:
        built_in = _built_in() if builtins else {}
        own: dict[str, _Entry] = {}
        for tool in tools:
            entry = _entry_of(tool)
            if (other := own.get(tool.name) or built_in.get(tool.name)) is not None:
                raise ToolDefinitionError(
                    f"two tools are called {tool.name!r}, {other.where} and {entry.where}: "
                    "give one of them another name with @tool(name=...)"
                )
            own[tool.name] = entry
        wanted = list(own) if names is None else list(dict.fromkeys(names))
        held = {name: own[name] for name in wanted if name in own}
        foreign = others or {}
        self._denied = frozenset(name for name in (*held, *foreign) if not shows(name))
        entries: dict[str, Entry] = {**held, **built_in, **foreign}
        self._entries = {name: entry for name, entry in entries.items() if name not in self._denied}
        self.missing = tuple(name for name in wanted if name not in own and name not in built_in)
        """Names that the thread was launched with and the program does not have."""
        self.specs = tuple(entry.spec for entry in self._entries.values())
        """What the model is shown, in order."""
        self.digest = sha256(pack(self.specs))
        """SHA-256 over `specs`."""

    def judge(self, tool: str, arguments: str, now: int) -> Judged:
        """Say what becomes of a call. Whatever the model wrote, it gets an answer."""
        entry = self._entries.get(tool)
        try:
            values = parse_arguments(arguments)
        except MalformedInput as error:
            return Judged(Refusal(f"Not run. {error}") if entry else self._refuse(tool))
        written = canonical(values)
        if entry is None:
            return Judged(self._refuse(tool), written)
        return Judged(entry.judge(values, written, now), written, entry.display(values), entry.annotations)

    def _refuse(self, tool: str) -> Refusal:
        name = clean(shorten(tool, _SHOWN_NAME))
        if is_reserved(tool):
            return Refusal(f"Not run: {name} is a name of the runtime, which nobody can call.")
        reason = f"this thread may not use {name}" if tool in self._denied else f"there is no tool named {name}"
        return Refusal(f"Not run: {reason}. {self._available(name)}")

    def _available(self, name: str) -> str:
        names = list(self._entries)
        if not names:
            return "There are no tools."
        close = difflib.get_close_matches(name, names, n=3)
        shown = list(dict.fromkeys([*close, *names]))[:MOST_NAMED]
        more = f" and {len(names) - len(shown)} more" if len(names) > len(shown) else ""
        return f"There are: {', '.join(shown)}{more}."


def _entry_of(tool: AnyTool) -> _Entry:
    spec = ToolSpec(tool.name, tool.description, tool.parameters)
    verdict = Run(tool.mode, tool.deadline, tool.passive, event_schema=tool.event_schema)
    return _Entry(spec, tool.signature, tool.where, verdict, annotations_of(tool))


def annotations_of(tool: AnyTool) -> tuple[str, ...]:
    """Return what a tool says of itself; see `hibernaut.kernel.authority`."""
    flags = {"destructive": tool.destructive, "idempotent": tool.idempotent}
    return tuple(name for name, is_set in flags.items() if is_set)


@functools.cache
def _built_in() -> dict[str, _Entry]:
    entries: dict[str, _Entry] = {}
    for function in BUILT_IN:
        signature = signature_of(function, context_type=Now)
        spec = ToolSpec(signature.name, signature.description, signature.parameters)
        entries[spec.name] = _Entry(spec, signature, f"the built-in {spec.name}", function)
    return entries
