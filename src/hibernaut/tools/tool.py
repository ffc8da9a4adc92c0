"""`@tool`: plain functions as tools.

    async def         works in the background, beside the thread; what it returns is the call's result
    async generator   is a subscription: the first value confirms it, every later one is an event
    def               the same as `async def`, but in a thread of its own, so that it holds nothing up
    inline=True       the thread waits for the function within its slice: for what takes milliseconds

The signature is the schema, the docstring the description. The function stays callable as it was.
"""

import functools
import inspect
import re
from collections.abc import Callable
from typing import Any, Generic, Literal, ParamSpec, Protocol, TypeVar, overload

import msgspec

from hibernaut.errors import ToolDefinitionError
from hibernaut.messages.items import EVENT_TOOL
from hibernaut.messages.tools import ANSWER_TOOL
from hibernaut.tools.context import LONGEST_WAIT, ToolContext
from hibernaut.tools.event_schema import write_schema
from hibernaut.tools.schema import ToolSignature, signature_of

P = ParamSpec("P")
R_co = TypeVar("R_co", covariant=True)

Mode = Literal["background", "inline", "subscription"]
Events = Literal["associative", "threaded"]

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,63}")


class Tool(msgspec.Struct, Generic[P, R_co], frozen=True, kw_only=True, eq=False):
    """A function that a model may call. Made by `@tool`."""

    name: str
    description: str
    parameters: str
    """A JSON Schema of the arguments, as JSON text."""
    mode: Mode
    function: Callable[P, R_co]
    signature: ToolSignature
    threaded: bool = False
    """The function is synchronous: it runs in a thread."""
    passive: bool = False
    """The call stands for waiting: events do not wait for it."""
    idempotent: bool = False
    """The same call twice is as good as once, so after a crash it may be repeated."""
    destructive: bool = False
    """It may destroy something: worth asking before."""
    timeout: int = 0
    """Milliseconds that the function may run in the process; of a subscription, until its first value. 0: no bound."""
    deadline: int = 0
    """Milliseconds that the call may stay open in all, over restarts. 0: what the thread's options say."""
    events: Events = "threaded"
    """Where a subscription's events go: each into a thread of its own, or into the thread itself."""
    resumable: bool = False
    """A subscription whose process has ended is called again, with the id of its last event."""
    event_schema: str = ""
    """A JSON Schema of a subscription's events, as JSON text; "" for any."""

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R_co:
        """Call the function as it was written."""
        return self.function(*args, **kwargs)

    @property
    def __wrapped__(self) -> Callable[P, R_co]:
        """The function, where `inspect` looks for it."""
        return self.function

    @property
    def where(self) -> str:
        """Where the function was written, for messages."""
        return _where(self.function)

    def keywords(self, arguments: str, context: ToolContext | None) -> dict[str, Any]:
        """Return what to call the function with.

        Raises:
            MalformedInput: the arguments do not fit, as those of a call that another version of the tool was made for.
        """
        values = self.signature.decode(arguments)
        if self.signature.context_parameter:
            values[self.signature.context_parameter] = context
        return values


AnyTool = Tool[..., Any]


class Decorator(Protocol):
    """What `@tool(...)` decorates with."""

    def __call__(self, function: Callable[P, R_co], /) -> Tool[P, R_co]: ...


@overload
def tool(
    function: Callable[P, R_co],
    /,
    *,
    name: str | None = None,
    description: str | None = None,
    inline: bool = False,
    passive: bool = False,
    idempotent: bool = False,
    destructive: bool = False,
    timeout: float | None = None,
    deadline: float | None = None,
    events: Events | None = None,
    resumable: bool = False,
    event_schema: object = None,
) -> Tool[P, R_co]: ...


@overload
def tool(
    *,
    name: str | None = None,
    description: str | None = None,
    inline: bool = False,
    passive: bool = False,
    idempotent: bool = False,
    destructive: bool = False,
    timeout: float | None = None,
    deadline: float | None = None,
    events: Events | None = None,
    resumable: bool = False,
    event_schema: object = None,
) -> Decorator: ...


def tool(
    function: Callable[..., Any] | None = None,
    /,
    *,
    name: str | None = None,
    description: str | None = None,
    inline: bool = False,
    passive: bool = False,
    idempotent: bool = False,
    destructive: bool = False,
    timeout: float | None = None,
    deadline: float | None = None,
    events: Events | None = None,
    resumable: bool = False,
    event_schema: object = None,
) -> Any:
    """Make a function a tool.

    Args:
        function: The function; leave it out when you decorate with options.
        name: What the model calls it; the function's own name if left out.
        description: What the model reads about it; the docstring if left out.
        inline: The thread waits for it within its slice. Otherwise it goes on beside the thread.
        passive: The call stands for waiting, so events do not wait for it.
        idempotent: The same call twice is as good as once, so it may be repeated after a crash.
        destructive: It may destroy something.
        timeout: Seconds that the function may run; of a subscription, until its first value. A synchronous function
            cannot be stopped: it is only waited for no longer.
        deadline: Seconds that the call may stay open in all, over restarts and after `ToolContext.defer`.
        events: "threaded" gives each event of a subscription a thread of its own (the default), "associative" puts
            them into the thread itself.
        resumable: A subscription whose process has ended is called again, with `ToolContext.last_event_id`.
        event_schema: What the events of a subscription are: a type, or a JSON Schema as a dict. Another event is
            refused: `EventMisfit` is raised where the function yields it. The confirmation is no event.

    Raises:
        ToolDefinitionError: the function cannot be a tool as it is, or the options do not go together.
    """
    if function is None:
        options = {key: value for key, value in locals().items() if key != "function"}
        return functools.partial(tool, **options)
    where = _where(function)
    mode = _mode(function, where, inline=inline)
    if passive and mode != "background":
        raise ToolDefinitionError(
            f"{where} cannot be passive: only a call that goes on in the background can stand for waiting"
        )
    if inline and deadline is not None:
        raise ToolDefinitionError(f"{where} has a deadline, but an inline call is over within its slice: use timeout")
    if events is not None and mode != "subscription":
        raise ToolDefinitionError(f"{where} has `events`, which only a subscription (an async generator) brings")
    if resumable and mode != "subscription":
        raise ToolDefinitionError(
            f"{where} cannot be resumable: only a subscription (an async generator) can; see `idempotent`"
        )
    if events not in (None, "associative", "threaded"):
        raise ToolDefinitionError(f'events of {where} are "associative" or "threaded", not {events!r}')
    if event_schema is not None and mode != "subscription":
        raise ToolDefinitionError(
            f"{where} has an `event_schema`, and only a subscription (an async generator) has events"
        )
    run_for, open_for = _milliseconds("timeout", timeout, where), _milliseconds("deadline", deadline, where)
    if run_for and open_for and run_for > open_for:
        raise ToolDefinitionError(f"{where} may run for longer than its call stays open: give it a longer deadline")
    if name is not None:
        _check_name(name, where)
    signature = signature_of(function, name=name, context_type=ToolContext)
    return Tool(
        name=_check_name(signature.name, where),
        description=signature.description if description is None else description,
        parameters=signature.parameters,
        mode=mode,
        function=function,
        signature=signature,
        threaded=mode != "subscription" and not inspect.iscoroutinefunction(function),
        passive=passive,
        idempotent=idempotent,
        destructive=destructive,
        timeout=run_for,
        deadline=open_for,
        events=events or "threaded",
        resumable=resumable,
        event_schema="" if event_schema is None else write_schema(event_schema, where),
    )


def is_reserved(name: str) -> bool:
    """Tell whether a name is the runtime's own: no tool has it, and a call of it is refused."""
    return name in (EVENT_TOOL, ANSWER_TOOL) or name.endswith("__injected") or name.startswith("__harness_")


def _mode(function: object, where: str, *, inline: bool) -> Mode:
    if isinstance(function, Tool):
        raise ToolDefinitionError(f"{where} is a tool already: decorate it once, with all options")
    if isinstance(function, staticmethod | classmethod):
        raise ToolDefinitionError(f"{where} is not bound yet: put @tool below @staticmethod, or use tool(Class.method)")
    if not (inspect.isroutine(function) or isinstance(function, functools.partial)):
        raise ToolDefinitionError(f"{where} is no function: write one that does the work, and decorate that")
    if inspect.isgeneratorfunction(function):
        raise ToolDefinitionError(f"{where} is a generator: make it `async def`, then it is a subscription")
    if inspect.isasyncgenfunction(function):
        if inline:
            raise ToolDefinitionError(f"{where} is a subscription, whose events come later: it cannot be inline")
        return "subscription"
    return "inline" if inline else "background"


def _check_name(name: str, where: str) -> str:
    if is_reserved(name):
        raise ToolDefinitionError(f"the name {name!r} of {where} is the runtime's own: give it another one with name=")
    if not _NAME.fullmatch(name):
        raise ToolDefinitionError(
            f"{name!r} cannot name a tool ({where}): take letters, digits, _ and -, up to 64 of them, with a "
            "letter or _ as the first; @tool(name=...) gives a function another name"
        )
    return name


def _milliseconds(what: str, seconds: object, where: str) -> int:
    if seconds is None:
        return 0
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 < seconds <= LONGEST_WAIT:
        raise ToolDefinitionError(
            f"{what} of {where} is {seconds!r}: give seconds, above 0 and up to ten years, or leave it out"
        )
    return max(1, round(seconds * 1000))


def _where(function: object) -> str:
    while isinstance(function, functools.partial | Tool):
        function = function.func if isinstance(function, functools.partial) else function.function
    named = function if hasattr(function, "__qualname__") else type(function)
    return f"{named.__module__}.{named.__qualname__}"
